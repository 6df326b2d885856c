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

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::checkpoint::{ChangeTracker, LiveFolders};
use turnwright_workspace::exec::Job;

use super::{
    AllowedChanges, BACKGROUND_CHECK_PERIOD, CommandWatch, ConfinementGuard, NOT_CHECKED,
    NOT_SEARCHED, SEARCH_PAUSE_FACTOR, add_to_report,
};
use crate::confinement::CommandSite;
use crate::confinement::linked_files::{ChangedLayers, inode};
use crate::protected_snapshot::{ProtectedChanges, ProtectedSnapshot};
use crate::watch::kept_history::KeptHistory;
use crate::watch::server_watch::{changed_at, changed_near};

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

/// The part of a [`CommandSite`] that checks use after a call. They keep neither its client nor its folders alive.
#[derive(Clone)]
pub(super) struct CheckSite {
    pub(super) guard: Arc<ConfinementGuard>,
    pub(super) tracker: Arc<ChangeTracker>,
    /// The folder for what is taken away.
    pub(super) quarantine: PathBuf,
}

/// The checks of the protected paths during and after one command.
pub(super) struct ProtectedCheck {
    pub(super) site: CheckSite,
    pub(super) job: Arc<Job>,
    pub(super) watch: Arc<CommandWatch>,
    pub(super) snapshot: Arc<ProtectedSnapshot>,
    pub(super) layers: ChangedLayers,
    pub(super) history: KeptHistory,
}

