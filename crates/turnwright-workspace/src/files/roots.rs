//! The folders of a session, and the resolution of paths against them.

use crate::real_path;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line};

/// A path with more links than this counts as a loop.
const MAX_LINKS: usize = 40;
/// The most folders outside that may be read.
const MAX_READABLE: usize = 128;

/// The folders that belong to a session. The first is its working folder.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Each folder as the client named it, and with its links resolved.
    folders: Vec<(PathBuf, PathBuf)>,
    /// Folders that count as outside wherever they are: our own, with credentials and granted
    /// permissions.
    private: Vec<PathBuf>,
    /// Folders outside of the project that the session may read.
    // A std lock: it is held only to access a short list.
    readable: Arc<RwLock<Vec<PathBuf>>>,
    /// Whether the folders are those of a recording, so that the disk says nothing about them.
    is_recorded: bool,
}

impl Roots {
    /// Roots with a working folder.
    pub fn new(cwd: &Path) -> std::io::Result<Roots> {
        let real = real_path(cwd)?;
        if !real.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        let folders = vec![(cwd.to_path_buf(), real)];
        Ok(Roots { folders, private: Vec::new(), readable: Arc::default(), is_recorded: false })
    }

    /// Roots of a session that ran elsewhere: its working folder and others, each as the client named it and
    /// with its links resolved. The folders need not exist, and are not looked at.
    pub fn recorded(cwd: (PathBuf, PathBuf), others: Vec<(PathBuf, PathBuf)>) -> Roots {
        let folders = std::iter::once(cwd).chain(others).collect();
        Roots { folders, private: Vec::new(), readable: Arc::default(), is_recorded: true }
    }

    /// Adds a folder to the session.
    pub fn with_folder(mut self, folder: &Path) -> std::io::Result<Roots> {
        let real = real_path(folder)?;
        // Fails if it is not a folder, or is not readable.
        drop(fs::read_dir(&real)?);
        if !self.folders.iter().any(|it| it.1 == real) {
            self.folders.push((folder.to_path_buf(), real));
        }
        Ok(self)
    }

    /// Makes a folder count as outside even if it lies below a root.
    #[must_use]
    pub fn with_private_folder(mut self, folder: &Path) -> Roots {
        // The folder may be created later, for example by a login.
        self.private.extend(std::path::absolute(folder).ok().map(|it| resolve_missing(&it)));
        self
    }

    /// Adds a folder of our own that may be read and not changed.
    #[must_use]
    pub fn with_readable_folder(self, folder: &Path) -> Roots {
        if let Ok(folder) = std::path::absolute(folder) {
            self.allow_read(resolve_missing(&folder));
        }
        self
    }

    /// Lets the session read a folder (a path without links) from now on; this applies to all
    /// clones of these roots. A folder that contains a folder of the session or a private one is
    /// not added.
    pub fn allow_read(&self, folder: PathBuf) {
        let contains = |it: &Path| it.starts_with(&folder);
        if self.folders.iter().any(|it| contains(&it.1)) || self.private_folders().any(contains) {
            return;
        }
        let mut readable = self.readable.write();
        if readable.len() < MAX_READABLE && !readable.contains(&folder) {
            readable.push(folder);
        }
    }

    fn is_readable(&self, path: &Path) -> bool {
        let readable = self.readable.read();
        readable.iter().any(|it| path.starts_with(it))
    }

    /// The folders outside of the project that the session may read.
    pub fn readable_folders(&self) -> Vec<PathBuf> {
        self.readable.read().clone()
    }

    /// The folders that count as outside, with links resolved.
    pub fn private_folders(&self) -> impl Iterator<Item = &Path> {
        self.private.iter().map(PathBuf::as_path)
    }

    /// The working folder as the client named it.
    pub fn cwd(&self) -> &Path {
        &self.folders[0].0
    }

