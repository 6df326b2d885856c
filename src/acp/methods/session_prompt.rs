//! `session/prompt`. In version 1 the answer is the end of the turn; in version 2 it says only that the prompt is a
//! message of the conversation.

use std::sync::Arc;

use serde_json::Value;

use crate::acp::connection::Connection;
use crate::acp::error::read_params;
use crate::acp::responder::Responder;
use crate::acp::schema::{PromptRequest, PromptResponse};
use crate::acp::{from_wire, to_wire};
use crate::error::Error;
use turnwright_types::hash::sha256_hex;
use turnwright_types::ids::SessionId;
use turnwright_types::message::{PromptEnd, Submission, UserMessage};

/// The name of the method.
pub(in crate::acp) const METHOD: &str = "session/prompt";

/// The most characters of an idempotency key.
const MAX_KEY_CHARS: usize = 255;

pub(super) fn prompt(
    connection: &mut Connection,
    params: PromptRequest,
    reply: Responder<PromptResponse>,
) {
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|handle| handle.is_open()) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => prompt,
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) =
        connection.in_flight.register_prompt(reply.id().clone(), session.clone());
    let done = reply.done(move |end: PromptEnd| {
        drop(in_flight);
        to_wire::prompt_end(end)
    });
    handle.prompt(key, prompt, connection.at_prompt_end(&session, key, done));
}

pub(super) fn prompt_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let submission = match read_submission(&params) {
        Ok(submission) => submission,
        Err(error) => return reply.fail(&error),
    };
    let params: PromptRequest = match read_params(reply.method(), &params) {
        Ok(params) => params,
        Err(error) => return reply.fail(&error),
    };
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|handle| handle.is_open()) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => UserMessage { submission: submission.map(Arc::new), ..prompt },
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) =
        connection.in_flight.register_prompt(reply.id().clone(), session.clone());
    let outbox = connection.peer.outbox().clone();
    let done = connection.prompts.add(key, session.clone(), outbox, reply, in_flight);
    handle.prompt(key, prompt, connection.at_prompt_end(&session, key, done));
}

/// Reads the key with which the client may send the prompt again.
fn read_submission(params: &Value) -> Result<Option<Submission>, Error> {
    let key = match params.get("idempotencyKey").filter(|key| !key.is_null()) {
        None => return Ok(None),
        Some(Value::String(key)) if (1..=MAX_KEY_CHARS).contains(&key.chars().count()) => key,
        Some(_) => {
            let text =
                format!("`idempotencyKey` must be a text of 1 to {MAX_KEY_CHARS} characters");
            return Err(Error::InvalidParams(text));
        }
    };
    let content = sha256_hex(params["prompt"].to_string().as_bytes());
    Ok(Some(Submission { key: key.as_str().into(), content }))
}
