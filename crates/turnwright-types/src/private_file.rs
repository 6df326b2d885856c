//! Files and folders that only their owner may read. A small file that several processes change is replaced as a
//! whole, under a lock against other processes. A lock belongs to an open file and ends when it is closed, also when
//! the process is killed. All functions block.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, PersistError};

/// Creates a folder and its missing parents with mode 0700.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
    folders.create(folder)
}

/// Returns options for opening a file, which has mode 0600 if it is created.
#[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no mode"))]
pub fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a file with mode 0600 and opens it for writing.
///
/// # Errors
/// `AlreadyExists` if there is one, or an error of the system.
pub fn create_new(path: &Path) -> io::Result<File> {
    options().write(true).create_new(true).open(path)
}

/// Adds bytes at the end of a file, in one write if the system allows it. A missing file is created with mode 0600.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    options().create(true).append(true).open(path)?.write_all(bytes)
}

/// Writes a file atomically with mode 0600, and creates its folder with mode 0700 if it is missing. If
/// the path is a link to a file, that file is replaced and the link stays. A file that is a mount of its own, as in a
/// container, cannot be replaced: it is overwritten and keeps its mode. A pipe or device that the user has named gets
/// the bytes and stays.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The file that is open there may be a log, or have no name any more: then the link itself would be replaced.
    if ["/dev/stdout", "/dev/stderr", "/dev/fd"].iter().any(|open| path.starts_with(open))
        || fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
    {
        return append(path, bytes);
    }
    let target = fs::canonicalize(path).ok().filter(|target| target.is_file());
    let path = target.as_deref().unwrap_or(path);
    let folder = path.parent().unwrap_or(Path::new("."));
    create_folder(folder)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    sync(file.as_file())?;
    match persist(file, path, true) {
        // The temporary file stays until the other one is complete, so a crash in between loses nothing.
        Err(failed) if failed.error.kind() == io::ErrorKind::ResourceBusy => overwrite(path, bytes),
        replaced => replaced.map_err(|failed| failed.error),
    }
}

/// Writes over a file without emptying it first. What it held is written back if the disk is full.
fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = options().read(true).write(true).open(path)?;
    let mut old = Vec::new();
    file.read_to_end(&mut old)?;
    fill(&mut file, bytes).inspect_err(|_| {
        fill(&mut file, &old).ok();
    })
}

/// Gives an open file this content, and waits until it is on the disk.
pub fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    sync(file)
}

/// Waits until an open file, or the names in an open folder, are on their disk, as far as that disk can do it.
pub fn sync(file: &File) -> io::Result<()> {
    let synced = file.sync_all();
    #[cfg(unix)]
    if is_unknown_request(&synced) {
        // On macOS, the first request is for the drive itself. Network disks and exFAT only know the second one.
        let flushed = rustix::fs::fsync(file).map_err(io::Error::from);
        return if is_unknown_request(&flushed) { Ok(()) } else { flushed };
    }
    synced
}

#[cfg(unix)]
fn is_unknown_request(synced: &io::Result<()>) -> bool {
    use rustix::io::Errno;
    let unknown = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOTTY];
    let code = synced.as_ref().err().and_then(io::Error::raw_os_error);
    unknown.iter().any(|errno| Some(errno.raw_os_error()) == code)
}

/// Returns true if a file of Windows could not be moved or replaced because somebody may have it open.
pub fn is_in_use(error: &io::Error) -> bool {
    // `ERROR_ACCESS_DENIED` and `ERROR_SHARING_VIOLATION`.
    cfg!(windows) && matches!(error.raw_os_error(), Some(5 | 32))
}

/// Gives a finished file its name, where nothing may be yet unless it `replaces` that. Windows moves and replaces no
/// file that somebody has open, such as a scanner for viruses, so it is tried again there for half a second.
pub fn persist(mut file: NamedTempFile, path: &Path, replaces: bool) -> Result<(), PersistError> {
    let mut attempts = 50;
    loop {
        let placed = if replaces { file.persist(path) } else { file.persist_noclobber(path) };
        match placed {
            Err(failed) if attempts > 0 && is_in_use(&failed.error) => {
                attempts -= 1;
                file = failed.file;
                thread::sleep(Duration::from_millis(10));
            }
            result => return result.map(drop),
        }
    }
}

