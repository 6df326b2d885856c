//! Putting protected places right: what a command has written goes aside, what was there comes
//! back. Through folders that are held open, so that no link leads it elsewhere.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Entry;
use turnwright_workspace::pinned;

/// Bytes of one file that are kept.
const LONGEST_KEPT: u64 = 16 * 1024 * 1024;

/// Where what was written is kept.
pub(super) struct Work {
    aside: PathBuf,
    count: usize,
}

impl Work {
    pub(super) fn new(aside: &Path) -> Work {
        Work { aside: aside.to_path_buf(), count: 0 }
    }

    /// The folder, if there is anything in it.
    pub(super) fn into_folder(self) -> Option<PathBuf> {
        (self.count > 0).then_some(self.aside)
    }

    /// Takes away what stands at a path. A folder must be empty, and what it held be looked at
    /// before.
    pub(super) fn put_aside(&mut self, path: &Path) -> io::Result<()> {
        let (_held, path) = held(path)?;
        let kind = match fs::symlink_metadata(&path) {
            Ok(it) => it.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            // One with things in it that nobody looked at stays: they are not ours to judge.
            return match fs::remove_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                done => done,
            };
        }
        if kind.is_file() {
            self.keep(&path)?;
        }
        fs::remove_file(&path)
    }

    fn keep(&mut self, path: &Path) -> io::Result<()> {
        let mut from = pinned_file(path)?;
        make_private(&self.aside)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        loop {
            self.count += 1;
            let target = self.aside.join(format!("{}-{name}", self.count));
            match File::create_new(target) {
                Ok(mut to) => {
                    let mut part = io::Read::take(&mut from, LONGEST_KEPT);
                    return io::copy(&mut part, &mut to).map(drop);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Puts back what stood at a path. Nothing else stands there any more, or a folder as before.
pub(super) fn put_back(path: &Path, before: &Entry) -> io::Result<()> {
    let (_held, path) = held(path)?;
    let is_there = fs::symlink_metadata(&path).is_ok();
    match before {
        Entry::Folder if is_there => Ok(()),
        Entry::Folder => fs::create_dir(&path),
        _ if is_there => Err(io::ErrorKind::AlreadyExists.into()),
        Entry::Link(target) => link(target, &path),
        Entry::File(stamp, Some(content)) => {
            let mut file = File::create_new(&path)?;
            file.write_all(content)?;
            permit(&file, stamp.mode)
        }
        Entry::File(_, None) => Err(io::Error::other("it was too long for a copy")),
        Entry::Other => Err(io::Error::other("it was no file")),
    }
}

/// The path through its folder, which stays the same one as long as it is held.
fn held(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (held, folder) = pinned::folder(folder)?;
    Ok((held, folder.join(path.file_name().unwrap_or_default())))
}

/// A file that is no link, in a folder that is held.
#[cfg(unix)]
fn pinned_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
    File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}

#[cfg(not(unix))]
fn pinned_file(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(unix)]
fn permit(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))
}

#[cfg(not(unix))]
fn permit(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
