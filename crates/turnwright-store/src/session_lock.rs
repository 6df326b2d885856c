//! Locks that give each session a single writer: a process with an open session holds a lock on a file
//! with its name, which contains the process id and the name of the client.

use std::fmt;
#[cfg(unix)]
use std::fs::TryLockError;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::{Result, StoreError};
use turnwright_types::ids::SessionId;
use turnwright_types::private_file;

/// The folder of the lock files, in the state folder.
const LOCK_FOLDER: &str = "sessions";
/// The longest session id that is accepted.
const MAX_ID_LENGTH: usize = 128;
/// The most bytes of a lock file that are read.
const MAX_LOCK_BYTES: u64 = 400;
/// The most characters of a client's name.
const MAX_NAME_CHARS: usize = 60;
/// The longest wait for a lock of another process: a client that restarts its agent may load a session before the old
/// process has ended.
const HANDOVER: Duration = Duration::from_secs(2);
/// The longest wait for this process to close a session.
const CLOSING: Duration = Duration::from_secs(60);
/// The pause before a lock is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Notified whenever this process releases a session lock.
static RELEASED: Notify = Notify::const_new();

/// The exclusive right to write a session, until this is dropped.
#[derive(Debug)]
pub struct SessionLock {
    /// `None` where locking is not possible; the session then works without a lock.
    file: Option<(File, PathBuf)>,
}

/// Who has a session open, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: Option<u32>,
    /// The client of that process; empty if it has not said its name.
    pub client: String,
    /// For how long.
    pub age: Option<Duration>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.pid.map(|pid| format!("process {pid}"));
        let age = self.age.map(|age| match age.as_secs() {
            seconds @ ..120 => format!("for {seconds} s"),
            seconds @ ..7200 => format!("for {} min", seconds / 60),
            seconds @ ..172_800 => format!("for {} h", seconds / 3600),
            seconds => format!("for {} days", seconds / 86_400),
        });
        let details: Vec<_> = process.into_iter().chain(age).collect();
        let who = if self.client.is_empty() { "another turnwright" } else { &self.client };
        match details.as_slice() {
            [] => formatter.write_str(who),
            details => write!(formatter, "{who} ({})", details.join(", ")),
        }
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        if let Some((file, path)) = self.file.take() {
            // The file is removed before the lock is released: nobody else has it locked, and a
            // process that waits for the lock checks whether the file still exists.
            fs::remove_file(path).ok();
            drop(file);
        }
        RELEASED.notify_waiters();
    }
}

impl SessionLock {
    /// Locks a session of the store in this state folder.
    pub(super) fn acquire(state: &Path, session: &SessionId, client: &str) -> Result<SessionLock> {
        let name = session.as_str();
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if name.is_empty() || name.len() > MAX_ID_LENGTH || !is_plain {
            return Err(StoreError::NoSuchSession);
        }
        let folder = state.join(LOCK_FOLDER);
        let path = folder.join(format!("{name}.lock"));
        match private_file::create_folder(&folder)
            .map_err(StoreError::from)
            .and_then(|()| lock(&path, client))
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

    /// True if nobody else, in this process or another, can have the session.
    pub(super) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }

    /// Like [`SessionLock::acquire`], but waits if this process holds the lock, because the session
    /// is just being closed, and for a moment if another one does, because it may be ending.
    pub(super) async fn acquire_when_released(
        state: &Path,
        session: &SessionId,
        client: &str,
    ) -> Result<SessionLock> {
        let start = Instant::now();
        loop {
            let freed = RELEASED.notified();
            let state = state.to_path_buf();
            let session = session.clone();
            let client = client.to_owned();
            let acquiring = spawn_blocking(move || SessionLock::acquire(&state, &session, &client));
            let acquired = acquiring.await.unwrap_or(Err(StoreError::Closed));
            let Err(StoreError::SessionLocked(holder)) = &acquired else { return acquired };
            // Not for ever: a process of another container may have the same number.
            let is_ours = holder.pid == Some(std::process::id());
            let patience = if is_ours { CLOSING } else { HANDOVER };
            if start.elapsed() > patience {
                return acquired;
            }
            timeout(RETRY_INTERVAL, freed).await.ok();
        }
    }
}

#[cfg(unix)]
fn lock(path: &Path, client: &str) -> Result<File> {
    use std::os::unix::fs::MetadataExt;
    loop {
        let mut options = private_file::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::SessionLocked(Box::new(lock_holder(&mut file))));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let ours = file.metadata()?;
        // The previous holder may have removed the file between opening and locking it.
        if fs::metadata(path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (ours.dev(), ours.ino()))
        {
            if ours.len() > 0 {
                file.set_len(0)?;
            }
            // It is locked on a full disk as well, where it says nothing.
            file.write_all(holder_text(client).as_bytes()).ok();
            return Ok(file);
        }
    }
}

