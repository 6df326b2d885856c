//! Text files, wherever their truth is: in the editor's unsaved buffer or on the disk. Knows
//! which folders belong to the session; decides nothing about permission.

mod disk;
mod glance;
mod roots;
mod seen;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::client::{BufferError, Buffers};
use crate::effect::{Place, Target};
use crate::message::Media;

pub use disk::{Entry, EntryKind};
pub use glance::{Glance, glance};
pub use roots::Roots;
pub use seen::Freshness;
pub use text::{Form, Hash, Source, Text};

use seen::Seen;

/// Larger files are read from the disk even when the editor would serve them.
const BUFFER_LIMIT: u64 = 2 * 1024 * 1024;

/// The largest file that is read as a whole.
pub const READ_LIMIT: u64 = 32 * 1024 * 1024;

/// The files of one session.
#[derive(Clone)]
pub struct Files {
    roots: Arc<Roots>,
    seen: Arc<Seen>,
    buffers: Option<Arc<dyn Buffers>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Files").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// What a file has become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What is there now. An editor may have changed more than was asked for, as when it formats
    /// what it saves.
    pub text: Text,
}

/// Why a file could not be read or written. The texts are for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is none.
    #[error("does not exist")]
    NotFound,
    /// It is a folder.
    #[error("is a folder; use list_dir")]
    Folder,
    /// It is no folder.
    #[error("is not a folder")]
    NotAFolder,
    /// A FIFO, a socket or a device: reading it may never end.
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// Too large to be read as a whole.
    #[error(
        "has {0} bytes, more than the 32 MiB that can be read at once; use exec with head, tail or sed"
    )]
    TooLarge(u64),
    /// Not text.
    #[error("is binary ({0} bytes)")]
    Binary(u64),
    /// A picture that no model would take.
    #[error("is a picture of more than 5 MiB ({0} bytes); make it smaller first")]
    LargePicture(u64),
    /// Its owner does not want it to be changed.
    #[error("is read-only; nothing was written")]
    ReadOnly,
    /// Its place has changed between the decision and the act, as when a link was swapped.
    #[error("moved while permission was asked; nothing was done")]
    Moved,
    /// Its content has changed since it was shown to the user.
    #[error("changed while permission was asked; nothing was written. Read it again")]
    Stale,
    /// The user cancelled before anything was done.
    #[error("was not written: cancelled by the user")]
    Cancelled,
    /// The editor refused.
    #[error("could not be written by the editor: {0}")]
    Editor(String),
    /// The system refused.
    #[error("{0}")]
    System(String),
}

impl Files {
    /// The files below these roots, with the editor's buffers where it offers them.
    pub fn new(roots: Roots, buffers: Option<Arc<dyn Buffers>>) -> Files {
        Files { roots: Arc::new(roots), seen: Arc::default(), buffers }
    }

    /// The same files as they are on the disk, for those that are ours and no concern of the
    /// editor's.
    #[must_use]
    pub fn without_editor(&self) -> Files {
        Files { buffers: None, ..self.clone() }
    }

    /// The session's folders.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The whole text of a file: the editor's, if it has one, because unsaved changes count.
    ///
    /// # Errors
    /// When there is no text to be had.
    pub async fn read(&self, target: &Target) -> Result<Text, FileError> {
        self.check(target).await?;
        let on_disk = disk::inspect(&target.path).await;
        // What exists and is no regular file is no buffer either, and could block the editor.
        let is_file = matches!(on_disk, Ok(_) | Err(FileError::NotFound));
        let buffers = self.readable(target, on_disk.as_ref().ok().copied()).filter(|_| is_file);
        if let Some(buffers) = buffers {
            match buffers.read(&self.roots.shown(target)).await {
                // Some editors answer with nothing for a file that does not exist.
                Ok(text) if text.is_empty() && on_disk.is_err() => {}
                Ok(text) => return Ok(Text::new(text, Source::Editor)),
                Err(error) => tracing::debug!(%error, "read from the disk instead"),
            }
        }
        on_disk?;
        disk::read(&target.path).await.map(|it| Text::new(it, Source::Disk))
    }

