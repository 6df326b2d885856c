//! Deletes unneeded data: sessions past the retention limits, blobs that no session
//! uses, and free database pages. It runs in slices of a few milliseconds while nothing else is to
//! be written, at most once a day or after a session was deleted, and at the end of a process that
//! was never idle for so long. The write-ahead log is emptied whenever nothing was written for a while.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::Result;
use crate::database::{WRITING, execute};
use crate::read::to_millis;
use crate::session_lock::SessionLock;
use turnwright_types::ids::SessionId;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Days without activity after which a session is deleted; 0 for no limit.
    pub days: u32,
    /// Total size in bytes above which the oldest sessions are deleted; 0 for no limit.
    pub bytes: u64,
}

/// How long a slice may take. A statement that has begun is finished.
const SLICE_TIME: Duration = Duration::from_millis(3);
/// The pause between two slices, in which other writes get their turn.
const DELAY_BETWEEN_SLICES: Duration = Duration::from_millis(5);
/// The pause after the start and after the last write, so that the cleanup does not compete with
/// the user's work.
const DELAY_AFTER_ACTIVITY: Duration = Duration::from_secs(10);
/// The longest time that a cleanup takes at the end of a process, apart from the deletion of a session that has begun.
const TIME_AT_END: Duration = Duration::from_millis(if cfg!(test) { 600_000 } else { 300 });
/// How often it is checked whether a cleanup is due.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
/// How long to wait for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_millis(5);
const DAY_MILLIS: i64 = 24 * 3600 * 1000;
/// Rows that one statement deletes.
const ROWS_PER_DELETE: usize = 32;
/// Free pages that a slice gives back.
const PAGES_PER_SLICE: u32 = 32;

/// How far a cleanup has got.
enum CleanupStage {
    /// Nothing is known to be left to do.
    Idle,
    /// Looking for the next session that is too old at this time, after a time of use and a key.
    FindSession(i64, (i64, i64)),
    /// The same, while the session with this key is deleted, whose lock is held meanwhile.
    DeleteSession(i64, i64, SessionLock),
    /// Deleting unused blobs with ids greater than this one.
    DeleteBlobs(i64),
    /// Giving free pages back to the file system.
    FreePages,
}

/// The state of the cleanup and when its next slice is due.
pub(crate) struct Cleanup {
    stage: CleanupStage,
    next: Instant,
}

impl Cleanup {
    pub(crate) fn new() -> Cleanup {
        Cleanup { stage: CleanupStage::Idle, next: Instant::now() + DELAY_AFTER_ACTIVITY }
    }

    /// How long the writer must stay idle before the next slice.
    pub(crate) fn time_until_next(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Waits for a whole idle interval: there is nothing to clean up.
    pub(crate) fn rest(&mut self) {
        self.next = Instant::now() + IDLE_INTERVAL;
    }

    /// Delays the next slice because something was written.
    pub(crate) fn postpone(&mut self) {
        self.schedule(DELAY_AFTER_ACTIVITY);
    }

    /// Sets when the next slice is due: soon, or after `pause` if nothing is known to be left to do.
    fn schedule(&mut self, pause: Duration) {
        let is_idle = matches!(self.stage, CleanupStage::Idle);
        self.next = Instant::now() + if is_idle { pause } else { DELAY_BETWEEN_SLICES };
    }

    /// Runs one slice.
    ///
    /// # Errors
    /// If it fails; the cleanup starts anew at the next interval.
    pub(crate) fn run_slice(
        &mut self,
        connection: &Connection,
        path: &Path,
        limits: RetentionLimits,
    ) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, CleanupStage::Idle);
        let folder = path.parent().unwrap_or(path);
        let done = run_stage(connection, folder, limits, stage).map(|stage| self.stage = stage);
        self.schedule(IDLE_INTERVAL);
        done
    }
}

