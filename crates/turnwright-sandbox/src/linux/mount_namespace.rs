//! The private mount namespace, for what Landlock cannot express: it keeps the modes and times of
//! files outside unchanged, makes places inside writable folders read-only or hidden, and hides the
//! sockets of daemons that could act for the command. Once it is planned, entering it makes system
//! calls only.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::super::{MAX_LAYERS, PrivateLayer, SandboxProfile, sandbox_support};
use super::mounts::{clone_mounts, put_mounts};
use super::private_layer::CacheOverlay;
use super::private_tmp::TmpMounts;
use super::session_network::SessionNetwork;
use super::{landlock_ruleset, raw_devices, real_path, syscalls, unix_sockets};

/// POSIX shared memory, where all programs see the same names. The command gets its own, or that of its session.
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// Limits the content, which does not count as memory of any process.
const SHARED_MEMORY_OPTIONS: &CStr = c"mode=1777,size=25%";
/// An unreadable, empty file and folder that are mounted over hidden paths. They have these names only during the
/// setup, in the command's own shared memory.
const EMPTY_FILE: &CStr = c"/dev/shm/file";
const EMPTY_FOLDER: &CStr = c"/dev/shm/folder";

/// Settings of root, who is unknown where only this user is mapped. ssh connects nowhere if it finds such files, and
/// can do without them.
const SSH_SETTINGS: [&str; 2] = ["/etc/ssh/ssh_config.d", "/usr/etc/ssh/ssh_config.d"];

/// With more writable paths than this the rest is not made read-only, and a private `/tmp` is not possible.
const MAX_WRITABLE: usize = 64;
const TOO_MANY_WRITABLE: &str = "a private /tmp cannot be mounted if more than 64 places are writable: make fewer writable, \
     or /tmp itself, which opens that of the machine";
/// At most this many folders below a hidden one stay open.
const MAX_OPEN: usize = 24;
/// At most this many caches get a private layer.
const MAX_CACHES: usize = 64;

/// The lines for `/proc/self/uid_map` and `gid_map` of a new user namespace, which maps only this user; `None` for root,
/// who needs no such namespace.
pub(super) fn id_maps() -> Option<(String, String)> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    (!is_root()).then(|| (format!("{user} {user} 1"), format!("{group} {group} 1")))
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The planned namespace.
#[derive(Debug)]
pub(super) struct MountNamespace {
    clone_flags: libc::c_int,
    /// The lines for `/proc/self/uid_map` and `gid_map` of a new user namespace.
    id_maps: Option<(String, String)>,
    /// The network whose user namespace the process enters instead.
    session_network: Option<Arc<SessionNetwork>>,
    /// The paths that stay writable when everything else is made read-only.
    writable: Vec<CString>,
    /// The caches that are to get a private layer, if there is a PID namespace.
    caches: Vec<PrivateLayer>,
    overlays: Vec<CacheOverlay>,
    /// The writable folders whose changes go into a layer.
    layered_folders: Vec<LayeredFolder>,
    private_tmp: Option<TmpMounts>,
    /// The mounts, in order.
    steps: Vec<MountStep>,
    /// The Landlock rights on the shared memory and on caches with a private layer, and on the program's terminals.
    write_rights: u64,
    terminal_rights: u64,
    has_private_devices: bool,
    /// True if the program may change the shared memory of its session.
    may_change_memory: bool,
}

/// A writable folder whose changes go into a layer. Without a layer it is read-only.
#[derive(Debug)]
struct LayeredFolder {
    layer: PrivateLayer,
    path: CString,
    overlay: Option<CacheOverlay>,
}

type OpenLayers = [Option<OwnedFd>; MAX_LAYERS];

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MountStep {
    /// Cannot be renamed: a mount point cannot be moved away to put another folder in its place.
    Pin(CString),
    /// Cannot be changed.
    ReadOnly(CString),
    /// A file that cannot be read.
    HideFile(CString),
    /// A folder that cannot be read.
    HideFolder(CString),
    /// A folder in which only the way to these folders is visible.
    HideAround(CString, Vec<OpenFolder>),
}

