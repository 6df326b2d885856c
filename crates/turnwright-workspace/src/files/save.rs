//! Writing to the disk. In one step where that is possible: a reader sees the old bytes or the
//! new ones, and so does who comes after a crash.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest::{Context, SHA256};

use super::disk::{blocking, explain, moved, regular};
use super::places::without_replacing;
use super::{FileError, READ_LIMIT};
use crate::pinned;

/// What has to be there still at the moment of writing.
#[derive(Debug)]
pub(super) enum Before {
    /// Whatever is there.
    Anything,
    /// No file.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Bytes with this SHA-256.
    Print([u8; 32]),
}

/// Gives a file these bytes. What else there is to it stays: mode, owner, attributes, its other
/// names; but where it is to get back what it once held ([`Before::Print`]), the other names keep
/// what they have now. Missing folders are made.
pub(super) async fn write(path: &Path, before: Before, bytes: Vec<u8>) -> Result<(), FileError> {
    let path = path.to_path_buf();
    blocking(move || {
        // Of two sessions that change one file the second must see what the first has made.
        let _turn = take_turns(&path);
        let name = path.file_name().ok_or(FileError::Folder)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let folder = match before {
            // What is to be there has a folder.
            Before::Bytes(_) | Before::Print(_) => pinned::folder(folder),
            Before::Anything | Before::Nothing => pinned::made_folder(folder),
        };
        // Held to the end: what is compared and what is written lie in the same folder.
        let (_held, folder) = folder.map_err(|it| moved(&it))?;
        let path = folder.join(name);
        if !before.is_there(&path)? {
            return Err(FileError::Stale);
        }
        put(&folder, &path, &bytes, matches!(before, Before::Print(_)))
    })
    .await
}

impl Before {
    fn is_there(&self, path: &Path) -> Result<bool, FileError> {
        if let Before::Print(expected) = self {
            return Ok(print(path)? == *expected);
        }
        let Before::Bytes(bytes) = self else {
            return Ok(matches!(self, Before::Anything) || fs::symlink_metadata(path).is_err());
        };
        let file = open(path, false).map_err(|it| moved(&it))?;
        let length = file.metadata().map_err(|it| explain(&it))?.len();
        let mut now = Vec::with_capacity(bytes.len() + 1);
        if length == bytes.len() as u64 {
            file.take(length + 1).read_to_end(&mut now).map_err(|it| explain(&it))?;
        }
        Ok(now == *bytes)
    }
}

/// Whether a file has bytes with this SHA-256.
pub(super) fn has_print(path: &Path, expected: &[u8; 32]) -> Result<bool, FileError> {
    Ok(print(path)? == *expected)
}

/// The SHA-256 of a file.
fn print(path: &Path) -> Result<[u8; 32], FileError> {
    let mut file = open(path, false).map_err(|it| moved(&it))?;
    regular(&file.metadata().map_err(|it| explain(&it))?)?;
    let mut context = Context::new(&SHA256);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk).map_err(|it| explain(&it))? {
            0 => break,
            count => context.update(&chunk[..count]),
        }
    }
    let mut print = [0; 32];
    print.copy_from_slice(context.finish().as_ref());
    Ok(print)
}

