//! Watches the protected places for as long as confined MCP servers run, during their calls and between them. Only
//! changes at a time when a server ran are taken away or reported: at all other times it was the
//! user, or another program.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{CommandWatch, NOT_CHECKED};
use crate::confinement::{CommandSite, ConfinementSettings};
use crate::protected_snapshot::{ProtectedChanges, ProtectedSnapshot};
use crate::watch::{
    BACKGROUND_CHECK_PERIOD, CALL_HINT, CLOCK_LAG, SEARCH_PAUSE_FACTOR, SETTLING_TIME,
    add_to_report, changed, pause_after,
};
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::LiveFolders;
use turnwright_workspace::exec::{ActivitySample, Environment, ProgramActivity, RunningJobs};

/// At most this many times are remembered. With more, the oldest are taken for one.
const MAX_TIMES: usize = 10_000;

/// The times at which the servers have run since the watch began.
#[derive(Debug)]
struct ActiveTimes {
    begin: SystemTime,
    times: Vec<RangeInclusive<SystemTime>>,
}

impl ActiveTimes {
    fn add(&mut self, from: SystemTime, until: SystemTime) {
        let from = from - CLOCK_LAG;
        let until = until + CLOCK_LAG;
        match self.times.last_mut() {
            Some(last) if *last.end() >= from => *last = *last.start()..=until,
            _ => self.times.push(from..=until),
        }
        if self.times.len() > MAX_TIMES {
            let first = self.times.remove(0);
            self.times[0] = *first.start()..=*self.times[0].end();
        }
    }

    fn has(&self, moment: SystemTime) -> bool {
        let next = self.times.partition_point(|time| *time.end() < moment);
        self.times.get(next).is_some_and(|time| time.contains(&moment))
    }

    /// Returns true if the entry at a path may have come there while a server ran: it changed then, or it is older
    /// than the watch, and a folder above it was moved then.
    fn cover(&self, path: &Path) -> bool {
        match changed_at(path) {
            Some(time) if time + CLOCK_LAG < self.begin => {
                path.ancestors().any(|folder| self.has_change_of(folder))
            }
            Some(time) => self.has(time),
            // It is gone.
            None => path.parent().is_some_and(|folder| self.has_change_of(folder)),
        }
    }

    fn has_change_of(&self, path: &Path) -> bool {
        changed_at(path).is_some_and(|time| self.has(time))
    }
}

/// Watches the protected places of a session.
pub struct ServerWatch {
    site: CommandSite,
    /// The commands of the conversation.
    commands: RunningJobs,
    servers: Vec<ProgramActivity>,
    seen: Vec<ActivitySample>,
    seen_at: SystemTime,
    snapshot: Arc<ProtectedSnapshot>,
    repositories: BTreeSet<PathBuf>,
    active: ActiveTimes,
    /// A server has run since the last look at the protected paths, and at the repositories.
    is_due: bool,
    is_search_due: bool,
    search_at: Instant,
}

impl ServerWatch {
    /// Looks at the places as they are before a server starts. Blocks: not for the runtime's thread.
    pub fn begin(site: CommandSite, commands: RunningJobs) -> ServerWatch {
        let begin = SystemTime::now();
        site.watch_files();
        let (repositories, _) = site.tracker.find_new_repositories(&BTreeSet::new());
        let repositories: BTreeSet<_> = repositories.into_iter().collect();
        let known = Arc::new(repositories.clone());
        let snapshot = site.take_snapshot(known);
        ServerWatch {
            site,
            commands,
            servers: Vec::new(),
            seen: Vec::new(),
            seen_at: begin,
            snapshot,
            repositories,
            active: ActiveTimes { begin, times: Vec::new() },
            is_due: false,
            is_search_due: false,
            search_at: Instant::now(),
        }
    }

    /// Sets the servers that are watched.
    #[must_use]
    pub fn of(mut self, servers: Vec<ProgramActivity>) -> ServerWatch {
        self.seen = vec![ActivitySample::default(); servers.len()];
        self.servers = servers;
        self
    }

