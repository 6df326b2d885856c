//! The database: what it looks like, how it is opened, and how an older one becomes a newer one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::StoreError;

/// The version of what is below. A step to the next one goes into [`STEPS`].
const VERSION: usize = STEPS.len();

/// How each version becomes the next. What was published once is not changed any more; what a step
/// adds, an older program must be able to leave alone.
const STEPS: &[&str] = &[include_str!("schema.sql")];

/// How long another process is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection that writes. Makes the database if there is none.
pub(super) fn writer(path: Option<&Path>) -> Result<Connection, StoreError> {
    let connection = match path {
        Some(path) => {
            make_private(path).map_err(|it| StoreError::Unusable(it.to_string()))?;
            Connection::open(path)?
        }
        None => Connection::open_in_memory()?,
    };
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; \
         PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY;",
    )?;
    migrate(&connection)?;
    Ok(connection)
}

/// A connection that only reads, of a database that there is.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
    Ok(connection)
}

/// What is said in a session is nobody else's: the files that SQLite puts beside it have the mode
/// of this one.
fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = fs::File::options();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path).map(drop)
}

fn migrate(connection: &Connection) -> Result<(), StoreError> {
    let version: usize = connection.pragma_query_value(None, "user_version", |it| it.get(0))?;
    if version >= VERSION {
        return Ok(());
    }
    if version == 0 {
        // Has to be said before the first table.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;")?;
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = steps(connection);
    connection.execute_batch(if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    migrated
}

/// Another process may have been faster.
fn steps(connection: &Connection) -> Result<(), StoreError> {
    let version: usize = connection.pragma_query_value(None, "user_version", |it| it.get(0))?;
    for step in STEPS.iter().skip(version) {
        connection.execute_batch(step)?;
    }
    if version < VERSION {
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}