/// Held while a file is written. Others are held up only by chance; a disk that hangs does not hold
/// up all of them.
pub(super) fn take_turns(path: &Path) -> MutexGuard<'static, ()> {
    static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
    let turn = &TURNS[usize::try_from(hash % 64).unwrap_or(0)];
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(folder: &Path, path: &Path, bytes: &[u8], is_alone: bool) -> Result<(), FileError> {
    let old = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => return Err(FileError::Moved),
        Ok(metadata) => {
            regular(&metadata)?;
            // Replacing asks the folder for permission and not the file.
            if metadata.permissions().readonly() {
                return Err(FileError::ReadOnly);
            }
            Some(metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(explain(&error)),
    };
    // The other names must go on meaning the same file.
    let has_names = old.as_ref().is_some_and(|it| links(it) > 1);
    if has_names && !is_alone {
        return overwrite(path, bytes);
    }
    match replace(folder, path, bytes, old.as_ref()) {
        Ok(true) => Ok(()),
        // The owner would be another one.
        Ok(false) if !has_names => overwrite(path, bytes),
        Ok(false) => Err(explain(&io::ErrorKind::PermissionDenied.into())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(FileError::Stale),
        Err(error) if old.is_some() && !has_names && needs_place(&error) => overwrite(path, bytes),
        Err(error) => Err(moved(&error)),
    }
}

/// A new file takes the place of the old one. `false` if that would take it from its owner; an
/// error that it exists, if somebody else has put something there meanwhile.
fn replace(folder: &Path, path: &Path, bytes: &[u8], old: Option<&Metadata>) -> io::Result<bool> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".turnwright-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Of a new file, the umask takes away what the user wants taken away. What replaces a
        // file may be read by nobody else until it has that file's mode.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    if let Some(old) = old {
        if !keep_owner(file.as_file(), old) {
            return Ok(false);
        }
        #[cfg(target_os = "linux")]
        keep_attributes(path, file.as_file());
        // Last: a new owner takes bits from the mode.
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_data()?;
    match old {
        Some(old) if is_same(path, old) => drop(file.persist(path)?),
        Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        None => {
            without_replacing(file.path(), path)?;
            drop(file.keep()?);
        }
    }
    Ok(true)
}

/// Whether nobody has touched a file since. Writing to a disk may take long.
#[cfg(unix)]
fn is_same(path: &Path, old: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let state = |it: &Metadata| (it.dev(), it.ino(), it.size(), it.ctime(), it.ctime_nsec());
    fs::symlink_metadata(path).is_ok_and(|it| state(&it) == state(old))
}

#[cfg(not(unix))]
fn is_same(path: &Path, old: &Metadata) -> bool {
    let state = |it: &Metadata| (it.len(), it.modified().ok());
    fs::symlink_metadata(path).is_ok_and(|it| state(&it) == state(old))
}

/// Errors of a folder that takes no new file, and of a single file that is mounted.
fn needs_place(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::ResourceBusy
    )
}

/// Writes into the file itself. That is not one step, so what can fail is tried before the first
/// byte is changed, and undone if it fails after.
fn overwrite(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = open(path, true).map_err(|it| moved(&it))?;
    let metadata = file.metadata().map_err(|it| explain(&it))?;
    regular(&metadata)?;
    let mut old = Vec::new();
    (&file).take(READ_LIMIT + 1).read_to_end(&mut old).map_err(|it| explain(&it))?;
    if old.len() as u64 > READ_LIMIT {
        return Err(FileError::TooLarge(metadata.len()));
    }
    reserve(&file, bytes.len()).map_err(|it| explain(&it))?;
    let Err(error) = fill(&mut file, bytes) else { return Ok(()) };
    match fill(&mut file, &old) {
        Ok(()) => Err(explain(&error)),
        Err(_) => Err(FileError::Torn(error.to_string())),
    }
}

fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    use std::io::Seek;
    file.rewind()?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()
}

/// Never follows a link, never blocks on a FIFO.
#[cfg(unix)]
pub(super) fn open(path: &Path, writes: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let flags = flags.bits().cast_signed();
    File::options().read(true).write(writes).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
pub(super) fn open(path: &Path, writes: bool) -> io::Result<File> {
    File::options().read(true).write(writes).open(path)
}

/// A full disk is noticed before anything is lost.
#[cfg(target_os = "linux")]
fn reserve(file: &File, length: usize) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, length as u64) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        // Not every file system can.
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: usize) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn links(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.nlink()
}

#[cfg(not(unix))]
fn links(_: &Metadata) -> u64 {
    1
}

#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let ids = |it: &Metadata| (it.uid(), it.gid());
    let is_same = file.metadata().is_ok_and(|it| ids(&it) == ids(old));
    is_same || std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) -> bool {
    true
}