/// A folder that stays open although it lies below a hidden one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OpenFolder {
    path: CString,
    /// All folders between the hidden one and it, and it unless it is a link, outer ones first.
    way: Vec<CString>,
    /// The text of a link, which stays one.
    link: Option<CString>,
}

impl MountNamespace {
    /// Plans the namespace for the profile. `hidden` are real paths. Fails if its private `/tmp` cannot be mounted.
    pub(super) fn plan(
        profile: &SandboxProfile,
        hidden: &[PathBuf],
        session_network: Option<Arc<SessionNetwork>>,
    ) -> io::Result<MountNamespace> {
        // System V shared memory, message queues and semaphores are private, too.
        let mut clone_flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        let has_user_namespace =
            session_network.as_ref().is_some_and(|network| network.has_user_namespace());
        let id_maps = id_maps().filter(|_| !has_user_namespace);
        if id_maps.is_some() {
            clone_flags |= libc::CLONE_NEWUSER;
        }
        let open_folders = unix_sockets::open_runtime_folders(profile);
        let sockets = unix_sockets::find(profile, open_folders.is_some());
        let mut hidden: BTreeSet<PathBuf> = hidden.iter().cloned().chain(sockets).collect();
        if !is_root() {
            let settings = SSH_SETTINGS.map(|folder| real_path::real_path(Path::new(folder)));
            hidden.extend(settings.into_iter().flatten());
        }
        let mut open = profile.clone();
        open.unhidden.extend(open_folders.unwrap_or_default());
        // Nothing is below a file.
        let folders: Vec<_> = hidden.iter().filter(|path| path.is_dir()).collect();
        let writable = writable(profile);
        let private_tmp = TmpMounts::plan(profile)?;
        if private_tmp.is_some() && writable.len() > MAX_WRITABLE {
            return Err(io::Error::other(TOO_MANY_WRITABLE));
        }
        let visible = hidden.iter().filter(|path| {
            !open.is_below_hidden(path, folders.iter().copied())
                && private_tmp.as_ref().is_none_or(|tmp| tmp.shows(path))
        });
        let seen: Vec<_> = visible.collect();
        let mut steps = read_only_steps(profile, &seen);
        steps.extend(seen.iter().filter_map(|path| hide_step(&open, path, folders.contains(path))));
        let mut caches = layered_caches(profile);
        caches.retain(|cache| private_tmp.as_ref().is_none_or(|tmp| tmp.shows(&cache.path)));
        let abi = sandbox_support().landlock_abi.unwrap_or_default();
        Ok(MountNamespace {
            clone_flags,
            id_maps,
            session_network,
            writable,
            caches,
            overlays: Vec::new(),
            layered_folders: layered_folders(profile),
            private_tmp,
            steps,
            write_rights: landlock_ruleset::write_rights_for_abi(abi),
            terminal_rights: landlock_ruleset::terminal_rights_for_abi(abi),
            has_private_devices: raw_devices::are_private(profile),
            may_change_memory: may_change_memory(profile),
        })
    }

    /// Also makes a PID namespace, for the children of the process that enters. Returns the descriptors
    /// that must stay open for as long as there are processes.
    pub(super) fn isolate_processes(&mut self) -> Vec<RawFd> {
        self.clone_flags |= libc::CLONE_NEWPID;
        // A cache without a layer stays read-only.
        self.overlays =
            self.caches.iter().filter_map(|cache| CacheOverlay::prepare(cache).ok()).collect();
        for folder in &mut self.layered_folders {
            folder.overlay = CacheOverlay::prepare(&folder.layer).ok();
        }
        let layers = self.layered_folders.iter().filter_map(|folder| folder.overlay.as_ref());
        self.overlays.iter().chain(layers).map(CacheOverlay::lock).collect()
    }

    pub(super) fn private_tmp(&self) -> Option<&TmpMounts> {
        self.private_tmp.as_ref()
    }

