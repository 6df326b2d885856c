//! Replaces a damaged database: the old one is moved aside whole, a new one is created, and the
//! sessions that can still be read are copied over unless the database is large.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::health::StorageFault;
use super::{SharedState, StoreError, schema, session_lock};

/// The suffixes of the files that SQLite puts beside a database.
const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Nothing is copied from a database larger than this: open sessions wait for the copy.
const MAX_SALVAGE_BYTES: u64 = 64 * 1024 * 1024;

/// The tables that hold the rows of a session.
const SESSION_TABLES: [&str; 8] =
    ["blob_uses", "turns", "entries", "drafts", "calls", "file_versions", "permissions", "usage"];

/// An open database connection.
pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    /// `None` for a database in memory.
    pub(super) files: Option<DatabaseFiles>,
}

/// A database path and the identities of the files that were found there.
pub(super) struct DatabaseFiles {
    pub(super) path: PathBuf,
    files: [FileIdentity; 3],
}

type FileIdentity = Option<(u64, u64)>;

impl DatabaseFiles {
    fn of(path: &Path) -> DatabaseFiles {
        DatabaseFiles { path: path.to_path_buf(), files: file_ids(path) }
    }

    /// True if the path still leads to the same files. What is written to a write-ahead log that
    /// was removed is in no file, and no other process sees it.
    pub(super) fn is_unchanged(&self) -> bool {
        file_ids(&self.path) == self.files
    }
}

/// Opens the database for writing and waits at most `patience` for locks of other processes. A
/// database of an incompatible newer version is left alone, and a file of our own is used instead.
pub(super) fn open(shared: &SharedState, timeout: Duration) -> Result<OpenDatabase, StoreError> {
    let Some(path) = shared.path.as_deref() else {
        return Ok(OpenDatabase { connection: schema::open_writer(None)?, files: None });
    };
    match open_or_replace(shared, path, timeout) {
        Err(StoreError::NewerVersion) => {}
        result => return result,
    }
    let own = schema::fallback_path(path);
    let opened = open_or_replace(shared, &own, timeout)?;
    shared.health.announce(format!(
        "{} was made by a newer turnwright, so it is left unchanged. This version saves its \
         sessions in {}.",
        path.display(),
        own.display()
    ));
    Ok(opened)
}

fn open_or_replace(
    shared: &SharedState,
    path: &Path,
    timeout: Duration,
) -> Result<OpenDatabase, StoreError> {
    let connection = match schema::open_writer_with_timeout(Some(path), timeout) {
        Err(error) if error.fault() == Some(StorageFault::Corrupt) => {
            set_aside(shared, &DatabaseFiles::of(path))?;
            schema::open_writer(Some(path))?
        }
        result => result?,
    };
    Ok(OpenDatabase { connection, files: Some(DatabaseFiles::of(path)) })
}

/// Moves the damaged database aside and puts a new one in its place, unless another process has
/// done so already.
pub(super) fn set_aside(shared: &SharedState, database: &DatabaseFiles) -> Result<(), StoreError> {
    let path = &database.path;
    let lock = session_lock::lock_file(&path.with_extension("mending"));
    if database.is_unchanged() {
        let aside = unused_aside_path(path);
        std::fs::rename(path, &aside)?;
        for suffix in SIDE_SUFFIXES {
            // Not every one of these files exists.
            drop(std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)));
        }
        let saved = salvage(path, &aside).unwrap_or_else(|error| {
            tracing::warn!(%error, "nothing could be copied from the damaged store");
            0
        });
        shared.health.announce(format!(
            "The session store was damaged and moved to {}. A new one was created with {}. New \
             messages are saved.",
            aside.display(),
            match saved {
                0 => "none of its sessions".to_owned(),
                1 => "the one session that could still be read".to_owned(),
                count => format!("the {count} sessions that could still be read"),
            }
        ));
    }
    drop(std::fs::remove_file(path.with_extension("mending")));
    drop(lock);
    Ok(())
}

/// A path beside the database that is not taken.
fn unused_aside_path(path: &Path) -> PathBuf {
    let now = turnwright_types::timestamp::rfc3339(SystemTime::now()).replace(':', "-");
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

/// Copies every session that can be read completely from the damaged database. Returns how many.
fn salvage(path: &Path, aside: &Path) -> Result<usize, StoreError> {
    if std::fs::metadata(aside)?.len() > MAX_SALVAGE_BYTES {
        return Ok(0);
    }
    let connection = schema::open_writer(Some(path))?;
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
        match copy_session(&connection, session) {
            Ok(()) => {
                connection.execute_batch("COMMIT")?;
                saved += 1;
            }
            Err(error) => {
                tracing::warn!(%error, "a session could not be copied from the damaged store");
                connection.execute_batch("ROLLBACK")?;
            }
        }
    }
    Ok(saved)
}

fn copy_session(connection: &Connection, session: i64) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO main.sessions SELECT * FROM damaged.sessions WHERE key = ?",
        [session],
    )?;
    connection.execute(
        "INSERT OR IGNORE INTO main.blobs SELECT * FROM damaged.blobs WHERE id IN \
         (SELECT blob FROM damaged.blob_uses WHERE session = ?)",
        [session],
    )?;
    for table in SESSION_TABLES {
        let copy =
            format!("INSERT INTO main.{table} SELECT * FROM damaged.{table} WHERE session = ?");
        connection.execute(&copy, [session])?;
    }
    Ok(())
}

/// Fails with [`StorageFault::Corrupt`] if the database is damaged.
pub(super) fn check_integrity(connection: &Connection) -> Result<(), StoreError> {
    let word: String = connection.query_row("PRAGMA quick_check(1)", [], |it| it.get(0))?;
    if word == "ok" {
        return Ok(());
    }
    Err(StoreError::Unavailable { fault: StorageFault::Corrupt, reason: word })
}

fn file_ids(path: &Path) -> [FileIdentity; 3] {
    ["", "-wal", "-shm"].map(|it| file_id(&with_suffix(path, it)))
}

#[cfg(unix)]
fn file_id(path: &Path) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> FileIdentity {
    None
}
