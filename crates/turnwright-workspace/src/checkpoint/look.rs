//! What there is at one path: its state, and its bytes where they are to be kept.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use ring::digest::{Context, SHA256, digest};

use turnwright_types::ids::hex;
use crate::pinned;
use turnwright_types::file_change::FileState;

/// The bytes of larger files are not kept.
pub const MOST_KEPT: u64 = 10 * 1024 * 1024;
/// Of still larger ones not even the hash is known.
const MOST_HASHED: u64 = 256 * 1024 * 1024;

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) state: FileState,
    /// All of them, if the state says that they are kept.
    pub(super) bytes: Option<Arc<[u8]>>,
}

impl From<FileState> for Found {
    fn from(state: FileState) -> Found {
        Found { state, bytes: None }
    }
}

impl Found {
    /// A file with these bytes.
    pub(super) fn file(bytes: Vec<u8>, mode: u32) -> Found {
        let is_kept = bytes.len() as u64 <= MOST_KEPT;
        let hash = hex(digest(&SHA256, &bytes).as_ref());
        let state = FileState::File { hash, size: bytes.len() as u64, mode, is_kept };
        Found { state, bytes: is_kept.then(|| bytes.into()) }
    }

    pub(super) fn unknown(why: impl Into<String>) -> Found {
        FileState::Unknown { why: why.into() }.into()
    }
}

/// Looks at a path, which is real but for its last part. `keeps` says whether bytes are wanted.
/// Reads the disk.
pub(super) fn look(path: &Path, keeps: bool) -> Found {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if is_nothing(&error) => return FileState::Absent.into(),
        Err(error) => return Found::unknown(error.to_string()),
    };
    if metadata.is_symlink() {
        return match fs::read_link(path) {
            Ok(target) => FileState::Link { target }.into(),
            Err(error) => Found::unknown(error.to_string()),
        };
    }
    if metadata.is_dir() {
        return FileState::Folder { mode: mode(&metadata) }.into();
    }
    if !metadata.is_file() {
        return Found::unknown("is no regular file");
    }
    content(path, keeps).unwrap_or_else(|error| Found::unknown(error.to_string()))
}

fn content(path: &Path, keeps: bool) -> io::Result<Found> {
    let mut file = pinned::file(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Found::unknown("is no regular file"));
    }
    if metadata.len() > MOST_HASHED {
        return Ok(Found::unknown(in_words(metadata.len())));
    }
    if keeps && metadata.len() <= MOST_KEPT {
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        (&file).take(MOST_KEPT + 1).read_to_end(&mut bytes)?;
        return Ok(Found::file(bytes, mode(&metadata)));
    }
    let (hash, size) = hashed(&mut file)?;
    Ok(FileState::File { hash, size, mode: mode(&metadata), is_kept: false }.into())
}

fn hashed(file: &mut File) -> io::Result<(String, u64)> {
    let mut hash = Context::new(&SHA256);
    let mut piece = vec![0; 256 * 1024];
    let mut size = 0;
    // It may grow while it is read.
    let mut rest = file.take(MOST_HASHED);
    loop {
        let count = rest.read(&mut piece)?;
        if count == 0 {
            return Ok((hex(hash.finish().as_ref()), size));
        }
        hash.update(&piece[..count]);
        size += count as u64;
    }
}

/// Whether this says that there is nothing.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The bits of a mode, as `chmod` takes them.
#[cfg(unix)]
pub(super) fn mode(metadata: &Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    metadata.mode() & 0o7777
}

#[cfg(not(unix))]
pub(super) fn mode(_: &Metadata) -> u32 {
    0o644
}

/// A number of bytes for people.
pub(super) fn in_words(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KB", bytes / 1_024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}
