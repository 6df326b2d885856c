//! The schema of the database, how it is opened, and how it is migrated.

pub(crate) mod journal;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Params, Transaction, TransactionBehavior,
};

use crate::damage::{SIDE_SUFFIXES, with_suffix};
use crate::health::StorageFault;
use crate::{Result, StoreError};
use journal::Journal;
use turnwright_types::private_file;

/// The schema of a new database, with everything that the migrations add, in the order in which they add it. To create
/// it by migrations takes twice as long, and the first session waits for that: SQLite reads the whole schema again
/// after each of their statements.
const SCHEMA: &str = include_str!("schema.sql");

/// The migration from each version to the next, beginning with the one from [`FIRST_VERSION`].
/// A published migration never changes. An older program must be able to ignore what a migration
/// adds; one that it could not cope with sets `usable_from` in `meta` to its own number.
const MIGRATIONS: &[&str] = &[include_str!("schema-6.sql")];

/// The versions before it were never released.
const FIRST_VERSION: usize = 5;

/// The version of a database with all migrations.
const LAST_VERSION: usize = FIRST_VERSION + MIGRATIONS.len();

/// The `application_id` of our databases, which is set by the schema.
const APPLICATION_ID: i32 = 0x5457_5253;

/// How long to wait for a lock that another process holds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Configures a connection for writing. What is deleted is overwritten.
pub(super) const WRITING: &str = "PRAGMA query_only = OFF; PRAGMA synchronous = NORMAL; \
    PRAGMA foreign_keys = ON; PRAGMA secure_delete = FAST; PRAGMA cache_size = -512; \
    PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 4194304;";

/// Runs a statement that is prepared only once.
pub(super) fn execute(connection: &Connection, statement: &str, params: impl Params) -> Result<()> {
    connection.prepare_cached(statement)?.execute(params)?;
    Ok(())
}

/// Creates an empty database in memory.
pub(super) fn open_in_memory() -> Result<Connection> {
    prepared_writer(Connection::open_in_memory()?, Journal::WriteAhead)
}

#[cfg(test)]
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    open_writer_with_journal(path, BUSY_TIMEOUT, Journal::WriteAhead)
}

/// Opens a connection for writing, with a timeout for locks of other processes and a kind of journal. Creates the
/// database if there is none.
pub(super) fn open_writer_with_journal(
    path: &Path,
    timeout: Duration,
    journal: Journal,
) -> Result<Connection> {
    create_private_file(path)?;
    let connection = journal.open(path, OpenFlags::default())?;
    connection.busy_timeout(timeout)?;
    prepared_writer(connection, journal)
}

fn prepared_writer(connection: Connection, journal: Journal) -> Result<Connection> {
    connection.set_prepared_statement_cache_capacity(64);
    check_application_id(&connection)?;
    prepare_database(&connection, MIGRATIONS, journal)?;
    Ok(connection)
}

/// Opens a connection for reading. It creates no file: if there is no database, it reads an empty
/// one in memory.
pub(super) fn open_reader(path: &Path, journal: Journal) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = match journal.open(path, flags) {
        Ok(connection) => connection,
        Err(_) if is_missing(path) => return open_in_memory(),
        Err(error) => return Err(error.into()),
    };
    opened.busy_timeout(BUSY_TIMEOUT)?;
    let connection = match check_application_id(&opened) {
        // Files beside it would be ignored, such as half a transaction to be undone.
        Err(error)
            if error.fault() == Some(StorageFault::Forbidden)
                && !SIDE_SUFFIXES.iter().any(|suffix| with_suffix(path, suffix).exists()) =>
        {
            open_without_log(path)?
        }
        checked => checked.map(|()| opened)?,
    };
    match version(&connection)? {
        // Another process is about to create the schema.
        0 => open_in_memory(),
        found if !is_usable(&connection, found, LAST_VERSION) => {
            open_reader(&fallback_path(path), journal)
        }
        _ => {
            journal.end_log(&connection)?;
            connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
            Ok(connection)
        }
    }
}

/// Opens a database that nobody is writing for reading, in a folder where SQLite can make no log.
fn open_without_log(path: &Path) -> Result<Connection> {
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
    check_application_id(&connection)?;
    Ok(connection)
}

/// The path of the database that this version uses if it must not touch the one at `path`.
pub(super) fn fallback_path(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-of-version-{LAST_VERSION}.db"))
}

fn is_missing(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Creates the database with mode 0600, since conversations are private. SQLite gives its files
/// beside it the same mode.
///
/// A database that exists is not opened for that. On Unix, closing a file gives up all locks that the process has
/// on it, and another process would think that the database is not in use.
fn create_private_file(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        private_file::create_folder(folder)?;
    }
    match private_file::create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            #[cfg(unix)]
            if is_exposed(path) {
                // Shared disks that know no modes refuse this, and then the user is told.
                fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).ok();
            }
            Ok(())
        }
        created => created.map(drop),
    }
}

