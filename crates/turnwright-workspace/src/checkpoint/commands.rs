//! Determines what a command has changed: compares snapshots from before and after, and takes the
//! old contents from wherever they are known.

use crate::{has_other_letters, real_path};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::git::attributes::ConvertedFiles;
use super::git::{FileStat, Repository};
use super::hidden_folders::{find_newly_ignored, find_repositories};
use super::live_folders;
use super::observe::{ObservedState, observe};
use super::snapshot::folder_listing::is_ignore_file;
use super::snapshot::{
    SnapshotError, StatChange, StatKind, StatSnapshot, WatchedFolders, lstat, stat_kind,
};
use super::{COPY_LIMIT, CallChanges, ContentCache, MAX_CACHED_FILE, MAX_SLOW_SNAPSHOTS};
use turnwright_types::effect::is_secret_path;
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::text::format_bytes;

/// How long a snapshot may take.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(2);
/// How long a snapshot may take after a cancel.
const SNAPSHOT_LIMIT_AFTER_CANCEL: Duration = Duration::from_secs(1);
/// After too many slow snapshots, about so many commands run without one. By then the disk may be less busy, or there
/// may be fewer files.
pub(super) const COMMANDS_WITHOUT_SNAPSHOTS: u8 = 64;
/// If a snapshot took no longer than this, a new one is taken before each command, so that the user's
/// changes since the last command are not attributed to the next one.
const CHEAP_SNAPSHOT: Duration = Duration::from_millis(30);
/// A slower snapshot is reused if it is no older than this many times the time it took.
const MAX_AGE_FACTOR: u32 = 5;
/// A snapshot with more entries is not kept between turns. Each takes about 100 bytes.
const MAX_KEPT_ENTRIES: usize = 60_000;
/// The most changes of one call that are recorded.
const MAX_CHANGES: usize = 5_000;
/// The most bytes of their contents.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Once the commands of a session have stored this many bytes, only the contents of small files are: a database that
/// each run of the tests changes would fill the store, and old sessions would be deleted for it.
const MAX_SESSION_BYTES: u64 = 256 * 1024 * 1024;
/// The most repositories from which old contents are read.
const MAX_REPOSITORIES: usize = 64;
/// About the most bytes of memory that their indexes take.
const MAX_INDEX_MEMORY: usize = 256 * 1024 * 1024;
/// How long the contents of files are read.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// File timestamps may lag behind the system clock by this much.
const CLOCK_LAG: Duration = Duration::from_millis(20);
/// The same if they have no fraction of a second, as on FAT, whose seconds are even, on HFS+, ext3 and shares of those.
const COARSE_CLOCK_LAG: Duration = Duration::from_millis(2_020);

/// The state of the folders before a command.
#[derive(Clone, Debug)]
pub struct CommandBaseline {
    snapshot: Arc<StatSnapshot>,
    /// The last snapshot for which all contents that are stored nowhere else were cached.
    cached: Arc<StatSnapshot>,
    /// The repositories, with their indexes from before the command.
    repositories: Arc<[Arc<Repository>]>,
    /// The files whose content in the repositories differs.
    converted: Arc<ConvertedFiles>,
}

impl CommandBaseline {
    pub(super) fn is_cheap_to_keep(&self) -> bool {
        self.snapshot.watch.is_some() && self.snapshot.len() <= MAX_KEPT_ENTRIES
    }

    /// Updates a path that the agent itself has written.
    pub(super) fn note_written(&mut self, path: &Path) {
        Arc::make_mut(&mut self.snapshot).note_written(path);
    }
}

impl super::ChangeTracker {
    /// Takes a snapshot before a command; `None` if there are too many files. Blocks.
    pub fn baseline(&self, cancelled: &Arc<AtomicBool>) -> Option<CommandBaseline> {
        let watched = self.watched()?;
        let baseline = self.complete_baseline(&watched, cancelled);
        if baseline.is_none() {
            self.note_repositories(&watched, cancelled);
        }
        baseline
    }

