//! Our extension methods, which no client needs to know (R-EXT-4). They are advertised in `_meta`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::responder::Responder;
use super::wire::{GetMessages, RequestMethod};
use crate::error::Error;
use crate::session::{self, HistoryPage, MessageRecord};
use turnwright_rpc::RequestId;
use turnwright_types::ids::SessionId;
use turnwright_types::timestamp::rfc3339_millis;

/// The number of messages in one response.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The `_meta` of the response to `initialize`.
pub(super) fn advertised_methods() -> Map<String, Value> {
    [("turnwright/methods".to_owned(), json!([GetMessages::NAME]))].into_iter().collect()
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
        .map(|it| {
            let arguments: Value = serde_json::from_str(&it.arguments).unwrap_or_default();
            json!({ "id": it.call.as_str(), "name": it.tool, "arguments": arguments,
                "result": it.result, "error": it.error, "status": it.status.as_str(),
                "duration": it.duration_ms, "spawn_task": it.spawn_task() })
        })
        .collect();
    json!({ "id": said.message.as_str(), "session_id": said.session.as_str(),
        "role": if said.is_from_user { "user" } else { "assistant" }, "content": said.text,
        "created_at": rfc3339_millis(said.at), "tool_calls": calls })
}