impl ProtectedCheck {
    pub(super) async fn run(self: Arc<Self>) {
        let job = Arc::clone(&self.job);
        let followed = Arc::clone(&self.site.tracker);
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
                        self.check_in_background(&mut search_at).await;
                    }
                    continue;
                }
            };
            if let Some(followed) = live.take() {
                let check = Arc::clone(&self);
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
        let guard = Arc::clone(&self.site.guard);
        let done = self.watch.checked.clone().drop_guard();
        if spawn_blocking(move || self.at_end()).await.is_err() {
            guard.state.lock().reports.insert(job.id().to_owned(), NOT_CHECKED.to_owned());
        }
        drop(done);
    }

    async fn check_in_background(self: &Arc<Self>, search_at: &mut Instant) {
        let check = Arc::clone(self);
        let start = Instant::now();
        let searches = *search_at <= start;
        spawn_blocking(move || check.during(searches)).await.ok();
        *search_at = (*search_at).max(start + start.elapsed() * SEARCH_PAUSE_FACTOR);
    }

    /// Takes away new and changed files that other programs would run or obey, while the command goes on. Returns the
    /// paths. Files that exist only for a moment, because a program has not finished them, are left alone.
    fn look_for_traps(&self, mut live: LiveFolders) -> (LiveFolders, Vec<PathBuf>) {
        let new = live.find_new(&self.snapshot.repositories);
        let AllowedChanges { paths, installs_in, .. } = &self.watch.changes;
        let environments: Vec<_> =
            installs_in.iter().cloned().chain(self.made_environments(&new)).collect();
        let reference = Some(Arc::clone(&self.snapshot));
        let new = ProtectedSnapshot::without_repositories(new, reference);
        // git writes its steps for a while, and runs them only if it is told to. A missing file is no trap: perhaps the
        // command is deleting the whole folder, which will be known at its end.
        let is_trap = |path: &Path| {
            path.symlink_metadata().is_ok()
                && !path.ends_with("git-rebase-todo")
                && self.site.guard.is_own(path)
                && !self.is_being_made(path, &environments)
        };
        let look = |quarantine: Option<&Path>| {
            let traps = new.check_if(paths, quarantine, &is_trap);
            let files = self.snapshot.check_if(&self.allowed_now(), quarantine, &is_trap);
            [traps, files].into_iter().flatten().collect::<Vec<_>>()
        };
        if look(None).is_empty() {
            return (live, Vec::new());
        }
        std::thread::sleep(SETTLING_TIME);
        let traps = look(Some(&self.site.quarantine));
        self.tell(&traps);
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

    /// Undoes changes while the command goes on, also in new repositories if `searches` is set.
    /// Changes that cannot be undone are reported at its end.
    fn during(&self, searches: bool) {
        if searches {
            self.site.search_ignored();
            self.check_repositories(true);
        }
        let quarantine = &self.site.quarantine;
        let environments = &self.watch.changes.installs_in;
        let changes = self.snapshot.check_if(&self.allowed_now(), Some(quarantine), &|path| {
            self.site.guard.is_own(path) && !self.is_being_made(path, environments)
        });
        self.tell(&changes.filter(|changes| !changes.restored.is_empty()));
    }

    fn at_end(&self) {
        let guard = &self.site.guard;
        for failed in self.layers.publish() {
            self.add_to_report(&failed);
        }
        if let Some(report) = self.history.put_back() {
            self.add_to_report(&report);
        }
        let environments = self.watch.changes.installs_in.clone();
        let installed = self.snapshot.accepted_programs(environments, false);
        // From now on, installed files stay as they are, whoever changes them.
        guard.note_told(&installed);
        guard.state.lock().changes.end_allowed(&self.watch.changes.paths);
        let allowed = [self.allowed_now(), installed].concat();
        self.undo_own(&self.snapshot, &allowed);
        if guard.state.lock().changes.have_been_unknown() {
            self.tell(&self.snapshot.check_if(&allowed, None, &|path| {
                guard.is_of_unknown(path) && !guard.is_of_call(path)
            }));
        }
        self.site.search_ignored();
        // Those that a command makes before its call returns are found with the changes of the call, if these are.
        let is_in_background = self.watch.is_in_background.load(Ordering::Relaxed);
        if is_in_background || !self.site.tracker.compares_files() {
            self.check_repositories(false);
        }
    }

    /// Undoes the changes that can only be the command's.
    fn undo_own(&self, snapshot: &ProtectedSnapshot, allowed: &[PathBuf]) {
        let CheckSite { guard, quarantine, .. } = &self.site;
        let undo = || snapshot.check_if(allowed, Some(quarantine), &|path| guard.is_own(path));
        let own = undo();
        let mut paths = own.iter().flat_map(|changes| &changes.paths);
        // The place to which a `.git` led before is seen once that is put back.
        let again = paths.any(|path| path.ends_with(".git")).then(undo).flatten();
        let more = again.filter(|changes| !changes.restored.is_empty());
        self.tell(own.iter().chain(&more));
    }

    /// Checks the repositories that have appeared since the command began.
    fn check_repositories(&self, is_installing: bool) {
        let known = &self.snapshot.repositories;
        let (new, may_be_more) = self.site.tracker.find_new_repositories(known);
        let mut allowed = self.watch.changes.paths.clone();
        let made = self.snapshot.accepted_programs(self.made_environments(&new), is_installing);
        self.site.guard.note_told(&made);
        allowed.extend(made);
        let reference = Some(Arc::clone(&self.snapshot));
        self.undo_own(&ProtectedSnapshot::without_repositories(new, reference), &allowed);
        let state = &self.site.guard.state;
        let was_told = std::mem::replace(&mut state.lock().ignored.may_lack_new, may_be_more);
        if may_be_more && !was_told {
            self.add_to_report(NOT_SEARCHED);
        }
    }

    /// Returns true if an installer that has not finished may have made the file at this path. It writes a package's
    /// programs before the list that names them.
    fn is_being_made(&self, path: &Path, environments: &[PathBuf]) -> bool {
        let of_path = environments.iter().filter(|environment| path.starts_with(environment));
        self.snapshot.accepted_programs(of_path.cloned(), true).iter().any(|made| path == made)
    }

    /// The new environments among these paths, if the command may make some.
    fn made_environments(&self, new: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
        environments_of(new).filter(|_| self.watch.changes.makes_environments)
    }

    /// The paths that the command may change, and the read-only ones that only others can have changed.
    fn allowed_now(&self) -> Vec<PathBuf> {
        let mut allowed = self.watch.changes.paths.clone();
        let inodes = self.watch.changes.read_only_inodes.iter();
        let same = inodes.filter(|(path, number)| inode(path) == Some((*number, true)));
        allowed.extend(same.map(|(path, _)| path.clone()));
        allowed
    }

    fn tell<'a>(&self, all: impl IntoIterator<Item = &'a ProtectedChanges>) {
        for changes in all {
            tracing::warn!(?changes, "a command changed protected paths");
            self.add_to_report(&changes.message());
        }
    }

    fn add_to_report(&self, text: &str) {
        let reports = &mut self.site.guard.state.lock().reports;
        add_to_report(reports.entry(self.job.id().to_owned()).or_default(), text);
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
/// At most this many changes are remembered of each kind.
const MAX_CHANGES: usize = 1_000;

/// The changes of a session that others were allowed to make, or that were told.
#[derive(Debug, Default)]
pub(super) struct KnownChanges {
    /// The changes that calls, and commands without a sandbox, were allowed to make.
    others: Vec<OtherChange>,
    /// Paths that commands were allowed to change, and the time in which they do.
    allowed: Vec<(PathBuf, RangeInclusive<SystemTime>)>,
    /// Changes that were told, with their times.
    told: HashSet<(PathBuf, SystemTime)>,
}

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
    guard: Arc<ConfinementGuard>,
    call: Arc<()>,
}

