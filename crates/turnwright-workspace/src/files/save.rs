//! Writes files to the disk, by an atomic replacement where possible: a reader sees the old bytes
//! or the new ones, also after a crash. A new file is written beside its final path. Its writer holds a lock on it, so
//! that another process can recognize files that a killed process has left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tempfile::NamedTempFile;

use super::FileError;
use super::disk::{ensure_regular, read_whole, run_at};
use crate::nofollow;
use crate::temp_folder::{is_own, lock_now};
use turnwright_types::error_text::io_error_text;
use turnwright_types::file_id::file_id;
use turnwright_types::hash::{sha256_of_reader, std_hash};
use turnwright_types::private_file;

/// The state that the path must have at the moment of writing.
#[derive(Debug)]
pub(super) enum WritePrecondition {
    Any,
    Absent,
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A file with this SHA-256.
    Sha256([u8; 32]),
}

/// Writes `bytes` to a file. Mode, owner and attributes are preserved. If it has other names (hard links), these keep
/// the old content: package managers link the files of one store into many projects. Missing folders are created.
pub(super) async fn write(
    path: &Path,
    precondition: WritePrecondition,
    bytes: Vec<u8>,
) -> Result<(), FileError> {
    run_at(path, move |path| {
        // If two sessions change a file, the second must see what the first has written.
        let _write_lock = lock_for_write(path);
        let hold = match precondition {
            // A file that must exist has a folder.
            WritePrecondition::Bytes(_) | WritePrecondition::Sha256(_) => nofollow::open_folder,
            WritePrecondition::Any | WritePrecondition::Absent => nofollow::create_folder,
        };
        // The folder is held open to the end, so that the file that is compared and the file that
        // is written are in the same folder.
        let (_held, path) = nofollow::hold_entry(path, hold)?;
        if !precondition.is_met(&path)? {
            return Err(FileError::Stale);
        }
        write_held(&path, &bytes)
    })
    .await
}

/// Separates a path from the other names (hard links) of its file, before another program writes the file in
/// place. Blocks.
pub(super) fn separate_from_other_names(path: &Path) -> Result<(), FileError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.is_file() || link_count(path) < 2 {
        return Ok(());
    }
    let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    let bytes = read_whole(&nofollow::open_pinned_file(&path, false)?, metadata.len())?;
    write_held(&path, &bytes)
}

impl WritePrecondition {
    fn is_met(&self, path: &Path) -> Result<bool, FileError> {
        match self {
            WritePrecondition::Any => Ok(true),
            WritePrecondition::Absent => Ok(fs::symlink_metadata(path).is_err()),
            WritePrecondition::Sha256(expected) => Ok(file_sha256(path)? == *expected),
            WritePrecondition::Bytes(bytes) => {
                let file = nofollow::open_pinned_file(path, false)?;
                let length = file.metadata()?.len();
                let mut current = Vec::with_capacity(bytes.len() + 1);
                if length == bytes.len() as u64 {
                    file.take(length + 1).read_to_end(&mut current)?;
                }
                Ok(current == *bytes)
            }
        }
    }
}

pub(super) fn file_sha256(path: &Path) -> Result<[u8; 32], FileError> {
    let file = nofollow::open_pinned_file(path, false)?;
    ensure_regular(&file.metadata()?)?;
    let (sha256, _) = sha256_of_reader(file)?;
    Ok(sha256)
}

/// Locks the write of a path within this process. The locks are striped: unrelated paths wait for
/// each other only by chance, and a disk that hangs does not block all of them.
pub(super) fn lock_for_write(path: &Path) -> MutexGuard<'static, ()> {
    static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    let lock = &LOCKS[usize::try_from(std_hash(path) % 64).unwrap_or(0)];
    lock.lock()
}

