//! Where the MCP servers of a session run, and what they are kept to if they are programs.

use std::fs;
use std::path::{Path, PathBuf};

use turnwright_workspace::files::Roots;
use crate::mcp::{Ground, Logins};
use turnwright_policy::permission::{Closed, Law};
use turnwright_sandbox::Profile;
use crate::tools::Walls;

/// Where servers are to run, as far as a session says it.
pub(super) struct Site<'a> {
    pub(super) walls: &'a Walls,
    pub(super) roots: &'a Roots,
    pub(super) law: &'a Law,
    /// The user can be shown forms.
    pub(super) forms: bool,
}

impl Site<'_> {
    /// The ground of the session's servers. Reads files: a few microseconds.
    pub(super) fn ground(&self, logins: Logins) -> Ground {
        Ground {
            cwd: self.roots.real_cwd().to_path_buf(),
            roots: self.roots.folders().map(Path::to_path_buf).collect(),
            forms: self.forms,
            jail: turnwright_sandbox::can_confine().then(|| self.jail()),
            logins,
            fetched: self.walls.fetched.clone(),
        }
    }

    /// What a server is kept to: the session's folders to write and the caches, as a command is. It runs
    /// beside all calls, so nothing that is protected is ever open to it.
    fn jail(&self) -> Profile {
        let (walls, roots) = (self.walls, self.roots);
        let closed = Closed::by(self.law);
        let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        let is_inside = |it: &PathBuf| folders.iter().any(|root| it.starts_with(root));
        let is_opened = |it: &PathBuf| {
            folders.iter().any(|root| root.starts_with(it)) && !roots.private().any(|own| own == it)
        };
        let write = folders.iter().cloned().chain(real(walls.write.iter().chain(&walls.caches)));
        let ours = real(walls.keep.iter().chain(&closed.unchangeable())).filter(is_inside);
        let protected = walls.protected.ends().into_iter();
        let protected = protected
            .filter(|it| fs::symlink_metadata(it).is_ok_and(|it| it.is_file() || it.is_dir()));
        // Nor has it any business with what was allowed, pinned or noted, or with other sessions.
        let hide = real(walls.hide.iter().chain(&walls.keep).chain(&closed.unreadable()));
        Profile {
            keep: ours.chain(protected).collect(),
            hide: hide.filter(|it| !is_opened(it)).collect(),
            read: walls.read.clone(),
            network: walls.network,
            write: write.collect(),
        }
    }
}

/// Those that exist, where symlinks lead.
fn real<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> std::vec::IntoIter<PathBuf> {
    paths.filter_map(|it| fs::canonicalize(it).ok()).collect::<Vec<_>>().into_iter()
}
