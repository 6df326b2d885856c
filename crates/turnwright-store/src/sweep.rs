//! What is no longer wanted goes: old sessions, the oldest where all together take too much, bytes
//! that no session needs, pages that hold nothing. In slices of a few milliseconds, when nothing
//! else is to be written; at most once a day, or when a session was deleted.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, OptionalExtension, params};

use super::StoreError;
use super::hold::Hold;
use super::read::millis;
use turnwright_types::ids::SessionId;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Days after which a session goes in which nothing has happened; 0 for none.
    pub days: u32,
    /// Bytes that all may take together; 0 for any.
    pub bytes: u64,
}

/// How long a slice may take. A piece that has begun is finished.
const SLICE: Duration = Duration::from_millis(3);
/// Between two slices, whatever else is to be done is done.
const BREATH: Duration = Duration::from_millis(5);
/// After the start and after the last write, other things matter more.
const QUIET: Duration = Duration::from_secs(10);
/// How often it is looked whether there is something to do.
const REST: Duration = Duration::from_secs(3600);
/// How long another process is waited for.
const PATIENCE: Duration = Duration::from_millis(5);
const DAY: i64 = 24 * 3600 * 1000;
/// Rows that are deleted at a time.
const ROWS: usize = 32;

/// How far it is.
enum Stage {
    /// There is nothing to do, as far as is known.
    Rest,
    /// Looking for a session that goes, later than this one.
    Look(i64, i64),
    /// A session goes: its time, its key.
    Delete(i64, i64, Hold),
    /// Bytes without use go, with larger numbers than this one.
    Blobs(i64),
    /// Pages without use go.
    Pages,
}

/// A sweep under way, or what was left of the last.
pub(super) struct Sweep {
    stage: Stage,
    next: Instant,
}

impl Sweep {
    pub(super) fn new() -> Sweep {
        Sweep { stage: Stage::Rest, next: Instant::now() + QUIET }
    }

    /// How long nothing may have to be written before the next slice.
    pub(super) fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// There is nothing to sweep.
    pub(super) fn put_off(&mut self) {
        self.next = Instant::now() + REST;
    }

    /// Something was written.
    pub(super) fn give_way(&mut self) {
        let soon = match self.stage {
            Stage::Rest => QUIET,
            _ => BREATH,
        };
        self.next = Instant::now() + soon;
    }

    /// Does a little.
    pub(super) fn slice(&mut self, connection: &Connection, path: &Path, limits: Limits) {
        let stage = std::mem::replace(&mut self.stage, Stage::Rest);
        let folder = path.parent().unwrap_or(path);
        let done = connection
            .busy_timeout(PATIENCE)
            .map_err(StoreError::from)
            .and_then(|()| next(connection, folder, limits, stage));
        self.stage = done.unwrap_or_else(|error| {
            tracing::debug!(%error, "the store was not tidied up");
            Stage::Rest
        });
        let pause = if matches!(self.stage, Stage::Rest) { REST } else { BREATH };
        self.next = Instant::now() + pause;
    }
}

fn next(
    connection: &Connection,
    folder: &Path,
    limits: Limits,
    stage: Stage,
) -> Result<Stage, StoreError> {
    match stage {
        Stage::Rest if claim(connection)? => Ok(Stage::Look(i64::MIN, 0)),
        Stage::Rest => Ok(Stage::Rest),
        Stage::Look(time, key) => look(connection, folder, limits, (time, key)),
        Stage::Delete(time, key, hold) => {
            if together(connection, || delete(connection, key))? {
                return Ok(Stage::Look(time, key));
            }
            Ok(Stage::Delete(time, key, hold))
        }
        Stage::Blobs(after) => {
            let after = together(connection, || blobs(connection, after))?;
            Ok(after.map_or(Stage::Pages, Stage::Blobs))
        }
        Stage::Pages => pages(connection),
    }
}

fn together<T>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = work().and_then(|it| {
        connection.execute_batch("COMMIT")?;
        Ok(it)
    });
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    done
}

/// Whether it is time, for one process.
fn claim(connection: &Connection) -> Result<bool, StoreError> {
    let now = millis(SystemTime::now());
    let is_time = || -> Result<bool, StoreError> {
        let query = "SELECT count(*) FROM meta WHERE name = 'unswept' OR \
                     (name = 'swept_at' AND value NOT BETWEEN ? AND ?)";
        Ok(connection.query_row(query, [now - DAY, now], |it| it.get::<_, i64>(0))? > 0)
    };
    // Most often it is not, and nothing has to be locked for that.
    Ok(is_time()?
        && together(connection, || {
            let is_time = is_time()?;
            connection.execute("DELETE FROM meta WHERE name = 'unswept'", [])?;
            connection.execute("UPDATE meta SET value = ? WHERE name = 'swept_at'", [now])?;
            Ok(is_time)
        })?)
}