    /// The caches that are to get a private layer.
    pub(super) fn layered_caches(&self) -> Vec<PathBuf> {
        self.caches.iter().map(|cache| cache.path.clone()).collect()
    }

    /// Moves this process into the namespace, in which nothing is different yet.
    pub(super) fn join(&self) -> io::Result<()> {
        if let Some(network) = &self.session_network {
            network.join_user_namespace()?;
        }
        syscalls::unshare(self.clone_flags)?;
        map_ids(self.id_maps.as_ref())?;
        // Mounts made here are not seen outside; mounts made outside later are seen here.
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        Ok(rustix::mount::mount_change(c"/", propagation)?)
    }

    /// Moves this process into the namespace and makes the mounts. Adds rules for the shared memory and the
    /// caches to `ruleset`.
    pub(super) fn enter(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.join()?;
        // The layers must be writable when their overlays are made.
        let layers = self.open_layers();
        self.make_rest_read_only(ruleset)?;
        self.attach_layers(&layers)?;
        if self.has_private_devices {
            raw_devices::make_private(ruleset, self.terminal_rights)?;
        }
        self.mount_all()?;
        if let Some(ruleset) = ruleset {
            landlock_ruleset::allow_mounted(ruleset, SHARED_MEMORY, self.write_rights)?;
        }
        // The working directory still refers to what is below the new mounts.
        syscalls::reenter_working_directory()
    }

    /// Makes everything read-only except for the writable paths. Their mounts are cloned before and
    /// put back afterwards, so that nothing becomes more writable than it was.
    fn make_rest_read_only(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let is_all = self.writable.iter().any(|path| path.as_c_str() == c"/");
        if is_all || self.writable.len() > MAX_WRITABLE {
            return Ok(());
        }
        let mut clones = [const { None }; MAX_WRITABLE];
        for (path, clone) in self.writable.iter().zip(&mut clones) {
            *clone = clone_mounts(path)?;
        }
        // The layers must be writable when their overlays are made.
        let mut overlays = [const { None }; MAX_CACHES];
        for (overlay, mount) in self.overlays.iter().zip(&mut overlays) {
            *mount = overlay.open().ok();
        }
        let tmp_folder = self.private_tmp.as_ref().map(TmpMounts::open_writable).transpose()?;
        syscalls::make_read_only(c"/")?;
        if let Some(tmp) = &self.private_tmp {
            tmp.mount(tmp_folder.flatten(), &self.writable, &clones)?;
        }
        for (overlay, mount) in self.overlays.iter().zip(&overlays) {
            let Some(mount) = mount else { continue };
            overlay.attach(mount.as_fd())?;
            if let Some(ruleset) = ruleset {
                syscalls::add_rule(ruleset, mount.as_fd(), self.write_rights)?;
            }
        }
        for (path, clone) in self.writable.iter().zip(&clones) {
            let is_in_tmp = self.private_tmp.is_some() && TmpMounts::holds(path);
            if !is_in_tmp {
                put_mounts(clone.as_ref(), path)?;
            }
        }
        Ok(())
    }

    fn open_layers(&self) -> OpenLayers {
        let mut layers = [const { None }; MAX_LAYERS];
        for (folder, layer) in self.layered_folders.iter().zip(&mut layers) {
            *layer = folder.overlay.as_ref().and_then(|overlay| overlay.open().ok());
        }
        layers
    }

    fn attach_layers(&self, layers: &OpenLayers) -> io::Result<()> {
        for (folder, layer) in self.layered_folders.iter().zip(layers) {
            match (&folder.overlay, layer) {
                (Some(overlay), Some(layer)) => overlay.attach(layer.as_fd())?,
                _ => mount_read_only(&folder.path)?,
            }
        }
        Ok(())
    }

