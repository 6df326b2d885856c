//! A private layer over one of the user's caches: the program sees the cache and may change it, but
//! what it writes goes into the layer. It is an overlay file system, which exists in the program's
//! mount namespace only.
//!
//! Programs that run at the same time may share a layer. What one of them writes, the other may then
//! see late, because each mount remembers for itself what it has found.

use std::ffi::{CStr, CString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::FsOpenFlags;

use super::super::PrivateLayer;
use super::mounts;

/// At most this many programs use a layer at the same time.
const MAX_WORK_FOLDERS: usize = 64;

/// An overlay that is ready to be mounted.
#[derive(Debug)]
pub(super) struct CacheOverlay {
    path: CString,
    options: [(&'static CStr, CString); 3],
    /// The work folder, locked for as long as a process has this descriptor: the kernel spoils the work
    /// folder of an overlay when another is mounted with it.
    work: OwnedFd,
}

impl CacheOverlay {
    /// Creates the folders of the layer.
    pub(super) fn prepare(cache: &PrivateLayer) -> io::Result<CacheOverlay> {
        let upper = cache.private.join("upper");
        create_private_folder(&upper)?;
        let (work_path, work) = lock_work_folder(&cache.private)?;
        let options = [
            (c"lowerdir", option(&cache.path)?),
            (c"upperdir", option(&upper)?),
            (c"workdir", option(&work_path)?),
        ];
        Ok(CacheOverlay { path: option(&cache.path)?, options, work })
    }

    /// The descriptor that must stay open for as long as the overlay is used.
    pub(super) fn lock(&self) -> RawFd {
        self.work.as_raw_fd()
    }

    /// Makes the mount, which is nowhere yet.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (name, value) in &self.options {
            rustix::mount::fsconfig_set_string(&context, *name, value.as_c_str())?;
        }
        // Other attributes need rights that a user namespace does not have.
        rustix::mount::fsconfig_set_flag(&context, c"userxattr")?;
        mounts::create(context.as_fd())
    }

    /// Puts the mount over the cache.
    pub(super) fn attach(&self, mount: BorrowedFd<'_>) -> io::Result<()> {
        mounts::put(mount, CWD, &self.path)
    }
}

/// Finds or creates a work folder that no other overlay uses.
fn lock_work_folder(private: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    for number in 0..MAX_WORK_FOLDERS {
        let path = private.join(format!("work-{number}"));
        create_private_folder(&path)?;
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(&path, how, Mode::empty())?);
        match folder.try_lock() {
            Ok(()) => return Ok((path, folder.into())),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("too many programs use this cache"))
}

fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A path as the value of an option, in which these characters would have a meaning.
fn option(path: &Path) -> io::Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().any(|byte| b":,\\".contains(byte)) {
        return Err(io::Error::other("the path has characters with a meaning for overlays"));
    }
    Ok(CString::new(bytes)?)
}
