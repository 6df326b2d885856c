//! Replaces a damaged database: a new one is created, what can still be read is copied into it, and
//! then it takes the place of the old one, which is kept whole under another name.

mod salvage;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::database;
use crate::health::StorageFault;
use crate::session_lock;
use crate::{Result, SharedState, StoreError};
use salvage::SalvageReport;
use turnwright_types::private_file;
use turnwright_types::text::join_first;

/// The suffixes of the files that SQLite puts beside a database.
pub(super) const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The suffix of the new database until it takes the place of the damaged one.
pub(super) const REPLACEMENT_SUFFIX: &str = ".mended";
/// The suffix of a copy of the damaged database that is made where it cannot be read otherwise.
pub(super) const COPY_SUFFIX: &str = ".copy";
/// The most sessions that a notice names.
const MAX_NAMES: usize = 10;

/// An open database connection.
pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    /// `None` for a database in memory.
    pub(super) files: Option<DatabaseFiles>,
}

/// A database path, with those of its log and of its shared memory, and the identities of the files that
/// were found there.
pub(super) struct DatabaseFiles {
    pub(super) path: PathBuf,
    paths: [PathBuf; 3],
    files: [FileIdentity; 3],
}

type FileIdentity = Option<(u64, u64)>;

impl DatabaseFiles {
    fn of(path: &Path) -> DatabaseFiles {
        let paths = ["", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix));
        DatabaseFiles { path: path.to_path_buf(), files: file_ids(&paths), paths }
    }

    /// True if the path leads to another database, or to none.
    fn is_replaced(&self) -> bool {
        file_id(&self.path) != self.files[0]
    }

    /// True if the path still leads to the same files. Data written to a removed write-ahead log is in no
    /// file, and no other process sees it.
    pub(super) fn is_unchanged(&self) -> bool {
        file_ids(&self.paths) == self.files
    }
}

/// Opens the database for writing and waits at most `patience` for locks of other processes. A
/// database of an incompatible version is left alone, and a file of our own is used instead.
pub(super) fn open(shared: &SharedState, timeout: Duration) -> Result<OpenDatabase> {
    let Some(path) = shared.path.as_deref() else {
        return Ok(OpenDatabase { connection: database::open_in_memory()?, files: None });
    };
    match open_or_replace(shared, path, timeout) {
        Err(StoreError::OtherVersion) => {}
        result => return result,
    }
    let own = database::fallback_path(path);
    let opened = open_or_replace(shared, &own, timeout)?;
    shared.announce(format!(
        "{} was made by another version of turnwright, so it is left unchanged. This version saves its \
         sessions in {}.",
        path.display(),
        own.display()
    ));
    Ok(opened)
}

fn open_or_replace(shared: &SharedState, path: &Path, timeout: Duration) -> Result<OpenDatabase> {
    private_file::create_folder(path.parent().unwrap_or(path))?;
    session_lock::wait_for_lock(&lock_path(path));
    let found = DatabaseFiles::of(path);
    let connection = match database::open_writer_with_journal(path, timeout, shared.journal()) {
        Err(error) if error.fault() == Some(StorageFault::Corrupt) => {
            replace(shared, &found)?;
            database::open_writer_with_journal(path, timeout, shared.journal())?
        }
        result => result?,
    };
    if let Some(notice) = shared.file_system_notice() {
        shared.announce(notice);
    }
    Ok(OpenDatabase { connection, files: Some(DatabaseFiles::of(path)) })
}

/// Replaces a damaged database by a new one with everything that can be read, unless another process
/// has done so already. The damaged one is kept beside it.
pub(super) fn replace(shared: &SharedState, database: &DatabaseFiles) -> Result<()> {
    let path = &database.path;
    let lock = session_lock::lock_file(&lock_path(path));
    let done = if database.is_replaced() { Ok(()) } else { replace_locked(shared, path) };
    fs::remove_file(lock_path(path)).ok();
    drop(lock);
    done
}

fn replace_locked(shared: &SharedState, path: &Path) -> Result<()> {
    let new = with_suffix(path, REPLACEMENT_SUFFIX);
    let copy = with_suffix(path, COPY_SUFFIX);
    // An earlier attempt may have been interrupted.
    remove_database(&new);
    let writers = block_writers(path)?;
    let report = salvage::salvage(path, &new, &copy, shared.journal());
    remove_database(&copy);
    // Windows cannot rename an open file.
    let writers = Some(writers).filter(|_| !cfg!(windows));
    let exchanged = report.and_then(|report| Ok((exchange_when_closed(path, &new)?, report)));
    drop(writers);
    match exchanged {
        Ok((aside, report)) => {
            shared.announce(notice(&aside, &report));
            Ok(())
        }
        Err(error) => {
            remove_database(&new);
            Err(error)
        }
    }
}

/// Removes a database, if there is one.
fn remove_database(path: &Path) {
    for suffix in [""].iter().chain(&SIDE_SUFFIXES) {
        fs::remove_file(with_suffix(path, suffix)).ok();
    }
}

