//! Opening what was judged or found, and nothing that has taken its place since.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Opens a file that is reached without a link: a folder that was swapped for one while we walked
/// leads somewhere else, and the kernel refuses it in the very step that opens, which no check
/// before can. Never blocks on a FIFO.
///
/// # Errors
/// As the system has them; `ELOOP` for a link.
#[cfg(unix)]
pub fn file(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    unix::open(path, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Opens a file.
#[cfg(not(unix))]
pub fn file(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Whether something could not be opened because there is a link on the way.
#[cfg(unix)]
pub fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Nothing is known of links here.
#[cfg(not(unix))]
pub fn is_link(_: &io::Error) -> bool {
    false
}

/// A folder that stays the same one, whatever its name comes to mean: held open, and a path that
/// leads through what is held. Where the system has no such paths (no `/proc`, macOS) it is only
/// looked at whether there is a link now.
///
/// # Errors
/// As the system has them; `ELOOP` for a link.
#[cfg(unix)]
pub fn folder(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    Ok(through(unix::open(path, unix::FOLDER)?, path))
}

/// The same; what is missing of it is made, each folder in the one before it, so that no link that
/// comes meanwhile has a folder made where it leads.
///
/// # Errors
/// As the system has them; `ELOOP` for a link.
#[cfg(unix)]
pub fn made_folder(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let held = match unix::open(path, unix::FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => unix::walk(path, true)?,
        result => result?,
    };
    Ok(through(held, path))
}

/// A folder right in one that is held, by the path that leads through that. A link is not
/// followed.
///
/// # Errors
/// As the system has them; `ELOOP` or `ENOTDIR` for a link.
#[cfg(unix)]
pub fn folder_in(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let held = openat(CWD, path, unix::FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(through(held.into(), path))
}

#[cfg(unix)]
fn through(held: File, path: &Path) -> (Option<File>, PathBuf) {
    use std::os::fd::AsRawFd;
    if cfg!(target_os = "linux") {
        let through = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        if through.exists() {
            return (Some(held), through);
        }
    }
    (None, path.to_path_buf())
}

/// A folder.
///
/// # Errors
/// As the system has them.
#[cfg(not(unix))]
pub fn folder(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    Ok((None, path.to_path_buf()))
}

/// A folder; what is missing of it is made.
///
/// # Errors
/// As the system has them.
#[cfg(not(unix))]
pub fn made_folder(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    std::fs::create_dir_all(path)?;
    folder(path)
}

/// A folder in another.
///
/// # Errors
/// As the system has them.
#[cfg(not(unix))]
pub fn folder_in(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    folder(path)
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::{Component, Path};

    use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
    use rustix::io::Errno;

    /// To get somewhere through a folder it need not be readable.
    #[cfg(target_os = "linux")]
    pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
    #[cfg(not(target_os = "linux"))]
    pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

    /// Opens what is reached without a link.
    pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        if let Some(file) = in_one_step(path, flags)? {
            return Ok(file);
        }
        step_by_step(path, flags)
    }

    /// The same on systems that cannot do it at once.
    pub(super) fn step_by_step(path: &Path, flags: OFlags) -> io::Result<File> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return walk(path, false);
        };
        let folder = walk(folder, false)?;
        step(&folder.into(), name, flags).map_err(Into::into).map(Into::into)
    }

    /// `None` from kernels without `openat2` (before 5.6), and where a filter does not know it.
    #[cfg(target_os = "linux")]
    fn in_one_step(path: &Path, flags: OFlags) -> io::Result<Option<File>> {
        use rustix::fs::{ResolveFlags, openat2};
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..3 {
            match openat2(CWD, path, flags, Mode::empty(), how) {
                Ok(file) => return Ok(Some(File::from(file))),
                // The tree was changed at this very moment.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Goes from folder to folder, each opened in the one before, which stays the same whatever
    /// happens to its name. What is missing is made if that is wanted.
    pub(super) fn walk(path: &Path, makes: bool) -> io::Result<File> {
        let start = if path.is_absolute() { "/" } else { "." };
        let mut held = openat(CWD, start, FOLDER | OFlags::CLOEXEC, Mode::empty())?;
        for part in path.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::RootDir | Component::CurDir => continue,
                Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
            };
            held = match step(&held, name, FOLDER) {
                Err(Errno::NOENT) if makes => {
                    match mkdirat(&held, name, Mode::from_raw_mode(0o777)) {
                        // Somebody else was faster. Whatever it is, it is opened like the rest.
                        Ok(()) | Err(Errno::EXIST) => step(&held, name, FOLDER)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                result => result?,
            };
        }
        Ok(held.into())
    }

    fn step(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(folder, name, flags, Mode::empty()) {
            // So says the system of a link, too.
            Err(Errno::NOTDIR) if is_link(folder, name) => Err(Errno::LOOP),
            result => result,
        }
    }

    fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Symlink)
    }
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn old_systems_come_to_the_same_place_step_by_step() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("d/e")).unwrap();
        fs::write(base.join("d/e/f"), "text").unwrap();
        std::os::unix::fs::symlink("d", base.join("link")).unwrap();
        std::os::unix::fs::symlink("f", base.join("d/e/g")).unwrap();
        let read = rustix::fs::OFlags::RDONLY;
        let text = io::read_to_string(unix::step_by_step(&base.join("d/e/f"), read).unwrap());
        assert_eq!(text.unwrap(), "text");
        let table = [
            ("link/e/f", rustix::io::Errno::LOOP),
            ("d/e/g", rustix::io::Errno::LOOP),
            ("d/e/f/x", rustix::io::Errno::NOTDIR),
            ("d/x/f", rustix::io::Errno::NOENT),
            ("d/../d/e/f", rustix::io::Errno::INVAL),
        ];
        for (path, expected) in table {
            let error = unix::step_by_step(&base.join(path), read).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()), "{path}");
        }
    }

    #[test]
    fn a_missing_folder_is_made_in_the_folder_that_was_meant_and_never_behind_a_link() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("out")).unwrap();
        fs::create_dir_all(base.join("ws")).unwrap();
        std::os::unix::fs::symlink(base.join("out"), base.join("ws/link")).unwrap();
        let (_held, through) = made_folder(&base.join("ws/a/b")).unwrap();
        assert!(base.join("ws/a/b").is_dir() && through.is_dir());
        let error = made_folder(&base.join("ws/link/x/y")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 0);
        assert!(folder_in(&base.join("ws/link")).is_err());
    }
}
