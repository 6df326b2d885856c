//! Our extension methods, which no client needs to know (R-EXT-4). They are advertised in `_meta`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::from_wire;
use super::responder::Responder;
use super::wire::schema::ContentBlock;
use super::wire::{GetMessages, RequestMethod, Steer};
use crate::error::Error;
use crate::session::{self, HistoryPage, MessageRecord};
use turnwright_rpc::RequestId;
use turnwright_types::ids::SessionId;
use turnwright_types::timestamp::rfc3339_millis;

/// The number of messages in one response.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The `_meta` of the agent's capabilities.
pub(super) fn advertised_methods() -> Map<String, Value> {
    let methods = json!([GetMessages::NAME, Steer::NAME]);
    [("turnwright/methods".to_owned(), methods)].into_iter().collect()
}

/// The `_meta` of the response to `initialize`, in which other agents advertise steering.
pub(super) fn advertised_steering() -> Map<String, Value> {
    [("steering".to_owned(), json!({ "supported": true }))].into_iter().collect()
}

/// The parameters of `_session/steering`, as other agents have them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SteeringRequest {
    session_id: String,
    prompt: Vec<ContentBlock>,
}

/// Gives the user's words to the running turn. If there is none, the client has to send them as a
/// prompt: a turn that no prompt has asked for would have nobody to answer.
pub(super) fn steer(
    connection: &mut Connection,
    _: &RequestId,
    SteeringRequest { session_id, prompt }: SteeringRequest,
    reply: Responder<Steer>,
) {
    let Some(handle) = connection.session(&SessionId::from(session_id.as_str())) else {
        return reply.fail(&Error::SessionNotFound(session_id));
    };
    let words = match from_wire::prompt(prompt) {
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

/// The parameters of `_turnwright/history`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryRequest {
    session_id: String,
    limit: Option<usize>,
    before: Option<String>,
}

/// Returns messages of a session with their tool calls, the oldest first: the latest ones, or those
/// before a `nextCursor`.
pub(super) fn history(
    connection: &mut Connection,
    _: &RequestId,
    params: HistoryRequest,
    reply: Responder<GetMessages>,
) {
    let HistoryRequest { session_id, limit, before } = params;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return reply.fail(&Error::InvalidParams(format!("`limit` must be 1 to {MAX_LIMIT}")));
    }
    let id = SessionId::from(session_id.as_str());
    let done = reply.done(move |page: HistoryPage<MessageRecord>| {
        let messages: Vec<_> = page.rows.iter().rev().map(message).collect();
        let mut answer = json!({ "sessionId": session_id, "messages": messages });
        if let Some(next) = page.next {
            answer["nextCursor"] = next.to_string().into();
        }
        answer
    });
    session::history(&connection.host, id, limit, before.as_deref(), done);
}

fn message(said: &MessageRecord) -> Value {
    let calls: Vec<_> = said
        .calls
        .iter()
        .map(|call| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            json!({ "id": call.call.as_str(), "name": call.tool, "arguments": arguments,
                "result": call.result, "error": call.error, "status": call.status.as_str(),
                "duration": call.duration_ms, "spawn_task": call.spawn_task() })
        })
        .collect();
    json!({ "id": said.message.as_str(), "session_id": said.session.as_str(),
        "role": if said.is_from_user { "user" } else { "assistant" }, "content": said.text,
        "created_at": rfc3339_millis(said.at), "tool_calls": calls })
}
