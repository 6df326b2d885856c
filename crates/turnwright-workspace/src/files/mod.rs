//! Reads and writes the text files of a session, through the editor's unsaved buffers or on the
//! disk. Knows the session's folders, and makes no permission decisions.

mod buffers;
mod disk;
mod file_kind;
mod entries;
mod restore;
mod roots;
mod save;
mod seen_files;
mod session_tmp;
mod spelling;
mod stream;
mod text;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use buffers::UnsavedFiles;
pub use disk::{BinaryFile, FileHead, read_head};
pub(crate) use disk::{is_not_found, missing_parents};
pub use entries::EntryInfo;
pub use file_kind::{
    FileKind, PictureFault, blob_text, is_pdf, may_be_document, pdf_part, picture_mime, read_pdf,
    read_picture, usual_base64,
};
pub use roots::Roots;
pub use save::remove_left_files;
pub(crate) use save::{is_temporary_name, remove_left_file};
pub use seen_files::Freshness;
use seen_files::SeenFiles;
pub use session_tmp::{SessionTmp, ShownOnce};
pub use stream::{Excerpt, ExcerptLine, LineWindow};
pub(crate) use text::{Charset, LineDecoder, PROBE_BYTES, is_utf8};
pub use text::{FileText, LineEndings, TextEncoding, TextSource, decode_head};
use turnwright_types::client::EditorBuffers;
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::message::Media;

/// Texts of more bytes are read from and written to the disk even if the editor offers its buffers.
const EDITOR_TEXT_LIMIT: usize = 2 * 1024 * 1024;

/// The largest file, in bytes, that is read as a whole.
pub(crate) const READ_LIMIT: u64 = 32 * 1024 * 1024;

/// Of files of more bytes, only the requested lines are read.
pub(crate) const WHOLE_READ_LIMIT: u64 = 8 * 1024 * 1024;

/// Texts of more bytes are hashed and compared on a blocking thread.
const INLINE_HASH_LIMIT: usize = 64 * 1024;

/// The files of one session.
#[derive(Clone)]
pub struct Files {
    roots: Arc<Roots>,
    seen: Arc<SeenFiles>,
    unsaved: Arc<UnsavedFiles>,
    buffers: Option<Arc<dyn EditorBuffers>>,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The text after the write. An editor may have changed more than was asked for, for example if
    /// it formats on save.
    pub text: FileText,
    /// True if the text was read back after the write. An editor may accept a text and keep showing
    /// the old one.
    pub is_confirmed: bool,
}

/// The text of a file, or some of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadContent {
    Whole(FileText),
    /// The requested lines of a file that is too large, or not decodable as one text.
    Excerpt(Excerpt),
}

impl Files {
    /// The files below these roots. `buffers` is the editor's access to its buffers, if it offers
    /// that.
    pub fn new(roots: Roots, buffers: Option<Arc<dyn EditorBuffers>>) -> Files {
        Files { roots: Arc::new(roots), seen: Arc::default(), unsaved: Arc::default(), buffers }
    }

    /// The same files without the editor: for files of our own, which the editor need not know of.
    #[must_use]
    pub fn without_editor(&self) -> Files {
        Files { buffers: None, ..self.clone() }
    }

    /// The same files for another conversation, which has not seen any of them.
    #[must_use]
    pub fn unseen(&self) -> Files {
        Files { seen: Arc::default(), ..self.clone() }
    }

    /// The session's folders.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The same, to keep.
    pub fn shared_roots(&self) -> Arc<Roots> {
        Arc::clone(&self.roots)
    }

    /// The whole text of a file that may be changed. The editor's text is preferred, because unsaved changes count.
    pub async fn read(&self, target: &ResolvedPath) -> Result<FileText, FileError> {
        self.load(target).await?.for_change()
    }

    /// Like [`Files::read`], for a file that will be created if it does not exist: the editor is
    /// not asked for a file that is not on the disk, unless it has shown a text for it.
    pub async fn read_existing(&self, target: &ResolvedPath) -> Result<FileText, FileError> {
        self.load_existing(target).await?.for_change()
    }

    /// Reads text to be shown. Of a file that is too large only the lines in the window are read,
    /// and invalid bytes are shown as replacement characters.
    pub async fn read_window(
        &self,
        target: &ResolvedPath,
        window: LineWindow,
        cancel: &CancellationToken,
    ) -> Result<ReadContent, FileError> {
        // One hop to a blocking thread for all of it, because the hop is most of the cost of a read.
        let looking = self.unless_moved(target, |path| match disk::file_size(path)? {
            size if size > WHOLE_READ_LIMIT => Ok(None),
            _ => disk::read_text(path).map(Some),
        });
        let on_disk = match looking.await {
            Ok(None) | Err(FileError::Binary(_)) => {
                return self.read_excerpt(target, window, cancel).await;
            }
            Ok(Some(text)) => Ok(text),
            Err(FileError::NotFound) => Err(FileError::NotFound),
            Err(error) => return Err(error),
        };
        let loaded = self.prefer_editor(target, on_disk).await?;
        Ok(ReadContent::Whole(loaded.text))
    }

