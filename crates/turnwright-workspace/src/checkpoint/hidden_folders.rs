//! Looks for git repositories in folders that were once listed and that snapshots now leave out, because they
//! cannot be listed or an ignore rule, perhaps a command's, excludes them; and in folders behind links: a link can
//! make a folder part of the project that snapshots skip, such as the repository's own or a temporary one.
//!
//! Also finds the files that a command has created and hidden with its own ignore rules: the rules from before the
//! command decide which files count as changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::snapshot::{StatChange, StatSnapshot, WatchedFolders, lstat};
use crate::git_repository::repository_in;
use crate::search::FolderRules;
use crate::{real_path, temp_folder};
use turnwright_types::git_layout::GitLayout;

/// The limits of a scan: its time, and the number of entries.
const LIMIT: Duration = Duration::from_secs(2);
const MAX_ENTRIES: usize = 400_000;

/// The hidden folders of a session.
#[derive(Debug, Default)]
pub(super) struct HiddenFolders {
    folders: BTreeSet<PathBuf>,
    /// The repositories in them after the last update.
    pub(super) repositories: BTreeSet<PathBuf>,
    /// True if the last scan of them was cut short.
    is_incomplete: bool,
    /// The folders that the user cannot list, either; `None` until they are known.
    unreadable: Option<BTreeSet<PathBuf>>,
}

impl HiddenFolders {
    /// Notes which folders cannot be listed before a command.
    pub(super) fn note_unreadable(&mut self, before: &StatSnapshot) {
        self.unreadable = Some(before.unknown().map(Path::to_path_buf).collect());
    }

    /// Adds the folders that an earlier snapshot listed and a later one does not, and looks for new
    /// repositories in all. The flag is true if there may be more: this scan was cut short, and the one before was
    /// not. Blocks.
    pub(super) fn update(
        &mut self,
        earlier: Option<&StatSnapshot>,
        later: &StatSnapshot,
        watched: &WatchedFolders,
    ) -> (BTreeSet<PathBuf>, bool) {
        let known = earlier.map(StatSnapshot::repositories).unwrap_or_default();
        self.repositories.extend(known);
        let (found, may_be_more) = self.look(earlier, later, watched);
        let new = found.difference(&self.repositories).cloned().collect();
        self.repositories = found;
        (new, may_be_more)
    }

    /// Adds the folders that an earlier snapshot listed and a later one does not, and finds the
    /// repositories in all of them. The flag is true if this scan was cut short, and the one before was not.
    /// Blocks.
    pub(super) fn look(
        &mut self,
        earlier: Option<&StatSnapshot>,
        later: &StatSnapshot,
        watched: &WatchedFolders,
    ) -> (BTreeSet<PathBuf>, bool) {
        self.folders.extend(later.hidden_since(earlier));
        if let Some(earlier) = earlier {
            self.folders.extend(find_newly_ignored(earlier, later, watched).folders);
        }
        self.folders.retain(|folder| !later.lists(folder));
        let mut scan = RepositoryScan::new(Some(watched));
        for folder in &self.folders {
            // A command that takes away the right to list a folder hides nothing in it.
            scan.makes_readable = self
                .unreadable
                .as_ref()
                .is_some_and(|of_user| !folder.ancestors().any(|above| of_user.contains(above)));
            scan.scan(folder);
        }
        let RepositoryScan { mut found, mut is_complete, .. } = scan;
        let linked = LinkedFolders::look(later, watched);
        is_complete &= !linked.is_incomplete();
        found.extend(linked.found);
        let was_incomplete = std::mem::replace(&mut self.is_incomplete, !is_complete);
        (found, !is_complete && !was_incomplete)
    }
}

/// Finds the repositories in folders and in all below them, whatever ignore rules say. The flag says whether all
/// was seen. Blocks.
pub(super) fn find_repositories(folders: &[PathBuf]) -> (BTreeSet<PathBuf>, bool) {
    let mut scan = RepositoryScan::new(None);
    for folder in folders {
        scan.scan(folder);
    }
    (scan.found, scan.is_complete)
}

struct RepositoryScan<'a> {
    /// Says which files are obeyed, if they are looked for, too.
    watched: Option<&'a WatchedFolders>,
    found: BTreeSet<PathBuf>,
    is_complete: bool,
    /// Folders that cannot be listed are made readable.
    makes_readable: bool,
    left: usize,
    start: Instant,
}

