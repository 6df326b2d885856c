//! Tracks what calls do to files: the state of each changed file before and after. A tool that announces its writes is
//! trusted. Around a command, snapshots of the session's folders are compared: only folders that a watch has reported
//! are listed anew, and earlier contents come from a cache. This module changes no files: it has the changes stored,
//! and undo reads them from the store.

mod commands;
mod edits;
mod git;
mod hidden_folders;
mod live_folders;
mod observe;
mod snapshot;
#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;

use crate::files::Roots;
use turnwright_types::effect::{escape_hidden_line, is_secret_path};
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::ids::CallId;
use turnwright_types::text::format_bytes;

pub use commands::CommandBaseline;
pub use edits::{ExpectedChange, TrackedEdit};
pub use git::index::{indexed_files, indexed_submodules, read_index_file};
pub use git::pack::pack_index_lists;
pub use git::state::{RepositoryState, repository_state};
pub use live_folders::LiveFolders;
pub use observe::current_state;
pub use snapshot::{GitSettings, ObeyedFiles};

use commands::is_restorable;
use git::attributes::ConvertedFiles;
use git::{FileStat, Repository};
use hidden_folders::HiddenFolders;
use observe::ObservedState;
use snapshot::folder_listing::FolderListing;
use snapshot::{StatKind, StatSnapshot, WatchedFolders, lstat, stat_kind};

/// Tells people which changes are never covered.
pub const NOT_COVERED: &str = "Files that .gitignore names are not covered.";

/// Told to the user once if the folders are too large to be compared.
const UNKNOWN_WARNING: &str = "/undo can't track what commands change here: too many files, or the disk is too \
                               slow.";

/// Stands in the record of each command in such folders.
const UNKNOWN_CHANGES: &str = "too many files, or the disk is too slow";
/// Stands in the record of a command whose end the agent has not seen.
const UNKNOWN_END: &str = "the agent ended while a command ran";

/// After this many snapshots that took too long, none is taken for a while.
const MAX_SLOW_SNAPSHOTS: u8 = 2;
/// How many files a warning names.
const MAX_NAMED: usize = 5;

/// The largest file that is copied before a command.
const MAX_CACHED_FILE: u64 = 256 * 1024;
/// The most bytes of all cached contents.
const MAX_CACHED_BYTES: usize = 20 * 1024 * 1024;
/// The time for copying files before one command.
const COPY_LIMIT: Duration = Duration::from_millis(200);
/// The time for copying files that earlier commands left no time for.
const LATE_COPY_LIMIT: Duration = Duration::from_millis(15);
/// This many files are copied even if it takes longer: on a busy machine, the time may be over before the
/// first one is read, and then nothing that a command does in a small project could be undone.
const ALWAYS_COPIED: usize = 32;
/// After this many files that do not fit beside what is copied already, no more are looked at.
const MAX_TOO_LARGE: usize = 64;
/// The most cached files.
const MAX_CACHED_FILES: usize = 50_000;

/// The state of a session's files between calls.
#[derive(Debug, Default)]
pub struct ChangeTracker {
    watched: OnceLock<WatchedFolders>,
    // `inner` is held only to move pointers, the other two only by blocking threads.
    inner: Mutex<TrackerState>,
    contents: Mutex<ContentCache>,
    hidden: Mutex<HiddenFolders>,
    /// Comparisons that still run after a cancel.
    late_tasks: TaskTracker,
    /// True if a call has changed files since [`ChangeTracker::take_changes`] was last called.
    has_changes: AtomicBool,
    /// The number of calls that have changed files.
    changes: AtomicU64,
    /// The bytes of file contents that were stored for commands.
    kept_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct TrackerState {
    /// The snapshot after the last command of the turn.
    last_baseline: Option<CommandBaseline>,
    /// The snapshot before the last command, for as long as the command runs.
    running_snapshot: Weak<StatSnapshot>,
    /// The number of snapshots that took too long; [`MAX_SLOW_SNAPSHOTS`] if there are too many files. From then on,
    /// skipped snapshots are counted, too.
    slow_snapshots: u8,
    /// The same for the search of repositories alone.
    slow_searches: u8,
    /// The git repositories of the last snapshot before a command.
    repositories: Arc<BTreeSet<PathBuf>>,
    /// True if the repositories before the last command are not known.
    is_unsearched: bool,
    /// The ignored folders of the last snapshot.
    ignored: Arc<Vec<PathBuf>>,
    /// The calls whose commands went on in the background.
    background_calls: Vec<CallId>,
    /// True once the user has been told [`NOT_COVERED`] and [`UNKNOWN_WARNING`], respectively.
    told_not_covered: bool,
    told_unknown: bool,
}

/// The changes that a call has made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallChanges {
    pub files: Vec<FileChange>,
    /// Contents of those files that are to be stored.
    pub contents: Vec<Arc<[u8]>>,
    /// The number of further changes, which are not in `files`.
    pub omitted: usize,
    /// Git repositories that have appeared: each `.git`, or the folder that is one.
    pub new_repositories: Vec<PathBuf>,
    /// True if there may be more of them, because not all folders can be listed.
    pub may_have_more_repositories: bool,
    /// True if the changes could not be determined.
    pub is_unknown: bool,
}