/// The bytes in use.
fn size(connection: &Connection) -> Result<u64, StoreError> {
    let number = |name| connection.pragma_query_value(None, name, |it| it.get::<_, u64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(pages * number("page_size")?)
}

/// The next session that goes. Never one that is open, that was archived, or that was in use
/// within a day.
fn look(
    connection: &Connection,
    folder: &Path,
    limits: Limits,
    (time, key): (i64, i64),
) -> Result<Stage, StoreError> {
    let now = millis(SystemTime::now());
    let is_too_large = limits.bytes > 0 && size(connection)? > limits.bytes;
    let days = match (is_too_large, limits.days) {
        (true, _) => 1,
        (false, 0) => return Ok(Stage::Blobs(0)),
        (false, days) => i64::from(days),
    };
    let found = connection
        .prepare_cached(
            "SELECT updated_at, key, id FROM sessions WHERE archived = 0 AND updated_at < ? AND \
             (updated_at, key) > (?, ?) ORDER BY updated_at, key LIMIT 1",
        )?
        .query_row(params![now - days * DAY, time, key], |it| {
            Ok((it.get(0)?, it.get(1)?, it.get::<_, String>(2)?))
        })
        .optional()?;
    let Some((time, key, id)) = found else { return Ok(Stage::Blobs(0)) };
    match Hold::take(folder, &SessionId::from(id)) {
        Ok(hold) if hold.is_sure() => Ok(Stage::Delete(time, key, hold)),
        _ => Ok(Stage::Look(time, key)),
    }
}

/// Deletes a part of a session, and at last the session. Returns whether that was the last.
fn delete(connection: &Connection, session: i64) -> Result<bool, StoreError> {
    let begun = Instant::now();
    for table in ["entries", "calls", "file_versions", "permissions", "usage"] {
        let delete = format!(
            "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE session = ? LIMIT \
             {ROWS})"
        );
        let mut delete = connection.prepare_cached(&delete)?;
        while delete.execute([session])? > 0 {
            if begun.elapsed() > SLICE {
                return Ok(false);
            }
        }
    }
    let mut find =
        connection.prepare_cached("SELECT blob FROM blob_uses WHERE session = ? LIMIT 1")?;
    while let Some(blob) = find.query_row([session], |it| it.get::<_, i64>(0)).optional()? {
        connection
            .prepare_cached("DELETE FROM blob_uses WHERE session = ? AND blob = ?")?
            .execute([session, blob])?;
        delete_blob(connection, blob)?;
        if begun.elapsed() > SLICE {
            return Ok(false);
        }
    }
    connection.execute("DELETE FROM sessions WHERE key = ?", [session])?;
    // That was us, and no reason to begin again.
    connection.execute("DELETE FROM meta WHERE name = 'unswept'", [])?;
    Ok(true)
}

/// Deletes bytes if no session needs them.
fn delete_blob(connection: &Connection, blob: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = ?1)",
        )?
        .execute([blob])?;
    Ok(())
}

/// Deletes some bytes that no session needs. Returns the number to go on from.
fn blobs(connection: &Connection, mut after: i64) -> Result<Option<i64>, StoreError> {
    let begun = Instant::now();
    let mut find =
        connection.prepare_cached("SELECT id FROM blobs WHERE id > ? ORDER BY id LIMIT 1")?;
    while let Some(blob) = find.query_row([after], |it| it.get(0)).optional()? {
        delete_blob(connection, blob)?;
        after = blob;
        if begun.elapsed() > SLICE {
            return Ok(Some(after));
        }
    }
    Ok(None)
}

/// Gives some pages back to the disk.
fn pages(connection: &Connection) -> Result<Stage, StoreError> {
    let free = || connection.pragma_query_value(None, "freelist_count", |it| it.get::<_, u64>(0));
    let before = free()?;
    if before > 0 {
        connection.execute_batch("PRAGMA incremental_vacuum(32)")?;
        if free()? < before {
            return Ok(Stage::Pages);
        }
    }
    // What is still read stays in the log until next time.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    Ok(Stage::Rest)
}

/// All of a sweep at once.
#[cfg(test)]
pub(super) fn sweep_now(connection: &Connection, folder: &Path, limits: Limits) {
    let mut stage = Stage::Rest;
    loop {
        stage = next(connection, folder, limits, stage).unwrap();
        if matches!(stage, Stage::Rest) {
            return;
        }
    }
}
