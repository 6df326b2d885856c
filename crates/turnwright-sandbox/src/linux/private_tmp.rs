//! A private `/tmp` for the program: a folder of its user is mounted there. Of the machine's `/tmp` the program sees
//! only what its profile names, and of that only what it may read: Landlock's rule for the folder covers all that is
//! mounted in it. Once it is planned, mounting it makes system calls only.
//!
//! Other programs may share the folder and change it meanwhile. So nothing is mounted at a path that leads through
//! links in it, and a place deeper in `/tmp` lies in a read-only file system of this program alone. That file system, or
//! a place that is an entry of `/tmp` itself, is mounted at a name in the folder all the same. A program that shares the
//! folder and does not see this place can move the name away with the mount, and put something else there. So a caller
//! must not show anything in `/tmp` that the program trusts more than the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::super::{PrivateTmp, SandboxProfile};
use super::mount_namespace::c_string;
use super::mounts::{clone_mounts, new_tmpfs, put};
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
    /// Plans the mounts and creates their empty mount points; `None` if the profile has none, or names the `/tmp` of
    /// the machine. Fails if they cannot be made: the program must not see the machine's `/tmp` instead.
    pub(super) fn plan(profile: &SandboxProfile) -> io::Result<Option<TmpMounts>> {
        let tmp = Path::new(TMP);
        let Some(private) = &profile.private_tmp else { return Ok(None) };
        if profile.writable.iter().any(|path| tmp.starts_with(path)) {
            return Ok(None);
        }
        if real_path(tmp).as_deref() != Some(tmp) {
            let why = "it is a link or missing here. Where /tmp is writable, it is the machine's";
            return Err(no_private_tmp(why));
        }
        let opened = open_folder(&private.folder).and_then(|folder| {
            let id = id_of(folder.as_fd())?;
            Ok((folder, id, c_string(&private.folder).ok_or(io::ErrorKind::InvalidInput)?))
        });
        let (folder, folder_id, path) = opened.map_err(|error| {
            let name = private.folder.display();
            no_private_tmp(&format!("{name}: {error}. A new session has another folder"))
        })?;
        let mut planned = TmpMounts {
            folder: path,
            folder_id,
            is_writable: profile.writable.iter().any(|path| private.folder.starts_with(path)),
            entries: Vec::new(),
            places: Vec::new(),
        };
        for (entry, places) in &seen_entries(profile, private) {
            let Some(mounted) = TmpEntry::plan(entry, places) else { continue };
            if mounted.make_mount_point(folder.as_fd()).is_ok() {
                planned.entries.push(mounted);
                planned.places.extend(places.iter().map(|(path, _)| (*path).clone()));
            }
        }
        if let Ok(name) = private.folder.strip_prefix(tmp) {
            // Its own path leads to it in there, too.
            link_to_itself(folder, name).ok();
        }
        Ok(Some(planned))
    }

    /// Returns true if the program sees a place of the machine's `/tmp` read-only.
    pub(super) fn shows_read_only(&self) -> bool {
        self.entries.iter().flat_map(|entry| &entry.places).any(|place| !place.is_writable)
    }

    /// Returns true if the program sees the path of the machine as it is.
    pub(super) fn shows(&self, path: &Path) -> bool {
        !path.starts_with(TMP) || self.places.iter().any(|place| path.starts_with(place))
    }

    /// Returns true if a writable path is mounted as part of the private `/tmp`.
    pub(super) fn holds(path: &CStr) -> bool {
        path.to_bytes().starts_with(b"/tmp/")
    }

    /// Copies the mount of the folder, if the program may write there: before everything becomes read-only.
    pub(super) fn open_writable(&self) -> io::Result<Option<OwnedFd>> {
        if self.is_writable { self.clone_folder().map(Some) } else { Ok(None) }
    }

    fn clone_folder(&self) -> io::Result<OwnedFd> {
        let clone = clone_mounts(&self.folder)?.ok_or(io::ErrorKind::NotFound)?;
        let is_same = id_of(clone.as_fd())? == self.folder_id;
        if is_same { Ok(clone) } else { Err(io::ErrorKind::NotFound.into()) }
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
                    let mut copies = writable.iter().zip(clones);
                    copies.find(|copy| *copy.0 == place.path).and_then(|copy| copy.1.as_ref())
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
        let planned_way = way
            .into_iter()
            .map(|(part, is_folder): (&Path, bool)| Some((c_string(part)?, is_folder)));
        let planned_places = places.iter().map(|(path, is_writable)| {
            let below = c_string(path.strip_prefix(entry).ok()?)?;
            Some(TmpPlace { path: c_string(path)?, below, is_writable: *is_writable })
        });
        Some(TmpEntry {
            path: c_string(entry)?,
            way: planned_way.collect::<Option<_>>()?,
            places: planned_places.collect::<Option<_>>()?,
        })
    }

    /// Makes the empty file or folder at which it is mounted. Fails if something else is there.
    fn make_mount_point(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let name = self.path.to_bytes().strip_prefix(b"/tmp/").unwrap_or_default();
        let is_folder = Path::new(OsStr::from_bytes(self.path.to_bytes())).is_dir();
        // A program that does not see the place must not take it for an empty one.
        let closed = Mode::empty();
        if is_folder {
            make_folder(folder, name, closed)?;
        } else if let Err(error) = make_file(folder, name, closed)
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
        let way = new_tmpfs(c"755", c"64k")?;
        for (part, is_folder) in &self.way {
            if *is_folder {
                rustix::fs::mkdirat(&way, part.as_c_str(), Mode::RWXU)?;
            } else {
                make_file(way.as_fd(), part.as_c_str(), Mode::RUSR | Mode::WUSR)?;
            }
        }
        syscalls::make_mount_read_only(way.as_fd())?;
        put(way.as_fd(), CWD, &self.path)?;
        Ok(Some(way))
    }
}

