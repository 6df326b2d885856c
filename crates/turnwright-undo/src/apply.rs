//! Executes an undo plan, and reads the state of the entry at a path. Each path is checked once more right before
//! it is changed; a failure is reported and the other paths are still restored.

use std::fs;
use std::io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use crate::UndoContext;
use crate::plan::{UndoAction, UndoStep, has_hash, is_same_state};
use tokio::task::spawn_blocking;
use turnwright_store::read;
use turnwright_types::effect::ResolvedPath;
use turnwright_types::error_text::io_error_text;
use turnwright_types::file_change::FileState;
use turnwright_types::hash::{hex, parse_hex, sha256_of_reader};
use turnwright_workspace::files::FileError;
use turnwright_workspace::has_other_letters;
use turnwright_workspace::nofollow::{self, permission_bits};

/// Explains to the user why a file was not restored. The texts of [`FileError`] itself are for the model, and mention
/// permissions.
fn file_error_text(error: &FileError) -> String {
    match error {
        FileError::Stale => "it was changed at the last moment".to_owned(),
        FileError::Moved => "its folder is not where it was".to_owned(),
        FileError::Unsaved => "it has unsaved changes in the editor".to_owned(),
        FileError::Cancelled => "cancelled".to_owned(),
        error => error.to_string(),
    }
}

/// Explains to the user why a folder was not removed.
pub(crate) const NOT_EMPTY: &str = "something else lies in the folder";

/// The result of restoring one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoreResult {
    pub path: PathBuf,
    /// The state before the undo.
    pub was: FileState,
    /// The state to restore.
    pub to: FileState,
    /// The reason for the user if the state was not restored.
    pub result: Result<(), String>,
}

impl RestoreResult {
    /// The result of a step if all goes well; `None` unless it restores something.
    pub(crate) fn of(step: &UndoStep) -> Option<RestoreResult> {
        let UndoAction::Restore(to) = &step.action else { return None };
        let was = step.now.clone();
        Some(RestoreResult { path: step.path.clone(), was, to: to.clone(), result: Ok(()) })
    }
}

/// Returns true if the existing entry must be removed, because nothing or another type of entry takes its place.
fn must_be_removed(restore: &RestoreResult) -> bool {
    restore.was != FileState::Absent
        && (discriminant(&restore.was) != discriminant(&restore.to)
            || matches!(restore.to, FileState::Link { .. }))
}

impl UndoContext {
    /// Restores these paths, and returns the actual results. First removes everything that must be removed, contents
    /// before their folder; then creates everything that is to be there, folders before their contents. A
    /// cancellation takes effect between two paths.
    pub(crate) async fn apply(&self, mut all: Vec<RestoreResult>) -> Vec<RestoreResult> {
        all.sort_by(|restore, other| restore.path.cmp(&other.path));
        let roots = self.files.roots().clone();
        let missing = spawn_blocking(move || {
            roots.folders().find(|folder| !folder.is_dir()).map(Path::to_path_buf)
        });
        if let Ok(Some(folder)) = missing.await {
            for restore in all.iter_mut().filter(|restore| restore.path.starts_with(&folder)) {
                restore.result = Err("the folder of the session is gone".into());
            }
        }
        for restore in all.iter_mut().rev() {
            if restore.result.is_ok() && must_be_removed(restore) {
                restore.result = self.remove(restore).await;
            }
        }
        for restore in &mut all {
            if restore.result.is_ok() && restore.to != FileState::Absent {
                restore.result = self.create(restore).await;
            }
        }
        // Folders get their mode last, because nothing can be created in a read-only folder.
        for restore in all.iter_mut().rev().filter(|restore| restore.result.is_ok()) {
            if let FileState::Folder { mode } = restore.to {
                restore.result = in_folder(&restore.path, nofollow::open_folder, move |path| {
                    set_mode(path, mode, None)
                })
                .await;
            }
        }
        // An editor may answer before it formats and saves.
        for restore in all.iter_mut().filter(|restore| restore.result.is_ok()) {
            let path = restore.path.clone();
            let now = spawn_blocking(move || file_state(&path)).await;
            if now.is_ok_and(|now| !is_same_state(&now, &restore.to)) {
                restore.result = Err("it was changed again at once".into());
            }
        }
        all
    }

    fn check_not_cancelled(&self) -> Result<(), String> {
        if self.cancel.is_cancelled() { Err("cancelled".into()) } else { Ok(()) }
    }

    async fn remove(&self, restore: &RestoreResult) -> Result<(), String> {
        self.check_not_cancelled()?;
        if matches!(restore.was, FileState::File { .. }) {
            let target = self.target(&restore.path).await?;
            let saved = self.files.ensure_no_unsaved(&target).await;
            saved.map_err(|error| file_error_text(&error))?;
            self.files.forget_seen(&target);
        }
        let was = restore.was.clone();
        in_folder(&restore.path, nofollow::open_folder, move |path| {
            let now = state_of(path)?;
            if !is_same_state(&now, &was) {
                return Err(io::Error::other("it was changed at the last moment"));
            }
            if !matches!(now, FileState::Folder { .. }) {
                return fs::remove_file(path);
            }
            fs::remove_dir(path).map_err(|error| match error.kind() {
                io::ErrorKind::DirectoryNotEmpty => io::Error::other(NOT_EMPTY),
                _ => error,
            })
        })
        .await
    }

