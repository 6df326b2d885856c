//! Snapshots of the stat data of all files in the session's folders that are not ignored, and their
//! comparison.

pub(super) mod folder_listing;
#[cfg(target_os = "linux")]
mod inotify_watch;
mod listed_entries;
#[cfg(not(target_os = "linux"))]
mod no_watch;

#[cfg(all(test, target_os = "linux"))]
mod refresh_tests;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant, SystemTime};

use folder_listing::{FolderLister, FolderListing, IGNORE_FILES, KnownRules, MAX_ENTRIES};

use super::git::FileStat;
use crate::files::Roots;
use crate::git_repository::OTHER_SYSTEMS;
use crate::search::{FolderRules, SearchDeadline};

#[cfg(target_os = "linux")]
pub(super) use inotify_watch::{InotifyWatch as FolderWatch, WatchReader};

#[cfg(not(target_os = "linux"))]
pub(super) use no_watch::{NoWatch as FolderWatch, NoWatch as WatchReader};

/// If more folders have changed than this, all are listed anew.
const MAX_RELISTED: usize = 1_000;

/// The folders of the snapshots.
#[derive(Clone, Debug)]
pub(super) struct WatchedFolders {
    /// The folders with links resolved, none below another.
    pub(super) folders: Vec<PathBuf>,
    /// The same, and those below another.
    all: Vec<PathBuf>,
    /// Our own folders, which are left out.
    pub(super) private: Vec<PathBuf>,
    pub(super) obeyed: ObeyedFiles,
    git: GitSettings,
    /// Where commands can write, too.
    writable: Vec<PathBuf>,
    /// Only folders are listed, and what programs obey, because there are too many files.
    pub(super) omits_files: bool,
}

/// Where git finds its settings.
#[derive(Clone, Debug)]
pub struct GitSettings {
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The folder with the user's settings, such as `~/.config`.
    pub config: Option<PathBuf>,
    /// Returns the files besides the `.gitattributes` from which git takes attributes in a folder.
    pub attribute_files: fn(&Path, &GitSettings) -> Vec<PathBuf>,
}

impl Default for GitSettings {
    fn default() -> GitSettings {
        GitSettings { home: None, config: None, attribute_files: |_, _| Vec::new() }
    }
}

/// The files in subfolders that programs of the user obey.
#[derive(Clone, Copy, Debug)]
pub struct ObeyedFiles {
    /// Returns true if a file is obeyed, or a link if the flag is set. The path is relative to a root.
    pub is_obeyed: fn(&Path, bool) -> bool,
    /// Returns true if a folder may hold an obeyed file.
    pub may_hold: fn(&Path) -> bool,
}

#[cfg(test)]
impl Default for ObeyedFiles {
    fn default() -> ObeyedFiles {
        ObeyedFiles { is_obeyed: |_, _| false, may_hold: |_| false }
    }
}

impl WatchedFolders {
    pub(super) fn new(
        roots: &Roots,
        obeyed: ObeyedFiles,
        git: GitSettings,
        writable: Vec<PathBuf>,
    ) -> WatchedFolders {
        let all: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        let mut folders = all.clone();
        folders
            .retain(|folder| !all.iter().any(|other| folder != other && folder.starts_with(other)));
        folders.sort();
        folders.dedup();
        WatchedFolders {
            folders,
            all,
            private: roots.private_folders().map(Path::to_path_buf).collect(),
            obeyed,
            git,
            writable,
            omits_files: false,
        }
    }

    /// The same folders, for snapshots without the files that nobody obeys.
    pub(super) fn without_files(&self) -> WatchedFolders {
        WatchedFolders { omits_files: true, ..self.clone() }
    }

    /// Returns true if a folder is one of the session or leads to one, so that no ignore rule excludes it.
    pub(super) fn leads_to_folder(&self, path: &Path) -> bool {
        self.all.iter().any(|folder| folder.starts_with(path))
    }

