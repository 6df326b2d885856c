//! New files, which are written beside their final path. Their writer holds a lock on each, so that another
//! process can recognize files that a killed process has left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::nofollow;
use crate::temp_folder::{is_own, lock_now};

const PREFIX: &str = ".turnwright-";
const SUFFIX: &str = ".tmp";
/// The number of random characters between them.
const RANDOM_CHARS: usize = 6;
/// A file that is younger may not be locked yet.
const MIN_AGE: Duration = Duration::from_secs(10);
/// The most entries of a folder that are examined.
const MAX_ENTRIES: usize = 10_000;

/// Creates a file with a temporary name in a folder that is held open. It is removed on drop unless it
/// is kept. Files that processes have left in the folder when they were killed are removed first.
///
/// # Errors
/// Errors of the system, without the path: the folder's path leads through its descriptor.
pub(super) fn create(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
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
    file.persist_noclobber(path).map(drop).map_err(|error| error.error)
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_files_without_a_writer_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let written = create(folder.path(), 0o600).unwrap();
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

    #[test]
    fn the_next_file_in_a_folder_removes_what_a_killed_process_has_left_there() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".turnwright-aB3xYz.tmp");
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::create(&left).unwrap().set_modified(an_hour_ago).unwrap();
        drop(create(folder.path(), 0o600).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
