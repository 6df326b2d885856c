//! `turnwright undo`, `redo` and `diff`: what turns have made of files, and back. Works on the disk,
//! with sessions that nobody has open.

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rusqlite::Connection;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::sessions;
use crate::config::Config;
use turnwright_workspace::files::{Files, Roots};
use turnwright_types::ids::{MessageId, SessionId};
use crate::session::{Changed, Desk, Report, What, Wish, changes};
use turnwright_store::{Entry, Hold, Log, SessionRow, Store, StoreError, TurnKind, read, versions};
use crate::undo::Bounds;

/// How much of a diff is printed.
const SHOWN: Bounds = Bounds { file: 4 * 1024 * 1024, all: 16 * 1024 * 1024 };

/// Nothing was done.
const NOTHING: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct Undo {
    /// The session (default: the newest of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How many of the last turns that have changed files
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    turns: usize,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Redo {
    /// The session (default: the newest of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The session (default: the newest of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Of this turn (default: the last that has changed files)
    #[arg(long, value_name = "N", conflicts_with = "all")]
    turn: Option<u64>,
    /// Of the whole session
    #[arg(long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|it| *it > 0).ok_or_else(|| "a number from 1 on".to_owned())
}

pub(super) fn undo(options: Undo, config: &Config) -> ExitCode {
    let wish = Wish::Undo(options.turns);
    ended("undo", turn_back(wish, options.session, options.dry_run, config))
}

pub(super) fn redo(options: Redo, config: &Config) -> ExitCode {
    ended("redo", turn_back(Wish::Redo, options.session, options.dry_run, config))
}

pub(super) fn diff(options: Diff, config: &Config) -> ExitCode {
    ended("diff", show(options, config))
}

fn ended(command: &str, done: Result<ExitCode, String>) -> ExitCode {
    done.unwrap_or_else(|why| {
        drop(writeln!(stderr(), "turnwright {command}: {why}"));
        ExitCode::from(NOTHING)
    })
}

/// A session that is kept.
struct Kept {
    store: Store,
    row: SessionRow,
    last: (u64, u64),
}

impl Kept {
    fn find(session: Option<String>, config: &Config) -> Result<Kept, String> {
        let store = Store::new(&config.paths.state);
        let here = std::path::absolute(".").map_err(|it| it.to_string())?;
        let session = session.map(|it| sessions::find(&store, &it)).transpose();
        let session = session.map_err(|it| it.to_string())?;
        let found = store.read_now(|connection| {
            let id = match session {
                Some(id) => id,
                None => versions::newest_of(connection, &names(&here))?,
            };
            kept(connection, &id)
        });
        let (row, last) = found.map_err(|it| match it {
            StoreError::NoSuchSession => "there is no such session here".to_owned(),
            error => error.to_string(),
        })?;
        Ok(Kept { store, row, last })
    }

    fn roots(&self) -> Result<Roots, String> {
        let cwd = &self.row.cwd;
        Roots::new(cwd).map_err(|it| format!("{}: {it}", cwd.display()))
    }

    /// Makes sure that nobody else has the session open, as long as what is returned lives.
    fn hold(&mut self) -> Result<Hold, StoreError> {
        let hold = self.store.hold(&self.row.id)?;
        // Whoever had it until now may have gone on.
        let id = self.row.id.clone();
        (self.row, self.last) = self.store.read_now(|it| kept(it, &id))?;
        Ok(hold)
    }
}

/// What is known of a session, and the numbers of its last entry and turn.
fn kept(connection: &Connection, id: &SessionId) -> Result<(SessionRow, (u64, u64)), StoreError> {
    let row = read::session(connection, id)?;
    Ok((row, read::last(connection, read::key(connection, id)?)?))
}

/// The names under which a client may have opened a folder.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names = vec![folder.to_path_buf()];
    names.extend(std::fs::canonicalize(folder).ok().filter(|it| it != folder));
    names
}

fn turn_back(
    wish: Wish,
    session: Option<String>,
    is_dry: bool,
    config: &Config,
) -> Result<ExitCode, String> {
    let mut kept = Kept::find(session, config)?;
    let _hold = kept.hold().map_err(|it| it.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|it| it.to_string())?;
    runtime.block_on(carry_out(&kept, wish, is_dry))
}

async fn carry_out(kept: &Kept, wish: Wish, is_dry: bool) -> Result<ExitCode, String> {
    let roots = kept.roots()?;
    let log = Log::new(kept.store.clone(), kept.row.id.clone());
    log.go_on(kept.last);
    let desk = Desk {
        store: kept.store.clone(),
        log: log.clone(),
        files: Files::new(roots.clone(), None),
        session: kept.row.id.clone(),
        cancel: CancellationToken::new(),
    };
    let Some(planned) = desk.look(wish).await.map_err(|it| it.to_string())? else {
        return Err("there is nothing to do".to_owned());
    };
    if is_dry {
        let report = Report::dry(planned);
        say(&format!("Nothing was done. It would be:\n{}", report.text(&roots)))?;
        return Ok(status(&report));
    }
    let kind = if wish == Wish::Redo { TurnKind::Redo } else { TurnKind::Undo };
    let turn = log.begin(kind, format!("turnwright {}", kind.word()));
    let report = desk.carry_out(planned, |_| {}).await;
    let text = report.text(&roots);
    log.add(Entry::Note { id: MessageId::from(format!("undo-note-{turn}")), text: text.clone() });
    log.end("end_turn", kept.row.minted, kept.row.cost).written().await;
    for news in log.news() {
        drop(writeln!(stderr(), "turnwright: {news}"));
    }
    say(&text)?;
    Ok(status(&report))
}

fn status(report: &Report) -> ExitCode {
    ExitCode::from(u8::from(!report.is_whole()))
}

fn show(options: Diff, config: &Config) -> Result<ExitCode, String> {
    let kept = Kept::find(options.session, config)?;
    let what = match options.turn {
        Some(turn) => What::Turn(turn),
        None if options.all => What::All,
        None => What::Last,
    };
    let roots = kept.roots()?;
    let found =
        kept.store.read_now(|connection| changes(connection, &kept.row.id, what, &roots, SHOWN));
    let found = found.map_err(|it| it.to_string())?;
    if found.files.is_empty() {
        return Err("no files were changed".to_owned());
    }
    if options.json {
        let file = |it: &Changed| {
            json!({ "path": it.path.to_string_lossy(), "before": it.before, "after": it.after,
                "diff": it.diff })
        };
        let turns: Vec<_> = found.turns.iter().map(|it| it.0).collect();
        let files: Vec<_> = found.files.iter().map(file).collect();
        let session = kept.row.id.as_str();
        let all = json!({ "session": session, "turns": turns, "files": files });
        say(&format!("{all:#}\n"))?;
    } else {
        say(&found.files.iter().map(|it| it.diff.as_str()).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> Result<(), String> {
    stdout().write_all(text.as_bytes()).map_err(|it| it.to_string())
}