/// Writes a file whose folder is held open.
fn write_held(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let old = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => return Err(FileError::Moved),
        Ok(metadata) => {
            ensure_regular(&metadata)?;
            // A replacement needs write permission for the folder and not for the file, so the
            // file's is checked here.
            if metadata.permissions().readonly() {
                return Err(FileError::ReadOnly);
            }
            Some(metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let has_other_links = old.is_some() && link_count(path) > 1;
    match replace_atomically(path, bytes, old.as_ref()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(FileError::Stale),
        Err(error) if old.is_some() && !has_other_links && must_write_in_place(&error) => {
            write_in_place(path, bytes)
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces a file by a new one, atomically. Returns false, and does nothing, if the file was changed or created
/// meanwhile.
fn replace_atomically(path: &Path, bytes: &[u8], old: Option<&Metadata>) -> io::Result<bool> {
    // A new file gets the mode that the umask allows. A replacement must not be readable by others
    // before it has the mode of the old file.
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let file = create_beside(path, mode)?;
    file.as_file().write_all(bytes)?;
    if let Some(old) = old {
        if !preserve_access(path, &file, old) {
            // The new file would have another owner, or others could read it.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        copy_xattrs(path, file.as_file());
        // This is last because a change of the owner clears bits of the mode.
        nofollow::set_permissions(file.as_file(), old.permissions())?;
    }
    private_file::sync(file.as_file())?;
    match old {
        Some(old) if !is_unchanged(path, old) => Ok(false),
        Some(_) => {
            file.persist(path)?;
            Ok(true)
        }
        None => match place_new(file, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            placed => placed.map(|()| true),
        },
    }
}

/// Returns true if a file is unchanged since `old` was read. Writing the replacement may have taken long.
fn is_unchanged(path: &Path, old: &Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|now| state(&now) == state(old))
}

#[cfg(unix)]
fn state(metadata: &Metadata) -> (u64, u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn state(metadata: &Metadata) -> (u64, Option<std::time::SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

/// Returns true if a replacement failed because the folder accepts no new file, because that would have another owner
/// or access list, because the file is in use or a mount point, or because the disk knows no modes. Then the file has
/// to be written in place.
fn must_write_in_place(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::Unsupported
    ) || private_file::is_in_use(error)
}

/// Overwrites the file itself. This is not atomic, so whatever can fail is tried before the first
/// byte is changed, and the old bytes are written back on failure.
fn write_in_place(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = nofollow::open_pinned_file(path, true)?;
    let metadata = file.metadata()?;
    ensure_regular(&metadata)?;
    let old = read_whole(&file, metadata.len())?;
    #[cfg(target_os = "linux")]
    reserve_space(&file, bytes.len())?;
    let Err(error) = private_file::fill(&mut file, bytes) else { return Ok(()) };
    match private_file::fill(&mut file, &old) {
        Ok(()) => Err(error.into()),
        Err(_) => Err(FileError::PartialWrite(io_error_text(&error))),
    }
}

/// Reserves disk space, so that a full disk is noticed before anything is lost.
#[cfg(target_os = "linux")]
fn reserve_space(file: &File, length: usize) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, length as u64) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        // Not every file system supports this.
        _ => Ok(()),
    }
}

/// The number of names (hard links) of a file.
fn link_count(path: &Path) -> u64 {
    file_id(path).map_or(1, |(_, names)| names)
}

#[cfg(unix)]
fn preserve_access(_: &Path, new: &NamedTempFile, old: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = new.as_file();
    let is_same = file.metadata().is_ok_and(|now| now.uid() == old.uid() && now.gid() == old.gid());
    is_same || std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
}

/// Gives the new file the access list of the old one, if the disk has such lists. Returns false if that is refused, or
/// if the new file could then be neither renamed nor removed.
#[cfg(not(unix))]
#[expect(unsafe_code, reason = "calls of the system whose pointers live as long as the call")]
fn preserve_access(path: &Path, new: &NamedTempFile, _: &Metadata) -> bool {
    use std::os::windows::ffi::OsStrExt;
    use std::os::windows::fs::OpenOptionsExt;
    use windows_sys::Win32::Security::{
        DACL_SECURITY_INFORMATION, GetFileSecurityW, SE_DACL_AUTO_INHERIT_REQ, SetFileSecurityW,
    };
    use windows_sys::Win32::Storage::FileSystem::{DELETE, FILE_WRITE_ATTRIBUTES, READ_CONTROL};
    let needed = DELETE | FILE_WRITE_ATTRIBUTES | READ_CONTROL;
    if File::options().access_mode(needed).open(path).is_err() {
        return false;
    }
    let [from, to] = [path, new.path()]
        .map(|path| path.as_os_str().encode_wide().chain([0]).collect::<Vec<_>>());
    // The longest list has 64 KiB, behind a header.
    let mut list = vec![0_u64; 8_200];
    let place = list.as_mut_ptr().cast();
    let mut length = 0;
    let kind = DACL_SECURITY_INFORMATION;
    // SAFETY: the names end with a zero, and `list` has so many bytes.
    let is_read = unsafe { GetFileSecurityW(from.as_ptr(), kind, place, 65_600, &raw mut length) };
    // The flags are the third and fourth byte. With this one, inherited entries stay inherited.
    list[0] |= u64::from(SE_DACL_AUTO_INHERIT_REQ) << 16;
    // SAFETY: `to` ends with a zero, and `list` is a list that the system has written.
    is_read == 0 || unsafe { SetFileSecurityW(to.as_ptr(), kind, list.as_mut_ptr().cast()) } != 0
}

/// Copies the extended attributes (on Linux ACLs, on macOS the Finder's tags), as far as the system permits.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn copy_xattrs(from: &Path, to: &File) {
    use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, llistxattr};
    /// The kernel's limit for the list of names and for one value.
    const MAX_XATTR_BYTES: usize = 64 * 1024;
    let mut names = vec![0; MAX_XATTR_BYTES];
    let Ok(count) = llistxattr(from, &mut names) else { return };
    let mut value = vec![0; MAX_XATTR_BYTES];
    for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // The kernel also clears file capabilities when a file is written.
        if name == b"security.capability" {
            continue;
        }
        let copied = lgetxattr(from, name, &mut value)
            .and_then(|length| fsetxattr(to, name, &value[..length], XattrFlags::empty()));
        if let Err(error) = copied {
            tracing::debug!(%error, "an extended attribute could not be copied");
        }
    }
}

