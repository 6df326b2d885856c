//! A view of the files of its own, for what Landlock cannot say: that the modes and times of files
//! outside do not change, read-only and hidden places within what may be written, and no way to
//! daemons that would act for the command. System calls only, once it is planned.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::super::{Network, Profile, Rooms};
use super::sys;

/// Programs share memory here by names that all of them see, and so does ours by its own.
const MEMORY: &CStr = c"/dev/shm";
/// In there, for a moment: what nobody may read, to be put over what is to be hidden.
const NO_FILE: &CStr = c"/dev/shm/file";
const NO_FOLDER: &CStr = c"/dev/shm/folder";

/// Where those are who would do for a command what it may not do itself, or type into the user's
/// windows and terminals. `UID` is the number of the user.
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
/// Where the user's own programs listen: buses, editors, containers.
const LISTENERS: &str = "/run/user/UID";
/// Names in there that a command with the network needs: who holds the keys for it.
const KEEPERS: &[&str] = &["gcr", "gnupg", "keyring", "openssh_agent", "ssh-agent"];

/// Who only knows the names of users and groups.
const NAMERS: &[&str] = &["/run/systemd/userdb", "/var/lib/sss/pipes"];
/// So many sockets are closed.
const MOST_SOCKETS: usize = 512;

/// So many places to write can be told from all the others.
const MOST_PLACES: usize = 64;

/// Which namespaces can be had, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the power of root.
    Root,
    /// Everybody can, in a namespace of users that holds only itself.
    User { user: u32, group: u32 },
}

impl Way {
    pub(super) fn of_this_process() -> Way {
        if is_root() {
            return Way::Root;
        }
        Way::User {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What is to be done in the child.
#[derive(Debug)]
pub(super) struct Room {
    flags: libc::c_int,
    /// Lines for `/proc/self/uid_map` and `gid_map`.
    maps: Option<(String, String)>,
    /// What stays writable when all else is made read-only.
    writable: Vec<CString>,
    /// In the order in which they are done.
    steps: Vec<Step>,
    /// The rights on the shared memory, for Landlock.
    rights: u64,
    has_loopback: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Stays where it is: what is mounted somewhere cannot be moved away, to put another in its place.
    Pin(CString),
    /// Cannot be changed.
    Keep(CString),
    /// A file that cannot be read.
    HideFile(CString),
    /// A folder that cannot be read.
    HideFolder(CString),
}

impl Room {
    /// Plans a room for the profile. Hidden places must be real paths.
    pub(super) fn plan(profile: &Profile, hidden: &[PathBuf], rights: u64, rooms: Rooms) -> Room {
        let has_loopback = profile.network == Network::Loopback && rooms.network;
        // Memory, messages and locks that programs share by number are its own, too.
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        if has_loopback {
            flags |= libc::CLONE_NEWNET;
        }
        let way = Way::of_this_process();
        let maps = match way {
            Way::Root => None,
            Way::User { user, group } => {
                flags |= libc::CLONE_NEWUSER;
                Some((format!("{user} {user} 1"), format!("{group} {group} 1")))
            }
        };
        let mut steps = keeping(profile);
        let daemons = daemons(profile).into_iter().chain(sockets(profile));
        let daemons = daemons.filter_map(|it| fs::canonicalize(it).ok());
        let hidden: BTreeSet<PathBuf> = hidden.iter().cloned().chain(daemons).collect();
        let inner = |it: &&PathBuf| !it.ancestors().skip(1).any(|above| hidden.contains(above));
        steps.extend(hidden.iter().filter(inner).filter_map(|it| {
            let path = c_string(it)?;
            Some(if it.is_dir() { Step::HideFolder(path) } else { Step::HideFile(path) })
        }));
        Room { flags, maps, writable: writable(profile), steps, rights, has_loopback }
    }

    /// Moves into the room. `ruleset` gets the rights on what is new in it.
    pub(super) fn enter(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        sys::unshare(self.flags)?;
        if let Some((users, groups)) = &self.maps {
            map(users, groups)?;
        }
        if self.has_loopback {
            sys::raise_loopback()?;
        }
        // Nothing of what we mount is seen outside; what is mounted there later is seen here.
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", propagation)?;
        self.freeze()?;
        self.furnish()?;
        if let Some(ruleset) = ruleset {
            let how = OFlags::PATH | OFlags::CLOEXEC;
            let memory = rustix::fs::open(MEMORY, how, Mode::empty())?;
            sys::add_rule(ruleset, std::os::fd::AsFd::as_fd(&memory), self.rights)?;
        }
        // What is under a mount is not what is on it.
        sys::come_back()
    }

    /// Makes everything read-only but what is to be written. That is put aside as it is and put
    /// back afterwards, so that it does not become more writable than it was.
    fn freeze(&self) -> io::Result<()> {
        let is_all = self.writable.iter().any(|it| it.as_c_str() == c"/");
        if is_all || self.writable.len() > MOST_PLACES {
            return Ok(());
        }
        let mut aside = [const { None }; MOST_PLACES];
        for (path, place) in self.writable.iter().zip(&mut aside) {
            let how = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            *place = match rustix::mount::open_tree(CWD, path.as_c_str(), how) {
                Err(rustix::io::Errno::NOENT) => None,
                opened => Some(opened?),
            };
        }
        sys::make_read_only(c"/")?;
        for (path, place) in self.writable.iter().zip(&aside) {
            if let Some(place) = place {
                let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(place, c"", CWD, path.as_c_str(), how)?;
            }
        }
        Ok(())
    }

    fn furnish(&self) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"tmpfs", MEMORY, c"tmpfs", flags, c"mode=1777")?;
        let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::open(NO_FILE, make, Mode::empty())?);
        rustix::fs::mkdir(NO_FOLDER, Mode::empty())?;
        for step in &self.steps {
            match step.take() {
                // It has gone in the meantime, with all that was to be protected.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        rustix::fs::unlink(NO_FILE)?;
        Ok(rustix::fs::rmdir(NO_FOLDER)?)
    }
}

impl Step {
    fn take(&self) -> io::Result<()> {
        use rustix::mount::{mount_bind, mount_bind_recursive};
        match self {
            Step::Pin(path) => mount_bind_recursive(path.as_c_str(), path.as_c_str())?,
            Step::Keep(path) => {
                mount_bind_recursive(path.as_c_str(), path.as_c_str())?;
                sys::make_read_only(path)?;
            }
            Step::HideFile(path) => mount_bind(NO_FILE, path.as_c_str())?,
            Step::HideFolder(path) => mount_bind(NO_FOLDER, path.as_c_str())?,
        }
        Ok(())
    }
}

/// Says who the user is inside: the same as outside, and nobody else. The process must own its files
/// in `/proc` for that, which the agent does not: for these three writes it gives up that nobody
/// may look into its memory. Who could look already runs as the user and outside of any sandbox;
/// what is confined cannot look into what is outside. The exec begins anew.
fn map(users: &str, groups: &str) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/gid_map", groups.as_bytes())?;
    write(c"/proc/self/uid_map", users.as_bytes())?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes)?;
    Ok(())
}

