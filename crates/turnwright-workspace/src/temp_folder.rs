//! Private temporary folders. Their owner holds a lock on each, so that another process can tell which
//! ones were left behind by a process that was killed, and remove them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How the names of the folders begin.
const PREFIX: &str = "turnwright-tmp-";
/// A folder gets its final name when it is locked; on Windows it is locked before it is there.
const NEW_PREFIX: &str = "turnwright-new-";
/// A folder without its final name that is younger may still be about to be locked.
const MIN_AGE: Duration = Duration::from_secs(60);
/// The longest time for a removal. The rest stays until another process removes it.
const MAX_REMOVAL: Duration = Duration::from_secs(60);

/// A temporary folder that only its owner can access. It is removed on drop.
#[derive(Debug)]
pub struct PrivateTempFolder {
    path: PathBuf,
    /// Closed after the folder is removed.
    // Held only to put another file in its place.
    #[cfg_attr(not(unix), expect(dead_code, reason = "it is held, and not read"))]
    lock: Mutex<fs::File>,
}

impl Drop for PrivateTempFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::debug!(%error, "a temporary folder cannot be removed");
        }
    }
}

/// The folder for temporary files: that of the environment, or another one of the system if that is gone or read-only. A
/// path that is not absolute would lead into the project. Blocks.
pub fn temp_place() -> PathBuf {
    first_usable(std::env::temp_dir())
}

