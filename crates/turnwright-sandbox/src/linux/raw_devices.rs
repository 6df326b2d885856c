//! Devices tell what no file does: the whole content of a disk, past everything that is hidden, memory, the
//! screen, and what the user types, also in the terminal of another program. Of those that a program in the
//! sandbox could open, only a few are open to it.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::super::SandboxProfile;

const DEVICES: &str = "/dev";
/// Those that hold nothing, and the terminal that the program was given itself.
const HARMLESS: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];
/// Folders without devices: the descriptors of the program, and shared memory.
const OTHER_FOLDERS: &[&str] = &["fd", "shm"];

/// All others that this process may read, and the folders that hold such, except for what the profile names.
pub(super) fn find(profile: &SandboxProfile) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from(DEVICES)];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let is_one_of = |names: &[&str]| names.iter().any(|it| name == *it);
            let is_named = profile.writable.iter().any(|it| path.starts_with(it));
            if is_named {
                continue;
            }
            if kind.is_dir() && !is_one_of(OTHER_FOLDERS) {
                let holds_named = profile.writable.iter().any(|it| it.starts_with(&path));
                if holds_named { &mut pending } else { &mut found }.push(path);
            } else if (kind.is_block_device() || kind.is_char_device()) && !is_one_of(HARMLESS) {
                found.extend(can_read(&path).then_some(path));
            }
        }
    }
    found
}

fn can_read(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK).is_ok()
}