    /// Finds the repositories before a command in folders with too many files.
    fn note_repositories(&self, watched: &WatchedFolders, cancelled: &Arc<AtomicBool>) {
        let may_search = self.inner.lock().slow_searches < MAX_SLOW_SNAPSHOTS;
        let folders = watched.without_files();
        if may_search && let Ok(snapshot) = StatSnapshot::take(&folders, SNAPSHOT_LIMIT, cancelled)
        {
            return self.note_found(None, &snapshot, watched);
        }
        let mut inner = self.inner.lock();
        inner.is_unsearched = true;
        if !cancelled.load(Ordering::Relaxed) {
            inner.slow_searches = inner.slow_searches.saturating_add(1);
        }
    }

    /// Notes the repositories and the ignored folders that a snapshot before a command has found.
    fn note_found(
        &self,
        earlier: Option<&StatSnapshot>,
        now: &StatSnapshot,
        watched: &WatchedFolders,
    ) {
        let mut hidden = self.hidden.lock();
        hidden.note_unreadable(now);
        hidden.update(earlier, now, watched);
        let repositories = &now.repositories() | &hidden.repositories;
        drop(hidden);
        let mut inner = self.inner.lock();
        inner.repositories = Arc::new(repositories);
        inner.is_unsearched = false;
        inner.ignored = Arc::new(now.ignored());
    }

    /// Returns true if the changes of commands are found by comparing all files.
    pub fn compares_files(&self) -> bool {
        self.inner.lock().slow_snapshots < MAX_SLOW_SNAPSHOTS
    }

    fn complete_baseline(
        &self,
        watched: &WatchedFolders,
        cancelled: &Arc<AtomicBool>,
    ) -> Option<CommandBaseline> {
        let last = {
            let mut inner = self.inner.lock();
            if inner.slow_snapshots >= MAX_SLOW_SNAPSHOTS {
                inner.slow_snapshots = (inner.slow_snapshots + 1) % COMMANDS_WITHOUT_SNAPSHOTS;
                if inner.slow_snapshots > 0 {
                    return None;
                }
                inner.slow_searches = 0;
            }
            inner.last_baseline.take()
        };
        let known: &[_] = last.as_ref().map_or(&[], |last| &last.repositories);
        if let Some(last) = &last
            && is_fresh(&last.snapshot)
        {
            self.inner.lock().running_snapshot = Arc::downgrade(&last.snapshot);
            let repositories = open_repositories(watched, &last.snapshot, known);
            return Some(CommandBaseline { repositories, ..last.clone() });
        }
        let previous = last.as_ref().map(|last| &*last.snapshot);
        let refreshed =
            previous.and_then(|previous| previous.refresh(watched, SNAPSHOT_LIMIT, cancelled));
        let snapshot =
            refreshed.or_else(|| self.take_snapshot(watched, SNAPSHOT_LIMIT, cancelled))?;
        let repositories = open_repositories(watched, &snapshot, known);
        let known_converted = last.as_ref().map(|last| &last.converted);
        let converted = ConvertedFiles::load(watched, &snapshot, &repositories, known_converted);
        // Git may store other content by now.
        let is_unchanged = repositories.len() == known.len()
            && repositories.iter().all(|one| known.iter().any(|other| Arc::ptr_eq(one, other)))
            && known_converted.is_some_and(|known| Arc::ptr_eq(known, &converted));
        let cached = last.as_ref().map(|last| &*last.cached).filter(|_| is_unchanged);
        self.contents.lock().preload(COPY_LIMIT, cached, &snapshot, &repositories, &converted);
        self.note_found(previous, &snapshot, watched);
        let snapshot = Arc::new(snapshot);
        self.inner.lock().running_snapshot = Arc::downgrade(&snapshot);
        Some(CommandBaseline { cached: Arc::clone(&snapshot), snapshot, repositories, converted })
    }