/// Returns true if other users have rights to a database. A dangling link leads to none yet: SQLite creates its target.
#[cfg(unix)]
pub(super) fn is_exposed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
pub(super) fn is_exposed(_: &Path) -> bool {
    false
}

/// Fails with [`StorageFault::Foreign`] if the database is of another program.
fn check_application_id(connection: &Connection) -> Result<()> {
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let is_foreign = match application {
        APPLICATION_ID => false,
        0 => {
            connection.query_row("SELECT count(*) > 0 FROM sqlite_master", [], |row| row.get(0))?
        }
        _ => true,
    };
    if !is_foreign {
        return Ok(());
    }
    let reason =
        format!("{} is a database of another program", connection.path().unwrap_or_default());
    Err(StoreError::Unavailable { fault: StorageFault::Foreign, reason })
}

fn version(connection: &Connection) -> Result<usize> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Returns true if a program of version `own` may use a database of version `found`: it is of a
/// version that was released, and a newer one allows it.
fn is_usable(connection: &Connection, found: usize, own: usize) -> bool {
    if found <= own {
        return found == 0 || found >= FIRST_VERSION;
    }
    let query = "SELECT value FROM meta WHERE name = 'usable_from'";
    let from: Option<usize> =
        connection.query_row(query, [], |row| row.get(0)).optional().unwrap_or_default();
    from.is_some_and(|version| version <= own)
}

/// Configures the connection and migrates the database. One that this version may not use is not
/// touched.
fn prepare_database(connection: &Connection, migrations: &[&str], journal: Journal) -> Result<()> {
    let found = version(connection)?;
    let own = FIRST_VERSION + migrations.len();
    if !is_usable(connection, found, own) {
        return Err(StoreError::OtherVersion);
    }
    if found == 0 {
        // This must come before anything is written.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;")?;
    }
    journal.end_log(connection)?;
    // A database that exists without a log was made where none works, and may be in use there.
    if found == 0 && journal == Journal::WriteAhead {
        connection.execute_batch("PRAGMA journal_mode = WAL")?;
    }
    connection.execute_batch(WRITING)?;
    if found < own {
        while migrate_once(connection, migrations)? {}
    }
    Ok(())
}

