//! The database: what it looks like, how it is opened, and how an older one becomes a newer one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::StoreError;
use super::health::Fault;

/// How each version becomes the next. What was published once is not changed any more. What a step
/// adds, an older program must be able to leave alone; a step that it could not live with sets
/// `usable_from` in `meta` to its own number.
const STEPS: &[&str] = &[include_str!("schema.sql")];

/// How long another process is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A connection that writes. Makes the database if there is none.
pub(super) fn writer(path: Option<&Path>) -> Result<Connection, StoreError> {
    writer_within(path, PATIENCE)
}

/// The same, but other processes are waited for no longer than that.
pub(super) fn writer_within(
    path: Option<&Path>,
    patience: Duration,
) -> Result<Connection, StoreError> {
    let connection = match path {
        Some(path) => {
            make_private(path)?;
            Connection::open(path)?
        }
        None => Connection::open_in_memory()?,
    };
    connection.busy_timeout(patience)?;
    connection.set_prepared_statement_cache_capacity(64);
    prepare(&connection, STEPS)?;
    Ok(connection)
}

/// A connection that only reads. It makes no file: where there is no database, it is one that
/// holds nothing.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match Connection::open_with_flags(path, flags) {
        Ok(connection) => connection,
        Err(_) if is_missing(path) => return writer(None),
        Err(error) => return Err(error.into()),
    };
    connection.busy_timeout(PATIENCE)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
    match version(&connection)? {
        // Somebody is about to make it.
        0 => writer(None),
        found if found > STEPS.len() && !is_usable(&connection, STEPS.len()) => {
            reader(&beside(path))
        }
        _ => Ok(connection),
    }
}

/// Where a program of this version keeps its sessions if the database is one that it must not
/// touch.
pub(super) fn beside(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-of-version-{}.db", STEPS.len()))
}

fn is_missing(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// What is said in a session is nobody else's: the files that SQLite puts beside it have the mode
/// of this one.
fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let mut options = fs::File::options();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(0o600);
        let file = options.open(path)?;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    }
    #[cfg(not(unix))]
    options.open(path).map(drop)
}

/// Makes a folder that only its owner can look into, unless it is there.
pub(super) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

fn version(connection: &Connection) -> Result<usize, StoreError> {
    Ok(connection.pragma_query_value(None, "user_version", |it| it.get(0))?)
}

/// Whether a newer database lets a program of version `own` use it.
fn is_usable(connection: &Connection, own: usize) -> bool {
    let query = "SELECT value FROM meta WHERE name = 'usable_from'";
    let from: Option<usize> =
        connection.query_row(query, [], |it| it.get(0)).optional().unwrap_or_default();
    from.is_some_and(|it| it <= own)
}

/// Has the database as these steps make it. A newer one that may not be used is not touched.
fn prepare(connection: &Connection, steps: &[&str]) -> Result<(), StoreError> {
    let found = version(connection)?;
    if found > steps.len() && !is_usable(connection, steps.len()) {
        return Err(StoreError::Newer);
    }
    if found == 0 {
        // Has to be said before anything is written.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;")?;
    }
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; \
         PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 4194304;",
    )?;
    if found < steps.len() {
        while migrate(connection, steps)? {}
    }
    Ok(())
}

/// Takes one step. Another process may have been faster. Returns whether there may be more.
fn migrate(connection: &Connection, steps: &[&str]) -> Result<bool, StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let taken = step(connection, steps);
    let end = if taken.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute_batch(end);
    let taken = taken?;
    if ended.is_err() && !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
    ended?;
    Ok(taken)
}

fn step(connection: &Connection, steps: &[&str]) -> Result<bool, StoreError> {
    let found = version(connection)?;
    let Some(step) = steps.get(found) else { return Ok(false) };
    if found == 0 {
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |it| it.get(0))?;
        if tables > 0 {
            let why = "it is a database of another program".to_owned();
            return Err(StoreError::Failing { fault: Fault::Corrupt, why });
        }
    }
    connection.execute_batch(step)?;
    connection.pragma_update(None, "user_version", found + 1)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(more: &'static str) -> Vec<&'static str> {
        [STEPS, &[more]].concat()
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    fn number(connection: &Connection, query: &str) -> i64 {
        connection.query_row(query, [], |it| it.get(0)).unwrap()
    }

    const ROW: &str =
        "INSERT INTO sessions (id, cwd, created_at, updated_at) VALUES ('s', '/', 1, 1)";

    #[test]
    fn a_new_database_is_ours_and_gives_space_back() {
        let folder = tempfile::tempdir().unwrap();
        let connection = writer(Some(&folder.path().join("a/b/sessions.db"))).unwrap();
        assert_eq!(number(&connection, "PRAGMA auto_vacuum"), 2);
        assert_eq!(number(&connection, "PRAGMA application_id"), 0x5457_5253);
        assert_eq!(number(&connection, "PRAGMA user_version"), 1);
    }

    #[test]
    #[cfg(unix)]
    fn nobody_else_can_look_into_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/sessions.db");
        let connection = writer(Some(&path)).unwrap();
        connection.execute(ROW, []).unwrap();
        let mode = |it: &Path| fs::metadata(it).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("state")), 0o700);
        for suffix in ["", "-wal", "-shm"] {
            let file = folder.path().join(format!("state/sessions.db{suffix}"));
            assert_eq!(mode(&file), 0o600, "{suffix}");
        }
    }

    #[test]
    fn an_older_database_becomes_a_newer_one_once_whoever_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        writer(Some(&path)).unwrap().execute(ROW, []).unwrap();
        let work = || {
            let connection = open(&path);
            prepare(&connection, &next("ALTER TABLE sessions ADD COLUMN more TEXT;")).unwrap();
        };
        std::thread::scope(|scope| {
            let both = [scope.spawn(work), scope.spawn(work)];
            for it in both {
                it.join().unwrap();
            }
        });
        let connection = open(&path);
        assert_eq!(number(&connection, "PRAGMA user_version"), 2);
        assert_eq!(number(&connection, "SELECT count(*) FROM sessions WHERE more IS NULL"), 1);
    }

    #[test]
    fn a_step_that_fails_leaves_all_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        drop(writer(Some(&path)).unwrap());
        let connection = open(&path);
        let steps = next("CREATE TABLE more (a); INSERT INTO nowhere VALUES (1);");
        prepare(&connection, &steps).unwrap_err();
        assert_eq!(number(&connection, "PRAGMA user_version"), 1);
        assert_eq!(
            number(&connection, "SELECT count(*) FROM sqlite_master WHERE name = 'more'"),
            0
        );
    }

    #[test]
    fn a_newer_database_is_used_if_it_says_so_and_else_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        prepare(&open(&path), &next("ALTER TABLE sessions ADD COLUMN more TEXT;")).unwrap();
        let connection = writer(Some(&path)).unwrap();
        connection.execute(ROW, []).unwrap();
        assert_eq!(number(&reader(&path).unwrap(), "SELECT count(*) FROM sessions"), 1);

        connection
            .execute_batch("PRAGMA user_version = 999; UPDATE meta SET value = 999;")
            .unwrap();
        drop(connection);
        let before = fs::read(&path).unwrap();
        assert_eq!(writer(Some(&path)).unwrap_err(), StoreError::Newer);
        assert_eq!(number(&reader(&path).unwrap(), "SELECT count(*) FROM sessions"), 0);
        assert!(!beside(&path).exists() && fs::read(&path).unwrap() == before);
    }

    #[test]
    fn who_only_reads_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/sessions.db");
        assert_eq!(number(&reader(&path).unwrap(), "SELECT count(*) FROM sessions"), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
