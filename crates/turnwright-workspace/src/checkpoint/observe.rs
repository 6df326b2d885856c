//! Observes the state of one path, with its content if it is to be stored.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::files::is_not_found;
use crate::nofollow::{self, permission_bits};
use turnwright_types::error_text::io_error_text;
use turnwright_types::file_change::FileState;
use turnwright_types::hash::{hex, sha256_hex, sha256_of_reader};
use turnwright_types::text::format_bytes;

/// Contents of more bytes are not stored.
pub(super) const MAX_STORED_BYTES: u64 = 10 * 1024 * 1024;
/// Files of more bytes are not even hashed.
const MAX_HASHED_BYTES: u64 = 256 * 1024 * 1024;

/// The state of a path, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedState {
    pub(super) state: FileState,
    /// The content, if the state says that it is stored.
    pub(super) bytes: Option<Arc<[u8]>>,
}

impl From<FileState> for ObservedState {
    fn from(state: FileState) -> ObservedState {
        ObservedState { state, bytes: None }
    }
}

impl ObservedState {
    pub(super) fn file(bytes: Vec<u8>, mode: u32) -> ObservedState {
        let is_kept = bytes.len() as u64 <= MAX_STORED_BYTES;
        let hash = sha256_hex(&bytes);
        let state = FileState::File { hash, size: bytes.len() as u64, mode, is_kept };
        ObservedState { state, bytes: is_kept.then(|| bytes.into()) }
    }

    pub(super) fn unknown(why: impl Into<String>) -> ObservedState {
        FileState::Unknown { why: why.into() }.into()
    }
}

/// The state of a path that has no links except for its last component. Blocks.
pub fn current_state(path: &Path) -> FileState {
    observe(path, false).state
}

/// Observes a path that has no links except for its last component. `keeps` says whether the
/// content is wanted. Blocks.
pub(super) fn observe(path: &Path, keeps: bool) -> ObservedState {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if is_not_found(&error) => return FileState::Absent.into(),
        Err(error) => return ObservedState::unknown(io_error_text(&error)),
    };
    if metadata.is_symlink() {
        return match fs::read_link(path) {
            Ok(target) => FileState::Link { target }.into(),
            Err(error) => ObservedState::unknown(io_error_text(&error)),
        };
    }
    if metadata.is_dir() {
        return FileState::Folder { mode: permission_bits(&metadata) }.into();
    }
    if !metadata.is_file() {
        return ObservedState::unknown("is not a regular file");
    }
    observe_file(path, keeps).unwrap_or_else(|error| ObservedState::unknown(io_error_text(&error)))
}

fn observe_file(path: &Path, keeps: bool) -> io::Result<ObservedState> {
    let file = nofollow::open_file(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(ObservedState::unknown("is not a regular file"));
    }
    if metadata.len() > MAX_HASHED_BYTES {
        return Ok(ObservedState::unknown(format_bytes(metadata.len())));
    }
    if keeps && metadata.len() <= MAX_STORED_BYTES {
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        (&file).take(MAX_STORED_BYTES + 1).read_to_end(&mut bytes)?;
        return Ok(ObservedState::file(bytes, permission_bits(&metadata)));
    }
    // The file may grow while it is read.
    let (hash, size) = sha256_of_reader(file.take(MAX_HASHED_BYTES))?;
    let mode = permission_bits(&metadata);
    Ok(FileState::File { hash: hex(&hash), size, mode, is_kept: false }.into())
}
