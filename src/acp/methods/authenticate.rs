//! `authenticate`, which version 2 calls `auth/login`: the client chooses an auth method. Only version 2 has
//! `auth/logout`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::capabilities;
use crate::acp::responder::Responder;
use crate::acp::schema::{AuthenticateRequest, AuthenticateResponse};

pub(super) fn authenticate(
    connection: &mut Connection,
    params: AuthenticateRequest,
    reply: Responder<AuthenticateResponse>,
) {
    let host = &connection.host;
    let offer = connection.offer.clone();
    let peer = connection.peer.clone();
    let done = reply.done(|()| AuthenticateResponse::new());
    let method = params.method_id.0.to_string();
    let task = capabilities::authenticate(host, Some(peer), offer, method, done);
    // A session that is opened next finds the method in effect.
    connection.offer = capabilities::later_offer(host, task);
}

/// The parameters of `auth/login`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginRequest {
    method_id: String,
}

pub(super) fn log_in(connection: &mut Connection, params: LoginRequest, reply: Responder<Value>) {
    let host = &connection.host;
    let offer = connection.offer.clone();
    let done = reply.done(|()| json!({}));
    let task = capabilities::authenticate(host, None, offer, params.method_id, done);
    // A session that is opened next finds the method in effect.
    connection.offer = capabilities::later_offer(host, task);
}

/// Stored keys stay: they belong to the user and not to this client.
pub(super) fn log_out(connection: &mut Connection, _: Value, reply: Responder<Value>) {
    let host = connection.host.clone();
    let offer = connection.offer.clone();
    // A login that was requested before is finished first.
    let task = async move {
        let offer = offer.await;
        host.log_out();
        reply.ok(&json!({}));
        offer
    };
    connection.offer = capabilities::later_offer(&connection.host, task);
}