    /// The git repositories in the folders before the last command: each `.git`, or the folder that is
    /// one; and the files in subfolders that programs obey. Repositories deeper in ignored folders are left
    /// out: see [`find_in_ignored`](Self::find_in_ignored).
    pub fn repositories(&self) -> Arc<BTreeSet<PathBuf>> {
        Arc::clone(&self.inner.lock().repositories)
    }

    /// All repositories in the folders that were ignored before the last command, at any depth, and
    /// whether all of them were searched. Takes long in large ones. Blocks.
    pub fn find_in_ignored(&self) -> (BTreeSet<PathBuf>, bool) {
        let ignored = Arc::clone(&self.inner.lock().ignored);
        find_repositories(&ignored)
    }

    /// The folders that were ignored before the last command, none below another.
    pub fn ignored_folders(&self) -> Arc<Vec<PathBuf>> {
        Arc::clone(&self.inner.lock().ignored)
    }

    /// The files that had other names (hard links) before the running command, except those in ignored folders. `None` if
    /// there are too many files to know.
    pub fn hard_linked(&self) -> Option<Vec<PathBuf>> {
        let snapshot = self.inner.lock().running_snapshot.upgrade();
        snapshot.map(|snapshot| snapshot.hard_linked())
    }

    /// Looks for the repositories that are not among [`repositories`](Self::repositories). The flag says
    /// whether there may be more, because not all folders can be listed. Blocks.
    pub fn find_new_repositories(&self, known: &BTreeSet<PathBuf>) -> (Vec<PathBuf>, bool) {
        let Some(mut watched) = self.watched() else { return (Vec::new(), false) };
        let inner = self.inner.lock();
        let last = inner.last_baseline.as_ref().map(|last| Arc::clone(&last.snapshot));
        if inner.is_unsearched {
            return (Vec::new(), true);
        }
        drop(inner);
        let Some(now) = live_folders::take(&mut watched) else { return (Vec::new(), true) };
        let (hidden, may_be_more) = self.hidden.lock().look(last.as_deref(), &now, &watched);
        let new = (&now.repositories() | &hidden).difference(known).cloned().collect();
        (new, may_be_more)
    }

    /// Determines what has changed since a snapshot. Blocks.
    pub fn changes_since(&self, before: &CommandBaseline, was_cancelled: bool) -> CallChanges {
        let limit = if was_cancelled { SNAPSHOT_LIMIT_AFTER_CANCEL } else { SNAPSHOT_LIMIT };
        let Some(watched) = self.watched() else { return CallChanges::default() };
        let refreshed = before.snapshot.refresh(&watched, limit, &Arc::default());
        let Some(now) = refreshed.or_else(|| self.take_snapshot(&watched, limit, &Arc::default()))
        else {
            return self.new_repositories_since(before, &watched.without_files(), limit);
        };
        let (hidden, may_be_more) =
            self.hidden.lock().update(Some(&before.snapshot), &now, &watched);
        let mut changed = before.snapshot.compare(&now);
        let newly_ignored = find_newly_ignored(&before.snapshot, &now, &watched);
        changed.extend(newly_ignored.files);
        changed.retain(|StatChange { path, .. }| {
            !before.snapshot.is_version_control(path) && !now.is_version_control(path)
        });
        changed.sort_by(|one, other| one.path.cmp(&other.path));
        let has_room = self.kept_bytes.load(Ordering::Relaxed) < MAX_SESSION_BYTES;
        let (mut changes, unchanged) =
            ChangeComparison::new(before, &self.contents.lock(), has_room).into_changes(changed);
        let kept = changes.contents.iter().map(|bytes| bytes.len() as u64).sum();
        self.kept_bytes.fetch_add(kept, Ordering::Relaxed);
        changes.omitted += newly_ignored.omitted;
        let new_repositories = &now.repositories() - &before.snapshot.repositories();
        changes.new_repositories = (&new_repositories | &hidden).into_iter().collect();
        changes.may_have_more_repositories = may_be_more;
        let mut contents = self.contents.lock();
        for change in &changes.files {
            let found = change.after.clone().map(ObservedState::from);
            match (now.get(&change.path), found) {
                (Some(stat), Some(found)) if is_restorable(&found.state) => {
                    contents.insert(&change.path, stat, found);
                }
                _ => contents.remove(&change.path),
            }
        }
        for (path, stat, found) in unchanged {
            contents.insert(&path, stat, found);
        }
        drop(contents);
        self.inner.lock().ignored = Arc::new(now.ignored());
        let last = CommandBaseline { snapshot: Arc::new(now), ..before.clone() };
        let _outdated = self.inner.lock().last_baseline.replace(last);
        changes
    }

