//! Detects ignore files that must not be opened. The ignore library reads them whole and without a
//! limit, and a project may link `.gitignore` to `/dev/zero`.

use std::fs;
use std::path::Path;

const IGNORE_FILES: &[&str] = &[".gitignore", ".ignore", ".git/info/exclude"];
/// The size, in bytes, that a legitimate ignore file does not exceed.
const MAX_BYTES: u64 = 1024 * 1024;

/// Returns true if reading the ignore files of a folder could block, or never end.
pub(crate) fn has_unsafe_ignore_files(folder: &Path) -> bool {
    IGNORE_FILES.iter().any(|name| is_unsafe(&folder.join(name)))
}

fn is_unsafe(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    if metadata.is_dir() || metadata.is_file() && metadata.len() <= MAX_BYTES {
        return false;
    }
    // A link to a regular file is common; files that the kernel makes up report that they are
    // empty.
    let leads_to_safe_file = metadata.is_symlink()
        && fs::metadata(path)
            .is_ok_and(|target| target.is_file() && (1..=MAX_BYTES).contains(&target.len()));
    !leads_to_safe_file
}
