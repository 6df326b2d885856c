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
    use std::os::unix::fs::OpenOptionsExt;
    #[cfg(target_os = "linux")]
    if let Some(file) = without_links(path, OFlags::RDONLY | OFlags::NONBLOCK)? {
        return Ok(file);
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
    File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// Opens a file.
#[cfg(not(unix))]
pub fn file(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A folder that stays the same one, whatever its name comes to mean: held open, and a path that
/// leads through what is held.
///
/// # Errors
/// As the system has them; `ELOOP` for a link.
pub fn folder(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::OFlags;
        use std::os::fd::AsRawFd;
        if let Some(held) = without_links(path, OFlags::RDONLY | OFlags::DIRECTORY)? {
            let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
            if path.exists() {
                return Ok((Some(held), path));
            }
        }
    }
    Ok((None, path.to_path_buf()))
}

/// `None` from kernels without `openat2` (before 5.6).
#[cfg(target_os = "linux")]
fn without_links(path: &Path, flags: rustix::fs::OFlags) -> io::Result<Option<File>> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::Errno;
    let flags = flags | OFlags::CLOEXEC;
    for _ in 0..3 {
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(file) => return Ok(Some(File::from(file))),
            // The tree was changed at this very moment.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::AGAIN.into())
}