/// Removes a file. Returns true if it existed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the text of a file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<String> {
    let about = fs::metadata(path).map_err(|error| match error.kind() {
        // Users that run services may have `/dev/null` as their home folder.
        io::ErrorKind::NotADirectory => io::ErrorKind::NotFound.into(),
        _ => error,
    });
    // Reading a FIFO could block for ever.
    if !about?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if count as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(text)
}

/// The longest wait for another process that holds a lock. It only writes one small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// An exclusive lock against other processes, held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    #[expect(dead_code, reason = "closing the file releases the lock")]
    file: File,
    is_held: bool,
}

impl FileLock {
    /// Waits for the lock, with a timeout. Creates the file and its folder if they are missing.
    ///
    /// # Errors
    /// If the file cannot be created, or another process holds the lock for too long.
    pub fn acquire(path: &Path) -> io::Result<FileLock> {
        create_folder(path.parent().unwrap_or(Path::new(".")))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match FileLock::try_acquire(path)? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                None => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    /// Returns the lock, or `None` if another process holds it. Creates the file if it is missing.
    pub fn try_acquire(path: &Path) -> io::Result<Option<FileLock>> {
        let file = options().write(true).create(true).truncate(false).open(path)?;
        let locked = file.try_lock();
        Ok(is_free(&locked).then_some(FileLock { file, is_held: locked.is_ok() }))
    }

    /// Returns false on a disk without locks, where other processes may work at the same time.
    pub fn is_held(&self) -> bool {
        self.is_held
    }
}

/// Returns true if nobody else holds a lock, as far as that can be known. Some network disks have no locks; work goes
/// ahead there without one.
fn is_free(locked: &Result<(), TryLockError>) -> bool {
    !matches!(locked, Err(TryLockError::WouldBlock))
}

/// Locks an open file, or on Unix a folder, until it is closed.
///
/// # Errors
/// `WouldBlock` if somebody else has locked it, or an error of the system.
pub fn lock_now(file: &File) -> io::Result<()> {
    Ok(file.try_lock()?)
}

/// Returns true if there is a file that somebody has locked, or that cannot be locked.
pub fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| lock_now(&file).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way to write "new" into a file.
    type Writer = fn(&Path) -> io::Result<()>;

    const WRITERS: [(&str, Writer); 3] = [
        ("write", |path| write(path, b"new")),
        ("create_new", |path| create_new(path)?.write_all(b"new")),
        ("append", |path| append(path, b"new")),
    ];

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn a_file_is_replaced_kept_or_extended() {
        let folder = tempfile::tempdir().unwrap();
        for ((name, writer), expected) in WRITERS.into_iter().zip(["new", "old", "oldnew"]) {
            let path = folder.path().join(name);
            fs::write(&path, "old").unwrap();
            let written = writer(&path);
            assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{name}");
            let refusal = (name == "create_new").then_some(io::ErrorKind::AlreadyExists);
            assert_eq!(written.err().map(|error| error.kind()), refusal, "{name}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_file_that_a_scanner_has_open_gets_its_name_when_it_is_closed() {
        use std::os::windows::fs::OpenOptionsExt;
        let folder = tempfile::tempdir().unwrap();
        for replaces in [false, true] {
            let file = NamedTempFile::new_in(folder.path()).unwrap();
            // Others may read and write it, and not rename it.
            let scanned = File::options().read(true).share_mode(3).open(file.path()).unwrap();
            let scanner = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(scanned);
            });
            persist(file, &folder.path().join("a"), replaces).unwrap();
            scanner.join().unwrap();
        }
    }

