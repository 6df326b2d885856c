//! Makes mounts that are nowhere yet, copies mounts, and puts mounts at their places. Makes only system calls.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::real_path::open_without_symlinks;

/// Makes a mount of a file system in memory.
pub(super) fn new_tmpfs(mode: &CStr, size: &CStr) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, c"mode", mode)?;
    rustix::mount::fsconfig_set_string(&context, c"size", size)?;
    create(context.as_fd())
}

/// Makes a mount of the file system that was configured.
pub(super) fn create(context: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    rustix::mount::fsconfig_create(context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Puts a mount at a path. Does not follow a link at the end of the path.
pub(super) fn put(mount: BorrowedFd<'_>, folder: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", folder, path, how)?)
}

/// A copy of the mounts at and below a path, or `None` if it does not exist. Follows no link.
pub(super) fn clone_mounts(path: &CStr) -> io::Result<Option<OwnedFd>> {
    clone_if_found(open_without_symlinks(path))
}

/// A copy of the mounts at and below the target of a path that only the system can change.
pub(super) fn clone_target(path: &CStr) -> io::Result<Option<OwnedFd>> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    clone_if_found(opened.map_err(Into::into))
}

fn clone_if_found(opened: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(opened) => Ok(Some(rustix::mount::open_tree(opened, c"", how)?)),
    }
}

/// Puts such a copy at a path.
pub(super) fn put_mounts(clone: Option<&OwnedFd>, path: &CStr) -> io::Result<()> {
    clone.map_or(Ok(()), |clone| put(clone.as_fd(), CWD, path))
}