    /// A picture of a kind that models take.
    ///
    /// # Errors
    /// When the file holds none, or one that is too large.
    pub async fn picture(&self, target: &Target) -> Result<Media, FileError> {
        self.check(target).await?;
        disk::picture(&target.path).await
    }

    fn readable(&self, target: &Target, size: Option<u64>) -> Option<&Arc<dyn Buffers>> {
        let small = size.is_none_or(|it| it <= BUFFER_LIMIT);
        self.buffers.as_ref().filter(|it| it.can_read() && small && target.place == Place::Inside)
    }

    /// Replaces the text of a file, if it still has the text that was there when the change was
    /// made up; `None` for a file that was not there. The disk is written atomically; the editor
    /// writes when it offers to. Only the editor is not waited for after a cancel: it may never
    /// answer.
    ///
    /// # Errors
    /// When nothing was written.
    pub async fn write(
        &self,
        target: &Target,
        before: Option<&Text>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Result<Written, FileError> {
        self.put(target, before, after, cancel).await?;
        let text = Text::new(after, Source::Disk);
        self.seen.note(&target.path, &text);
        Ok(Written { text })
    }

    /// The model has been shown this.
    pub fn note(&self, target: &Target, text: &Text) {
        self.seen.note(&target.path, text);
    }

    /// Whether the model knows what is there now.
    pub fn freshness(&self, target: &Target, now: &Text) -> Freshness {
        self.seen.compare(&target.path, now)
    }

    /// The file is not what it was, or is no more.
    pub fn forget(&self, target: &Target) {
        self.seen.forget(&target.path);
    }

    async fn put(
        &self,
        target: &Target,
        before: Option<&Text>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Result<(), FileError> {
        let now = match cancel.run_until_cancelled(self.read(target)).await {
            Some(Ok(text)) => Some(text),
            Some(Err(FileError::NotFound)) => None,
            Some(Err(error)) => return Err(error),
            None => return Err(FileError::Cancelled),
        };
        if now.map(|it| it.text) != before.map(|it| it.text.clone()) {
            return Err(FileError::Stale);
        }
        let writer =
            self.buffers.as_ref().filter(|it| it.can_write() && target.place == Place::Inside);
        if let Some(buffers) = writer {
            let path = self.roots.shown(target);
            return match cancel.run_until_cancelled(buffers.write(&path, after)).await {
                Some(Ok(())) => Ok(()),
                Some(Err(BufferError::NotFound)) => disk::write(&target.path, after).await,
                // Not written behind its back: it may have refused for a reason, or may still
                // be writing.
                Some(Err(error)) => Err(FileError::Editor(error.to_string())),
                None => Err(FileError::Editor(
                    "cancelled by the user before it answered. Read the file to see whether it \
                     was written"
                        .to_owned(),
                )),
            };
        }
        disk::write(&target.path, after).await
    }

    /// What a folder holds, down to a depth, sorted, at most `limit` entries.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub async fn list(
        &self,
        target: &Target,
        depth: usize,
        hidden: bool,
        limit: usize,
    ) -> Result<Vec<Entry>, FileError> {
        self.check(target).await?;
        disk::list(target.path.clone(), depth, hidden, limit).await
    }

    /// Names beside a path that does not exist which resemble it.
    pub async fn similar(&self, target: &Target) -> Vec<PathBuf> {
        match target.place {
            Place::Inside => disk::similar(target.path.clone()).await,
            Place::Outside => Vec::new(),
        }
    }

    /// What a path means, off the runtime's thread: a disk may take its time.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn resolve(&self, path: impl Into<PathBuf>) -> Result<Target, FileError> {
        let (roots, path) = (Arc::clone(&self.roots), path.into());
        disk::blocking(move || Ok(roots.resolve(path))).await
    }

    /// The same words must still mean the same place (symbolic links may have been swapped).
    async fn check(&self, target: &Target) -> Result<(), FileError> {
        let now = self.resolve(&target.path).await?;
        if now == *target { Ok(()) } else { Err(FileError::Moved) }
    }
}

/// The path as text for messages.
pub fn display(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