/// Extended attributes, access lists among them, as far as the system permits.
#[cfg(target_os = "linux")]
fn keep_attributes(from: &Path, to: &File) {
    use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, llistxattr};
    /// More than the kernel allows for the names of one file, and for one value.
    const MOST: usize = 64 * 1024;
    let mut names = vec![0; MOST];
    let Ok(count) = llistxattr(from, &mut names) else { return };
    let mut value = vec![0; MOST];
    for name in names[..count].split(|it| *it == 0).filter(|it| !it.is_empty()) {
        // What a program may do is taken from it by the kernel when it is written, too.
        if name == b"security.capability" {
            continue;
        }
        let copied = lgetxattr(from, name, &mut value)
            .and_then(|length| fsetxattr(to, name, &value[..length], XattrFlags::empty()));
        if let Err(error) = copied {
            tracing::debug!(%error, "an attribute was not kept");
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    async fn write(path: &Path, bytes: Vec<u8>) -> Result<(), FileError> {
        super::write(path, Before::Anything, bytes).await
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(name)
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.path(name);
            fs::write(&path, "the old text").unwrap();
            path
        }
    }

    #[tokio::test]
    async fn a_file_is_replaced_in_one_step_and_keeps_mode_and_attributes() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let folder = Folder::new();
        let path = folder.file("f");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let has_attributes = setxattr(&path, "user.note", b"kept", XattrFlags::empty()).is_ok();
        let mut reader = File::open(&path).unwrap();
        let before = fs::metadata(&path).unwrap();
        write(&path, b"new".to_vec()).await.unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_ne!(before.ino(), after.ino());
        assert_eq!((before.mode(), before.uid()), (after.mode(), after.uid()));
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "the old text");
        if has_attributes {
            let mut value = [0; 16];
            assert_eq!(getxattr(&path, "user.note", &mut value), Ok(4));
        }
    }

    #[test]
    fn what_somebody_else_has_put_there_meanwhile_is_not_replaced() {
        let folder = Folder::new();
        let (path, folder) = (folder.file("f"), folder.path(""));
        let old = fs::metadata(&path).unwrap();
        fs::write(&path, "the work of somebody else").unwrap();
        for old in [None, Some(&old)] {
            let error = replace(&folder, &path, b"ours", old).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).unwrap(), "the work of somebody else");
        }
        let old = fs::metadata(&path).unwrap();
        assert!(replace(&folder, &path, b"ours", Some(&old)).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn what_has_changed_at_the_last_moment_is_not_replaced() {
        let folder = Folder::new();
        let path = folder.file("f");
        for before in [Before::Nothing, Before::Bytes("an old text".into())] {
            let result = super::write(&path, before, b"new".to_vec()).await;
            assert_eq!(result, Err(FileError::Stale));
            assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
        }
        super::write(&path, Before::Bytes("the old text".into()), b"new".to_vec()).await.unwrap();
        super::write(&folder.path("g"), Before::Nothing, b"new".to_vec()).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[tokio::test]
    async fn a_file_with_two_names_keeps_both() {
        let folder = Folder::new();
        let (path, other) = (folder.file("f"), folder.path("other"));
        fs::hard_link(&path, &other).unwrap();
        for bytes in ["a text that is longer than the old one", "short", ""] {
            write(&path, bytes.into()).await.unwrap();
            assert_eq!(fs::read_to_string(&other).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_read_only_file_and_what_is_no_file_are_left_alone() {
        let folder = Folder::new();
        let path = folder.file("f");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(write(&path, b"x".to_vec()).await, Err(FileError::ReadOnly));
        assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
        std::os::unix::fs::symlink(&path, folder.path("link")).unwrap();
        assert_eq!(write(&folder.path("link"), b"x".to_vec()).await, Err(FileError::Moved));
        assert_eq!(write(&folder.path(""), b"x".to_vec()).await, Err(FileError::Folder));
    }

    #[test]
    fn what_cannot_be_replaced_is_written_in_place() {
        let table = [
            (rustix::io::Errno::XDEV, true),
            (rustix::io::Errno::BUSY, true),
            (rustix::io::Errno::ACCESS, true),
            (rustix::io::Errno::ROFS, true),
            (rustix::io::Errno::NOSPC, false),
            (rustix::io::Errno::LOOP, false),
        ];
        for (errno, expected) in table {
            assert_eq!(needs_place(&errno.into()), expected, "{errno}");
        }
        let folder = Folder::new();
        let path = folder.file("f");
        overwrite(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_disk_that_is_full_costs_nothing_of_the_old_text() {
        let folder = Folder::new();
        let path = folder.file("f");
        let file = File::options().write(true).open(&path).unwrap();
        assert!(reserve(&file, usize::MAX >> 1).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
    }
}
