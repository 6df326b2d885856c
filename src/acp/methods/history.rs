//! `_turnwright/history`, an extension of this agent: pages of a session's messages. No client needs to know it
//! (R-EXT-4).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::responder::Responder;
use crate::session::{self, HistoryPage, MessageRecord};
use turnwright_types::ids::SessionId;
use turnwright_types::timestamp::rfc3339_millis;

/// The number of messages in one response.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The name of the method.
pub(super) const METHOD: &str = "_turnwright/history";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryRequest {
    session_id: String,
    limit: Option<usize>,
    before: Option<String>,
}

/// Returns messages of a session with their tool calls, the oldest first: the latest ones, or those
/// before a `nextCursor`.
pub(super) fn get_messages(
    connection: &mut Connection,
    params: HistoryRequest,
    reply: Responder<Value>,
) {
    let HistoryRequest { session_id, limit, before } = params;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return reply.fail(&invalid(format!("`limit` must be 1 to {MAX_LIMIT}")));
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