/// Windows lets others read the file and remove it, but not open it for writing.
#[cfg(not(unix))]
fn lock(path: &Path, client: &str) -> Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).share_mode(SHARE_READ_AND_DELETE);
    let mut attempts = 0;
    loop {
        match options.open(path) {
            Ok(mut file) => {
                file.write_all(holder_text(client).as_bytes()).ok();
                return Ok(file);
            }
            Err(error) if is_held(&error) => {
                let holder = File::open(path).map(|mut file| lock_holder(&mut file));
                return Err(StoreError::SessionLocked(Box::new(holder.unwrap_or_default())));
            }
            // So Windows calls a file that is removed but not closed yet.
            Err(error) if error.raw_os_error() == Some(ACCESS_DENIED) && attempts < 20 => {
                attempts += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(unix))]
const SHARE_READ_AND_DELETE: u32 = 1 | 4;
#[cfg(not(unix))]
const ACCESS_DENIED: i32 = 5;

/// Returns true if another process has opened the file and does not share it.
#[cfg(not(unix))]
fn is_held(error: &std::io::Error) -> bool {
    const SHARING_VIOLATION: i32 = 32;
    error.raw_os_error() == Some(SHARING_VIOLATION)
}

/// The content of this process's lock files: its process id, and its client on a second line.
fn holder_text(client: &str) -> String {
    format!("{}\n{}", std::process::id(), plain_name(client))
}

/// A name without characters that would hide or fake a part of a message.
fn plain_name(name: &str) -> String {
    let plain = name
        .chars()
        .filter(|&character| character.is_alphanumeric() || " .-_+/()".contains(character));
    plain.take(MAX_NAME_CHARS).collect::<String>().trim().to_owned()
}

fn lock_holder(file: &mut File) -> LockHolder {
    let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut text = Vec::new();
    if file.take(MAX_LOCK_BYTES).read_to_end(&mut text).is_err() {
        return LockHolder::default();
    }
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    LockHolder {
        pid: lines.next().and_then(|line| line.trim().parse().ok()),
        client: lines.next().map(plain_name).unwrap_or_default(),
        age: written.and_then(|time| time.elapsed().ok()),
    }
}

/// Blocks until this process has an exclusive lock on a file, for work that only one process may do
/// at a time. Returns `None` where locking is not possible, and the work goes ahead without it.
pub(super) fn lock_file(path: &Path) -> Option<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Waits while another process has [locked](lock_file) a file.
pub(super) fn wait_for_lock(path: &Path) {
    if let Ok(file) = File::open(path)
        && let Err(error) = file.lock_shared()
    {
        tracing::debug!(%error, "the lock could not be waited for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId::from(name)
    }

    #[test]
    fn a_second_lock_names_the_holder_and_succeeds_after_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let client = "Zed\u{202e}\n (nightly)";
        let first = SessionLock::acquire(folder.path(), &id("a"), client).unwrap();
        let refused = SessionLock::acquire(folder.path(), &id("a"), "").unwrap_err();
        let pid = std::process::id();
        let expected = format!("the session is open in Zed (nightly) (process {pid}, for 0 s)");
        assert_eq!(refused.to_string(), expected);
        drop(SessionLock::acquire(folder.path(), &id("b"), "").unwrap());
        drop(first);
        drop(SessionLock::acquire(folder.path(), &id("a"), "").unwrap());
        assert_eq!(fs::read_dir(folder.path().join(LOCK_FOLDER)).unwrap().count(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_takes_no_lock_away() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join(LOCK_FOLDER);
        fs::create_dir(&locks).unwrap();
        std::os::unix::fs::symlink("/dev/full", locks.join("a.lock")).unwrap();
        let lock = SessionLock::acquire(folder.path(), &id("a"), "").unwrap();
        assert!(lock.is_exclusive());
        drop(lock);
        assert_eq!(fs::read_dir(locks).unwrap().count(), 0);
    }

    #[test]
    fn a_holder_is_described_as_far_as_it_is_known() {
        let age = |seconds| Some(Duration::from_secs(seconds));
        let client = "Zed".to_owned();
        for (holder, expected) in [
            (LockHolder::default(), "another turnwright"),
            (
                LockHolder { pid: Some(7), ..LockHolder::default() },
                "another turnwright (process 7)",
            ),
            (LockHolder { pid: Some(7), client, age: age(7_199) }, "Zed (process 7, for 119 min)"),
            (
                LockHolder { age: age(300_000), ..LockHolder::default() },
                "another turnwright (for 3 days)",
            ),
        ] {
            assert_eq!(holder.to_string(), expected);
        }
    }

    #[test]
    fn two_never_hold_the_lock_at_the_same_time() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let is_held = AtomicBool::new(false);
        let work = || {
            for _ in 0..500 {
                if let Ok(lock) = SessionLock::acquire(folder.path(), &id("a"), "") {
                    assert!(lock.file.is_some() && !is_held.swap(true, Ordering::SeqCst));
                    is_held.store(false, Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            for thread in all {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn many_sessions_can_be_locked_but_no_invalid_ids() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..200)
            .map(|number| {
                SessionLock::acquire(folder.path(), &id(&format!("s{number}")), "").unwrap()
            })
            .collect();
        assert!(all.iter().all(|lock| lock.file.is_some()));
        for bad in ["", "../a", "a/b", "a.b", &"x".repeat(200)] {
            let refused = SessionLock::acquire(folder.path(), &id(bad), "").unwrap_err();
            assert_eq!(refused, StoreError::NoSuchSession);
        }
    }

    #[tokio::test]
    async fn reopening_a_session_waits_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let first = SessionLock::acquire(folder.path(), &id("a"), "").unwrap();
        let session = id("a");
        let second = SessionLock::acquire_when_released(folder.path(), &session, "");
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.unwrap().file.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_ending_may_keep_a_session_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let first = SessionLock::acquire(folder.path(), &id("a"), "").unwrap();
        // Nothing says any more that the lock is this process's.
        first.file.as_ref().unwrap().0.set_len(0).unwrap();
        let session = id("a");
        let refused = SessionLock::acquire_when_released(folder.path(), &session, "").await;
        assert!(matches!(refused, Err(StoreError::SessionLocked(_))));
        let ending = async {
            tokio::time::sleep(HANDOVER / 2).await;
            drop(first);
        };
        let waiting = SessionLock::acquire_when_released(folder.path(), &session, "");
        let (second, ()) = tokio::join!(waiting, ending);
        assert!(second.unwrap().file.is_some());
    }
}
