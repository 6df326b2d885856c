//! A cache of file contents: copies made before a command, and contents that calls have left.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folder_listing::ListedEntry;
use super::git::{FileStat, Repository};
use super::observe::{ObservedState, observe};
use super::snapshot::{StatKind, StatSnapshot, stat_kind};
use turnwright_types::effect::is_secret_path;

/// The largest file that is copied before a command.
pub(super) const MAX_CACHED_FILE: u64 = 256 * 1024;
/// The most bytes of all cached contents.
const MAX_BYTES: usize = 20 * 1024 * 1024;
/// How long files are copied before one command.
const COPY_LIMIT: Duration = Duration::from_millis(200);
/// This many files are copied even if it takes longer: on a busy machine, the time may be over before the
/// first one is read, and then nothing that a command does in a small project could be undone.
const ALWAYS_COPIED: usize = 32;
/// The most cached files.
const MAX_FILES: usize = 50_000;

/// The cached states, each with the stat data that it belongs to.
#[derive(Debug, Default)]
pub(super) struct ContentCache {
    files: HashMap<PathBuf, (FileStat, ObservedState)>,
    bytes: usize,
    /// The last preload has not copied everything.
    was_cut_short: bool,
}

impl ContentCache {
    /// The state of a path for these stat data.
    pub(super) fn get(&self, path: &Path, stat: &FileStat) -> Option<&ObservedState> {
        self.files.get(path).filter(|it| it.0 == *stat).map(|it| &it.1)
    }

    /// Caches the state of a path. Contents that the store has need not be included.
    pub(super) fn insert(&mut self, path: &Path, stat: FileStat, found: ObservedState) {
        self.remove(path);
        let bytes = found.bytes.as_ref().map_or(0, |it| it.len());
        if self.files.len() < MAX_FILES && self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.files.insert(path.to_path_buf(), (stat, found));
        }
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if let Some((_, found)) = self.files.remove(path) {
            self.bytes -= found.bytes.map_or(0, |it| it.len());
        }
    }

    /// Copies files that a command could change and that are stored nowhere else. Those of `previous`
    /// have been copied already. Blocks.
    pub(super) fn preload(
        &mut self,
        previous: Option<&StatSnapshot>,
        snapshot: &StatSnapshot,
        repositories: &[Arc<Repository>],
    ) {
        self.preload_within(COPY_LIMIT, previous, snapshot, repositories);
    }

    fn preload_within(
        &mut self,
        limit: Duration,
        previous: Option<&StatSnapshot>,
        snapshot: &StatSnapshot,
        repositories: &[Arc<Repository>],
    ) {
        let start = Instant::now();
        let previous = previous.filter(|_| !self.was_cut_short);
        self.was_cut_short = false;
        self.remove_stale(previous, snapshot);
        if self.bytes >= MAX_BYTES {
            self.was_cut_short = true;
            return;
        }
        let mut wanted = self.wanted(previous, snapshot, repositories);
        // Files that were changed last are most likely to be changed again.
        wanted.sort_unstable_by_key(|it| std::cmp::Reverse(it.1.mtime));
        for (number, (path, before)) in wanted.into_iter().enumerate() {
            let is_over = number >= ALWAYS_COPIED && start.elapsed() > limit;
            if self.bytes >= MAX_BYTES || is_over {
                self.was_cut_short = true;
                break;
            }
            let found = observe(&path, true);
            // The file must not have changed since the snapshot.
            if lstat(&path) == Some(*before) {
                self.insert(&path, *before, found);
            }
        }
    }

    /// Removes the states of files that have changed.
    fn remove_stale(&mut self, previous: Option<&StatSnapshot>, snapshot: &StatSnapshot) {
        let is_stale = |path: &Path, stat: &FileStat| snapshot.get(path) != Some(*stat);
        let Some(previous) = previous else {
            self.files.retain(|path, it| !is_stale(path, &it.0));
            let bytes = self.files.values().filter_map(|it| it.1.bytes.as_ref());
            self.bytes = bytes.map(|it| it.len()).sum();
            return;
        };
        for (folder, listing) in previous.folders_since(Some(snapshot)) {
            for entry in &listing.entries {
                let path = folder.join(&*entry.name);
                if self.files.get(&path).is_some_and(|it| is_stale(&path, &it.0)) {
                    self.remove(&path);
                }
            }
        }
    }

    /// The files in changed folders that are to be copied.
    fn wanted<'s>(
        &self,
        previous: Option<&'s StatSnapshot>,
        snapshot: &'s StatSnapshot,
        repositories: &[Arc<Repository>],
    ) -> Vec<(PathBuf, &'s FileStat)> {
        let mut wanted = Vec::new();
        for (folder, listing) in snapshot.folders_since(previous) {
            let indexed: Vec<_> = repositories.iter().filter_map(|it| it.folder(folder)).collect();
            for ListedEntry { name, stat } in &listing.entries {
                let is_link = match stat_kind(stat) {
                    StatKind::Folder => continue,
                    StatKind::Link => true,
                    StatKind::File => false,
                };
                let is_stored = || indexed.iter().any(|it| it.clean_blob(name, stat).is_some());
                if !is_link && (stat.size > MAX_CACHED_FILE || is_stored()) {
                    continue;
                }
                let path = folder.join(&**name);
                if self.get(&path, stat).is_none() && (is_link || !is_secret_path(&path)) {
                    wanted.push((path, stat));
                }
            }
        }
        wanted
    }
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

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn a_few_files_are_copied_however_long_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "content").unwrap();
        let stat = lstat(&path).unwrap();
        let snapshot = StatSnapshot::of_one_entry(folder.path(), "a", Some(stat));
        let mut contents = ContentCache::default();
        contents.preload_within(Duration::ZERO, None, &snapshot, &[]);
        let copied = contents.get(&path, &stat).unwrap();
        assert_eq!(copied.bytes.as_deref(), Some(&b"content"[..]));
    }
}
