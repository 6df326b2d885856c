//! Reads files from the disk, and the beginning of small text files that the agent needs itself, not for a call:
//! instructions, notes, skills. Those reads are bounded, and links in a project cannot lead them outside of it. All
//! of it may block and runs on blocking threads.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::file_kind::{self, FileKind};
use super::text::{FileText, decode_head};
use super::{FileError, READ_LIMIT};
use crate::{nofollow, real_path};
use tokio::task::spawn_blocking;
use turnwright_types::effect::is_secret_path;
use turnwright_types::error_text::io_error_text;
use turnwright_types::message::Media;
use turnwright_types::{redact, text};

/// The size of a regular file. Blocks.
pub(super) fn file_size(path: &Path) -> Result<u64, FileError> {
    let metadata = fs::metadata(path).map_err(|error| map_io_error(&error))?;
    ensure_regular(&metadata)?;
    Ok(metadata.len())
}

/// Reads the text of a regular file. Blocks.
pub(super) fn read_text(path: &Path) -> Result<FileText, FileError> {
    let bytes = read_bytes(path)?;
    let size = bytes.len() as u64;
    FileText::decode(bytes).ok_or(FileError::Binary(size))
}

/// Reads a regular file that is not too large. Blocks.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = nofollow::open_file(path)?;
    let metadata = file.metadata()?;
    // Checked on the open file, because the path may lead to another file by now.
    ensure_regular(&metadata)?;
    read_whole(&file, metadata.len())
}

/// Reads an opened file that has about this many bytes, unless it is too large.
pub(super) fn read_whole(file: &File, length: u64) -> Result<Vec<u8>, FileError> {
    if length > READ_LIMIT {
        return Err(FileError::TooLarge(length));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    ensure_memory(length)?;
    let mut bytes = Vec::with_capacity(length);
    file.take(READ_LIMIT + 1).read_to_end(&mut bytes)?;
    // The file may have grown since; a truncated text would lose data when it is written back.
    if bytes.len() as u64 > READ_LIMIT {
        return Err(FileError::TooLarge(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Like [`read_text`], on a blocking thread.
pub(super) async fn read(path: &Path) -> Result<FileText, FileError> {
    run_at(path, read_text).await
}

impl From<io::Error> for FileError {
    /// Takes a link for one that has come since the path was resolved.
    fn from(error: io::Error) -> FileError {
        #[cfg(target_os = "linux")]
        if nofollow::is_link_error(&error) {
            return FileError::Moved;
        }
        map_io_error(&error)
    }
}

/// The largest image or PDF file that is worth its tokens.
pub(super) const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024;

/// Reads an image of a format that models accept, detected by its first bytes. Blocks.
pub(super) fn read_image(path: &Path) -> Result<Media, FileError> {
    let file = nofollow::open_file(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes)?;
    let kind = file_kind::detect(&bytes).and_then(|kind| kind.image_mime);
    let mime = kind.ok_or(FileError::Binary(size))?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(FileError::LargePicture(size));
    }
    Ok(Media { mime: mime.to_owned(), data: BASE64.encode(bytes) })
}

/// A file that is not text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryFile {
    pub size: u64,
    /// The format, if it is known.
    pub kind: Option<FileKind>,
    /// The first bytes of the file, without keys: nobody would find one in the digits that are shown.
    pub head: Vec<u8>,
}

/// How many bytes are read to find the dimensions of an image.
const HEADER_BYTES: u64 = 64 * 1024;
/// How many of the first bytes are kept to be shown.
const SHOWN_BYTES: usize = 64;

/// Describes a file that is not text. Blocks.
pub(super) fn describe_binary(path: &Path) -> Result<BinaryFile, FileError> {
    let file = nofollow::open_file(path)?;
    let metadata = file.metadata()?;
    ensure_regular(&metadata)?;
    let mut bytes = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut bytes)?;
    let kind = file_kind::detect(&bytes);
    let mut head = redact::bytes(&bytes).unwrap_or(bytes);
    head.truncate(SHOWN_BYTES);
    Ok(BinaryFile { size: metadata.len(), kind, head })
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
    reserved.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory).into())
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

/// Returns true if this error means that nothing is at the path.
pub(crate) fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The folders above a path that do not exist, the deepest first.
pub(crate) fn missing_parents(path: &Path) -> Vec<PathBuf> {
    path.ancestors()
        .skip(1)
        .take_while(|above| fs::symlink_metadata(above).is_err_and(|error| is_not_found(&error)))
        .map(Path::to_path_buf)
        .collect()
}

pub(super) fn map_io_error(error: &io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound => FileError::NotFound,
        io::ErrorKind::NotADirectory => FileError::NotAFolder,
        _ => FileError::System(format!("could not be accessed: {}", io_error_text(error))),
    }
}

