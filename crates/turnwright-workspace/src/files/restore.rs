//! A file gets back exactly the bytes and the mode that it had: through the editor where it has the
//! file open, else on the disk in one step.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::disk::{blocking, explain, moved};
use super::places::without_replacing;
use super::save::{self, Before};
use super::{BUFFER_LIMIT, FileError, Files, Patience, Source, Text};
use turnwright_types::effect::{Place, Target};
use crate::pinned;

/// What has to be there still when a file gets its bytes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// A file whose bytes have this SHA-256.
    File([u8; 32]),
}

impl Files {
    /// Gives a file these bytes and this mode, if there is still what is said. Missing folders are
    /// made. `path` is a real path.
    ///
    /// # Errors
    /// When the file is not as it should be. It has then its old bytes.
    pub async fn restore(
        &self,
        path: &Path,
        there: There,
        (bytes, mode): (Vec<u8>, u32),
        patience: &Patience,
        cancel: &CancellationToken,
    ) -> Result<(), FileError> {
        let target = self.resolve(path).await?;
        if target.path != path {
            return Err(FileError::Moved);
        }
        self.forget(&target);
        self.expect_no_unsaved(&target, patience).await?;
        let was = match there {
            There::Nothing => None,
            There::File(_) => Some(make_writable(path).await?),
        };
        let written = match self.restore_in_editor(&target, there, &bytes, patience, cancel).await {
            Ok(false) => match there {
                There::Nothing => create(path, bytes, mode).await,
                There::File(print) => save::write(path, Before::Print(print), bytes).await,
            },
            result => result.map(drop),
        };
        match (&written, was) {
            (Ok(()), _) => set_mode(path, mode).await,
            (Err(_), Some(was)) => set_mode(path, was).await.and(written),
            (Err(_), None) => written,
        }
    }

    /// Whether nothing is lost if a file is replaced or removed: the editor shows nothing of it
    /// that the disk has not.
    ///
    /// # Errors
    /// [`FileError::Unsaved`] if it does.
    pub async fn expect_no_unsaved(
        &self,
        target: &Target,
        patience: &Patience,
    ) -> Result<(), FileError> {
        let has_editor = self.buffers.as_ref().is_some_and(|it| it.can_read());
        if !has_editor || target.place != Place::Inside {
            return Ok(());
        }
        let Ok(shown) = self.find(target, patience).await else { return Ok(()) };
        if shown.text.source == Source::Disk {
            return Ok(());
        }
        match super::disk::read(&target.path).await {
            Ok(saved) if saved.hash() == shown.text.hash() => Ok(()),
            Err(FileError::NotFound) if shown.text.text.is_empty() => Ok(()),
            _ => Err(FileError::Unsaved),
        }
    }

    /// `false` if it is for the disk: there is no editor for it, or the editor would not keep its
    /// bytes as they are.
    async fn restore_in_editor(
        &self,
        target: &Target,
        there: There,
        bytes: &[u8],
        patience: &Patience,
        cancel: &CancellationToken,
    ) -> Result<bool, FileError> {
        let can_write = self.buffers.as_ref().is_some_and(|it| it.can_write());
        if !can_write || target.place != Place::Inside || bytes.len() > BUFFER_LIMIT {
            return Ok(false);
        }
        let Some(text) = Text::decode(bytes.to_vec()).filter(|it| !it.is_special()) else {
            return Ok(false);
        };
        let now = match self.find(target, patience).await {
            Ok(found) if found.text.is_special() => return Ok(false),
            Ok(found) => Some(found.text),
            Err(FileError::NotFound) => None,
            Err(_) => return Ok(false),
        };
        if let There::File(print) = there
            && !save_is(&target.path, print).await?
        {
            return Err(FileError::Stale);
        }
        self.put(target, now.as_ref(), &text.text, cancel).await?;
        self.forget(target);
        // It may have formatted what it was given, or not have saved it.
        let wanted = print_of(bytes);
        if save_is(&target.path, wanted).await.unwrap_or(false) {
            return Ok(true);
        }
        Err(FileError::Editor("it has written something else, or nothing yet".to_owned()))
    }
}

fn print_of(bytes: &[u8]) -> [u8; 32] {
    let mut print = [0; 32];
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    print.copy_from_slice(digest.as_ref());
    print
}

async fn save_is(path: &Path, print: [u8; 32]) -> Result<bool, FileError> {
    let path = path.to_path_buf();
    blocking(move || save::has_print(&path, &print)).await
}

/// A new file, which nobody sees before it is whole and has its mode.
async fn create(path: &Path, bytes: Vec<u8>, mode: u32) -> Result<(), FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let _turn = save::take_turns(&path);
        let name = path.file_name().ok_or(FileError::Folder)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let (_held, folder) = pinned::made_folder(folder).map_err(|it| moved(&it))?;
        let put = || -> io::Result<()> {
            let mut builder = tempfile::Builder::new();
            let mut file = builder.prefix(".turnwright-").suffix(".tmp").tempfile_in(&folder)?;
            file.write_all(&bytes)?;
            permit(file.as_file(), mode)?;
            file.as_file().sync_data()?;
            without_replacing(file.path(), &folder.join(name))?;
            drop(file.keep()?);
            Ok(())
        };
        put().map_err(|it| match it.kind() {
            io::ErrorKind::AlreadyExists => FileError::Stale,
            _ => moved(&it),
        })
    })
    .await
}

/// The mode that a file has. The user has asked for the old bytes of what its owner may not write:
/// those come with their own mode.
async fn make_writable(path: &Path) -> Result<u32, FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let (_held, path) = held(&path).map_err(|it| moved(&it))?;
        let file = save::open(&path, false).map_err(|it| moved(&it))?;
        let metadata = file.metadata().map_err(|it| explain(&it))?;
        super::disk::regular(&metadata)?;
        let mode = mode_of(&metadata);
        if metadata.permissions().readonly() {
            permit(&file, mode | 0o200).map_err(|it| explain(&it))?;
        }
        Ok(mode)
    })
    .await
}

async fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let (_held, path) = held(&path).map_err(|it| moved(&it))?;
        let file = save::open(&path, false).map_err(|it| moved(&it))?;
        let metadata = file.metadata().map_err(|it| explain(&it))?;
        if mode_of(&metadata) == mode {
            return Ok(());
        }
        permit(&file, mode).map_err(|it| explain(&it))
    })
    .await
}

fn held(path: &Path) -> io::Result<(Option<fs::File>, std::path::PathBuf)> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (held, folder) = pinned::folder(folder)?;
    Ok((held, folder.join(path.file_name().unwrap_or_default())))
}

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn mode_of(_: &fs::Metadata) -> u32 {
    0o644
}

#[cfg(unix)]
fn permit(file: &fs::File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))
}

#[cfg(not(unix))]
fn permit(_: &fs::File, _: u32) -> io::Result<()> {
    Ok(())
}
