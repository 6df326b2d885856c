//! The folders of a session, and where a path really lies.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use turnwright_types::effect::{Place, Target, visible_line};

/// More links than this in one path are a loop.
const MOST_LINKS: usize = 40;
/// Folders that may be read besides.
const MOST_READABLE: usize = 128;

/// The folders that belong to a session. The first is its working folder.
#[derive(Clone, Debug)]
pub struct Roots {
    /// As the client has named them, and as they really are.
    folders: Vec<(PathBuf, PathBuf)>,
    /// What belongs to us and not to the project, wherever it lies: the folders with the login
    /// and with what was allowed.
    private: Vec<PathBuf>,
    /// No part of the project, and for the session to read all the same.
    // A std lock: held to look at a short list.
    readable: Arc<RwLock<Vec<PathBuf>>>,
}

impl Roots {
    /// Roots with a working folder.
    ///
    /// # Errors
    /// When it is no folder.
    pub fn new(cwd: &Path) -> std::io::Result<Roots> {
        let real = fs::canonicalize(cwd)?;
        if !real.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        let folders = vec![(cwd.to_path_buf(), real)];
        Ok(Roots { folders, private: Vec::new(), readable: Arc::default() })
    }

    /// The same, with another folder that belongs to the session.
    ///
    /// # Errors
    /// When it is no folder, or cannot be read.
    pub fn and(mut self, folder: &Path) -> std::io::Result<Roots> {
        let real = fs::canonicalize(folder)?;
        // Says whether it is one, and whether it may be read.
        drop(fs::read_dir(&real)?);
        if !self.folders.iter().any(|it| it.1 == real) {
            self.folders.push((folder.to_path_buf(), real));
        }
        Ok(self)
    }

    /// The same, without a folder that counts as outside even if it lies below a root.
    #[must_use]
    pub fn without(mut self, folder: &Path) -> Roots {
        // It may be made later, by a login.
        self.private.extend(std::path::absolute(folder).ok().map(|it| follow(&it)));
        self
    }

    /// The same, with a folder of ours that may be read and not changed.
    #[must_use]
    pub fn and_readable(self, folder: &Path) -> Roots {
        if let Ok(folder) = std::path::absolute(folder) {
            self.let_read(follow(&folder));
        }
        self
    }

    /// Lets the session read a folder, a real path, from now on: all that have a copy of these
    /// roots. Not one in which a folder of the session or our own lies.
    pub fn let_read(&self, folder: PathBuf) {
        let holds = |it: &Path| it.starts_with(&folder);
        if self.folders.iter().any(|it| holds(&it.1)) || self.private().any(holds) {
            return;
        }
        let mut readable = self.readable.write().unwrap_or_else(PoisonError::into_inner);
        if readable.len() < MOST_READABLE && !readable.contains(&folder) {
            readable.push(folder);
        }
    }

    fn is_readable(&self, path: &Path) -> bool {
        let readable = self.readable.read().unwrap_or_else(PoisonError::into_inner);
        readable.iter().any(|it| path.starts_with(it))
    }

    /// The folders that count as outside, real paths.
    pub fn private(&self) -> impl Iterator<Item = &Path> {
        self.private.iter().map(PathBuf::as_path)
    }

    /// The working folder as the client has named it.
    pub fn cwd(&self) -> &Path {
        &self.folders[0].0
    }

    /// All folders of the session as they really are, the working folder first.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|it| it.1.as_path())
    }

    /// The folders besides the working folder, as the client has named them.
    pub fn others(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().skip(1).map(|it| it.0.as_path())
    }

    /// The working folder as it really is.
    pub fn real_cwd(&self) -> &Path {
        &self.folders[0].1
    }

    /// What a path means: relative ones start in the working folder only (R-SESS-4), `..` and
    /// symbolic links are followed as the kernel would follow them, also for what does not exist
    /// yet.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Target {
        let absolute = self.folders[0].1.join(path);
        let path = match fs::canonicalize(&absolute) {
            Ok(real) => real,
            Err(_) => follow(&absolute),
        };
        let is_private = self.private().any(|it| path.starts_with(it));
        let place = if self.is_readable(&path) {
            Place::Ours
        } else if !is_private && self.folders.iter().any(|it| path.starts_with(&it.1)) {
            Place::Inside
        } else {
            Place::Outside
        };
        Target { path, place }
    }

    /// The path as the client knows it: below the folder it has named, even if that is a link.
    pub fn shown(&self, target: &Target) -> PathBuf {
        self.folders
            .iter()
            .find_map(|(named, real)| {
                let rest = target.path.strip_prefix(real).ok()?;
                // Joined with nothing, a path would end with a slash.
                let is_root = rest.as_os_str().is_empty();
                Some(if is_root { named.clone() } else { named.join(rest) })
            })
            .unwrap_or_else(|| target.path.clone())
    }

    /// The path for people: relative to the working folder where it lies below it, and with
    /// nothing in it that could hide a part of it.
    pub fn short(&self, target: &Target) -> String {
        let (_, real) = &self.folders[0];
        match target.path.strip_prefix(real) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => visible_line(&rest.to_string_lossy()),
            Err(_) => visible_line(&target.path.to_string_lossy()),
        }
    }
}

