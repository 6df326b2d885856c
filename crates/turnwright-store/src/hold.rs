//! One writer a session: whoever has it open holds a lock on a file of its name, in which stands
//! who that is.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use super::{StoreError, schema};
use turnwright_types::ids::SessionId;

/// The folder of the locks, in the state folder.
const FOLDER: &str = "sessions";
/// The longest identifier that can be one of ours.
const LONGEST_ID: usize = 128;
/// Told whenever this process lets go of a session.
static FREED: Notify = Notify::const_new();

/// A session that is ours until this is dropped.
#[derive(Debug)]
pub struct Hold {
    /// `None` where nothing can be locked: a session goes on without.
    file: Option<(File, PathBuf)>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((file, path)) = self.file.take() {
            // Before the lock is let go: nobody else has this file locked, and who waits for it
            // looks whether it is still there.
            drop(fs::remove_file(path));
            drop(file);
        }
        FREED.notify_waiters();
    }
}

impl Hold {
    /// Takes a session of the store in that state folder.
    pub(super) fn take(state: &Path, session: &SessionId) -> Result<Hold, StoreError> {
        let name = session.as_str();
        let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
        if name.is_empty() || name.len() > LONGEST_ID || !name.bytes().all(fits) {
            return Err(StoreError::NoSuchSession);
        }
        let folder = state.join(FOLDER);
        let path = folder.join(format!("{name}.lock"));
        match schema::make_folder(&folder).map_err(StoreError::from).and_then(|()| lock(&path)) {
            Ok(file) => Ok(Hold { file: Some((file, path)) }),
            Err(error @ StoreError::Held(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a session could not be locked");
                Ok(Hold { file: None })
            }
        }
    }

    /// One that holds nothing.
    pub(super) fn nothing() -> Hold {
        Hold { file: None }
    }

    /// Whether nobody else can have it.
    pub(super) fn is_sure(&self) -> bool {
        self.file.is_some()
    }

    /// The same as `take`, and waits if it is this process that has the session: it is just being
    /// closed.
    pub(super) async fn wait(state: &Path, session: &SessionId) -> Result<Hold, StoreError> {
        loop {
            let freed = FREED.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match Hold::take(state, session) {
                Err(StoreError::Held(Some(pid))) if pid == std::process::id() => freed.await,
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
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Held(holder(&mut file))),
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let ours = file.metadata()?;
        // Whoever had it may have removed it between the two.
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
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// One after the other, whoever they are: what only one process may do at a time. Where nothing
/// can be locked, nobody is kept from it.
pub(super) fn alone(path: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.ok()?;
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
    Some(file)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId::from(name)
    }

    #[test]
    fn the_second_is_told_who_has_it_and_gets_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let first = Hold::take(folder.path(), &id("a")).unwrap();
        let own = StoreError::Held(Some(std::process::id()));
        assert_eq!(Hold::take(folder.path(), &id("a")).unwrap_err(), own);
        drop(Hold::take(folder.path(), &id("b")).unwrap());
        drop(first);
        drop(Hold::take(folder.path(), &id("a")).unwrap());
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn never_do_two_have_it_however_they_come_and_go() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let is_held = AtomicBool::new(false);
        let work = || {
            for _ in 0..500 {
                if let Ok(hold) = Hold::take(folder.path(), &id("a")) {
                    assert!(hold.file.is_some() && !is_held.swap(true, Ordering::SeqCst));
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
    fn two_hundred_can_be_held_and_none_outside_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> =
            (0..200).map(|it| Hold::take(folder.path(), &id(&format!("s{it}"))).unwrap()).collect();
        assert!(all.iter().all(|it| it.file.is_some()));
        for bad in ["", "../a", "a/b", "a.b", &"x".repeat(200)] {
            let refused = Hold::take(folder.path(), &id(bad)).unwrap_err();
            assert_eq!(refused, StoreError::NoSuchSession);
        }
    }

    #[tokio::test]
    async fn whoever_reopens_a_session_waits_for_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let first = Hold::take(folder.path(), &id("a")).unwrap();
        let session = id("a");
        let second = Hold::wait(folder.path(), &session);
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.unwrap().file.is_some());
    }
}
