//! A private `/tmp` for the program: a folder of its user is mounted there. Of the machine's `/tmp` the program sees
//! only what its profile names. Once it is planned, mounting it makes system calls only.
//!
//! Other programs may share the folder and change it meanwhile. So nothing is mounted at a path that leads through
//! links in it, and a place deeper in `/tmp` lies in a read-only file system of this program alone. That file system, or
//! a place that is an entry of `/tmp` itself, is mounted at a name in the folder all the same. A program that shares the
//! folder and does not see this place can move the name away with the mount, and put something else there. So a caller
//! must not show anything in `/tmp` that the program trusts more than the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

use super::super::SandboxProfile;
use super::mount_namespace::{c_string, clone_mounts};
use super::real_path::{open_without_symlinks, real_path};
use super::syscalls;

const TMP: &str = "/tmp";
const MOUNT_POINT: &CStr = c"/tmp";
/// At most this many places of the machine's `/tmp` are shown.
const MAX_SHOWN: usize = 64;

/// The planned mounts.
#[derive(Debug)]
pub(super) struct TmpMounts {
    folder: CString,
    /// The device and inode of the folder: another could be at its path later.
    folder_id: FileId,
    /// True if the program may write there.
    is_writable: bool,
    entries: Vec<TmpEntry>,
    /// The places of the machine's `/tmp` that are to be seen, outer ones first.
    places: Vec<PathBuf>,
}

/// The device and inode of a file.
type FileId = (u64, u64);

/// An entry of the machine's `/tmp` that is to be seen or leads to one.
#[derive(Debug)]
struct TmpEntry {
    path: CString,
    /// The files and folders of a file system for it, outer ones first; empty if it is a place itself.
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
        if is_open || real_path(tmp)? != tmp {
            return None;
        }
        let folder = open_folder(&private.folder).ok()?;
        let seen = |path: &&PathBuf| {
            path.starts_with(tmp) && path.as_path() != tmp && !path.starts_with(&private.folder)
        };
        let writable: BTreeSet<_> = profile.writable.iter().filter(seen).collect();
        let readable = profile.readable.iter().flatten();
        let caches = profile.caches.iter().map(|cache| &cache.path);
        let named = private.shown.iter().chain(readable).chain(&profile.unhidden);
        let shown: BTreeSet<_> =
            named.chain(&profile.sockets).chain(caches).filter(seen).take(MAX_SHOWN).collect();
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
        let mountable = entries
            .iter()
            .filter_map(|(entry, places)| TmpEntry::plan(entry, places))
            .filter(|entry| entry.make_mount_point(folder.as_fd()).is_ok());
        let planned = TmpMounts {
            folder: c_string(&private.folder)?,
            folder_id: id_of(folder.as_fd()).ok()?,
            is_writable: profile.writable.iter().any(|path| private.folder.starts_with(path)),
            entries: mountable.collect(),
            places,
        };
        if let Ok(name) = private.folder.strip_prefix(tmp) {
            // Its own path leads to it in there, too.
            link_to_itself(folder, name).ok();
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

    /// Copies the mount of the folder, if the program may write there: before everything becomes read-only.
    pub(super) fn open_writable(&self) -> io::Result<Option<OwnedFd>> {
        if self.is_writable { self.clone_folder().map(Some) } else { Ok(None) }
    }

    fn clone_folder(&self) -> io::Result<OwnedFd> {
        let clone = clone_mounts(&self.folder)?.ok_or(io::ErrorKind::NotFound)?;
        if id_of(clone.as_fd())? == self.folder_id {
            Ok(clone)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Makes the mounts. Everything is read-only already; `folder` is what [`open_writable`](TmpMounts::open_writable)
    /// has returned, and `writable` has copies of the other mounts that are not.
    pub(super) fn mount(
        &self,
        folder: Option<OwnedFd>,
        writable: &[CString],
        clones: &[Option<OwnedFd>],
    ) -> io::Result<()> {
        let mut shown = [const { None }; MAX_SHOWN];
        let places = self.entries.iter().flat_map(|entry| &entry.places);
        for (place, clone) in places.filter(|place| !place.is_writable).zip(&mut shown) {
            *clone = clone_mounts(&place.path)?;
        }
        let mut shown = shown.iter();
        let folder = folder.map_or_else(|| self.clone_folder(), Ok)?;
        put(folder.as_fd(), CWD, MOUNT_POINT)?;
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
            // Everything in another place is there already.
            if places.iter().any(|other| path.starts_with(other.0) && other.0 != *path) {
                continue;
            }
            for part in path.ancestors().take_while(|part| *part != entry) {
                way.insert(part.strip_prefix(entry).ok()?, part.is_dir());
            }
        }
        let is_place = places.iter().any(|place| place.0 == entry);
        let planned_places = places.iter().map(|(path, is_writable)| {
            let below = c_string(path.strip_prefix(entry).ok()?)?;
            Some(TmpPlace { path: c_string(path)?, below, is_writable: *is_writable })
        });
        Some(TmpEntry {
            path: c_string(entry)?,
            way: if is_place {
                Vec::new()
            } else {
                way.into_iter()
                    .map(|(part, is_folder): (&Path, bool)| Some((c_string(part)?, is_folder)))
                    .collect::<Option<_>>()?
            },
            places: planned_places.collect::<Option<_>>()?,
        })
    }

    /// Makes the empty file or folder at which it is mounted. Fails if something else is there.
    fn make_mount_point(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let name = self.path.to_bytes().strip_prefix(b"/tmp/").unwrap_or_default();
        let is_folder = Path::new(OsStr::from_bytes(self.path.to_bytes())).is_dir();
        if is_folder {
            make_folder(folder, name)?;
        } else if let Err(error) = make_file(folder, name)
            && error != Errno::EXIST
        {
            return Err(error.into());
        }
        let made = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(made.st_mode);
        let is_fit = !kind.is_symlink() && kind.is_dir() == is_folder;
        if is_fit { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
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
                make_file(way.as_fd(), part.as_c_str())?;
            }
        }
        syscalls::make_mount_read_only(way.as_fd())?;
        put(way.as_fd(), CWD, &self.path)?;
        Ok(Some(way))
    }
}

/// Opens a folder, to look at it only. Fails if its path leads through a link.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let folder = open_without_symlinks(path)?;
    let is_folder = FileType::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode).is_dir();
    if is_folder { Ok(folder) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

fn id_of(file: BorrowedFd<'_>) -> io::Result<FileId> {
    let found = rustix::fs::fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

/// Makes an empty file. Follows no link.
fn make_file(folder: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, create, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Makes a folder, unless something is there.
fn make_folder(folder: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(folder, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Lets this name below the folder lead to the folder itself. Follows no link.
fn link_to_itself(folder: OwnedFd, name: &Path) -> io::Result<()> {
    let mut above = folder;
    let mut target = PathBuf::from(".");
    for part in name.parent().into_iter().flatten() {
        make_folder(above.as_fd(), part)?;
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        above = rustix::fs::openat(&above, part, how, Mode::empty())?;
        target.push("..");
    }
    let last = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::symlinkat(&target, &above, last)?)
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
