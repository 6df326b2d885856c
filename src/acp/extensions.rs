//! Methods of our own, which no client has to know (R-EXT-4). They are advertised in `_meta`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::reply::Reply;
use super::wire::{History, Method};
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_types::moment::rfc3339_millis;
use turnwright_rpc::RequestId;
use crate::session::{self, Page, Said};

/// Messages of one answer, unless said otherwise, and at most.
const USUAL: usize = 100;
const MOST: usize = 1_000;

/// What is said of them in the answer to `initialize`.
pub(super) fn advertised() -> Map<String, Value> {
    [("turnwright/methods".to_owned(), json!([History::NAME]))].into_iter().collect()
}

/// What `_turnwright/history` takes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryRequest {
    session_id: String,
    limit: Option<usize>,
    before: Option<String>,
}

/// The messages of a session with their calls, the oldest first: the last ones, or those before a
/// `nextCursor`.
pub(super) fn history(
    connection: &mut Connection,
    _: &RequestId,
    params: HistoryRequest,
    reply: Reply<History>,
) {
    let HistoryRequest { session_id, limit, before } = params;
    let limit = limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return reply.fail(&Error::Params(format!("`limit` is 1 to {MOST}")));
    }
    let id = SessionId::from(session_id.as_str());
    let done = reply.done(move |page: Page<Said>| {
        let messages: Vec<_> = page.rows.iter().rev().map(message).collect();
        let mut answer = json!({ "sessionId": session_id, "messages": messages });
        if let Some(next) = page.next {
            answer["nextCursor"] = next.to_string().into();
        }
        answer
    });
    session::history(&connection.host, id, limit, before.as_deref(), done);
}

fn message(said: &Said) -> Value {
    let calls: Vec<_> = said
        .calls
        .iter()
        .map(|it| {
            let arguments: Value = serde_json::from_str(&it.arguments).unwrap_or_default();
            json!({ "id": it.call, "name": it.tool, "arguments": arguments,
                "result": it.result, "error": it.error, "status": it.status.word(),
                "duration": it.duration_ms, "spawn_task": null })
        })
        .collect();
    json!({ "id": said.message, "session_id": said.session,
        "role": if said.is_users { "user" } else { "assistant" }, "content": said.text,
        "created_at": rfc3339_millis(said.at), "tool_calls": calls })
}