/// The file that is locked while the database is replaced.
fn lock_path(path: &Path) -> PathBuf {
    path.with_extension("mending")
}

/// Makes other processes wait with their writes until the connection is dropped. Then they find that
/// the file was replaced. Returns `None` if the damage does not even allow that.
fn block_writers(path: &Path) -> Result<Option<Connection>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The log belongs to the file that is kept, and its name soon to the new one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(database::BUSY_TIMEOUT)?;
    match connection.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::from) {
        Ok(()) => Ok(Some(connection)),
        Err(error) if error.fault() == Some(StorageFault::Corrupt) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Does [`exchange`]. On Windows it waits until other processes, which find the damage, too, have closed
/// the file.
fn exchange_when_closed(path: &Path, new: &Path) -> std::io::Result<PathBuf> {
    let end = std::time::Instant::now() + database::BUSY_TIMEOUT;
    loop {
        match exchange(path, new) {
            Err(_) if cfg!(windows) && std::time::Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Puts the new database in the place of the damaged one. Returns the path at which that is kept.
fn exchange(path: &Path, new: &Path) -> std::io::Result<PathBuf> {
    let aside = unused_aside_path(path);
    // With a second name there is a database at the path all the time. Windows could then not replace the
    // first one if it is open, and here nothing is changed by an attempt.
    if cfg!(windows) || fs::hard_link(path, &aside).is_err() {
        fs::rename(path, &aside)?;
    }
    for suffix in SIDE_SUFFIXES {
        // Some of these files may not exist.
        fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)).ok();
    }
    fs::rename(new, path)?;
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        private_file::sync(&fs::File::open(folder)?)?;
    }
    Ok(aside)
}

/// The notice for the user.
fn notice(aside: &Path, report: &SalvageReport) -> String {
    let sessions = match report.sessions {
        0 => "none of its sessions".to_owned(),
        1 => "the one session that could still be read".to_owned(),
        count => format!("the {count} sessions that could still be read"),
    };
    let mut text = format!(
        "The session store was damaged and moved to {}. A new one was created with {sessions}. New \
         messages are saved.",
        aside.display(),
    );
    for (what, names) in [("Incomplete", &report.incomplete), ("Lost", &report.lost)] {
        if !names.is_empty() {
            let names: Vec<_> = names.iter().cloned().collect();
            text.push_str(&format!(" {what}: {}.", join_first(&names, MAX_NAMES)));
        }
    }
    if report.may_miss_others && report.sessions > 0 {
        text.push_str(" Other sessions may be lost or lack parts, too.");
    }
    text
}

/// A path beside the database that is not taken.
fn unused_aside_path(path: &Path) -> PathBuf {
    let now = turnwright_types::timestamp::rfc3339(SystemTime::now()).replace(':', "-");
    let time = now.split('.').next().unwrap_or_default().trim_end_matches('Z');
    let mut aside = with_suffix(path, &format!(".damaged-{time}"));
    for number in 2..1000 {
        if fs::symlink_metadata(&aside).is_err() {
            break;
        }
        aside = with_suffix(path, &format!(".damaged-{time}-{number}"));
    }
    aside
}

/// A path with something added to its last part.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Fails with [`StorageFault::Corrupt`] if the database or its content is damaged.
pub(super) fn check_integrity(connection: &Connection) -> Result<()> {
    let word: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    let rows = if word == "ok" { salvage::check_rows(connection) } else { Ok(()) };
    let reason = match rows {
        Ok(()) if word == "ok" => return Ok(()),
        Ok(()) => word,
        Err(StoreError::Damaged(reason)) => reason,
        Err(error) => return Err(error),
    };
    Err(StoreError::Unavailable { fault: StorageFault::Corrupt, reason })
}

fn file_ids(paths: &[PathBuf; 3]) -> [FileIdentity; 3] {
    paths.each_ref().map(|file| file_id(file))
}

#[cfg(unix)]
fn file_id(path: &Path) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn file_id(path: &Path) -> FileIdentity {
    turnwright_types::file_id::file_id(path).map(|id| id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes find the same damage, and the second one must not replace the new database.
    #[test]
    fn a_database_that_another_process_has_replaced_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        fs::File::create(&path).unwrap();
        let found = DatabaseFiles::of(&path);
        assert!(found.is_unchanged() && !found.is_replaced());
        fs::File::create(with_suffix(&path, REPLACEMENT_SUFFIX)).unwrap();
        fs::rename(&path, with_suffix(&path, ".aside")).unwrap();
        fs::rename(with_suffix(&path, REPLACEMENT_SUFFIX), &path).unwrap();
        assert!(found.is_replaced() && !found.is_unchanged());
        let of_log = DatabaseFiles::of(&path);
        let log = with_suffix(&path, "-wal");
        fs::File::create(log).unwrap();
        assert!(!of_log.is_unchanged() && !of_log.is_replaced());
    }
}
