//! Opens exactly the path that was checked: no symbolic link is followed that may have replaced a
//! component since.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

/// Opens a file without following any symbolic link on the way. If a folder was swapped for a link
/// since the path was checked, the kernel refuses in the same step that opens, which a separate
/// check could not guarantee. Does not block on a FIFO.
///
/// # Errors
/// The errors of the system; `ELOOP` for a link.
#[cfg(unix)]
pub fn open_file(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    unix::open(path, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Windows has no such step: whether there is a link on the way is looked up before.
#[cfg(not(unix))]
pub fn open_file(path: &Path) -> io::Result<File> {
    windows::refuse_links(path)?;
    windows::open(path, false)
}

/// Opens a file in a pinned folder. A link in its last component is not followed. Does not block on a
/// FIFO.
///
/// # Errors
/// The errors of the system; `ELOOP` for a link.
#[cfg(unix)]
pub fn open_pinned_file(path: &Path, writes: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
    File::options().read(true).write(writes).custom_flags(flags.cast_signed()).open(path)
}

#[cfg(not(unix))]
pub fn open_pinned_file(path: &Path, writes: bool) -> io::Result<File> {
    windows::refuse_link(path)?;
    windows::open(path, writes)
}

/// Creates a symbolic link.
///
/// # Errors
/// The errors of the system, which may not support symbolic links.
#[cfg(unix)]
pub fn create_link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Windows has two kinds of links, and lets only some users create them.
#[cfg(not(unix))]
pub fn create_link(target: &Path, path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.join(target).is_dir() {
        std::os::windows::fs::symlink_dir(target, path)
    } else {
        std::os::windows::fs::symlink_file(target, path)
    }
}

/// Gives an open file these permissions, unless it has them: shared disks may refuse even a change to what is there.
pub fn set_permissions(file: &File, wanted: Permissions) -> io::Result<()> {
    if file.metadata()?.permissions() == wanted { Ok(()) } else { file.set_permissions(wanted) }
}

/// Sets the permission bits of a file, where the system has them.
#[cfg(unix)]
pub fn set_permission_bits(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut wanted = file.metadata()?.permissions();
    wanted.set_mode((wanted.mode() & !0o7777) | (mode & 0o7777));
    set_permissions(file, wanted)
}

#[cfg(not(unix))]
pub fn set_permission_bits(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// The permission bits of a file, as for `chmod`.
#[cfg(unix)]
pub fn permission_bits(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o7777
}

#[cfg(not(unix))]
pub fn permission_bits(_: &Metadata) -> u32 {
    0o644
}

/// Returns true if opening failed because there is a link on the path.
#[cfg(unix)]
pub fn is_link_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(not(unix))]
pub fn is_link_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(windows::STOPPED_ON_LINK)
}

/// Opens a folder and returns it with a path that leads through the open descriptor, so that it
/// keeps meaning the same folder whatever its name refers to later. Where the system has no such
/// paths (no `/proc`, macOS) the path is only checked for links once.
///
/// # Errors
/// The errors of the system; `ELOOP` for a link.
#[cfg(unix)]
pub fn open_folder(path: &Path) -> io::Result<HeldPath> {
    Ok(with_fd_path(unix::open(path, unix::FOLDER)?, path))
}

/// A path, and the folder that is held open so that it keeps its meaning.
pub type HeldPath = (Option<File>, PathBuf);

/// The path of an entry through its folder, which `hold` opens or creates.
///
/// # Errors
/// The errors of `hold`, and one for a path that names no entry of a folder.
pub fn hold_entry(path: &Path, hold: fn(&Path) -> io::Result<HeldPath>) -> io::Result<HeldPath> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let (held, folder) = hold(folder)?;
    Ok((held, folder.join(name)))
}

/// Like [`open_folder`], but creates what is missing. Each folder is created in the open one above
/// it, so that a link that appears meanwhile cannot redirect the creation.
///
/// # Errors
/// The errors of the system; `ELOOP` for a link.
#[cfg(unix)]
pub fn create_folder(path: &Path) -> io::Result<HeldPath> {
    let held = match unix::open(path, unix::FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => unix::walk(path, true)?,
        result => result?,
    };
    Ok(with_fd_path(held, path))
}

/// Opens a direct child of a held folder, by the path that leads through that. A link is not
/// followed.
///
/// # Errors
/// The errors of the system; `ELOOP` or `ENOTDIR` for a link.
#[cfg(unix)]
pub(crate) fn open_child_folder(path: &Path) -> io::Result<HeldPath> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let held = openat(CWD, path, unix::FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(with_fd_path(held.into(), path))
}

#[cfg(unix)]
fn with_fd_path(held: File, path: &Path) -> HeldPath {
    use std::os::fd::AsRawFd;
    if cfg!(target_os = "linux") {
        let through = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        if through.exists() {
            return (Some(held), through);
        }
    }
    (None, path.to_path_buf())
}

/// Windows has no paths through open folders, so the path is only checked for links once.
///
/// # Errors
/// The errors of the system, or one that says that there is a link.
#[cfg(not(unix))]
pub fn open_folder(path: &Path) -> io::Result<HeldPath> {
    windows::refuse_links(path)?;
    open_child_folder(path)
}

/// Opens a folder and creates what is missing.
#[cfg(not(unix))]
pub fn create_folder(path: &Path) -> io::Result<HeldPath> {
    windows::refuse_links(path)?;
    std::fs::create_dir_all(path)?;
    open_folder(path)
}

