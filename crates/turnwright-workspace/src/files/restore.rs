//! Restores the exact bytes and mode of a file: through the editor if it has the file open, else on
//! the disk by an atomic replacement.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::disk::{ensure_regular, run_at};
use super::save::{self, WritePrecondition};
use super::{EDITOR_TEXT_LIMIT, FileError, FileText, Files, TextSource};
use crate::nofollow;
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::hash::{hex, sha256};
use turnwright_types::private_file;

impl Files {
    /// Gives a file these bytes and this mode if it has the `expected` SHA-256; without one, it must not exist. Missing
    /// folders are created. `path` must have no links.
    ///
    /// # Errors
    /// If the file was not restored, and then it has its old bytes, or if only its mode was not.
    pub async fn restore(
        &self,
        path: &Path,
        expected: Option<[u8; 32]>,
        (bytes, mode): (Vec<u8>, u32),
        cancel: &CancellationToken,
    ) -> Result<(), FileError> {
        let target = self.resolve(path).await?;
        if target.path != path {
            return Err(FileError::Moved);
        }
        self.forget_seen(&target);
        self.ensure_no_unsaved(&target).await?;
        let was = if expected.is_some() { Some(make_writable(path).await?) } else { None };
        let written = match self.restore_in_editor(&target, expected, &bytes, cancel).await {
            Ok(ControlFlow::Continue(None)) => create_file(path, bytes, mode).await,
            Ok(ControlFlow::Continue(Some(sha256))) => {
                self.unsaved.note_replaced(path, hex(&sha256));
                save::write(path, WritePrecondition::Sha256(sha256), bytes).await
            }
            result => result.map(drop),
        };
        match (&written, was) {
            (Ok(()), _) => set_mode(path, mode).await.map_err(|error| {
                FileError::System(format!("has its content again, but not its mode: {error}"))
            }),
            (Err(_), Some(was)) => set_mode(path, was).await.and(written),
            (Err(_), None) => written,
        }
    }

    /// Checks that nothing is lost if a file is replaced or removed: the editor has no unsaved
    /// changes of it.
    ///
    /// # Errors
    /// [`FileError::Unsaved`] if the editor has.
    pub async fn ensure_no_unsaved(&self, target: &ResolvedPath) -> Result<(), FileError> {
        if self.readable_editor(target).is_none() {
            return Ok(());
        }
        let Ok(shown) = self.load(target).await else { return Ok(()) };
        if shown.text.source == TextSource::Disk {
            return Ok(());
        }
        match super::disk::read(&target.path).await {
            Ok(saved) if self.unsaved.is_saved(&target.path, &shown.text, &saved) => Ok(()),
            Err(FileError::NotFound) if shown.text.text.is_empty() => Ok(()),
            _ => Err(FileError::Unsaved),
        }
    }

    /// Restores through the editor. Continues with the SHA-256 on the disk if the disk has to be written as well: there
    /// is no editor for the file, or it would not preserve the bytes, has formatted them, or has not saved them.
    async fn restore_in_editor(
        &self,
        target: &ResolvedPath,
        expected: Option<[u8; 32]>,
        bytes: &[u8],
        cancel: &CancellationToken,
    ) -> Result<ControlFlow<(), Option<[u8; 32]>>, FileError> {
        let can_write = self.buffers.as_ref().is_some_and(|buffers| buffers.can_write());
        if !can_write || target.scope != PathScope::Workspace || bytes.len() > EDITOR_TEXT_LIMIT {
            return Ok(ControlFlow::Continue(expected));
        }
        let Some(text) = FileText::decode(bytes.to_vec()).filter(|text| !text.is_lossy_in_editor())
        else {
            return Ok(ControlFlow::Continue(expected));
        };
        let now = match self.load(target).await {
            Ok(found) if found.text.is_lossy_in_editor() => {
                return Ok(ControlFlow::Continue(expected));
            }
            Ok(found) => Some(found.text),
            Err(FileError::NotFound) => None,
            Err(error @ FileError::ReadRefused(_)) => return Err(error),
            Err(_) => return Ok(ControlFlow::Continue(expected)),
        };
        if let Some(sha256) = expected
            && run_at(&target.path, save::file_sha256).await? != sha256
        {
            return Err(FileError::Stale);
        }
        self.write_if_unchanged(target, now.as_ref(), &text.text, cancel).await?;
        self.forget_seen(target);
        match run_at(&target.path, save::file_sha256).await {
            Ok(now) if now == sha256(bytes) => Ok(ControlFlow::Break(())),
            Ok(now) => Ok(ControlFlow::Continue(Some(now))),
            Err(FileError::NotFound) => Ok(ControlFlow::Continue(None)),
            Err(error) => Err(error),
        }
    }
}

/// Creates a file that becomes visible only when it is complete and has its mode.
async fn create_file(path: &Path, bytes: Vec<u8>, mode: u32) -> Result<(), FileError> {
    run_at(path, move |path| {
        let _lock = save::lock_for_write(path);
        let (_held, path) = nofollow::hold_entry(path, nofollow::create_folder)?;
        let file = save::create_beside(&path, 0o600)?;
        file.as_file().write_all(&bytes)?;
        // The content matters more than a mode that the disk refuses.
        nofollow::set_permission_bits(file.as_file(), mode).ok();
        private_file::sync(file.as_file())?;
        save::place_new(file, &path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Stale,
            _ => error.into(),
        })
    })
    .await
}

/// Makes a write-protected file writable and returns the mode it had. The user has asked for the
/// old bytes, which come with their own mode.
async fn make_writable(path: &Path) -> Result<u32, FileError> {
    run_at(path, |path| {
        let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
        let file = nofollow::open_pinned_file(&path, false)?;
        let metadata = file.metadata()?;
        ensure_regular(&metadata)?;
        let mode = nofollow::permission_bits(&metadata);
        if metadata.permissions().readonly() {
            nofollow::set_permission_bits(&file, mode | 0o200)?;
        }
        Ok(mode)
    })
    .await
}

async fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    run_at(path, move |path| {
        let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
        let file = nofollow::open_pinned_file(&path, false)?;
        Ok(nofollow::set_permission_bits(&file, mode)?)
    })
    .await
}
