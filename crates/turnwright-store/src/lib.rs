//! What is kept of all sessions: a SQLite database in the state folder. One thread writes; whoever
//! reads has a connection of their own. Nothing is opened before somebody asks for it.
//!
//! [`Log`] is what one session writes, [`read`] is how it comes back.

mod backlog;
mod blobs;
mod entry;
pub mod history;
mod health;
mod hold;
mod log;
pub mod broken;
pub mod export;
mod mend;
mod pack;
pub mod read;
mod rows;
mod schema;
mod shelf;
pub mod sessions;
mod sweep;
mod thread;
mod turns;
pub mod versions;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use rusqlite::Connection;
use tokio::sync::oneshot;

use turnwright_types::ids::SessionId;

pub use entry::{Audience, CallRow, CallStatus, Entry, SessionRow, Settled, Stored, TurnKind};
pub use health::Fault;
pub use hold::Hold;
pub use log::{Log, Ticket};
pub use read::Gone;
pub use shelf::{Shelved, shelf};
pub use sweep::Limits;
pub use turns::{TurnRow, turns as turns_of};

use health::Health;
use thread::{Work, Writing};

/// Why something could not be kept, or not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no such session")]
    NoSuchSession,
    /// Somebody else has the session open.
    #[error("the session is open in another process{}", .0.map(|it| format!(" ({it})")).unwrap_or_default())]
    Held(Option<u32>),
    /// There is something wrong with where the database is. It may pass.
    #[error("the store of sessions cannot be used ({why}). {}", fault.advice())]
    Failing {
        /// What.
        fault: Fault,
        /// In the words of the system.
        why: String,
    },
    /// A newer program has made the database, and this one must not touch it.
    #[error("the store of sessions is one of a newer turnwright")]
    Newer,
    /// The database cannot be used, and why.
    #[error("the store of sessions cannot be used: {0}")]
    Unusable(String),
    /// Something in it makes no sense.
    #[error("the store of sessions holds something that is not understood: {0}")]
    Damaged(String),
    /// The process is ending.
    #[error("the store of sessions is closed")]
    Closed,
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> StoreError {
        StoreError::Damaged(error.to_string())
    }
}

/// How sure a commit has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It outlives the process, whatever ends that.
    #[default]
    Process,
    /// It outlives the machine's power.
    Machine,
}

/// The store. Cloning copies a pointer.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    writer: OnceLock<mpsc::Sender<Box<dyn Work>>>,
}

/// What the thread that writes has in common with everybody else.
#[derive(Debug, Default)]
struct Shared {
    /// The database; `None` for one in memory.
    path: Option<PathBuf>,
    health: Health,
    // A std mutex: held to copy two numbers.
    limits: Mutex<Limits>,
    /// Somebody has found it damaged.
    is_suspicious: AtomicBool,
    /// What is not written now never will be.
    is_last: AtomicBool,
    /// The database may not grow beyond: a full disk, for tests.
    #[cfg(test)]
    most_pages: std::sync::atomic::AtomicU32,
}

impl Shared {
    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn bound(&self, connection: &Connection) -> Result<(), StoreError> {
        let most = self.most_pages.load(Ordering::Relaxed);
        let most = if most == 0 { i64::from(u32::MAX - 1) } else { i64::from(most) };
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Store").field(&self.0.shared.path).finish()
    }
}

/// The name of the database.
const FILE: &str = "sessions.db";

/// Everything in a state folder in which conversations stand, or may stand in a moment: the
/// databases, what SQLite puts beside them, and what was moved aside.
pub fn files(state: &Path) -> Vec<PathBuf> {
    let own = state.join(FILE);
    let mut files = Vec::new();
    for database in [schema::beside(&own), own] {
        for end in ["", "-wal", "-shm", "-journal"] {
            let mut name = database.clone().into_os_string();
            name.push(end);
            files.push(name.into());
        }
    }
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    let is_aside = |it: &PathBuf| it.to_string_lossy().contains(".db.damaged-");
    files.extend(entries.map(|it| it.path()).filter(is_aside));
    files
}

impl Store {
    /// The store in a state folder. Opens nothing yet.
    pub fn new(state: &Path) -> Store {
        Store::at(state.is_absolute().then(|| state.join(FILE)))
    }

    /// One that ends with the process.
    pub fn in_memory() -> Store {
        Store::at(None)
    }

    fn at(path: Option<PathBuf>) -> Store {
        let shared = Arc::new(Shared { path, ..Shared::default() });
        Store(Arc::new(Inner { shared, writer: OnceLock::new() }))
    }