    /// Returns true if commands can write at a real path.
    pub(super) fn is_writable(&self, path: &Path) -> bool {
        self.folders.iter().chain(&self.writable).any(|folder| path.starts_with(folder))
    }

    /// Returns the files besides the `.gitattributes` from which git takes attributes in a folder. Blocks.
    pub(super) fn attribute_files(&self, folder: &Path) -> Vec<PathBuf> {
        (self.git.attribute_files)(folder, &self.git)
    }

    /// Returns true if the path below one of the folders is a file that programs of the user obey.
    pub(super) fn is_obeyed(&self, path: &Path, is_link: bool) -> bool {
        let relative = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok());
        relative.is_some_and(|relative| (self.obeyed.is_obeyed)(relative, is_link))
    }

    /// Returns true if a folder below one of the folders may hold such a file.
    pub(super) fn may_hold_obeyed(&self, path: &Path) -> bool {
        let relative = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok());
        relative.is_some_and(|relative| (self.obeyed.may_hold)(relative))
    }
}

/// Why no snapshot could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotError {
    TooMany,
    TooLong,
}

type ListedFolders = HashMap<Arc<Path>, Arc<FolderListing>>;

/// The files at one point in time.
#[derive(Clone, Debug)]
pub(super) struct StatSnapshot {
    /// When the snapshot was started.
    pub(super) at: SystemTime,
    /// How long the snapshot took.
    pub(super) took: Duration,
    /// The entries of each folder. Successive snapshots share what has not changed.
    folders: ListedFolders,
    /// The device and inode of each watched folder.
    roots: Vec<Option<(u64, u64)>>,
    /// The ignore files above the folders and in their repositories.
    outer_rules: Vec<(PathBuf, Option<FileStat>)>,
    /// Reports what changes after this snapshot, where the system can.
    pub(super) watch: Option<Arc<FolderWatch>>,
}

/// The folders whose entries may differ from those in a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedFolders {
    /// Their own entries may differ.
    pub(super) listed: BTreeSet<PathBuf>,
    /// Another folder may be at this path, or none.
    pub(super) replaced: BTreeSet<PathBuf>,
}

impl ChangedFolders {
    /// Returns true if it takes less time to list all folders anew.
    pub(super) fn are_too_many(&self) -> bool {
        self.listed.len() + self.replaced.len() > MAX_RELISTED
    }
}

/// A path whose stat data differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatChange {
    pub(super) path: PathBuf,
    pub(super) before: Option<FileStat>,
    pub(super) after: Option<FileStat>,
}

