//! Stores agent sessions in a SQLite database in the state folder. One thread does all the writing;
//! every reader has its own connection. The database is opened on first use.
//!
//! [`SessionLog`] writes one session; [`read`] loads it again.
//!
//!   entry          the data model
//!   session_log    writes one session; `session_lock` keeps it to one process
//!   turn_facts     the numbers that are stored with the end of a turn; `goal` is what a session works towards
//!   writer         the writer thread: its queue, and its cleanup while there is nothing to write
//!   rows           what is written, as rows and as JSON
//!   blobs          long texts and contents, stored once; JSON and cards that refer to them
//!   read           loads a session; `file_versions` is what undo and rewinding read
//!   sessions       lists and changes whole sessions; `snapshot` copies one into another database
//!   history        searches the calls and messages of all sessions
//!   start_state    the state of the project when a session began
//!   stats          counts what sessions hold, by week and model
//!   recovery       repairs what a killed process left unfinished
//!   export         documents for people and programs
//!   database       the schema, and how the database is opened; `journal` chooses how it is written
//!   damage         replaces a damaged database with one that holds everything that can still be read
//!   health         faults of the storage, and the notices about them

mod blobs;
mod damage;
mod database;
mod entry;
pub mod export;
pub mod file_versions;
mod goal;
mod health;
pub mod history;
pub mod read;
pub mod recovery;
mod rows;
mod session_lock;
mod session_log;
pub mod sessions;
mod snapshot;
pub mod start_state;
pub mod stats;
mod turn_facts;
mod writer;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;

use turnwright_types::ids::SessionId;

pub use entry::{
    Audience, CallOutcome, CallRow, CallStatus, Entry, SessionRow, StoredEntry, TurnKind,
};
pub use goal::{GoalRequirement, GoalState, GoalStatus};
pub use health::StorageFault;
pub use read::{RewoundEntries, TurnRow};
pub use session_lock::{LockHolder, SessionLock};
pub use session_log::{PendingWrite, SessionLog};
pub use sessions::{SessionSummary, session_summaries};
pub use snapshot::{insert_conversation, read_conversation};
pub use turn_facts::{ProofWord, TurnFacts};
pub use writer::cleanup::{RetentionLimits, free_pages};

use database::journal::{self, Journal};
use health::StoreState;
use read::turn_rows;
use writer::cleanup;
use writer::queue::JobSender;
use writer::{SubmittedWork, WriteJob};

/// The result of something that the store does.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why something could not be stored or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("no such session")]
    NoSuchSession,
    #[error("the session has no such `cursorId`, or can no longer be forked there")]
    NoSuchCursor,
    /// Another process, or another session of this one, has the session open.
    #[error("the session is open in {0}")]
    SessionLocked(Box<LockHolder>),
    /// The storage failed, possibly only for a while.
    #[error("the session store is unavailable ({reason}). {}", fault.advice())]
    Unavailable {
        /// The kind of fault.
        fault: StorageFault,
        /// SQLite's or the system's message.
        reason: String,
    },
    /// The database was made by an incompatible version and must not be changed.
    #[error("the session store was made by another version of turnwright")]
    OtherVersion,
    /// The database cannot be used, with SQLite's message.
    #[error("the session store cannot be used: {0}")]
    Unusable(String),
    /// Stored data cannot be interpreted.
    #[error("the session store contains invalid data: {0}")]
    Damaged(String),
    /// The writer thread has ended.
    #[error("the session store is closed")]
    Closed,
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> StoreError {
        tracing::warn!(%error, "stored JSON cannot be read");
        StoreError::Damaged("an entry in an unknown form".to_owned())
    }
}

/// The kind of failure that a commit must survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process, for example by `kill -9`.
    #[default]
    ProcessCrash,
    PowerLoss,
}

/// A handle to the store. Clones share the same writer thread.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    shared: Arc<SharedState>,
    writer: OnceLock<JobSender>,
    /// Admits callers of [`Store::write`] to the queue.
    admission: Semaphore,
    /// Limits the number of reads at once, because each needs a thread.
    readers: Semaphore,
}

/// The maximum number of callers of [`Store::write`] in the queue at once; the others wait to enter it.
const MAX_ADMITTED_WRITES: usize = 256;

/// State shared between the writer thread and the handles.
#[derive(Debug, Default)]
struct SharedState {
    /// The path of the database; `None` for one in memory.
    path: Option<PathBuf>,
    // Held only to copy a few strings.
    state: Mutex<StoreState>,
    /// True if a reader found the database damaged.
    suspects_corruption: AtomicBool,
    /// The journal of the database, chosen before it is opened for the first time.
    journal: OnceLock<Journal>,
    /// True if the process is ending, so that the next attempt to write is the last.
    is_final_flush: AtomicBool,
    /// A size limit that simulates a full disk in tests; 0 for none.
    #[cfg(test)]
    max_pages: std::sync::atomic::AtomicU32,
}

