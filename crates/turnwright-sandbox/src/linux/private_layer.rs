//! A private layer over one of the user's caches: the program sees the cache and may change it, but
//! what it writes goes into the layer. It is an overlay file system, which exists in the program's
//! mount namespace only.
//!
//! Programs that run at the same time may share a layer. What one of them writes, the other may then
//! see late, because each mount remembers for itself what it has found.
//!
//! Publishing a layer makes the changes in it the content of the folder that the program saw through it. Files are
//! replaced and never written, so that their other names (hard links) keep their content.
//! <https://docs.kernel.org/filesystems/overlayfs.html> describes a layer.

use std::ffi::{CStr, CString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fgetxattr,
    futimens, mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::FsOpenFlags;

use super::super::PrivateLayer;
use super::mounts;

/// At most this many programs use a layer at the same time.
const MAX_WORK_FOLDERS: usize = 64;

/// An overlay that is ready to be mounted.
#[derive(Debug)]
pub(super) struct CacheOverlay {
    path: CString,
    options: [(&'static CStr, CString); 3],
    /// The work folder, locked for as long as a process has this descriptor: the kernel spoils the work
    /// folder of an overlay when another is mounted with it.
    work: OwnedFd,
}

impl CacheOverlay {
    /// Creates the folders of the layer.
    pub(super) fn prepare(cache: &PrivateLayer) -> io::Result<CacheOverlay> {
        let upper = cache.private.join("upper");
        create_private_folder(&upper)?;
        let (work_path, work) = lock_work_folder(&cache.private)?;
        let options = [
            (c"lowerdir", option(&cache.path)?),
            (c"upperdir", option(&upper)?),
            (c"workdir", option(&work_path)?),
        ];
        Ok(CacheOverlay { path: option(&cache.path)?, options, work })
    }

    /// The descriptor that must stay open for as long as the overlay is used.
    pub(super) fn lock(&self) -> RawFd {
        self.work.as_raw_fd()
    }

    /// Makes the mount, which is nowhere yet.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (name, value) in &self.options {
            rustix::mount::fsconfig_set_string(&context, *name, value.as_c_str())?;
        }
        // Other attributes need rights that a user namespace does not have.
        rustix::mount::fsconfig_set_flag(&context, c"userxattr")?;
        mounts::create(context.as_fd())
    }

    /// Puts the mount over the cache.
    pub(super) fn attach(&self, mount: BorrowedFd<'_>) -> io::Result<()> {
        mounts::put(mount, CWD, &self.path)
    }
}

/// Finds or creates a work folder that no other overlay uses.
fn lock_work_folder(private: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    for number in 0..MAX_WORK_FOLDERS {
        let path = private.join(format!("work-{number}"));
        create_private_folder(&path)?;
        let folder = File::from(rustix::fs::open(&path, FOLDER, Mode::empty())?);
        match folder.try_lock() {
            Ok(()) => return Ok((path, folder.into())),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("too many programs use this cache"))
}

fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A path as the value of an option, in which these characters would have a meaning.
fn option(path: &Path) -> io::Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().any(|byte| b":,\\".contains(byte)) {
        return Err(io::Error::other("the path has characters with a meaning for overlays"));
    }
    Ok(CString::new(bytes)?)
}

/// Folders that were there before are gone through to this depth. Two descriptors are open for each level.
const MAX_DEPTH: usize = 100;
/// The mark of a folder that replaces another one as a whole.
const OPAQUE: &CStr = c"user.overlay.opaque";
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The name under which a copy is made before it gets its own.
const COPY_NAME: &CStr = c".turnwright-copy";

pub(in super::super) fn publish_layer(layer: &PrivateLayer, folder: &File) -> io::Result<()> {
    let upper = rustix::fs::open(layer.private.join("upper"), FOLDER, Mode::empty())?;
    let replaced = layer.private.join("replaced");
    rustix::fs::mkdir(&replaced, Mode::RWXU)?;
    let replaced = rustix::fs::open(&replaced, FOLDER, Mode::empty())?;
    let mut publishing = Publishing { replaced, replaced_count: 0, failed: None };
    publishing.merge(&upper, folder.as_fd(), 0)?;
    publishing.failed.map_or(Ok(()), |error| Err(error.into()))
}

struct Publishing {
    /// A folder beside the layer, for entries that are no longer in the published folder.
    replaced: OwnedFd,
    replaced_count: u64,
    /// Why something could not be published; the rest is.
    failed: Option<Errno>,
}

/// A change in the layer: an entry of one of its folders, and the folder that gets it.
#[derive(Clone, Copy)]
struct Change<'a> {
    upper: &'a OwnedFd,
    lower: BorrowedFd<'a>,
    name: &'a CStr,
}

