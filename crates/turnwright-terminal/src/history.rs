//! `turnwright history`: searches tool calls or messages; prints a table or JSON lines.

use serde_json::{Value, json};

use crate::sessions::{find_session, format_duration, one_line, real_path_or_same, short_id};
use crate::{CliResult, write_stdout};
use turnwright_store::history::{
    CallRecord, HistoryPage, HistoryQuery, MessageRecord, find_calls, find_messages,
};
use turnwright_store::{Store, StoreError};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::timestamp::{local_time, rfc3339_millis};

/// Rows per query.
const PAGE_SIZE: usize = 500;

/// Prints the tool calls or the `messages` that match, newest first, of all sessions or of one (an id, a prefix of one,
/// or `last`).
pub fn print(
    store: &Store,
    mut query: HistoryQuery,
    session: Option<&str>,
    limit: usize,
    messages: bool,
    json: bool,
) -> CliResult<()> {
    if !store.exists() {
        return Ok(write_stdout(if json { "" } else { "No stored sessions.\n" })?);
    }
    query.session = session.map(|id| find_session(store, id)).transpose()?;
    let folder = query.cwd.map(std::path::absolute).transpose()?;
    query.cwd = folder.map(|folder| real_path_or_same(&folder));
    let note = if messages {
        let line = if json { message_json } else { message_line };
        print_pages(store, query, limit, find_messages, line)?
    } else {
        let line = if json { call_json } else { call_line };
        print_pages(store, query, limit, find_calls, line)?
    };
    Ok(write_stdout(if json { "" } else { note })?)
}

/// Prints page by page, so that memory use does not grow with the number of rows. Returns a note for people.
fn print_pages<T>(
    store: &Store,
    mut query: HistoryQuery,
    limit: usize,
    read: fn(&rusqlite::Connection, &HistoryQuery) -> Result<HistoryPage<T>, StoreError>,
    line: fn(&T) -> String,
) -> CliResult<&'static str> {
    let mut count = 0;
    // True if the search stopped before it had read every long text.
    let mut is_cut = false;
    loop {
        query.limit = (limit - count).min(PAGE_SIZE);
        let page = store.read_blocking(|connection| read(connection, &query))?;
        count += page.rows.len();
        is_cut |= page.is_truncated;
        write_stdout(&page.rows.iter().map(line).collect::<String>())?;
        query.after = page.next.filter(|_| count < limit);
        if query.after.is_none() {
            break;
        }
    }
    Ok(match count {
        0 => "Nothing found.\n",
        _ if is_cut => "(Too many long texts for one search: some were not searched.)\n",
        _ => "",
    })
}

fn call_json(row: &CallRecord) -> String {
    let arguments: Value = row.arguments.as_str().into();
    let row = json!({ "id": row.id, "session_id": row.session.as_str(), "tool_name": row.tool,
        "arguments": arguments, "result": row.result, "error": row.error,
        "duration_ms": row.duration_ms, "timestamp": rfc3339_millis(row.at),
        "user_message": row.user_message, "message_id": row.message.as_str(),
        "spawn_task": row.spawn_task() });
    format!("{row}\n")
}

fn call_line(row: &CallRecord) -> String {
    let what = match &row.error {
        Some(error) => format!("{} → {error}", row.arguments),
        None => row.arguments.clone(),
    };
    let time = local_time(row.at);
    let session = short_id(row.session.as_str());
    let tool = escape_hidden_line(&row.tool);
    let status = row.status.as_str();
    let length = row.duration_ms.map(format_duration).unwrap_or_default();
    format!("{time}  {session}  {tool:14} {status:7} {length:>8}  {}\n", one_line(&what))
}

fn message_json(row: &MessageRecord) -> String {
    let role = if row.is_from_user { "user" } else { "assistant" };
    let row = json!({ "id": row.message.as_str(), "session_id": row.session.as_str(), "role": role,
        "content": row.text, "created_at": rfc3339_millis(row.at) });
    format!("{row}\n")
}

fn message_line(row: &MessageRecord) -> String {
    let time = local_time(row.at);
    let session = short_id(row.session.as_str());
    let who = if row.is_from_user { "user" } else { "assistant" };
    format!("{time}  {session}  {who:9}  {}\n", one_line(&row.text))
}
