//! The private mount namespace, for what Landlock cannot express: it keeps the modes and times of
//! files outside unchanged, makes places inside writable folders read-only or hidden, and hides the
//! sockets of daemons that could act for the command. Once it is planned, entering it makes system
//! calls only.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::super::{MAX_LAYERS, PrivateLayer, SandboxProfile};
use super::cache_overlay::CacheOverlay;
use super::private_tmp::TmpMounts;
use super::real_path::open_without_symlinks;
use super::session_network::SessionNetwork;
use super::{hidden_sockets, raw_devices, syscalls};

/// POSIX shared memory, where all programs see the same names. The command gets a private one.
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// What a program stores there is no memory of any process, so it is limited here.
const SHARED_MEMORY_OPTIONS: &CStr = c"mode=1777,size=25%";
/// An unreadable file and folder that are mounted over what is hidden. They exist in there only
/// during the setup.
const EMPTY_FILE: &CStr = c"/dev/shm/file";
const EMPTY_FOLDER: &CStr = c"/dev/shm/folder";

/// With more writable paths than this the rest is not made read-only.
const MAX_WRITABLE: usize = 64;
/// At most this many folders below a hidden one stay open.
const MAX_OPEN: usize = 24;
/// At most this many caches get a private layer.
const MAX_CACHES: usize = 24;

/// How this process gets a mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamespaceMethod {
    /// As root, directly.
    Root,
    /// Inside a new user namespace, which maps only this user.
    User { user: u32, group: u32 },
}

impl NamespaceMethod {
    pub(super) fn of_this_process() -> NamespaceMethod {
        if is_root() {
            return NamespaceMethod::Root;
        }
        NamespaceMethod::User {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }

    /// The lines for `/proc/self/uid_map` and `gid_map`; `None` without a user namespace.
    pub(super) fn id_maps(self) -> Option<(String, String)> {
        match self {
            NamespaceMethod::Root => None,
            NamespaceMethod::User { user, group } => {
                Some((format!("{user} {user} 1"), format!("{group} {group} 1")))
            }
        }
    }
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
    /// What stays writable when everything else is made read-only.
    writable: Vec<CString>,
    /// The caches that are to get a private layer, if there is a PID namespace.
    caches: Vec<PrivateLayer>,
    overlays: Vec<CacheOverlay>,
    /// The writable folders of which the program changes a layer only.
    layered_folders: Vec<LayeredFolder>,
    private_tmp: Option<TmpMounts>,
    /// The mounts, in order.
    steps: Vec<MountStep>,
    rights: PrivateRights,
    has_private_devices: bool,
}

/// The Landlock rights on what only the program has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrivateRights {
    /// On the private shared memory and on caches with a private layer.
    pub(super) write: u64,
    /// On its terminals.
    pub(super) terminals: u64,
}

/// A writable folder of which the program changes a layer only. Without a layer it is read-only.
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
    /// A folder in which nothing is to be seen but the way to these folders.
    HideAround(CString, Vec<OpenFolder>),
}

/// A folder that stays open although it lies below a hidden one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OpenFolder {
    path: CString,
    /// It and all folders between the hidden one and it, outer ones first.
    way: Vec<CString>,
}

impl MountNamespace {
    /// Plans the namespace for the profile. `hidden` are real paths.
    pub(super) fn plan(
        profile: &SandboxProfile,
        hidden: &[PathBuf],
        rights: PrivateRights,
        session_network: Option<Arc<SessionNetwork>>,
    ) -> MountNamespace {
        // System V shared memory, message queues and semaphores are private, too.
        let mut clone_flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        let has_user_namespace = session_network.as_ref().is_some_and(|it| it.has_user_namespace());
        let id_maps = NamespaceMethod::of_this_process().id_maps().filter(|_| !has_user_namespace);
        if id_maps.is_some() {
            clone_flags |= libc::CLONE_NEWUSER;
        }
        let open_folders = hidden_sockets::open_runtime_folders(profile);
        let sockets = hidden_sockets::find(profile, open_folders.is_some());
        let hidden: BTreeSet<PathBuf> = hidden.iter().cloned().chain(sockets).collect();
        let mut open = profile.clone();
        open.unhidden.extend(open_folders.unwrap_or_default());
        // Nothing is below a file.
        let folders: Vec<_> = hidden.iter().filter(|it| it.is_dir()).collect();
        let writable = writable(profile);
        let private_tmp = TmpMounts::plan(profile).filter(|_| writable.len() <= MAX_WRITABLE);
        let is_seen = |it: &&PathBuf| {
            !open.is_below_hidden(it, folders.iter().copied())
                && private_tmp.as_ref().is_none_or(|tmp| tmp.shows(it))
        };
        let seen: Vec<_> = hidden.iter().filter(is_seen).collect();
        let mut steps = read_only_steps(profile, &seen);
        let step = |it: &&PathBuf| hide_step(&open, it, folders.contains(it));
        steps.extend(seen.iter().filter_map(step));
        MountNamespace {
            clone_flags,
            id_maps,
            session_network,
            writable,
            caches: layered_caches(profile),
            overlays: Vec::new(),
            layered_folders: layered_folders(profile),
            private_tmp,
            steps,
            rights,
            has_private_devices: raw_devices::are_private(profile),
        }
    }

