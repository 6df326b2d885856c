//! Paths with every symbolic link resolved, in the form in which people and programs write them. Most protected paths
//! do not exist, and neither do most places for credentials: with the names in the folders in which many paths are
//! looked up, that costs no system call for each.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A folder is listed when so many of its entries were looked up: that is faster than further lookups. An installation
/// of programs has fewer.
const LOOKUPS_BEFORE_LISTING: usize = 12;
/// The longest path that every program of Windows understands without `\\?\`.
const MAX_PLAIN_LENGTH: usize = 259;
/// Names that are a device in every folder of Windows, with any extension.
const DEVICES: [&str; 4] = ["AUX", "CON", "NUL", "PRN"];

/// Resolves every symbolic link of a path, which must exist. On Windows the system answers with `\\?\C:\`
/// at the beginning, which `cmd` and others do not understand; it is left out where that changes nothing. On macOS,
/// where no link leads from one to the other, what has two paths gets the usual one.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let real = or_as_written(fs::canonicalize(&path), path.as_ref())?;
    let usual = match real.to_str() {
        Some(text) if cfg!(windows) => plain_windows_path(text).map(PathBuf::from),
        _ if cfg!(target_os = "macos") => usual_path(&real),
        _ => None,
    };
    Ok(usual.unwrap_or(real))
}

/// The usual path of what macOS has by a second one, which are the folders of its users; `None` if it is no such path.
fn usual_path(real: &Path) -> Option<PathBuf> {
    let below = real.strip_prefix("/System/Volumes/Data").ok()?;
    let first = below.iter().next()?.to_str()?;
    let is_linked = ["Applications", "Library", "Users", "Volumes", "cores", "opt", "private"]
        .contains(&first)
        || below.starts_with("usr/local");
    is_linked.then(|| Path::new("/").join(below))
}

/// Returns the system's result, or the path as it is written if its disk cannot tell the names of open files, as those
/// of ImDisk and OSFMount cannot. Links are not resolved there, but no file behind one is opened.
fn or_as_written(real: io::Result<PathBuf>, path: &Path) -> io::Result<PathBuf> {
    match real {
        // `ERROR_INVALID_FUNCTION`.
        Err(error) if cfg!(windows) && error.raw_os_error() == Some(1) => std::path::absolute(path),
        real => real,
    }
}

/// Returns true if a path finds an entry only because the file system ignores the case of letters, as it usually does
/// on macOS and Windows: the entry has the same name in other letters. Blocks.
pub fn has_other_letters(path: &Path) -> bool {
    let real = real_path(path).ok().filter(|real| real != path && !path.is_symlink());
    let lowered = path.to_string_lossy().to_lowercase();
    real.is_some_and(|real| real.to_string_lossy().to_lowercase() == lowered)
}

/// Resolves many paths with common parent folders, and looks at each folder once. It does not see later
/// changes, so use one for a single short task.
#[derive(Debug, Default)]
pub struct RealPaths {
    /// The folders that were resolved; `None` for those that do not exist. Not by `PathBuf`, which takes longer to hash.
    folders: RefCell<HashMap<OsString, Option<ResolvedFolder>>>,
}

/// A folder whose entries are looked up.
#[derive(Debug)]
struct ResolvedFolder {
    real: PathBuf,
    lookups: usize,
    names: ComparableNames,
}

impl RealPaths {
    /// The same as [`real_path`], without the error.
    pub fn get(&self, path: &Path) -> Option<PathBuf> {
        // Windows has further rules about what a path means.
        if cfg!(windows) || path.is_relative() {
            return real_path(path).ok();
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return real_path(path).ok();
        };
        if let Some(known) = self.folders.borrow_mut().get_mut(folder.as_os_str()) {
            return known.as_mut()?.entry(name);
        }
        let mut resolved = self.get(folder).map(ResolvedFolder::new);
        let real = resolved.as_mut().and_then(|folder| folder.entry(name));
        self.folders.borrow_mut().insert(folder.into(), resolved);
        real
    }
}

impl ResolvedFolder {
    fn new(real: PathBuf) -> ResolvedFolder {
        ResolvedFolder { real, lookups: 0, names: ComparableNames::default() }
    }

    /// The real path of an entry.
    fn entry(&mut self, name: &OsStr) -> Option<PathBuf> {
        self.lookups += 1;
        if self.lookups == LOOKUPS_BEFORE_LISTING {
            self.names = ComparableNames::of(&list(&self.real));
        }
        if !self.names.may_contain(name) {
            return None;
        }
        real_entry(self.real.join(name))
    }
}

/// The real path of an entry of a folder that is given by its real path.
fn real_entry(path: PathBuf) -> Option<PathBuf> {
    match fs::read_link(&path) {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => None,
        // It exists and is no link. macOS also finds it by a name in another case or Unicode form.
        Err(_) if !cfg!(target_os = "macos") => Some(path),
        _ => real_path(path).ok(),
    }
}