impl ChangingCall {
    /// Notes that a call changes these paths from now on, or anything if one is `None`.
    pub(super) fn begin(
        guard: &Arc<ConfinementGuard>,
        paths: impl IntoIterator<Item = Option<PathBuf>>,
    ) -> ChangingCall {
        let call = Arc::new(());
        guard.state.lock().changes.begin(paths, &call);
        ChangingCall { guard: Arc::clone(guard), call }
    }
}

impl ConfinementGuard {
    /// Returns true if the last change of a path can only be the work of a sandboxed program, so that it is undone.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        !self.is_of_unknown(path) && !self.is_of_call(path)
    }

    /// Returns true if the same holds, and no command was allowed to make that change.
    pub(super) fn is_undone(&self, path: &Path) -> bool {
        let time = changed_near(path);
        self.is_own(path) && !self.state.lock().changes.are_known(path, time)
    }

    /// Returns true if the settings of a repository within the project named this path at the last snapshot.
    pub(crate) fn is_named_by_git(&self, path: &Path) -> bool {
        self.state.lock().last_snapshot.as_ref().is_some_and(|last| last.names(path))
    }

    /// Returns true if a command without a sandbox was running at the last change of a path.
    fn is_of_unknown(&self, path: &Path) -> bool {
        let time = changed_near(path);
        self.state.lock().changes.are_unknown(time)
    }

    /// Returns true if a call was allowed to make the last change of a path.
    pub(super) fn is_of_call(&self, path: &Path) -> bool {
        let time = changed_near(path);
        self.state.lock().changes.are_allowed(path, time)
    }
}

impl Drop for ChangingCall {
    fn drop(&mut self) {
        self.guard.state.lock().changes.end(&self.call);
    }
}

impl KnownChanges {
    fn begin(&mut self, paths: impl IntoIterator<Item = Option<PathBuf>>, call: &Arc<()>) {
        let from = SystemTime::now() - CLOCK_LAG;
        for path in paths {
            self.others.push(OtherChange { path, from, until: None, call: Arc::clone(call) });
        }
        forget_oldest(&mut self.others);
    }

    fn end(&mut self, call: &Arc<()>) {
        for change in self.others.iter_mut().filter(|change| Arc::ptr_eq(&change.call, call)) {
            change.until = Some(SystemTime::now() + CLOCK_LAG);
        }
    }

    /// Returns true if a call was allowed to change a path at that time.
    pub(super) fn are_allowed(&self, path: &Path, time: SystemTime) -> bool {
        self.others.iter().any(|change| {
            change.has(time)
                && change.path.as_ref().is_some_and(|allowed| path.starts_with(allowed))
        })
    }

    /// Returns true if a command without a sandbox is remembered.
    fn have_been_unknown(&self) -> bool {
        self.others.iter().any(|change| change.path.is_none())
    }

