//! The commands that work on stored sessions: `turnwright sessions`, `history`, `undo`, `redo` and `diff`, which
//! `turnwright-terminal` carries out, and `stats`, which counts their work by week and model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};

use super::{CliError, CliResult, exit_code, report, write_stdout};
use turnwright_config::Config;
use turnwright_eval::counts;
use turnwright_store::export::ExportFormat;
use turnwright_store::history::HistoryQuery;
use turnwright_store::stats::count_work;
use turnwright_store::{CallStatus, Store};
use turnwright_terminal::undo::{show_diff, undo_or_redo};
use turnwright_terminal::{history, sessions};
use turnwright_types::timestamp::parse_user_time;
use turnwright_undo::{ChangeScope, UndoRequest};

/// The exit status when nothing was done.
const NOTHING_DONE: u8 = 2;

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List the sessions of this folder, most recently used first
    #[command(after_help = "Example: turnwright sessions list --all")]
    List {
        /// List the sessions of all folders
        #[arg(long)]
        all: bool,
        /// List the sessions of another folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "all")]
        cwd: Option<PathBuf>,
        /// Include archived sessions
        #[arg(long)]
        archived: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print the conversation of a session
    #[command(after_help = "Example: turnwright sessions show last")]
    Show {
        /// Session id, a prefix of one, or `last`
        id: String,
    },
    /// Export a session with its tool calls, file changes and timing
    #[command(after_help = "Example: turnwright sessions export last --output session.html")]
    Export(ExportCliArgs),
    /// Delete sessions with all their data
    #[command(after_help = "Example: turnwright sessions delete 3f9a1c07")]
    Delete {
        /// Session ids, or prefixes of ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Skip confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct ExportCliArgs {
    /// Session id, a prefix of one, or `last`
    id: String,
    /// Markdown (default)
    #[arg(long, group = "form")]
    md: bool,
    /// One self-contained HTML page (default if FILE ends in .html)
    #[arg(long, group = "form")]
    html: bool,
    /// JSON (default if FILE ends in .json)
    #[arg(long, group = "form")]
    json: bool,
    /// Output file (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportCliArgs {
    fn form(&self) -> ExportFormat {
        if self.json || !self.html && self.ends_in("json") {
            return ExportFormat::Json;
        }
        if self.html || self.ends_in("html") { ExportFormat::Html } else { ExportFormat::Markdown }
    }

    /// Returns true if the name of the output file decides for the form with this extension.
    fn ends_in(&self, extension: &str) -> bool {
        let end = self.output.as_deref().and_then(Path::extension);
        !self.md && end.is_some_and(|end| end.eq_ignore_ascii_case(extension))
    }
}

pub(super) fn run_sessions(action: SessionsCommand, config: &Config) -> ExitCode {
    let state = &config.paths.state;
    let store = Store::new(state);
    if !store.exists() {
        return report("sessions", write_stdout("No stored sessions.\n").map_err(CliError::from));
    }
    let done = match action {
        SessionsCommand::List { all, cwd, archived, json } => {
            sessions::list(&store, cwd, all, archived, json)
        }
        SessionsCommand::Show { id } => sessions::show(&store, &id),
        SessionsCommand::Export(args) => match sessions::find_session(&store, &args.id) {
            Ok(id) => {
                return sessions::export_session(&store, &id, args.form(), args.output.as_deref());
            }
            Err(error) => Err(error),
        },
        SessionsCommand::Delete { ids, yes } => sessions::delete(&store, state, &ids, yes),
    };
    report("sessions", done)
}

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
    let known = CallStatus::parse(&word.to_ascii_lowercase());
    if known.as_str().eq_ignore_ascii_case(word) {
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
pub(super) fn run_history(args: HistoryCliArgs, config: &Config) -> ExitCode {
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
    let store = Store::new(&config.paths.state);
    let session = session.as_deref();
    report("history", history::print(&store, query, session, limit, messages, json))
}

#[derive(Debug, Args)]
pub(super) struct DiffCliArgs {
    /// Session id (default: the newest session of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Turn number (default: the last turn that changed files)
    #[arg(long, value_name = "N", conflicts_with = "all")]
    turn: Option<u64>,
    /// Show the changes of the whole session
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "must be a whole number ≥ 1".to_owned())
}

pub(super) fn undo(
    request: UndoRequest,
    session: Option<String>,
    dry_run: bool,
    config: &Config,
) -> ExitCode {
    let name = if request == UndoRequest::Redo { "redo" } else { "undo" };
    exit_code(name, undo_or_redo(request, session, dry_run, config), NOTHING_DONE)
}

pub(super) fn diff(args: DiffCliArgs, config: &Config) -> ExitCode {
    let what = match args.turn {
        Some(turn) => ChangeScope::Turn(turn),
        None if args.all => ChangeScope::All,
        None => ChangeScope::Last,
    };
    exit_code("diff", show_diff(args.session, what, args.json, config), NOTHING_DONE)
}

#[derive(Debug, Args)]
pub(super) struct StatsCliArgs {
    /// Number of weeks to look back
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    weeks: u32,
}

/// Counts the work of all sessions.
pub(super) fn stats(args: &StatsCliArgs, config: &Config) -> CliResult<()> {
    let store = Store::new(&config.paths.state);
    if !store.exists() {
        return Ok(write_stdout("No stored sessions.\n")?);
    }
    let begin = SystemTime::now().checked_sub(WEEK.saturating_mul(args.weeks));
    let since = begin.unwrap_or(SystemTime::UNIX_EPOCH);
    let found = store.read_blocking(|connection| count_work(connection, Some(since)))?;
    Ok(write_stdout(&counts::text(&found))?)
}
