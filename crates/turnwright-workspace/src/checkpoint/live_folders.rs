//! Follows the session's folders while a program may change them, beside the snapshots that are taken around
//! its call: a trap that it sets for other programs must not stand until the call ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::ChangeTracker;
use super::hidden_folders::{LinkedFolders, make_readable};
use super::snapshot::{StatSnapshot, WatchReader, WatchedFolders};
use crate::git_repository::GitRepository;

/// How long a snapshot may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The changes in at most this many repositories are reported at once. Others are compared.
const MAX_FOLLOWED: usize = 64;
/// How often to look where changes are not reported.
const UNREPORTED_PERIOD: Duration = Duration::from_millis(250);

/// The folders as they were at the last look.
#[derive(Debug)]
pub struct LiveFolders {
    watched: WatchedFolders,
    snapshot: Arc<StatSnapshot>,
    /// `None` where the system reports no changes.
    reader: Option<WatchReader>,
    /// There are more repositories than are followed, or links to folders that are not followed.
    is_partial: bool,
    /// The folders that could not be listed at first.
    unreadable: BTreeSet<PathBuf>,
}

/// Takes a snapshot, without files if there are too many. Blocks.
pub(super) fn take(watched: &mut WatchedFolders) -> Option<StatSnapshot> {
    let snapshot = StatSnapshot::take(watched, LIMIT, &Arc::default());
    if snapshot.is_err() && !watched.omits_files {
        *watched = watched.without_files();
        return StatSnapshot::take(watched, LIMIT, &Arc::default()).ok();
    }
    snapshot.ok()
}

/// The folders with the settings and hooks of what was found at a path, each with the folder in which it was found.
fn repository_folders(path: &Path) -> Vec<(PathBuf, &Path)> {
    let Some(parent) = path.parent() else { return Vec::new() };
    let folders = if path.is_dir() {
        vec![path.to_path_buf()]
    } else if path.ends_with(".git") {
        let found = GitRepository::at(parent).ok().flatten();
        // Only the last one, which the working trees share: when git removes a linked tree, it empties the tree's own
        // folder file by file.
        found.and_then(|found| found.settings_folders().pop()).into_iter().collect()
    } else {
        Vec::new()
    };
    folders.into_iter().map(|folder| (folder, parent)).collect()
}

impl ChangeTracker {
    /// Follows the folders from the last snapshot before a command on, or from now on if there is none; `None` if
    /// there are too many folders. Blocks.
    pub fn live_folders(&self) -> Option<LiveFolders> {
        let mut watched = self.watched()?;
        let inner = self.inner.lock();
        let last = inner.running_snapshot.upgrade();
        if inner.is_unsearched {
            return None;
        }
        drop(inner);
        let snapshot = match last {
            Some(snapshot) => snapshot,
            None => Arc::new(take(&mut watched)?),
        };
        let reader = snapshot.watch.as_ref().map(WatchReader::of);
        let unreadable = snapshot.unknown().map(Path::to_path_buf).collect();
        let mut live = LiveFolders { watched, snapshot, reader, is_partial: false, unreadable };
        live.follow();
        Some(live)
    }
}

impl LiveFolders {
    /// Waits until something may have changed. Safe to drop and call again.
    pub async fn changed(&mut self) {
        let Some(reader) = &mut self.reader else {
            return tokio::time::sleep(UNREPORTED_PERIOD).await;
        };
        let longest = if self.is_partial { UNREPORTED_PERIOD } else { Duration::MAX };
        if let Ok(Err(_)) = timeout(longest, reader.changed()).await {
            tokio::time::sleep(UNREPORTED_PERIOD).await;
        }
    }

    /// Looks for repositories, and files in subfolders that programs obey, that are not among `known`. Blocks.
    pub fn find_new(&mut self, known: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
        let changes = self.reader.as_ref().and_then(WatchReader::take_changes);
        let refreshed = changes.and_then(|changes| {
            self.snapshot.refresh_after(changes, &self.watched, LIMIT, &Arc::default())
        });
        let Some(snapshot) = refreshed.or_else(|| take(&mut self.watched)) else {
            // The changes that it has given are lost, so that all folders have to be listed the next time.
            self.reader = None;
            return Vec::new();
        };
        self.reader = match (self.reader.take(), snapshot.watch.as_ref()) {
            (Some(reader), Some(watch)) if reader.is_of(watch) => Some(reader),
            (_, watch) => watch.map(WatchReader::of),
        };
        self.snapshot = Arc::new(snapshot);
        // A folder that cannot be listed any more is listed the next time.
        for folder in self.snapshot.unknown().filter(|folder| !self.unreadable.contains(*folder)) {
            make_readable(folder);
        }
        self.follow().difference(known).cloned().collect()
    }

    /// Follows the settings and hooks of all repositories, whose folders may be new. Returns the repositories and files that are obeyed.
    fn follow(&mut self) -> BTreeSet<PathBuf> {
        let linked = LinkedFolders::look(&self.snapshot, &self.watched);
        let found = &self.snapshot.repositories() | &linked.found;
        let all = found.iter().flat_map(|path| repository_folders(path));
        let folders: BTreeMap<_, _> = all.take(MAX_FOLLOWED + 1).collect();
        for (repository, listed) in folders.iter().take(MAX_FOLLOWED) {
            if let Some(reader) = &self.reader {
                reader.follow_repository(repository, listed);
            }
        }
        self.is_partial = folders.len() > MAX_FOLLOWED || linked.has_unwatched;
        found
    }
}
