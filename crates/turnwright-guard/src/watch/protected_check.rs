//! Checks the protected paths while one command runs and when it has ended. Files that other programs would run are
//! taken away as soon as the system reports them.
//!
//! Ignored folders are searched, at any depth, for repositories that commands and servers have made there. Such
//! folders may hold hundreds of thousands of files, so this takes place beside the calls, and takes at most a small
//! part of the time. What is found is told with the next request or prompt.
//!
//! Changes that file tools and other commands make there at the same time, because the user has allowed them, are
//! remembered.
//! All other changes are made by the programs in the sandbox.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::checkpoint::{ChangeTracker, LiveFolders};
use turnwright_workspace::exec::Job;

use super::{
    BACKGROUND_CHECK_PERIOD, CommandWatch, NOT_CHECKED, NOT_SEARCHED, SEARCH_PAUSE_FACTOR,
    add_to_report, environments_of, inode,
};
use crate::confinement::linked_files::ChangedLayers;
use crate::protected_snapshot::{ProtectedChanges, ProtectedSnapshot};
use crate::watch::kept_history::KeptHistory;
use crate::watch::server_watch::{WatchedServers, changed_at, changed_near};
use crate::watch::unfinished_commands::RunningMark;

/// While a command runs, one part in this many of the time, and of one processor, is spent on looking for traps. There
/// is a look after the longest pause in any case.
const LOOK_PAUSE_FACTOR: u32 = 10;
const LONGEST_LOOK_PAUSE: Duration = Duration::from_millis(250);
/// The same for looks that are slow, because all folders have to be listed.
const SLOW_LOOK_PAUSE_FACTOR: u32 = 2;
/// A command that takes less time is only looked at when it has ended.
const FIRST_LOOK_AFTER: Duration = Duration::from_millis(25);
/// A command that sets a trap anew after it was taken away so many times is stopped.
const MAX_TAKEN_AWAY: u32 = 5;
const STOPPED: &str = "[protected: the command was stopped, because it wrote a file that other programs run again and again]";
/// A file that is still there after this time is no intermediate step of a harmless program.
pub(crate) const SETTLING_TIME: Duration = Duration::from_millis(5);

/// The checks of the protected paths during and after one command.
#[derive(Clone)]
pub(super) struct ProtectedCheck {
    pub(super) watch: Arc<CommandWatch>,
    pub(super) snapshot: Arc<ProtectedSnapshot>,
    pub(super) quarantine: PathBuf,
    pub(super) ignored: (IgnoredSearch, SearchPlace),
    pub(super) layers: Arc<ChangedLayers>,
    pub(super) history: Arc<KeptHistory>,
    pub(super) others: Arc<OtherChanges>,
    /// Removed when the last check is done.
    pub(super) _running: Arc<Option<RunningMark>>,
    pub(super) servers: Arc<WatchedServers>,
}