    /// Mounts the shared memory, and everything that is pinned, read-only or hidden.
    fn mount_all(&self) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"tmpfs", SHARED_MEMORY, c"tmpfs", flags, SHARED_MEMORY_OPTIONS)?;
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::open(EMPTY_FILE, create, Mode::empty())?);
        rustix::fs::mkdir(EMPTY_FOLDER, Mode::empty())?;
        for step in &self.steps {
            match step.mount() {
                // It was deleted in the meantime, with everything below it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        rustix::fs::unlink(EMPTY_FILE)?;
        rustix::fs::rmdir(EMPTY_FOLDER)?;
        let is_of_session = self
            .session_network
            .as_ref()
            .is_some_and(|network| network.memory.attach(SHARED_MEMORY));
        if is_of_session && !self.may_change_memory {
            syscalls::make_read_only(SHARED_MEMORY)?;
        }
        Ok(())
    }
}

impl MountStep {
    fn mount(&self) -> io::Result<()> {
        use rustix::mount::{mount_bind, mount_bind_recursive};
        match self {
            MountStep::Pin(path) => mount_bind_recursive(path.as_c_str(), path.as_c_str())?,
            MountStep::ReadOnly(path) => mount_read_only(path)?,
            MountStep::HideFile(path) => mount_bind(EMPTY_FILE, path.as_c_str())?,
            MountStep::HideFolder(path) => mount_bind(EMPTY_FOLDER, path.as_c_str())?,
            MountStep::HideAround(path, open) => hide_around(path, open)?,
        }
        Ok(())
    }
}

fn mount_read_only(path: &CStr) -> io::Result<()> {
    rustix::mount::mount_bind_recursive(path, path)?;
    syscalls::make_read_only(path)
}

/// The step that hides a path.
fn hide_step(profile: &SandboxProfile, path: &Path, is_folder: bool) -> Option<MountStep> {
    let name = c_string(path)?;
    if !is_folder {
        return Some(MountStep::HideFile(name));
    }
    let folders = profile.open_below(path).filter(|folder| folder.is_dir());
    let all: BTreeSet<_> = folders
        .filter_map(|folder| {
            let link = fs::read_link(folder).ok().and_then(|target| c_string(&target));
            let above = folder.ancestors().take_while(|above| *above != path);
            let made = above.skip(usize::from(link.is_some()));
            let mut way: Vec<_> = made.map(c_string).collect::<Option<_>>()?;
            way.reverse();
            Some(OpenFolder { path: c_string(folder)?, way, link })
        })
        .collect();
    // An outer folder brings the inner ones along.
    let outer = all.iter().filter(|folder| {
        !all.iter().any(|other| folder.way.contains(&other.path) && *folder != other)
    });
    let open: Vec<_> = outer.take(MAX_OPEN).cloned().collect();
    Some(if open.is_empty() {
        MountStep::HideFolder(name)
    } else {
        MountStep::HideAround(name, open)
    })
}

