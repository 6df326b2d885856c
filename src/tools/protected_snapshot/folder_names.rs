//! The names in the folders that a scan looks into. Most protected paths do not exist, and with these names
//! that costs no system call for each.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders with more entries are not remembered.
const MAX_NAMES: usize = 10_000;

/// The names in a folder; `None` if anything may be in it.
type Names = Option<HashSet<OsString>>;

/// What was in the listed folders, and in the folders below them that were asked about.
#[derive(Default)]
pub(super) struct FolderNames(HashMap<PathBuf, Names>);

impl FolderNames {
    /// Remembers the names in a folder, and returns them.
    pub(super) fn list(&mut self, folder: &Path) -> Vec<OsString> {
        let listed = fs::read_dir(folder).and_then(|it| {
            it.map(|entry| entry.map(|it| it.file_name())).collect::<io::Result<Vec<_>>>()
        });
        let names = match &listed {
            Ok(names) => comparable(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(HashSet::new()),
            Err(_) => None,
        };
        self.0.insert(folder.to_path_buf(), names);
        listed.unwrap_or_default()
    }

    /// Whether something may be at a path. Anything may be outside of the listed folders.
    pub(super) fn may_exist(&mut self, path: &Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return true };
        if !self.0.contains_key(folder) {
            if !folder.ancestors().any(|it| self.0.contains_key(it)) {
                return true;
            }
            if self.may_exist(folder) {
                self.list(folder);
            } else {
                self.0.insert(folder.to_path_buf(), Some(HashSet::new()));
            }
        }
        match &self.0[folder] {
            Some(names) => names.contains(&name.to_ascii_lowercase()),
            None => true,
        }
    }
}

/// The names without the difference between capital and small letters, since some file systems make none. How
/// those compare other letters differs, so a folder with such names may hold anything. Other systems than Linux
/// have further spellings of one name.
fn comparable(names: &[OsString]) -> Names {
    let is_plain = cfg!(target_os = "linux")
        && names.len() <= MAX_NAMES
        && names.iter().all(|it| it.is_ascii());
    is_plain.then(|| names.iter().map(OsStr::new).map(OsStr::to_ascii_lowercase).collect())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use super::*;

    #[test]
    fn what_exists_may_exist_and_what_does_not_is_known_without_a_look() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join(".github/Workflows")).unwrap();
        fs::write(root.join(".github/Workflows/ci.yml"), "").unwrap();
        fs::create_dir(root.join("é")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let mut names = FolderNames::default();
        let outside = root.parent().unwrap().join("none");
        assert!(names.may_exist(&outside) && names.may_exist(&root.join("none")));
        names.list(&root.join(".github"));
        let table = [
            (".github/workflows", true),
            (".github/Workflows/CI.yml", true),
            (".github/none", !cfg!(target_os = "linux")),
            (".github/none/deeper/still", false),
            (".github/Workflows/none", !cfg!(target_os = "linux")),
        ];
        for (path, expected) in table {
            assert_eq!(names.may_exist(&root.join(path)), expected, "{path}");
        }
        // A name whose spelling is compared in other ways elsewhere.
        names.list(root);
        assert!(names.may_exist(&root.join("none")));
        names.list(&root.join("gone"));
        assert!(!names.may_exist(&root.join("gone/none")));
    }

    #[test]
    fn a_link_to_a_folder_is_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("tasks.json"), "").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join(".vscode")).unwrap();
        let mut names = FolderNames::default();
        names.list(folder.path());
        let is_there = names.may_exist(&folder.path().join(".vscode/tasks.json"));
        assert_eq!(is_there, cfg!(unix));
    }
}