impl CallChanges {
    /// Returns the record that is stored before a command runs. If the agent is killed, it stays, and says
    /// that the changes of the command are not covered.
    pub fn of_running_command() -> FileChange {
        FileChange::uncovered(UNKNOWN_END)
    }

    /// Settles that record: withdraws it, or says why the changes are not known.
    pub fn settle_command(&mut self) {
        let running = CallChanges::of_running_command();
        let after = if self.is_unknown {
            FileState::Unknown { why: UNKNOWN_CHANGES.to_owned() }
        } else {
            running.before.clone()
        };
        self.files.push(FileChange { after: Some(after), ..running });
    }
}

impl ChangeTracker {
    /// Takes note that a call has changed files.
    pub fn note_changes(&self, changes: &CallChanges) {
        if !changes.files.is_empty() {
            self.has_changes.store(true, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the calls of the session and of its helpers that have changed files.
    pub fn change_count(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns true if a call of the session or of a helper has changed files since the last call of this.
    pub fn take_changes(&self) -> bool {
        self.has_changes.swap(false, Ordering::Relaxed)
    }

    /// Sets the folders in which the effects of commands are tracked, and the other places that commands can write.
    pub fn watch(
        &self,
        roots: &Roots,
        obeyed: ObeyedFiles,
        git: GitSettings,
        writable: Vec<PathBuf>,
    ) {
        self.watched.get_or_init(|| WatchedFolders::new(roots, obeyed, git, writable));
    }

    fn watched(&self) -> Option<WatchedFolders> {
        self.watched.get().cloned()
    }

    /// Records that a tool has changed these paths, and that the store has their contents. For
    /// those in `unsaved` the disk has another content.
    fn note_written(&self, all: &BTreeMap<PathBuf, ObservedState>, unsaved: &[PathBuf]) {
        let mut inner = self.inner.lock();
        if let Some(last_baseline) = &mut inner.last_baseline {
            for path in all.keys() {
                last_baseline.note_written(path);
            }
        }
        drop(inner);
        let mut contents = self.contents.lock();
        for (path, found) in all {
            match lstat(path) {
                Some(stat) if is_restorable(&found.state) && !unsaved.contains(path) => {
                    contents.insert(path, stat, found.state.clone().into());
                }
                _ => contents.remove(path),
            }
        }
    }

    /// Records that the command of a call still runs in the background.
    pub fn note_background_command(&self, call: &CallId) {
        self.inner.lock().background_calls.push(call.clone());
    }

    /// Ends the turn. Returns the calls whose commands went on, and the last snapshot if there are any.
    pub fn end_turn(&self) -> (Vec<CallId>, Option<CommandBaseline>) {
        let mut inner = self.inner.lock();
        let calls = std::mem::take(&mut inner.background_calls);
        let last = if calls.is_empty() { None } else { inner.last_baseline.take() };
        (calls, last)
    }

    /// Drops the last snapshot between two turns, unless a watch reports later changes and the snapshot
    /// takes little memory.
    pub fn drop_costly_baseline(&self) {
        let _costly = self.inner.lock().last_baseline.take_if(|last| !last.is_cheap_to_keep());
    }

    /// Drops the last snapshot.
    pub fn drop_baseline(&self) {
        let _last = self.inner.lock().last_baseline.take();
    }

    /// Tasks that may outlive their turn.
    pub fn late_tasks(&self) -> &TaskTracker {
        &self.late_tasks
    }

    /// Waits until all changes of earlier turns have been sent to the store.
    pub async fn wait_for_late_tasks(&self) {
        self.late_tasks.close();
        self.late_tasks.wait().await;
    }

    /// A warning for the user about changes that cannot be undone, if there are any.
    pub fn warning(&self, changes: &CallChanges, roots: &Roots) -> Option<String> {
        if changes.is_unknown {
            let was_said = std::mem::replace(&mut self.inner.lock().told_unknown, true);
            return (!was_said).then(|| UNKNOWN_WARNING.to_owned());
        }
        let not_restorable = changes.files.iter().filter(|change| {
            !is_restorable(&change.before) && change.after.as_ref() != Some(&change.before)
        });
        let lost: Vec<_> = not_restorable.collect();
        let mut names: Vec<_> =
            lost.iter().take(MAX_NAMED).map(|change| describe(change, roots)).collect();
        let more = lost.len() - names.len() + changes.omitted;
        if more > 0 {
            names.push(format!("{more} more"));
        }
        if names.is_empty() {
            return None;
        }
        let mut text = format!("Not restorable by /undo: {}.", names.join(", "));
        if !std::mem::replace(&mut self.inner.lock().told_not_covered, true) {
            text.push_str(&format!(" {NOT_COVERED}"));
        }
        Some(text)
    }
}

fn describe(change: &FileChange, roots: &Roots) -> String {
    let below = roots.folders().find_map(|folder| change.path.strip_prefix(folder).ok());
    let path = escape_hidden_line(&below.unwrap_or(Path::new(&change.path)).to_string_lossy());
    match &change.before {
        FileState::File { size, .. } => format!("{path} ({})", format_bytes(*size)),
        FileState::Unknown { why } => format!("{path} ({why})"),
        _ => path,
    }
}

/// The cached states, each with the stat data that it belongs to.
#[derive(Debug, Default)]
struct ContentCache {
    files: HashMap<PathBuf, (FileStat, ObservedState)>,
    bytes: usize,
    /// The files that the last preload had no time or room for, the most recently changed one at the end.
    uncopied: Vec<UncopiedFile>,
}

/// A file of the last snapshot whose content is still to be copied.
#[derive(Debug)]
struct UncopiedFile {
    folder: Arc<Path>,
    listing: Arc<FolderListing>,
    /// Its place in the listing.
    index: usize,
}

impl UncopiedFile {
    fn stat(&self) -> FileStat {
        self.listing.entries.at(self.index).map(|(_, stat)| *stat).unwrap_or_default()
    }

    fn path(&self) -> PathBuf {
        let name = self.listing.entries.at(self.index).map(|(name, _)| name);
        self.folder.join(name.unwrap_or_default())
    }
}

impl ContentCache {
    /// The state of a path for these stat data.
    fn get(&self, path: &Path, stat: &FileStat) -> Option<&ObservedState> {
        self.files.get(path).filter(|known| known.0 == *stat).map(|known| &known.1)
    }

    /// Caches the state of a path. Contents that the store has need not be included.
    fn insert(&mut self, path: &Path, stat: FileStat, found: ObservedState) {
        self.remove(path);
        let bytes = found.bytes.as_ref().map_or(0, |bytes| bytes.len());
        if self.files.len() < MAX_CACHED_FILES && self.bytes + bytes <= MAX_CACHED_BYTES {
            self.bytes += bytes;
            self.files.insert(path.to_path_buf(), (stat, found));
        }
    }

    fn remove(&mut self, path: &Path) {
        if let Some((_, found)) = self.files.remove(path) {
            self.bytes -= found.bytes.map_or(0, |bytes| bytes.len());
        }
    }

    /// Copies files that a command could change and that no repository has. Those of `previous` have been copied
    /// already, or are among the uncopied ones. Blocks.
    fn preload(
        &mut self,
        limit: Duration,
        previous: Option<&StatSnapshot>,
        snapshot: &StatSnapshot,
        repositories: &[Arc<Repository>],
        converted: &ConvertedFiles,
    ) {
        let start = Instant::now();
        self.remove_stale(previous, snapshot);
        let mut wanted = files_to_copy(previous, snapshot, repositories, converted);
        // Copying begins at the end, with the files that were changed last, as they are most likely to be changed
        // again. What has changed since the previous snapshot was changed after what is still to be copied.
        wanted.sort_unstable_by_key(|file| file.stat().mtime);
        let late_count = self.uncopied.len();
        self.uncopied.append(&mut wanted);
        let mut count = 0;
        let mut too_large = Vec::new();
        while let Some(file) = self.uncopied.pop() {
            let is_late = self.uncopied.len() < late_count;
            let limit = if is_late { limit.min(LATE_COPY_LIMIT) } else { limit };
            let stat = file.stat();
            let is_full = self.files.len() >= MAX_CACHED_FILES || too_large.len() >= MAX_TOO_LARGE;
            if is_full || count >= ALWAYS_COPIED && start.elapsed() > limit {
                self.uncopied.push(file);
                break;
            }
            if usize::try_from(stat.size).map_or(true, |size| self.bytes + size > MAX_CACHED_BYTES)
            {
                too_large.push(file);
                continue;
            }
            let path = file.path();
            let is_link = stat_kind(&stat) == StatKind::Link;
            if self.get(&path, &stat).is_some() || !is_link && is_secret_path(&path) {
                continue;
            }
            count += 1;
            let found = observe::observe(&path, true);
            // The file must not have changed since the snapshot.
            if lstat(&path) == Some(stat) {
                self.insert(&path, stat, found);
            }
        }
        self.uncopied.extend(too_large.into_iter().rev());
    }

    /// Removes the states of files that have changed, and what is still to be copied of changed folders.
    fn remove_stale(&mut self, previous: Option<&StatSnapshot>, snapshot: &StatSnapshot) {
        let Some(previous) = previous else {
            self.files.retain(|path, known| snapshot.get(path) == Some(known.0));
            let bytes = self.files.values().filter_map(|known| known.1.bytes.as_ref());
            self.bytes = bytes.map(|bytes| bytes.len()).sum();
            self.uncopied.clear();
            return;
        };
        let mut outdated = HashSet::new();
        for (folder, listing) in previous.folders_since(Some(snapshot)) {
            outdated.insert(Arc::as_ptr(listing));
            for (name, _) in listing.entries.iter() {
                let path = folder.join(name);
                if self.files.get(&path).is_some_and(|known| snapshot.get(&path) != Some(known.0)) {
                    self.remove(&path);
                }
            }
        }
        if !outdated.is_empty() {
            self.uncopied.retain(|file| !outdated.contains(&Arc::as_ptr(&file.listing)));
        }
    }
}

/// The files in changed folders that are small enough to be copied and that no repository has.
fn files_to_copy(
    previous: Option<&StatSnapshot>,
    snapshot: &StatSnapshot,
    repositories: &[Arc<Repository>],
    converted: &ConvertedFiles,
) -> Vec<UncopiedFile> {
    // A command may delete a folder together with the repository in it.
    let lasting: Vec<_> =
        repositories.iter().filter(|one| snapshot.get(&one.top).is_none()).collect();
    let mut wanted = Vec::new();
    for (folder, listing) in snapshot.folders_since(previous) {
        if snapshot.is_version_control(folder) {
            continue;
        }
        let mut indexed: Vec<_> =
            lasting.iter().filter_map(|repository| repository.folder(folder)).collect();
        for (index, (name, stat)) in listing.entries.iter().enumerate() {
            let is_wanted = match stat_kind(stat) {
                StatKind::Folder => false,
                StatKind::Link => true,
                StatKind::File if stat.size > MAX_CACHED_FILE => false,
                StatKind::File => {
                    let is_stored =
                        indexed.iter_mut().any(|index| index.next_clean_blob(name, stat).is_some())
                            && (converted.is_empty() || !converted.contains(&folder.join(name)));
                    !is_stored
                }
            };
            if is_wanted {
                let folder = Arc::clone(folder);
                let listing = Arc::clone(listing);
                wanted.push(UncopiedFile { folder, listing, index });
            }
        }
    }
    wanted
}

/// Private functions of this module for the fuzz targets. The program does not use them.
pub mod fuzzing {
    use std::io::Cursor;

    use super::git::{index, pack};

    pub use super::git::pack::{apply_delta, parse_loose_blob as loose_blob};

    pub fn index_paths(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        let index = index::parse(bytes)?;
        Some(index.entries.iter().map(|entry| index.name(entry).to_vec()).collect())
    }

    /// The offset of an object according to a pack index.
    pub fn pack_offset(index: &[u8], hash: &[u8; 20]) -> Option<u64> {
        pack::find_offset(&mut Cursor::new(index), hash)
    }

    pub fn pack_entry(pack: &[u8], offset: u64) -> Option<Vec<u8>> {
        pack::read_entry(&mut Cursor::new(pack), offset).map(|entry| entry.1)
    }
}

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod content_tests {
    use super::*;

    /// A folder, and its path without links.
    fn real_folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = crate::real_path(folder.path()).unwrap();
        (folder, top)
    }

    fn snapshot_of(folder: &Path, names: &[String]) -> StatSnapshot {
        let entries = names.iter().map(|name| (name.as_str(), lstat(&folder.join(name)).unwrap()));
        StatSnapshot::of_folder(folder, entries)
    }

    /// Names of files with their names as contents.
    fn write_files(folder: &Path, count: usize) -> Vec<String> {
        let names: Vec<_> = (0..count).map(|number| format!("file{number}")).collect();
        for name in &names {
            std::fs::write(folder.join(name), name).unwrap();
        }
        names
    }

    #[test]
    fn a_few_files_are_copied_however_long_it_takes_and_the_rest_before_later_commands() {
        let (_folder, top) = real_folder();
        let names = write_files(&top, ALWAYS_COPIED * 2 + 1);
        let snapshot = snapshot_of(&top, &names);
        let mut contents = ContentCache::default();
        let mut previous = None;
        for copied in [ALWAYS_COPIED, ALWAYS_COPIED * 2, names.len(), names.len()] {
            contents.preload(Duration::ZERO, previous, &snapshot, &[], &ConvertedFiles::default());
            assert_eq!(contents.files.len(), copied);
            previous = Some(&snapshot);
        }
        for name in &names {
            let path = top.join(name);
            let copy = contents.get(&path, &lstat(&path).unwrap()).unwrap();
            assert_eq!(copy.bytes.as_deref(), Some(name.as_bytes()));
        }
    }

    #[test]
    fn a_file_for_which_there_is_no_room_does_not_keep_others_out() {
        let (_folder, top) = real_folder();
        let mut names = write_files(&top, 2);
        let mut contents = ContentCache::default();
        contents.preload(
            Duration::MAX,
            None,
            &snapshot_of(&top, &names[..1]),
            &[],
            &ConvertedFiles::default(),
        );
        let room = 100;
        contents.bytes = MAX_CACHED_BYTES - room;
        names.push("large".to_owned());
        std::fs::write(top.join("large"), vec![b'x'; room + 1]).unwrap();
        let before = snapshot_of(&top, &names[..1]);
        contents.preload(
            Duration::MAX,
            Some(&before),
            &snapshot_of(&top, &names),
            &[],
            &ConvertedFiles::default(),
        );
        let copied = names.iter().map(|name| contents.files.contains_key(&top.join(name)));
        assert_eq!(copied.collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(contents.uncopied.len(), 1);
    }

    #[test]
    fn what_has_changed_meanwhile_is_copied_as_it_is_now() {
        let (_folder, top) = real_folder();
        let mut names = write_files(&top, ALWAYS_COPIED + 3);
        let before = snapshot_of(&top, &names);
        let mut contents = ContentCache::default();
        contents.preload(Duration::ZERO, None, &before, &[], &ConvertedFiles::default());
        assert_eq!(contents.uncopied.len(), 3);
        let gone = names.pop().unwrap();
        std::fs::remove_file(top.join(gone)).unwrap();
        for name in &names {
            std::fs::write(top.join(name), "changed").unwrap();
        }
        let after = snapshot_of(&top, &names);
        contents.preload(Duration::MAX, Some(&before), &after, &[], &ConvertedFiles::default());
        assert_eq!((contents.files.len(), contents.uncopied.len()), (names.len(), 0));
        let copies: Vec<_> = contents.files.values().map(|file| file.1.bytes.as_deref()).collect();
        assert!(copies.iter().all(|copy| *copy == Some(b"changed")));
        assert_eq!(contents.bytes, "changed".len() * names.len());
    }
}
