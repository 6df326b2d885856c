//! `turnwright history`: what the tools have done, or what was said, as a table or as JSON.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};

use super::sessions::find;
use super::{Trouble, ended, say};
use crate::config::Config;
use turnwright_types::effect::visible_line;
use turnwright_types::moment::{parse, rfc3339, rfc3339_millis};
use turnwright_types::redact;
use turnwright_store::history::{Cursor, Done, Page, Query, Said, calls, messages};
use turnwright_store::{CallStatus, Store, StoreError};

/// Rows that are read at once.
const TOGETHER: usize = 500;
/// Characters of the last column.
const LONGEST: usize = 100;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Each has to stand in the arguments, the result, the error or the prompt
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Only this session: its id, the beginning of it, or `last`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only the sessions of this folder
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// Only this tool
    #[arg(long, value_name = "NAME", conflicts_with = "messages")]
    tool: Option<String>,
    /// Only calls that came so far: success, error, running, pending
    #[arg(long, value_parser = status, conflicts_with = "messages")]
    status: Option<CallStatus>,
    /// Only from then on: 2h, 3d, 2026-11-01, 2026-11-01T12:30 (UTC)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<SystemTime>,
    /// Only until then
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<SystemTime>,
    /// Rows, the newest first
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// What was said and not what was done
    #[arg(long)]
    messages: bool,
    /// A line of JSON for each row
    #[arg(long)]
    json: bool,
}

fn status(word: &str) -> Result<CallStatus, String> {
    let known = CallStatus::parse(word);
    if known.word() == word {
        return Ok(known);
    }
    Err("one of success, error, running, pending".to_owned())
}

fn time(text: &str) -> Result<SystemTime, String> {
    let error = || "such as 90m, 2h, 3d, 2026-11-01 or 2026-11-01T12:30 (UTC)".to_owned();
    parse(text, SystemTime::now()).ok_or_else(error)
}

/// Ends with 0 if the store could be read, whatever was found.
pub(super) fn run(options: Options, config: &Config) -> ExitCode {
    let store = Store::new(&config.paths.state);
    ended("history", print(options, &store))
}

fn print(options: Options, store: &Store) -> Result<(), Trouble> {
    if !store.is_there() {
        return Ok(say(if options.json { "" } else { "No session was kept yet.\n" })?);
    }
    let session = options.session.as_deref().map(|it| find(store, it)).transpose()?;
    let cwd = options.cwd.map(std::path::absolute).transpose()?;
    let query = Query {
        session,
        cwd,
        tool: options.tool,
        statuses: options.status.into_iter().collect(),
        since: options.since,
        until: options.until,
        words: options.words.join(" "),
        ..Query::default()
    };
    let (limit, json) = (options.limit, options.json);
    let found = if options.messages {
        let line = if json { said_json } else { said_line };
        pages(store, query, limit, messages, line)?
    } else {
        let line = if json { done_json } else { done_line };
        pages(store, query, limit, calls, line)?
    };
    match found {
        Found { rows: 0, .. } if !json => say("Nothing found.\n")?,
        Found { is_cut: true, .. } if !json => {
            say("(There are more long texts than one search reads: not all were searched.)\n")?;
        }
        _ => {}
    }
    Ok(())
}

struct Found {
    rows: usize,
    is_cut: bool,
}

/// Prints page by page: however many rows there are, few are in memory.
fn pages<T>(
    store: &Store,
    mut query: Query,
    limit: usize,
    read: fn(&rusqlite::Connection, &Query) -> Result<Page<T>, StoreError>,
    line: fn(&T) -> String,
) -> Result<Found, Trouble> {
    let mut found = Found { rows: 0, is_cut: false };
    loop {
        query.limit = (limit - found.rows).min(TOGETHER);
        let page = store.read_now(|connection| read(connection, &query))?;
        found.rows += page.rows.len();
        found.is_cut |= page.is_cut;
        let mut text: String = page.rows.iter().map(line).collect();
        redact::clean(&mut text);
        say(&text)?;
        let next: Option<Cursor> = page.next.filter(|_| found.rows < limit);
        if next.is_none() {
            return Ok(found);
        }
        query.before = next;
    }
}

fn done_json(row: &Done) -> String {
    let arguments: Value = row.arguments.as_str().into();
    let row = json!({ "id": row.id, "session_id": row.session, "tool_name": row.tool,
        "arguments": arguments, "result": row.result, "error": row.error,
        "duration_ms": row.duration_ms, "timestamp": rfc3339_millis(row.at),
        "user_message": row.user_message, "message_id": row.message });
    format!("{row}\n")
}

fn done_line(row: &Done) -> String {
    let what = match &row.error {
        Some(error) => format!("{} → {error}", row.arguments),
        None => row.arguments.clone(),
    };
    let (time, session) = (short_time(row.at), short(row.session.as_str()));
    let (tool, status) = (visible_line(&row.tool), row.status.word());
    let length = row.duration_ms.map(length).unwrap_or_default();
    format!("{time}  {session}  {tool:14} {status:7} {length:>8}  {}\n", one_line(&what))
}

fn said_json(row: &Said) -> String {
    let role = if row.is_users { "user" } else { "assistant" };
    let row = json!({ "id": row.message, "session_id": row.session, "role": role,
        "content": row.text, "created_at": rfc3339_millis(row.at) });
    format!("{row}\n")
}

fn said_line(row: &Said) -> String {
    let (time, session) = (short_time(row.at), short(row.session.as_str()));
    let who = if row.is_users { "user" } else { "assistant" };
    format!("{time}  {session}  {who:9}  {}\n", one_line(&row.text))
}

/// A moment to the second, for a column.
pub(super) fn short_time(moment: SystemTime) -> String {
    rfc3339(moment).replace('T', " ").trim_end_matches('Z').to_owned()
}

/// The beginning of an id, which is enough to name it.
pub(super) fn short(id: &str) -> String {
    visible_line(&id.chars().take(8).collect::<String>())
}

/// How long something took.
pub(super) fn length(millis: f64) -> String {
    match millis {
        it if it < 1_000.0 => format!("{it:.0} ms"),
        it if it < 60_000.0 => format!("{:.1} s", it / 1_000.0),
        it => format!("{:.1} min", it / 60_000.0),
    }
}

/// The beginning of a text as one line.
pub(super) fn one_line(text: &str) -> String {
    let line: String = text.trim().chars().take(LONGEST + 1).collect();
    let mut line = visible_line(&line);
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push('…');
    }
    line
}