impl SharedState {
    fn journal(&self) -> Journal {
        match self.path.as_deref() {
            Some(path) if path.parent().is_some_and(Path::is_dir) => {
                *self.journal.get_or_init(|| Journal::find(path))
            }
            _ => Journal::WriteAhead,
        }
    }

    fn file_system_notice(&self) -> Option<String> {
        let path = self.path.as_deref()?;
        let slow = (self.journal() != Journal::WriteAhead).then(|| journal::notice(path));
        let exposed = database::is_exposed(path).then(|| journal::exposure_notice(path));
        let notices: Vec<_> = slow.into_iter().chain(exposed).collect();
        (!notices.is_empty()).then(|| notices.join(" "))
    }

    /// Opens a connection for reading. Without a database it reads an empty one in memory.
    fn open_reader(&self) -> Result<Connection> {
        let path = self.path.as_deref().ok_or(StoreError::Closed)?;
        database::open_reader(path, self.journal())
    }

    fn limits(&self) -> RetentionLimits {
        self.state.lock().limits
    }

    #[cfg(test)]
    fn limit_pages(&self, connection: &Connection) -> Result<()> {
        let limit = match self.max_pages.load(Ordering::Relaxed) {
            0 => i64::from(u32::MAX - 1),
            pages => i64::from(pages),
        };
        connection.query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))?;
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Store").field(&self.0.shared.path).finish()
    }
}

const DATABASE_FILE: &str = "sessions.db";
/// The maximum number of reads at once.
const MAX_READERS: usize = 8;

impl Store {
    /// Returns the store of a state folder without opening it. If the path is not absolute, the store is kept in
    /// memory.
    pub fn new(state: &Path) -> Store {
        let path = state.is_absolute().then(|| state.join(DATABASE_FILE));
        let shared = Arc::new(SharedState { path, ..SharedState::default() });
        let admission = Semaphore::new(MAX_ADMITTED_WRITES);
        let readers = Semaphore::new(MAX_READERS);
        Store(Arc::new(Inner { shared, writer: OnceLock::new(), admission, readers }))
    }

    #[cfg(test)]
    fn in_memory() -> Store {
        Store::new(Path::new(""))
    }

    /// Sets the retention limits for the next cleanup.
    pub fn set_limits(&self, limits: RetentionLimits) {
        self.0.shared.state.lock().limits = limits;
    }

    /// Names this process's client to other processes that try to open one of its sessions.
    pub fn set_client_name(&self, name: &str) {
        name.clone_into(&mut self.0.shared.state.lock().client_name);
    }

    fn client_name(&self) -> String {
        self.0.shared.state.lock().client_name.clone()
    }

    /// Locks a session, so that nobody else, in this process or another, writes or deletes it. Accesses the disk.
    ///
    /// # Errors
    /// If the session is locked already, or if no session can have that id.
    pub fn lock_session(&self, session: &SessionId) -> Result<SessionLock> {
        let Some(folder) = self.folder() else { return Ok(SessionLock::unlocked()) };
        SessionLock::acquire(folder, session, &self.client_name())
    }

    /// Like [`Store::lock_session`], but if this process has the session open, waits until it is
    /// closed, and for a moment if another process has it, which may be ending.
    pub async fn lock_session_when_released(&self, session: &SessionId) -> Result<SessionLock> {
        let Some(folder) = self.folder() else { return Ok(SessionLock::unlocked()) };
        SessionLock::acquire_when_released(folder, session, &self.client_name()).await
    }

    fn folder(&self) -> Option<&Path> {
        self.0.shared.path.as_deref().and_then(Path::parent)
    }

    /// Returns true if anything was ever stored, or if that cannot be known.
    pub fn exists(&self) -> bool {
        self.0.shared.path.as_ref().is_none_or(|path| path.try_exists().unwrap_or(true))
    }

    /// Returns a notice for the user about the file system of the database; `None` if all is well.
    pub fn file_system_notice(&self) -> Option<String> {
        self.0.shared.file_system_notice()
    }

    /// Opens the database on the writer thread without waiting for it.
    pub fn open_in_background(&self) {
        drop(self.submit(Durability::ProcessCrash, |_| Ok(())));
    }