    /// Checks when something has changed in the session's folders, every two seconds, and when the servers have ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let checkpoint = Arc::clone(&self.site.tracker);
        let following = spawn_blocking(move || checkpoint.live_folders());
        let mut live = following.await.ok().flatten();
        // The system may tell a moment later than the change that a server has run.
        let mut looks_again = false;
        loop {
            let period = if looks_again { Duration::ZERO } else { BACKGROUND_CHECK_PERIOD };
            let (is_last, is_change) = tokio::select! {
                () = stop.cancelled() => (true, false),
                () = changed(&mut live) => (false, true),
                () = tokio::time::sleep(period) => (false, false),
            };
            let start = Instant::now();
            let mut followed = live.take();
            let checking = spawn_blocking(move || {
                let has_run = self.check(followed.as_mut(), is_last);
                (self, followed, has_run)
            });
            match checking.await {
                Ok((watch, followed, has_run)) if !is_last => {
                    self = watch;
                    live = followed;
                    looks_again = is_change && !has_run;
                }
                Ok(_) => return,
                Err(error) => {
                    return tracing::error!(%error, "the check of protected files has failed");
                }
            }
            let pause = pause_after(start.elapsed()).max(CLOCK_LAG);
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Looks at the protected places if a server has run. Returns true if one has.
    fn check(&mut self, live: Option<&mut LiveFolders>, is_last: bool) -> bool {
        let since = std::mem::replace(&mut self.seen_at, SystemTime::now());
        let seen: Option<Vec<_>> = self.servers.iter().map(ProgramActivity::sample).collect();
        // Where the system does not tell, changes between calls cannot be distinguished from the user's.
        let Some(seen) = seen else { return false };
        let mut both = seen.iter().zip(&self.seen);
        let has_run = is_last || both.any(|(now, before)| now.has_run_since(before));
        self.seen = seen;
        let guard = &self.site.guard;
        let jobs = self.commands.ids();
        let is_unconfined = jobs.iter().any(|job| guard.is_unconfined(job));
        let unconfined = guard.has_unconfined_command.swap(is_unconfined, Ordering::Relaxed);
        if has_run && !unconfined {
            self.active.add(since, SystemTime::now());
            self.is_due = true;
            self.is_search_due = true;
        }
        // The traces of a command are checked while it runs and at its end, and told with its result.
        if guard.is_checking_now(false) {
            return has_run;
        }
        let is_call = guard.is_checking_now(true);
        if self.is_due {
            let known = self.take_away_traps();
            // Other changes during a call are reported with its result.
            if !is_call {
                self.tell_changes(&known);
            }
            self.is_due = is_call;
        }
        let start = Instant::now();
        if has_run && let Some(live) = live {
            self.take_new_repositories(live.find_new(&self.repositories));
        }
        if self.is_search_due && !is_call && (is_last || self.search_at <= start) {
            self.is_search_due = false;
            self.site.check_site().search_ignored();
            let (new, _) = self.site.tracker.find_new_repositories(&self.repositories);
            self.take_new_repositories(new);
            self.search_at = Instant::now() + start.elapsed() * SEARCH_PAUSE_FACTOR;
        }
        has_run
    }

    /// Takes away entries that are new. Returns the paths that were there before.
    fn take_away_traps(&self) -> Vec<PathBuf> {
        let known: Vec<_> = self.snapshot.files().collect();
        self.take_away_new(&self.snapshot, &known);
        known
    }

    /// Reports what has changed or is gone. An entry that appeared after traps were taken away is not reported as a
    /// change, because it would count as known from then on, and stay.
    fn tell_changes(&self, known: &[PathBuf]) {
        let is_old = |path: &Path| {
            known.iter().any(|file| path.starts_with(file)) || path.symlink_metadata().is_err()
        };
        self.tell(self.snapshot.check_if(&[], None, &|path| is_old(path) && self.is_suspect(path)));
    }

    fn take_new_repositories(&self, new: Vec<PathBuf>) {
        let new = ProtectedSnapshot::without_repositories(new, Some(Arc::clone(&self.snapshot)));
        self.take_away_new(&new, &[]);
    }

    /// Takes away what is not in a snapshot, except for `known` paths.
    fn take_away_new(&self, snapshot: &ProtectedSnapshot, known: &[PathBuf]) {
        let look = |quarantine: Option<&Path>| {
            snapshot.check_if(known, quarantine, &|path| self.is_suspect(path))
        };
        if look(None).is_some() {
            std::thread::sleep(SETTLING_TIME);
            self.tell(look(Some(&self.site.quarantine_folder())));
        }
    }

    fn is_suspect(&self, path: &Path) -> bool {
        if !self.active.cover(path) {
            return false;
        }
        let time = changed_at(path).unwrap_or(self.active.begin);
        let time_nearby = changed_near(path);
        let state = self.site.guard.state.lock();
        !state.changes.are_known(path, time)
            && !state.changes.are_allowed(path, time_nearby)
            && !state.is_allowed(path)
    }

    fn tell(&self, changes: Option<ProtectedChanges>) {
        let Some(changes) = changes else { return };
        tracing::warn!(?changes, "protected paths were changed while a server ran");
        let guard = &self.site.guard;
        guard.note_told(&changes.paths);
        let who = "an MCP server, or another program while it ran,";
        let text = changes.message_about(who, CALL_HINT);
        add_to_report(&mut guard.state.lock().server_report, &text);
    }
}

/// The time at which the entry at a path was changed, renamed or made. Programs cannot set this time.
pub(crate) fn changed_at(path: &Path) -> Option<SystemTime> {
    change_time(&std::fs::symlink_metadata(path).ok()?)
}

#[cfg(unix)]
pub(crate) fn change_time(found: &Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt;
    let seconds = u64::try_from(found.ctime()).ok()?;
    let nanos = u32::try_from(found.ctime_nsec()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
pub(crate) fn change_time(found: &Metadata) -> Option<SystemTime> {
    found.modified().ok()
}

/// The same; for an entry that is gone, the time at which its folder has changed.
pub(crate) fn changed_near(path: &Path) -> SystemTime {
    path.ancestors().find_map(changed_at).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Guards the protected paths during one call of a confined MCP server, or a run of confined hooks. They are also
/// checked if that panics or is dropped.
pub struct RemoteCallGuard(Option<GuardedCall>);

struct GuardedCall {
    site: CommandSite,
    name: String,
    /// The program that the report names as the author of the changes.
    who: &'static str,
    /// `None` until it is taken, and if that has failed.
    snapshot: Option<Arc<ProtectedSnapshot>>,
    /// True if the repositories that were there before are known, so that new ones are looked for.
    knows_repositories: bool,
}

impl RemoteCallGuard {
    /// Takes a snapshot before the call. Blocks: not for the runtime's thread.
    pub fn new(site: CommandSite, call: &str, who: &'static str) -> RemoteCallGuard {
        let name = format!("call {call}");
        let watch = CommandWatch { is_call: true, has_snapshot: true, ..CommandWatch::default() };
        site.guard.state.lock().watches.insert(name.clone(), Arc::new(watch));
        let guarded = GuardedCall { site, name, who, snapshot: None, knows_repositories: false };
        let mut call = RemoteCallGuard(Some(guarded));
        if let Some(call) = &mut call.0 {
            call.snapshot = Some(call.site.take_snapshot(call.site.tracker.repositories()));
        }
        call
    }

    /// Also looks for git repositories that are new after the call. Those of servers are found by their watch. Blocks.
    #[must_use]
    pub fn with_repositories(mut self) -> RemoteCallGuard {
        if let Some(call) = &mut self.0 {
            call.site.watch_files();
            let (known, may_be_more) = call.site.tracker.find_new_repositories(&BTreeSet::new());
            call.snapshot = Some(call.site.take_snapshot(Arc::new(known.into_iter().collect())));
            call.knows_repositories = !may_be_more;
        }
        self
    }

    /// Checks the protected paths after the call. Reports findings to the user and returns the report.
    pub async fn finish(mut self) -> Option<String> {
        let call = self.0.take()?;
        let client = Arc::clone(&call.site.client);
        let checking = spawn_blocking(move || call.check());
        checking.await.unwrap_or_else(|_| {
            client.update(Update::Notice(NOT_CHECKED.to_owned()));
            Some(NOT_CHECKED.to_owned())
        })
    }
}

impl Drop for RemoteCallGuard {
    fn drop(&mut self) {
        let Some(call) = self.0.take() else { return };
        let tracker = call.site.guard.tracker.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(tracker.spawn_blocking_on(move || call.check(), &runtime)),
            Err(_) => drop(call.check()),
        }
    }
}

/// Runs confined programs outside of a session, and then takes away the files that have come meanwhile and that other
/// programs run. Also returns a report of these, and of changes. Blocks.
pub fn run_guarded<T>(
    settings: &ConfinementSettings,
    environment: &Environment,
    quarantine: &Path,
    who: &str,
    work: impl FnOnce() -> T,
) -> (T, Vec<String>) {
    let programs = environment.get("PATH").map(std::env::split_paths);
    let writable = settings.writable.iter().chain([&settings.private_caches]).cloned();
    let snapshot = ProtectedSnapshot::take(&settings.protected, Arc::default(), None)
        .with_places(writable, programs.into_iter().flatten().collect());
    let done = work();
    let known: Vec<_> = snapshot.files().collect();
    let new = snapshot.check(&known, Some(quarantine));
    let changed = snapshot.check(&[], None);
    let found = new.into_iter().chain(changed);
    (done, found.map(|changes| changes.message_about(who, CALL_HINT)).collect())
}

impl GuardedCall {
    /// Removes files that have appeared. Changes may be the work of another program and are only reported.
    fn check(self) -> Option<String> {
        let guard = &self.site.guard;
        guard.state.lock().watches.remove(&self.name)?;
        let snapshot = self.snapshot?;
        let quarantine = self.site.quarantine_folder();
        let mut found = Vec::new();
        if self.knows_repositories {
            let (new, _) = self.site.tracker.find_new_repositories(&snapshot.repositories);
            let made = ProtectedSnapshot::without_repositories(new, Some(Arc::clone(&snapshot)));
            found.extend(made.check_if(&[], Some(&quarantine), &|path| guard.is_own(path)));
        }
        // Nearly always nothing has changed, and one look says so.
        if snapshot.check(&[], None).is_some() {
            let known: Vec<_> = snapshot.files().collect();
            found.extend(snapshot.check_if(&known, Some(&quarantine), &|path| guard.is_own(path)));
            found.extend(snapshot.check_if(&[], None, &|path| !guard.is_of_call(path)));
        }
        let reports = found.iter().map(|changes| {
            tracing::warn!(?changes, "protected paths were changed during a call");
            guard.note_told(&changes.paths);
            changes.message_about(self.who, CALL_HINT)
        });
        let report = reports.collect::<Vec<_>>().join("\n");
        if report.is_empty() {
            return None;
        }
        self.site.client.update(Update::Notice(report.clone()));
        Some(report)
    }
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;
    use crate::watch::tests::{NotingClient, site_in};
    use turnwright_policy::permission::ProtectedPaths;
    use turnwright_workspace::exec::Jobs;
    use turnwright_workspace::real_path;

    #[test]
    fn only_what_came_while_a_server_ran_is_its_work() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "").unwrap();
            changed_at(&folder.path().join(name)).unwrap()
        };
        let pause = || std::thread::sleep(CLOCK_LAG * 4);
        make("old/tasks.json");
        pause();
        let mut active = ActiveTimes { begin: SystemTime::now(), times: Vec::new() };
        pause();
        make("of-the-user");
        pause();
        let from = SystemTime::now();
        make("of-the-server");
        fs::rename(folder.path().join("old"), folder.path().join(".vscode")).unwrap();
        active.add(from, SystemTime::now());
        pause();
        make("later");
        let mut found = Vec::new();
        for name in ["of-the-user", "of-the-server", ".vscode/tasks.json", "later"] {
            found.extend(active.cover(&folder.path().join(name)).then_some(name));
        }
        assert_eq!(found, ["of-the-server", ".vscode/tasks.json"]);
    }