/// Creates the schema or applies the next migration, unless another process has. Returns true if there may be more.
fn migrate_once(connection: &Connection, migrations: &[&str]) -> Result<bool> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let found = version(connection)?;
    let (step, next) = if found == 0 {
        (SCHEMA, LAST_VERSION)
    } else {
        let at = found.checked_sub(FIRST_VERSION);
        let Some(step) = at.and_then(|at| migrations.get(at)) else { return Ok(false) };
        (*step, found + 1)
    };
    connection.execute_batch(step)?;
    connection.pragma_update(None, "user_version", next)?;
    transaction.commit()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_migration(more: &'static str) -> Vec<&'static str> {
        [MIGRATIONS, &[more]].concat()
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(BUSY_TIMEOUT).unwrap();
        connection
    }

    fn number(connection: &Connection, query: &str) -> i64 {
        connection.query_row(query, [], |row| row.get(0)).unwrap()
    }

    fn readable_sessions(path: &Path) -> i64 {
        let reader = open_reader(path, Journal::WriteAhead).unwrap();
        number(&reader, "SELECT count(*) FROM sessions")
    }

    const ROW: &str =
        "INSERT INTO sessions (id, cwd, created_at, updated_at) VALUES ('s', '/', 1, 1)";

    #[test]
    fn a_new_database_has_our_id_and_incremental_vacuum() {
        let folder = tempfile::tempdir().unwrap();
        let connection = open_writer(&folder.path().join("a/b/sessions.db")).unwrap();
        assert_eq!(number(&connection, "PRAGMA auto_vacuum"), 2);
        assert_eq!(number(&connection, "PRAGMA application_id"), 0x5457_5253);
        assert_eq!(number(&connection, "PRAGMA user_version"), 6);
    }

    /// The columns of all tables in their order, each with its type.
    fn columns(connection: &Connection) -> Vec<String> {
        let mut find = connection
            .prepare(
                "SELECT tables.name || ' ' || columns.cid || ' ' || columns.name || ' ' || columns.type \
                 FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns \
                 WHERE tables.type = 'table' ORDER BY tables.name, columns.cid",
            )
            .unwrap();
        let found = find.query_map([], |row| row.get(0)).unwrap();
        found.map(Result::unwrap).collect()
    }

    #[test]
    fn the_migrations_of_the_first_version_lead_to_the_columns_of_a_new_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let new = columns(&open_writer(&path).unwrap());
        let older = "ALTER TABLE sessions DROP COLUMN start; ALTER TABLE turns DROP COLUMN facts; \
                     ALTER TABLE usage DROP COLUMN served; PRAGMA user_version = 5;";
        open(&path).execute_batch(older).unwrap();
        let connection = open_writer(&path).unwrap();
        assert_eq!(columns(&connection), new);
        assert_eq!(number(&connection, "PRAGMA user_version"), 6);
    }

    #[test]
    #[cfg(unix)]
    fn the_database_and_its_folder_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/sessions.db");
        let connection = open_writer(&path).unwrap();
        connection.execute(ROW, []).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("state")), 0o700);
        for suffix in ["", "-wal", "-shm"] {
            let file = folder.path().join(format!("state/sessions.db{suffix}"));
            assert_eq!(mode(&file), 0o600, "{suffix}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_refuses_modes_is_used_all_the_same() {
        // Nobody may change the mode of this file.
        create_private_file(Path::new("/proc/self/status")).unwrap();
    }

    /// Another process that sees no lock removes the write-ahead log.
    #[test]
    #[cfg(target_os = "linux")]
    fn opening_a_writer_leaves_the_locks_of_other_connections() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let first = open_writer(&path).unwrap();
        first.execute(ROW, []).unwrap();
        let end = format!(":{} ", fs::metadata(&path).unwrap().ino());
        // The list may lack a lock while another process changes its own.
        let is_locked =
            || (0..20).any(|_| fs::read_to_string("/proc/locks").unwrap().contains(&end));
        assert!(is_locked());
        let second = open_writer(&path).unwrap();
        assert!(is_locked());
        drop((first, second));
    }

    #[test]
    fn concurrent_processes_migrate_an_older_database_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        open_writer(&path).unwrap().execute(ROW, []).unwrap();
        let work = || {
            let connection = open(&path);
            prepare_database(
                &connection,
                &with_migration("ALTER TABLE sessions ADD COLUMN more TEXT;"),
                Journal::WriteAhead,
            )
            .unwrap();
        };
        std::thread::scope(|scope| {
            let both = [scope.spawn(work), scope.spawn(work)];
            for thread in both {
                thread.join().unwrap();
            }
        });
        let connection = open(&path);
        assert_eq!(number(&connection, "PRAGMA user_version"), 7);
        assert_eq!(number(&connection, "SELECT count(*) FROM sessions WHERE more IS NULL"), 1);
    }

    #[test]
    fn a_failing_migration_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        drop(open_writer(&path).unwrap());
        let connection = open(&path);
        let migrations = with_migration("CREATE TABLE more (a); INSERT INTO nowhere VALUES (1);");
        prepare_database(&connection, &migrations, Journal::WriteAhead).unwrap_err();
        assert_eq!(number(&connection, "PRAGMA user_version"), 6);
        assert_eq!(
            number(&connection, "SELECT count(*) FROM sqlite_master WHERE name = 'more'"),
            0
        );
    }

    #[test]
    fn a_database_of_another_version_is_used_only_if_it_allows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        prepare_database(
            &open(&path),
            &with_migration("ALTER TABLE sessions ADD COLUMN more TEXT;"),
            Journal::WriteAhead,
        )
        .unwrap();
        let connection = open_writer(&path).unwrap();
        connection.execute(ROW, []).unwrap();
        assert_eq!(readable_sessions(&path), 1);

        for (version, usable_from) in [(999, 999), (4, 1), (1, 1)] {
            connection
                .execute_batch(&format!(
                    "PRAGMA user_version = {version}; UPDATE meta SET value = {usable_from} \
                     WHERE name = 'usable_from'; PRAGMA wal_checkpoint(TRUNCATE)"
                ))
                .unwrap();
            let before = fs::read(&path).unwrap();
            assert_eq!(open_writer(&path).unwrap_err(), StoreError::OtherVersion);
            assert_eq!(readable_sessions(&path), 0);
            assert!(!fallback_path(&path).exists() && fs::read(&path).unwrap() == before);
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_database_is_read_where_no_log_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        open_writer(&path).unwrap().execute(ROW, []).unwrap();
        // The name of a log is too long for the system, also where root may write in every folder.
        let unwritable = folder.path().join(format!("{:x<252}", "a?b#c%20"));
        fs::rename(&path, &unwritable).unwrap();
        assert_eq!(readable_sessions(&unwritable), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A log that cannot be read may hold sessions.
        fs::rename(&unwritable, &path).unwrap();
        fs::create_dir(with_suffix(&path, "-wal")).unwrap();
        open_reader(&path, Journal::WriteAhead).unwrap_err();
    }

    #[test]
    fn a_reader_creates_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/sessions.db");
        assert_eq!(readable_sessions(&path), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
