//! Looks for git repositories in folders that snapshots leave out though they were once listed: an ignore
//! rule excludes them that a command may have made, or they cannot be listed; and in those to which links lead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::linked_folders::LinkedFolders;
use super::snapshot::{StatSnapshot, WatchedFolders};
use crate::git_repository::GitLayout;

/// How long is looked, and at how many entries at most.
const LIMIT: Duration = Duration::from_secs(2);
const MAX_ENTRIES: usize = 400_000;

/// The hidden folders of a session.
#[derive(Debug, Default)]
pub(super) struct HiddenFolders {
    folders: BTreeSet<PathBuf>,
    /// The repositories in them.
    repositories: BTreeSet<PathBuf>,
    /// Whether the last look at them saw everything.
    is_incomplete: bool,
}

/// The repositories that have appeared.
#[derive(Debug, Default)]
pub(super) struct NewRepositories {
    pub(super) found: BTreeSet<PathBuf>,
    /// Whether there may be more, because for the first time not everything could be looked at.
    pub(super) may_be_more: bool,
}

impl HiddenFolders {
    /// Adds the folders that an earlier snapshot listed and a later one does not, and looks for new
    /// repositories in all. Blocks.
    pub(super) fn update(
        &mut self,
        earlier: Option<&StatSnapshot>,
        later: &StatSnapshot,
        watched: &WatchedFolders,
    ) -> NewRepositories {
        let known = earlier.map(StatSnapshot::repositories).unwrap_or_default();
        self.repositories.extend(known);
        let (found, may_be_more) = self.look(earlier, later, watched);
        let new = found.difference(&self.repositories).cloned().collect();
        self.repositories = found;
        NewRepositories { found: new, may_be_more }
    }

    /// Adds the folders that an earlier snapshot listed and a later one does not, and finds the
    /// repositories in all. The flag says whether for the first time not everything could be looked at.
    /// Blocks.
    pub(super) fn look(
        &mut self,
        earlier: Option<&StatSnapshot>,
        later: &StatSnapshot,
        watched: &WatchedFolders,
    ) -> (BTreeSet<PathBuf>, bool) {
        self.folders.extend(later.hidden_since(earlier));
        self.folders.retain(|it| !later.lists(it));
        let is_obeyed = |path: &Path, is_link| watched.is_obeyed(path, is_link);
        let (mut found, mut is_complete) = find_repositories(&self.folders, &is_obeyed);
        let linked = LinkedFolders::look(later, watched);
        found.extend(linked.found);
        is_complete &= !linked.is_incomplete;
        let was_incomplete = std::mem::replace(&mut self.is_incomplete, !is_complete);
        (found, !is_complete && !was_incomplete)
    }

    /// The repositories that were there after the last update.
    pub(super) fn repositories(&self) -> &BTreeSet<PathBuf> {
        &self.repositories
    }
}

/// Finds the repositories in folders and in all below them, whatever ignore rules say, and the files that
/// are obeyed. The flag says whether all was seen. Blocks.
pub(super) fn find_repositories<'a>(
    folders: impl IntoIterator<Item = &'a PathBuf>,
    is_obeyed: &dyn Fn(&Path, bool) -> bool,
) -> (BTreeSet<PathBuf>, bool) {
    let mut scan = RepositoryScan::new(is_obeyed);
    for folder in folders {
        scan.scan(folder);
    }
    (scan.found, scan.is_complete)
}

struct RepositoryScan<'a> {
    is_obeyed: &'a dyn Fn(&Path, bool) -> bool,
    found: BTreeSet<PathBuf>,
    is_complete: bool,
    left: usize,
    start: Instant,
}

impl RepositoryScan<'_> {
    fn new(is_obeyed: &dyn Fn(&Path, bool) -> bool) -> RepositoryScan<'_> {
        RepositoryScan {
            is_obeyed,
            found: BTreeSet::new(),
            is_complete: true,
            left: MAX_ENTRIES,
            start: Instant::now(),
        }
    }

    /// Looks at a folder and at all below it, whatever ignore rules say. Follows no links.
    fn scan(&mut self, folder: &Path) {
        let mut pending = vec![folder.to_path_buf()];
        while let Some(folder) = pending.pop() {
            if self.left == 0 || self.start.elapsed() > LIMIT {
                self.is_complete = false;
                return;
            }
            if std::fs::symlink_metadata(&folder).is_ok_and(|it| it.is_dir()) {
                self.scan_folder(&folder, &mut pending);
            }
        }
    }

    fn scan_folder(&mut self, folder: &Path, pending: &mut Vec<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            self.is_complete &= !is_own(folder);
            return;
        };
        let mut layout = GitLayout::default();
        for entry in entries.flatten() {
            self.left = self.left.saturating_sub(1);
            let name = entry.file_name();
            if name == ".git" {
                self.found.insert(entry.path());
                continue;
            }
            layout.note(&name);
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                pending.push(entry.path());
            } else if (self.is_obeyed)(&entry.path(), kind.is_ok_and(|it| it.is_symlink())) {
                self.found.insert(entry.path());
            }
        }
        if layout.is_repository() {
            self.found.insert(folder.to_path_buf());
        }
    }
}

/// Whether a folder belongs to this user, whose commands can write in it.
#[cfg(unix)]
fn is_own(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::symlink_metadata(folder).map(|it| it.uid());
    owner.is_ok_and(|it| it == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn is_own(_: &Path) -> bool {
    true
}
