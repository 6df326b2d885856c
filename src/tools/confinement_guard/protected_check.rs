//! Checks the protected paths while one command runs and when it has ended. What has been set up for other programs
//! to run is taken away at once, as soon as the system reports it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::ignored_search::{IgnoredSearch, SearchPlace};
use super::super::kept_history::KeptHistory;
use super::super::linked_files::ChangedLayers;
use super::super::protected_snapshot::{ProtectedChanges, ProtectedSnapshot, installed_programs};
use super::{
    BACKGROUND_CHECK_PERIOD, CommandWatch, NOT_CHECKED, NOT_SEARCHED, SEARCH_PAUSE_FACTOR,
    environments_of, inode,
};
use tokio::task::spawn_blocking;
use turnwright_workspace::checkpoint::{ChangeTracker, LiveFolders};
use turnwright_workspace::exec::Job;

/// While a command goes on, one part in so many of the time, and of one processor, is spent on looking for traps. There is
/// a look after the longest pause in any case.
const LOOK_PAUSE_FACTOR: u32 = 10;
const LONGEST_LOOK_PAUSE: Duration = Duration::from_millis(250);
/// The same for looks that are slow, because all folders have to be listed.
const SLOW_LOOK_PAUSE_FACTOR: u32 = 2;
/// What is still there after this time is no step of a program on its way to something harmless.
pub(in super::super) const SETTLING_TIME: Duration = Duration::from_millis(5);

/// The checks of the protected paths during and after one command.
#[derive(Clone)]
pub(super) struct ProtectedCheck {
    pub(super) watch: Arc<CommandWatch>,
    pub(super) snapshot: Arc<ProtectedSnapshot>,
    pub(super) quarantine: PathBuf,
    pub(super) ignored: (IgnoredSearch, SearchPlace),
    pub(super) layers: Arc<ChangedLayers>,
    pub(super) history: Arc<KeptHistory>,
}

impl ProtectedCheck {
    pub(super) async fn run(self, job: Arc<Job>, checkpoint: ChangeTracker) {
        let followed = checkpoint.clone();
        let mut live = spawn_blocking(move || followed.live_folders()).await.ok().flatten();
        let mut check_at = Instant::now() + BACKGROUND_CHECK_PERIOD;
        let mut search_at = Instant::now();
        loop {
            let start = tokio::select! {
                _ = job.wait_for_end() => break,
                () = changed(&mut live) => Instant::now(),
                () = tokio::time::sleep_until(check_at.into()) => {
                    check_at = Instant::now() + BACKGROUND_CHECK_PERIOD;
                    if self.watch.is_in_background.load(Ordering::Relaxed) {
                        self.check_in_background(&checkpoint, &mut search_at).await;
                    }
                    continue;
                }
            };
            if let Some(followed) = live.take() {
                let check = self.clone();
                live = spawn_blocking(move || check.look_for_traps(followed)).await.ok();
            }
            if timeout(pause_after(start.elapsed()), job.wait_for_end()).await.is_ok() {
                break;
            }
        }
        let watch = Arc::clone(&self.watch);
        let done = watch.checked.clone().drop_guard();
        if spawn_blocking(move || self.at_end(&checkpoint)).await.is_err() {
            *watch.report.lock() = Some(NOT_CHECKED.to_owned());
        }
        drop(done);
    }

    async fn check_in_background(&self, checkpoint: &ChangeTracker, search_at: &mut Instant) {
        let (check, start) = (self.clone(), Instant::now());
        let searched = (*search_at <= start).then(|| checkpoint.clone());
        drop(spawn_blocking(move || check.during(searched.as_ref())).await);
        *search_at = (*search_at).max(start + start.elapsed() * SEARCH_PAUSE_FACTOR);
    }

    /// Takes away what has appeared or changed and what other programs would run or obey, while the command goes on.
    /// What is there for a moment only, because a program has not finished it, is left alone.
    fn look_for_traps(&self, mut live: LiveFolders) -> LiveFolders {
        if !self.watch.restores() {
            return live;
        }
        let new = live.find_new(self.snapshot.repositories());
        let mut allowed = self.watch.allowed.lock().clone();
        if self.watch.makes_environments {
            allowed.extend(environments_of(&new));
        }
        let reference = Some(Arc::clone(&self.snapshot));
        let new = ProtectedSnapshot::without_repositories(new, reference);
        let own = self.snapshot.own_repositories();
        // git writes steps and settings of its own for a while, and runs the steps only if it is told to.
        let is_trap = |path: &Path| {
            !path.ends_with("git-rebase-todo") && !own.iter().any(|own| path.starts_with(own))
        };
        let look = |restores: bool| {
            let traps = new.check_if(&allowed, &self.quarantine, restores, &is_trap);
            // Installers write a package's programs before the list that names them.
            let allowed = [self.allowed_now(), self.watch.installs_in.clone()].concat();
            let files = self.snapshot.check_if(&allowed, &self.quarantine, restores, &is_trap);
            [traps, files].into_iter().flatten().collect::<Vec<_>>()
        };
        if !look(false).is_empty() {
            std::thread::sleep(SETTLING_TIME);
            for changes in look(true) {
                self.tell(&changes, true);
            }
        }
        live
    }