/// What to do for what must not change, from the outside to the inside.
fn keeping(profile: &Profile) -> Vec<Step> {
    let (mut pinned, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for path in profile.keep.iter().filter(|it| fs::symlink_metadata(it).is_ok()) {
        let roots = profile.write.iter().filter(|it| path.starts_with(it));
        // What is not to be written anyway needs no protection.
        let Some(root) = roots.min_by_key(|it| it.as_os_str().len()) else { continue };
        let above = path.ancestors().skip(1).take_while(|it| *it != root);
        pinned.extend(above.map(Path::to_owned));
        kept.insert(path.clone());
    }
    let is_outer = |it: &&PathBuf| !it.ancestors().skip(1).any(|above| kept.contains(above));
    let outer = kept.iter().filter(is_outer);
    let pins = pinned.iter().filter(|it| !it.ancestors().any(|above| kept.contains(above)));
    // A path sorts before what is below it.
    let steps: std::collections::BTreeMap<&Path, fn(CString) -> Step> = pins
        .map(|it| (it.as_path(), Step::Pin as fn(CString) -> Step))
        .chain(outer.map(|it| (it.as_path(), Step::Keep as fn(CString) -> Step)))
        .collect();
    steps.into_iter().filter_map(|(path, step)| Some(step(c_string(path)?))).collect()
}

fn daemons(profile: &Profile) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let place = |it: &str| PathBuf::from(it.replace("UID", &user));
    let mut found: Vec<_> = DAEMONS.iter().map(|it| place(it)).collect();
    let listeners = place(LISTENERS);
    let has_work = |it: &Path| profile.write.iter().any(|write| write.starts_with(it));
    if profile.network != Network::On && !has_work(&listeners) {
        found.push(listeners);
        return found;
    }
    let is_keeper = |it: &fs::DirEntry| {
        let name = it.file_name();
        KEEPERS.iter().any(|keeper| name.as_bytes().starts_with(keeper.as_bytes()))
    };
    let entries = fs::read_dir(listeners).into_iter().flatten().flatten();
    let others = entries.filter(|it| profile.network != Network::On || !is_keeper(it));
    found.extend(others.map(|it| it.path()).filter(|it| !has_work(it)));
    found
}

/// Every other socket with a name in the file system that somebody listens at. Newer kernels have a
/// wall for that. With the network, who holds the keys is among them.
fn sockets(profile: &Profile) -> Vec<PathBuf> {
    if profile.network == Network::On {
        return Vec::new();
    }
    let has_work = |it: &Path| profile.write.iter().any(|write| it.starts_with(write));
    let all = fs::read("/proc/self/net/unix").unwrap_or_default();
    let found = all.split(|it| *it == b'\n').filter_map(socket);
    let found = found.filter(|it| !NAMERS.iter().any(|namer| it.starts_with(namer)));
    found
        .filter(|it| !fs::canonicalize(it).is_ok_and(|it| has_work(&it)))
        .take(MOST_SOCKETS)
        .collect()
}

/// The path in a line of the kernel's list, if others can call there: `number: count protocol flags
/// type state inode path`.
fn socket(line: &[u8]) -> Option<PathBuf> {
    const LISTENS: &str = "00010000";
    const DATAGRAMS: &str = "0002";
    let line = str::from_utf8(line).ok()?;
    let path = &line[line.find(" /")? + 1..];
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (flags, sort) = (fields.next()?, fields.next()?);
    (flags == LISTENS || sort == DATAGRAMS).then(|| path.into())
}

/// What may be written and exists, without what lies in another such place.
fn writable(profile: &Profile) -> Vec<CString> {
    let is_inner =
        |path: &Path| profile.write.iter().any(|it| path.starts_with(it) && path != it.as_path());
    let mut paths: Vec<_> =
        profile.write.iter().filter(|it| it.exists() && !is_inner(it)).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().filter_map(|it| c_string(it)).collect()
}

fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
