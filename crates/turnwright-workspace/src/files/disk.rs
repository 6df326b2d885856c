//! The disk. Everything here may take its time and runs off the runtime's thread.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::kind::{self, FileKind};
use super::text::Text;
use super::{FileError, READ_LIMIT};
use turnwright_types::message::Media;
use crate::pinned;

/// The size of a regular file.
pub(super) async fn inspect(path: &Path) -> Result<u64, FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let metadata = fs::metadata(&path).map_err(|it| explain(&it))?;
        regular(&metadata)?;
        Ok(metadata.len())
    })
    .await
}

/// The text of a regular file.
pub(super) async fn read(path: &Path) -> Result<Text, FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let file = pinned::file(&path).map_err(|it| moved(&it))?;
        let metadata = file.metadata().map_err(|it| explain(&it))?;
        // Asked again of the open file: what the name means may have changed.
        regular(&metadata)?;
        if metadata.len() > READ_LIMIT {
            return Err(FileError::TooLarge(metadata.len()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        file.take(READ_LIMIT + 1).read_to_end(&mut bytes).map_err(|it| explain(&it))?;
        // It may have grown since, and what is cut off would be lost.
        if bytes.len() as u64 > READ_LIMIT {
            return Err(FileError::TooLarge(bytes.len() as u64));
        }
        Text::decode(bytes).ok_or(FileError::Binary(metadata.len()))
    })
    .await
}

pub(super) fn moved(error: &io::Error) -> FileError {
    #[cfg(target_os = "linux")]
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return FileError::Moved;
    }
    explain(error)
}

/// The largest picture that is worth its tokens.
const LARGEST_PICTURE: u64 = 5 * 1024 * 1024;

/// A picture of a kind that models take, known by its first bytes.
pub(super) async fn picture(path: &Path) -> Result<Media, FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let file = pinned::file(&path).map_err(|it| moved(&it))?;
        let size = file.metadata().map_err(|it| explain(&it))?.len();
        let mut bytes = Vec::new();
        file.take(LARGEST_PICTURE + 1).read_to_end(&mut bytes).map_err(|it| explain(&it))?;
        let kind = kind::of(&bytes).and_then(|it| it.picture);
        let mime = kind.ok_or(FileError::Binary(size))?;
        if bytes.len() as u64 > LARGEST_PICTURE {
            return Err(FileError::LargePicture(size));
        }
        Ok(Media { mime: mime.to_owned(), data: BASE64.encode(bytes) })
    })
    .await
}

/// A file that is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Its bytes.
    pub size: u64,
    /// What it is, if that is known.
    pub kind: Option<FileKind>,
    /// Its first bytes.
    pub head: Vec<u8>,
}

/// Bytes in which the size of a picture is looked for.
const HEAD: u64 = 64 * 1024;
/// Bytes that are shown.
const SHOWN: usize = 64;

/// What a file is that is no text.
pub(super) async fn describe(path: &Path) -> Result<Binary, FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        let file = pinned::file(&path).map_err(|it| moved(&it))?;
        let metadata = file.metadata().map_err(|it| explain(&it))?;
        regular(&metadata)?;
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).map_err(|it| explain(&it))?;
        let kind = kind::of(&head);
        head.truncate(SHOWN);
        Ok(Binary { size: metadata.len(), kind, head })
    })
    .await
}

pub(super) fn regular(metadata: &fs::Metadata) -> Result<(), FileError> {
    if metadata.is_file() {
        return Ok(());
    }
    if metadata.is_dir() {
        return Err(FileError::Folder);
    }
    Err(FileError::Special(sort(metadata)))
}

#[cfg(unix)]
fn sort(metadata: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let sort = metadata.file_type();
    if sort.is_fifo() {
        "a FIFO"
    } else if sort.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn sort(_: &fs::Metadata) -> &'static str {
    "a special file"
}

pub(super) fn explain(error: &io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound => FileError::NotFound,
        io::ErrorKind::NotADirectory => FileError::NotAFolder,
        _ => FileError::System(error.to_string()),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(FileError::System(error.to_string())),
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use crate::files::save;

    #[tokio::test]
    async fn a_link_that_came_after_the_judgement_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("out/below")).unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        fs::write(base.join("out/f"), "secret").unwrap();
        std::os::unix::fs::symlink(base.join("out"), base.join("ws/d")).unwrap();
        let any = || save::Before::Anything;
        // As judged, `ws/d` was a folder; now it is a link.
        assert_eq!(read(&base.join("ws/d/f")).await, Err(FileError::Moved));
        assert_eq!(
            save::write(&base.join("ws/d/new"), any(), b"x".to_vec()).await,
            Err(FileError::Moved)
        );
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 2);
        // And what is no link works, the temporary file gone.
        save::write(&base.join("out/f"), any(), b"new".to_vec()).await.unwrap();
        assert_eq!(read(&base.join("out/f")).await.unwrap().text, "new");
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 2);
    }
}