#[cfg(unix)]
fn first_usable(wanted: PathBuf) -> PathBuf {
    let named = is_suitable(&wanted).then_some(wanted);
    let others = ["/tmp", "/var/tmp", SHARED_MEMORY].map(PathBuf::from);
    let found = named.into_iter().chain(others).find(|place| is_usable(place));
    found.unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Commands have a `/dev/shm` of their own, and would not find their folder there.
#[cfg(unix)]
const SHARED_MEMORY: &str = "/dev/shm";

/// Returns true if the folders of commands may be in this one. The path of the one that macOS names is so long that
/// there would be no room for the names of sockets: path and name together have at most 103 bytes.
#[cfg(unix)]
fn is_suitable(wanted: &Path) -> bool {
    let unsuitable = [SHARED_MEMORY, "/var/folders", "/private/var/folders"];
    wanted.is_absolute() && !unsuitable.iter().any(|place| wanted.starts_with(place))
}

#[cfg(unix)]
fn is_usable(place: &Path) -> bool {
    use rustix::fs::Access;
    place.is_dir() && rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn first_usable(wanted: PathBuf) -> PathBuf {
    wanted
}

/// A lasting folder of this user in a folder where everybody can create one of that name. If somebody else has,
/// or can change it, the path leads nowhere: settings are read from there.
#[cfg(unix)]
pub fn own_folder_in(place: &Path, name: &str) -> PathBuf {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let folder = place.join(name);
    fs::DirBuilder::new().mode(0o700).create(&folder).ok();
    let metadata = fs::symlink_metadata(&folder);
    let is_private =
        metadata.is_ok_and(|found| found.is_dir() && is_own(&found) && found.mode() & 0o022 == 0);
    if is_private { folder } else { Path::new("/dev/null").join(name) }
}

/// Temporary folders of Windows belong to one user.
#[cfg(not(unix))]
pub fn own_folder_in(place: &Path, name: &str) -> PathBuf {
    place.join(name)
}

/// Removes the folders of processes that were killed, once in a process. Blocks.
pub fn remove_abandoned_folders() {
    static ABANDONED: Once = Once::new();
    ABANDONED.call_once(|| remove_abandoned(&temp_place(), MIN_AGE));
}

impl PrivateTempFolder {
    /// Creates a folder. Blocks.
    pub fn create() -> io::Result<PrivateTempFolder> {
        remove_abandoned_folders();
        PrivateTempFolder::make_in(&temp_place())
    }

    /// Creates a folder in another place than the one for temporary files. Blocks.
    pub fn create_in(place: &Path) -> io::Result<PrivateTempFolder> {
        remove_abandoned(place, MIN_AGE);
        PrivateTempFolder::make_in(place)
    }

    #[cfg(unix)]
    fn make_in(place: &Path) -> io::Result<PrivateTempFolder> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(NEW_PREFIX).rand_bytes(12);
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = builder.tempdir_in(place)?;
        let lock = open(folder.path())?;
        lock_own(&lock)?;
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
        let path = place.join(name.replacen(NEW_PREFIX, PREFIX, 1));
        fs::rename(folder.path(), &path)?;
        // It is no longer there under its first name.
        drop(folder.keep());
        Ok(PrivateTempFolder { path, lock: Mutex::new(lock) })
    }

    /// A folder in which a file is open cannot be renamed on Windows, so the lock is a file beside it, and
    /// comes first.
    #[cfg(not(unix))]
    fn make_in(place: &Path) -> io::Result<PrivateTempFolder> {
        let path = place.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
        let lock = open(&path)?;
        fs::create_dir(&path)?;
        Ok(PrivateTempFolder { path, lock: Mutex::new(lock) })
    }

    /// Makes the folder again if a program that cleans up temporary files has removed it, which happens to sessions that
    /// last for days. Blocks.
    ///
    /// # Errors
    /// If it cannot be made, or somebody else has made one of that name.
    #[cfg(unix)]
    pub fn make_again(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        match fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&self.path)?;
                if found.is_dir() && is_own(&found) { Ok(()) } else { Err(error) }
            }
            made => {
                made?;
                let lock = open(&self.path)?;
                lock_own(&lock)?;
                *self.lock.lock() = lock;
                Ok(())
            }
        }
    }

    /// A folder of Windows is left alone: none is cleaned up beside an open file.
    #[cfg(not(unix))]
    pub fn make_again(&self) -> io::Result<()> {
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the folders of this user that nobody has locked.
fn remove_abandoned(place: &Path, min_age: Duration) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let begins = |prefix: &str| name.to_str().is_some_and(|name| name.starts_with(prefix));
        let min_age = if begins(NEW_PREFIX) { min_age } else { Duration::ZERO };
        if (begins(PREFIX) || begins(NEW_PREFIX))
            && is_abandoned(&entry.path(), min_age).unwrap_or(false)
            && let Err(error) = remove(&entry.path())
            // Another process removes it, too.
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a temporary folder of a killed process cannot be removed");
        }
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    // A process that is left could make files for ever.
    let begun = Instant::now();
    crate::remove_tree::remove_tree(folder, &|| begun.elapsed() > MAX_REMOVAL)
}

fn is_abandoned(folder: &Path, min_age: Duration) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(folder)?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    if !metadata.is_dir() || !is_own(&metadata) || age < min_age {
        return Ok(false);
    }
    Ok(lock_now(&open(folder)?).is_ok())
}

/// Returns true if a file belongs to the user of this process.
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

#[cfg(unix)]
pub(crate) use turnwright_types::private_file::lock_now;

/// Locks a folder of this process. Where the file system locks no folders, as with NFS and some Lustre, nobody else can
/// lock it and take it for an abandoned one.
#[cfg(unix)]
fn lock_own(folder: &fs::File) -> io::Result<()> {
    lock_now(folder).or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    })
}

/// Temporary folders of Windows belong to one user.
#[cfg(not(unix))]
pub(crate) fn is_own(_: &fs::Metadata) -> bool {
    true
}

/// Opens the lock of a folder, which only one process can do. It is removed when it is closed.
#[cfg(not(unix))]
fn open(folder: &Path) -> io::Result<fs::File> {
    use std::os::windows::fs::OpenOptionsExt;
    const DELETE_ON_CLOSE: u32 = 0x0400_0000;
    let mut options = fs::File::options();
    options.write(true).create(true).share_mode(0).custom_flags(DELETE_ON_CLOSE);
    options.open(folder.with_extension("lock"))
}