/// Opens a direct child of a folder that was opened before, so only the child is checked.
#[cfg(not(unix))]
pub(crate) fn open_child_folder(path: &Path) -> io::Result<HeldPath> {
    windows::refuse_link(path)?;
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok((None, path.to_path_buf()))
}

#[cfg(not(unix))]
mod windows {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::Path;

    use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_BACKUP_SEMANTICS;

    /// `ERROR_STOPPED_ON_SYMLINK`.
    pub(super) const STOPPED_ON_LINK: i32 = 681;

    /// Opens a file, or a folder as on other systems, so that it can be told apart from what may not be opened.
    pub(super) fn open(path: &Path, writes: bool) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(writes).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
    }

    /// Fails if a part of a path is a link or a junction, or if a file is taken for a folder. What does not exist
    /// is none of them.
    pub(super) fn refuse_links(path: &Path) -> io::Result<()> {
        refuse_link(path)?;
        for folder in path.ancestors().skip(1).filter(|folder| folder.file_name().is_some()) {
            refuse_link(folder)?;
            if folder.is_file() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(())
    }

    pub(super) fn refuse_link(path: &Path) -> io::Result<()> {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link { Err(io::Error::from_raw_os_error(STOPPED_ON_LINK)) } else { Ok(()) }
    }
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

    /// Passing through a folder does not need read permission for it.
    #[cfg(target_os = "linux")]
    pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
    #[cfg(not(target_os = "linux"))]
    pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

    /// Opens a path without following links.
    pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        if let Some(file) = open_with_openat2(path, flags)? {
            return Ok(file);
        }
        open_step_by_step(path, flags)
    }

    /// The same on systems that cannot do it in one system call.
    pub(super) fn open_step_by_step(path: &Path, flags: OFlags) -> io::Result<File> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return walk(path, false);
        };
        let folder = walk(folder, false)?;
        step(&folder.into(), name, flags).map_err(Into::into).map(Into::into)
    }

    /// Uses `openat2`; `None` if the kernel (before 5.6) or a seccomp filter does not support it.
    #[cfg(target_os = "linux")]
    fn open_with_openat2(path: &Path, flags: OFlags) -> io::Result<Option<File>> {
        use rustix::fs::{ResolveFlags, openat2};
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..3 {
            match openat2(CWD, path, flags, Mode::empty(), how) {
                Ok(file) => return Ok(Some(File::from(file))),
                // The tree was modified concurrently.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Opens each folder of a path relative to the one before, which stays the same whatever
    /// happens to its name. With `create`, missing folders are created.
    pub(super) fn walk(path: &Path, create: bool) -> io::Result<File> {
        let start = if path.is_absolute() { "/" } else { "." };
        let mut held = openat(CWD, start, FOLDER | OFlags::CLOEXEC, Mode::empty())?;
        for part in path.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::RootDir | Component::CurDir => continue,
                Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
            };
            held = match step(&held, name, FOLDER) {
                Err(Errno::NOENT) if create => {
                    match mkdirat(&held, name, Mode::from_raw_mode(0o777)) {
                        // Another process has created it. Whatever it is, it is opened like the
                        // rest.
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
            // The system also reports this for a link.
            Err(Errno::NOTDIR) if is_link(folder, name) => Err(Errno::LOOP),
            result => result,
        }
    }

    fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn step_by_step_opening_gives_the_same_result() {
        let folder = tempfile::tempdir().unwrap();
        let base = crate::real_path(folder.path()).unwrap();
        fs::create_dir_all(base.join("d/e")).unwrap();
        fs::write(base.join("d/e/f"), "text").unwrap();
        std::os::unix::fs::symlink("d", base.join("link")).unwrap();
        std::os::unix::fs::symlink("f", base.join("d/e/g")).unwrap();
        let read = rustix::fs::OFlags::RDONLY;
        let text = io::read_to_string(unix::open_step_by_step(&base.join("d/e/f"), read).unwrap());
        assert_eq!(text.unwrap(), "text");
        let table = [
            ("link/e/f", rustix::io::Errno::LOOP),
            ("d/e/g", rustix::io::Errno::LOOP),
            ("d/e/f/x", rustix::io::Errno::NOTDIR),
            ("d/x/f", rustix::io::Errno::NOENT),
            ("d/../d/e/f", rustix::io::Errno::INVAL),
        ];
        for (path, expected) in table {
            let error = unix::open_step_by_step(&base.join(path), read).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()), "{path}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_refuses_modes_leaves_those_that_are_right() {
        // Nobody may change the mode of this file.
        let file = File::open("/proc/self/status").unwrap();
        let found = file.metadata().unwrap();
        set_permissions(&file, found.permissions()).unwrap();
        set_permission_bits(&file, permission_bits(&found)).unwrap();
        set_permission_bits(&file, 0o600).unwrap_err();
    }

    #[test]
    fn missing_folders_are_never_created_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let base = crate::real_path(folder.path()).unwrap();
        fs::create_dir_all(base.join("out")).unwrap();
        fs::create_dir_all(base.join("ws")).unwrap();
        std::os::unix::fs::symlink(base.join("out"), base.join("ws/link")).unwrap();
        let (_held, through) = create_folder(&base.join("ws/a/b")).unwrap();
        assert!(base.join("ws/a/b").is_dir() && through.is_dir());
        let error = create_folder(&base.join("ws/link/x/y")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        assert_eq!(fs::read_dir(base.join("out")).unwrap().count(), 0);
        assert!(open_child_folder(&base.join("ws/link")).is_err());
    }
}
