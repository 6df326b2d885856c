//! `authenticate`, which version 2 calls `auth/login`: the client chooses an auth method. Only version 2 has
//! `auth/logout`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::acp::capabilities;
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::AuthenticateRequest;
use crate::completion::Completion;
use turnwright_rpc::Peer;

pub(super) fn authenticate(
    connection: &mut Connection,
    params: AuthenticateRequest,
    reply: Responder<Value>,
) {
    let peer = connection.peer.clone();
    choose(connection, &params, Some(peer), reply.done(|()| json!({})));
}

/// The parameters are those of version 1.
pub(super) fn log_in(
    connection: &mut Connection,
    params: AuthenticateRequest,
    reply: Responder<Value>,
) {
    choose(connection, &params, None, reply.done(|()| json!({})));
}

/// Chooses a method. The client at `peer` is told of a new answer to `auth/status`.
fn choose(
    connection: &mut Connection,
    params: &AuthenticateRequest,
    peer: Option<Peer>,
    done: Completion<()>,
) {
    let host = Arc::clone(&connection.host);
    let offer = connection.offer.clone();
    let method = params.method_id.0.to_string();
    let task = capabilities::authenticate(host, peer, offer, method, done);
    // A session that is opened next finds the method in effect.
    connection.offer = capabilities::later_offer(&connection.host, task);
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