impl Publishing {
    /// Moves the entries of a folder of the layer into the folder that it lies over.
    fn merge(&mut self, upper: &OwnedFd, lower: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            self.failed = Some(Errno::NAMETOOLONG);
            return Ok(());
        }
        for entry in Dir::read_from(upper)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            if let Err(error) = self.publish(Change { upper, lower, name }, depth) {
                self.failed = Some(error);
            }
        }
        Ok(())
    }

    fn publish(&mut self, change: Change<'_>, depth: usize) -> Result<(), Errno> {
        let Change { upper, lower, name } = change;
        let stat = statat(upper, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            // The mark of a deleted entry.
            FileType::CharacterDevice if stat.st_rdev == 0 => self.take_away(lower, name),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Ok(()),
            FileType::Directory => self.merge_folder(change, &stat, depth),
            kind => {
                if folder_at(lower, name)?.is_some() {
                    self.take_away(lower, name)?;
                }
                match renameat(upper, name, lower, name) {
                    Err(Errno::XDEV) => copy(change, kind, &stat),
                    moved => moved,
                }
            }
        }
    }

    fn merge_folder(&mut self, change: Change<'_>, stat: &Stat, depth: usize) -> Result<(), Errno> {
        let Change { upper, lower, name } = change;
        let changed = openat(upper, name, FOLDER, Mode::empty())?;
        let is_opaque = fgetxattr(&changed, OPAQUE, &mut [0_u8; 1]).is_ok();
        let published = match folder_at(lower, name)?.filter(|_| !is_opaque) {
            Some(published) => published,
            None => {
                self.take_away(lower, name)?;
                match renameat(upper, name, lower, name) {
                    Err(Errno::XDEV) => {}
                    moved => return moved,
                }
                mkdirat(lower, name, Mode::RWXU)?;
                openat(lower, name, FOLDER, Mode::empty())?
            }
        };
        self.merge(&changed, published.as_fd(), depth + 1).map_err(|error| to_errno(&error))?;
        fchmod(&published, Mode::from_raw_mode(stat.st_mode & 0o7777))
    }

    /// Moves an entry out of the published folder. A folder on another file system than the layer is emptied.
    fn take_away(&mut self, lower: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        self.replaced_count += 1;
        let to = self.replaced_count.to_string();
        match renameat(lower, name, &self.replaced, to) {
            Err(Errno::NOENT) => Ok(()),
            // The system says so even if nothing is there.
            Err(Errno::XDEV) => match remove(lower, name, 0) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed,
            },
            moved => moved,
        }
    }
}