impl RepositoryScan<'_> {
    fn new(watched: Option<&WatchedFolders>) -> RepositoryScan<'_> {
        RepositoryScan {
            watched,
            found: BTreeSet::new(),
            is_complete: true,
            makes_readable: false,
            left: MAX_ENTRIES,
            start: Instant::now(),
        }
    }

    /// Scans a folder and everything below it, whatever ignore rules say. Follows no links.
    fn scan(&mut self, folder: &Path) {
        let mut pending = vec![folder.to_path_buf()];
        while let Some(folder) = pending.pop() {
            if self.left == 0 || self.start.elapsed() > LIMIT {
                self.is_complete = false;
                return;
            }
            if std::fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir()) {
                self.scan_folder(&folder, &mut pending);
            }
        }
    }

    fn scan_folder(&mut self, folder: &Path, pending: &mut Vec<PathBuf>) {
        let mut entries = std::fs::read_dir(folder);
        if entries.is_err() && self.makes_readable && make_readable(folder) {
            entries = std::fs::read_dir(folder);
        }
        let Ok(entries) = entries else {
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
            let path = entry.path();
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                pending.push(path);
                continue;
            }
            let is_link = kind.is_ok_and(|kind| kind.is_symlink());
            if self.watched.is_some_and(|watched| watched.is_obeyed(&path, is_link)) {
                self.found.insert(path);
            }
        }
        if layout.is_repository() {
            self.found.insert(folder.to_path_buf());
        }
    }
}

/// Returns true if a folder belongs to this user, whose commands can write in it.
fn is_own(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder);
    found.map_or(cfg!(windows), |metadata| temp_folder::is_own(&metadata))
}

/// Lets this user list a folder of their own that denies it. Returns true if its mode was changed.
#[cfg(target_os = "linux")]
pub(super) fn make_readable(folder: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, chmod, fstat, open};
    use std::os::fd::AsRawFd;

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(handle) = open(folder, flags, Mode::empty()) else { return false };
    let Ok(found) = fstat(&handle) else { return false };
    let rights = Mode::from_raw_mode(found.st_mode);
    if found.st_uid != rustix::process::geteuid().as_raw() || rights.contains(Mode::RWXU) {
        return false;
    }
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), rights | Mode::RWXU).is_ok()
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn make_readable(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    let Ok(found) = std::fs::symlink_metadata(folder) else { return false };
    let mode = found.permissions().mode();
    let rights = std::fs::Permissions::from_mode(mode | 0o700);
    found.is_dir() && mode & 0o700 != 0o700 && std::fs::set_permissions(folder, rights).is_ok()
}

#[cfg(not(unix))]
pub(super) fn make_readable(_: &Path) -> bool {
    false
}

/// The limits of a look at links: its time, and the number of entries.
const LINK_LIMIT: Duration = Duration::from_secs(1);
const MAX_LINK_ENTRIES: usize = 50_000;
/// The folders of a repository in which git makes others.
const FOLDERS_WITH_REPOSITORIES: [&str; 2] = ["modules", "worktrees"];

/// Repositories and obeyed files in places that no other search covers.
pub(super) struct LinkedFolders<'a> {
    /// The links to folders in which there is a repository, or a file that programs of the user obey; and repositories
    /// in the folders' own `.git` that git has not made.
    pub(super) found: BTreeSet<PathBuf>,
    /// A link has led to a folder that is looked into, and where changes are not reported.
    pub(super) has_unwatched: bool,
    snapshot: &'a StatSnapshot,
    watched: &'a WatchedFolders,
    /// The ignored folders, once they are needed.
    ignored: Option<Vec<PathBuf>>,
    left: usize,
    start: Instant,
}

/// A folder that is looked into.
struct Place {
    real: PathBuf,
    /// The path to it through the link.
    path: PathBuf,
    /// Only what is here and in the folders that hold settings is looked at, because it is ignored.
    is_shallow: bool,
}