/// The entries of the machine's `/tmp` with the places in them that are to be seen, each with true if it is writable.
/// Outer ones come first.
fn seen_entries<'a>(
    profile: &'a SandboxProfile,
    private: &'a PrivateTmp,
) -> BTreeMap<PathBuf, Vec<(&'a PathBuf, bool)>> {
    let named = profile.writable.iter();
    let writable: BTreeSet<_> = named.filter(|path| is_of_machine(path, private)).collect();
    let mut entries: BTreeMap<PathBuf, Vec<(&PathBuf, bool)>> = BTreeMap::new();
    let mut places: Vec<&PathBuf> = Vec::new();
    for path in &writable | &shown_places(profile, private) {
        let is_writable = writable.contains(path);
        let is_inner = places.iter().any(|outer| path.starts_with(outer));
        let is_in_writable = writable.iter().any(|outer| path.starts_with(outer) && path != *outer);
        let is_real = real_path(path).as_ref() == Some(path);
        if is_real && !is_in_writable && (is_writable || !is_inner) {
            let entry = path.components().take(3).collect();
            entries.entry(entry).or_default().push((path, is_writable));
            places.push(path);
        }
    }
    entries
}

/// The places that are to be seen read-only, unless they are writable: of those that the profile shows only what the
/// program may read. If they are too many, others are left out.
fn shown_places<'a>(profile: &'a SandboxProfile, private: &'a PrivateTmp) -> BTreeSet<&'a PathBuf> {
    let list = profile.readable.as_ref();
    let readable: Option<Vec<_>> =
        list.map(|list| list.iter().filter_map(|place| real_path(place)).collect());
    let shown = private.shown.iter().filter(|path| {
        readable.as_ref().is_none_or(|list| list.iter().any(|place| path.starts_with(place)))
    });
    let caches = profile.caches.iter().map(|cache| &cache.path);
    let needed = profile.sockets.iter().chain(caches).chain(&profile.unhidden);
    let all = needed.chain(list.into_iter().flatten()).chain(shown);
    let mut places = BTreeSet::new();
    for path in all.filter(|path| is_of_machine(path, private) && !takes_data(path)) {
        if places.len() == MAX_SHOWN {
            break;
        }
        places.insert(path);
    }
    places
}

/// Returns true for a path in the machine's `/tmp`, except for the folder that the program has in its place.
fn is_of_machine(path: &Path, private: &PrivateTmp) -> bool {
    let tmp = Path::new(TMP);
    path.starts_with(tmp) && path != tmp && !path.starts_with(&private.folder)
}

/// Returns true for a pipe or a device: it can be written to, although its mount is read-only.
fn takes_data(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
    })
}

fn no_private_tmp(why: &str) -> io::Error {
    io::Error::other(format!("a private /tmp cannot be mounted: {why}"))
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
fn make_file(folder: BorrowedFd<'_>, name: impl Arg, mode: Mode) -> rustix::io::Result<()> {
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, create, mode).map(drop)
}

/// Makes a folder, unless something is there.
fn make_folder(folder: BorrowedFd<'_>, name: impl Arg, mode: Mode) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(folder, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Lets this name below the folder lead to the folder itself. Follows no link.
fn link_to_itself(folder: OwnedFd, name: &Path) -> io::Result<()> {
    let mut above = folder;
    let mut target = PathBuf::from(".");
    for part in name.parent().into_iter().flatten() {
        make_folder(above.as_fd(), part, Mode::RWXU)?;
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        above = rustix::fs::openat(&above, part, how, Mode::empty())?;
        target.push("..");
    }
    let last = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::symlinkat(&target, &above, last)?)
}
