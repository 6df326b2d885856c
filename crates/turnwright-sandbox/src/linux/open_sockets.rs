//! The Unix sockets to which a supervised program may connect. It makes system calls only and allocates nothing once it
//! is built.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::hidden_sockets::open_services;
use super::socket_address::format_path;

/// The shared memory, where a program can make sockets, too.
const SHARED_MEMORY: &str = "/dev/shm";

/// The places where a program may connect to sockets.
#[derive(Debug)]
pub(super) struct OpenSockets {
    /// Folders and sockets, as real paths.
    open: Vec<PathBuf>,
    /// Folders in which only sockets on a writable mount are open: caches with a private layer, and a private `/tmp`.
    partly_open: Vec<PathBuf>,
    /// True if the program has a private network. Abstract sockets belong to the network that they are in.
    has_private_network: bool,
}

impl OpenSockets {
    /// `open` are the places of the profile.
    pub(super) fn new(
        mut open: Vec<PathBuf>,
        partly_open: Vec<PathBuf>,
        has_private_network: bool,
        reaches_other_machines: bool,
    ) -> OpenSockets {
        let services = open_services(reaches_other_machines);
        open.extend(services.chain([SHARED_MEMORY]).map(PathBuf::from));
        OpenSockets { open, partly_open, has_private_network }
    }

    pub(super) fn has_private_network(&self) -> bool {
        self.has_private_network
    }

    /// Fails if another program of the user may have an abstract socket. The kernel does not tell whose it is.
    pub(super) fn check_abstract(&self) -> io::Result<()> {
        if self.has_private_network {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EPERM))
        }
    }

    /// Opens the target of a path, if the program may connect to it.
    pub(super) fn resolve(&self, folder: Option<&OwnedFd>, path: &CStr) -> io::Result<OwnedFd> {
        let folder = folder.map_or(CWD, AsFd::as_fd);
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let target = rustix::fs::openat2(folder, path, how, Mode::empty(), resolve)?;
        let mut buffer = [0; libc::PATH_MAX as usize];
        let mut link_bytes = [0; 32];
        let link =
            format_path(&mut link_bytes, format_args!("/proc/self/fd/{}", target.as_raw_fd()))?;
        let length = rustix::fs::readlinkat_raw(CWD, link, &mut buffer[..])?;
        let place = Path::new(OsStr::from_bytes(&buffer[..length]));
        if is_below(place, &self.open)
            || is_below(place, &self.partly_open) && is_writable(&target)?
        {
            Ok(target)
        } else {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        }
    }
}

fn is_below(place: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| place.starts_with(folder))
}

/// Returns true if a file is on a mount that is not read-only.
fn is_writable(file: &OwnedFd) -> io::Result<bool> {
    let flags = rustix::fs::fstatvfs(file)?.f_flag;
    Ok(!flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_for_names_of_hosts_are_open_only_with_other_machines() {
        let is_open = |reaches_other_machines, path: &str| {
            let sockets = OpenSockets::new(Vec::new(), Vec::new(), true, reaches_other_machines);
            sockets.open.iter().any(|open| Path::new(path).starts_with(open))
        };
        for host_service in ["/run/systemd/resolve/io.systemd.Resolve", "/run/nscd/socket"] {
            assert!(is_open(true, host_service) && !is_open(false, host_service), "{host_service}");
        }
        assert!(is_open(false, "/run/systemd/userdb/io.systemd.DynamicUser"));
    }
}
