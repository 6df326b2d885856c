//! The names in the folders in which many paths are looked up. Most protected paths do not exist, and neither do most
//! places for credentials: with these names that costs no system call for each.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;

/// Folders with more entries are not remembered.
const MAX_NAMES: usize = 10_000;

/// The names in a folder that can be compared with others; `None` if anything may be in it.
#[derive(Debug, Default)]
pub(crate) struct ComparableNames(Option<HashSet<OsString>>);

/// The names in the listed folders, and in the folders below them that were asked about.
#[derive(Debug, Default)]
pub struct FolderNames {
    /// Not by `PathBuf`, of which a hash takes longer.
    folders: HashMap<OsString, ComparableNames>,
}

impl ComparableNames {
    pub(crate) fn list(folder: &Path) -> ComparableNames {
        ComparableNames::of(&list(folder))
    }

    /// Names in lower case, because some file systems ignore the case of letters. They differ in how they compare
    /// letters outside of ASCII, so a folder with such names may hold anything. Systems other than Linux have further
    /// spellings of one name.
    fn of(listed: &io::Result<Vec<OsString>>) -> ComparableNames {
        let names = match listed {
            Ok(names) => names.as_slice(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => &[],
            Err(_) => return ComparableNames(None),
        };
        let is_plain = cfg!(target_os = "linux")
            && names.len() <= MAX_NAMES
            && names.iter().all(|name| name.is_ascii());
        ComparableNames(
            is_plain.then(|| names.iter().map(|name| name.to_ascii_lowercase()).collect()),
        )
    }

    pub(crate) fn may_contain(&self, name: &OsStr) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(&name.to_ascii_lowercase()))
    }
}

fn list(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(folder)?.take(MAX_NAMES + 1);
    entries.map(|entry| entry.map(|found| found.file_name())).collect()
}

impl FolderNames {
    /// Remembers the names in a folder, and returns them.
    pub fn list(&mut self, folder: &Path) -> Vec<OsString> {
        let listed = list(folder);
        self.folders.insert(folder.into(), ComparableNames::of(&listed));
        listed.unwrap_or_default()
    }

    /// Returns true if something may be at a path. Anything may be outside of the listed folders.
    pub fn may_exist(&mut self, path: &Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return true };
        if !self.folders.contains_key(folder.as_os_str()) {
            if !folder.ancestors().any(|ancestor| self.folders.contains_key(ancestor.as_os_str())) {
                return true;
            }
            if self.may_exist(folder) {
                self.list(folder);
            } else {
                self.folders.insert(folder.into(), ComparableNames(Some(HashSet::new())));
            }
        }
        self.folders[folder.as_os_str()].may_contain(name)
    }
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