    async fn read_excerpt(
        &self,
        target: &ResolvedPath,
        window: LineWindow,
        cancel: &CancellationToken,
    ) -> Result<ReadContent, FileError> {
        let cancel = cancel.clone();
        let reading =
            disk::run_at(&target.path, move |path| stream::read_excerpt(path, &window, &cancel));
        Ok(ReadContent::Excerpt(reading.await?))
    }

    /// Reads a file as it is on the disk.
    pub async fn read_bytes(&self, target: &ResolvedPath) -> Result<Vec<u8>, FileError> {
        self.unless_moved(target, disk::read_bytes).await
    }

    /// Describes a file that is not text.
    pub async fn describe_binary(&self, target: &ResolvedPath) -> Result<BinaryFile, FileError> {
        self.unless_moved(target, disk::describe_binary).await
    }

    /// Reads an image of a format that models accept.
    ///
    /// # Errors
    /// If the file is not such an image, or is too large.
    pub async fn read_image(&self, target: &ResolvedPath) -> Result<Media, FileError> {
        self.unless_moved(target, disk::read_image).await
    }

    /// Replaces the text of a file if it still has the text `before`, or does not exist if `before`
    /// is `None`. On the disk the write is atomic; an editor that can write does it itself. After a
    /// cancel only the editor is no longer waited for, because it may never answer.
    pub async fn write(
        &self,
        target: &ResolvedPath,
        before: Option<&FileText>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Result<WriteOutcome, FileError> {
        let has_unseen_changes = match before {
            Some(before) => matches!(self.freshness(target, before).await, Freshness::Changed(_)),
            None => false,
        };
        let written = self.write_if_unchanged(target, before, after, cancel).await?;
        self.seen.note_written(&target.path, &written.text);
        if !has_unseen_changes {
            self.mark_seen(target, &written.text).await;
        }
        Ok(written)
    }

    /// Removes and returns what was written at these paths: the text as the editor has it, or
    /// `None` for a file that was written to the disk.
    pub fn take_written(&self, places: &[PathBuf]) -> HashMap<PathBuf, Option<FileText>> {
        self.seen.take_written(places)
    }

    /// Records that the model has been shown this text.
    pub fn mark_seen_blocking(&self, target: &ResolvedPath, text: &FileText) {
        self.seen.note(&target.path, text);
    }

    /// Like [`Files::mark_seen_blocking`], on a blocking thread if the text is long.
    pub(crate) async fn mark_seen(&self, target: &ResolvedPath, text: &FileText) {
        if text.text.len() <= INLINE_HASH_LIMIT {
            return self.mark_seen_blocking(target, text);
        }
        let seen = Arc::clone(&self.seen);
        let text = text.clone();
        let noted = disk::run_at(&target.path, move |path| {
            seen.note(path, &text);
            Ok(())
        });
        // This fails only if the process is ending.
        noted.await.ok();
    }

    /// Compares the current text with what the model has seen, on a blocking thread if the text is long.
    pub async fn freshness(&self, target: &ResolvedPath, now: &FileText) -> Freshness {
        if now.text.len() <= INLINE_HASH_LIMIT {
            return self.seen.compare(&target.path, now);
        }
        let seen = Arc::clone(&self.seen);
        let text = now.clone();
        let judged = disk::run_at(&target.path, move |path| Ok(seen.compare(path, &text)));
        judged.await.unwrap_or(Freshness::Changed(Vec::new()))
    }

    /// Forgets what the model has seen of a file that was replaced or removed.
    pub fn forget_seen(&self, target: &ResolvedPath) {
        self.seen.forget(&target.path);
    }

    /// Returns true if the model has seen any of the file, whatever is there now.
    pub fn has_seen(&self, target: &ResolvedPath) -> bool {
        self.seen.contains(&target.path)
    }

    /// A sentence about a path of the project that does not exist: the paths with similar names, or else what is in the
    /// nearest folder above it. Paths that are closed are left out. `None` if there is nothing.
    pub async fn names_near(
        &self,
        target: &ResolvedPath,
        is_closed: impl Fn(&Path) -> bool + Send + 'static,
    ) -> Option<String> {
        if target.scope != PathScope::Workspace {
            return None;
        }
        let roots = Arc::clone(&self.roots);
        let looking = disk::run_at(&target.path, move |path| {
            Ok(spelling::names_near(path, &roots, &is_closed))
        });
        looking.await.ok().flatten()
    }

    /// Checks that a path is a folder, so that a command can start in it.
    pub async fn ensure_folder(&self, target: &ResolvedPath) -> Result<(), FileError> {
        let looking = disk::run_at(&target.path, |path| match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(FileError::NotAFolder),
            Err(error) => Err(disk::map_io_error(&error)),
        });
        looking.await
    }

