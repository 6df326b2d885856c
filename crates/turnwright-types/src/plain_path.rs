//! Paths without `.` and `..`.

use std::path::{Component, Path, PathBuf};

/// A path with `.` and `..` resolved by the names alone.
pub fn normalize_lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