    /// Also makes a PID namespace, for the children of the process that enters. Returns the descriptors
    /// that must stay open for as long as there are processes.
    pub(super) fn isolate_processes(&mut self) -> Vec<RawFd> {
        self.clone_flags |= libc::CLONE_NEWPID;
        // A cache without a layer stays read-only.
        self.overlays =
            self.caches.iter().filter_map(|it| CacheOverlay::prepare(it).ok()).collect();
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
        self.caches.iter().map(|it| it.path.clone()).collect()
    }

    /// Moves this process into the namespace, in which nothing is different yet.
    pub(super) fn join(&self) -> io::Result<()> {
        if let Some(network) = &self.session_network {
            network.join_user_namespace()?;
        }
        syscalls::unshare(self.clone_flags)?;
        if let Some((users, groups)) = &self.id_maps {
            map_ids(users, groups)?;
        }
        // Mounts made here are not seen outside; mounts made outside later are seen here.
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        Ok(rustix::mount::mount_change(c"/", propagation)?)
    }

    /// Moves this process into the namespace and makes the mounts. Adds rules for the private shared
    /// memory and the caches to `ruleset`.
    pub(super) fn enter(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.join()?;
        // The layers must be writable when their overlays are made.
        let layers = self.open_layers();
        self.make_rest_read_only(ruleset)?;
        self.attach_layers(&layers)?;
        if self.has_private_devices {
            raw_devices::make_private(ruleset, self.rights.terminals)?;
        }
        self.mount_all()?;
        if let Some(ruleset) = ruleset {
            let how = OFlags::PATH | OFlags::CLOEXEC;
            let memory = rustix::fs::open(SHARED_MEMORY, how, Mode::empty())?;
            syscalls::add_rule(ruleset, memory.as_fd(), self.rights.write)?;
        }
        // The working directory still refers to what is below the new mounts.
        syscalls::reenter_working_directory()
    }

