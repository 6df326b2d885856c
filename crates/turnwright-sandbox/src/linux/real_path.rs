//! Paths without symlinks, found with one system call for a path that has none.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// The path with its symlinks resolved, if it exists.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    resolve(path).map(|(path, _)| path)
}

/// The same, with what was opened as a reference for a rule if the path has no symlinks.
pub(super) fn resolve(path: &Path) -> Option<(PathBuf, Option<OwnedFd>)> {
    match open_without_symlinks(path) {
        Ok(opened) if path.is_absolute() && path.components().all(is_plain) => {
            Some((path.to_owned(), Some(opened)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => Some((fs::canonicalize(path).ok()?, None)),
    }
}

fn is_plain(part: Component<'_>) -> bool {
    matches!(part, Component::RootDir | Component::Normal(_))
}

/// Opens a path as a reference for a rule, and fails if it leads through a symlink: one may have
/// been put there since the profile was made.
pub(super) fn open_without_symlinks(path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let how = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_resolved_whether_or_not_it_leads_through_symlinks() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        symlink("a", base.join("link")).unwrap();
        symlink("missing", base.join("dangling")).unwrap();
        let names =
            ["a/b", "a/./b", "a/../a", "link", "link/b", "dangling", "missing", "a/missing"];
        for path in names.map(|name| base.join(name)) {
            assert_eq!(real_path(&path), fs::canonicalize(&path).ok(), "{}", path.display());
        }
    }
}