const PREFIX: &str = ".turnwright-";
const SUFFIX: &str = ".tmp";
/// The number of random characters between them.
const RANDOM_CHARS: usize = 6;
/// A file that is younger may not be locked yet.
const MIN_AGE: Duration = Duration::from_secs(10);
/// The most entries of a folder that are examined.
const MAX_ENTRIES: usize = 10_000;

/// Creates a file with a temporary name beside a path whose folder is held open. It is removed on drop unless it
/// is kept. Files that processes have left in the folder when they were killed are removed first.
///
/// # Errors
/// Errors of the system, without the path: the folder's path leads through its descriptor.
pub(super) fn create_beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    remove_abandoned(folder, MIN_AGE);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).rand_bytes(RANDOM_CHARS);
    let file = builder.make_in(folder, |path| create_new(path, mode)).map_err(without_path)?;
    // On a file system without locks nothing counts as abandoned.
    if let Err(error) = lock_now(file.as_file()) {
        tracing::debug!(%error, "a temporary file could not be locked");
    }
    Ok(file)
}

/// Returns the system's error, to which `tempfile` has added the path.
fn without_path(error: io::Error) -> io::Error {
    let system = error.get_ref().and_then(std::error::Error::source);
    let code = system.and_then(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
    code.map_or(error, io::Error::from_raw_os_error)
}

/// Gives a file its final name, where nothing may be yet.
///
/// # Errors
/// `AlreadyExists`, or an error of the system. The file is removed then.
pub(super) fn place_new(file: NamedTempFile, path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        super::entries::rename_no_replace(file.path(), path)?;
        drop(file.keep()?);
        Ok(())
    }
    // Windows marks a file as temporary under its temporary name, so only its owner can rename it.
    #[cfg(not(unix))]
    private_file::persist(file, path, false).map_err(|failed| failed.error)
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    {
        use std::os::windows::fs::OpenOptionsExt;
        let _ = mode;
        options.share_mode(crate::temp_folder::SHARE_READ | crate::temp_folder::SHARE_DELETE);
    }
    options.open(path)
}

