//! Records when the private caches of a project were last used, and removes those that have not been used for a
//! month.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

const DAY: u64 = 24 * 60 * 60;
/// Caches that no command has used for longer than this are removed.
const MAX_UNUSED_TIME: Duration = Duration::from_secs(30 * DAY);
/// The file whose modification time is that of the last use of the caches.
const LAST_USE_FILE: &str = "used";

/// Records a use of the caches in `folder`, which is `projects/PROJECT/caches`, and removes the caches of other
/// projects that have not been used for too long. Stops early once `is_stopped` returns true. Blocks.
pub(crate) fn note_use(folder: &Path, is_stopped: impl Fn() -> bool) {
    if let Err(error) = touch(folder) {
        tracing::warn!(%error, "the use of the caches of commands cannot be noted");
        return;
    }
    let projects = folder.parent().and_then(Path::parent);
    let entries =
        projects.and_then(|projects| fs::read_dir(projects).ok()).into_iter().flatten().flatten();
    for old in entries.map(|entry| entry.path().join("caches")).filter(|caches| is_old(caches)) {
        if let Err(error) = remove(&old, &is_stopped) {
            tracing::warn!(%error, "old caches of commands cannot be removed");
        }
    }
}

fn touch(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    File::create(folder.join(LAST_USE_FILE))?.set_modified(SystemTime::now())
}

fn is_old(folder: &Path) -> bool {
    let last_use =
        fs::symlink_metadata(folder.join(LAST_USE_FILE)).and_then(|found| found.modified());
    last_use.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > MAX_UNUSED_TIME))
}

/// Removes a folder of caches with everything in it, including folders that are read-only, such as those of Go's
/// modules. The file with the time of the last use goes last, so that the next run finds what an interrupted one
/// has left. Returns early once `is_stopped` returns true.
pub(crate) fn remove(folder: &Path, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_folder(&entry.path(), is_stopped)?;
        } else if entry.file_name() != LAST_USE_FILE {
            fs::remove_file(entry.path())?;
        }
        if is_stopped() {
            return Ok(());
        }
    }
    fs::remove_dir_all(folder)
}

#[cfg(unix)]
fn remove_folder(folder: &Path, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    turnwright_workspace::remove_tree::remove_tree(folder, is_stopped)
}

#[cfg(not(unix))]
fn remove_folder(folder: &Path, _is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    fs::remove_dir_all(folder)
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_caches_that_were_not_used_for_long_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let folder = |name: &str| state.path().join("projects").join(name).join("caches");
        let outside = state.path().join("outside");
        fs::create_dir(&outside).unwrap();
        for (name, days) in [("old", 31), ("young", 29)] {
            let deep = folder(name).join("go/module/src");
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("file"), "x").unwrap();
            symlink(&outside, folder(name).join("link")).unwrap();
            fs::set_permissions(&deep, fs::Permissions::from_mode(0o555)).unwrap();
            fs::create_dir(folder(name).join("work")).unwrap();
            fs::set_permissions(folder(name).join("work"), fs::Permissions::from_mode(0o000))
                .unwrap();
            let used = SystemTime::now() - Duration::from_secs(days * DAY);
            File::create(folder(name).join(LAST_USE_FILE)).unwrap().set_modified(used).unwrap();
        }
        note_use(&folder("own"), || true);
        assert!(folder("old").join(LAST_USE_FILE).exists());
        assert!(folder("own").join(LAST_USE_FILE).exists());
        note_use(&folder("own"), || false);
        assert!(!folder("old").exists() && folder("young").exists() && outside.exists());
    }
}
