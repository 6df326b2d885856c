//! Locks of files against other processes. A lock belongs to an open file and ends when it is closed, also when the
//! process is killed. All functions block.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::private_file;

/// The longest wait for another process that holds a lock. It only writes one small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// An exclusive lock against other processes, held until it is dropped.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl FileLock {
    /// Waits for the lock, with a timeout. Creates the file and its folder if they are missing.
    ///
    /// # Errors
    /// If the file cannot be created, or another process holds the lock for too long.
    pub fn acquire(path: &Path) -> io::Result<FileLock> {
        private_file::create_folder(path.parent().unwrap_or(Path::new(".")))?;
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
        let file = private_file::options().write(true).create(true).truncate(false).open(path)?;
        match lock_now(&file) {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Locks an open file, or on Unix a folder, until it is closed.
///
/// # Errors
/// `WouldBlock` if somebody else has locked it, or an error of the system.
pub fn lock_now(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    })
}

/// Returns true if there is a file that somebody has locked, or that cannot be locked.
pub fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| lock_now(&file).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_lock_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.lock");
        assert!(!is_locked(&path));
        let lock = FileLock::acquire(&path).unwrap();
        assert!(is_locked(&path));
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
