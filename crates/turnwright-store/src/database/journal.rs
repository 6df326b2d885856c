//! Chooses how SQLite keeps readers and writers apart. A write-ahead log needs shared memory beside the
//! database. File systems of networks may lack that, may not share it between machines, or may lock no file.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;
use crate::damage::{self, with_suffix};
use crate::health::StorageFault;

/// SQLite's way to keep the connections of a database apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Journal {
    #[default]
    WriteAhead,
    /// A rollback journal, which needs nothing but locks of the database.
    Rollback,
    /// A rollback journal and a folder beside the database in place of locks.
    LockFolder,
}

/// Linux's names of the file systems whose files other machines may change. Those in the second line show folders of
/// the host to containers and virtual machines, where shared memory is damaged without an error.
const NETWORKS: &str = "nfs nfs4 cifs smb3 afs ceph lustre gpfs beegfs fuse.sshfs fuse.glusterfs \
    virtiofs 9p fakeowner fuse.grpcfuse fuse.osxfs vboxsf prl_fs fuse.vmhgfs-fuse fuse.prl_fsd";
/// A lock folder so old was left by a process that was killed: transactions take milliseconds.
const STALE_LOCK: Duration = Duration::from_secs(60);

impl Journal {
    /// Finds the fastest journal that works for a database at this path. Blocks.
    pub(crate) fn find(database: &Path) -> Journal {
        // The first name is like that of the shared memory, whose locks may fail alone. Without them
        // SQLite tries for ten seconds to open a log.
        if !can_run(database, "-shm", "BEGIN EXCLUSIVE; ROLLBACK") {
            let can_lock = can_run(database, "", "BEGIN EXCLUSIVE; ROLLBACK");
            return if can_lock { Journal::Rollback } else { Journal::LockFolder };
        }
        // If another process is using a log now, this one has to use it, too.
        let is_shared = file_system(database).is_some_and(|name| is_network(&name))
            && !with_suffix(database, "-shm").exists();
        if is_shared || !can_run(database, "", USE_LOG) {
            return Journal::Rollback;
        }
        Journal::WriteAhead
    }

    /// Opens a connection. Until [`Journal::end_log`] it reads a database with a log without shared
    /// memory, which works while no other connection uses the database.
    pub(crate) fn open(self, path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
        if self == Journal::WriteAhead {
            return Connection::open_with_flags(path, flags);
        }
        let connection = if self == Journal::LockFolder && cfg!(unix) {
            remove_stale_lock(path);
            Connection::open_with_flags_and_vfs(path, flags, c"unix-dotfile")?
        } else {
            Connection::open_with_flags(path, flags)?
        };
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
        Ok(connection)
    }

    /// Has a log that the database may have written into it, and lets other connections in.
    pub(crate) fn end_log(self, connection: &Connection) -> rusqlite::Result<()> {
        if self == Journal::WriteAhead {
            return Ok(());
        }
        connection.execute_batch(
            "PRAGMA journal_mode = TRUNCATE; PRAGMA locking_mode = NORMAL; \
             SELECT count(*) FROM sqlite_master;",
        )
    }
}

/// Returns true if others may change the files of a file system of this type.
fn is_network(file_system: &str) -> bool {
    NETWORKS.split_whitespace().any(|name| name == file_system)
}

/// The suffix of the databases of this process that are only tried. It is random, because processes in several
/// containers may have the same number.
pub(crate) static PROBE_SUFFIX: LazyLock<String> =
    LazyLock::new(|| format!(".probe-{:016x}", RandomState::new().build_hasher().finish()));

/// Creates a database with a write-ahead log and reads from it.
const USE_LOG: &str = "PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL; CREATE TABLE probe (a); \
    SELECT count(*) FROM probe";

/// Returns true if SQLite can do this with another database at the same place.
fn can_run(database: &Path, suffix: &str, statements: &str) -> bool {
    let path = with_suffix(database, &format!("{}{suffix}", *PROBE_SUFFIX));
    let done = Connection::open(&path).and_then(|connection| {
        connection.busy_timeout(Duration::ZERO)?;
        connection.execute_batch(statements)?;
        Ok(statements != USE_LOG || with_suffix(&path, "-shm").is_file())
    });
    let was_created = std::fs::remove_file(&path).is_ok();
    for suffix in damage::SIDE_SUFFIXES {
        std::fs::remove_file(with_suffix(&path, suffix)).ok();
    }
    // Of other faults, opening the database tells.
    let lacks = [StorageFault::Unsuitable, StorageFault::Locked, StorageFault::Forbidden];
    done.map_err(StoreError::from).unwrap_or_else(|error| {
        !was_created || error.fault().is_none_or(|fault| !lacks.contains(&fault))
    })
}

/// Removes the folder that stands for a lock of a process that was killed. Its age is measured by the clock of the file
/// system, which may be on another machine.
fn remove_stale_lock(database: &Path) {
    let lock = with_suffix(database, ".lock");
    let clock = with_suffix(database, &format!("{}-clock", *PROBE_SUFFIX));
    let age = std::fs::symlink_metadata(&lock).and_then(|found| {
        let now = std::fs::File::create(&clock).and_then(|file| file.metadata()?.modified());
        std::fs::remove_file(&clock).ok();
        Ok(now?.duration_since(found.modified()?).unwrap_or_default())
    });
    if age.is_ok_and(|age| age > STALE_LOCK) {
        let removed = std::fs::remove_dir(&lock);
        tracing::warn!(?removed, "a lock of the store was left by a process that was killed");
    }
}

/// The notice about a database that has no write-ahead log.
pub(crate) fn notice(database: &Path) -> String {
    let folder = database.parent().unwrap_or(database);
    let system = file_system(database).map(|name| format!(" ({name})")).unwrap_or_default();
    format!(
        "The file system of {}{system} lacks the locks or the shared memory for a write-ahead log, so \
         sessions are saved in a slower way. {MOVE_ADVICE}.",
        folder.display()
    )
}

/// The notice about a database that is not private, because the file system refuses that.
pub(crate) fn exposure_notice(database: &Path) -> String {
    let path = database.display();
    format!("Other users have rights to {path}, which holds the sessions. {MOVE_ADVICE}.")
}

/// Advice for moving the state to another file system.
pub(crate) const MOVE_ADVICE: &str = if cfg!(windows) {
    "To move the state to a local disk, set LOCALAPPDATA (or TURNWRIGHT_HOME, if you use it)"
} else {
    "To move the state to a local disk, set XDG_STATE_HOME (or TURNWRIGHT_HOME, if you use it)"
};

/// Returns the type of the file system in which the database is, such as `nfs4`.
#[cfg(target_os = "linux")]
fn file_system(database: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata(database.parent()?).ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let bytes = std::fs::read("/proc/self/mountinfo").ok()?;
    let mounts = String::from_utf8_lossy(&bytes);
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    Some(mount.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_host_get_no_write_ahead_log() {
        for name in ["nfs4", "fuse.glusterfs", "virtiofs", "9p", "fuse.grpcfuse", "fakeowner"] {
            assert!(is_network(name), "{name}");
        }
        for name in ["ext4", "overlay", "tmpfs", "fuse", "fuse.ecryptfs", ""] {
            assert!(!is_network(name), "{name}");
        }
    }
}
