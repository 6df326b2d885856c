//! The stored form of file states.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::json::stored_as;
use turnwright_types::file_change::FileState;

stored_as!(FileState => FileStateJson);

#[derive(Deserialize, Serialize)]
#[serde(remote = "FileState", rename_all = "snake_case")]
enum FileStateJson {
    Absent,
    File { hash: String, size: u64, mode: u32, is_kept: bool },
    Link { target: PathBuf },
    Folder { mode: u32 },
    Unknown { why: String },
}
