//! The Unix sockets that are hidden from a program, and those to which it may connect.
//!
//! Behind the hidden ones other programs listen that could act for the command. Landlock denies connecting to
//! them only from ABI 9 on, and without a PID namespace nobody supervises connections
//! ([`super::socket_supervisor`]). [`OpenSockets`] is for that supervisor: it makes system calls only and
//! allocates nothing once it is built.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::real_path::real_path;
use super::socket_address::format_path;
use crate::SandboxProfile;

/// The sockets of daemons that would do for a command what it may not do itself, or type into the
/// user's windows and terminals. `UID` stands for the user's number.
const DAEMONS: &[&str] = &[
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/screen",
    "/tmp/.X11-unix",
    "/tmp/tmux-UID",
];
/// The folder where the user's own programs listen: buses, editors, containers.
const USER_RUNTIME_FOLDER: &str = "/run/user/UID";

/// The folder where daemons make their sockets, at any time. Only [`OPEN_FOLDERS`] stay visible in it.
const RUNTIME_FOLDER: &str = "/run";
/// The parts of it that programs need: name resolution, devices, drives, and the programs of some systems. NixOS and
/// Guix have links there to the folders of their programs.
const OPEN_FOLDERS: &str = "NetworkManager booted-system connman current-system host media netconfig opengl-driver \
                            opengl-driver-32 resolvconf udev wrappers";

/// Daemons that only look up the names of users, groups and hosts.
const NAME_SERVICES: &[&str] =
    &["/run/systemd/userdb", "/run/systemd/resolve", "/run/nscd", "/var/lib/sss/pipes"];
/// The daemons among them that ask other machines about host names, through which data can leak.
const HOST_SERVICES: &[&str] = &["/run/systemd/resolve", "/run/nscd"];
/// The kernel's table of sockets is seldom larger.
const TABLE_SIZE: usize = 32 * 1024;
/// At most this many sockets are hidden.
const MAX_SOCKETS: usize = 512;
/// At most this many entries of a folder with sockets are looked at.
const MAX_ENTRIES: usize = 2_000;

/// The name services to whose sockets a program may connect. Without other machines, names of hosts are not looked up
/// either.
pub(super) fn open_services(reaches_other_machines: bool) -> impl Iterator<Item = &'static str> {
    let services = NAME_SERVICES.iter().copied();
    services.filter(move |service| reaches_other_machines || !HOST_SERVICES.contains(service))
}

/// The sockets, and folders that hold them, as real paths. `hides_runtime_folder` tells whether
/// [`open_runtime_folders`] has named what stays open.
pub(super) fn find(profile: &SandboxProfile, hides_runtime_folder: bool) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let mut found: Vec<_> = DAEMONS.iter().filter_map(|path| path_of_user(path, &user)).collect();
    if let Some(folder) = path_of_user(USER_RUNTIME_FOLDER, &user) {
        // Sockets in there that the profile allows stay visible, with the folders that lead to them.
        if holds_open(profile, &folder) {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let others =
                entries.map(|entry| entry.path()).filter(|path| !holds_open(profile, path));
            found.extend(others);
        } else {
            found.push(folder);
        }
    }
    found.extend(hides_runtime_folder.then(|| real_path(Path::new(RUNTIME_FOLDER))).flatten());
    if !profile.network.reaches_other_machines() {
        // Their folders stay: the list of nameservers leads there.
        let sockets = HOST_SERVICES.iter().flat_map(|folder| sockets_in(Path::new(folder)));
        found.extend(sockets.filter_map(|socket| real_path(&socket)));
    }
    found.retain(|path| !is_open(profile, path));
    found.extend(listening_sockets(profile));
    found
}

/// The real path with the user's number in place of `UID`.
fn path_of_user(path: &str, user: &str) -> Option<PathBuf> {
    real_path(Path::new(&path.replace("UID", user)))
}

/// The parts of [`RUNTIME_FOLDER`] that stay open; `None` if all of it has to.
pub(super) fn open_runtime_folders(profile: &SandboxProfile) -> Option<Vec<PathBuf>> {
    let runtime = real_path(Path::new(RUNTIME_FOLDER))?;
    let parts = OPEN_FOLDERS.split(' ').map(|name| Path::new(RUNTIME_FOLDER).join(name));
    let services = NAME_SERVICES.iter().map(PathBuf::from);
    let known = parts.clone().chain(services).filter_map(|path| real_path(&path));
    let links = parts.filter(|path| path.is_symlink());
    let mut open: Vec<_> = known.chain(links).filter(|path| path.starts_with(&runtime)).collect();
    let allowed = profile.writable.iter().chain(&profile.sockets);
    for path in allowed.filter(|path| path.starts_with(&runtime)) {
        // The folder of a socket, in which the others are hidden one by one.
        let folder = if path.is_dir() { path } else { path.parent()? };
        open.push(folder.to_path_buf());
    }
    (!open.contains(&runtime)).then_some(open)
}

