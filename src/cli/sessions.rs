//! `turnwright sessions`: which sessions are kept, what was said in one, and how one is forgotten.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::history::{length, one_line, short, short_time};
use super::{Trouble, ended, export, is_same_folder, say};
use crate::config::Config;
use turnwright_types::effect::{plain, visible_line};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Arguments, Message};
use turnwright_types::moment::rfc3339;
use turnwright_types::redact;
use turnwright_store::history::typed;
use turnwright_store::{Audience, CallRow, Entry, Gone, Shelved, Store, Stored, read, sessions, shelf};

/// Entries that are read at once.
const TOGETHER: usize = 100;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The sessions of this folder, the one that was used last first
    #[command(after_help = "Example: turnwright sessions list --all")]
    List {
        /// Those of all folders
        #[arg(long)]
        all: bool,
        /// Those of another folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "all")]
        cwd: Option<PathBuf>,
        /// Those that were put away, too
        #[arg(long)]
        archived: bool,
        /// A line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// The conversation of a session as text
    #[command(after_help = "Example: turnwright sessions show last")]
    Show {
        /// Its id, the beginning of it, or `last`
        id: String,
    },
    /// Write a session as a document: the conversation, the tool calls with their results, what was
    /// changed in files, and where the time went
    #[command(after_help = "Example: turnwright sessions export last --output session.html")]
    Export(export::Options),
    /// Have sessions forgotten, and all that is kept of them
    #[command(after_help = "Example: turnwright sessions delete 3f9a1c07")]
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Without a question
        #[arg(long)]
        yes: bool,
    },
}

/// Ends with 0 if what was asked for could be done.
pub(super) fn run(options: Options, config: &Config) -> ExitCode {
    let store = Store::new(&config.paths.state);
    if !store.is_there() {
        return ended("sessions", say("No session was kept yet.\n").map_err(Trouble::from));
    }
    let done = match options.action {
        Action::List { all, cwd, archived, json } => list(&store, (all, cwd), archived, json),
        Action::Show { id } => show(&store, &id),
        Action::Export(options) => match find(&store, options.id()) {
            Ok(id) => return export::run(&options, &store, &id),
            Err(error) => Err(error),
        },
        Action::Delete { ids, yes } => delete(&store, &ids, yes),
    };
    ended("sessions", done)
}

fn here() -> Result<PathBuf, Trouble> {
    Ok(std::path::absolute(".")?)
}

fn list(
    store: &Store,
    (all, cwd): (bool, Option<PathBuf>),
    archived: bool,
    json: bool,
) -> Result<(), Trouble> {
    let folder = cwd.map_or_else(here, |it| Ok(std::path::absolute(it)?))?;
    let sessions = store.read_now(shelf)?;
    let count = sessions.len();
    let fits = |it: &Shelved| {
        (archived || !it.row.archived) && (all || is_same_folder(&it.row.cwd, &folder))
    };
    let sessions: Vec<_> = sessions.into_iter().filter(fits).collect();
    let line = if json { json_line } else { text_line };
    let mut text: String = sessions.iter().map(|it| line(it, all)).collect();
    redact::clean(&mut text);
    say(&text)?;
    let hint = match (sessions.len(), count - sessions.len()) {
        _ if json => String::new(),
        (0, 0) => "There are no sessions.\n".to_owned(),
        (0, more) => format!("None here; {more} elsewhere or put away: --all, --archived\n"),
        _ => String::new(),
    };
    Ok(say(&hint)?)
}

fn text_line(session: &Shelved, with_folder: bool) -> String {
    let row = &session.row;
    let folder = visible_line(&row.cwd.to_string_lossy());
    let folder = if with_folder { format!("{folder}  ") } else { String::new() };
    let put_away = if row.archived { "  (put away)" } else { "" };
    let (id, time, turns) = (short(row.id.as_str()), short_time(row.updated), session.turns);
    format!("{id}  {time}  {turns:4} turns  {folder}{}{put_away}\n", one_line(title(session)))
}

fn json_line(session: &Shelved, _: bool) -> String {
    let row = &session.row;
    let line = json!({ "session_id": row.id, "cwd": row.cwd.to_string_lossy(),
        "title": row.title, "created_at": rfc3339(row.created),
        "updated_at": rfc3339(row.updated), "archived": row.archived, "turns": session.turns,
        "model": row.model, "cost": row.cost });
    format!("{line}\n")
}

/// What it is about.
fn title(session: &Shelved) -> &str {
    session.row.title.as_deref().unwrap_or(&session.words)
}

