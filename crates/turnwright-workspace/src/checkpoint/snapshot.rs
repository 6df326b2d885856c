//! Snapshots of the stat data of all files in the session's folders that are not ignored, and their
//! comparison.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::git::FileStat;
use crate::files::Roots;
use crate::search::{ExcludedPaths, SearchDeadline, SearchScope, walk_entries};

/// The most entries of a snapshot.
const MAX_ENTRIES: usize = 200_000;

/// The folders of the snapshots.
#[derive(Clone, Debug)]
pub(super) struct WatchedFolders {
    /// The folders with links resolved, none below another.
    folders: Vec<PathBuf>,
    /// Our own folders, which are left out.
    private: Vec<PathBuf>,
}

impl WatchedFolders {
    pub(super) fn new(roots: &Roots) -> WatchedFolders {
        let all: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        let is_first = |it: &PathBuf| !all.iter().any(|other| it != other && it.starts_with(other));
        let mut folders: Vec<_> = all.iter().filter(|it| is_first(it)).cloned().collect();
        folders.sort_unstable();
        folders.dedup();
        WatchedFolders {
            folders,
            private: roots.private_folders().map(Path::to_path_buf).collect(),
        }
    }

    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

/// Why no snapshot could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotError {
    TooMany,
    TooLong,
}

/// The files at one point in time.
#[derive(Clone, Debug)]
pub(super) struct StatSnapshot {
    /// When the snapshot was started.
    pub(super) at: SystemTime,
    /// How long the snapshot took.
    pub(super) took: Duration,
    pub(super) entries: HashMap<PathBuf, FileStat>,
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
        let (at, start) = (SystemTime::now(), Instant::now());
        let stop = SearchDeadline::new(Arc::clone(cancelled), limit);
        let count = AtomicUsize::new(0);
        let mut entries = HashMap::new();
        for folder in &watched.folders {
            let private = watched.private.clone();
            let excluded = ExcludedPaths::new(move |it| private.iter().any(|own| own == it));
            let scope =
                SearchScope { excluded, include_hidden: true, ..SearchScope::below(folder) };
            let visit = |found: &mut Vec<(PathBuf, FileStat)>, path: &Path, about: &Metadata| {
                if count.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                    stop.stop_early();
                }
                found.extend(file_stat(about).map(|it| (path.to_path_buf(), it)));
            };
            for found in walk_entries(&scope, &stop, &visit) {
                entries.extend(found);
            }
        }
        if count.into_inner() > MAX_ENTRIES {
            return Err(SnapshotError::TooMany);
        }
        if stop.was_cut_short() {
            return Err(SnapshotError::TooLong);
        }
        Ok(StatSnapshot { at, took: start.elapsed(), entries })
    }

    /// Updates a path that the agent itself has written.
    pub(super) fn note_written(&mut self, path: &Path) {
        match std::fs::symlink_metadata(path).ok().and_then(|it| file_stat(&it)) {
            Some(stat) => drop(self.entries.insert(path.to_path_buf(), stat)),
            None => drop(self.entries.remove(path)),
        }
    }

    /// The differences to a later snapshot, ordered by path.
    pub(super) fn compare(&self, later: &StatSnapshot) -> Vec<StatChange> {
        let mut all = Vec::new();
        for (path, before) in &self.entries {
            let after = later.entries.get(path).copied();
            if after != Some(*before) {
                all.push(StatChange { path: path.clone(), before: Some(*before), after });
            }
        }
        let is_new = |it: &(&PathBuf, &FileStat)| !self.entries.contains_key(it.0);
        for (path, after) in later.entries.iter().filter(is_new) {
            all.push(StatChange { path: path.clone(), before: None, after: Some(*after) });
        }
        all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        all
    }
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

/// The stat data of a file, a link or a folder.
#[cfg(unix)]
pub(super) fn file_stat(about: &Metadata) -> Option<FileStat> {
    let stat = FileStat::new(about);
    if about.is_dir() {
        // The other data of a folder change with each entry that is added or removed.
        let nothing = (0, 0);
        return Some(FileStat { size: 0, mtime: nothing, ctime: nothing, ino: 0, mode: stat.mode });
    }
    (about.is_file() || about.is_symlink()).then_some(stat)
}

#[cfg(not(unix))]
pub(super) fn file_stat(_: &Metadata) -> Option<FileStat> {
    None
}
