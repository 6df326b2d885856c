//! Makes mounts that are nowhere yet, and puts mounts at their places. Makes only system calls.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

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
