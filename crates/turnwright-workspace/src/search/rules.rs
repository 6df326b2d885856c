//! Files with ignore rules that must not be opened. They are read whole and without a limit by
//! the library, and a project may link `.gitignore` to `/dev/zero`.

use std::fs;
use std::path::Path;

/// Where a folder has its rules.
const NAMES: &[&str] = &[".gitignore", ".ignore", ".git/info/exclude"];
/// Bytes of rules that somebody may have written.
const LARGEST: u64 = 1024 * 1024;

/// Whether the rules of a folder could hold up who reads them, or never end.
pub fn are_odd(folder: &Path) -> bool {
    NAMES.iter().any(|it| is_odd(&folder.join(it)))
}

fn is_odd(path: &Path) -> bool {
    let Ok(own) = fs::symlink_metadata(path) else { return false };
    if own.is_dir() || own.is_file() && own.len() <= LARGEST {
        return false;
    }
    // A link to a file is a usual thing; those that the kernel makes up say that they are empty.
    let is_usual = |it: fs::Metadata| it.is_file() && (1..=LARGEST).contains(&it.len());
    !(own.is_symlink() && fs::metadata(path).is_ok_and(is_usual))
}