    /// The repositories that have appeared in folders with too many files to find out what else has changed.
    fn new_repositories_since(
        &self,
        before: &CommandBaseline,
        watched: &WatchedFolders,
        limit: Duration,
    ) -> CallChanges {
        let changes = CallChanges { is_unknown: true, ..CallChanges::default() };
        let Ok(now) = StatSnapshot::take(watched, limit, &Arc::default()) else {
            return CallChanges { may_have_more_repositories: true, ..changes };
        };
        let (hidden, may_be_more) =
            self.hidden.lock().update(Some(&before.snapshot), &now, watched);
        let listed = &now.repositories() - &before.snapshot.repositories();
        CallChanges {
            new_repositories: (&listed | &hidden).into_iter().collect(),
            may_have_more_repositories: may_be_more,
            ..changes
        }
    }

    fn take_snapshot(
        &self,
        watched: &WatchedFolders,
        limit: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Option<StatSnapshot> {
        let snapshot = StatSnapshot::take(watched, limit, cancelled);
        let mut inner = self.inner.lock();
        match snapshot {
            Err(SnapshotError::TooMany) => inner.slow_snapshots = MAX_SLOW_SNAPSHOTS,
            Err(SnapshotError::TooLong)
                if limit == SNAPSHOT_LIMIT && !cancelled.load(Ordering::Relaxed) =>
            {
                inner.slow_snapshots = inner.slow_snapshots.saturating_add(1);
            }
            _ => {}
        }
        snapshot.ok()
    }
}

/// Opens the repositories around the session's folders, and those that a snapshot lists below. Blocks.
fn open_repositories(
    watched: &WatchedFolders,
    snapshot: &StatSnapshot,
    known: &[Arc<Repository>],
) -> Arc<[Arc<Repository>]> {
    let found = snapshot.repositories();
    let tops = found.iter().filter(|path| path.ends_with(".git")).filter_map(|git| git.parent());
    let own = &watched.folders;
    let below = tops.filter(|top| snapshot.lists(top) && own.iter().all(|folder| folder != top));
    let folders = own.iter().map(PathBuf::as_path).chain(below).take(MAX_REPOSITORIES);
    let mut memory = 0;
    folders
        .filter_map(|folder| Repository::open_or_reuse(folder, known))
        .take_while(|repository| {
            memory += repository.index.memory();
            memory <= MAX_INDEX_MEMORY
        })
        .collect()
}

/// Returns true if the user hardly had time to change anything since the snapshot, and a new one is
/// expensive.
fn is_fresh(snapshot: &StatSnapshot) -> bool {
    let age = snapshot.at.elapsed();
    snapshot.watch.is_none()
        && snapshot.took > CHEAP_SNAPSHOT
        && age.is_ok_and(|age| age <= snapshot.took * MAX_AGE_FACTOR)
}

/// Returns true if undo can restore this state.
pub(super) fn is_restorable(state: &FileState) -> bool {
    !matches!(state, FileState::File { is_kept: false, .. } | FileState::Unknown { .. })
}

/// Identifies a content by metadata that a rename does not change: inode, size and modification time.
type ContentKey = (u64, u64, (u64, u32));

fn content_key(stat: &FileStat) -> ContentKey {
    (stat.ino, stat.size, stat.mtime)
}

/// A path, its stat data and its state.
type KnownContent = (PathBuf, FileStat, ObservedState);

struct ChangeComparison<'a> {
    before: &'a CommandBaseline,
    contents: &'a ContentCache,
    start: Instant,
    bytes: usize,
    /// False if the session has stored so much that only the contents of small files are wanted.
    has_room: bool,
    /// The inodes of the files of the old snapshot that differ.
    inodes: HashSet<u64>,
    /// The contents of files that may have been renamed.
    renamed: HashMap<ContentKey, ObservedState>,
}

