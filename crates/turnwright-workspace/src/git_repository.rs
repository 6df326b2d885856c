//! Finds the git repository of a folder. The files in it are the repository's own, so what they say
//! proves nothing by itself.

use std::fs;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::files::read_head;
use crate::real_path;
use turnwright_types::git_layout::GitLayout;

/// `.git` files that are longer are not understood.
const MAX_POINTER_BYTES: usize = 4 * 1024;

/// A repository as git discovers it.
pub struct GitRepository {
    /// The folder that holds `.git`.
    pub top: PathBuf,
    /// The repository itself, a real path.
    pub git: PathBuf,
    /// `.git` is a file that points to `git`, or a link to it.
    pub is_elsewhere: bool,
}

/// The folders in which other version control systems keep their own files.
pub(crate) const OTHER_SYSTEMS: [&str; 4] = [".hg", ".jj", ".sl", ".svn"];

/// Why a `.git` that cannot be read or parsed is not used.
const NOT_UNDERSTOOD: &str = "its .git is not understood";

impl GitRepository {
    /// The repository whose `.git` is in this folder. Blocks.
    ///
    /// # Errors
    /// Why the `.git` that is there is not used.
    pub fn at(top: &Path) -> Result<Option<GitRepository>, &'static str> {
        let dot = top.join(".git");
        let Ok(metadata) = fs::metadata(&dot) else { return Ok(None) };
        let top = top.to_path_buf();
        if metadata.is_dir() {
            let is_elsewhere =
                fs::symlink_metadata(&dot).is_ok_and(|metadata| metadata.is_symlink());
            return Ok(Some(GitRepository { top, git: real_target(&dot)?, is_elsewhere }));
        }
        let pointer = read_head(&dot, None, MAX_POINTER_BYTES)
            .filter(|head| head.is_complete && !head.text.contains('\0'))
            .ok_or(NOT_UNDERSTOOD)?;
        // To git, other blanks are part of the name.
        let named = pointer.text.trim_end_matches(['\n', '\r']).strip_prefix("gitdir: ");
        let git = real_target(&top.join(named.ok_or(NOT_UNDERSTOOD)?))?;
        Ok(Some(GitRepository { top, git, is_elsewhere: true }))
    }

    /// The folders that say what git runs here: its own, and the one that its working trees share. Blocks.
    pub fn settings_folders(self) -> Vec<PathBuf> {
        let shared = self.shared_folder().and_then(|folder| real_path(folder).ok());
        [self.git].into_iter().chain(shared).collect()
    }

    /// The folder that the working trees share, if the repository is one of them. Blocks.
    pub(crate) fn shared_folder(&self) -> Option<PathBuf> {
        let named = read_head(&self.git.join("commondir"), None, MAX_POINTER_BYTES)?;
        Some(self.git.join(named.text.trim_end_matches(['\n', '\r'])))
    }
}

/// Returns true if a version control system keeps its files in this folder. An empty `.git`, such as sandboxes leave
/// behind, is no repository. In folders such as `/tmp`, anybody could put one above another's project. Blocks.
pub fn is_repository_root(folder: &Path) -> bool {
    #[cfg(unix)]
    if fs::metadata(folder).is_ok_and(|found| found.mode() & 0o1002 == 0o1002) {
        return false;
    }
    let git = folder.join(".git");
    let has_git = fs::metadata(&git).is_ok_and(|found| {
        if !found.is_dir() {
            return found.len() > 0;
        }
        // A folder that cannot be searched may be a repository, and a link may lead to a packed branch.
        let head = fs::symlink_metadata(git.join("HEAD"));
        head.map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
    });
    has_git || OTHER_SYSTEMS.iter().any(|name| folder.join(name).exists())
}

/// The `.git` of a folder, or the folder itself if git takes it for a repository. Blocks.
pub(crate) fn repository_in(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    if fs::symlink_metadata(&git).is_ok() {
        return Some(git);
    }
    GitLayout::of(folder).is_repository().then(|| folder.to_path_buf())
}

fn real_target(path: &Path) -> Result<PathBuf, &'static str> {
    real_path(path).map_err(|_| "its .git leads nowhere")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_a_repository_that_is_not_empty_and_that_not_anybody_could_put_there() {
        let base = tempfile::tempdir().unwrap();
        let place = |name: &str| base.path().join(name);
        for folder in ["empty/.git", "git/.git/HEAD", "jj/.jj", "file", "pointer", "none"] {
            fs::create_dir_all(place(folder)).unwrap();
        }
        fs::write(place("file/.git"), "").unwrap();
        fs::write(place("pointer/.git"), "gitdir: ../elsewhere\n").unwrap();
        for (folder, expected) in [
            ("empty", false),
            ("file", false),
            ("none", false),
            ("git", true),
            ("jj", true),
            ("pointer", true),
        ] {
            assert_eq!(is_repository_root(&place(folder)), expected, "{folder}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(place("git"), fs::Permissions::from_mode(0o1777)).unwrap();
            assert!(!is_repository_root(&place("git")));
        }
    }
}
