//! Follows the links in the session's folders: a link can make a folder part of the project that snapshots skip,
//! such as the repository's own or a temporary one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::snapshot::{StatSnapshot, WatchedFolders};
use crate::real_path;
use turnwright_types::git_layout::GitLayout;

/// The limits of a search: its time, and the number of entries.
const LIMIT: Duration = Duration::from_secs(1);
const MAX_ENTRIES: usize = 50_000;
/// The folders of a repository in which git makes others.
const FOLDERS_WITH_REPOSITORIES: [&str; 2] = ["modules", "worktrees"];

/// Repositories and obeyed files in places that no other search covers.
#[derive(Debug, Default)]
pub(super) struct LinkedFolders {
    /// The links to folders in which there is a repository, or a file that programs of the user obey; and repositories
    /// in the folders' own `.git` that git has not made.
    pub(super) found: BTreeSet<PathBuf>,
    /// True if the search was cut short.
    pub(super) is_incomplete: bool,
    /// There are links to folders where changes are not reported.
    pub(super) has_unwatched: bool,
}

impl LinkedFolders {
    /// Looks at all links of a snapshot. Blocks.
    pub(super) fn look(snapshot: &StatSnapshot, watched: &WatchedFolders) -> LinkedFolders {
        let mut found = BTreeSet::new();
        let mut look = LinkedLook {
            snapshot,
            watched,
            ignored: None,
            left: MAX_ENTRIES,
            start: Instant::now(),
            has_places: false,
        };
        for link in snapshot.links() {
            if look.leads_to_obeyed(&link) {
                found.insert(link);
            }
        }
        for root in watched.folders() {
            found.extend(repositories_in_git(&root.join(".git")));
        }
        let is_incomplete = look.has_places && look.is_over();
        LinkedFolders { found, is_incomplete, has_unwatched: look.has_places }
    }
}

struct LinkedLook<'a> {
    snapshot: &'a StatSnapshot,
    watched: &'a WatchedFolders,
    /// The ignored folders, once they are needed.
    ignored: Option<Vec<PathBuf>>,
    left: usize,
    start: Instant,
    /// A link has led to a folder that is looked into.
    has_places: bool,
}

/// A folder that is looked into.
struct Place {
    real: PathBuf,
    /// The path to it through the link.
    path: PathBuf,
    /// Only what is here and in the folders that hold settings is looked at, because it is ignored.
    is_shallow: bool,
}

impl LinkedLook<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 || self.start.elapsed() > LIMIT
    }

    fn leads_to_obeyed(&mut self, link: &Path) -> bool {
        let mut seen = BTreeSet::new();
        let mut pending: Vec<_> = self.place_of(link, link).into_iter().collect();
        while let Some(place) = pending.pop() {
            if self.is_over() {
                return false;
            }
            if !seen.insert(place.real.clone()) {
                continue;
            }
            if self.holds_obeyed(&place, &mut pending) {
                return true;
            }
        }
        false
    }

    /// Looks at the entries of a folder, and adds the folders in it to those that are still to be looked into.
    fn holds_obeyed(&mut self, place: &Place, pending: &mut Vec<Place>) -> bool {
        let mut layout = GitLayout::default();
        for entry in std::fs::read_dir(&place.real).into_iter().flatten().flatten() {
            self.left = self.left.saturating_sub(1);
            let name = entry.file_name();
            layout.note(&name);
            let path = place.path.join(&name);
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if name == ".git" || self.watched.is_obeyed(&path, is_link) {
                return true;
            }
            if is_link && !place.is_shallow {
                pending.extend(self.place_of(&entry.path(), &path));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && (!place.is_shallow || self.watched.may_hold_obeyed(&path))
            {
                let is_shallow = place.is_shallow;
                pending.push(Place { real: entry.path(), path, is_shallow });
            }
        }
        layout.is_repository()
    }

    /// The folder to which a link leads, if nothing else looks into it and commands can write there.
    fn place_of(&mut self, link: &Path, path: &Path) -> Option<Place> {
        let real = real_path(link).ok().filter(|real| real.is_dir())?;
        if self.snapshot.lists(&real) || !self.watched.is_writable(&real) {
            return None;
        }
        self.has_places = true;
        let snapshot = self.snapshot;
        let ignored = self.ignored.get_or_insert_with(|| snapshot.ignored());
        let is_shallow = ignored.iter().any(|folder| real.starts_with(folder));
        Some(Place { real, path: path.to_path_buf(), is_shallow })
    }
}

/// The repositories in a `.git` folder, except those of submodules and linked working trees.
fn repositories_in_git(git: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(git).into_iter().flatten().flatten() {
        let is_known = FOLDERS_WITH_REPOSITORIES.iter().any(|name| entry.file_name() == *name);
        if is_known || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let folder = entry.path();
        let inner = folder.join(".git");
        if std::fs::symlink_metadata(&inner).is_ok() {
            found.push(inner);
        } else if GitLayout::of(&folder).is_repository() {
            found.push(folder);
        }
    }
    found
}