    /// Resolves a path on a blocking thread, because a disk may be slow.
    ///
    /// # Errors
    /// If the process is ending.
    pub async fn resolve(&self, path: impl Into<PathBuf>) -> Result<ResolvedPath, FileError> {
        let roots = Arc::clone(&self.roots);
        let path = path.into();
        disk::run_blocking(move || Ok(roots.resolve(path))).await
    }

    /// The text of the file on the disk, unless the path now resolves to something else.
    async fn read_disk(&self, target: &ResolvedPath) -> Result<FileText, FileError> {
        self.unless_moved(target, disk::read_text).await
    }

    /// Looks at a file on a blocking thread. Fails if the path now resolves to something else: a symbolic link may
    /// have been swapped since the permission was given.
    async fn unless_moved<T: Send + 'static>(
        &self,
        target: &ResolvedPath,
        work: impl FnOnce(&Path) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let roots = Arc::clone(&self.roots);
        let target = target.clone();
        disk::run_blocking(move || {
            if roots.resolve(&target.path) != target {
                return Err(FileError::Moved);
            }
            work(&target.path)
        })
        .await
    }
}

/// Writes a file atomically if it still has its `old` bytes; without any, it must not exist. Its mode and
/// its owner stay. No part of the path may be a symbolic link.
pub async fn replace_file(
    path: &Path,
    old: Option<Vec<u8>>,
    new: Vec<u8>,
) -> Result<(), FileError> {
    let precondition = old.map_or(save::WritePrecondition::Absent, save::WritePrecondition::Bytes);
    save::write(path, precondition, new).await
}

/// The path as text, for messages.
pub fn display(path: &Path) -> String {
    let text = path.to_string_lossy();
    // A path in the project is written as in patterns and patches.
    if cfg!(windows) && path.is_relative() { text.replace('\\', "/") } else { text.into_owned() }
}

/// Private functions of this module for the fuzz targets. The program does not use them.
pub mod fuzzing {
    pub use super::text::{decode, decode_lines};
}

/// Why a file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("does not exist")]
    NotFound,
    #[error("is a folder; use list_dir")]
    Folder,
    #[error("is not a folder")]
    NotAFolder,
    /// A FIFO, a socket or a device; reading it may block for ever.
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// The file is larger than [`READ_LIMIT`].
    #[error("has {0} bytes, more than the 32 MiB that can be taken at once; use exec")]
    TooLarge(u64),
    /// The file is not text.
    #[error("is binary, or not all in one encoding ({0} bytes)")]
    Binary(u64),
    /// An image that is larger than models accept.
    #[error("is an image of more than 5 MiB ({0} bytes); make it smaller first")]
    LargePicture(u64),
    /// The requested line is too far from the beginning to be found in reasonable time.
    #[error(
        "is too large to find line {0} in it; count from the end (negative start_line) or use grep"
    )]
    LineTooFar(usize),
    /// The file is write-protected.
    #[error("is read-only; nothing was written. Ask the user before you make it writable")]
    ReadOnly,
    /// A character that the file's encoding cannot represent.
    #[error(
        "is in {encoding}, which has no {char:?}; nothing was written. Use other characters, or \
         convert the file to UTF-8 first"
    )]
    Unmappable { char: char, encoding: &'static str },
    /// The editor has unsaved changes and could not preserve this file's encoding or line endings.
    #[error(
        "has unsaved changes in the editor, which would lose its encoding or line ends; nothing \
         was written. Ask the user to save it"
    )]
    Unsaved,
    /// The buffer has unsaved changes, and a call has changed the file on the disk.
    #[error(
        "has unsaved changes in the editor, and was changed on the disk since; nothing was written. \
         Ask the user to save it or to load it anew"
    )]
    Conflict,
    /// The path leads somewhere else than when permission was given, for example because a link was
    /// swapped.
    #[error("moved while permission was asked; nothing was done")]
    Moved,
    /// The content has changed since it was shown to the user.
    #[error("changed while permission was asked; nothing was written. Read it again")]
    Stale,
    /// The file to be created exists.
    #[error("exists already; nothing was changed")]
    Exists,
    #[error("was not read: cancelled by the user")]
    ReadCancelled,
    #[error("was not written: cancelled by the user")]
    Cancelled,
    /// The editor refused to show the file, and so it is not read from the disk either.
    #[error("was not read: {0}. Do not read it in another way; ask the user")]
    ReadRefused(String),
    #[error("could not be written by the editor: {0}")]
    Editor(String),
    /// A write in place failed half way, and the old content could not be restored.
    #[error("was written only in part ({0}); read it to see what is there")]
    PartialWrite(String),
    /// An error of the operating system.
    #[error("{0}")]
    System(String),
}
