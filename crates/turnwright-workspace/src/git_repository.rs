//! Finds the git repository of a folder. The files in it are the repository's own, so what they say
//! proves nothing by itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::read_head;
use crate::real_path;
use turnwright_types::git_layout::GitLayout;

/// `.git` files that are longer are not understood.
const MAX_POINTER_BYTES: usize = 4 * 1024;
/// The most bytes of the list of packed branches that are read.
const MAX_PACKED_BYTES: usize = 1024 * 1024;

/// A repository as git discovers it.
pub struct GitRepository {
    /// The folder that holds `.git`.
    pub top: PathBuf,
    /// The repository itself, a real path.
    pub git: PathBuf,
    /// `.git` is a file that points to `git`, or a link to it.
    pub is_elsewhere: bool,
}

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
        let named = pointer.text.trim_end().strip_prefix("gitdir:");
        let target = named.ok_or(NOT_UNDERSTOOD)?.trim_start();
        let git = real_target(&top.join(target))?;
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
        Some(self.git.join(named.text.trim_end()))
    }

    /// The commit that is checked out; `None` if there is none yet or it is in no plain file. Blocks.
    pub fn head_commit(&self) -> Option<String> {
        let head = read_head(&self.git.join("HEAD"), None, MAX_POINTER_BYTES)?.text;
        let Some(named) = head.trim().strip_prefix("ref:") else { return commit_name(&head) };
        let branch = named.trim_start();
        let shared = self.shared_folder().unwrap_or_else(|| self.git.clone());
        let loose = read_head(&shared.join(branch), None, MAX_POINTER_BYTES);
        loose.and_then(|head| commit_name(&head.text)).or_else(|| {
            let packed = read_head(&shared.join("packed-refs"), None, MAX_PACKED_BYTES)?;
            packed.text.lines().find_map(|line| commit_name(line.strip_suffix(branch)?))
        })
    }
}

/// Returns the text without blanks around it if it is the name of a commit.
fn commit_name(text: &str) -> Option<String> {
    let name = text.trim();
    let is_name =
        matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| name.to_owned())
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
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "git writes these files")]
    fn the_commit_of_a_branch_is_found_in_its_file_or_in_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        let [plain, packed] = ["a1".repeat(20), "b2".repeat(20)];
        let commit = || GitRepository::at(folder.path()).unwrap().unwrap().head_commit();
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(commit(), None);
        let list = format!(
            "# pack-refs\n{plain} refs/heads/x/refs/heads/main\n{packed} refs/heads/main\n"
        );
        fs::write(git.join("packed-refs"), list).unwrap();
        assert_eq!(commit(), Some(packed));
        fs::write(git.join("refs/heads/main"), format!("{plain}\n")).unwrap();
        assert_eq!(commit().as_deref(), Some(plain.as_str()));
        fs::write(git.join("HEAD"), format!("{plain}\n")).unwrap();
        assert_eq!(commit(), Some(plain));
        fs::write(git.join("HEAD"), "ref: ../../secret\n").unwrap();
        assert_eq!(commit(), None);
    }
}
