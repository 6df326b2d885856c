//! Locks that give each session a single writer: whoever has a session open holds a lock on a file
//! with its name, which contains the process id.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::{StoreError, schema};
use turnwright_types::ids::SessionId;

/// The folder of the lock files, in the state folder.
const LOCK_FOLDER: &str = "sessions";
/// The longest session id that is accepted.
const MAX_ID_LENGTH: usize = 128;
/// Notified whenever this process releases a session lock.
static RELEASED: Notify = Notify::const_new();

/// The exclusive right to write a session, until this is dropped.
#[derive(Debug)]
pub struct SessionLock {
    /// `None` where locking is not possible; the session then works without a lock.
    file: Option<(File, PathBuf)>,
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        if let Some((file, path)) = self.file.take() {
            // The file is removed before the lock is released: nobody else has it locked, and a
            // process that waits for the lock checks whether the file still exists.
            drop(fs::remove_file(path));
            drop(file);
        }
        RELEASED.notify_waiters();
    }
}

impl SessionLock {
    /// Locks a session of the store in this state folder.
    pub(super) fn acquire(state: &Path, session: &SessionId) -> Result<SessionLock, StoreError> {
        let name = session.as_str();
        let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
        if name.is_empty() || name.len() > MAX_ID_LENGTH || !name.bytes().all(fits) {
            return Err(StoreError::NoSuchSession);
        }
        let folder = state.join(LOCK_FOLDER);
        let path = folder.join(format!("{name}.lock"));
        match schema::create_private_folder(&folder)
            .map_err(StoreError::from)
            .and_then(|()| lock(&path))
        {
            Ok(file) => Ok(SessionLock { file: Some((file, path)) }),
            Err(error @ StoreError::SessionLocked(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the session could not be locked");
                Ok(SessionLock { file: None })
            }
        }
    }

    /// A lock that locks nothing.
    pub(super) fn unlocked() -> SessionLock {
        SessionLock { file: None }
    }

    /// True if nobody else can have the session. Files are locked on Unix only.
    pub(super) fn is_exclusive(&self) -> bool {
        cfg!(unix) && self.file.is_some()
    }

    /// Like [`SessionLock::acquire`], but waits if this process holds the lock, because the session
    /// is just being closed.
    pub(super) async fn acquire_when_released(
        state: &Path,
        session: &SessionId,
    ) -> Result<SessionLock, StoreError> {
        loop {
            let freed = RELEASED.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let (state, session) = (state.to_path_buf(), session.clone());
            let acquiring = spawn_blocking(move || SessionLock::acquire(&state, &session));
            match acquiring.await.unwrap_or(Err(StoreError::Closed)) {
                Err(StoreError::SessionLocked(Some(pid))) if pid == std::process::id() => {
                    freed.await;
                }
                result => return result,
            }
        }
    }
}

#[cfg(unix)]
fn lock(path: &Path) -> Result<File, StoreError> {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    loop {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::SessionLocked(lock_holder(&mut file)));
            }
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let ours = file.metadata()?;
        // The previous holder may have removed the file between opening and locking it.
        if fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (ours.dev(), ours.ino())) {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(std::process::id().to_string().as_bytes())?;
            return Ok(file);
        }
    }
}

#[cfg(not(unix))]
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut file = File::options().write(true).create(true).truncate(true).open(path)?;
    file.write_all(std::process::id().to_string().as_bytes())?;
    Ok(file)
}

#[cfg(unix)]
fn lock_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Blocks until this process has an exclusive lock on a file, for work that only one process may do
/// at a time. Returns `None` where locking is not possible, and the work goes ahead without it.
pub(super) fn lock_file(path: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.ok()?;
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
    Some(file)
}

/// Waits while another process has [locked](lock_file) a file.
pub(super) fn wait_for_lock(path: &Path) {
    #[cfg(unix)]
    if let Ok(file) = File::open(path)
        && let Err(error) = rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared)
    {
        tracing::debug!(%error, "the lock could not be waited for");
    }
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId::from(name)
    }

    #[test]
    fn a_second_lock_names_the_holder_and_succeeds_after_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let first = SessionLock::acquire(folder.path(), &id("a")).unwrap();
        let own = StoreError::SessionLocked(Some(std::process::id()));
        assert_eq!(SessionLock::acquire(folder.path(), &id("a")).unwrap_err(), own);
        drop(SessionLock::acquire(folder.path(), &id("b")).unwrap());
        drop(first);
        drop(SessionLock::acquire(folder.path(), &id("a")).unwrap());
        assert_eq!(fs::read_dir(folder.path().join(LOCK_FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn two_never_hold_the_lock_at_the_same_time() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let is_held = AtomicBool::new(false);
        let work = || {
            for _ in 0..500 {
                if let Ok(lock) = SessionLock::acquire(folder.path(), &id("a")) {
                    assert!(lock.file.is_some() && !is_held.swap(true, Ordering::SeqCst));
                    is_held.store(false, Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            for it in all {
                it.join().unwrap();
            }
        });
    }

    #[test]
    fn many_sessions_can_be_locked_but_no_invalid_ids() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..200)
            .map(|it| SessionLock::acquire(folder.path(), &id(&format!("s{it}"))).unwrap())
            .collect();
        assert!(all.iter().all(|it| it.file.is_some()));
        for bad in ["", "../a", "a/b", "a.b", &"x".repeat(200)] {
            let refused = SessionLock::acquire(folder.path(), &id(bad)).unwrap_err();
            assert_eq!(refused, StoreError::NoSuchSession);
        }
    }

    #[tokio::test]
    async fn reopening_a_session_waits_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let first = SessionLock::acquire(folder.path(), &id("a")).unwrap();
        let session = id("a");
        let second = SessionLock::acquire_when_released(folder.path(), &session);
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.unwrap().file.is_some());
    }
}