/// Removes this user's temporary files that are not locked.
fn remove_abandoned(folder: &Path, min_age: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten() {
        if is_temporary_name(&entry.file_name()) {
            remove_if_abandoned(&entry.path(), min_age);
        }
    }
}

fn remove_if_abandoned(path: &Path, min_age: Duration) {
    if is_abandoned(path, min_age).unwrap_or(false)
        && let Err(error) = fs::remove_file(path)
    {
        tracing::warn!(%error, "a temporary file of a killed process cannot be removed");
    }
}

/// Removes the temporary files beside these paths that killed processes have left. Blocks.
pub fn remove_left_files<'a>(paths: impl Iterator<Item = &'a Path>) {
    let folders: BTreeSet<_> = paths.filter_map(Path::parent).collect();
    for (_held, folder) in
        folders.into_iter().filter_map(|folder| nofollow::open_folder(folder).ok())
    {
        remove_abandoned(&folder, Duration::ZERO);
    }
}

/// Removes a temporary file if a killed process has left it. Blocks.
pub(crate) fn remove_left_file(path: &Path) {
    remove_if_abandoned(path, MIN_AGE);
}

/// Returns true for the name of such a file. Lists and searches leave these files out.
pub(crate) fn is_temporary_name(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
    random.is_some_and(|random| {
        random.len() == RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn is_abandoned(path: &Path, min_age: Duration) -> io::Result<bool> {
    // Opening something else could have effects.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    // On Windows its writer locks others out from opening it for writing.
    let file = nofollow::open_pinned_file(path, cfg!(windows))?;
    let metadata = file.metadata()?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    if !metadata.is_file() || !is_own(&metadata) || age < min_age {
        return Ok(false);
    }
    Ok(lock_now(&file).is_ok())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod linux_tests;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_files_without_a_writer_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let written = create_beside(&folder.path().join("new"), 0o600).unwrap();
        let left = place(".turnwright-aB3xYz.tmp");
        let others = [
            place(".turnwright-aB3xYz.aside"),
            place(".turnwright-aB3-Yz.tmp"),
            place(".turnwright-aB3xYzz.tmp"),
            place("turnwright-aB3xYz.tmp"),
        ];
        for file in others.iter().chain([&left]) {
            fs::write(file, "x").unwrap();
        }
        let link = place(".turnwright-linked.tmp");
        let inside = place(".turnwright-folder.tmp");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        // Windows lets only administrators make links.
        #[cfg(windows)]
        fs::create_dir(&link).unwrap();
        fs::create_dir(&inside).unwrap();
        remove_abandoned(folder.path(), MIN_AGE);
        assert!(left.exists(), "it may be in use by a process that is about to lock it");
        remove_abandoned(folder.path(), Duration::ZERO);
        assert!(!left.exists());
        for kept in others.iter().chain([&link, &inside, &written.path().to_owned()]) {
            assert!(kept.symlink_metadata().is_ok(), "{kept:?}");
        }
    }

    #[cfg(windows)]
    #[tokio::test]
    async fn a_changed_file_keeps_its_access_list() {
        // The `icacls` of Wine does nothing.
        if Path::new("C:\\windows\\system32\\winecfg.exe").exists() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = crate::real_path(folder.path()).unwrap().join("key");
        fs::write(&path, "old").unwrap();
        let icacls = |arguments: &[&str]| {
            let mut program = std::process::Command::new("icacls");
            let printed = program.arg(&path).args(arguments).output().unwrap().stdout;
            String::from_utf8_lossy(&printed).into_owned()
        };
        // Only the owner may do anything with it, whatever the folder says.
        icacls(&["/inheritance:r", "/grant:r", "*S-1-3-4:F"]);
        let before = icacls(&[]);
        write(&path, WritePrecondition::Any, b"new".to_vec()).await.unwrap();
        assert_eq!(icacls(&[]), before);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn the_next_file_in_a_folder_removes_what_a_killed_process_has_left_there() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".turnwright-aB3xYz.tmp");
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::create(&left).unwrap().set_modified(an_hour_ago).unwrap();
        drop(create_beside(&folder.path().join("new"), 0o600).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