    /// All folders of the session with links resolved, the working folder first.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|it| it.1.as_path())
    }

    /// The folders other than the working folder, as the client named them.
    pub fn additional_folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().skip(1).map(|it| it.0.as_path())
    }

    /// The working folder with links resolved.
    pub fn real_cwd(&self) -> &Path {
        &self.folders[0].1
    }

    /// Resolves a path. A relative one starts in the working folder only (R-SESS-4). `..` and
    /// symbolic links are followed as the kernel does, also in a path that does not exist yet.
    pub fn resolve(&self, path: impl AsRef<Path>) -> ResolvedPath {
        let absolute = unambiguous(self.folders[0].1.join(path));
        let recorded = if self.is_recorded { self.recorded_place(&absolute) } else { None };
        let real = recorded.or_else(|| real_path(&absolute).ok());
        let path = real.unwrap_or_else(|| resolve_missing(&absolute));
        let is_private = self.private_folders().any(|it| path.starts_with(it));
        let place = if self.is_readable(&path) {
            PathScope::AgentData
        } else if !is_private && self.folders.iter().any(|it| path.starts_with(&it.1)) {
            PathScope::Workspace
        } else {
            PathScope::Outside
        };
        ResolvedPath { path, scope: place }
    }

    /// Where a path below one of the folders was. Links in the folders are not known.
    fn recorded_place(&self, absolute: &Path) -> Option<PathBuf> {
        let mut path = PathBuf::new();
        for part in absolute.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        self.folders.iter().find_map(|(named, real)| {
            let rest = path.strip_prefix(named).or_else(|_| path.strip_prefix(real)).ok()?;
            Some(if rest.as_os_str().is_empty() { real.clone() } else { real.join(rest) })
        })
    }

    /// The path as the client knows it: below the folder as the client named it, even if that is a
    /// link.
    pub fn client_path(&self, target: &ResolvedPath) -> PathBuf {
        self.folders
            .iter()
            .find_map(|(named, real)| {
                let rest = target.path.strip_prefix(real).ok()?;
                // Joining an empty path would append a slash.
                let is_root = rest.as_os_str().is_empty();
                Some(if is_root { named.clone() } else { native(named.join(rest)) })
            })
            .unwrap_or_else(|| target.path.clone())
    }

    /// The path for display: relative to the working folder if it lies below it, with hidden
    /// characters escaped.
    pub fn display_path(&self, target: &ResolvedPath) -> String {
        let (_, real) = &self.folders[0];
        match target.path.strip_prefix(real) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => escape_hidden_line(&super::display(rest)),
            Err(_) => escape_hidden_line(&target.path.to_string_lossy()),
        }
    }
}

/// The path that Windows opens for this one: it removes dots and blanks at the end of a name, and `C:a`
/// begins in the folder of the drive. What is behind a `:` names another stream of the same file, and
/// counts as the file.
#[cfg(windows)]
fn unambiguous(path: PathBuf) -> PathBuf {
    let absolute = std::path::absolute(&path).unwrap_or(path);
    let without_stream = |part: Component<'_>| match part {
        Component::Normal(name) => OsString::from(file_of_stream(&name.to_string_lossy())),
        part => part.as_os_str().to_owned(),
    };
    let has_stream = |it: Component<'_>| matches!(it, Component::Normal(name) if name.to_string_lossy().contains(':'));
    // A name that is no Unicode stays as it is unless it has a stream.
    if absolute.components().any(has_stream) {
        absolute.components().map(without_stream).collect()
    } else {
        absolute
    }
}

#[cfg(not(windows))]
fn unambiguous(path: PathBuf) -> PathBuf {
    path
}

/// The file that a name with a stream belongs to.
#[cfg(any(windows, test))]
fn file_of_stream(name: &str) -> &str {
    name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' '])
}

/// The path with one kind of separators.
#[cfg(windows)]
fn native(path: PathBuf) -> PathBuf {
    path.components().collect()
}