/// Returns true if the program may connect to a socket at this path.
fn is_open(profile: &SandboxProfile, path: &Path) -> bool {
    let mut open = profile.writable.iter().chain(&profile.sockets);
    open.any(|allowed| path.starts_with(allowed))
}

/// Returns true if a folder contains, or lies in, a path that the program may connect to.
fn holds_open(profile: &SandboxProfile, folder: &Path) -> bool {
    let mut open = profile.writable.iter().chain(&profile.sockets);
    open.any(|allowed| allowed.starts_with(folder) || folder.starts_with(allowed))
}

/// All other sockets in the file system on which a process listens now.
fn listening_sockets(profile: &SandboxProfile) -> Vec<PathBuf> {
    // The kernel does not tell its size.
    let mut table = Vec::with_capacity(TABLE_SIZE);
    fs::File::open("/proc/self/net/unix").and_then(|mut file| file.read_to_end(&mut table)).ok();
    let named = table.split(|byte| *byte == b'\n').filter_map(socket_path);
    let (relative, absolute): (Vec<PathBuf>, Vec<PathBuf>) =
        named.partition(|path| path.is_relative());
    // A relative path begins where its process was. Which process it is, the table does not say.
    let folders = if relative.is_empty() { Vec::new() } else { working_folders() };
    let is_online = profile.network.reaches_other_machines();
    let possible =
        relative.iter().flat_map(|path| folders.iter().map(move |folder| folder.join(path)));
    let others = absolute
        .into_iter()
        .chain(possible)
        .filter(|path| !open_services(is_online).any(|service| path.starts_with(service)));
    let sockets: BTreeSet<_> = others.flat_map(|path| existing(&path)).collect();
    let real_paths = sockets.iter().filter_map(|socket| real_path(socket));
    real_paths.filter(|path| !is_open(profile, path)).take(MAX_SOCKETS).collect()
}

/// The socket at a path; if there is none, all sockets beside it: some programs rename theirs once they
/// listen.
fn existing(path: &Path) -> Vec<PathBuf> {
    if fs::symlink_metadata(path).is_ok() {
        return vec![path.to_owned()];
    }
    path.parent().into_iter().flat_map(sockets_in).collect()
}

fn sockets_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries
        .take(MAX_ENTRIES)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path())
}

/// The working folders of all processes, as far as this user may see them.
fn working_folders() -> Vec<PathBuf> {
    // Only processes have such a link.
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let folders = entries.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    folders.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The path in a line of `/proc/net/unix`, if others can connect to it: `number: count protocol
/// flags type state inode path`.
fn socket_path(line: &[u8]) -> Option<PathBuf> {
    const LISTENS: &str = "00010000";
    const DATAGRAMS: &str = "0002";
    let line = str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace().skip(3);
    let flags = fields.next()?;
    let socket_type = fields.next()?;
    let inode = fields.nth(1)?;
    let (_, path) = line.split_once(&format!(" {inode} "))?;
    let is_open = flags == LISTENS || socket_type == DATAGRAMS;
    (is_open && !path.is_empty() && !path.starts_with('@')).then(|| path.into())
}

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
    pub(super) has_private_network: bool,
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

    /// Fails if another program of the user may have an abstract socket. The kernel does not tell whose it is.
    pub(super) fn check_abstract(&self) -> io::Result<()> {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        if self.has_private_network { Ok(()) } else { Err(denied) }
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
        let is_open = is_below(place, &self.open)
            || is_below(place, &self.partly_open) && is_writable(&target)?;
        if is_open { Ok(target) } else { Err(io::Error::from_raw_os_error(libc::EACCES)) }
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
    fn the_sockets_in_a_folder_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("io.systemd.Resolve");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::File::create(folder.path().join("resolv.conf")).unwrap();
        assert_eq!(sockets_in(folder.path()).collect::<Vec<_>>(), [socket]);
        assert_eq!(sockets_in(&folder.path().join("missing")).count(), 0);
    }

    #[test]
    fn sockets_with_a_path_are_read_from_the_table() {
        for (line, expected) in [
            (
                "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a b",
                Some("/run/a b"),
            ),
            ("0000000000000000: 00000002 00000000 00010000 0001 01 4711 line", Some("line")),
            ("0000000000000000: 00000002 00000000 00010000 0001 01 4711 @abstract", None),
            ("0000000000000000: 00000003 00000000 00000000 0001 03 4711 /run/a", None),
            (
                "0000000000000000: 00000002 00000000 00000000 0002 01 4711 /dev/log",
                Some("/dev/log"),
            ),
            ("0000000000000000: 00000002 00000000 00010000 0001 01 4711", None),
            ("Num       RefCount Protocol Flags    Type St Inode Path", None),
        ] {
            assert_eq!(socket_path(line.as_bytes()), expected.map(PathBuf::from), "{line}");
        }
    }

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
