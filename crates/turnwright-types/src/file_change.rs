//! Changes of files: what was at a path before a call and what is there after it.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// The SHA-256 of its bytes in hexadecimal.
        hash: String,
        /// How many there are.
        size: u64,
        /// The bits of its mode, as `chmod` takes them.
        mode: u32,
        /// Whether the bytes are kept.
        is_kept: bool,
    },
    /// A symbolic link.
    Link {
        /// Where it points to, as it is written.
        target: PathBuf,
    },
    /// A folder.
    Folder {
        /// The bits of its mode.
        mode: u32,
    },
    /// Something else, or something that could not be read; and why.
    Unknown {
        /// For people.
        why: String,
    },
}

/// What a call has done to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Absolute.
    pub path: PathBuf,
    /// What was there before.
    pub before: FileState,
    /// What was there after; for an intent, what is going to be there, as far as that is known. The
    /// same as before takes back what was intended and not done.
    pub after: Option<FileState>,
}

/// What is noted before a call does something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intent {
    /// The files that it is going to change, as far as that is known.
    pub files: Vec<Change>,
    /// Bytes of theirs, to be kept.
    pub bytes: Vec<Arc<[u8]>>,
}
