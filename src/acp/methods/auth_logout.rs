//! `auth/logout`, which only version 2 has.

use serde_json::{Value, json};

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::offer;
use crate::acp::responder::Responder;

pub(super) struct LogOut;

impl RequestMethod for LogOut {
    const NAME: &'static str = "auth/logout";
    type Params = Value;
    type Result = Value;

    /// Stored keys stay: they belong to the user and not to this client.
    fn handle(connection: &mut Connection, _: Self::Params, reply: Responder<Self>) {
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
}
