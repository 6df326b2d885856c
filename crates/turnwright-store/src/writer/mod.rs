//! The writer thread. Jobs that arrive during a commit share the next one; jobs that fail because
//! of a storage fault wait in the backlog.

pub(crate) mod cleanup;
pub(crate) mod queue;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::health::StorageFault;
use super::{Durability, Result, SharedState, StoreError};
use crate::damage::{self, DatabaseFiles, OpenDatabase};
use crate::database;
use cleanup::Cleanup;
use queue::{JobList, JobReceiver, JobSender, job_queue};
use turnwright_types::error_text::io_error_text;

/// The most jobs in one commit.
const MAX_BATCH: usize = 64;
/// The most memory that jobs in the backlog may retain.
const MAX_BACKLOG_BYTES: usize = 8 * 1024 * 1024;
/// How often the backlog is retried while no new job arrives.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How often a database whose files were replaced is opened again for one commit.
const MAX_REOPENINGS: usize = 8;
/// How long to wait for a lock of another process while writing fails already.
const SHORT_BUSY_TIMEOUT: Duration = Duration::from_millis(20);

/// Something to be written.
pub(super) struct WriteJob {
    /// The kind of failure that its commit must survive.
    pub(super) durability: Durability,
    /// The approximate bytes that it retains while it waits in the backlog; `None` if it does not
    /// wait there but just fails.
    pub(super) retained_bytes: Option<usize>,
    pub(super) work: Box<dyn JobWork>,
}

/// The work of a job, and its caller.
pub(super) trait JobWork: Send {
    /// Writes within an open transaction. Is called again if the transaction fails.
    fn run(&mut self, connection: &Connection) -> Result<()>;
    /// Sends the result to the caller, once.
    fn complete(&mut self, result: Result<()>);
    /// True if the caller may still be waiting for the result.
    fn is_awaited(&self) -> bool;
}

/// A closure to run, and the channel for its result.
pub(super) struct SubmittedWork<T, F> {
    pub(super) work: F,
    pub(super) value: Option<T>,
    pub(super) done: Option<oneshot::Sender<Result<T>>>,
}

impl<T, F> JobWork for SubmittedWork<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<()> {
        self.value = Some((self.work)(connection)?);
        Ok(())
    }

    fn complete(&mut self, result: Result<()>) {
        let result = result.and_then(|()| self.value.take().ok_or(StoreError::Closed));
        if let Some(done) = self.done.take() {
            // The caller may have stopped waiting.
            done.send(result).ok();
        }
    }

    fn is_awaited(&self) -> bool {
        self.done.as_ref().is_some_and(|done| !done.is_closed())
    }
}

/// Starts the thread. It ends when the sender is dropped and everything is written. Returns `None`, and tells the user,
/// if the system allows no more threads.
pub(super) fn spawn(shared: &Arc<SharedState>) -> Option<JobSender> {
    let (sender, inbox) = job_queue();
    let writer = WriterThread {
        shared: Arc::clone(shared),
        database: None,
        backlog: JobList::new(MAX_BACKLOG_BYTES),
        last_attempt: Instant::now(),
        was_locked: false,
        cleanup: Cleanup::new(),
    };
    let started =
        std::thread::Builder::new().name("store".to_owned()).spawn(move || writer.serve(&inbox));
    if let Err(error) = &started {
        let why = io_error_text(error);
        shared.announce(format!("A part of this session was not saved: {why}. You can go on."));
    }
    started.ok().map(|_| sender)
}

struct WriterThread {
    shared: Arc<SharedState>,
    database: Option<OpenDatabase>,
    /// Jobs that failed because of the storage, in their order.
    backlog: JobList,
    /// When the backlog was last retried.
    last_attempt: Instant,
    /// The last attempt failed because another process held a lock.
    was_locked: bool,
    cleanup: Cleanup,
}

