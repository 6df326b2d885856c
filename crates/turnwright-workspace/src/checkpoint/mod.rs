//! Tracks what calls do to files: the state of each changed file before and after. A tool that
//! announces its writes is trusted; around a command, snapshots of the session's folders are
//! compared, for which only the folders are listed that a watch has reported. This module changes no
//! files: the changes go into the store, from where undo reads them.

mod commands;
mod edits;
mod git;
mod content_cache;
mod hidden_folders;
mod live_folders;
mod observe;
mod snapshot;
#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio_util::task::TaskTracker;

use crate::files::Roots;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::ids::CallId;
use turnwright_types::text::format_bytes;

pub use commands::CommandBaseline;
pub use edits::{ExpectedChange, TrackedEdit};
pub use git::index::{indexed_files, indexed_submodules, read_index_file};
pub use git::pack::pack_index_lists;
pub use live_folders::LiveFolders;
pub use observe::current_state;
pub use snapshot::{GitSettings, ObeyedFiles};

use commands::is_restorable;
use content_cache::ContentCache;
use hidden_folders::HiddenFolders;
use observe::ObservedState;
use snapshot::{StatSnapshot, WatchedFolders};

/// Tells people which changes are never covered.
pub const NOT_COVERED: &str = "Files that .gitignore names are not covered.";

/// Told to the user once if the folders are too large to be compared.
const UNKNOWN_WARNING: &str = "/undo can't track what commands change here: too many files, or the disk is too \
                               slow.";

/// The same for each turn, and for a command whose end the agent has not seen.
const UNKNOWN_CHANGES: &str = "too many files, or the disk is too slow";
const UNKNOWN_END: &str = "the agent ended while a command ran";

/// After this many snapshots that took too long, no more are taken.
const MAX_SLOW_SNAPSHOTS: u8 = 2;
/// How many files a warning names.
const MAX_NAMED: usize = 5;

/// The state of a session's files between calls.
#[derive(Debug, Default)]
pub struct ChangeTracker {
    watched: OnceLock<WatchedFolders>,
    // The first is held only to move pointers, the others only by blocking threads.
    inner: Mutex<TrackerState>,
    contents: Mutex<ContentCache>,
    hidden: Mutex<HiddenFolders>,
    /// Comparisons that still run after a cancel.
    late_tasks: TaskTracker,
    /// True if a call has changed files since [`ChangeTracker::take_changes`] was last called.
    has_changes: AtomicBool,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct TrackerState {
    /// The snapshot after the last command of the turn.
    last_baseline: Option<CommandBaseline>,
    /// The snapshot before the last command, for as long as the command runs.
    running_snapshot: Weak<StatSnapshot>,
    /// The number of snapshots that took too long, or the most that may be if there are too many files.
    slow_snapshots: u8,
    /// The same for the search of repositories alone.
    slow_searches: u8,
    /// The git repositories of the last snapshot before a command.
    repositories: Arc<BTreeSet<PathBuf>>,
    /// The repositories before the last command are not known.
    is_unsearched: bool,
    /// The ignored folders of the last snapshot.
    ignored: Arc<Vec<PathBuf>>,
    /// The calls whose commands went on in the background.
    background_calls: Vec<CallId>,
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
            match content_cache::lstat(path) {
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
        let mut inner = self.inner.lock();
        let costly = inner.last_baseline.take_if(|baseline| !baseline.is_cheap_to_keep());
        drop(inner);
        drop(costly);
    }

    /// Drops the last snapshot.
    pub fn drop_baseline(&self) {
        let last = self.inner.lock().last_baseline.take();
        drop(last);
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
