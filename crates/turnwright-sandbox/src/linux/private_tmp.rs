//! A `/tmp` of the program's own: a folder of its user is mounted there. Of what is in the `/tmp` of the machine the
//! program sees what its profile names and nothing else. Once it is planned, mounting it makes system calls only.
//!
//! Other programs may share the folder and change it meanwhile. So nothing is mounted at a path that leads through
//! links or names in it: a place deeper in `/tmp` lies in a read-only file system of this program alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

use super::super::SandboxProfile;
use super::mount_namespace::{c_string, clone_mounts};
use super::real_path::real_path;
use super::syscalls;

const TMP: &str = "/tmp";
const MOUNT_POINT: &CStr = c"/tmp";
/// At most this many places of the machine's `/tmp` are shown.
const MAX_SHOWN: usize = 64;

/// The planned mounts.
#[derive(Debug)]
pub(super) struct TmpMounts {
    folder: CString,
    entries: Vec<TmpEntry>,
    /// Those of the machine's `/tmp` that are to be seen, outer ones first.
    places: Vec<PathBuf>,
}

/// An entry of the machine's `/tmp` that is to be seen or leads to one.
#[derive(Debug)]
struct TmpEntry {
    path: CString,
    /// What a file system for it has to hold, outer ones first; nothing if it is a place itself.
    way: Vec<(CString, bool)>,
    places: Vec<TmpPlace>,
}

#[derive(Debug)]
struct TmpPlace {
    path: CString,
    /// The path from the entry on.
    below: CString,
    is_writable: bool,
}

impl TmpMounts {
    /// Plans the mounts, and makes the empty files and folders at which they are to be seen; `None` if the profile
    /// has none, or names the `/tmp` of the machine.
    pub(super) fn plan(profile: &SandboxProfile) -> Option<TmpMounts> {
        let tmp = Path::new(TMP);
        let private = profile.private_tmp.as_ref()?;
        let is_open = profile.writable.iter().any(|path| tmp.starts_with(path));
        if is_open || real_path(tmp)? != tmp || !private.folder.is_dir() {
            return None;
        }
        let seen = |path: &&PathBuf| {
            path.starts_with(tmp) && path.as_path() != tmp && !path.starts_with(&private.folder)
        };
        let writable: BTreeSet<_> = profile.writable.iter().filter(seen).collect();
        let readable = profile.readable.iter().flatten();
        let caches = profile.caches.iter().map(|cache| &cache.path);
        let shown = private.shown.iter().chain(readable).chain(&profile.unhidden);
        let shown = shown.chain(&profile.sockets).chain(caches).filter(seen);
        let shown: BTreeSet<_> = shown.take(MAX_SHOWN).collect();
        let mut entries: BTreeMap<PathBuf, Vec<(&PathBuf, bool)>> = BTreeMap::new();
        let mut places: Vec<PathBuf> = Vec::new();
        for path in &writable | &shown {
            let is_writable = writable.contains(path);
            let is_inner = places.iter().any(|outer| path.starts_with(outer));
            let is_in_writable =
                writable.iter().any(|outer| path.starts_with(outer) && path != *outer);
            let entry = path.components().take(3).collect();
            if real_path(path).as_ref() != Some(path) || is_in_writable || is_inner && !is_writable
            {
                continue;
            }
            entries.entry(entry).or_default().push((path, is_writable));
            places.push(path.clone());
        }
        let entries = entries.iter().filter_map(|(entry, places)| TmpEntry::plan(entry, places));
        let entries = entries.filter(|entry| entry.make_mount_point(&private.folder).is_some());
        let planned =
            TmpMounts { folder: c_string(&private.folder)?, entries: entries.collect(), places };
        if let Ok(name) = private.folder.strip_prefix(tmp) {
            // Its own path leads to it in there, too.
            std::os::unix::fs::symlink(".", private.folder.join(name)).ok();
        }
        Some(planned)
    }

    /// Returns true if something of the machine's is to be seen that the program may only read.
    pub(super) fn shows_read_only(&self) -> bool {
        self.entries.iter().flat_map(|entry| &entry.places).any(|place| !place.is_writable)
    }

    /// Returns true if the program sees the path of the machine as it is.
    pub(super) fn shows(&self, path: &Path) -> bool {
        !path.starts_with(TMP) || self.places.iter().any(|place| path.starts_with(place))
    }

    /// Returns true if the mount of a writable path is put back here.
    pub(super) fn holds(path: &CStr) -> bool {
        path.to_bytes().starts_with(b"/tmp/")
    }