/// Opens the folder at a name; `None` if there is none, or something else.
fn folder_at(parent: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    match openat(parent, name, FOLDER, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Copies an entry that is not a folder to another file system.
fn copy(change: Change<'_>, kind: FileType, stat: &Stat) -> Result<(), Errno> {
    let Change { upper, lower, name } = change;
    match unlinkat(lower, COPY_NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    match kind {
        FileType::Symlink => symlinkat(readlinkat(upper, name, [])?, lower, COPY_NAME)?,
        FileType::RegularFile => copy_file(change, stat)?,
        // Pipes and sockets mean nothing without the processes that have ended.
        _ => return Ok(()),
    }
    renameat(lower, COPY_NAME, lower, name)
}

fn copy_file(change: Change<'_>, stat: &Stat) -> Result<(), Errno> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut from = File::from(openat(change.upper, change.name, read, Mode::empty())?);
    let mut to = File::from(openat(change.lower, COPY_NAME, write, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut from, &mut to).map_err(|error| to_errno(&error))?;
    fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec.cast_signed() };
    futimens(&to, &Timestamps { last_access: modified, last_modification: modified })
}

/// Removes an entry, with everything below it.
fn remove(parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    let Some(folder) = folder_at(parent, name)? else {
        return unlinkat(parent, name, AtFlags::empty());
    };
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            remove(folder.as_fd(), entry.file_name(), depth + 1)?;
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn to_errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use rustix::fs::{XattrFlags, makedev, mknodat, setxattr};

    use super::*;

    fn put(folder: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn delete(upper: &Path, name: &str) {
        let mark = FileType::CharacterDevice;
        mknodat(CWD, upper.join(name), mark, Mode::empty(), makedev(0, 0)).unwrap();
    }

    /// The files below a folder with their content, and the links with their target.
    fn content(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_symlink() {
                all.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            } else if path.is_dir() {
                all.extend(content(&path).iter().map(|below| format!("{name}/{below}")));
            } else {
                all.push(format!("{name}: {}", fs::read_to_string(&path).unwrap()));
            }
        }
        all.sort();
        all
    }

    /// `place` is where the folder is that is published, on the file system of the layer or on another one.
    fn publish_all_changes(place: &Path) {
        let layer = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir_in(place).unwrap();
        let upper = layer.path().join("upper");
        let lower = folder.path().join("lower");
        let before = [
            ("kept", "kept"),
            ("changed", "old"),
            ("deleted", "old"),
            ("deleted-folder/a/b", "old"),
            ("merged/kept", "kept"),
            ("merged/changed", "old"),
            ("replaced/old", "old"),
            ("becomes-folder", "old"),
            ("becomes-file/old", "old"),
        ];
        put(&lower, &before);
        fs::hard_link(lower.join("changed"), folder.path().join("other-name")).unwrap();
        let changes = [
            ("changed", "new"),
            ("merged/changed", "new"),
            ("merged/added/deep/file", "new"),
            ("replaced/new", "new"),
            ("becomes-folder/new", "new"),
            ("becomes-file", "new"),
        ];
        put(&upper, &changes);
        delete(&upper, "deleted");
        delete(&upper, "deleted-folder");
        symlink("kept", upper.join("link")).unwrap();
        setxattr(upper.join("replaced"), OPAQUE, b"y", XattrFlags::empty()).unwrap();
        fs::set_permissions(upper.join("changed"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(upper.join("merged"), fs::Permissions::from_mode(0o750)).unwrap();

        let private = PrivateLayer { path: lower.clone(), private: layer.path().to_path_buf() };
        publish_layer(&private, &File::open(&lower).unwrap()).unwrap();
        let expected = [
            "becomes-file: new",
            "becomes-folder/new: new",
            "changed: new",
            "kept: kept",
            "link -> kept",
            "merged/added/deep/file: new",
            "merged/changed: new",
            "merged/kept: kept",
            "replaced/new: new",
        ];
        assert_eq!(content(&lower), expected);
        assert_eq!(fs::read_to_string(folder.path().join("other-name")).unwrap(), "old");
        let mode = |name: &str| fs::metadata(lower.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("changed"), mode("merged")), (0o755, 0o750));
    }

    #[test]
    fn all_changes_are_published_on_any_file_system() {
        publish_all_changes(&std::env::temp_dir());
        publish_all_changes(Path::new("/dev/shm"));
    }

    #[test]
    fn a_link_that_has_replaced_a_folder_leads_nowhere() {
        let layer = tempfile::tempdir().unwrap();
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        let lower = place.path().join("lower");
        put(&outside, &[("file", "old")]);
        fs::create_dir(&lower).unwrap();
        symlink(&outside, lower.join("sub")).unwrap();
        put(&layer.path().join("upper"), &[("sub/file", "new")]);
        let held = File::open(&lower).unwrap();
        fs::rename(&lower, place.path().join("moved")).unwrap();
        symlink(&outside, &lower).unwrap();
        let private = PrivateLayer { path: lower, private: layer.path().to_path_buf() };
        publish_layer(&private, &held).unwrap();
        assert_eq!(content(&outside), ["file: old"]);
        assert_eq!(content(&place.path().join("moved")), ["sub/file: new"]);
    }
}
