//! `session/prompt`. In version 1 the answer is the end of the turn; in version 2 it says only that the prompt is a
//! message of the conversation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::error::{invalid, invalid_params};
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
    let prompt = from_wire::prompt(params.prompt, HashMap::new());
    let Some((prompt, reply)) = reply.if_ok(prompt) else { return };
    connection.silent_requests.store(0, Ordering::Relaxed);
    let (key, in_flight) =
        connection.in_flight.register_prompt(reply.id().clone(), session.clone());
    let done = reply.done(move |end: PromptEnd| {
        drop(in_flight);
        to_wire::prompt_end(end)
    });
    handle.prompt(key, prompt, connection.at_prompt_end(&session, key, done));
}

#[expect(clippy::boxed_local, reason = "a `RawValue` has no size of its own")]
pub(super) fn prompt_v2(
    connection: &mut Connection,
    params: Box<RawValue>,
    reply: Responder<Value>,
) {
    let (rest, skills) = take_skills(params.get()).unzip();
    let text = rest.as_deref().unwrap_or(params.get());
    let read = read_key(params.get()).and_then(|key| {
        let request: PromptRequest = serde_json::from_str(text)
            .map_err(|error| invalid_params(reply.method(), text, &error))?;
        Ok((key, request))
    });
    let Some(((key, params), reply)) = reply.if_ok(read) else { return };
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|handle| handle.is_open()) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let prompt = from_wire::prompt(params.prompt, skills.unwrap_or_default());
    let keyed = prompt.map(|prompt| with_key(prompt, key));
    let Some((prompt, reply)) = reply.if_ok(keyed) else { return };
    let (key, in_flight) =
        connection.in_flight.register_prompt(reply.id().clone(), session.clone());
    let outbox = connection.peer.outbox().clone();
    let request = Some((reply, in_flight));
    let done = connection.prompts.add(key, session.clone(), outbox, request, false);
    handle.prompt(key, prompt, connection.at_prompt_end(&session, key, done));
}

/// Replaces each skill by an empty text, so that the types of version 1 can read the parameters. Returns the changed
/// parameters, and the skills by the indexes of their blocks; `None` if there are none, or if the parameters are
/// malformed.
fn take_skills(params: &str) -> Option<(String, HashMap<usize, String>)> {
    // Most prompts need not be read twice.
    let may_have_any = params.contains("\"skill\"");
    let mut read: Value = may_have_any.then(|| serde_json::from_str(params).ok())??;
    let mut skills = HashMap::new();
    for (index, block) in read.get_mut("prompt")?.as_array_mut()?.iter_mut().enumerate() {
        if block["type"] == "skill"
            && let Some(name) = block["name"].as_str()
        {
            skills.insert(index, name.to_owned());
            *block = json!({ "type": "text", "text": "" });
        }
    }
    Some((read.to_string(), skills)).filter(|(_, skills)| !skills.is_empty())
}

/// Reads the key with which the client may send the prompt again.
fn read_key(params: &str) -> Result<Option<Box<str>>, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct KeyOnly {
        idempotency_key: Value,
    }
    // The reader of the rest says if it is malformed.
    match serde_json::from_str(params).unwrap_or_default() {
        KeyOnly { idempotency_key: Value::Null } => Ok(None),
        KeyOnly { idempotency_key: Value::String(key) }
            if (1..=MAX_KEY_CHARS).contains(&key.chars().count()) =>
        {
            // Neither long enough to be stored elsewhere, nor anything that looks like a secret.
            Ok(Some(sha256_hex(key.as_bytes()).into()))
        }
        _ => Err(invalid(format!(
            "`idempotencyKey` must be a text of 1 to {MAX_KEY_CHARS} characters"
        ))),
    }
}

fn with_key(prompt: UserMessage, key: Option<Box<str>>) -> UserMessage {
    let submission = key.map(|key| {
        let parts = serde_json::to_vec(&prompt.parts).unwrap_or_default();
        Arc::new(Submission { key, content: sha256_hex(&parts) })
    });
    UserMessage { submission, ..prompt }
}
