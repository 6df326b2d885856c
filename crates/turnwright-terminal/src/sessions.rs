//! `turnwright sessions`: lists, shows, exports as documents and deletes stored sessions. Commands that name a session
//! find it here.

use std::io::{self, BufWriter, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::{CliError, CliResult, print, prompt, runtime, write_stdout};
use turnwright_store::export::{ExportError, ExportFormat, export};
use turnwright_store::history::visible_prompt_text;
use turnwright_store::{
    Audience, CallRow, Entry, RewoundEntries, SessionRow, SessionSummary, Store, StoredEntry,
    free_pages, read, session_summaries, sessions,
};
use turnwright_types::effect::{escape_hidden, escape_hidden_line, terminal_safe};
use turnwright_types::error_text::{with_path, without_error_numbers};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Arguments, Message};
use turnwright_types::private_file;
use turnwright_types::redact::StreamRedactor;
use turnwright_types::text;
use turnwright_types::timestamp::{local_time, rfc3339};
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::files::Roots;
use turnwright_workspace::real_path;

/// Free pages of the database that are given back in one transaction: about 4 MiB.
const PAGES_PER_WRITE: u32 = 1024;
/// The most characters of the last column of a table.
const MAX_LINE_LENGTH: usize = 100;

/// The message about a current folder that does not exist any more.
const GONE: &str = "the folder in which this was started is gone; change to one that exists";

/// The session that `last` names does not exist.
const NOT_HERE: &str = "no session was held in this folder, or it is archived";

/// The current folder.
pub fn current_folder() -> CliResult<PathBuf> {
    std::path::absolute(".").map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::Other(GONE.to_owned()),
        _ => error.into(),
    })
}

/// The folders of the project in this folder; `.` is the current one.
///
/// # Errors
/// If it is not a folder that can be used; the error names it.
pub fn project_roots(folder: &Path) -> io::Result<Roots> {
    let roots = std::path::absolute(folder).and_then(|path| Roots::new(&path));
    roots.map_err(|error| {
        let is_gone = folder == Path::new(".") && error.kind() == io::ErrorKind::NotFound;
        if is_gone { io::Error::other(GONE) } else { with_path(folder, &error) }
    })
}

/// Prints the sessions of this folder, of the current one or of `all`, most recently used first.
pub fn list(
    store: &Store,
    cwd: Option<PathBuf>,
    all: bool,
    archived: bool,
    json: bool,
) -> CliResult<()> {
    let folder = cwd.map_or_else(current_folder, |folder| Ok(std::path::absolute(folder)?))?;
    let mut sessions = store.read_blocking(session_summaries)?;
    sessions.retain(|session| !session.is_helper);
    let count = sessions.len();
    sessions.retain(|session| {
        (archived || !session.row.is_archived) && (all || works_in(&session.row, &folder))
    });
    let line = if json { json_line } else { text_line };
    write_stdout(&sessions.iter().map(|session| line(session, all)).collect::<String>())?;
    if json || !sessions.is_empty() {
        return Ok(());
    }
    print(&match count {
        0 => "No sessions.\n".to_owned(),
        _ => format!("No sessions here, {count} elsewhere or archived: add --all or --archived\n"),
    })
}

fn text_line(session: &SessionSummary, with_folder: bool) -> String {
    let row = &session.row;
    let path = escape_hidden_line(&row.cwd.to_string_lossy());
    let folder = if with_folder { format!("{path}  ") } else { String::new() };
    let archived = if row.is_archived { "  (archived)" } else { "" };
    let id = short_id(row.id.as_str());
    let time = local_time(row.updated_at);
    let turns = session.turns;
    format!("{id}  {time}  {turns:4} turns  {folder}{}{archived}\n", one_line(title(session)))
}

fn json_line(session: &SessionSummary, _: bool) -> String {
    let row = &session.row;
    let line = json!({ "session_id": row.id.as_str(), "cwd": row.cwd.to_string_lossy(),
        "title": row.title, "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at), "archived": row.is_archived, "turns": session.turns,
        "model": row.model, "cost": row.cost_usd });
    format!("{line}\n")
}

/// The title, or the beginning of the first prompt.
fn title(session: &SessionSummary) -> &str {
    session.row.title.as_deref().unwrap_or(&session.words)
}

