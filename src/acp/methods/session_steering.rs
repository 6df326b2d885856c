//! `_session/steering`, an extension that several agents have: words for the running turn.

use serde::Deserialize;
use serde_json::{Value, json};

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::from_wire;
use crate::acp::responder::Responder;
use crate::acp::schema::ContentBlock;
use crate::error::Error;
use turnwright_types::ids::SessionId;

pub(super) struct Steer;

/// The parameters, as other agents have them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SteeringRequest {
    session_id: String,
    prompt: Vec<ContentBlock>,
}

impl RequestMethod for Steer {
    const NAME: &'static str = "_session/steering";
    type Params = SteeringRequest;
    type Result = Value;

    /// Gives the user's words to the running turn. If there is none, the client has to send them as a
    /// prompt: a turn that no prompt has asked for would have nobody to answer.
    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let Some(handle) = connection.session(&SessionId::from(params.session_id.as_str())) else {
            return reply.fail(&Error::SessionNotFound(params.session_id));
        };
        let words = match from_wire::prompt(params.prompt) {
            Ok(words) => words,
            Err(error) => return reply.fail(&error),
        };
        let done = reply.done(|taken: bool| {
            if taken {
                json!({ "outcome": "injected" })
            } else {
                json!({ "outcome": "promptRequired", "reason": "noRunningTurn" })
            }
        });
        handle.steer(words, done);
    }
}