impl StatSnapshot {
    /// Takes a snapshot. Ends early when the flag is set. Blocks.
    pub(super) fn take(
        watched: &WatchedFolders,
        limit: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<StatSnapshot, SnapshotError> {
        let at = SystemTime::now();
        let start = Instant::now();
        let stop = SearchDeadline::new(Arc::clone(cancelled), limit);
        let count = AtomicUsize::new(0);
        let watch = FolderWatch::new(&watched.folders);
        let roots = roots(watched);
        let outer_rules = outer_rules(watched);
        let mut folders = HashMap::new();
        for folder in &watched.folders {
            let lister = FolderLister::new(folder, watched, watch.as_ref(), &stop, &count);
            folders.extend(lister.list_tree(folder.clone(), &mut KnownRules::new()));
        }
        if count.into_inner() > MAX_ENTRIES {
            return Err(SnapshotError::TooMany);
        }
        if stop.was_cut_short() {
            return Err(SnapshotError::TooLong);
        }
        let watch = watch.filter(|watch| !watch.has_failed()).map(Arc::new);
        Ok(StatSnapshot { at, took: start.elapsed(), folders, roots, outer_rules, watch })
    }

    /// The current snapshot, for which only folders are listed that have changed since this one;
    /// `None` if they are not known, or too many. Nothing must be refreshed twice. Blocks.
    pub(super) fn refresh(
        &self,
        watched: &WatchedFolders,
        limit: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Option<StatSnapshot> {
        let changes = self.watch.as_ref()?.take_changes()?;
        self.refresh_after(changes, watched, limit, cancelled)
    }

    /// The same, with the changes that its watch has reported since this snapshot. Blocks.
    pub(super) fn refresh_after(
        &self,
        changes: ChangedFolders,
        watched: &WatchedFolders,
        limit: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Option<StatSnapshot> {
        let at = SystemTime::now();
        let start = Instant::now();
        let watch = self.watch.as_ref()?;
        let are_too_many = changes.are_too_many();
        let ChangedFolders { mut listed, replaced } = changes;
        // A replaced folder is found by listing its parent.
        listed.extend(replaced.iter().filter_map(|path| path.parent()).map(Path::to_path_buf));
        let hard_linked =
            self.folders.iter().filter(|(_, listing)| !listing.hard_linked.is_empty());
        listed.extend(hard_linked.map(|(folder, _)| folder.to_path_buf()));
        if are_too_many
            || listed.len() > MAX_RELISTED
            || self.folders.values().any(|listing| listing.has_linked_rules)
            || self.outer_rules != outer_rules(watched)
            || self.roots != roots(watched)
        {
            return None;
        }
        let stop = SearchDeadline::new(Arc::clone(cancelled), limit);
        let count = AtomicUsize::new(self.len());
        let mut folders = self.folders.clone();
        folders.retain(|folder, _| !is_below_any(folder, &replaced));
        for root in &watched.folders {
            if replaced.contains(root) {
                return None;
            }
            let mut below = listed.iter().filter(|folder| folder.starts_with(root)).peekable();
            if below.peek().is_none() {
                continue;
            }
            let lister = FolderLister::new(root, watched, Some(watch), &stop, &count);
            let mut known = KnownRules::new();
            // Parents come first, and may find that what was below them is gone.
            for folder in below {
                list_again(&mut folders, &lister, folder, &mut known)?;
            }
        }
        if stop.was_cut_short() || watch.has_failed() {
            return None;
        }
        let roots = self.roots.clone();
        let outer_rules = self.outer_rules.clone();
        let watch = Some(Arc::clone(watch));
        Some(StatSnapshot { at, took: start.elapsed(), folders, roots, outer_rules, watch })
    }

    #[cfg(test)]
    pub(super) fn of_folder<'a>(
        folder: &Path,
        entries: impl IntoIterator<Item = (&'a str, FileStat)>,
    ) -> StatSnapshot {
        let mut listing = FolderListing::default();
        for (name, stat) in entries {
            listing.entries.set(name.as_ref(), Some(stat));
        }
        StatSnapshot {
            at: SystemTime::now(),
            took: Duration::ZERO,
            folders: [(folder.into(), Arc::new(listing))].into(),
            roots: Vec::new(),
            outer_rules: Vec::new(),
            watch: None,
        }
    }

    /// The stat data of a path.
    pub(super) fn get(&self, path: &Path) -> Option<FileStat> {
        self.folders.get(path.parent()?)?.entries.get(path.file_name()?)
    }

    /// Returns true for the own files of a version control system other than git, which are damaged if only some of
    /// them are restored.
    pub(super) fn is_version_control(&self, path: &Path) -> bool {
        path.ancestors().any(|above| {
            let name = above.file_name().unwrap_or_default();
            OTHER_SYSTEMS.iter().any(|system| name == *system) && self.get(above).is_some()
        })
    }

    /// The folders that have changed since another snapshot, or all.
    pub(super) fn folders_since<'a>(
        &'a self,
        previous: Option<&'a StatSnapshot>,
    ) -> impl Iterator<Item = (&'a Arc<Path>, &'a Arc<FolderListing>)> {
        self.folders.iter().filter(move |(folder, listing)| {
            let old = previous.and_then(|previous| previous.folders.get(*folder));
            old.is_none_or(|old| !Arc::ptr_eq(old, listing))
        })
    }

    /// The links, also those that are ignored.
    pub(super) fn links(&self) -> impl Iterator<Item = PathBuf> {
        let folders = self.folders.iter();
        folders.flat_map(|(folder, listing)| listing.links.iter().map(|name| folder.join(name)))
    }

    /// The ignored folders, none below another.
    pub(super) fn ignored(&self) -> Vec<PathBuf> {
        self.folders.values().flat_map(|listing| &listing.ignored).cloned().collect()
    }

    /// The files with another name (hard link).
    pub(super) fn hard_linked(&self) -> Vec<PathBuf> {
        let listings = self.folders.iter().filter(|(_, listing)| !listing.hard_linked.is_empty());
        let files = listings.flat_map(|(folder, listing)| {
            let entries = listing.entries.iter();
            let linked = entries.filter(|(_, stat)| listing.hard_linked.contains(&stat.ino));
            linked.map(|(name, _)| folder.join(name))
        });
        files.collect()
    }

    /// The git repositories in the folders: each `.git`, or the folder that is one; and the files in
    /// subfolders that programs of the user obey.
    pub(super) fn repositories(&self) -> BTreeSet<PathBuf> {
        self.folders.values().flat_map(|listing| &listing.repositories).cloned().collect()
    }

    /// The folders that may be there but are not in this snapshot, because they cannot be listed, or
    /// because an ignore rule excludes them that did not in an earlier snapshot. None is below another.
    pub(super) fn hidden_since(&self, earlier: Option<&StatSnapshot>) -> Vec<PathBuf> {
        let listed = earlier.into_iter().flat_map(|earlier| earlier.folders.keys());
        let gone = listed.filter(|folder| !self.folders.contains_key(*folder));
        let hidden = gone.map(|folder| &**folder).chain(self.unknown());
        let mut all: Vec<_> = hidden.map(Path::to_path_buf).collect();
        all.sort();
        all.dedup_by(|folder, parent| folder.starts_with(parent));
        all
    }

    /// The ignore rules in a folder, or in the nearest one above whose rules are known.
    pub(super) fn rules_at(&self, folder: &Path) -> Option<&FolderRules> {
        folder.ancestors().find_map(|above| self.folders.get(above)?.rules.as_ref())
    }

    /// The folders that cannot be listed.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().filter(|entry| entry.1.is_unknown).map(|entry| &**entry.0)
    }

    /// Returns true if the entries of a folder are known.
    pub(super) fn lists(&self, folder: &Path) -> bool {
        self.folders.get(folder).is_some_and(|listing| !listing.is_unknown)
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.folders.values().map(|listing| listing.entries.len()).sum()
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<(PathBuf, FileStat)> {
        let mut all = Vec::new();
        for (folder, listing) in self.folders_since(None) {
            all.extend(listing.entries.iter().map(|(name, stat)| (folder.join(name), *stat)));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Updates a path that the agent itself has written.
    pub(super) fn note_written(&mut self, path: &Path) {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else { return };
        let stat = lstat(path);
        if stat.is_some() || self.folders.contains_key(folder) {
            let listing = self.folders.entry(folder.into()).or_default();
            Arc::make_mut(listing).entries.set(name, stat);
        }
    }

    /// The differences to a later snapshot, ordered by path.
    pub(super) fn compare(&self, later: &StatSnapshot) -> Vec<StatChange> {
        let mut all = Vec::new();
        let nothing = Arc::default();
        for (folder, before) in &self.folders {
            let after = later.folders.get(folder).unwrap_or(&nothing);
            if !Arc::ptr_eq(before, after) {
                compare_folder(folder, before, after, &mut all);
            }
        }
        for (folder, after) in &later.folders {
            if !self.folders.contains_key(folder) {
                compare_folder(folder, &nothing, after, &mut all);
            }
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

/// Lists one of the folders again, and new folders below it. Returns `None` if other folders may
/// have changed because of that.
fn list_again(
    folders: &mut ListedFolders,
    lister: &FolderLister<'_>,
    folder: &Path,
    known: &mut KnownRules,
) -> Option<()> {
    let Some((folder, old)) = folders.remove_entry(folder) else { return Some(()) };
    let new = lister.list_one(&folder, known);
    let has_new_rules = IGNORE_FILES
        .iter()
        .map(OsStr::new)
        .any(|name| old.entries.get(name) != new.entries.get(name));
    // A file that has got another name may be in any folder.
    let has_new_links = !new.hard_linked.iter().all(|inode| old.hard_linked.contains(inode));
    if has_new_rules || has_new_links {
        return None;
    }
    let before: BTreeSet<_> = old.subfolders(&folder).collect();
    let here: BTreeSet<_> = new.subfolders(&folder).collect();
    let gone = &before - &here;
    if !gone.is_empty() {
        folders.retain(|folder, _| !is_below_any(folder, &gone));
    }
    for added in here {
        if folders.contains_key(added.as_path()) {
            continue;
        }
        for (folder, listing) in lister.list_tree(added, known) {
            if !listing.hard_linked.is_empty() {
                return None;
            }
            folders.insert(folder, listing);
        }
    }
    folders.insert(folder, if new == *old { old } else { Arc::new(new) });
    Some(())
}

fn compare_folder(
    folder: &Path,
    before: &FolderListing,
    after: &FolderListing,
    all: &mut Vec<StatChange>,
) {
    for (name, old) in before.entries.iter() {
        let new = after.entries.get(name);
        if new != Some(*old) {
            all.push(StatChange { path: folder.join(name), before: Some(*old), after: new });
        }
    }
    for (name, new) in after.entries.iter().filter(|(name, _)| before.entries.get(name).is_none()) {
        all.push(StatChange { path: folder.join(name), before: None, after: Some(*new) });
    }
}

fn is_below_any(path: &Path, folders: &BTreeSet<PathBuf>) -> bool {
    !folders.is_empty() && path.ancestors().any(|parent| folders.contains(parent))
}

/// The device and inode of each folder.
#[cfg(unix)]
fn roots(watched: &WatchedFolders) -> Vec<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let ids = watched.folders.iter().map(|folder| {
        let metadata = std::fs::metadata(folder).ok()?;
        Some((metadata.dev(), metadata.ino()))
    });
    ids.collect()
}

#[cfg(not(unix))]
fn roots(_: &WatchedFolders) -> Vec<Option<(u64, u64)>> {
    Vec::new()
}

/// The ignore files that no watched folder has among its entries.
fn outer_rules(watched: &WatchedFolders) -> Vec<(PathBuf, Option<FileStat>)> {
    let mut all = Vec::new();
    for folder in watched.folders.iter().flat_map(|folder| folder.ancestors()) {
        let own = IGNORE_FILES.map(|name| folder.join(name));
        for path in own.into_iter().chain([folder.join(".git/info/exclude")]) {
            let stat = target_stat(&path);
            all.push((path, stat));
        }
    }
    all
}

/// The current stat data.
#[cfg(unix)]
pub(super) fn lstat(path: &Path) -> Option<FileStat> {
    FileStat::tracked(&rustix::fs::lstat(path).ok()?)
}

/// The current stat data of what a path leads to.
#[cfg(unix)]
pub(super) fn target_stat(path: &Path) -> Option<FileStat> {
    Some(FileStat::new(&rustix::fs::stat(path).ok()?))
}

#[cfg(not(unix))]
pub(super) fn lstat(path: &Path) -> Option<FileStat> {
    Some(FileStat::tracked(&std::fs::symlink_metadata(path).ok()?))
}

#[cfg(not(unix))]
pub(super) fn target_stat(path: &Path) -> Option<FileStat> {
    Some(FileStat::new(&std::fs::metadata(path).ok()?))
}

/// The bits of a mode that are the file type.
const TYPE_MASK: u32 = 0o170_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatKind {
    File,
    Link,
    Folder,
}

pub(super) fn stat_kind(stat: &FileStat) -> StatKind {
    match stat.mode & TYPE_MASK {
        0o040_000 => StatKind::Folder,
        0o120_000 => StatKind::Link,
        _ => StatKind::File,
    }
}
