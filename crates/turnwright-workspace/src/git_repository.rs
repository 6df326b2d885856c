//! Finds the git repository of a folder. The files in it are the repository's own, so what they say
//! proves nothing by itself.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::read_head;
use crate::real_path;

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

/// Why a `.git` is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitPointerError {
    #[error("its .git leads nowhere")]
    LeadsNowhere,
    #[error("its .git is not understood")]
    NotUnderstood,
}

impl GitRepository {
    /// The repository whose `.git` is in this folder. Blocks.
    ///
    /// # Errors
    /// If there is a `.git` that is not understood.
    pub fn at(top: &Path) -> Result<Option<GitRepository>, GitPointerError> {
        let dot = top.join(".git");
        let Ok(metadata) = fs::metadata(&dot) else { return Ok(None) };
        let real = |it: &Path| real_path(it).map_err(|_| GitPointerError::LeadsNowhere);
        let top = top.to_path_buf();
        if metadata.is_dir() {
            let is_elsewhere = fs::symlink_metadata(&dot).is_ok_and(|it| it.is_symlink());
            return Ok(Some(GitRepository { top, git: real(&dot)?, is_elsewhere }));
        }
        let text = read_head(&dot, None, MAX_POINTER_BYTES)
            .filter(|it| it.is_complete && !it.text.contains('\0'));
        let text = text.ok_or(GitPointerError::NotUnderstood)?.text;
        let named = text.trim_end().strip_prefix("gitdir:");
        let named = named.ok_or(GitPointerError::NotUnderstood)?;
        let git = real(&top.join(named.trim_start()))?;
        Ok(Some(GitRepository { top, git, is_elsewhere: true }))
    }
}

/// The entries of a folder by which git takes it for a repository, also without `.git`: `HEAD`, and `objects` and
/// `refs` or a file that says in which folder these are. Each may be a link, also one that leads nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct GitLayout {
    has_head: bool,
    has_objects: bool,
    has_refs: bool,
    has_common_folder: bool,
}

impl GitLayout {
    /// The layout of a folder. Blocks.
    pub fn of(folder: &Path) -> GitLayout {
        let has = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok();
        GitLayout {
            has_head: has("HEAD"),
            has_objects: has("objects"),
            has_refs: has("refs"),
            has_common_folder: has("commondir"),
        }
    }

    /// Notes the name of an entry.
    pub fn note(&mut self, name: &OsStr) {
        // Some file systems do not tell small letters from capital ones.
        self.has_head |= name.eq_ignore_ascii_case("HEAD");
        self.has_objects |= name.eq_ignore_ascii_case("objects");
        self.has_refs |= name.eq_ignore_ascii_case("refs");
        self.has_common_folder |= name.eq_ignore_ascii_case("commondir");
    }

    /// Returns true if git takes a folder with these entries for a repository.
    pub fn is_repository(self) -> bool {
        self.has_head && (self.has_common_folder || self.has_objects && self.has_refs)
    }
}
