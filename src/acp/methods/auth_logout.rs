//! `auth/logout`, which only version 2 has.

use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::offer;
use crate::acp::responder::Responder;

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
    connection.offer = offer::later(&connection.host, task);
}