/// Returns the parts of a path, the last one first. With this, links can be followed one by one.
pub(crate) fn parts_reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The path without `\\?\`; `None` if it has none, or means something else without it.
fn plain_windows_path(path: &str) -> Option<&str> {
    let plain = path.strip_prefix(r"\\?\")?;
    let mut names = plain.split('\\');
    let drive = names.next()?.as_bytes();
    let is_drive = drive.len() == 2 && drive[0].is_ascii_alphabetic() && drive[1] == b':';
    // Windows removes dots and blanks at the end of a name, and some names are devices.
    let are_plain = names.all(|name| !name.ends_with(['.', ' ']) && !is_device_name(name));
    let fits = is_drive && plain.len() <= MAX_PLAIN_LENGTH && are_plain;
    // `C:` alone is the current folder of the drive.
    (fits && plain.len() > 2).then_some(plain)
}

/// Returns true if a name may be a device in every folder of Windows.
pub(crate) fn is_device_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    let is_port = numbered.is_some_and(|number| number.chars().count() == 1);
    is_port || DEVICES.contains(&stem.as_str())
}

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
        let lower = is_plain.then(|| names.iter().map(|name| name.to_ascii_lowercase()).collect());
        ComparableNames(lower)
    }

    fn may_contain(&self, name: &OsStr) -> bool {
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

    #[cfg(unix)]
    #[test]
    fn many_paths_are_resolved_like_each_alone() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::File::create(base.join("a/file")).unwrap();
        symlink("a", base.join("link")).unwrap();
        symlink("missing", base.join("dangling")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        symlink(base.join("link/b"), base.join("a/b/inner")).unwrap();
        let names = [
            "a",
            "a/b",
            "a/b/.",
            "a/..",
            "a/b/../file",
            "a/missing/../file",
            "a/file",
            "a/file/x",
            "a/file/..",
            "link",
            "link/b",
            "link/..",
            "link/b/inner/inner",
            "link/missing",
            "dangling",
            "loop",
            "loop/x",
            "missing",
            "missing/x",
            "..",
            "../..",
        ];
        let all = RealPaths::default();
        let paths = names.iter().map(|name| base.join(name));
        for path in paths.chain(["/".into(), "".into(), "src".into()]) {
            for _ in 0..2 {
                assert_eq!(all.get(&path), real_path(&path).ok(), "{}", path.display());
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_listed_answers_as_each_lookup_does() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        for name in ["a", "B", "c.d"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        symlink("a", base.join("link")).unwrap();
        symlink("missing", base.join("dangling")).unwrap();
        let all = RealPaths::default();
        for number in 0..2 * LOOKUPS_BEFORE_LISTING {
            assert_eq!(all.get(&base.join(format!("missing-{number}"))), None);
        }
        for name in ["a", "A", "B", "b", "c.d", "link", "LINK", "dangling", "none", "\u{e4}"] {
            let path = base.join(name);
            assert_eq!(all.get(&path), real_path(&path).ok(), "{name}");
        }
    }

    #[test]
    fn an_entry_in_other_letters_is_told_from_the_one_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        fs::write(base.join("Hello"), "").unwrap();
        let is_case_ignored = base.join("hello").exists();
        for (name, expected) in [("Hello", false), ("hello", is_case_ignored), ("none", false)] {
            assert_eq!(has_other_letters(&base.join(name)), expected, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_second_path_of_macos_to_the_files_of_users_is_replaced_by_the_usual_one() {
        for (path, expected) in [
            ("/System/Volumes/Data/Users/me/a", Some("/Users/me/a")),
            ("/System/Volumes/Data/private/etc", Some("/private/etc")),
            ("/System/Volumes/Data/Volumes/Disk", Some("/Volumes/Disk")),
            ("/System/Volumes/Data", None),
            ("/System/Volumes/Data/usr/share", None),
            ("/System/Volumes/Data/UsersOld/me", None),
            ("/Users/me/System/Volumes/Data/Users", None),
        ] {
            assert_eq!(usual_path(Path::new(path)).as_deref(), expected.map(Path::new), "{path}");
        }
    }

    #[test]
    fn on_a_disk_of_windows_that_knows_no_names_a_path_is_the_one_that_is_written() {
        let written = Path::new(if cfg!(windows) { "R:\\a\\..\\b" } else { "/r/b" });
        for (code, expected) in [(1, cfg!(windows).then_some("R:\\b")), (2, None), (5, None)] {
            let real = or_as_written(Err(io::Error::from_raw_os_error(code)), written).ok();
            assert_eq!(real.as_deref(), expected.map(Path::new), "{code}");
        }
        let known = Path::new("/known");
        assert_eq!(or_as_written(Ok(known.into()), written).unwrap(), known);
    }

    #[test]
    fn the_long_form_of_windows_is_left_out_where_that_changes_nothing() {
        let long = format!(r"\\?\C:\{}", "a".repeat(300));
        let table = [
            (r"\\?\C:\Users\me\a b.txt", Some(r"C:\Users\me\a b.txt")),
            (r"\\?\C:\", Some(r"C:\")),
            (r"\\?\z:\console\nully", Some(r"z:\console\nully")),
            (r"C:\Users", None),
            (r"\\?\C:", None),
            (r"\\?\UNC\server\share\a", None),
            (r"\\?\Volume{1}\a", None),
            (r"\\?\C:\a.\b", None),
            (r"\\?\C:\a \b", None),
            (r"\\?\C:\nul.txt", None),
            (r"\\?\C:\a\Com1", None),
            (long.as_str(), None),
        ];
        for (path, expected) in table {
            assert_eq!(plain_windows_path(path), expected, "{path}");
        }
    }

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
        // The root contains `é`, which file systems compare in different ways, so it may contain any name.
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