    #[test]
    fn outside_of_a_session_a_trap_is_taken_away_too() {
        let project = tempfile::tempdir().unwrap();
        let root = real_path(project.path()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let quarantine = state.path().join("quarantine");
        let protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
        let settings = ConfinementSettings { protected, ..ConfinementSettings::default() };
        let run = || {
            fs::write(root.join(".envrc"), "x").unwrap();
            fs::write(root.join("a.txt"), "x").unwrap();
        };
        let ((), found) =
            run_guarded(&settings, &Environment::default(), &quarantine, "a hook", run);
        assert!(!root.join(".envrc").exists() && root.join("a.txt").exists());
        assert!(found.concat().contains("a hook created"), "{found:?}");
    }

    #[tokio::test]
    async fn a_trap_that_comes_between_the_two_looks_is_taken_away_by_the_next_one() {
        let project = tempfile::tempdir().unwrap();
        let root = real_path(project.path()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let site = site_in(&root, state.path(), Arc::new(NotingClient::default()));
        let commands = Jobs::new(state.path().join("jobs"));
        let mut watch = ServerWatch::begin(site.clone(), commands.running());
        let trap = root.join(".envrc");
        let from = SystemTime::now();
        let known = watch.take_away_traps();
        fs::write(&trap, "x").unwrap();
        watch.active.add(from, SystemTime::now());
        watch.tell_changes(&known);
        assert!(trap.exists());
        // If it were reported as a change, it would count as known.
        assert_eq!(site.guard.state.lock().server_report, "");
        watch.take_away_traps();
        assert!(!trap.exists());
        let told = site.guard.state.lock().server_report.clone();
        assert!(told.contains(".envrc"), "{told}");
    }
}