    /// Undoes what has been changed while the command goes on, also in new repositories if these are to
    /// be searched for. What cannot be undone is told at its end.
    fn during(&self, searched: Option<&ChangeTracker>) {
        if !self.watch.restores() {
            return;
        }
        if let Some(checkpoint) = searched {
            self.ignored.0.request(self.ignored.1.clone());
            self.check_repositories(checkpoint, true);
        }
        if let Some(changes) = self.check(true).filter(|it| !it.restored.is_empty()) {
            self.tell(&changes, true);
        }
    }

    fn at_end(&self, checkpoint: &ChangeTracker) {
        for failed in self.layers.publish() {
            self.add_to_report(&failed);
        }
        if let Some(report) = self.history.put_back() {
            self.add_to_report(&report);
        }
        let restores = self.watch.restores();
        if let Some(changes) = self.check(restores) {
            self.tell(&changes, restores);
        }
        if restores {
            self.ignored.0.request(self.ignored.1.clone());
        }
        // Those that a command makes before its call returns are found with the changes of the call, if these are.
        if self.watch.is_in_background.load(Ordering::Relaxed) || !checkpoint.compares_files() {
            self.check_repositories(checkpoint, restores);
        }
    }

    /// Checks the repositories that have appeared since the command began.
    fn check_repositories(&self, checkpoint: &ChangeTracker, restores: bool) {
        let (new, may_be_more) = checkpoint.find_new_repositories(self.snapshot.repositories());
        let mut allowed = self.watch.allowed.lock().clone();
        if self.watch.makes_environments {
            allowed.extend(environments_of(&new));
        }
        let reference = Some(Arc::clone(&self.snapshot));
        let snapshot = ProtectedSnapshot::without_repositories(new, reference);
        if let Some(changes) = snapshot.check(&allowed, &self.quarantine, restores) {
            self.tell(&changes, restores);
        }
        if may_be_more {
            self.add_to_report(NOT_SEARCHED);
        }
    }

    fn check(&self, restores: bool) -> Option<ProtectedChanges> {
        let mut allowed = self.allowed_now();
        let environments = self.watch.installs_in.iter();
        allowed.extend(environments.flat_map(|environment| installed_programs(environment)));
        self.snapshot.check(&allowed, &self.quarantine, restores)
    }

    /// The paths that the command may change, and those that others have changed because it cannot.
    fn allowed_now(&self) -> Vec<PathBuf> {
        let mut allowed = self.watch.allowed.lock().clone();
        let inodes = self.watch.read_only_inodes.iter();
        let same = inodes.filter(|(path, number)| inode(path) == Some((*number, true)));
        allowed.extend(same.map(|(path, _)| path.clone()));
        allowed
    }

    fn tell(&self, changes: &ProtectedChanges, restores: bool) {
        tracing::warn!(?changes, "a command changed protected paths");
        self.add_to_report(&changes.message(restores));
    }

    /// Adds a text, unless the report has it already.
    fn add_to_report(&self, text: &str) {
        let mut report = self.watch.report.lock();
        let report = report.get_or_insert_default();
        if report.contains(text) {
            return;
        }
        if !report.is_empty() {
            report.push('\n');
        }
        report.push_str(text);
    }
}

/// How long to wait after a look that has taken so long.
pub(in super::super) fn pause_after(look: Duration) -> Duration {
    (look * LOOK_PAUSE_FACTOR).min(LONGEST_LOOK_PAUSE.max(look * SLOW_LOOK_PAUSE_FACTOR))
}

/// Waits until something may have changed in the folders; for ever if they cannot be followed.
pub(in super::super) async fn changed(live: &mut Option<LiveFolders>) {
    match live {
        Some(live) => live.changed().await,
        None => std::future::pending().await,
    }
}