    /// How much is kept from now on.
    pub fn keep_to(&self, limits: Limits) {
        *self.0.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Takes a session, so that nobody else writes to it, or deletes it. Touches the disk.
    ///
    /// # Errors
    /// When somebody else has it, or when no session can have that name.
    pub fn hold(&self, session: &SessionId) -> Result<Hold, StoreError> {
        self.folder().map_or_else(|| Ok(Hold::nothing()), |it| Hold::take(it, session))
    }

    /// The same, and waits for its end if this process has it.
    ///
    /// # Errors
    /// As for [`Store::hold`].
    pub async fn wait_for(&self, session: &SessionId) -> Result<Hold, StoreError> {
        match self.folder() {
            Some(folder) => Hold::wait(folder, session).await,
            None => Ok(Hold::nothing()),
        }
    }

    fn health(&self) -> &Health {
        &self.0.shared.health
    }

    fn folder(&self) -> Option<&Path> {
        self.0.shared.path.as_deref().and_then(Path::parent)
    }

    /// Whether anything was ever kept.
    pub fn is_there(&self) -> bool {
        self.0.shared.path.as_ref().is_none_or(|it| it.exists())
    }

    /// Opens the database, on its own thread: nobody waits for that.
    pub fn warm_up(&self) {
        drop(self.post(Durability::Process, |_| Ok(())));
    }

    /// Has something written. What is posted first is written first; what is posted while a commit
    /// is under way goes into the next one together. The work may be tried again, alone.
    pub fn post<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        self.send(durability, None, work)
    }

    /// The same for what must not be lost: if the place does not let it be written, whoever waits
    /// is told so at once, and it is tried again. In memory it takes about `weight` bytes.
    fn keep(
        &self,
        durability: Durability,
        weight: usize,
        work: impl FnMut(&Connection) -> Result<(), StoreError> + Send + 'static,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        self.send(durability, Some(weight), work)
    }

    fn send<T: Send + 'static>(
        &self,
        durability: Durability,
        weight: Option<usize>,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (done, waiting) = oneshot::channel();
        let writer = self.0.writer.get_or_init(|| thread::start(Arc::clone(&self.0.shared)));
        // A thread that has died drops what it is given, and with it `done`.
        drop(writer.send(Box::new(Writing::new(durability, weight, work, done))));
        waiting
    }

    /// The same, and waits for the commit.
    ///
    /// # Errors
    /// When nothing was written.
    pub async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.post(durability, work).await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until all that was posted so far is written, or has failed.
    ///
    /// # Errors
    /// When something waits for better times.
    pub async fn flush(&self) -> Result<(), StoreError> {
        if self.0.writer.get().is_none() {
            return Ok(());
        }
        let flushed = self.write(Durability::Process, |_| Ok(())).await;
        // A store that can only be read has kept what there was.
        self.0.shared.health.now().map_or(Ok(()), |_| flushed)
    }

    /// Reads, with a connection of its own, off the runtime's thread. Sees what is committed.
    ///
    /// # Errors
    /// When there is nothing to be read.
    pub async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(path) = self.0.shared.path.clone() else {
            return self.write(Durability::Process, work).await;
        };
        let reading = tokio::task::spawn_blocking(move || work(&schema::reader(&path)?));
        let result = reading.await.unwrap_or(Err(StoreError::Closed));
        self.suspect(result.as_ref().err());
        result
    }

    /// The same at the end of the process: another one that is in the way is waited for once more.
    ///
    /// # Errors
    /// When something is lost.
    pub async fn flush_for_good(&self) -> Result<(), StoreError> {
        self.0.shared.is_last.store(true, Ordering::Relaxed);
        self.flush().await
    }

    /// Has the database looked through if reading it was no good.
    fn suspect(&self, error: Option<&StoreError>) {
        if error.and_then(StoreError::fault) == Some(Fault::Corrupt) {
            self.0.shared.is_suspicious.store(true, Ordering::Relaxed);
            drop(self.post(Durability::Process, mend::examine));
        }
    }

    /// The same, for who has no runtime: the command line.
    ///
    /// # Errors
    /// When there is nothing to be read.
    pub fn read_now<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let path = self.0.shared.path.as_deref().ok_or(StoreError::Closed)?;
        work(&schema::reader(path)?)
    }

    /// The same for writing.
    ///
    /// # Errors
    /// When nothing was written.
    pub fn write_now<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.post(Durability::Machine, work).blocking_recv().unwrap_or(Err(StoreError::Closed))
    }
}
