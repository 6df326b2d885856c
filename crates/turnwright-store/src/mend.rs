//! What becomes of a database that is damaged: it is moved aside, whole, and a new one begins, with
//! what can still be read if that is not much.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::health::Fault;
use super::{Shared, StoreError, hold, schema};

/// What SQLite puts beside a database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Of larger ones, nothing is brought over: sessions wait for it.
const LARGEST: u64 = 64 * 1024 * 1024;

/// What the rows of a session are kept in.
const TABLES: [&str; 8] =
    ["blob_uses", "turns", "entries", "drafts", "calls", "file_versions", "permissions", "usage"];

/// A database that is open.
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// `None` in memory.
    pub(super) place: Option<Place>,
}

/// A database, and which files they are that were found there.
pub(super) struct Place {
    pub(super) path: PathBuf,
    files: [FileId; 3],
}

type FileId = Option<(u64, u64)>;

impl Place {
    fn of(path: &Path) -> Place {
        Place { path: path.to_path_buf(), files: file_ids(path) }
    }

    /// Whether they are still those files. What is written to a log that was removed is in none, and
    /// nobody else sees it.
    pub(super) fn is_there(&self) -> bool {
        file_ids(&self.path) == self.files
    }
}

/// Opens the database to write to it. One that must not be used stays as it is. Other processes are
/// waited for no longer than that.
pub(super) fn open(shared: &Shared, patience: Duration) -> Result<Opened, StoreError> {
    let Some(path) = shared.path.as_deref() else {
        return Ok(Opened { connection: schema::writer(None)?, place: None });
    };
    match open_or_replace(shared, path, patience) {
        Err(StoreError::Newer) => {}
        result => return result,
    }
    let own = schema::beside(path);
    let opened = open_or_replace(shared, &own, patience)?;
    shared.health.say(format!(
        "{} was made by a newer turnwright, so it is left alone. Sessions of this one are kept in \
         {}.",
        path.display(),
        own.display()
    ));
    Ok(opened)
}

fn open_or_replace(shared: &Shared, path: &Path, patience: Duration) -> Result<Opened, StoreError> {
    let connection = match schema::writer_within(Some(path), patience) {
        Err(error) if error.fault() == Some(Fault::Corrupt) => {
            set_aside(shared, &Place::of(path))?;
            schema::writer(Some(path))?
        }
        result => result?,
    };
    Ok(Opened { connection, place: Some(Place::of(path)) })
}

/// Moves the database aside and puts a new one in its place, unless another process has.
pub(super) fn set_aside(shared: &Shared, place: &Place) -> Result<(), StoreError> {
    let path = &place.path;
    let alone = hold::alone(&path.with_extension("mending"));
    if place.is_there() {
        let aside = aside(path);
        std::fs::rename(path, &aside)?;
        for suffix in BESIDE {
            // There need not be one.
            drop(std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)));
        }
        let saved = salvage(path, &aside).unwrap_or_else(|error| {
            tracing::warn!(%error, "nothing was saved of the damaged store");
            0
        });
        shared.health.say(format!(
            "The store of sessions was damaged. It was moved to {}, and a new one was begun with \
             {}. What you do now is kept.",
            aside.display(),
            match saved {
                0 => "none of its sessions".to_owned(),
                1 => "the one session that could still be read".to_owned(),
                count => format!("the {count} sessions that could still be read"),
            }
        ));
    }
    drop(std::fs::remove_file(path.with_extension("mending")));
    drop(alone);
    Ok(())
}

/// A name that is not taken.
fn aside(path: &Path) -> PathBuf {
    let now = turnwright_types::moment::rfc3339(SystemTime::now()).replace(':', "-");
    let now = now.split('.').next().unwrap_or_default().trim_end_matches('Z').to_owned();
    let mut aside = with_suffix(path, &format!(".damaged-{now}"));
    for number in 2..1000 {
        if std::fs::symlink_metadata(&aside).is_err() {
            break;
        }
        aside = with_suffix(path, &format!(".damaged-{now}-{number}"));
    }
    aside
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Brings over each session that can be read as a whole. Returns how many.
fn salvage(path: &Path, aside: &Path) -> Result<usize, StoreError> {
    if std::fs::metadata(aside)?.len() > LARGEST {
        return Ok(0);
    }
    let connection = schema::writer(Some(path))?;
    connection.execute("ATTACH ? AS damaged", [aside.to_string_lossy()])?;
    let mut sessions = Vec::new();
    {
        let mut find = connection.prepare("SELECT key FROM damaged.sessions")?;
        let mut rows = find.query([])?;
        while let Ok(Some(row)) = rows.next() {
            sessions.extend(row.get::<_, i64>(0));
        }
    }
    let mut saved = 0;
    for session in sessions {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        match bring_over(&connection, session) {
            Ok(()) => {
                connection.execute_batch("COMMIT")?;
                saved += 1;
            }
            Err(error) => {
                tracing::warn!(%error, "a session could not be saved");
                connection.execute_batch("ROLLBACK")?;
            }
        }
    }
    Ok(saved)
}

fn bring_over(connection: &Connection, session: i64) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO main.sessions SELECT * FROM damaged.sessions WHERE key = ?",
        [session],
    )?;
    connection.execute(
        "INSERT OR IGNORE INTO main.blobs SELECT * FROM damaged.blobs WHERE id IN \
         (SELECT blob FROM damaged.blob_uses WHERE session = ?)",
        [session],
    )?;
    for table in TABLES {
        let copy =
            format!("INSERT INTO main.{table} SELECT * FROM damaged.{table} WHERE session = ?");
        connection.execute(&copy, [session])?;
    }
    Ok(())
}

/// Whether the database is damaged, which is told as an error.
pub(super) fn examine(connection: &Connection) -> Result<(), StoreError> {
    let word: String = connection.query_row("PRAGMA quick_check(1)", [], |it| it.get(0))?;
    if word == "ok" {
        return Ok(());
    }
    Err(StoreError::Failing { fault: Fault::Corrupt, why: word })
}

fn file_ids(path: &Path) -> [FileId; 3] {
    ["", "-wal", "-shm"].map(|it| file_id(&with_suffix(path, it)))
}

#[cfg(unix)]
fn file_id(path: &Path) -> FileId {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> FileId {
    None
}
