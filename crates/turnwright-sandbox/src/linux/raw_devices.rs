//! Devices that tell what no file does: the whole content of a disk, past everything that is hidden, memory, and
//! what the user types. A program in the sandbox that belongs to root, or to a group such as `disk`, could open them.

use std::fs::{self, DirEntry};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

const DEVICES: &str = "/dev";
/// Folders with terminals and shared memory, which have no such devices.
const OTHER_FOLDERS: &[&str] = &["fd", "hugepages", "mqueue", "pts", "shm"];
/// Beginnings of the names of character devices: memory, disks below their file systems, and input.
const CHARACTER_DEVICES: &[&str] =
    &["bsg", "event", "hidraw", "kmem", "mem", "mouse", "nvme", "port", "sg", "uinput"];

/// Those that this process may read.
pub(super) fn find() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in entries(Path::new(DEVICES)) {
        let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
        if is_folder && !OTHER_FOLDERS.iter().any(|it| entry.file_name() == *it) {
            found.extend(entries(&entry.path()).filter(is_raw).map(|it| it.path()));
        } else if is_raw(&entry) {
            found.push(entry.path());
        }
    }
    found.retain(|it| rustix::fs::access(it, Access::READ_OK).is_ok());
    found
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn is_raw(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let is_named =
        || CHARACTER_DEVICES.iter().any(|it| name.as_encoded_bytes().starts_with(it.as_bytes()));
    entry.file_type().is_ok_and(|it| it.is_block_device() || it.is_char_device() && is_named())
}