/// Like [`run_blocking`], with a path.
pub(super) async fn run_at<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let path = path.to_path_buf();
    run_blocking(move || work(&path)).await
}

/// Does work on a blocking thread. Fails if the process is ending.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let result = spawn_blocking(work).await;
    result.unwrap_or_else(|error| Err(FileError::System(error.to_string())))
}

/// The beginning of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// The path with all links resolved.
    pub(crate) real_path: PathBuf,
    /// The text, at most as long as the limit; empty if there is none.
    pub text: String,
    /// False for a file that is not text, whatever the encoding.
    pub is_text: bool,
    /// True if `text` is the whole file.
    pub is_complete: bool,
    pub modified: Option<SystemTime>,
}

/// Reads the first `limit` bytes of the text of a regular file, in any encoding that can be detected. With
/// `within`, a resolved path, the file must lie below it and must not be one that may hold secrets. Blocks.
pub fn read_head(path: &Path, within: Option<&Path>, limit: usize) -> Option<FileHead> {
    // Most paths have no links, which the kernel finds out while it opens the file.
    if is_plain(path) && within.is_none_or(|folder| path.starts_with(folder)) {
        match nofollow::open_file(path) {
            Ok(file) if is_allowed(path, within) => {
                return read_opened(file, path.to_path_buf(), limit);
            }
            Ok(_) => {}
            Err(error) if nofollow::is_link_error(&error) => {}
            Err(_) => return None,
        }
    }
    let real = real_path(path).ok()?;
    if !is_allowed(&real, within) {
        tracing::info!(path = %path.display(), "not read: a link leads out of the folder, or it may hold secrets");
        return None;
    }
    read_opened(nofollow::open_file(&real).ok()?, real, limit)
}

fn is_allowed(real: &Path, within: Option<&Path>) -> bool {
    within.is_none_or(|folder| real.starts_with(folder) && !is_secret_path(real))
}

/// Returns true if a path that can be opened without following a link is its own resolved path. On other
/// systems, names can be written in more than one way.
fn is_plain(path: &Path) -> bool {
    cfg!(target_os = "linux")
        && path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn read_opened(file: File, real_path: PathBuf, limit: usize) -> Option<FileHead> {
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let size = usize::try_from(metadata.len()).unwrap_or(limit);
    // A text in UTF-16 may have twice as many bytes, and a byte order mark.
    let max_bytes = limit.saturating_mul(2).saturating_add(4);
    let mut bytes = Vec::with_capacity(size.min(max_bytes) + 1);
    file.take(max_bytes as u64).read_to_end(&mut bytes).ok()?;
    let is_cut = bytes.len() == max_bytes;
    let decoded = decode_head(&bytes, is_cut);
    let is_text = decoded.is_some();
    let mut text = decoded.unwrap_or_default();
    let end = text::floor(&text, limit);
    let is_complete = !is_cut && end == text.len();
    text.truncate(end);
    Some(FileHead { real_path, text, is_text, is_complete, modified: metadata.modified().ok() })
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::save;

    #[tokio::test]
    async fn a_link_that_appeared_after_the_permission_check_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        fs::create_dir_all(base.join("out/below")).unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        fs::write(base.join("out/f"), "secret").unwrap();
        symlink(base.join("out"), base.join("ws/d")).unwrap();
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

    #[test]
    fn only_the_beginning_of_regular_files_of_the_project_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        let ws = base.join("ws");
        fs::create_dir_all(ws.join("folder")).unwrap();
        fs::write(base.join("outside"), "x").unwrap();
        fs::write(ws.join(".env"), "x").unwrap();
        fs::write(ws.join("a"), "\u{feff}aé").unwrap();
        symlink("../outside", ws.join("out")).unwrap();
        symlink(".env", ws.join("keys")).unwrap();
        symlink("a", ws.join("in")).unwrap();
        symlink("loop", ws.join("loop")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(ws.join("fifo")).status();
        assert!(made.unwrap().success());
        let seen = |name: &str, limit| {
            read_head(&ws.join(name), Some(&ws), limit).map(|head| (head.text, head.is_complete))
        };
        for name in ["out", "keys", "loop", "fifo", "folder", "missing"] {
            assert_eq!(seen(name, 9), None, "{name}");
        }
        assert_eq!(seen("in", 9), Some(("aé".to_owned(), true)));
        assert_eq!(seen("a", 2), Some(("a".to_owned(), false)));
        assert_eq!(read_head(&ws.join("out"), None, 9).unwrap().text, "x");
    }
}
