//! What is kept of all sessions: a SQLite database in the state folder. One thread writes; whoever
//! reads has a connection of their own. Nothing is opened before somebody asks for it.
//!
//! [`Log`] is what one session writes, [`read`] is how it comes back.

mod entry;
mod forget;
pub mod history;
mod log;
mod pack;
pub mod read;
mod schema;
mod shelf;
mod thread;
mod words;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

pub use entry::{
    Audience, CallRow, CallStatus, Change, Entry, FileState, Intent, SessionRow, Settled, Stored,
    TurnKind,
};
pub use forget::forget;
pub use log::{Log, Ticket};
pub use read::Gone;
pub use shelf::{Shelved, shelf};

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

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error {
            rusqlite::Error::QueryReturnedNoRows => StoreError::NoSuchSession,
            error => StoreError::Unusable(error.to_string()),
        }
    }
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
    /// The database; `None` for one in memory.
    path: Option<PathBuf>,
    writer: OnceLock<mpsc::UnboundedSender<Box<dyn Work>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Store").field(&self.0.path).finish()
    }
}

/// The name of the database.
const FILE: &str = "sessions.db";

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
        Store(Arc::new(Inner { path, writer: OnceLock::new() }))
    }

    /// Whether anything was ever kept.
    pub fn is_there(&self) -> bool {
        self.0.path.as_ref().is_none_or(|it| it.exists())
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
        let (done, waiting) = oneshot::channel();
        let writer = self.0.writer.get_or_init(|| thread::start(self.0.path.clone()));
        // A thread that has died drops what it is given, and with it `done`.
        drop(writer.send(Box::new(Writing::new(durability, work, done))));
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
    pub async fn flush(&self) {
        if self.0.writer.get().is_some() {
            drop(self.write(Durability::Process, |_| Ok(())).await);
        }
    }

    /// Reads, with a connection of its own, off the runtime's thread. Sees what is committed.
    ///
    /// # Errors
    /// When there is nothing to be read.
    pub async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(path) = self.0.path.clone() else {
            return self.write(Durability::Process, work).await;
        };
        let reading = tokio::task::spawn_blocking(move || work(&schema::reader(&path)?));
        reading.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The same, for who has no runtime: the command line.
    ///
    /// # Errors
    /// When there is nothing to be read.
    pub fn read_now<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let path = self.0.path.as_deref().ok_or(StoreError::Closed)?;
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
