//! File changes: the state of a path before and after a call.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    Absent,
    /// A regular file.
    File {
        /// The SHA-256 of the content in hexadecimal.
        hash: String,
        /// The size in bytes.
        size: u64,
        /// The permission bits, as for `chmod`.
        mode: u32,
        /// True if the store has the content.
        is_kept: bool,
    },
    Link {
        /// The target as written in the link.
        target: PathBuf,
    },
    Folder {
        /// The permission bits.
        mode: u32,
    },
    /// Another kind of file, or one that could not be read.
    Unknown {
        /// The reason, for people.
        why: String,
    },
}

/// A change of one path by a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The absolute path.
    pub path: PathBuf,
    /// The state before the call.
    pub before: FileState,
    /// The state after the call. In an intent it is the expected state, if that is known; the same
    /// state as before withdraws an intent that was not carried out.
    pub after: Option<FileState>,
}

impl FileChange {
    /// Records that a command may change files that cannot be determined, with the reason. It has an empty
    /// path.
    pub fn uncovered(why: &str) -> FileChange {
        let before = FileState::Unknown { why: why.to_owned() };
        FileChange { path: PathBuf::new(), before, after: None }
    }
}

/// A record that is stored before a call changes files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeIntent {
    /// The files that the call is going to change, as far as they are known.
    pub files: Vec<FileChange>,
    /// Contents of those files that are to be stored.
    pub bytes: Vec<Arc<[u8]>>,
}