/// Puts an empty folder over one, and mounts the open folders into it.
fn hide_around(folder: &CStr, open: &[OpenFolder]) -> io::Result<()> {
    let mut clones = [const { None }; MAX_OPEN];
    for (place, clone) in open.iter().zip(&mut clones) {
        if place.link.is_none() {
            *clone = clone_mounts(&place.path)?;
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", folder, c"tmpfs", flags, c"mode=755,size=64k")?;
    for place in open {
        for step in &place.way {
            match rustix::fs::mkdir(step.as_c_str(), Mode::RWXU) {
                Err(rustix::io::Errno::EXIST) => {}
                made => made?,
            }
        }
        if let Some(target) = &place.link {
            rustix::fs::symlink(target.as_c_str(), place.path.as_c_str())?;
        }
    }
    syscalls::make_read_only(folder)?;
    for (place, clone) in open.iter().zip(&clones) {
        put_mounts(clone.as_ref(), &place.path)?;
    }
    Ok(())
}

/// Maps the user and group to themselves in a new user namespace, and no others. `maps` has the lines for both;
/// without a user namespace there are none, and nothing is done. A process that is not dumpable does not own its
/// files in `/proc`, so it is made dumpable for these three writes. Until then another process could read its
/// memory, but only one that runs as the user outside of any sandbox. `exec` resets the flag.
pub(super) fn map_ids(maps: Option<&(String, String)>) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let Some((users, groups)) = maps else { return Ok(()) };
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/gid_map", groups.as_bytes())?;
    write_file(c"/proc/self/uid_map", users.as_bytes())?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn write_file(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes)?;
    Ok(())
}

/// The mounts that keep `read_only` paths unchanged and the `hidden` ones where they are, because under another name
/// they would not be hidden. Outer ones first.
fn read_only_steps(profile: &SandboxProfile, hidden: &[&PathBuf]) -> Vec<MountStep> {
    let mut pinned = BTreeSet::new();
    let mut read_only = BTreeSet::new();
    let kept = profile
        .read_only
        .iter()
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .map(|path| (path.as_path(), true));
    for (path, is_read_only) in kept.chain(hidden.iter().map(|path| (path.as_path(), false))) {
        let roots = profile.writable.iter().filter(|root| path.starts_with(root));
        // Outside of the writable folders nothing can be changed anyway.
        let Some(root) = roots.min_by_key(|root| root.as_os_str().len()) else { continue };
        let above = path.ancestors().skip(1).take_while(|folder| *folder != root);
        pinned.extend(above.map(Path::to_owned));
        read_only.extend(is_read_only.then(|| path.to_owned()));
    }
    let outer = read_only
        .iter()
        .filter(|path| !path.ancestors().skip(1).any(|above| read_only.contains(above)));
    let pins =
        pinned.iter().filter(|path| !path.ancestors().any(|above| read_only.contains(above)));
    // A path sorts before what is below it.
    let steps: std::collections::BTreeMap<&Path, fn(CString) -> MountStep> = pins
        .map(|path| (path.as_path(), MountStep::Pin as fn(CString) -> MountStep))
        .chain(outer.map(|path| (path.as_path(), MountStep::ReadOnly as fn(CString) -> MountStep)))
        .collect();
    steps.into_iter().filter_map(|(path, step)| Some(step(c_string(path)?))).collect()
}

/// The caches that are to get a layer: all that are not writable anyway.
fn layered_caches(profile: &SandboxProfile) -> Vec<PrivateLayer> {
    let layered = profile.caches.iter().filter(|cache| {
        let mut others = profile.caches.iter().filter(|other| other.path != cache.path);
        cache.path.is_dir()
            && !is_writable(profile, &cache.path)
            && !others.any(|other| cache.path.starts_with(&other.path))
    });
    layered.take(MAX_CACHES).cloned().collect()
}

fn layered_folders(profile: &SandboxProfile) -> Vec<LayeredFolder> {
    let layers = profile
        .layers
        .iter()
        .filter(|layer| layer.path.is_dir() && is_writable(profile, &layer.path));
    let folders = layers.filter_map(|layer| {
        let path = c_string(&layer.path)?;
        Some(LayeredFolder { layer: layer.clone(), path, overlay: None })
    });
    folders.take(MAX_LAYERS).collect()
}

fn is_writable(profile: &SandboxProfile, path: &Path) -> bool {
    profile.writable.iter().any(|writable| path.starts_with(writable))
}

/// Returns true if a program may change the shared memory of its session: if it may write a file there, in its `/tmp`, or
/// in a folder.
fn may_change_memory(profile: &SandboxProfile) -> bool {
    let memory = Path::new(OsStr::from_bytes(SHARED_MEMORY.to_bytes()));
    let may_write_there = profile.writable.iter().any(|path| path.starts_with(memory));
    match &profile.private_tmp {
        _ if may_write_there => true,
        Some(tmp) => is_writable(profile, &tmp.folder),
        None => profile.writable.iter().any(|path| path.is_dir()),
    }
}

/// The writable paths that exist, without paths inside another one.
fn writable(profile: &SandboxProfile) -> Vec<CString> {
    let outer = profile.writable.iter().filter(|path| {
        let mut writable = profile.writable.iter();
        path.exists() && !writable.any(|other| path.starts_with(other) && *path != other)
    });
    let mut paths: Vec<_> = outer.collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().filter_map(|path| c_string(path)).collect()
}

pub(super) fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
