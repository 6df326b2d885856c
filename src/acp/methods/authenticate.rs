//! `authenticate`, which version 2 calls `auth/login`: the client chooses an auth method.

use serde::Deserialize;
use serde_json::{Value, json};

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::offer;
use crate::acp::responder::Responder;
use crate::acp::schema::{AuthenticateRequest, AuthenticateResponse};

pub(super) struct Authenticate;

impl RequestMethod for Authenticate {
    const NAME: &'static str = "authenticate";
    type Params = AuthenticateRequest;
    type Result = AuthenticateResponse;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let host = &connection.host;
        let offer = connection.offer.clone();
        let peer = connection.peer.clone();
        let done = reply.done(|()| AuthenticateResponse::new());
        let method = params.method_id.0.to_string();
        let task = offer::authenticate(host, Some(peer), offer, method, done);
        // A session that is opened next finds the method in effect.
        connection.offer = offer::later(host, task);
    }
}

pub(super) struct LogIn;

/// The parameters of `auth/login`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginRequest {
    method_id: String,
}

impl RequestMethod for LogIn {
    const NAME: &'static str = "auth/login";
    type Params = LoginRequest;
    type Result = Value;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let host = &connection.host;
        let offer = connection.offer.clone();
        let done = reply.done(|()| json!({}));
        let task = offer::authenticate(host, None, offer, params.method_id, done);
        // A session that is opened next finds the method in effect.
        connection.offer = offer::later(host, task);
    }
}