#[cfg(not(windows))]
fn native(path: PathBuf) -> PathBuf {
    path
}

/// Resolves a path whose last components may not exist. A dangling link is followed, too, because
/// writing through it would create its target.
fn resolve_missing(path: &Path) -> PathBuf {
    let mut real = PathBuf::new();
    let mut rest: VecDeque<OsString> = VecDeque::new();
    push_front(&mut rest, path);
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        // The root is no link.
        if real.parent().is_none() {
            continue;
        }
        match fs::read_link(&real) {
            Ok(link) if links < MAX_LINKS => {
                links += 1;
                real.pop();
                push_front(&mut rest, &link);
            }
            _ => {}
        }
    }
    real
}

fn push_front(rest: &mut VecDeque<OsString>, path: &Path) {
    let parts: Vec<_> = path
        .components()
        .filter(|it| !matches!(it, Component::CurDir))
        .map(|it| it.as_os_str().to_owned())
        .collect();
    for part in parts.into_iter().rev() {
        rest.push_front(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_are_resolved_before_the_scope_is_decided() {
        let base = tempfile::tempdir().unwrap();
        let base = real_path(base.path()).unwrap();
        fs::create_dir_all(base.join("ws/src")).unwrap();
        fs::create_dir_all(base.join("other")).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(base.join("other"), base.join("ws/out")).unwrap();
            symlink(base.join("other/new.txt"), base.join("ws/dangling")).unwrap();
            symlink("src", base.join("ws/in")).unwrap();
            symlink("loop", base.join("ws/loop")).unwrap();
        }
        let roots = Roots::new(&base.join("ws")).unwrap();

        let table = [
            ("a.txt", "ws/a.txt", PathScope::Workspace),
            ("src/../b", "ws/b", PathScope::Workspace),
            ("new/dir/c", "ws/new/dir/c", PathScope::Workspace),
            ("in/d", "ws/src/d", PathScope::Workspace),
            ("../ws/e", "ws/e", PathScope::Workspace),
            ("../other/f", "other/f", PathScope::Outside),
            ("out/g", "other/g", PathScope::Outside),
            ("out/../h", "h", PathScope::Outside),
            ("new/../../i", "i", PathScope::Outside),
            ("dangling", "other/new.txt", PathScope::Outside),
            (".", "ws", PathScope::Workspace),
        ];
        // Windows lets only administrators make links.
        let is_linked =
            |it: &str| it.starts_with("in/") || it.starts_with("out/") || it == "dangling";
        for (path, real, place) in table.into_iter().filter(|it| cfg!(unix) || !is_linked(it.0)) {
            let expected = ResolvedPath { path: base.join(real), scope: place };
            assert_eq!(roots.resolve(path), expected, "{path}");
        }
        assert_eq!(roots.resolve("/etc/passwd").scope, PathScope::Outside);
        // Where a loop leads does not matter, but the resolution must terminate.
        roots.resolve("loop/x");
    }

    #[test]
    fn a_stream_belongs_to_its_file() {
        for (name, expected) in [
            (".env::$DATA", ".env"),
            (".env. ::$DATA", ".env"),
            ("a.txt:notes", "a.txt"),
            ("a.txt", "a.txt"),
        ] {
            assert_eq!(file_of_stream(name), expected, "{name}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn another_spelling_of_a_file_is_the_same_file() {
        let base = tempfile::tempdir().unwrap();
        let roots = Roots::new(base.path()).unwrap();
        fs::write(base.path().join(".env"), "x").unwrap();
        let expected = roots.resolve(".env");
        assert_eq!(expected.scope, PathScope::Workspace);
        for spelling in [".env::$DATA", ".env.", ".env ", "a/../.env", r"a\..\.env", "./.env:x"] {
            assert_eq!(roots.resolve(spelling), expected, "{spelling}");
        }
        let missing = roots.resolve("new.");
        assert_eq!(missing, roots.resolve("new"));
    }

    #[test]
    fn relative_paths_start_in_the_first_of_several_folders() {
        let base = tempfile::tempdir().unwrap();
        let base = real_path(base.path()).unwrap();
        for folder in ["ws", "more/sub", "secret"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(base.join("more"), base.join("link")).unwrap();
            symlink(base.join("secret"), base.join("more/out")).unwrap();
        }
        let link = base.join(if cfg!(unix) { "link" } else { "more" });
        let roots = Roots::new(&base.join("ws")).unwrap();
        assert!(roots.clone().with_folder(&base.join("missing")).is_err());
        let roots = roots.with_folder(&link).unwrap().with_folder(&base.join("more")).unwrap();
        assert_eq!(
            roots.folders().count(),
            2,
            "the same folder by another name is not added again"
        );
        let place = |it: &str| roots.resolve(it).scope;
        assert_eq!(roots.resolve("sub/a").path, base.join("ws/sub/a"));
        assert_eq!(place("../more/sub/a"), PathScope::Workspace);
        #[cfg(unix)]
        assert_eq!(place("../more/out/a"), PathScope::Outside);
        assert_eq!(place("../more/../secret/a"), PathScope::Outside);
        let target = roots.resolve(base.join("more/sub/a"));
        assert_eq!(roots.client_path(&target), link.join("sub/a"));
    }

    #[test]
    fn folders_of_a_recording_are_where_they_were() {
        let root = if cfg!(windows) { r"C:\" } else { "/" };
        let at = |it: &str| Path::new(root).join(it);
        let cwd = (at("named/ws"), at("real/ws"));
        let roots = Roots::recorded(cwd, vec![(at("named/more"), at("more"))]);
        for (path, real, scope) in [
            (at("named/ws/a"), "real/ws/a", PathScope::Workspace),
            (at("real/ws/a"), "real/ws/a", PathScope::Workspace),
            (at("named/ws"), "real/ws", PathScope::Workspace),
            (PathBuf::from("a/../b"), "real/ws/b", PathScope::Workspace),
            (at("named/ws/../more/./c"), "more/c", PathScope::Workspace),
            (at("named/ws/../../d"), "d", PathScope::Outside),
            (at("named/wsx"), "named/wsx", PathScope::Outside),
        ] {
            assert_eq!(roots.resolve(&path), ResolvedPath { path: at(real), scope }, "{path:?}");
        }
    }

    #[test]
    fn a_folder_can_be_made_readable_unless_it_contains_other_ones() {
        let base = tempfile::tempdir().unwrap();
        let base = real_path(base.path()).unwrap();
        fs::create_dir_all(base.join("home/ws")).unwrap();
        let roots =
            Roots::new(&base.join("home/ws")).unwrap().with_private_folder(&base.join("config"));
        let copy = roots.clone();
        let place = |it: &str| copy.resolve(base.join(it)).scope;
        for folder in ["skill", "config/skills/a", "config", "home", "home/ws", ""] {
            roots.allow_read(base.join(folder));
        }
        for (path, expected) in [
            ("skill/a", PathScope::AgentData),
            ("skill/../b", PathScope::Outside),
            ("skills/a", PathScope::Outside),
            ("config/skills/a/b", PathScope::AgentData),
            ("config/skills/b", PathScope::Outside),
            ("config/login", PathScope::Outside),
            ("home/a", PathScope::Outside),
            ("home/ws/a", PathScope::Workspace),
        ] {
            assert_eq!(place(path), expected, "{path}");
        }
    }

    #[test]
    fn a_folder_with_the_same_beginning_is_not_inside() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("ws")).unwrap();
        fs::create_dir_all(base.path().join("ws2")).unwrap();
        let roots = Roots::new(&base.path().join("ws")).unwrap();
        assert_eq!(roots.resolve("../ws2/a").scope, PathScope::Outside);
    }
}
