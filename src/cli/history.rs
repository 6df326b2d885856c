//! `turnwright history`: searches tool calls or messages; prints a table or JSON lines.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};

use super::sessions::find_session;
use super::{CliError, report, write_stdout};
use turnwright_config::Config;
use turnwright_store::history::{
    CallRecord, HistoryCursor, HistoryPage, HistoryQuery, MessageRecord, find_calls, find_messages,
};
use turnwright_store::{CallStatus, Store, StoreError};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::timestamp::{local_time, parse_user_time, rfc3339_millis};

/// Rows per query.
const PAGE_SIZE: usize = 500;
/// The most characters of the last column.
const MAX_LINE_LENGTH: usize = 100;

#[derive(Debug, Args)]
pub(super) struct HistoryCliArgs {
    /// Words that must all occur in the arguments, result, error or prompt
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Only this session: an id, a prefix of one, or `last`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only sessions in this folder
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// Only this tool
    #[arg(long, value_name = "NAME", conflicts_with = "messages")]
    tool: Option<String>,
    /// Only calls with this status: success, error, running, pending
    #[arg(long, value_parser = parse_status, conflicts_with = "messages")]
    status: Option<CallStatus>,
    /// Not before: 2h, 3d, 2026-11-01, 2026-11-01T12:30 (local; with a Z at its end UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<SystemTime>,
    /// Not after
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<SystemTime>,
    /// Number of rows, newest first
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Messages instead of tool calls
    #[arg(long)]
    messages: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

fn parse_status(word: &str) -> Result<CallStatus, String> {
    let known = CallStatus::parse(word);
    if known.as_str() == word {
        return Ok(known);
    }
    Err("expected success, error, running or pending".to_owned())
}

fn parse_time(text: &str) -> Result<SystemTime, String> {
    parse_user_time(text, SystemTime::now()).ok_or_else(|| {
        "expected a time such as 90m, 2h, 3d, 2026-11-01 or 2026-11-01T12:30".to_owned()
    })
}

/// Exits with 0 if the store could be read, even if nothing was found.
pub(super) fn run(args: HistoryCliArgs, config: &Config) -> ExitCode {
    let store = Store::new(&config.paths.state);
    report("history", print(args, &store))
}

fn print(args: HistoryCliArgs, store: &Store) -> Result<(), CliError> {
    if !store.exists() {
        return Ok(write_stdout(if args.json { "" } else { "No stored sessions.\n" })?);
    }
    let session = args.session.as_deref().map(|id| find_session(store, id)).transpose()?;
    let cwd = args.cwd.map(std::path::absolute).transpose()?;
    let query = HistoryQuery {
        session,
        cwd,
        tool: args.tool,
        statuses: args.status.into_iter().collect(),
        since: args.since,
        until: args.until,
        words: args.words.join(" "),
        ..HistoryQuery::default()
    };
    let limit = args.limit;
    let json = args.json;
    let found = if args.messages {
        let line = if json { message_json } else { message_line };
        print_pages(store, query, limit, find_messages, line)?
    } else {
        let line = if json { call_json } else { call_line };
        print_pages(store, query, limit, find_calls, line)?
    };
    match found {
        PrintedRows { count: 0, .. } if !json => write_stdout("Nothing found.\n")?,
        PrintedRows { is_cut: true, .. } if !json => {
            write_stdout("(Too many long texts for one search: some were not searched.)\n")?;
        }
        _ => {}
    }
    Ok(())
}

struct PrintedRows {
    count: usize,
    /// True if the search stopped before it had read every long text.
    is_cut: bool,
}

/// Prints page by page, so that memory use does not grow with the number of rows.
fn print_pages<T>(
    store: &Store,
    mut query: HistoryQuery,
    limit: usize,
    read: fn(&rusqlite::Connection, &HistoryQuery) -> Result<HistoryPage<T>, StoreError>,
    line: fn(&T) -> String,
) -> Result<PrintedRows, CliError> {
    let mut found = PrintedRows { count: 0, is_cut: false };
    loop {
        query.limit = (limit - found.count).min(PAGE_SIZE);
        let page = store.read_blocking(|connection| read(connection, &query))?;
        found.count += page.rows.len();
        found.is_cut |= page.is_truncated;
        let mut text: String = page.rows.iter().map(line).collect();
        redact::redact_in_place(&mut text);
        write_stdout(&text)?;
        let next: Option<HistoryCursor> = page.next.filter(|_| found.count < limit);
        if next.is_none() {
            return Ok(found);
        }
        query.after = next;
    }
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

/// The first characters of an id, which are enough to name it.
pub(super) fn short_id(id: &str) -> String {
    escape_hidden_line(text::first_chars(id, 8))
}

pub(super) fn format_duration(millis: f64) -> String {
    match millis {
        millis if millis < 1_000.0 => format!("{millis:.0} ms"),
        millis if millis < 60_000.0 => format!("{:.1} s", millis / 1_000.0),
        millis => format!("{:.1} min", millis / 60_000.0),
    }
}

/// The beginning of a text, on one line.
pub(super) fn one_line(text: &str) -> String {
    let line = text::first_chars(text.trim(), MAX_LINE_LENGTH + 1);
    text::clip(escape_hidden_line(line), MAX_LINE_LENGTH)
}