/// Finds a session by its id, a prefix of its id, or `last`: the most recently used session of this
/// folder that is not archived. One that has had prompts comes before those with nothing but commands.
///
/// # Errors
/// If there is none. Nobody expects `last` to change files elsewhere, or to delete what was said there.
pub fn find_session(store: &Store, name: &str) -> CliResult<SessionId> {
    let sessions = store.read_blocking(session_summaries)?;
    if name == "last" {
        let folder = current_folder()?;
        let own = sessions.iter().filter(|session| !session.is_helper && !session.row.is_archived);
        let mut ours = own.clone().filter(|session| works_in(&session.row, &folder)).peekable();
        let newest = ours.peek().copied();
        if let Some(last) = ours.find(|session| session.turns > 0).or(newest) {
            return Ok(last.row.id.clone());
        }
        // Its folder may lie on a network disk that never answers, so the path is shown without a look at it.
        let elsewhere = own.clone().next().map(|SessionSummary { row, .. }| {
            let place = escape_hidden_line(&row.cwd.to_string_lossy());
            format!("; the last one is {} in {place}", row.id)
        });
        let all = "`turnwright sessions list --all --archived` lists all";
        return Err(format!("{NOT_HERE}{}; {all}", elsewhere.unwrap_or_default()).into());
    }
    let ids = || sessions.iter().map(|session| &session.row.id);
    if let Some(id) = ids().find(|id| id.as_str() == name) {
        return Ok(id.clone());
    }
    let mut matching = ids().filter(|id| !name.is_empty() && id.as_str().starts_with(name));
    let name = escape_hidden_line(name);
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id.clone()),
        (None, _) => {
            Err(format!("no session {name}; `turnwright sessions list --all` lists all").into())
        }
        (Some(_), Some(_)) => Err(format!("several sessions begin with {name}").into()),
    }
}

/// Prints the conversation of a session.
pub fn show(store: &Store, name: &str) -> CliResult<()> {
    let id = find_session(store, name)?;
    let row = store.read_blocking(|connection| read::session(connection, &id))?;
    let title = row.title.unwrap_or_default();
    let heading = escape_hidden_line(format!("{} {title}", row.id).trim());
    let cwd = escape_hidden_line(&row.cwd.to_string_lossy());
    print_safe(format!("{heading}\n{cwd}, {}\n", local_time(row.created_at)))?;
    store.read_blocking(|connection| {
        let key = read::session_key(connection, &id)?;
        let rewound = RewoundEntries::load(connection, key)?;
        Ok(read::each_entry(connection, key, &rewound, |stored| print_safe(format_entry(&stored))))
    })?
}

fn print_safe(text: String) -> CliResult<()> {
    Ok(write_stdout(&terminal_safe(text))?)
}

/// Formats an entry as the user saw it.
fn format_entry(stored: &StoredEntry) -> String {
    let at = local_time(stored.at);
    match &stored.entry {
        Entry::Message { audience: Audience::Model, .. } => String::new(),
        Entry::Message { message, .. } => match message.as_ref() {
            Message::User(user) => section("YOU", &at, &visible_prompt_text(user)),
            Message::Assistant(answer) => {
                let words = if answer.text.trim().is_empty() {
                    String::new()
                } else {
                    section("AGENT", &at, &answer.text)
                };
                words + &stored.calls.iter().map(format_call).collect::<String>()
            }
            Message::Tool(_) => String::new(),
        },
        Entry::Note { text, .. } => section("AGENT", &at, text),
        Entry::IncompleteCall { name, reason: why, .. } => {
            format!("  [{}] never ran: {}\n", escape_hidden_line(name), one_line(why))
        }
        _ => String::new(),
    }
}

fn section(who: &str, at: &str, text: &str) -> String {
    format!("\n{who}  {at}\n{}\n", text.trim_end())
}