    async fn create(&self, restore: &RestoreResult) -> Result<(), String> {
        self.check_not_cancelled()?;
        match (&restore.was, &restore.to) {
            (was, FileState::File { hash, mode, .. }) if has_hash(was, hash) => {
                let mode = *mode;
                let was = was.clone();
                in_folder(&restore.path, nofollow::open_folder, move |path| {
                    set_mode(path, mode, Some(&was))
                })
                .await
            }
            (was, FileState::File { hash, mode, .. }) => {
                let old_hash = match was {
                    FileState::File { hash, .. } => Some(parse_sha256(hash)?),
                    _ => None,
                };
                let new = (self.bytes(hash.clone()).await?, *mode);
                let written = self.files.restore(&restore.path, old_hash, new, &self.cancel).await;
                written.map_err(|error| file_error_text(&error))
            }
            (_, FileState::Link { target }) => {
                let target = target.clone();
                in_folder(&restore.path, nofollow::create_folder, move |path| {
                    nofollow::create_link(&target, path)
                })
                .await
            }
            // The mode of a folder is set at the end.
            (FileState::Folder { .. }, FileState::Folder { .. })
            | (_, FileState::Absent | FileState::Unknown { .. }) => Ok(()),
            (_, FileState::Folder { .. }) => {
                in_folder(&restore.path, nofollow::create_folder, |path| fs::create_dir(path)).await
            }
        }
    }

    /// The stored content with this hash.
    pub(crate) async fn bytes(&self, hash: String) -> Result<Vec<u8>, String> {
        let found = self.store.read(move |connection| read::blob_by_hash(connection, &hash)).await;
        match found {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err("its content was not stored".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Resolves a path. Fails if links now make it lead elsewhere.
    async fn target(&self, path: &Path) -> Result<ResolvedPath, String> {
        let resolved = self.files.resolve(path).await;
        let target = resolved.map_err(|error| file_error_text(&error))?;
        if target.path == path { Ok(target) } else { Err(file_error_text(&FileError::Moved)) }
    }
}

fn parse_sha256(hash: &str) -> Result<[u8; 32], String> {
    let bytes = hash.get(..64).and_then(parse_hex).unwrap_or_default();
    bytes.try_into().map_err(|_| "its hash is malformed".into())
}

/// Runs `work` on a path through its parent folder, which `hold` pins or creates.
async fn in_folder(
    path: &Path,
    hold: fn(&Path) -> io::Result<nofollow::HeldPath>,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let path = path.to_path_buf();
    let done = spawn_blocking(move || {
        let (_held, path) = nofollow::hold_entry(&path, hold)?;
        work(&path)
    });
    match done.await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err("something else is there now".into())
        }
        Ok(done) => done.map_err(|error| io_error_text(&error)),
        Err(error) => Err(error.to_string()),
    }
}

/// Sets the mode of an entry, unless it is no longer in the state `was`.
fn set_mode(path: &Path, mode: u32, was: Option<&FileState>) -> io::Result<()> {
    if let Some(was) = was
        && !is_same_state(&state_of(path)?, was)
    {
        return Err(io::Error::other("it was changed at the last moment"));
    }
    nofollow::set_permission_bits(&nofollow::open_pinned_file(path, false)?, mode)
}

/// The state at a path. Links in its parent folders are not followed. Blocks.
pub(crate) fn file_state(path: &Path) -> FileState {
    // Where case is ignored, a path also finds an entry that was renamed only in its case.
    if has_other_letters(path) {
        return FileState::Absent;
    }
    let held = nofollow::hold_entry(path, nofollow::open_folder);
    let found = held.and_then(|(_held, path)| state_of(&path));
    found.unwrap_or_else(|error| match error.kind() {
        // A path through a link is a different file.
        _ if nofollow::is_link_error(&error) => FileState::Absent,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileState::Absent,
        _ => FileState::Unknown { why: io_error_text(&error) },
    })
}

/// The same for a path whose parent folder is pinned.
fn state_of(path: &Path) -> io::Result<FileState> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return Ok(FileState::Link { target: fs::read_link(path)? });
    }
    if kind.is_dir() {
        return Ok(FileState::Folder { mode: permission_bits(&metadata) });
    }
    if !kind.is_file() {
        return Ok(FileState::Unknown { why: "it is not a regular file".to_owned() });
    }
    let file = nofollow::open_pinned_file(path, false)?;
    // Checked again on the open file, because the entry at the path may have been replaced.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(FileState::Unknown { why: "it is not a regular file".to_owned() });
    }
    let (hash, size) = sha256_of_reader(file)?;
    Ok(FileState::File { hash: hex(&hash), size, mode: permission_bits(&metadata), is_kept: false })
}
