//! `turnwright history`: its arguments. `turnwright-terminal` searches and prints.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;

use super::report;
use turnwright_config::Config;
use turnwright_store::history::HistoryQuery;
use turnwright_store::{CallStatus, Store};
use turnwright_terminal::history::{self, HistorySearch};
use turnwright_types::timestamp::parse_user_time;

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
    let query = HistoryQuery {
        cwd: args.cwd,
        tool: args.tool,
        statuses: args.status.into_iter().collect(),
        since: args.since,
        until: args.until,
        words: args.words.join(" "),
        ..HistoryQuery::default()
    };
    let HistoryCliArgs { session, limit, messages, json, .. } = args;
    let search = HistorySearch { query, session, limit, messages, json };
    report("history", history::print(search, &Store::new(&config.paths.state)))
}
