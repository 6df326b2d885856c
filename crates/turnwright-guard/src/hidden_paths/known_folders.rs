//! Searches folders for secrets, and remembers what it found in each of them until the folder changes, so
//! that the next search looks only at folders.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use super::{FolderStamp, TIMESTAMP_AGE, folder_stamp, is_secret};

/// At most this many folders are remembered. Each takes about 200 bytes.
const MAX_KNOWN: usize = 20_000;

/// The findings of the last search.
#[derive(Debug)]
pub struct KnownFolders {
    folders: Mutex<HashMap<PathBuf, KnownFolder>>,
    /// Folders that changed less than this ago are not remembered.
    least_age: Duration,
}

impl Default for KnownFolders {
    fn default() -> KnownFolders {
        KnownFolders { folders: Mutex::default(), least_age: TIMESTAMP_AGE }
    }
}

#[derive(Debug)]
struct KnownFolder {
    /// `None` if it must be listed again next time.
    stamp: Option<FolderStamp>,
    entry_count: usize,
    /// The folders in it that are no secrets and have to be searched.
    folders: Vec<PathBuf>,
    secrets: Vec<PathBuf>,
}

impl KnownFolders {
    /// The secrets below these folders, and true if these are all. At most `limit` entries are visited.
    pub(super) fn search(&self, roots: &[PathBuf], limit: usize) -> (Vec<PathBuf>, bool) {
        // A search at the same time finds nothing known, and visits everything.
        let mut before = std::mem::take(&mut *self.folders.lock());
        let mut known = HashMap::new();
        let mut secrets = Vec::new();
        let mut count = 0;
        let mut pending = roots.to_vec();
        while let Some(path) = pending.pop() {
            let stamp = folder_stamp(&path, self.least_age);
            let same = before.remove(&path).filter(|known| stamp.is_some() && stamp == known.stamp);
            let found = same.unwrap_or_else(|| list(&path, stamp));
            count += found.entry_count;
            if count > limit {
                return (secrets, false);
            }
            pending.extend(found.folders.iter().cloned());
            secrets.extend(found.secrets.iter().cloned());
            if found.stamp.is_some() && known.len() < MAX_KNOWN {
                known.insert(path, found);
            }
        }
        *self.folders.lock() = known;
        (secrets, true)
    }
}

fn list(folder: &Path, stamp: Option<FolderStamp>) -> KnownFolder {
    let mut found = KnownFolder { stamp, entry_count: 0, folders: Vec::new(), secrets: Vec::new() };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.entry_count += 1;
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if is_secret(&path, kind) {
            found.secrets.extend((!kind.is_symlink()).then_some(path));
        } else if kind.is_dir() && entry.file_name() != ".git" {
            found.folders.push(path);
        }
    }
    found
}

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_used_until_the_folder_changes() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let known = KnownFolders { least_age: Duration::ZERO, ..KnownFolders::default() };
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join(".env"), "x").unwrap();
        let search = || {
            let (mut found, is_complete) = known.search(&[folder.path().to_path_buf()], 100);
            assert!(is_complete);
            found.sort();
            found
        };
        assert_eq!(search(), [inner.join(".env")]);
        assert_eq!(known.folders.lock().len(), 2);
        assert_eq!(search(), [inner.join(".env")]);

        let before = folder_stamp(&inner, Duration::ZERO);
        let key = inner.join("server.key");
        // The clock of a file system may tick more slowly than this test runs.
        while folder_stamp(&inner, Duration::ZERO) == before {
            fs::remove_file(&key).ok();
            fs::write(&key, "x").unwrap();
        }
        assert_eq!(search(), [inner.join(".env"), key]);
        fs::rename(&inner, folder.path().join("other")).unwrap();
        let other = folder.path().join("other");
        assert_eq!(search(), [other.join(".env"), other.join("server.key")]);
        assert_eq!(known.folders.lock().len(), 2);

        let recent = KnownFolders::default();
        recent.search(&[folder.path().to_path_buf()], 100);
        assert!(recent.folders.lock().is_empty(), "the folders have just changed");
    }

    #[test]
    fn a_search_beyond_its_limit_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c.pem"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let roots = [folder.path().to_path_buf()];
        assert!(KnownFolders::default().search(&roots, 3).1);
        assert!(!KnownFolders::default().search(&roots, 2).1);
    }
}