    #[test]
    fn a_disk_without_locks_holds_nobody_up() {
        for (locked, expected) in [
            (Ok(()), true),
            (Err(TryLockError::Error(io::ErrorKind::Unsupported.into())), true),
            (Err(TryLockError::WouldBlock), false),
        ] {
            assert_eq!(is_free(&locked), expected, "{locked:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_cannot_sync_is_written_all_the_same() {
        use rustix::io::Errno;
        let (reader, _writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(file.sync_all().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        sync(&file).unwrap();
        for lost in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS] {
            assert!(!is_unknown_request(&Err(lost.into())), "{lost}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn a_file_that_cannot_be_replaced_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        for text in ["longer than the old one", "short", ""] {
            overwrite(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn only_write_makes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        for (name, writer) in WRITERS {
            let path = folder.path().join(name).join("file");
            assert_eq!(writer(&path).is_ok(), name == "write", "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn only_the_owner_may_read_what_is_made() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let deep = folder.path().join("a/b");
        create_folder(&deep).unwrap();
        assert_eq!([mode(&deep), mode(deep.parent().unwrap())], [0o700; 2]);
        // A folder that is there keeps its mode.
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o755)).unwrap();
        create_folder(&deep).unwrap();
        assert_eq!(mode(&deep), 0o755);
        for (name, writer) in WRITERS {
            writer(&deep.join(name)).unwrap();
            assert_eq!(mode(&deep.join(name)), 0o600, "{name}");
        }
        // Only a replacement changes the mode of a file that is there.
        for ((name, writer), expected) in WRITERS.into_iter().zip([0o600, 0o644, 0o644]) {
            fs::set_permissions(deep.join(name), fs::Permissions::from_mode(0o644)).unwrap();
            writer(&deep.join(name)).ok();
            assert_eq!(mode(&deep.join(name)), expected, "{name}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn no_more_is_read_than_the_limit_and_nothing_but_text_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for (bytes, limit, expected) in [
            (&b""[..], 0, Some("")),
            (&b"ab"[..], 2, Some("ab")),
            (&b"abc"[..], 2, None),
            (&b"\xff"[..], 2, None),
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path, limit).ok().as_deref(), expected, "{bytes:?}");
        }
        assert_eq!(read(folder.path(), 2).ok(), None);
        let below = read(&path.join("below"), 2).unwrap_err();
        assert_eq!(below.kind(), io::ErrorKind::NotFound, "a file holds no files");
        assert!(remove(&path).unwrap() && !remove(&path).unwrap());
        let missing = read(&path, 2).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("dotfiles")).unwrap();
        fs::write(path("dotfiles/login.json"), "old").unwrap();
        symlink("dotfiles/login.json", path("login.json")).unwrap();
        write(&path("login.json"), b"new").unwrap();
        assert!(path("login.json").is_symlink());
        assert_eq!(fs::read_to_string(path("dotfiles/login.json")).unwrap(), "new");
        // A link that leads nowhere is replaced, and one to a device is not.
        for (name, target, expected) in [("lost", "nothing", "new"), ("device", "/dev/null", "")] {
            symlink(target, path(name)).unwrap();
            write(&path(name), b"new").unwrap();
            assert_eq!(path(name).is_symlink(), expected.is_empty(), "{name}");
            assert_eq!(fs::read_to_string(path(name)).unwrap(), expected, "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn an_output_that_is_a_pipe_gets_the_document_and_stays() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("stdout");
        let (mut reader, writer) = io::pipe().unwrap();
        symlink(format!("/dev/fd/{}", writer.as_raw_fd()), &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "new");
    }

    #[test]
    fn one_process_has_a_lock_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.lock");
        assert!(!is_locked(&path));
        let lock = FileLock::acquire(&path).unwrap();
        assert!(lock.is_held() && is_locked(&path));
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(lock);
        assert!(!is_locked(&path) && path.exists());
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_belongs_to_the_open_file_and_not_to_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let file = File::create(&path).unwrap();
        lock_now(&file).unwrap();
        let other = File::open(&path).unwrap();
        assert_eq!(lock_now(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // Closing another handle of the file does not release it, as it would with a lock of `fcntl`.
        drop(other);
        assert!(is_locked(&path));
        drop(file);
        assert!(!is_locked(&path));
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_can_be_locked() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        lock_now(&file).unwrap();
        assert!(is_locked(folder.path()));
        drop(file);
        assert!(!is_locked(folder.path()));
    }
}