    /// Makes everything read-only except for the writable paths. Their mounts are cloned before and
    /// put back afterwards, so that nothing becomes more writable than it was.
    fn make_rest_read_only(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let is_all = self.writable.iter().any(|it| it.as_c_str() == c"/");
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
                syscalls::add_rule(ruleset, mount.as_fd(), self.rights.write)?;
            }
        }
        let is_in_tmp = |path: &CStr| self.private_tmp.is_some() && TmpMounts::holds(path);
        for (path, clone) in self.writable.iter().zip(&clones).filter(|it| !is_in_tmp(it.0)) {
            put_mounts(clone.as_ref(), path)?;
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

    /// Mounts the private shared memory, and everything that is pinned, read-only or hidden.
    fn mount_all(&self) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"tmpfs", SHARED_MEMORY, c"tmpfs", flags, SHARED_MEMORY_OPTIONS)?;
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::open(EMPTY_FILE, create, Mode::empty())?);
        rustix::fs::mkdir(EMPTY_FOLDER, Mode::empty())?;
        for step in &self.steps {
            match step.mount() {
                // It was deleted in the meantime, with everything that it should protect.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        rustix::fs::unlink(EMPTY_FILE)?;
        Ok(rustix::fs::rmdir(EMPTY_FOLDER)?)
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
    let open = profile.open_below(path).filter(|it| it.is_dir());
    let open = open.filter_map(|it| {
        let way = it.ancestors().take_while(|above| *above != path).map(c_string);
        let mut way: Vec<_> = way.collect::<Option<_>>()?;
        way.reverse();
        Some(OpenFolder { path: c_string(it)?, way })
    });
    // An outer folder brings the inner ones along.
    let open: BTreeSet<_> = open.collect();
    let is_inner =
        |it: &OpenFolder| open.iter().any(|other| it.way.contains(&other.path) && it != other);
    let open: Vec<_> = open.iter().filter(|it| !is_inner(it)).take(MAX_OPEN).cloned().collect();
    Some(if open.is_empty() {
        MountStep::HideFolder(name)
    } else {
        MountStep::HideAround(name, open)
    })
}

/// Puts an empty folder over one, and what stays open into it.
fn hide_around(folder: &CStr, open: &[OpenFolder]) -> io::Result<()> {
    let mut clones = [const { None }; MAX_OPEN];
    for (place, clone) in open.iter().zip(&mut clones) {
        *clone = clone_mounts(&place.path)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", folder, c"tmpfs", flags, c"mode=755,size=64k")?;
    for step in open.iter().flat_map(|it| &it.way) {
        match rustix::fs::mkdir(step.as_c_str(), Mode::RWXU) {
            Err(rustix::io::Errno::EXIST) => {}
            made => made?,
        }
    }
    syscalls::make_read_only(folder)?;
    for (place, clone) in open.iter().zip(&clones) {
        put_mounts(clone.as_ref(), &place.path)?;
    }
    Ok(())
}

/// A copy of what is mounted at and below a path, or `None` if it does not exist.
pub(super) fn clone_mounts(path: &CStr) -> io::Result<Option<OwnedFd>> {
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    match open_without_symlinks(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(opened) => Ok(Some(rustix::mount::open_tree(opened, c"", how)?)),
    }
}

/// Puts such a copy at a path.
pub(super) fn put_mounts(clone: Option<&OwnedFd>, path: &CStr) -> io::Result<()> {
    let Some(clone) = clone else { return Ok(()) };
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(clone, c"", CWD, path, how)?)
}

/// Maps the user and group to themselves in the user namespace, and no others. A process that is
/// not dumpable does not own its files in `/proc`, so it is made dumpable for these three writes.
/// Until then another process could read its memory, but only one that runs as the user outside of
/// any sandbox. `exec` resets the flag.
pub(super) fn map_ids(users: &str, groups: &str) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
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
    let (mut pinned, mut read_only) = (BTreeSet::new(), BTreeSet::new());
    let kept = profile.read_only.iter().filter(|it| fs::symlink_metadata(it).is_ok());
    let kept = kept.map(|it| (it.as_path(), true));
    for (path, is_read_only) in kept.chain(hidden.iter().map(|it| (it.as_path(), false))) {
        let roots = profile.writable.iter().filter(|it| path.starts_with(it));
        // Outside of the writable folders nothing can be changed anyway.
        let Some(root) = roots.min_by_key(|it| it.as_os_str().len()) else { continue };
        let above = path.ancestors().skip(1).take_while(|it| *it != root);
        pinned.extend(above.map(Path::to_owned));
        read_only.extend(is_read_only.then(|| path.to_owned()));
    }
    let is_outer = |it: &&PathBuf| !it.ancestors().skip(1).any(|above| read_only.contains(above));
    let outer = read_only.iter().filter(is_outer);
    let pins = pinned.iter().filter(|it| !it.ancestors().any(|above| read_only.contains(above)));
    // A path sorts before what is below it.
    let steps: std::collections::BTreeMap<&Path, fn(CString) -> MountStep> = pins
        .map(|it| (it.as_path(), MountStep::Pin as fn(CString) -> MountStep))
        .chain(outer.map(|it| (it.as_path(), MountStep::ReadOnly as fn(CString) -> MountStep)))
        .collect();
    steps.into_iter().filter_map(|(path, step)| Some(step(c_string(path)?))).collect()
}

/// The caches that are to get a layer: those that are not writable anyway.
fn layered_caches(profile: &SandboxProfile) -> Vec<PrivateLayer> {
    let is_writable = |it: &Path| profile.writable.iter().any(|path| it.starts_with(path));
    let layered = profile.caches.iter().filter(|it| it.path.is_dir() && !is_writable(&it.path));
    let layered = layered.filter(|it| {
        let outer = profile.caches.iter().filter(|other| other.path != it.path);
        !outer.into_iter().any(|other| it.path.starts_with(&other.path))
    });
    layered.take(MAX_CACHES).cloned().collect()
}

fn layered_folders(profile: &SandboxProfile) -> Vec<LayeredFolder> {
    let is_writable = |path: &Path| profile.writable.iter().any(|it| path.starts_with(it));
    let layers = profile.layers.iter().filter(|it| it.path.is_dir() && is_writable(&it.path));
    let folder = |layer: &PrivateLayer| {
        let path = c_string(&layer.path)?;
        Some(LayeredFolder { layer: layer.clone(), path, overlay: None })
    };
    layers.filter_map(folder).take(MAX_LAYERS).collect()
}

/// The writable paths that exist, without those inside another one.
fn writable(profile: &SandboxProfile) -> Vec<CString> {
    let is_inner = |path: &Path| {
        profile.writable.iter().any(|it| path.starts_with(it) && path != it.as_path())
    };
    let mut paths: Vec<_> =
        profile.writable.iter().filter(|it| it.exists() && !is_inner(it)).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().filter_map(|it| c_string(it)).collect()
}

pub(super) fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