    /// Submits a write job without waiting for anything. Jobs run in the order of submission; jobs that are
    /// submitted during a commit share the next one. If a shared commit fails, each of its jobs is run again
    /// alone, so `work` may be called more than once. If too many are waiting, the oldest jobs without a waiting
    /// caller are dropped.
    pub fn submit<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        self.enqueue(durability, None, work)
    }

    /// Like [`Store::submit`]. Data that must not be lost retains about `retained_bytes` of memory: on a storage
    /// fault the caller gets the error at once, while the job waits in the backlog and is retried.
    fn enqueue<T: Send + 'static>(
        &self,
        durability: Durability,
        retained_bytes: Option<usize>,
        work: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (done, waiting) = oneshot::channel();
        // Another thread may start one at the same time, which then ends without a job.
        let sender = self.0.writer.get().or_else(|| {
            let started = writer::spawn(&self.0.shared)?;
            Some(self.0.writer.get_or_init(|| started))
        });
        // Without a thread, the job is dropped and with it `done`, so the receiver fails.
        let work = Box::new(SubmittedWork { work, value: None, done: Some(done) });
        let job = WriteJob { durability, retained_bytes, work };
        let too_many = sender.map(|sender| sender.send(job));
        for mut dropped in too_many.unwrap_or_default() {
            dropped.work.complete(Err(StoreError::queue_full()));
            self.0.shared.add_dropped(usize::from(dropped.retained_bytes.is_some()));
        }
        waiting
    }

    /// Submits a write job and waits for its commit.
    pub async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _admitted = self.0.admission.acquire().await.map_err(|_| StoreError::Closed)?;
        self.submit(durability, work).await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until everything that was submitted so far is written or has failed.
    ///
    /// # Errors
    /// If jobs are still waiting in the backlog.
    pub async fn flush(&self) -> Result<()> {
        if self.0.writer.get().is_none() {
            return Ok(());
        }
        let flushed = self.write(Durability::ProcessCrash, |_| Ok(())).await;
        // An error without waiting jobs means that nothing is lost, for example in a read-only
        // store.
        self.0.shared.current_error().map_or(Ok(()), |_| flushed)
    }

    /// Reads on a blocking thread with a connection of its own. Sees only committed data.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.0.shared.path.is_none() {
            return self.write(Durability::ProcessCrash, work).await;
        }
        let _permit = self.0.readers.acquire().await.map_err(|_| StoreError::Closed)?;
        let (result, work) = read_once(Arc::clone(&self.0.shared), work).await?;
        if !result.as_ref().is_err_and(StoreError::is_damage) {
            return result;
        }
        self.repair().await;
        read_once(Arc::clone(&self.0.shared), work).await?.0
    }

    /// Checks the database, and replaces it if it is damaged.
    async fn repair(&self) {
        self.0.shared.suspects_corruption.store(true, Ordering::Relaxed);
        let checked = self.write(Durability::ProcessCrash, damage::check_integrity).await;
        checked.unwrap_or_else(|error| tracing::error!(%error, "the store cannot be repaired"));
    }

    /// Like [`Store::flush`], for the end of the process: waits once more for locks that other
    /// processes hold, runs a cleanup that is due, and leaves nothing in the write-ahead log, unless
    /// another process is using it.
    ///
    /// # Errors
    /// If something is lost.
    pub async fn final_flush(&self) -> Result<()> {
        self.0.shared.is_final_flush.store(true, Ordering::Relaxed);
        self.flush().await?;
        let limits = self.0.shared.limits();
        if let Some(folder) = self.folder().map(Path::to_path_buf)
            && self.0.writer.get().is_some()
        {
            let reading = self.read(move |connection| cleanup::sweep(connection, &folder, limits));
            let emptied = reading.await;
            emptied.unwrap_or_else(|error| tracing::debug!(%error, "the log was not emptied"));
        }
        Ok(())
    }

    /// Reads on the calling thread, for callers without a runtime such as the command line.
    pub fn read_blocking<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        work(&self.0.shared.open_reader()?)
    }

    /// Writes and blocks until the commit, for callers without a runtime.
    pub fn write_blocking<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(Durability::PowerLoss, work).blocking_recv().unwrap_or(Err(StoreError::Closed))
    }
}

/// Reads on a blocking thread. Returns the closure as well, so that it can be called again.
async fn read_once<T: Send + 'static, F>(
    shared: Arc<SharedState>,
    mut work: F,
) -> Result<(Result<T>, F)>
where
    F: FnMut(&Connection) -> Result<T> + Send + 'static,
{
    let reading = spawn_blocking(move || {
        let result = shared.open_reader().and_then(|connection| work(&connection));
        (result, work)
    });
    reading.await.map_err(|_| StoreError::Closed)
}