impl<'a> ChangeComparison<'a> {
    fn new(before: &'a CommandBaseline, contents: &'a ContentCache, has_room: bool) -> Self {
        let inodes = HashSet::new();
        let renamed = HashMap::new();
        let start = Instant::now();
        ChangeComparison { before, contents, start, bytes: 0, has_room, inodes, renamed }
    }

    /// The changes, and the files whose content is the same as before although their stat data differ.
    fn into_changes(mut self, mut changed: Vec<StatChange>) -> (CallChanges, Vec<KnownContent>) {
        let files = changed
            .iter()
            .filter_map(|change| change.before)
            .filter(|stat| stat_kind(stat) != StatKind::Folder);
        self.inodes = files.map(|stat| stat.ino).collect();
        changed.retain(|change| !self.is_only_visibility_change(change));
        let ignore_rules_changed =
            changed.iter().any(|change| change.path.file_name().is_some_and(is_ignore_file));
        let mut changes = CallChanges {
            omitted: changed.len().saturating_sub(MAX_CHANGES),
            ..CallChanges::default()
        };
        changed.truncate(MAX_CHANGES);
        let mut observed = Vec::with_capacity(changed.len());
        let mut unchanged = Vec::new();
        for change in changed {
            let after = self.observe(&change);
            if let Some(stat) = change.after.filter(|stat| stat_kind(stat) == StatKind::File) {
                self.renamed.insert(content_key(&stat), after.clone());
            }
            observed.push((change, after));
        }
        for (change, mut after) in observed {
            let came_from_outside = self.came_from_outside(&change);
            let before = match change.before {
                None if ignore_rules_changed
                    && was_created_before(&change.path, self.before.snapshot.at) =>
                {
                    ObservedState::unknown("was ignored before")
                }
                None if came_from_outside => {
                    ObservedState::unknown("moved here from an untracked place")
                }
                _ => self.previous_state(&change, &after),
            };
            if came_from_outside && change.before.is_some() {
                after = ObservedState::unknown("it was moved here from an untracked place");
            }
            if before.state == after.state {
                // Two contents that are both unknown need not be equal.
                if !matches!(before.state, FileState::Unknown { .. }) {
                    let stat = change.after.filter(|_| is_restorable(&after.state));
                    unchanged.extend(stat.map(|stat| (change.path, stat, after)));
                    continue;
                }
                after = ObservedState::unknown("is unknown, too");
            }
            changes.contents.extend(before.bytes.into_iter().chain(after.bytes));
            changes.files.push(FileChange {
                path: change.path,
                before: before.state,
                after: Some(after.state),
            });
        }
        (changes, unchanged)
    }

    /// Returns true if a file only became ignored, or is no longer ignored. A file that was not modified
    /// has not changed.
    fn is_only_visibility_change(&self, change: &StatChange) -> bool {
        match (change.before, change.after) {
            (None, Some(after)) if stat_kind(&after) != StatKind::Folder => {
                is_before(system_time(after.ctime), self.before.snapshot.at)
                    && !self.inodes.contains(&after.ino)
            }
            (Some(before), None) => {
                is_spelled_so(&change.path) && lstat(&change.path) == Some(before)
            }
            _ => false,
        }
    }

