//! The sockets in the file system that are hidden: other programs listen there and could act for the
//! command. Landlock denies connecting to them only from ABI 9 on, and without a PID namespace nobody
//! supervises connections ([`super::socket_supervisor`]).

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::super::SandboxProfile;
use super::real_path::real_path;

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

/// Where daemons make their sockets, at any time. Nothing is seen of it but [`OPEN_FOLDERS`].
const RUNTIME_FOLDER: &str = "/run";
/// What programs need of it: how names are looked up, devices, drives, and where some systems have their programs.
const OPEN_FOLDERS: &[&str] = &[
    "/run/NetworkManager",
    "/run/booted-system",
    "/run/current-system",
    "/run/host",
    "/run/media",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
    "/run/resolvconf",
    "/run/udev",
    "/run/wrappers",
];

/// Daemons that only look up the names of users, groups and hosts.
pub(super) const NAME_SERVICES: &[&str] =
    &["/run/systemd/userdb", "/run/systemd/resolve", "/run/nscd", "/var/lib/sss/pipes"];
/// Those among them that ask other machines about names of hosts, which may carry anything away.
pub(super) const HOST_SERVICES: &[&str] = &["/run/systemd/resolve", "/run/nscd"];
/// The kernel's table of sockets is seldom larger.
const TABLE_SIZE: usize = 32 * 1024;
/// At most this many sockets are hidden.
const MAX_SOCKETS: usize = 512;
/// At most this many entries are looked at beside a socket that was renamed.
const MAX_BESIDE: usize = 2_000;

/// The sockets, and folders that hold them, as real paths. `hides_runtime_folder` tells whether
/// [`open_runtime_folders`] has named what stays open.
pub(super) fn find(profile: &SandboxProfile, hides_runtime_folder: bool) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let path = |it: &str| real_path(Path::new(&it.replace("UID", &user)));
    let mut found: Vec<_> = DAEMONS.iter().filter_map(|it| path(it)).collect();
    if let Some(folder) = path(USER_RUNTIME_FOLDER) {
        // Sockets in there that the profile allows stay visible, with the folders that lead to them.
        if holds_open(profile, &folder) {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let others = entries.map(|it| it.path()).filter(|it| !holds_open(profile, it));
            found.extend(others);
        } else {
            found.push(folder);
        }
    }
    found.extend(hides_runtime_folder.then(|| path(RUNTIME_FOLDER)).flatten());
    found.retain(|it| !is_open(profile, it));
    found.extend(listening_sockets(profile));
    found
}

/// What stays open of the folder where daemons make their sockets; `None` if all of it has to.
pub(super) fn open_runtime_folders(profile: &SandboxProfile) -> Option<Vec<PathBuf>> {
    let runtime = real_path(Path::new(RUNTIME_FOLDER))?;
    let known = OPEN_FOLDERS.iter().chain(NAME_SERVICES).filter_map(|it| real_path(Path::new(it)));
    let mut open: Vec<_> = known.filter(|it| it.starts_with(&runtime)).collect();
    let allowed = profile.writable.iter().chain(&profile.sockets);
    for path in allowed.filter(|it| it.starts_with(&runtime)) {
        // The folder of a socket, in which the others are hidden one by one.
        let folder = if path.is_dir() { path } else { path.parent()? };
        open.push(folder.to_path_buf());
    }
    (!open.contains(&runtime)).then_some(open)
}

/// Whether the program may connect to what is at a path.
fn is_open(profile: &SandboxProfile, path: &Path) -> bool {
    let mut open = profile.writable.iter().chain(&profile.sockets);
    open.any(|it| path.starts_with(it))
}

/// Whether a folder contains, or lies in, a path that the program may connect to.
fn holds_open(profile: &SandboxProfile, folder: &Path) -> bool {
    let mut open = profile.writable.iter().chain(&profile.sockets);
    open.any(|it| it.starts_with(folder) || folder.starts_with(it))
}

/// All other sockets in the file system on which a process listens now.
fn listening_sockets(profile: &SandboxProfile) -> Vec<PathBuf> {
    // The kernel does not tell its size.
    let mut all = Vec::with_capacity(TABLE_SIZE);
    drop(fs::File::open("/proc/self/net/unix").and_then(|mut it| it.read_to_end(&mut all)));
    let named: Vec<_> = all.split(|it| *it == b'\n').filter_map(socket_path).collect();
    let is_relative = |it: &&PathBuf| it.is_relative();
    // A relative path begins where its process was. Which process it is, the table does not say.
    let folders =
        if named.iter().any(|it| is_relative(&it)) { working_folders() } else { Vec::new() };
    let relative = named.iter().filter(is_relative);
    let relative = relative.flat_map(|it| folders.iter().map(move |folder| folder.join(it)));
    let found = named.iter().filter(|it| it.is_absolute()).cloned().chain(relative);
    let found = found.filter(|it| !NAME_SERVICES.iter().any(|service| it.starts_with(service)));
    let found: BTreeSet<_> = found.flat_map(|it| existing(&it)).collect();
    let found = found.iter().filter_map(|it| real_path(it));
    found.filter(|it| !is_open(profile, it)).take(MAX_SOCKETS).collect()
}

/// The socket at a path; if there is none, all sockets beside it: some programs rename theirs once they
/// listen.
fn existing(path: &Path) -> Vec<PathBuf> {
    if fs::symlink_metadata(path).is_ok() {
        return vec![path.to_owned()];
    }
    let entries = path.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let is_socket = |it: &fs::DirEntry| it.file_type().is_ok_and(|it| it.is_socket());
    entries.take(MAX_BESIDE).filter(is_socket).map(|it| it.path()).collect()
}

/// The working folders of all processes, as far as this user may see them.
fn working_folders() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |it: &fs::DirEntry| {
        it.file_name().to_str().is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()))
    };
    let folders =
        processes.filter(is_process).filter_map(|it| fs::read_link(it.path().join("cwd")).ok());
    folders.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The path in a line of `/proc/net/unix`, if others can connect to it: `number: count protocol
/// flags type state inode path`.
fn socket_path(line: &[u8]) -> Option<PathBuf> {
    const LISTENS: &str = "00010000";
    const DATAGRAMS: &str = "0002";
    let line = str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (flags, socket_type) = (fields.next()?, fields.next()?);
    let inode = fields.nth(1)?;
    let (_, path) = line.split_once(&format!(" {inode} "))?;
    let is_open = flags == LISTENS || socket_type == DATAGRAMS;
    (is_open && !path.is_empty() && !path.starts_with('@')).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