/// The session that is meant by an id, the beginning of one, or `last`: the one that was used last
/// in this folder, or else anywhere.
pub(super) fn find(store: &Store, name: &str) -> Result<SessionId, Trouble> {
    let sessions = store.read_now(shelf)?;
    if name == "last" {
        let folder = here()?;
        let ours = sessions.iter().find(|it| is_same_folder(&it.row.cwd, &folder));
        let last = ours.or(sessions.first()).map(|it| it.row.id.clone());
        return last.ok_or_else(|| Trouble::Other("there is no session".to_owned()));
    }
    let ids = || sessions.iter().map(|it| &it.row.id);
    if let Some(id) = ids().find(|it| it.as_str() == name) {
        return Ok(id.clone());
    }
    let mut fitting = ids().filter(|it| !name.is_empty() && it.as_str().starts_with(name));
    let name = visible_line(name);
    match (fitting.next(), fitting.next()) {
        (Some(id), None) => Ok(id.clone()),
        (None, _) => Err(Trouble::Other(format!("there is no session {name}"))),
        (Some(_), Some(_)) => Err(Trouble::Other(format!("several sessions begin with {name}"))),
    }
}

fn show(store: &Store, name: &str) -> Result<(), Trouble> {
    let id = find(store, name)?;
    let row = store.read_now(|it| read::session(it, &id))?;
    let title = row.title.unwrap_or_default();
    let heading = format!("{} {title}", row.id);
    let (cwd, begun) = (row.cwd.to_string_lossy(), rfc3339(row.created));
    print(format!("{}\n{}, {begun}\n", visible_line(heading.trim()), visible_line(&cwd)))?;
    let (key, gone) = store.read_now(|it| {
        let key = read::key(it, &id)?;
        Ok((key, Gone::find(it, key)?))
    })?;
    let mut after = 0;
    loop {
        let (page, last) = store.read_now(|it| read::page(it, key, (after, TOGETHER), &gone))?;
        for stored in &page {
            print(told(stored))?;
        }
        let Some(last) = last else { return Ok(()) };
        after = last;
    }
}

fn print(mut text: String) -> Result<(), Trouble> {
    redact::clean(&mut text);
    Ok(say(&plain(text))?)
}

/// An entry as its user has seen it.
fn told(stored: &Stored) -> String {
    let at = short_time(stored.at);
    let said = |who: &str, text: &str| format!("\n{who}  {at}\n{}\n", text.trim_end());
    match &stored.entry {
        Entry::Message { audience: Audience::Model, .. } => String::new(),
        Entry::Message { message, .. } => match message.as_ref() {
            Message::User(user) => said("YOU", &typed(user)),
            Message::Assistant(answer) => {
                let words = if answer.text.trim().is_empty() {
                    String::new()
                } else {
                    said("AGENT", &answer.text)
                };
                words + &stored.calls.iter().map(call).collect::<String>()
            }
            Message::Tool(_) => String::new(),
        },
        Entry::Note { text, .. } => said("AGENT", text),
        Entry::Lost { name, why, .. } => {
            format!("  [{}] never ran: {}\n", visible_line(name), one_line(why))
        }
        _ => String::new(),
    }
}

/// A call in one line, and why it has failed.
fn call(row: &CallRow) -> String {
    let arguments = match &row.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { text, .. } => text.clone(),
    };
    let length = row.settled.took.map(|it| format!(", {}", length(it.as_secs_f64() * 1_000.0)));
    let (tool, status) = (visible_line(&row.tool), row.status.word());
    let (length, text) = (length.unwrap_or_default(), row.settled.text.as_str());
    let why = if row.settled.ok || text.is_empty() {
        String::new()
    } else {
        format!("    {}\n", one_line(text))
    };
    format!("  [{tool}] {status}{length}: {}\n{why}", one_line(&arguments))
}

fn delete(store: &Store, names: &[String], is_sure: bool) -> Result<(), Trouble> {
    let ids = names.iter().map(|it| find(store, it)).collect::<Result<Vec<_>, _>>()?;
    let sessions = store.read_now(shelf)?;
    for session in sessions.iter().filter(|it| ids.contains(&it.row.id)) {
        say(&text_line(session, true))?;
    }
    if !is_sure && !ask(ids.len())? {
        return Err(Trouble::Other("nothing was deleted".to_owned()));
    }
    for id in ids {
        // A session that is open in a process is that one's.
        let _hold = store.hold(&id)?;
        store.write_now(move |connection| sessions::delete(connection, &id))?;
    }
    Ok(say("Deleted.\n")?)
}

/// Asks on a terminal. Whatever else writes into our input is nobody who could want that.
fn ask(count: usize) -> Result<bool, Trouble> {
    if !stdin().is_terminal() {
        return Err(Trouble::Other("to delete without a question, add --yes".to_owned()));
    }
    let what = if count == 1 { "it".to_owned() } else { format!("these {count}") };
    stderr().write_all(format!("Delete {what} for good? [y/N] ").as_bytes())?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