    /// Returns true if a command without a sandbox was running at that time.
    fn are_unknown(&self, time: SystemTime) -> bool {
        self.others.iter().any(|change| change.has(time) && change.path.is_none())
    }

    /// Notes that commands may change these paths from now on.
    pub(super) fn allow(&mut self, paths: impl IntoIterator<Item = PathBuf>, limit: Duration) {
        let now = SystemTime::now();
        let time = now - CLOCK_LAG..=now + limit;
        self.allowed.retain(|(_, time)| *time.end() > now);
        self.allowed.extend(paths.into_iter().map(|path| (path, time.clone())));
        forget_oldest(&mut self.allowed);
    }

    /// Notes that the command that was allowed to change these paths has ended.
    fn end_allowed(&mut self, paths: &[PathBuf]) {
        let now = SystemTime::now() + CLOCK_LAG;
        for (path, time) in &mut self.allowed {
            if paths.contains(path) {
                *time = *time.start()..=now.min(*time.end());
            }
        }
    }

    /// The paths that commands may change now.
    pub(super) fn allowed_now(&self) -> Vec<PathBuf> {
        let now = SystemTime::now();
        let allowed = self.allowed.iter().filter(|(_, time)| time.contains(&now));
        allowed.map(|(path, _)| path.clone()).collect()
    }

    /// Notes that these changes were told.
    pub(super) fn note_told(&mut self, changes: Vec<(PathBuf, SystemTime)>) {
        if self.told.len() < MAX_CHANGES {
            self.told.extend(changes);
        }
    }

    /// Returns true if a command was allowed to make the change of a path at that time, or if it was told.
    pub(super) fn are_known(&self, path: &Path, time: SystemTime) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|(place, active)| path.starts_with(place) && active.contains(&time))
            || self.told.contains(&(path.to_owned(), time))
    }
}

impl OtherChange {
    fn has(&self, time: SystemTime) -> bool {
        self.from <= time && self.until.is_none_or(|until| time <= until)
    }
}

fn forget_oldest<T>(all: &mut Vec<T>) {
    let more = all.len().saturating_sub(MAX_CHANGES);
    all.drain(..more);
}

/// The longest pause between two searches.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The search of a session for repositories in ignored folders.
#[derive(Debug, Default)]
pub(super) struct IgnoredSearch {
    is_running: bool,
    is_due: bool,
    /// The repositories that the last search has found, and the programs that git runs there; `None` before the first.
    snapshot: Option<Arc<ProtectedSnapshot>>,
    has_told_limit: bool,
    /// True if the last command may have left repositories, ignored or not, that were not found.
    may_lack_new: bool,
    /// The report, until it is told.
    pub(super) report: String,
}

impl CommandSite {
    pub(super) fn check_site(&self) -> CheckSite {
        CheckSite {
            guard: Arc::clone(&self.guard),
            tracker: Arc::clone(&self.tracker),
            quarantine: self.quarantine_folder(),
        }
    }

    /// Notes the repositories in ignored folders before the first command. Returns at once.
    pub(crate) fn begin_ignored_search(&self) {
        if self.guard.state.lock().ignored.snapshot.is_none() {
            self.check_site().search_ignored();
        }
    }
}

impl CheckSite {
    /// Searches the ignored folders for repositories soon, beside the calls. Returns at once.
    pub(super) fn search_ignored(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.tracker.ignored_folders().is_empty() {
            return;
        }
        let search = &mut self.guard.state.lock().ignored;
        search.is_due = true;
        if !std::mem::replace(&mut search.is_running, true) {
            self.guard.tracker.spawn_on(search_while_due(self.clone()), &runtime);
        }
    }
}