    /// Makes the mounts. Everything is read-only already; `writable` has copies of the mounts that are not.
    pub(super) fn mount(&self, writable: &[CString], clones: &[Option<OwnedFd>]) -> io::Result<()> {
        let mut shown = [const { None }; MAX_SHOWN];
        let places = self.entries.iter().flat_map(|entry| &entry.places);
        for (place, clone) in places.filter(|place| !place.is_writable).zip(&mut shown) {
            *clone = clone_mounts(&place.path)?;
        }
        let mut shown = shown.iter();
        match clone_of(&self.folder, writable, clones) {
            Some(folder) => put(folder.as_fd(), CWD, MOUNT_POINT)?,
            None => {
                let folder = clone_mounts(&self.folder)?.ok_or(io::ErrorKind::NotFound)?;
                put(folder.as_fd(), CWD, MOUNT_POINT)?;
            }
        }
        for entry in &self.entries {
            let way = entry.mount_way()?;
            // The mount at the entry, whatever is done to its path.
            let mut top = way.as_ref();
            for place in &entry.places {
                let clone = if place.is_writable {
                    clone_of(&place.path, writable, clones)
                } else {
                    shown.next().and_then(Option::as_ref)
                };
                // It may have been deleted in the meantime.
                let Some(clone) = clone else { continue };
                match top {
                    Some(top) => put(clone.as_fd(), top.as_fd(), &place.below)?,
                    None if place.below.is_empty() => {
                        put(clone.as_fd(), CWD, &entry.path)?;
                        top = Some(clone);
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }
}

impl TmpEntry {
    fn plan(entry: &Path, places: &[(&PathBuf, bool)]) -> Option<TmpEntry> {
        let mut way = BTreeMap::new();
        for (path, _) in places.iter().filter(|place| place.0 != entry) {
            // What lies in another place is there already.
            if places.iter().any(|other| path.starts_with(other.0) && other.0 != *path) {
                continue;
            }
            for part in path.ancestors().take_while(|part| *part != entry) {
                way.insert(part.strip_prefix(entry).ok()?, part.is_dir());
            }
        }
        let is_place = places.iter().any(|place| place.0 == entry);
        let place = |(path, is_writable): &(&PathBuf, bool)| {
            let below = c_string(path.strip_prefix(entry).ok()?)?;
            Some(TmpPlace { path: c_string(path)?, below, is_writable: *is_writable })
        };
        Some(TmpEntry {
            path: c_string(entry)?,
            way: if is_place {
                Vec::new()
            } else {
                way.into_iter()
                    .map(|(part, is_folder): (&Path, bool)| Some((c_string(part)?, is_folder)))
                    .collect::<Option<_>>()?
            },
            places: places.iter().map(place).collect::<Option<_>>()?,
        })
    }

    /// Makes the empty file or folder at which it is mounted; `None` if something else is there.
    fn make_mount_point(&self, folder: &Path) -> Option<()> {
        use std::os::unix::ffi::OsStrExt;
        let entry = Path::new(std::ffi::OsStr::from_bytes(self.path.to_bytes()));
        let point = folder.join(entry.file_name()?);
        let is_folder = entry.is_dir();
        // Neither follows a link.
        if is_folder {
            fs::create_dir(&point).ok();
        } else {
            fs::File::create_new(&point).ok();
        }
        let made = fs::symlink_metadata(&point).ok()?;
        (made.is_dir() == is_folder && !made.is_symlink()).then_some(())
    }

    /// Mounts the file system that leads to the places; `None` if the entry is one.
    fn mount_way(&self) -> io::Result<Option<OwnedFd>> {
        if self.way.is_empty() {
            return Ok(None);
        }
        let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&context, c"mode", c"755")?;
        rustix::mount::fsconfig_set_string(&context, c"size", c"64k")?;
        rustix::mount::fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let way = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        for (part, is_folder) in &self.way {
            if *is_folder {
                rustix::fs::mkdirat(&way, part.as_c_str(), Mode::RWXU)?;
            } else {
                let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(rustix::fs::openat(&way, part.as_c_str(), create, Mode::empty())?);
            }
        }
        syscalls::make_mount_read_only(way.as_fd())?;
        put(way.as_fd(), CWD, &self.path)?;
        Ok(Some(way))
    }
}

/// The copy of the mounts of a path.
fn clone_of<'a>(
    path: &CStr,
    writable: &[CString],
    clones: &'a [Option<OwnedFd>],
) -> Option<&'a OwnedFd> {
    let mut copies = writable.iter().zip(clones).filter(|copy| copy.0.as_c_str() == path);
    copies.next()?.1.as_ref()
}

/// Mounts something at a path, which must not end in a link.
fn put(mount: BorrowedFd<'_>, folder: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", folder, path, how)?)
}
