//! Restores protected paths: the files that a command has written move to quarantine, and the entries from
//! before are put back. Works through pinned parent folders, so that no link redirects it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::SnapshotEntry;
use turnwright_types::private_file;
use turnwright_types::text;
use turnwright_workspace::nofollow;

/// At most this many bytes of each quarantined file are kept.
const MAX_QUARANTINED_BYTES: u64 = 16 * 1024 * 1024;

/// Of a longer name, the end is a part of the name in the quarantine.
const MAX_NAME_CHARS: usize = 50;

/// The folder that keeps the files that a command has written.
pub(super) struct Quarantine {
    folder: PathBuf,
    count: usize,
}

impl Quarantine {
    pub(super) fn new(quarantine: &Path) -> Quarantine {
        Quarantine { folder: quarantine.to_path_buf(), count: 0 }
    }

    /// The folder, if anything was put into it.
    pub(super) fn into_folder(self) -> Option<PathBuf> {
        (self.count > 0).then_some(self.folder)
    }

    /// Removes the entry at a path, after copying a file into the quarantine. A folder is removed
    /// only if it is empty, so its entries must be handled first.
    pub(super) fn quarantine_path(&mut self, path: &Path) -> io::Result<()> {
        let (_held, path) = pin_parent(path)?;
        let kind = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            // A folder with unprotected entries stays.
            return match fs::remove_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                done => done,
            };
        }
        let kept = if kind.is_file() { self.keep(&path) } else { Ok(()) };
        fs::remove_file(&path)?;
        // Nothing that can be run is left in any case.
        kept.map_err(|error| io::Error::new(error.kind(), "it is gone, but no copy could be kept"))
    }

    fn keep(&mut self, path: &Path) -> io::Result<()> {
        let mut from = nofollow::open_pinned_file(path, false)?;
        private_file::create_folder(&self.folder)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let end = text::last_chars(&name, MAX_NAME_CHARS);
        loop {
            self.count += 1;
            let target = self.folder.join(format!("{}-{end}", self.count));
            match File::create_new(target) {
                Ok(mut to) => {
                    let mut part = io::Read::take(&mut from, MAX_QUARANTINED_BYTES);
                    return io::copy(&mut part, &mut to).map(drop);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Restores the entry that was at a path. Nothing else must be there, except for a folder that was there
/// before.
pub(super) fn put_back(path: &Path, before: &SnapshotEntry) -> io::Result<()> {
    let (_held, path) = pin_parent(path)?;
    let is_there = fs::symlink_metadata(&path).is_ok();
    match before {
        SnapshotEntry::Folder if is_there => Ok(()),
        SnapshotEntry::Folder => fs::create_dir(&path),
        _ if is_there => Err(io::ErrorKind::AlreadyExists.into()),
        SnapshotEntry::Link(target) => nofollow::create_link(target, &path),
        SnapshotEntry::File(stamp, Some(content)) => {
            let mut file = File::create_new(&path)?;
            file.write_all(content)?;
            nofollow::set_permission_bits(&file, stamp.mode)
        }
        SnapshotEntry::File(_, None) => Err(io::Error::other("it was too long to be copied")),
        SnapshotEntry::Other => Err(io::Error::other("it was no file")),
    }
}

/// The path through its pinned folder, and the handle that pins it.
fn pin_parent(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (pin_parent, folder) = nofollow::open_folder(folder)?;
    make_changeable(&folder);
    Ok((pin_parent, folder.join(path.file_name().unwrap_or_default())))
}

/// Gives the owner of a folder the right to change it, which a command may have taken away.
#[cfg(unix)]
fn make_changeable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = fs::metadata(folder) else { return };
    let mode = metadata.permissions().mode();
    if mode & 0o700 != 0o700 {
        let all = fs::Permissions::from_mode(mode | 0o700);
        fs::set_permissions(folder, all).ok();
    }
}

#[cfg(not(unix))]
fn make_changeable(_: &Path) {}