/// Formats a call in one line, followed by the error if it failed.
fn format_call(row: &CallRow) -> String {
    let arguments = match &row.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { text, .. } => text.clone(),
    };
    let took = row.outcome.duration.map(|took| format_duration(took.as_secs_f64() * 1_000.0));
    let length = took.map(|took| format!(", {took}")).unwrap_or_default();
    let tool = escape_hidden_line(&row.tool);
    let status = row.status.as_str();
    let text = row.outcome.text.as_str();
    let why = if row.outcome.is_success || text.is_empty() {
        String::new()
    } else {
        format!("    {}\n", one_line(text))
    };
    format!("  [{tool}] {status}{length}: {}\n{why}", one_line(&arguments))
}

/// Deletes sessions with all their data, also in this state folder, after a question unless `yes` is set.
pub fn delete(store: &Store, state: &Path, names: &[String], yes: bool) -> CliResult<()> {
    let ids = names.iter().map(|name| find_session(store, name)).collect::<Result<Vec<_>, _>>()?;
    let sessions = store.read_blocking(session_summaries)?;
    for session in sessions.iter().filter(|session| ids.contains(&session.row.id)) {
        write_stdout(&text_line(session, true))?;
    }
    let what = if ids.len() == 1 { "it".to_owned() } else { format!("these {}", ids.len()) };
    let question = format!("Delete {what} permanently? [y/N] ");
    if !yes && !prompt::confirm(&question, "add --yes to skip confirmation")? {
        return Err(CliError::Other("nothing was deleted".to_owned()));
    }
    for id in ids {
        // Fails if a process has the session open.
        let _hold = store.lock_session(&id)?;
        let deleted = store.write_blocking(move |connection| sessions::delete(connection, &id))?;
        Jobs::remove_outputs(state, &deleted);
    }
    // Until then, free pages and the write-ahead log hold what was deleted.
    while store.write_blocking(|connection| free_pages(connection, PAGES_PER_WRITE))? {}
    runtime()?.block_on(store.final_flush())?;
    Ok(write_stdout("Deleted.\n")?)
}

/// Exports a session as a document, to this file or to stdout.
#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
pub fn export_session(
    store: &Store,
    id: &SessionId,
    format: ExportFormat,
    output: Option<&Path>,
) -> ExitCode {
    let session = (store, id);
    let result = match output {
        Some(path) => {
            let mut document: Vec<u8> = Vec::new();
            write(session, format, &mut document)
                .and_then(|()| private_file::write(path, &document).map_err(ExportError::Write))
        }
        None => write(session, format, &mut stdout()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe is not an error: the reader has seen enough.
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let why = escape_hidden(&without_error_numbers(&error.to_string()));
            writeln!(stderr(), "turnwright: {why}").ok();
            ExitCode::FAILURE
        }
    }
}

fn write(
    (store, id): (&Store, &SessionId),
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut out = BufWriter::new(WithoutKeys(out, StreamRedactor::default()));
    store.read_blocking(|connection| Ok(export(connection, id, format, &mut out)))?
}

/// Passes on what is written, without keys. What is held back follows when it is flushed at the end.
struct WithoutKeys<'a>(&'a mut dyn Write, StreamRedactor);

impl Write for WithoutKeys<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(&self.1.push(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.write_all(&self.1.finish())?;
        self.0.flush()
    }
}

/// Returns true if a session works in a folder, symbolic links resolved. The session's own folder is not looked at,
/// because it may lie on a network disk that never answers.
pub fn works_in(row: &SessionRow, folder: &Path) -> bool {
    row.cwd == folder || row.real_cwd == real_path_or_same(folder)
}

/// A folder with its links resolved, and with its letters as they are on the disk.
pub fn real_path_or_same(path: &Path) -> PathBuf {
    real_path(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The first characters of an id, which are enough to name it.
pub(crate) fn short_id(id: &str) -> String {
    escape_hidden_line(text::first_chars(id, 8))
}

pub(crate) fn format_duration(millis: f64) -> String {
    match millis {
        millis if millis < 1_000.0 => format!("{millis:.0} ms"),
        millis if millis < 60_000.0 => format!("{:.1} s", millis / 1_000.0),
        millis => format!("{:.1} min", millis / 60_000.0),
    }
}

/// The beginning of a text, on one line.
pub(crate) fn one_line(text: &str) -> String {
    let line = text::first_chars(text.trim(), MAX_LINE_LENGTH + 1);
    text::clip(escape_hidden_line(line), MAX_LINE_LENGTH)
}
