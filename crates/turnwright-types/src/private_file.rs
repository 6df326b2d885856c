//! Small files that only their owner may read, and that several processes may change: each is replaced as a
//! whole, under a lock. All functions block.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for another process that holds a lock. It only writes one small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

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

/// Writes a file atomically with mode 0600, and creates its folder with mode 0700 if it is missing. If
/// the path is a link to a file, that file is replaced and the link stays.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).ok().filter(|target| target.is_file());
    let path = target.as_deref().unwrap_or(path);
    let folder = path.parent().unwrap_or(Path::new("."));
    create_folder(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    replace(file, path)
}

/// Gives a finished file its name. Windows replaces no file that somebody is reading, so it is tried again
/// for a while there.
fn replace(mut file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    let mut attempts = if cfg!(windows) { 50 } else { 0 };
    loop {
        match file.persist(path) {
            Err(failed)
                if attempts > 0 && failed.error.kind() == io::ErrorKind::PermissionDenied =>
            {
                attempts -= 1;
                file = failed.file;
                thread::sleep(Duration::from_millis(10));
            }
            result => return result.map(drop).map_err(|failed| failed.error),
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
    // Reading a FIFO could block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if count as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(text)
}

/// An exclusive lock against other processes, held until it is dropped.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

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
        match file.try_lock() {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_lock_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.lock");
        let lock = FileLock::acquire(&path).unwrap();
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(lock);
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
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
        // A link that leads to no file is replaced.
        for (name, target) in [("dangling", "nothing"), ("device", "/dev/null")] {
            symlink(target, path(name)).unwrap();
            write(&path(name), b"new").unwrap();
            assert!(!path(name).is_symlink());
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "new");
        }
    }
}