async fn search_while_due(site: CheckSite) {
    loop {
        let since = SystemTime::now() - CLOCK_LAG;
        site.guard.state.lock().ignored.is_due = false;
        let start = Instant::now();
        let own = site.clone();
        if let Err(error) = spawn_blocking(move || search_once(&own, since)).await {
            tracing::error!(%error, "the search of ignored folders has failed");
        }
        let pause = (start.elapsed() * SEARCH_PAUSE_FACTOR).min(MAX_PAUSE);
        // At the end of the session what is due is done at once.
        site.guard.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        let search = &mut site.guard.state.lock().ignored;
        if !search.is_due {
            search.is_running = false;
            return;
        }
    }
}

/// Searches once. What has changed after `since`, when this began, is judged again by the next search.
fn search_once(site: &CheckSite, since: SystemTime) {
    let quarantine = &site.quarantine;
    let (found, is_complete) = site.tracker.find_in_ignored();
    let last = site.guard.state.lock().ignored.snapshot.clone();
    let before = last.as_deref();
    let changed = before.and_then(|before| undo_changes(before, quarantine));
    // At the first search, only older repositories count as there before.
    let known = match before {
        Some(before) => (*before.repositories).clone(),
        None => found.iter().filter(|git| is_older(git, since)).cloned().collect(),
    };
    let new: Vec<_> = found.difference(&known).cloned().collect();
    let made = ProtectedSnapshot::without_repositories(new, None).check(&[], Some(quarantine));
    let changes: Vec<_> = changed.into_iter().chain(made).collect();
    if !changes.is_empty() {
        tracing::warn!(?changes, "a repository in an ignored folder starts programs");
    }
    // One that is gone is new when it is there again.
    let found = if is_complete { found } else { &known | &found };
    let snapshot = ProtectedSnapshot::take_settled(found, before, since);
    let search = &mut site.guard.state.lock().ignored;
    search.snapshot = Some(Arc::new(snapshot));
    let is_first_limit = !is_complete && !std::mem::replace(&mut search.has_told_limit, true);
    let limit = is_first_limit.then(|| NOT_SEARCHED.to_owned());
    for text in changes.iter().map(ProtectedChanges::message).chain(limit) {
        search.report.push_str(&format!("{text}\n"));
    }
}

fn is_older(git: &Path, time: SystemTime) -> bool {
    let config = if git.is_dir() { git.join("config") } else { git.to_path_buf() };
    changed_at(&config).is_none_or(|changed| changed < time)
}

/// Undoes changes of known repositories that make git run something there. Everything else, such as another
/// address of a remote, is the work of package managers.
fn undo_changes(before: &ProtectedSnapshot, quarantine: &Path) -> Option<ProtectedChanges> {
    let changed: BTreeSet<_> = before.check(&[], None)?.paths.into_iter().collect();
    let all = before.repositories.iter();
    let touched = all.filter(|git| changed.iter().any(|path| path.starts_with(git)));
    // They are judged as if they were new.
    let new = ProtectedSnapshot::without_repositories(touched.cloned().collect(), None);
    let risky = new.check_if(&[], None, &|path| changed.contains(path))?.paths;
    before.check_if(&[], Some(quarantine), &|path| risky.iter().any(|risky| risky == path))
}