/// Whoever could open it has locked it: its writer shares it with readers only.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn lock_now(_: &fs::File) -> io::Result<()> {
    Ok(())
}

/// Others may read a file that this process writes.
#[cfg(not(unix))]
pub(crate) const SHARE_READ: u32 = 1;
/// Others may rename or remove it.
#[cfg(not(unix))]
pub(crate) const SHARE_DELETE: u32 = 4;

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_change_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a");
        assert_eq!(own_folder_in(place.path(), "a"), folder);
        for (mode, expected) in
            [(0o700, &*folder), (0o755, &*folder), (0o777, "/dev/null/a".as_ref())]
        {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(own_folder_in(place.path(), "a"), expected);
        }
        std::os::unix::fs::symlink(&folder, place.path().join("b")).unwrap();
        assert_eq!(own_folder_in(place.path(), "b"), Path::new("/dev/null/b"));
    }

    #[test]
    fn files_are_made_elsewhere_if_the_folder_for_them_is_gone() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        assert_eq!(first_usable(place.path().to_owned()), place.path());
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for unusable in [place.path().join("gone"), file, "here".into(), "/dev/shm".into()] {
            assert_eq!(first_usable(unusable.clone()), Path::new("/tmp"), "{unusable:?}");
        }
    }

    #[test]
    fn sockets_have_room_in_the_folders_of_commands() {
        for (wanted, expected) in [
            ("/var/folders/24/8k48jl6d249_n_qfxwsl6xvm0000gn/T/", false),
            ("/private/var/folders/24/8k48jl6d249_n_qfxwsl6xvm0000gn/T", false),
            ("/dev/shm/a", false),
            ("here", false),
            ("/tmp", true),
            ("/scratch/me", true),
        ] {
            assert_eq!(is_suitable(Path::new(wanted)), expected, "{wanted}");
        }
    }

    #[test]
    fn a_folder_that_was_cleaned_up_is_made_again_and_has_an_owner() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateTempFolder::make_in(place.path()).unwrap();
        fs::write(folder.path().join("a"), "x").unwrap();
        folder.make_again().unwrap();
        assert!(folder.path().join("a").exists());
        fs::remove_dir_all(folder.path()).unwrap();
        folder.make_again().unwrap();
        remove_abandoned(place.path(), Duration::ZERO);
        assert!(folder.path().is_dir(), "it is locked again");
        fs::remove_dir(folder.path()).unwrap();
        std::os::unix::fs::symlink(place.path(), folder.path()).unwrap();
        folder.make_again().unwrap_err();
        fs::remove_file(folder.path()).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_cannot_be_locked_is_used_all_the_same() {
        use rustix::fs::{Mode, OFlags};
        let place = tempfile::tempdir().unwrap();
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let unlockable = rustix::fs::open(place.path(), path, Mode::empty()).unwrap();
        lock_own(&unlockable.into()).unwrap();
        let [first, second] = [(); 2].map(|()| open(place.path()).unwrap());
        lock_own(&first).unwrap();
        assert_eq!(lock_own(&second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn only_folders_without_an_owner_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let used = PrivateTempFolder::make_in(place.path()).unwrap();
        fs::write(used.path().join("a"), "x").unwrap();
        let [left, new] =
            [PREFIX, NEW_PREFIX].map(|prefix| place.path().join(format!("{prefix}left")));
        for folder in [&left, &new] {
            fs::create_dir_all(folder.join("deep")).unwrap();
            fs::write(folder.join("deep/a"), "x").unwrap();
        }
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, place.path().join(format!("{PREFIX}link"))).unwrap();
        remove_abandoned(place.path(), MIN_AGE);
        assert!(!left.exists(), "nobody has locked it");
        assert!(new.exists(), "it may be in use by a process that is about to lock it");
        remove_abandoned(place.path(), Duration::ZERO);
        assert!(!new.exists() && used.path().join("a").exists() && other.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