impl ProtectedCheck {
    pub(super) async fn run(self, job: Arc<Job>, checkpoint: ChangeTracker) {
        let followed = checkpoint.clone();
        let mut live = spawn_blocking(move || followed.live_folders()).await.ok().flatten();
        let mut check_at = Instant::now() + BACKGROUND_CHECK_PERIOD;
        let mut search_at = Instant::now();
        let mut taken_away: HashMap<PathBuf, u32> = HashMap::new();
        // The command may have begun before its folders were followed.
        let mut first_look = Some(Instant::now() + FIRST_LOOK_AFTER);
        loop {
            let start = tokio::select! {
                _ = job.wait_for_end() => break,
                Some(()) = sleep_until(first_look) => {
                    first_look = None;
                    Instant::now()
                }
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
                let look = spawn_blocking(move || check.look_for_traps(followed)).await;
                let (followed, traps) =
                    look.map_or((None, Vec::new()), |(live, traps)| (Some(live), traps));
                live = followed;
                if self.sets_traps_again(&mut taken_away, traps) {
                    job.stop();
                }
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
        let check = self.clone();
        let start = Instant::now();
        let searched = (*search_at <= start).then(|| checkpoint.clone());
        spawn_blocking(move || check.during(searched.as_ref())).await.ok();
        *search_at = (*search_at).max(start + start.elapsed() * SEARCH_PAUSE_FACTOR);
    }

    /// Takes away new and changed files that other programs would run or obey, while the command goes on. Returns the
    /// paths. Files that exist only for a moment, because a program has not finished them, are left alone.
    fn look_for_traps(&self, mut live: LiveFolders) -> (LiveFolders, Vec<PathBuf>) {
        let new = live.find_new(self.snapshot.repositories());
        let allowed = self.watch.changes.paths.clone();
        let made = environments_of(&new).filter(|_| self.watch.changes.makes_environments);
        let environments: Vec<_> =
            self.watch.changes.installs_in.iter().cloned().chain(made).collect();
        let reference = Some(Arc::clone(&self.snapshot));
        let new = ProtectedSnapshot::without_repositories(new, reference);
        // git writes its steps for a while, and runs them only if it is told to. A missing file is no trap: perhaps the
        // command is deleting the whole folder, which will be known at its end.
        let is_trap = |path: &Path| {
            path.symlink_metadata().is_ok()
                && !path.ends_with("git-rebase-todo")
                && self.is_own(path)
                && !self.is_being_made(path, &environments)
        };
        let look = |restores: bool| {
            let traps = new.check_if(&allowed, &self.quarantine, restores, &is_trap);
            let allowed = self.allowed_now();
            let files = self.snapshot.check_if(&allowed, &self.quarantine, restores, &is_trap);
            [traps, files].into_iter().flatten().collect::<Vec<_>>()
        };
        if look(false).is_empty() {
            return (live, Vec::new());
        }
        std::thread::sleep(SETTLING_TIME);
        let traps = look(true);
        for changes in &traps {
            self.tell(changes, true);
        }
        (live, traps.into_iter().flat_map(|changes| changes.paths).collect())
    }

    /// Returns true, and reports that the command is stopped, if it sets a trap again and again.
    fn sets_traps_again(
        &self,
        taken_away: &mut HashMap<PathBuf, u32>,
        traps: Vec<PathBuf>,
    ) -> bool {
        let mut is_again = false;
        for path in traps {
            let count = taken_away.entry(path).or_default();
            *count += 1;
            is_again |= *count >= MAX_TAKEN_AWAY;
        }
        if is_again {
            self.add_to_report(STOPPED);
        }
        is_again
    }

    /// Returns true if a change can only be the command's, so that it is undone.
    fn is_own(&self, path: &Path) -> bool {
        let time = changed_near(path);
        !self.others.are_unknown(time) && !self.others.are_allowed(path, time)
    }

    /// Returns true if it is not known who made a change.
    fn is_of_unknown(&self, path: &Path) -> bool {
        let time = changed_near(path);
        self.others.are_unknown(time) && !self.others.are_allowed(path, time)
    }

    /// Undoes changes while the command goes on, also in new repositories if these are to be searched
    /// for. Changes that cannot be undone are reported at its end.
    fn during(&self, searched: Option<&ChangeTracker>) {
        if let Some(checkpoint) = searched {
            self.ignored.0.request(self.ignored.1.clone());
            self.check_repositories(checkpoint, true);
        }
        let allowed = self.allowed_now();
        let changes = self.snapshot.check_if(&allowed, &self.quarantine, true, &|path| {
            self.is_own(path) && !self.is_being_made(path, &self.watch.changes.installs_in)
        });
        if let Some(changes) = changes.filter(|changes| !changes.restored.is_empty()) {
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
        let installed = self.installed(false);
        // From now on, installed files stay as they are, whoever changes them.
        self.servers.note_told(&installed);
        self.servers.end_allowed(&self.watch.changes.paths);
        let allowed = [self.allowed_now(), installed].concat();
        let quarantine = &self.quarantine;
        let own = self.snapshot.check_if(&allowed, quarantine, true, &|path| self.is_own(path));
        if let Some(changes) = own {
            self.tell(&changes, true);
        }
        if self.others.have_been_unknown()
            && let Some(changes) = self
                .snapshot
                .check_if(&allowed, quarantine, false, &|path| self.is_of_unknown(path))
        {
            self.tell(&changes, false);
        }
        self.ignored.0.request(self.ignored.1.clone());
        // Those that a command makes before its call returns are found with the changes of the call, if these are.
        if self.watch.is_in_background.load(Ordering::Relaxed) || !checkpoint.compares_files() {
            self.check_repositories(checkpoint, false);
        }
    }

    /// Checks the repositories that have appeared since the command began.
    fn check_repositories(&self, checkpoint: &ChangeTracker, is_installing: bool) {
        let (new, may_be_more) = checkpoint.find_new_repositories(self.snapshot.repositories());
        let mut allowed = self.watch.changes.paths.clone();
        let made = self.made_in_new(&new, is_installing);
        self.servers.note_told(&made);
        allowed.extend(made);
        let reference = Some(Arc::clone(&self.snapshot));
        let snapshot = ProtectedSnapshot::without_repositories(new, reference);
        let own = snapshot.check_if(&allowed, &self.quarantine, true, &|path| self.is_own(path));
        if let Some(changes) = own {
            self.tell(&changes, true);
        }
        if may_be_more {
            self.add_to_report(NOT_SEARCHED);
        }
    }

    /// The programs that the command has made in the environments that it may change.
    fn installed(&self, is_installing: bool) -> Vec<PathBuf> {
        self.snapshot.accepted_programs(self.watch.changes.installs_in.clone(), is_installing)
    }

    /// Returns true if an installer that has not finished may have made the file at this path. It writes a package's
    /// programs before the list that names them.
    fn is_being_made(&self, path: &Path, environments: &[PathBuf]) -> bool {
        let of_path = environments.iter().filter(|environment| path.starts_with(environment));
        self.snapshot.accepted_programs(of_path.cloned(), true).iter().any(|made| path == made)
    }

    /// The programs that it has made in new environments, if it may make some.
    fn made_in_new(&self, new: &[PathBuf], is_installing: bool) -> Vec<PathBuf> {
        let environments = environments_of(new).filter(|_| self.watch.changes.makes_environments);
        self.snapshot.accepted_programs(environments, is_installing)
    }

    /// The paths that the command may change, and the read-only ones that only others can have changed.
    fn allowed_now(&self) -> Vec<PathBuf> {
        let mut allowed = self.watch.changes.paths.clone();
        let inodes = self.watch.changes.read_only_inodes.iter();
        let same = inodes.filter(|(path, number)| inode(path) == Some((*number, true)));
        allowed.extend(same.map(|(path, _)| path.clone()));
        allowed
    }

    fn tell(&self, changes: &ProtectedChanges, restores: bool) {
        tracing::warn!(?changes, "a command changed protected paths");
        self.add_to_report(&changes.message(restores));
    }

    fn add_to_report(&self, text: &str) {
        add_to_report(&mut self.watch.report.lock(), text);
    }
}

/// How long to wait after a look that has taken so long.
pub(crate) fn pause_after(look: Duration) -> Duration {
    (look * LOOK_PAUSE_FACTOR).min(LONGEST_LOOK_PAUSE.max(look * SLOW_LOOK_PAUSE_FACTOR))
}

/// Waits for a moment, if there is one.
async fn sleep_until(moment: Option<Instant>) -> Option<()> {
    tokio::time::sleep_until(moment?.into()).await;
    Some(())
}

/// Waits until something may have changed in the folders; forever if they cannot be followed.
pub(crate) async fn changed(live: &mut Option<LiveFolders>) {
    match live {
        Some(live) => live.changed().await,
        None => std::future::pending().await,
    }
}

/// The clock of file systems may lag behind the system's by this much.
pub(crate) const CLOCK_LAG: Duration = Duration::from_millis(20);
/// At most this many changes are remembered; of more, the oldest are forgotten.
const MAX_CHANGES: usize = 1_000;

/// The changes that others were allowed to make in a session.
#[derive(Debug, Default)]
pub(crate) struct OtherChanges(Mutex<Vec<OtherChange>>);

#[derive(Debug)]
struct OtherChange {
    /// The path that may be changed; `None` for a command without a sandbox, which may change anything.
    path: Option<PathBuf>,
    from: SystemTime,
    /// `None` until it is over.
    until: Option<SystemTime>,
    call: Arc<()>,
}

/// A call that may change protected paths. It is over when this is dropped.
#[derive(Debug)]
pub struct ChangingCall {
    changes: Arc<OtherChanges>,
    call: Arc<()>,
}

impl OtherChanges {
    /// Notes that a call changes these paths from now on, or anything if one is `None`.
    pub(super) fn begin(
        self: &Arc<Self>,
        paths: impl IntoIterator<Item = Option<PathBuf>>,
    ) -> ChangingCall {
        let call = Arc::new(());
        let from = SystemTime::now() - CLOCK_LAG;
        let mut changes = self.0.lock();
        for path in paths {
            changes.push(OtherChange { path, from, until: None, call: Arc::clone(&call) });
        }
        let more = changes.len().saturating_sub(MAX_CHANGES);
        changes.drain(..more);
        ChangingCall { changes: Arc::clone(self), call }
    }

    /// Returns true if a call was allowed to change a path at that time.
    pub(crate) fn are_allowed(&self, path: &Path, time: SystemTime) -> bool {
        self.0.lock().iter().any(|change| {
            change.has(time)
                && change.path.as_ref().is_some_and(|allowed| path.starts_with(allowed))
        })
    }

    /// Returns true if a command without a sandbox is remembered.
    fn have_been_unknown(&self) -> bool {
        self.0.lock().iter().any(|change| change.path.is_none())
    }

    /// Returns true if a command without a sandbox was running at that time.
    pub(super) fn are_unknown(&self, time: SystemTime) -> bool {
        self.0.lock().iter().any(|change| change.has(time) && change.path.is_none())
    }
}

impl OtherChange {
    fn has(&self, time: SystemTime) -> bool {
        self.from <= time && self.until.is_none_or(|until| time <= until)
    }
}

impl Drop for ChangingCall {
    fn drop(&mut self) {
        let mut changes = self.changes.0.lock();
        for change in changes.iter_mut().filter(|change| Arc::ptr_eq(&change.call, &self.call)) {
            change.until = Some(SystemTime::now() + CLOCK_LAG);
        }
    }
}

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
        if place.checkpoint.ignored_folders().is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_may_change_it_may_change_only_while_it_runs() {
        let changes = Arc::new(OtherChanges::default());
        let path = Path::new("/p/.envrc");
        let now = SystemTime::now;
        let before = now() - Duration::from_secs(1);
        let write = changes.begin([Some(path.to_path_buf())]);
        let command = changes.begin([None]);
        assert!(changes.are_allowed(path, now()) && !changes.are_allowed(path, before));
        assert!(!changes.are_allowed(Path::new("/p/.envrc2"), now()));
        assert!(changes.are_unknown(now()) && !changes.are_unknown(before));
        drop(write);
        drop(command);
        let later = now() + CLOCK_LAG * 2;
        assert!(!changes.are_allowed(path, later) && !changes.are_unknown(later));
        assert!(changes.are_allowed(path, now()) && changes.are_unknown(now()));
    }
}
