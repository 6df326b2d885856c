//! Reads files from the disk. All of it may block and runs on blocking threads.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::file_kind::{self, FileKind};
use super::text::FileText;
use super::{FileError, READ_LIMIT};
use crate::nofollow;
use tokio::task::spawn_blocking;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::message::Media;

/// The size of a regular file. Blocks.
pub(super) fn file_size(path: &Path) -> Result<u64, FileError> {
    let metadata = fs::metadata(path).map_err(|error| map_io_error(&error))?;
    ensure_regular(&metadata)?;
    Ok(metadata.len())
}

/// Reads the text of a regular file. Blocks.
pub(super) fn read_text(path: &Path) -> Result<FileText, FileError> {
    let file = nofollow::open_file(path).map_err(|error| map_open_error(&error))?;
    let metadata = file.metadata().map_err(|error| map_io_error(&error))?;
    // Checked on the open file, because the path may lead to another file by now.
    ensure_regular(&metadata)?;
    if metadata.len() > READ_LIMIT {
        return Err(FileError::TooLarge(metadata.len()));
    }
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    ensure_memory(length)?;
    let mut bytes = Vec::with_capacity(length);
    file.take(READ_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| map_io_error(&error))?;
    // The file may have grown since; a truncated text would lose data when it is written back.
    if bytes.len() as u64 > READ_LIMIT {
        return Err(FileError::TooLarge(bytes.len() as u64));
    }
    FileText::decode(bytes).ok_or(FileError::Binary(metadata.len()))
}

/// Like [`read_text`], on a blocking thread.
pub(super) async fn read(path: &Path) -> Result<FileText, FileError> {
    let path = path.to_path_buf();
    run_blocking(move || read_text(&path)).await
}

pub(super) fn map_open_error(error: &io::Error) -> FileError {
    #[cfg(target_os = "linux")]
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return FileError::Moved;
    }
    map_io_error(error)
}

/// The largest image that is worth its tokens.
const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024;

/// Reads an image of a format that models accept, detected by its first bytes.
pub(super) async fn read_image(path: &Path) -> Result<Media, FileError> {
    let path = path.to_path_buf();
    run_blocking(move || {
        let file = nofollow::open_file(&path).map_err(|error| map_open_error(&error))?;
        let size = file.metadata().map_err(|error| map_io_error(&error))?.len();
        let mut bytes = Vec::new();
        file.take(MAX_IMAGE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| map_io_error(&error))?;
        let kind = file_kind::detect(&bytes).and_then(|kind| kind.image_mime);
        let mime = kind.ok_or(FileError::Binary(size))?;
        if bytes.len() as u64 > MAX_IMAGE_BYTES {
            return Err(FileError::LargePicture(size));
        }
        Ok(Media { mime: mime.to_owned(), data: BASE64.encode(bytes) })
    })
    .await
}

/// A file that is not text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryFile {
    /// The size in bytes.
    pub size: u64,
    /// The format, if it is known.
    pub kind: Option<FileKind>,
    /// The first bytes of the file.
    pub head: Vec<u8>,
}

/// How many bytes are read to find the dimensions of an image.
const HEADER_BYTES: u64 = 64 * 1024;
/// How many of the first bytes are kept to be shown.
const SHOWN_BYTES: usize = 64;

/// Describes a file that is not text.
pub(super) async fn describe_binary(path: &Path) -> Result<BinaryFile, FileError> {
    let path = path.to_path_buf();
    run_blocking(move || {
        let file = nofollow::open_file(&path).map_err(|error| map_open_error(&error))?;
        let metadata = file.metadata().map_err(|error| map_io_error(&error))?;
        ensure_regular(&metadata)?;
        let mut head = Vec::new();
        file.take(HEADER_BYTES).read_to_end(&mut head).map_err(|error| map_io_error(&error))?;
        let kind = file_kind::detect(&head);
        head.truncate(SHOWN_BYTES);
        Ok(BinaryFile { size: metadata.len(), kind, head })
    })
    .await
}

/// How many copies of a text there are while it is read, edited, compared and stored.
const COPIES: usize = 5;

/// Fails if the copies of a text of this size exceed the memory that the process may use: an allocation
/// that fails later would end the process.
fn ensure_memory(length: usize) -> Result<(), FileError> {
    let mut room = Vec::<u8>::new();
    let reserved = room.try_reserve_exact(length.saturating_mul(COPIES));
    // Otherwise the compiler removes an allocation that is not used.
    std::hint::black_box(&mut room);
    reserved.map_err(|_| map_io_error(&io::ErrorKind::OutOfMemory.into()))
}

pub(super) fn ensure_regular(metadata: &fs::Metadata) -> Result<(), FileError> {
    if metadata.is_file() {
        return Ok(());
    }
    if metadata.is_dir() {
        return Err(FileError::Folder);
    }
    Err(FileError::Special(special_file_kind(metadata)))
}

#[cfg(unix)]
fn special_file_kind(metadata: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special_file_kind(_: &fs::Metadata) -> &'static str {
    "a special file"
}

pub(super) fn map_io_error(error: &io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound => FileError::NotFound,
        io::ErrorKind::NotADirectory => FileError::NotAFolder,
        _ => FileError::System(format!("could not be accessed: {}", io_error_text(error))),
    }
}

pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match spawn_blocking(work).await {
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
    async fn a_link_that_appeared_after_the_permission_check_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let base = crate::real_path(temp.path()).unwrap();
        fs::create_dir_all(base.join("out/below")).unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        fs::write(base.join("out/f"), "secret").unwrap();
        std::os::unix::fs::symlink(base.join("out"), base.join("ws/d")).unwrap();
        // Permission was given when `ws/d` was a folder; now it is a link.
        assert_eq!(read(&base.join("ws/d/f")).await, Err(FileError::Moved));
        assert_eq!(
            save::write(&base.join("ws/d/new"), save::WritePrecondition::Any, b"x".to_vec()).await,
            Err(FileError::Moved)
        );
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 2);
        // A path without links works, and the temporary file is gone.
        let any = save::WritePrecondition::Any;
        save::write(&base.join("out/f"), any, b"new".to_vec()).await.unwrap();
        assert_eq!(read(&base.join("out/f")).await.unwrap().text, "new");
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 2);
    }
}