/// The virtual environments of Python to which these paths belong.
pub(super) fn environments_of(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().filter_map(|path| ProtectedPaths::environment_of(path)).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicBool;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::confinement::CommandConfinement;
    use crate::watch::tests::{NotingClient, site_in};
    use turnwright_policy::permission::{Grants, Judgement, Mode, PolicyRules, judge};
    use turnwright_types::effect::Effect;
    use turnwright_workspace::exec::{CommandExit, Jobs, OutputSink, RunningCommand, Signal};
    use turnwright_workspace::real_path;

    /// A command that ends at once.
    struct QuickCommand;

    impl RunningCommand for QuickCommand {
        fn next_output<'a>(
            &'a mut self,
            _: OutputSink<'a>,
        ) -> BoxFuture<'a, io::Result<Option<CommandExit>>> {
            Box::pin(std::future::ready(Ok(Some(CommandExit::Code(0)))))
        }

        fn drain<'a>(&'a mut self, _: OutputSink<'a>) -> BoxFuture<'a, ()> {
            Box::pin(std::future::ready(()))
        }

        fn stop(&mut self, _: Duration) -> BoxFuture<'_, bool> {
            Box::pin(std::future::ready(false))
        }

        fn send_signal(&mut self, _: Signal) {}

        fn write_input<'a>(&'a mut self, _: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    async fn watch_while_the_only_thread_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let root = real_path(folder.path()).unwrap();
        let site = site_in(&root, &root, Arc::new(NotingClient::default()));
        let jobs = Jobs::new(root.join("outputs").join("s"));
        let job = jobs.admit("true").unwrap().run(Box::new(QuickCommand), Vec::new(), None);
        job.wait_for_end().await;
        let rules = PolicyRules::default();
        let effects = vec![Effect::SessionState];
        let judged = judge(&rules, Mode::Full, &Grants::default(), effects);
        let Judgement::Allowed(pass) = judged else { panic!("it is not allowed") };
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = spawn_blocking(move || released.recv().ok());
        site.watch(&job, &pass, CommandConfinement::default());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let later = SystemTime::now() + CLOCK_LAG * 2;
        assert!(site.guard.state.lock().changes.have_been_unknown());
        assert!(!site.guard.state.lock().changes.are_unknown(later));
        drop(release);
        busy.await.unwrap();
    }

    #[tokio::test]
    async fn that_folders_are_not_searched_is_told_once_and_not_with_each_command() {
        let folder = tempfile::tempdir().unwrap();
        let root = real_path(folder.path()).unwrap();
        let site = site_in(&root, &root, Arc::new(NotingClient::default()));
        site.watch_files();
        let jobs = Jobs::new(root.join("outputs").join("s"));
        // A cancelled search stands for one that takes too long.
        for (is_cancelled, is_told) in [(true, true), (true, false), (false, false), (true, true)] {
            site.tracker.baseline(&Arc::new(AtomicBool::new(is_cancelled)));
            let job = jobs.admit("true").unwrap().run(Box::new(QuickCommand), Vec::new(), None);
            job.wait_for_end().await;
            let check = ProtectedCheck {
                site: site.check_site(),
                job: Arc::clone(&job),
                watch: Arc::default(),
                snapshot: Arc::default(),
                layers: ChangedLayers::default(),
                history: KeptHistory::default(),
            };
            check.check_repositories(false);
            let report = site.guard.state.lock().reports.remove(job.id());
            assert_eq!(report.as_deref() == Some(NOT_SEARCHED), is_told, "{report:?}");
        }
    }

    #[test]
    fn the_end_of_a_command_without_a_sandbox_is_noted_without_waiting_for_a_thread() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(watch_while_the_only_thread_is_busy());
    }

    #[test]
    fn what_a_call_may_change_it_may_change_only_while_it_runs() {
        let mut changes = KnownChanges::default();
        let path = Path::new("/p/.envrc");
        let now = SystemTime::now;
        let before = now() - Duration::from_secs(1);
        let write = Arc::new(());
        let command = Arc::new(());
        changes.begin([Some(path.to_path_buf())], &write);
        changes.begin([None], &command);
        assert!(changes.are_allowed(path, now()) && !changes.are_allowed(path, before));
        assert!(!changes.are_allowed(Path::new("/p/.envrc2"), now()));
        assert!(changes.are_unknown(now()) && !changes.are_unknown(before));
        changes.end(&write);
        changes.end(&command);
        let later = now() + CLOCK_LAG * 2;
        assert!(!changes.are_allowed(path, later) && !changes.are_unknown(later));
        assert!(changes.are_allowed(path, now()) && changes.are_unknown(now()));
    }

    #[test]
    fn what_a_command_was_allowed_is_over_when_it_ends() {
        let mut changes = KnownChanges::default();
        let path = PathBuf::from("/ws/.envrc");
        changes.allow([path.clone()], Duration::from_secs(1_800));
        let during = SystemTime::now();
        assert!(changes.are_known(&path, during));
        changes.end_allowed(std::slice::from_ref(&path));
        assert!(changes.are_known(&path, during));
        assert!(!changes.are_known(&path, during + Duration::from_secs(2)));
    }
}