fn run_stage(
    connection: &Connection,
    folder: &Path,
    limits: RetentionLimits,
    stage: CleanupStage,
) -> Result<CleanupStage> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match stage {
        CleanupStage::Idle => {
            empty_log(connection)?;
            claim_run(connection)
        }
        CleanupStage::FindSession(today, after) => {
            find_expired(connection, folder, limits, today, after)
        }
        CleanupStage::DeleteSession(today, key, lock) => {
            if in_transaction(connection, || delete_session_part(connection, key))? {
                // The conversations of its helpers may be older.
                return Ok(CleanupStage::FindSession(today, (i64::MIN, 0)));
            }
            Ok(CleanupStage::DeleteSession(today, key, lock))
        }
        CleanupStage::DeleteBlobs(after) => {
            let after = in_transaction(connection, || delete_unused_blobs(connection, after))?;
            Ok(after.map_or(CleanupStage::FreePages, CleanupStage::DeleteBlobs))
        }
        CleanupStage::FreePages => {
            if free_pages(connection, PAGES_PER_SLICE)? {
                return Ok(CleanupStage::FreePages);
            }
            // Pages that readers still need stay in the write-ahead log until the next run.
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            Ok(CleanupStage::Idle)
        }
    }
}

/// Moves the contents of the write-ahead log into the database, unless another process is using it. The log
/// grows to 4 MiB before SQLite does so itself, and keeps that size.
pub(crate) fn empty_log(connection: &Connection) -> Result<()> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

fn in_transaction<T>(connection: &Connection, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let done = work()?;
    transaction.commit()?;
    Ok(done)
}

/// Claims a cleanup, if one is due, so that no other process runs it as well. Returns where it begins.
fn claim_run(connection: &Connection) -> Result<CleanupStage> {
    let now = to_millis(SystemTime::now());
    // Usually none is due, and then no lock is taken.
    if last_run_if_due(connection, now)?.is_none() {
        return Ok(CleanupStage::Idle);
    }
    in_transaction(connection, || {
        let Some(last) = last_run_if_due(connection, now)? else { return Ok(CleanupStage::Idle) };
        connection.execute("DELETE FROM meta WHERE name = 'unswept'", [])?;
        // A session was deleted since then, and only its blobs are left.
        if (now - DAY_MILLIS..=now).contains(&last) {
            return Ok(CleanupStage::DeleteBlobs(0));
        }
        connection.execute("UPDATE meta SET value = ? WHERE name = 'swept_at'", [now])?;
        // To a clock that is wrong, or was until now, all sessions seem old: only a day counts since the last cleanup.
        let today = now.min(last.saturating_add(DAY_MILLIS));
        Ok(CleanupStage::FindSession(today, (i64::MIN, 0)))
    })
}

/// The time of the last cleanup, if another one is due.
fn last_run_if_due(connection: &Connection, now: i64) -> Result<Option<i64>> {
    let query = "SELECT value FROM meta WHERE name = 'swept_at' AND (value NOT BETWEEN ? AND ? OR \
                 EXISTS (SELECT 1 FROM meta WHERE name = 'unswept'))";
    Ok(connection.query_row(query, [now - DAY_MILLIS, now], |row| row.get(0)).optional()?)
}

/// The bytes in use, without free pages.
fn used_bytes(connection: &Connection) -> Result<u64> {
    let all = pragma_number(connection, "page_count")?;
    let free = pragma_number(connection, "freelist_count")?;
    Ok(all.saturating_sub(free) * pragma_number(connection, "page_size")?)
}

fn pragma_number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Finds the next session to delete. Sessions that are open, archived or were used within the last
/// day are never deleted, and those of helpers stay as long as the sessions that they belong to.
fn find_expired(
    connection: &Connection,
    folder: &Path,
    limits: RetentionLimits,
    today: i64,
    (time, key): (i64, i64),
) -> Result<CleanupStage> {
    let is_too_large = limits.bytes > 0 && used_bytes(connection)? > limits.bytes;
    let days = if is_too_large { 1 } else { i64::from(limits.days) };
    if days == 0 {
        return Ok(CleanupStage::DeleteBlobs(0));
    }
    let query = "SELECT updated_at, key, id FROM sessions WHERE archived = 0 AND updated_at < ? \
                 AND (updated_at, key) > (?, ?) AND NOT EXISTS (SELECT 1 FROM sessions AS own \
                 WHERE own.id = sessions.helper_of) ORDER BY updated_at, key LIMIT 1";
    let mut find = connection.prepare_cached(query)?;
    let found = find
        .query_row(params![today - days * DAY_MILLIS, time, key], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
        })
        .optional()?;
    let Some((time, key, id)) = found else { return Ok(CleanupStage::DeleteBlobs(0)) };
    match SessionLock::acquire(folder, &SessionId::from(id.as_str()), "") {
        Ok(lock) if lock.is_exclusive() => {
            let why = if is_too_large { "max_size" } else { "keep_days" };
            tracing::warn!("the session {id} is deleted because of `sessions.{why}`");
            Ok(CleanupStage::DeleteSession(today, key, lock))
        }
        _ => Ok(CleanupStage::FindSession(today, (time, key))),
    }
}