/// Resolves a path of which the last parts may not exist. A link that points to nothing is
/// followed too: writing through it would create its target.
fn follow(path: &Path) -> PathBuf {
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
        match fs::read_link(&real) {
            Ok(link) if links < MOST_LINKS => {
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

    #[cfg(unix)]
    #[test]
    fn links_and_dots_are_followed_before_inside_and_outside_are_told_apart() {
        use std::os::unix::fs::symlink;

        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("ws/src")).unwrap();
        fs::create_dir_all(base.join("other")).unwrap();
        symlink(base.join("other"), base.join("ws/out")).unwrap();
        symlink(base.join("other/new.txt"), base.join("ws/dangling")).unwrap();
        symlink("src", base.join("ws/in")).unwrap();
        symlink("loop", base.join("ws/loop")).unwrap();
        let roots = Roots::new(&base.join("ws")).unwrap();

        let table = [
            ("a.txt", "ws/a.txt", Place::Inside),
            ("src/../b", "ws/b", Place::Inside),
            ("new/dir/c", "ws/new/dir/c", Place::Inside),
            ("in/d", "ws/src/d", Place::Inside),
            ("../ws/e", "ws/e", Place::Inside),
            ("../other/f", "other/f", Place::Outside),
            ("out/g", "other/g", Place::Outside),
            ("out/../h", "h", Place::Outside),
            ("new/../../i", "i", Place::Outside),
            ("dangling", "other/new.txt", Place::Outside),
            (".", "ws", Place::Inside),
        ];
        for (path, real, place) in table {
            let expected = Target { path: base.join(real), place };
            assert_eq!(roots.resolve(path), expected, "{path}");
        }
        assert_eq!(roots.resolve("/etc/passwd").place, Place::Outside);
        // A loop ends somewhere; that it ends is what counts.
        roots.resolve("loop/x");
    }

    #[cfg(unix)]
    #[test]
    fn with_several_folders_a_relative_path_starts_in_the_first_and_each_is_bounded() {
        use std::os::unix::fs::symlink;

        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        for folder in ["ws", "more/sub", "secret"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        symlink(base.join("more"), base.join("link")).unwrap();
        symlink(base.join("secret"), base.join("more/out")).unwrap();
        let roots = Roots::new(&base.join("ws")).unwrap();
        assert!(roots.clone().and(&base.join("missing")).is_err());
        let roots = roots.and(&base.join("link")).unwrap().and(&base.join("more")).unwrap();
        assert_eq!(roots.folders().count(), 2, "the same folder by another name is no third one");
        let place = |it: &str| roots.resolve(it).place;
        assert_eq!(roots.resolve("sub/a").path, base.join("ws/sub/a"));
        assert_eq!(place("../more/sub/a"), Place::Inside);
        assert_eq!(place("../more/out/a"), Place::Outside);
        assert_eq!(place("../more/../secret/a"), Place::Outside);
        let target = roots.resolve(base.join("more/sub/a"));
        assert_eq!(roots.shown(&target), base.join("link/sub/a"));
    }

    #[test]
    fn a_folder_may_be_read_from_some_moment_on_unless_more_would_come_with_it() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("home/ws")).unwrap();
        let roots = Roots::new(&base.join("home/ws")).unwrap().without(&base.join("config"));
        let copy = roots.clone();
        let place = |it: &str| copy.resolve(base.join(it)).place;
        for folder in ["skill", "config/skills/a", "config", "home", "home/ws", ""] {
            roots.let_read(base.join(folder));
        }
        for (path, expected) in [
            ("skill/a", Place::Ours),
            ("skill/../b", Place::Outside),
            ("skills/a", Place::Outside),
            ("config/skills/a/b", Place::Ours),
            ("config/skills/b", Place::Outside),
            ("config/login", Place::Outside),
            ("home/a", Place::Outside),
            ("home/ws/a", Place::Inside),
        ] {
            assert_eq!(place(path), expected, "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_with_the_same_beginning_is_not_inside() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("ws")).unwrap();
        fs::create_dir_all(base.path().join("ws2")).unwrap();
        let roots = Roots::new(&base.path().join("ws")).unwrap();
        assert_eq!(roots.resolve("../ws2/a").place, Place::Outside);
    }
}
