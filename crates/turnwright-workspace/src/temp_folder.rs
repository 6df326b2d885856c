//! Private temporary folders. Their owner holds a lock on each, so that another process can tell which
//! ones were left behind by a process that was killed, and remove them.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "turnwright-tmp-";
/// A folder that is younger may not be locked yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// A temporary folder that only its owner can access. It is removed on drop.
#[derive(Debug)]
pub struct PrivateTempFolder {
    folder: TempDir,
    /// Closed after the folder is removed.
    _lock: fs::File,
}

impl PrivateTempFolder {
    /// Creates a folder. The first call also removes folders of processes that were killed. Blocks.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create() -> io::Result<PrivateTempFolder> {
        static ABANDONED: Once = Once::new();
        let place = std::env::temp_dir();
        ABANDONED.call_once(|| remove_abandoned(&place, MIN_AGE));
        PrivateTempFolder::create_in(&place)
    }

    fn create_in(place: &Path) -> io::Result<PrivateTempFolder> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).rand_bytes(12);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o700));
        }
        let folder = builder.tempdir_in(place)?;
        let lock = open(folder.path())?;
        lock_now(&lock)?;
        Ok(PrivateTempFolder { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of this user that nobody has locked.
fn remove_abandoned(place: &Path, min_age: Duration) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|it| it.starts_with(PREFIX))
            && is_abandoned(&entry.path(), min_age).unwrap_or(false)
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!(%error, "a temporary folder of a killed process cannot be removed");
        }
    }
}

fn is_abandoned(folder: &Path, min_age: Duration) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(folder)?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    if !metadata.is_dir() || !is_own(&metadata) || age < min_age {
        return Ok(false);
    }
    Ok(lock_now(&open(folder)?).is_ok())
}

/// Whether a file belongs to the user of this process.
#[cfg(unix)]
pub(crate) fn is_own(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(metadata) == rustix::process::geteuid().as_raw()
}

#[cfg(unix)]
fn open(folder: &Path) -> io::Result<fs::File> {
    use rustix::fs::{Mode, OFlags};
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, how, Mode::empty())?.into())
}

/// Locks a file or folder until it is closed.
///
/// # Errors
/// If another process has locked it.
#[cfg(unix)]
pub(crate) fn lock_now(file: &fs::File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
}

/// Folders cannot be locked here, so nothing counts as abandoned.
#[cfg(not(unix))]
pub(crate) fn is_own(_: &fs::Metadata) -> bool {
    false
}

#[cfg(not(unix))]
fn open(folder: &Path) -> io::Result<fs::File> {
    fs::File::create(folder.join(".lock"))
}

#[cfg(not(unix))]
pub(crate) fn lock_now(_: &fs::File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn only_folders_without_an_owner_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let used = PrivateTempFolder::create_in(place.path()).unwrap();
        fs::write(used.path().join("a"), "x").unwrap();
        let left = place.path().join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("deep")).unwrap();
        fs::write(left.join("deep/a"), "x").unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, place.path().join(format!("{PREFIX}link"))).unwrap();
        remove_abandoned(place.path(), MIN_AGE);
        assert!(left.exists(), "it may be in use by a process that is about to lock it");
        remove_abandoned(place.path(), Duration::ZERO);
        assert!(!left.exists() && used.path().join("a").exists() && other.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