impl<'a> LinkedFolders<'a> {
    /// Looks at all links of a snapshot. Blocks.
    pub(super) fn look(
        snapshot: &'a StatSnapshot,
        watched: &'a WatchedFolders,
    ) -> LinkedFolders<'a> {
        let mut look = LinkedFolders {
            found: BTreeSet::new(),
            has_unwatched: false,
            snapshot,
            watched,
            ignored: None,
            left: MAX_LINK_ENTRIES,
            start: Instant::now(),
        };
        for link in snapshot.links() {
            if look.leads_to_obeyed(&link) {
                look.found.insert(link);
            }
        }
        for root in &watched.folders {
            look.found.extend(repositories_in_git(&root.join(".git")));
        }
        look
    }

    /// Returns true if the search was cut short.
    pub(super) fn is_incomplete(&self) -> bool {
        self.has_unwatched && self.is_over()
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.start.elapsed() > LINK_LIMIT
    }

    fn leads_to_obeyed(&mut self, link: &Path) -> bool {
        let mut seen = BTreeSet::new();
        let mut pending: Vec<_> = self.place_of(link, link).into_iter().collect();
        while let Some(place) = pending.pop() {
            if self.is_over() {
                return false;
            }
            if seen.insert(place.real.clone()) && self.holds_obeyed(&place, &mut pending) {
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
        self.has_unwatched = true;
        let snapshot = self.snapshot;
        let ignored = self.ignored.get_or_insert_with(|| snapshot.ignored());
        let is_shallow = ignored.iter().any(|folder| real.starts_with(folder));
        Some(Place { real, path: path.to_path_buf(), is_shallow })
    }
}

/// The repositories in a `.git` folder, except those of submodules and linked working trees.
fn repositories_in_git(git: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(git).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let is_known = FOLDERS_WITH_REPOSITORIES.iter().any(|name| entry.file_name() == *name);
        !is_known && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    folders.filter_map(|entry| repository_in(&entry.path())).collect()
}

/// The most entries that are looked at for files that an ignore rule of the command hides.
const MAX_NEW_ENTRIES: usize = 50_000;
/// The most new entries of a hidden folder that are recorded. Larger ones, such as environments and caches, which
/// bring their own rules along, are only counted: undo leaves them whole.
const MAX_RECORDED: usize = 200;

/// The files that the old ignore rules would have shown.
pub(super) struct NewlyIgnored<'a> {
    /// All of them are new.
    pub(super) files: Vec<StatChange>,
    /// The number of further ones.
    pub(super) omitted: usize,
    /// The new folders, none below another.
    pub(super) folders: Vec<PathBuf>,
    before: &'a StatSnapshot,
    now: &'a StatSnapshot,
    watched: &'a WatchedFolders,
    left: usize,
}

/// Looks where the rules differ between two snapshots. Blocks.
pub(super) fn find_newly_ignored<'a>(
    before: &'a StatSnapshot,
    now: &'a StatSnapshot,
    watched: &'a WatchedFolders,
) -> NewlyIgnored<'a> {
    let mut found = NewlyIgnored {
        files: Vec::new(),
        omitted: 0,
        folders: Vec::new(),
        before,
        now,
        watched,
        left: MAX_NEW_ENTRIES,
    };
    for (folder, listing) in now.folders_since(Some(before)) {
        let Some(old) = before.rules_at(folder) else { continue };
        if listing.rules.as_ref() != Some(old) {
            found.look(folder, old);
        }
    }
    found
}

impl NewlyIgnored<'_> {
    /// Looks at the entries of a folder that are not listed any more, or were not before.
    fn look(&mut self, folder: &Path, old: &FolderRules) {
        for (path, is_folder) in self.hidden_entries(folder, old) {
            if self.before.get(&path).is_some() {
                if is_folder {
                    let old = self.before.rules_at(&path).unwrap_or(old).clone();
                    self.look(&path, &old);
                }
                continue;
            }
            let new = self.entries_from(path.clone(), is_folder, old);
            if new.len() > MAX_RECORDED {
                self.omitted += new.len();
            } else {
                self.files.extend(new);
            }
            self.folders.extend(is_folder.then_some(path));
        }
    }

    /// A new entry and what is below it.
    fn entries_from(
        &mut self,
        path: PathBuf,
        is_folder: bool,
        old: &FolderRules,
    ) -> Vec<StatChange> {
        let mut new = Vec::new();
        let mut pending = vec![(path, is_folder)];
        while let Some((path, is_folder)) = pending.pop() {
            if is_folder {
                pending.extend(self.hidden_entries(&path, old));
            }
            let after = lstat(&path);
            new.push(StatChange { path, before: None, after });
        }
        new
    }

    /// The entries of a folder that are not listed now and that the old rules do not hide, each with a flag that says
    /// whether it is a folder.
    fn hidden_entries(&mut self, folder: &Path, old: &FolderRules) -> Vec<(PathBuf, bool)> {
        let mut hidden = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(self.left) {
            self.left -= 1;
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_left_out = entry.file_name() == ".git"
                || self.watched.private.contains(&path)
                || self.now.get(&path).is_some()
                || self.before.get(&path).is_none() && old.ignores(&path, is_folder);
            if !is_left_out {
                hidden.push((path, is_folder));
            }
        }
        hidden
    }
}
