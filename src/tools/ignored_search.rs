//! Searches ignored folders, at any depth, for repositories that commands and servers have made there.
//! Such folders may hold hundreds of thousands of files, so this takes place beside the calls, and takes
//! at most a small part of the time. What is found is told with the next request or prompt.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::confinement_guard::{NOT_SEARCHED, SEARCH_PAUSE_FACTOR};
use super::protected_snapshot::ProtectedSnapshot;
use super::server_watch::changed_at;
use tokio::task::spawn_blocking;
use turnwright_workspace::checkpoint::ChangeTracker;

/// The longest pause between two searches.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The search of a session. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoredSearch(Arc<Mutex<SearchState>>);

#[derive(Debug, Default)]
struct SearchState {
    is_running: bool,
    is_due: bool,
    /// The repositories that were there before the first command; `None` until they are known.
    known: Option<BTreeSet<PathBuf>>,
    has_told_limit: bool,
    report: Option<String>,
}

impl IgnoredSearch {
    /// Notes what is there, before the first command. Returns at once.
    pub(super) fn begin(&self, place: SearchPlace) {
        if self.0.lock().known.is_none() {
            self.request(place);
        }
    }

    /// Searches soon. Returns at once.
    pub(super) fn request(&self, place: SearchPlace) {
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
            let (search, own) = (self.clone(), place.clone());
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
        let known = self.0.lock().known.clone();
        // Of the first search only what is older than it was there before.
        let is_old = |it: &&PathBuf| {
            let config = if it.is_dir() { it.join("config") } else { (*it).clone() };
            changed_at(&config).is_none_or(|time| time < requested)
        };
        let known = known.unwrap_or_else(|| found.iter().filter(is_old).cloned().collect());
        let new: Vec<_> = found.difference(&known).cloned().collect();
        let snapshot = ProtectedSnapshot::without_repositories(new, None);
        let changes = snapshot.check(&[], &place.quarantine, true);
        if let Some(changes) = &changes {
            tracing::warn!(?changes, "a command made a repository that starts programs");
        }
        let mut state = self.0.lock();
        state.known = Some(&known | &found);
        let limit = !is_complete && !std::mem::replace(&mut state.has_told_limit, !is_complete);
        let texts = changes.map(|it| it.message(true)).into_iter();
        for text in texts.chain(limit.then(|| NOT_SEARCHED.to_owned())) {
            let report = state.report.get_or_insert_default();
            report.push_str(&text);
            report.push('\n');
        }
    }

    pub(super) fn take_report(&self) -> Option<String> {
        self.0.lock().report.take()
    }
}

/// What the search needs of the session.
#[derive(Clone, Debug)]
pub(super) struct SearchPlace {
    pub(super) checkpoint: ChangeTracker,
    pub(super) quarantine: PathBuf,
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
}