/// Deletes a part of a session, and finally the session itself. Returns true when it is gone.
fn delete_session_part(connection: &Connection, session: i64) -> Result<bool> {
    let started = Instant::now();
    for table in ["entries", "calls", "file_versions", "permissions", "usage"] {
        let delete = format!(
            "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE session = ? LIMIT \
             {ROWS_PER_DELETE})"
        );
        let mut delete = connection.prepare_cached(&delete)?;
        while delete.execute([session])? > 0 {
            if started.elapsed() > SLICE_TIME {
                return Ok(false);
            }
        }
    }
    let mut find =
        connection.prepare_cached("SELECT blob FROM blob_uses WHERE session = ? LIMIT 1")?;
    while let Some(blob) = find.query_row([session], |row| row.get::<_, i64>(0)).optional()? {
        let delete = "DELETE FROM blob_uses WHERE session = ? AND blob = ?";
        execute(connection, delete, [session, blob])?;
        delete_blob(connection, blob)?;
        if started.elapsed() > SLICE_TIME {
            return Ok(false);
        }
    }
    connection.execute("DELETE FROM sessions WHERE key = ?", [session])?;
    // The trigger on `sessions` has just set this mark; this deletion is no reason for another run.
    connection.execute("DELETE FROM meta WHERE name = 'unswept'", [])?;
    Ok(true)
}

/// Deletes a blob unless a session uses it.
fn delete_blob(connection: &Connection, blob: i64) -> Result<()> {
    let delete =
        "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = ?1)";
    execute(connection, delete, [blob])
}

/// Deletes some unused blobs. Returns the id to continue after, or `None` at the end.
fn delete_unused_blobs(connection: &Connection, mut after: i64) -> Result<Option<i64>> {
    let started = Instant::now();
    let mut find =
        connection.prepare_cached("SELECT id FROM blobs WHERE id > ? ORDER BY id LIMIT 1")?;
    while let Some(blob) = find.query_row([after], |row| row.get(0)).optional()? {
        delete_blob(connection, blob)?;
        after = blob;
        if started.elapsed() > SLICE_TIME {
            return Ok(Some(after));
        }
    }
    Ok(None)
}

/// Gives at most so many free pages back to the file system. Returns true if there may be more. Until then, they hold
/// what was deleted.
pub fn free_pages(connection: &Connection, count: u32) -> Result<bool> {
    let mut free = connection.prepare(&format!("PRAGMA incremental_vacuum({count})"))?;
    // For each row that is read, it frees one page.
    let freed = free.query_map([], |_| Ok(()))?.collect::<Result<Vec<()>, _>>()?;
    Ok(!freed.is_empty())
}

/// At the end of a process, runs a cleanup that is due as far as there is time, and empties the write-ahead log.
pub(crate) fn sweep(connection: &Connection, folder: &Path, limits: RetentionLimits) -> Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch(WRITING)?;
    let started = Instant::now();
    let mut stage = CleanupStage::Idle;
    // A process without sessions does not know the limits.
    while limits != RetentionLimits::default()
        // No session is left half deleted.
        && (started.elapsed() < TIME_AT_END || matches!(stage, CleanupStage::DeleteSession(..)))
    {
        stage = run_stage(connection, folder, limits, stage)?;
        if matches!(stage, CleanupStage::Idle) {
            break;
        }
    }
    if !matches!(stage, CleanupStage::Idle) {
        // The next process that is idle or ends goes on.
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('unswept', 1)", [])?;
    }
    empty_log(connection)
}

/// Runs a whole cleanup at once.
#[cfg(test)]
pub(crate) fn run_cleanup(connection: &Connection, folder: &Path, limits: RetentionLimits) {
    let mut stage = CleanupStage::Idle;
    loop {
        stage = run_stage(connection, folder, limits, stage).unwrap();
        if matches!(stage, CleanupStage::Idle) {
            return;
        }
    }
}
