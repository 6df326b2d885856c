//! Searches ignored folders, at any depth, for repositories that commands and servers have made there.
//! Such folders may hold hundreds of thousands of files, so this takes place beside the calls, and takes
//! at most a small part of the time. What is found is told with the next request or prompt.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::protected_snapshot::{ProtectedChanges, ProtectedSnapshot};
use crate::watch::server_watch::changed_at;
use crate::watch::{NOT_SEARCHED, SEARCH_PAUSE_FACTOR};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::checkpoint::ChangeTracker;

/// The longest pause between two searches.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The search of a session. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct IgnoredSearch(Arc<Mutex<SearchState>>);

#[derive(Debug, Default)]
struct SearchState {
    is_running: bool,
    is_due: bool,
    /// The repositories that were there before the first command; `None` until they are known.
    known: Option<BTreeSet<PathBuf>>,
    /// The programs that git runs in the repositories that the last search has found.
    snapshot: Option<Arc<ProtectedSnapshot>>,
    has_told_limit: bool,
    report: Option<String>,
}

impl IgnoredSearch {
    /// Notes what is there, before the first command. Returns at once.
    pub(crate) fn begin(&self, place: SearchPlace) {
        if self.0.lock().known.is_none() {
            self.request(place);
        }
    }

    /// Searches soon. Returns at once.
    pub(crate) fn request(&self, place: SearchPlace) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !place.checkpoint.has_ignored() {
            return;
        }
        let mut state = self.0.lock();
        state.is_due = true;
        if !std::mem::replace(&mut state.is_running, true) {
            let tracker = place.tracker.clone();
            tracker.spawn_on(self.clone().run(place), &runtime);
        }
    }

    async fn run(self, place: SearchPlace) {
        let requested = SystemTime::now();
        loop {
            self.0.lock().is_due = false;
            let start = Instant::now();
            let search = self.clone();
            let own = place.clone();
            let searching = spawn_blocking(move || search.search(&own, requested));
            if let Err(error) = searching.await {
                tracing::error!(%error, "the search of ignored folders has failed");
            }
            let pause = (start.elapsed() * SEARCH_PAUSE_FACTOR).min(MAX_PAUSE);
            // At the end of the session what is due is done at once.
            place.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            let mut state = self.0.lock();
            if !state.is_due {
                state.is_running = false;
                return;
            }
        }
    }

    fn search(&self, place: &SearchPlace, requested: SystemTime) {
        let (found, is_complete) = place.checkpoint.find_in_ignored();
        let state = self.0.lock();
        let known = state.known.clone();
        let before = state.snapshot.clone();
        drop(state);
        let before = before.as_deref();
        let changed = before.and_then(|before| undo_changes(before, &place.quarantine));
        // At the first search, only older repositories count as there before.
        let known = known.unwrap_or_else(|| {
            found.iter().filter(|git| is_older(git, requested)).cloned().collect()
        });
        let new: Vec<_> = found.difference(&known).cloned().collect();
        let snapshot = ProtectedSnapshot::without_repositories(new, None);
        let made = snapshot.check(&[], &place.quarantine, true);
        let changes: Vec<_> = changed.into_iter().chain(made).collect();
        if !changes.is_empty() {
            tracing::warn!(?changes, "a repository in an ignored folder starts programs");
        }
        // One that is gone is new when it is there again.
        let found = if is_complete { found } else { &known | &found };
        let all = Arc::new(found.clone());
        let snapshot = ProtectedSnapshot::take(&ProtectedPaths::default(), all, before);
        let mut state = self.0.lock();
        state.known = Some(found);
        state.snapshot = Some(Arc::new(snapshot));
        let limit = !is_complete && !std::mem::replace(&mut state.has_told_limit, !is_complete);
        let texts = changes.into_iter().map(|changes| changes.message(true));
        for text in texts.chain(limit.then(|| NOT_SEARCHED.to_owned())) {
            let report = state.report.get_or_insert_default();
            report.push_str(&text);
            report.push('\n');
        }
    }

    pub(crate) fn take_report(&self) -> Option<String> {
        self.0.lock().report.take()
    }
}

fn is_older(git: &Path, time: SystemTime) -> bool {
    let config = if git.is_dir() { git.join("config") } else { git.to_path_buf() };
    changed_at(&config).is_none_or(|changed| changed < time)
}

/// Undoes changes of known repositories that make git run something there. Everything else, such as another
/// address of a remote, is the work of package managers.
fn undo_changes(before: &ProtectedSnapshot, quarantine: &Path) -> Option<ProtectedChanges> {
    let changed: BTreeSet<_> = before.check(&[], quarantine, false)?.paths.into_iter().collect();
    let all = before
        .repositories()
        .iter()
        .filter(|git| changed.iter().any(|path| path.starts_with(git)))
        .cloned()
        .collect();
    // They are judged as if they were new.
    let new = ProtectedSnapshot::without_repositories(all, None);
    let risky = new.check_if(&[], quarantine, false, &|path| changed.contains(path))?.paths;
    before.check_if(&[], quarantine, true, &|path| risky.iter().any(|risky| risky == path))
}

/// The parts of the session that the search needs.
#[derive(Clone, Debug)]
pub(crate) struct SearchPlace {
    pub(crate) checkpoint: ChangeTracker,
    pub(crate) quarantine: PathBuf,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
}
