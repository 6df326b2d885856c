//! The sockets in the file system that are hidden: other programs listen there and could act for the
//! command. Landlock denies connecting to them only from ABI 9 on.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::SandboxProfile;

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

/// Daemons that only look up the names of users, groups and hosts.
pub(super) const NAME_SERVICES: &[&str] =
    &["/run/systemd/userdb", "/run/systemd/resolve", "/run/nscd", "/var/lib/sss/pipes"];
/// At most this many sockets are hidden.
const MAX_SOCKETS: usize = 512;

/// The sockets, and folders that hold them, as real paths.
pub(super) fn find(profile: &SandboxProfile) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let path = |it: &str| fs::canonicalize(it.replace("UID", &user)).ok();
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
    found.retain(|it| !is_open(profile, it));
    found.extend(listening_sockets(profile));
    found
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
    let all = fs::read("/proc/self/net/unix").unwrap_or_default();
    let found = all.split(|it| *it == b'\n').filter_map(socket_path);
    let found = found.filter(|it| !NAME_SERVICES.iter().any(|service| it.starts_with(service)));
    let found = found.filter_map(|it| fs::canonicalize(it).ok());
    found.filter(|it| !is_open(profile, it)).take(MAX_SOCKETS).collect()
}

/// The path in a line of `/proc/net/unix`, if others can connect to it: `number: count protocol
/// flags type state inode path`.
fn socket_path(line: &[u8]) -> Option<PathBuf> {
    const LISTENS: &str = "00010000";
    const DATAGRAMS: &str = "0002";
    let line = str::from_utf8(line).ok()?;
    let path = &line[line.find(" /")? + 1..];
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (flags, socket_type) = (fields.next()?, fields.next()?);
    (flags == LISTENS || socket_type == DATAGRAMS).then(|| path.into())
}
