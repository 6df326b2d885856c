//! `_session/steering`, an extension that several agents have: words for the running turn.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::from_wire;
use crate::acp::responder::Responder;
use crate::acp::schema::ContentBlock;

/// The name of the method.
pub(super) const METHOD: &str = "_session/steering";

/// The parameters, as other agents have them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SteeringRequest {
    session_id: String,
    prompt: Vec<ContentBlock>,
}

/// Gives the user's words to the running turn. If there is none, the client has to send them as a
/// prompt: a turn that no prompt has asked for would have nobody to answer.
pub(super) fn steer(connection: &mut Connection, params: SteeringRequest, reply: Responder<Value>) {
    let found = connection.find_session(&params.session_id);
    let Some((handle, reply)) = reply.if_ok(found) else { return };
    let words = from_wire::prompt(params.prompt, HashMap::new());
    let Some((words, reply)) = reply.if_ok(words) else { return };
    let done = reply.done(|taken: bool| {
        if taken {
            json!({ "outcome": "injected" })
        } else {
            json!({ "outcome": "promptRequired", "reason": "noRunningTurn" })
        }
    });
    handle.steer(words, done);
}