    /// Returns true if a file existed before, but outside of the snapshot. It may be the only copy, so undo
    /// must not remove it.
    fn came_from_outside(&self, change: &StatChange) -> bool {
        let is_new = change.after.is_some_and(|stat| {
            stat_kind(&stat) != StatKind::Folder && !self.inodes.contains(&stat.ino)
        });
        is_new && was_created_before(&change.path, self.before.snapshot.at)
    }

    fn observe(&mut self, change: &StatChange) -> ObservedState {
        if change.after.is_some() && self.start.elapsed() > READ_LIMIT {
            return ObservedState::unknown("too many changes at once");
        }
        // The folder may have become a link, or the name has other letters now.
        if change.after.is_none() && !is_spelled_so(&change.path) {
            return FileState::Absent.into();
        }
        let is_small = change.after.is_some_and(|stat| stat.size <= MAX_CACHED_FILE);
        let is_wanted = self.bytes < MAX_BYTES && (self.has_room || is_small);
        let found = observe(&change.path, is_wanted && !is_secret_path(&change.path));
        self.bytes += found.bytes.as_ref().map_or(0, |bytes| bytes.len());
        found
    }

    /// The state of a file before the command.
    fn previous_state(&mut self, change: &StatChange, after: &ObservedState) -> ObservedState {
        let Some(stat) = change.before else { return FileState::Absent.into() };
        let mode = stat.mode & 0o7777;
        if stat_kind(&stat) == StatKind::Folder {
            return FileState::Folder { mode }.into();
        }
        if let Some(found) = self.contents.get(&change.path, &stat) {
            return found.clone();
        }
        if stat_kind(&stat) == StatKind::Link {
            return ObservedState::unknown("its target was not recorded");
        }
        if let Some(found) = self.content_from_git(&change.path, &stat, mode) {
            return found;
        }
        // Only the name, the mode or other metadata changed.
        if change.after.is_some_and(|after| content_key(&after) == content_key(&stat)) {
            return with_mode(after, mode);
        }
        if let Some(found) = self.renamed.get(&content_key(&stat)) {
            return with_mode(found, mode);
        }
        ObservedState::unknown(if is_secret_path(&change.path) {
            "may hold secrets".to_owned()
        } else if stat.size > MAX_CACHED_FILE {
            format_bytes(stat.size)
        } else {
            "was not copied before".to_owned()
        })
    }

    fn content_from_git(
        &mut self,
        path: &Path,
        stat: &FileStat,
        mode: u32,
    ) -> Option<ObservedState> {
        if self.bytes >= MAX_BYTES
            || self.start.elapsed() > READ_LIMIT
            || is_secret_path(path)
            || self.before.converted.contains(path)
        {
            return None;
        }
        let found =
            self.before.repositories.iter().find_map(|repository| repository.read(path, stat))?;
        self.bytes += found.len();
        Some(ObservedState::file(found, mode))
    }
}

fn with_mode(found: &ObservedState, other: u32) -> ObservedState {
    let mut found = found.clone();
    if let FileState::File { mode, .. } = &mut found.state {
        *mode = other;
    }
    found
}

fn system_time((seconds, nanos): (u64, u32)) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds.min(u64::from(u32::MAX) * 16), nanos)
}

/// Returns true if neither a link above nor other letters of the name lead to what is at a path.
fn is_spelled_so(path: &Path) -> bool {
    let folder = path.parent();
    folder.is_some_and(|folder| real_path(folder).is_ok_and(|real| real == folder))
        && !has_other_letters(path)
}

/// Returns true if a file was created before a point in time, as far as the file system knows.
fn was_created_before(path: &PathBuf, then: SystemTime) -> bool {
    let made = std::fs::symlink_metadata(path).and_then(|metadata| metadata.created());
    made.is_ok_and(|time| is_before(time, then))
}

/// Returns true if a file's timestamp is certainly from before a point in time.
pub(super) fn is_before(stamp: SystemTime, then: SystemTime) -> bool {
    let since = stamp.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let lag = if since.subsec_nanos() == 0 { COARSE_CLOCK_LAG } else { CLOCK_LAG };
    stamp + lag < then
}