impl WriterThread {
    fn serve(mut self, inbox: &JobReceiver) {
        loop {
            match inbox.receive(MAX_BATCH, self.idle_timeout()) {
                Ok(batch) => {
                    self.write_batch(batch);
                    self.cleanup.postpone();
                }
                Err(RecvTimeoutError::Timeout) => self.run_idle_work(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.drain_backlog()
            .unwrap_or_else(|error| tracing::error!(%error, "not everything was written"));
    }

    /// How long to wait for a job before there is something else to do.
    fn idle_timeout(&self) -> Duration {
        if self.backlog.is_empty() {
            return self.cleanup.time_until_next();
        }
        RETRY_INTERVAL.saturating_sub(self.last_attempt.elapsed())
    }

    fn run_idle_work(&mut self) {
        if self.backlog.is_empty() {
            return self.continue_cleanup();
        }
        // The error is reported through `SharedState`.
        self.drain_backlog().ok();
    }

    fn continue_cleanup(&mut self) {
        let done = match &self.database {
            // A replaced database is kept as it is.
            Some(OpenDatabase { connection, files: Some(files) }) if files.is_unchanged() => {
                self.cleanup.run_slice(connection, &files.path, self.shared.limits())
            }
            _ => return self.cleanup.rest(),
        };
        let Err(error) = done else { return };
        tracing::debug!(%error, "the store's cleanup failed");
        if error.fault() == Some(StorageFault::Corrupt)
            && let Err(error) = self.replace_database(error)
        {
            tracing::error!(%error, "the damaged store could not be replaced");
        }
    }

    /// Writes new jobs, after the ones that are already waiting.
    fn write_batch(&mut self, batch: Vec<WriteJob>) {
        match self.drain_backlog() {
            Ok(()) => self.commit(batch),
            Err(error) => batch.into_iter().for_each(|job| self.defer(job, &error)),
        }
    }

    fn drain_backlog(&mut self) -> Result<()> {
        if self.backlog.is_empty() {
            return Ok(());
        }
        self.last_attempt = Instant::now();
        while !self.backlog.is_empty() {
            let mut jobs = self.backlog.take(MAX_BATCH);
            if self.commit_batch(&mut jobs).is_ok() {
                continue;
            }
            // One failing job must not hold up the others.
            while !jobs.is_empty() {
                match self.commit_batch(&mut jobs[..1]) {
                    Err(error) if error.fault().is_some() => {
                        self.backlog.put_back(jobs);
                        self.shared.set_current_error(Some(error.clone()));
                        return Err(error);
                    }
                    Err(error) => tracing::error!(%error, "a write job failed"),
                    Ok(()) => {}
                }
                jobs.remove(0);
            }
        }
        self.shared.set_current_error(None);
        Ok(())
    }

    fn commit(&mut self, mut batch: Vec<WriteJob>) {
        let together = self.commit_batch(&mut batch);
        let is_storage_fault = together.as_ref().is_err_and(|error| error.fault().is_some());
        if batch.len() == 1 || together.is_ok() || is_storage_fault {
            for job in batch {
                self.finish(job, together.clone());
            }
            return;
        }
        // One failing job must not fail the others.
        for mut job in batch {
            let result = match self.shared.current_error().filter(|_| !self.backlog.is_empty()) {
                Some(error) => Err(error),
                None => self.commit_batch(std::slice::from_mut(&mut job)),
            };
            self.finish(job, result);
        }
    }

    fn finish(&mut self, mut job: WriteJob, result: Result<()>) {
        match result {
            Err(error) if error.fault().is_some() => self.defer(job, &error),
            result => {
                if let Err(error) = &result {
                    tracing::debug!(%error, "a write job failed");
                    if matches!(error, StoreError::Unusable(_)) {
                        self.shared.announce(format!(
                            "This session is not being saved: {error}. You can go on."
                        ));
                    }
                }
                job.work.complete(result);
            }
        }
    }

    /// Reports the error to the caller, and puts the job into the backlog if it is to be retried.
    fn defer(&mut self, mut job: WriteJob, error: &StoreError) {
        let is_retried = job.retained_bytes.is_some();
        if is_retried {
            if self.backlog.is_empty() {
                tracing::error!(%error, "the store cannot be written for now");
                self.last_attempt = Instant::now();
            }
            self.shared.set_current_error(Some(error.clone()));
        }
        // After the fault is recorded, because the waiting caller may ask for it at once.
        job.work.complete(Err(error.clone()));
        if is_retried {
            let dropped = self.backlog.push(job);
            self.shared.add_dropped(dropped.len());
        }
    }

    /// Runs the jobs in one transaction. If the database turns out to be damaged, it is replaced
    /// and they run again in the new one.
    fn commit_batch(&mut self, batch: &mut [WriteJob]) -> Result<()> {
        match self.try_commit(batch) {
            Err(error) if error.fault() == Some(StorageFault::Corrupt) => {
                self.replace_database(error)?;
                self.try_commit(batch)
            }
            result => {
                let fault = result.as_ref().err().and_then(StoreError::fault);
                self.was_locked = fault == Some(StorageFault::Locked);
                result
            }
        }
    }

    /// Replaces the open database, in which something was damaged.
    fn replace_database(&mut self, error: StoreError) -> Result<()> {
        let files = self.database.take().and_then(|database| database.files).ok_or(error)?;
        damage::replace(&self.shared, &files)
    }

    fn try_commit(&mut self, batch: &mut [WriteJob]) -> Result<()> {
        let is_already_failing =
            self.was_locked || !self.backlog.is_empty() || self.shared.current_error().is_some();
        let is_final_flush = self.shared.is_final_flush.load(Ordering::Relaxed);
        let timeout = if is_already_failing && !is_final_flush {
            SHORT_BUSY_TIMEOUT
        } else {
            database::BUSY_TIMEOUT
        };
        // Reopen the database: pages in this connection's cache may hide damage in the file.
        if self.shared.suspects_corruption.swap(false, Ordering::Relaxed) {
            self.database = None;
        }
        for _ in 0..MAX_REOPENINGS {
            if self.try_transaction(batch, timeout)? {
                return Ok(());
            }
            self.database = None;
        }
        let reason = "its files are replaced again and again".to_owned();
        Err(StoreError::Unavailable { fault: StorageFault::Locked, reason })
    }

    /// Runs the jobs in the open database. Returns false, and writes nothing, if its files were
    /// removed or replaced.
    fn try_transaction(&mut self, batch: &mut [WriteJob], timeout: Duration) -> Result<bool> {
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(damage::open(&self.shared, timeout)?),
        };
        let connection = &database.connection;
        connection.busy_timeout(timeout)?;
        #[cfg(test)]
        self.shared.limit_pages(connection)?;
        let needs_full_sync = batch.iter().any(|job| job.durability == Durability::PowerLoss);
        if needs_full_sync {
            connection.pragma_update(None, "synchronous", "FULL")?;
        }
        let result = run_transaction(database, batch);
        if needs_full_sync {
            connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        result
    }
}

fn run_transaction(database: &OpenDatabase, batch: &mut [WriteJob]) -> Result<bool> {
    let connection = &database.connection;
    let run = |words: &str| connection.prepare_cached(words)?.execute([]);
    let begun = run("BEGIN IMMEDIATE");
    // A replacer needs the write lock, so the files stay the same once our BEGIN has succeeded.
    let is_unchanged = database.files.as_ref().is_none_or(DatabaseFiles::is_unchanged);
    if !is_unchanged {
        if begun.is_ok() {
            run("ROLLBACK")?;
        }
        return Ok(false);
    }
    begun?;
    let worked = batch.iter_mut().try_for_each(|job| job.work.run(connection));
    let done = worked.and_then(|()| Ok(run("COMMIT").map(drop)?));
    if done.is_err() && !connection.is_autocommit() {
        run("ROLLBACK")?;
    }
    done.map(|()| true)
}
