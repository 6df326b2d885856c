//! Text files, wherever their truth is: in the editor's unsaved buffer or on the disk. Knows
//! which folders belong to the session; decides nothing about permission.

mod buffers;
mod disk;
mod error;
mod excerpt;
mod form;
mod glance;
pub mod inside;
mod kind;
mod near;
mod places;
mod restore;
mod roots;
mod save;
mod seen;
mod stream;
mod text;
mod unsaved;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use turnwright_types::client::Buffers;
use turnwright_types::effect::{Place, Target};
use turnwright_types::message::Media;

pub use buffers::Patience;
pub use disk::Binary;
pub use error::FileError;
pub use excerpt::{Excerpt, Line, Window};
pub use glance::{Glance, glance};
pub use kind::FileKind;
pub use places::Survey;
pub use restore::There;
pub use roots::Roots;
pub use seen::Freshness;
pub use text::{Form, Hash, LineEnds, Source, Text};

use seen::Seen;
use unsaved::Unsaved;

/// Larger files are read from the disk even when the editor would serve them.
const BUFFER_LIMIT: usize = 2 * 1024 * 1024;

/// The largest file that is read as a whole.
pub const READ_LIMIT: u64 = 32 * 1024 * 1024;

/// Of larger files only the lines are read that are to be shown.
const LOOK_LIMIT: u64 = 8 * 1024 * 1024;

/// Texts that are remembered of those that were written, until somebody asks.
const MOST_WRITTEN: usize = 64;

/// Texts of more bytes are compared and noted off the runtime's thread.
const NOTE_LIMIT: usize = 64 * 1024;

/// The files of one session.
#[derive(Clone)]
pub struct Files {
    roots: Arc<Roots>,
    seen: Arc<Seen>,
    unsaved: Arc<Unsaved>,
    /// What was written since somebody asked: the text that went to the editor.
    // A std mutex: held to move a text.
    written: Arc<Mutex<HashMap<PathBuf, Option<Text>>>>,
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
    /// Whether it has been seen there. An editor may take a text and keep showing the old one.
    pub is_confirmed: bool,
}

/// What was found where text was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The whole text.
    Whole(Text),
    /// The lines that were asked for, of a file that is too large or too odd to be one text.
    Part(Excerpt),
}

impl Files {
    /// The files below these roots, with the editor's buffers where it offers them.
    pub fn new(roots: Roots, buffers: Option<Arc<dyn Buffers>>) -> Files {
        let (seen, unsaved, written) = (Arc::default(), Arc::default(), Arc::default());
        Files { roots: Arc::new(roots), seen, unsaved, written, buffers }
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
        Ok(self.find(target, &Patience::default()).await?.text)
    }

    /// The same for showing: of a file that is too large only the lines in question are read,
    /// and bytes that make no sense cost no more than themselves.
    ///
    /// # Errors
    /// When there is no text to be had.
    pub async fn look(
        &self,
        target: &Target,
        window: Window,
        patience: &Patience,
        cancel: &CancellationToken,
    ) -> Result<Look, FileError> {
        self.check(target).await?;
        let whole = async || Ok(Look::Whole(self.find(target, patience).await?.text));
        let part = async || {
            let (path, cancel) = (target.path.clone(), cancel.clone());
            let excerpt = disk::blocking(move || stream::excerpt(&path, &window, &cancel));
            Ok(Look::Part(excerpt.await?))
        };
        match disk::inspect(&target.path).await {
            Ok(size) if size > LOOK_LIMIT => match part().await {
                // UTF-16: its lines are not found as those of other texts.
                Err(FileError::TooLarge(size)) if size <= READ_LIMIT => whole().await,
                result => result,
            },
            Ok(_) => match whole().await {
                Err(FileError::Binary(_)) => part().await,
                result => result,
            },
            Err(FileError::NotFound) => whole().await,
            Err(error) => Err(error),
        }
    }

    /// What a file is that is no text.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn describe(&self, target: &Target) -> Result<Binary, FileError> {
        self.check(target).await?;
        disk::describe(&target.path).await
    }

    /// A picture of a kind that models take.
    ///
    /// # Errors
    /// When the file holds none, or one that is too large.
    pub async fn picture(&self, target: &Target) -> Result<Media, FileError> {
        self.check(target).await?;
        disk::picture(&target.path).await
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
        let written = self.put(target, before, after, cancel).await?;
        self.note_written(target, &written.text);
        self.learn(target, &written.text).await;
        Ok(written)
    }

    fn note_written(&self, target: &Target, text: &Text) {
        let shown = (text.source == Source::Editor).then(|| text.clone());
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MOST_WRITTEN {
            written.clear();
        }
        written.insert(target.path.clone(), shown);
    }

    /// What was written at these places since somebody asked: the text as the editor has it, or
    /// nothing for one that went to the disk.
    pub fn take_written(&self, places: &[PathBuf]) -> HashMap<PathBuf, Option<Text>> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().filter_map(|it| written.remove_entry(it)).collect()
    }

    /// The model has been shown this.
    pub fn note(&self, target: &Target, text: &Text) {
        self.seen.note(&target.path, text);
    }

    /// The same, off the runtime's thread if it would take long.
    pub async fn learn(&self, target: &Target, text: &Text) {
        if text.text.len() <= NOTE_LIMIT {
            return self.note(target, text);
        }
        let (seen, path, text) = (Arc::clone(&self.seen), target.path.clone(), text.clone());
        let noted = disk::blocking(move || {
            seen.note(&path, &text);
            Ok(())
        });
        // It fails only when the process is ending.
        drop(noted.await);
    }

    /// Whether the model knows what is there now.
    pub fn freshness(&self, target: &Target, now: &Text) -> Freshness {
        self.seen.compare(&target.path, now)
    }

    /// The same, off the runtime's thread if it would take long.
    pub async fn judge(&self, target: &Target, now: &Text) -> Freshness {
        if now.text.len() <= NOTE_LIMIT {
            return self.freshness(target, now);
        }
        let (seen, path, text) = (Arc::clone(&self.seen), target.path.clone(), now.clone());
        let judged = disk::blocking(move || Ok(seen.compare(&path, &text)));
        judged.await.unwrap_or(Freshness::Changed(Vec::new()))
    }

    /// The file is not what it was, or is no more.
    pub fn forget(&self, target: &Target) {
        self.seen.forget(&target.path);
    }

    /// Paths that may be meant by one that does not exist: those beside it which resemble it,
    /// and those of the same name elsewhere in the project.
    pub async fn similar(&self, target: &Target) -> Vec<PathBuf> {
        if target.place != Place::Inside {
            return Vec::new();
        }
        let (roots, path) = (Arc::clone(&self.roots), target.path.clone());
        let near = disk::blocking(move || {
            let root = roots.resolve("").path;
            let is_inside = |it: &PathBuf| roots.resolve(it).place == Place::Inside;
            Ok(near::near(&path, &root).into_iter().filter(is_inside).collect())
        });
        near.await.unwrap_or_default()
    }

    /// Whether a command can start there.
    ///
    /// # Errors
    /// When it is no folder.
    pub async fn expect_folder(&self, target: &Target) -> Result<(), FileError> {
        let path = target.path.clone();
        let look = move || match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(FileError::NotAFolder),
            Err(error) => Err(disk::explain(&error)),
        };
        disk::blocking(look).await
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
