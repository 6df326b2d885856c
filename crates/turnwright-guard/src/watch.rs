//! Guards the protected paths while confined commands run: marks each command as running, keeps the history of the
//! session's repositories before it, provides the temporary folder, and checks the protected paths when it has ended,
//! whether or not a call still waits for it.
//!
//! Tells the user when the agent was killed while a command ran: in that case the protected files were not compared,
//! and things that the command had set up for other programs were not removed.

pub(crate) mod kept_history;
mod protected_check;
mod sandbox_denial;
pub(crate) mod server_watch;

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::confinement::linked_files::LinkedFiles;
use crate::confinement::package_managers;
use crate::confinement::{CommandConfinement, CommandSite, ConfinementSettings, OBEYED};
use crate::protected_snapshot::ProtectedSnapshot;
use crate::repository;
use crate::restricted_files::KnownFolders;
use kept_history::{HistoryKeeper, KeptHistory};
use protected_check::{IgnoredSearch, KnownChanges, ProtectedCheck, environments_of};
use server_watch::{ServerWatch, changed_at};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use turnwright_policy::permission::{Confinement, Pass, ProtectedPaths};
use turnwright_proxy::RefusedHosts;
use turnwright_types::effect::{Effect, escape_hidden_line};
use turnwright_types::git_layout::GitLayout;
use turnwright_types::private_file::{self, is_locked};
use turnwright_types::shell_script::{Script, SimpleCommand};
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::{ChangeTracker, GitSettings};
use turnwright_workspace::exec::{Environment, Job, Jobs};
use turnwright_workspace::files::{Roots, SessionTmp};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

pub use protected_check::ChangingCall;
pub(crate) use protected_check::{CLOCK_LAG, SETTLING_TIME, changed, pause_after};
pub use sandbox_denial::ReachedLimit;
pub use server_watch::{RemoteCallGuard, run_guarded};

/// How often the protected paths are checked while a command runs in the background.
pub(crate) const BACKGROUND_CHECK_PERIOD: Duration = Duration::from_secs(2);
/// The longest time for looking at the paths that an output names: a disk may never answer.
const LOOK_TIME: Duration = Duration::from_secs(10);
/// The use of the private caches is noted with a session's first command and then once in so many, because a session
/// may last longer than unused caches are kept.
const COMMANDS_PER_NOTE: usize = 16;
/// At most this many commands are remembered after their end.
const MAX_WATCHES: usize = 64;
/// How long a command that was allowed to change a protected path may do so.
const LONGEST_COMMAND: Duration = Duration::from_secs(1_800);
/// At most this many paths of one call can be allowed while a command runs.
const MAX_ALLOWED: usize = 1_000;
/// At most this many files are named.
const MAX_NAMED: usize = 10;
/// At most this many repositories in a session's folders are kept, besides its own and their submodules.
const MAX_NESTED: usize = 32;
/// Subcommands of git that delete objects that no branch needs.
const PRUNING: [&str; 7] =
    ["gc", "prune", "prune-packed", "repack", "maintenance", "filter-branch", "filter-repo"];

/// The running commands of a session and what is known of their effect on protected paths.
#[derive(Debug, Default)]
pub struct ConfinementGuard {
    // Locked only to look something up or to note it.
    state: Mutex<GuardState>,
    /// The results of searches for files with names outside the session's folders.
    pub(crate) linked_files: Mutex<LinkedFiles>,
    history: Mutex<HistoryKeeper>,
    /// The number of commands so far that use the private caches.
    cache_uses: AtomicUsize,
    /// Set when the missing caches of this session's commands were made.
    pub(crate) has_made_caches: AtomicBool,
    /// Set when a command without a sandbox was allowed: changes meanwhile may be its work.
    has_unconfined_command: AtomicBool,
    /// Cancelled when the session is closed.
    stop: CancellationToken,
    tracker: TaskTracker,
}

/// The commands and calls of a session, and the changes of protected paths that are known of.
#[derive(Debug, Default)]
struct GuardState {
    /// The commands, and the calls of servers, by their names.
    watches: HashMap<String, Arc<CommandWatch>>,
    last_snapshot: Option<Arc<ProtectedSnapshot>>,
    changes: KnownChanges,
    /// The private temporary folder of commands, once one has needed it.
    temp: Option<Arc<PrivateTempFolder>>,
    ignored: IgnoredSearch,
    /// The results of searches for secrets in the session's folders.
    known_folders: KnownFolders,
    /// The hidden files that a command may have come across.
    met_hidden: BTreeSet<PathBuf>,
    /// The reports about commands, by their names, until they are told.
    reports: HashMap<String, String>,
    /// The report about changes while servers ran, until it is told.
    server_report: String,
}

/// The advice to the model when an MCP call, not a command, has changed protected paths.
pub(crate) const CALL_HINT: &str = "Other programs run what is there. If the change is wanted, make it with the file \
                    tools; the user is asked.";

/// Instead of a report if the check itself has failed.
const NOT_CHECKED: &str = "[protected: because of a bug it could not be checked whether protected files were \
                    changed. Look at them.]";

/// The report if repositories may have appeared that were not found.
pub(crate) const NOT_SEARCHED: &str = "[protected: the command left folders that cannot be searched for git repositories, or too many. \
                            Do not run git in folders that are new before you have looked at them.]";

/// Searching for new repositories takes at most one part in this many of a background command's time.
pub(crate) const SEARCH_PAUSE_FACTOR: u32 = 50;

/// The changes in protected places that a command may make.
#[derive(Debug, Default)]
pub(crate) struct AllowedChanges {
    /// Protected paths that it may write.
    pub(crate) paths: Vec<PathBuf>,
    /// Virtual environments of Python that it makes, or into which it installs packages.
    pub(crate) installs_in: Vec<PathBuf>,
    /// True if it may make virtual environments of Python.
    pub(crate) makes_environments: bool,
    /// Paths that the kernel keeps read-only for the command, with their inodes. While the inode at
    /// a path is still the same, a change there was made by another program.
    pub(crate) read_only_inodes: Vec<(PathBuf, u64)>,
}

/// The state of one command.
#[derive(Debug, Default)]
struct CommandWatch {
    /// The command line, parsed.
    script: Arc<Script>,
    /// It is a call of a server, and no command.
    is_call: bool,
    /// The command is not confined.
    is_unconfined: bool,
    /// The command has more access than the sandbox gives.
    has_extra_access: bool,
    limits: Option<String>,
    has_network: bool,
    /// The hosts that its proxy refuses.
    refused_hosts: Option<RefusedHosts>,
    /// An error if nothing signs for it although it may sign; `None` if it may not.
    signing: Option<io::Result<()>>,
    /// The user's variables, some of which it lacks.
    environment: Arc<Environment>,
    /// Where it may write.
    writable: Vec<PathBuf>,
    /// Files in the session's folders that are hidden from it.
    hidden: BTreeSet<PathBuf>,
    /// The hidden files that no earlier command of the session may have come across.
    newly_hidden: BTreeSet<PathBuf>,
    has_snapshot: bool,
    changes: AllowedChanges,
    is_in_background: AtomicBool,
    /// Cancelled when the check after the command's end is done.
    checked: CancellationToken,
}

impl CommandWatch {
    fn is_checking(&self) -> bool {
        self.has_snapshot && !self.checked.is_cancelled()
    }
}

impl ConfinementGuard {
    /// The private temporary folder of the session's commands and hooks; created on first use, and again if it was removed
    /// meanwhile. Blocks.
    pub fn temp_folder(&self) -> Option<PathBuf> {
        let known = self.state.lock().temp.clone();
        let is_there = known.as_ref().is_some_and(|folder| match folder.make_again() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "cannot make the temporary folder for commands again");
                false
            }
        });
        if !is_there {
            // Another user may have made something else in its place.
            let lost = self
                .state
                .lock()
                .temp
                .take_if(|now| known.as_ref().is_some_and(|known| Arc::ptr_eq(known, now)));
            drop(lost);
            match PrivateTempFolder::create() {
                Ok(made) => {
                    let folder = Arc::new(made);
                    // If another command was faster, both use its folder. This one is removed from the disk without the
                    // lock then.
                    let _made = Arc::clone(&folder);
                    self.state.lock().temp.get_or_insert(folder);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot create a temporary folder for commands");
                }
            }
        }
        self.known_temp_folder()
    }

    /// Does some work until a job ends.
    pub fn run_while_running(
        &self,
        job: Arc<Job>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tracker.spawn(async move {
            tokio::select! {
                () = work => {}
                _ = job.wait_for_end() => {}
            }
        });
    }

    /// Keeps something until a job ends. To drop it may block.
    fn keep_while_running(&self, job: Arc<Job>, kept: impl Send + 'static) {
        let tracker = self.tracker.clone();
        self.tracker.spawn(async move {
            job.wait_for_end().await;
            tracker.spawn_blocking(move || drop(kept));
        });
    }

    /// The temporary folder of the session's commands, if it was created.
    pub(crate) fn known_temp_folder(&self) -> Option<PathBuf> {
        let folder = self.state.lock().temp.as_ref()?.path().to_path_buf();
        real_path(folder).ok()
    }

    /// Searches for secrets with what earlier searches have found. Another search at the same time finds nothing known,
    /// and visits everything.
    pub(crate) fn with_known_folders<T>(&self, search: impl FnOnce(&mut KnownFolders) -> T) -> T {
        let mut known = std::mem::take(&mut self.state.lock().known_folders);
        let found = search(&mut known);
        self.state.lock().known_folders = known;
        found
    }

    /// Notes, once in [`COMMANDS_PER_NOTE`] calls, that commands use the private caches of this project, and removes
    /// old caches.
    pub(crate) fn note_caches(&self, folder: &Path) {
        if self.cache_uses.fetch_add(1, Ordering::Relaxed).is_multiple_of(COMMANDS_PER_NOTE) {
            let folder = folder.to_path_buf();
            let tracker = self.tracker.clone();
            self.tracker.spawn_blocking(move || {
                package_managers::note_cache_use(&folder, || tracker.is_closed());
            });
        }
    }

    /// Notes that a command goes on in the background: the protected paths are also checked while it
    /// runs.
    pub fn note_background(&self, job: &str) {
        if let Some(watch) = self.state.lock().watches.get(job) {
            watch.is_in_background.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if that command is unconfined or unknown.
    pub fn is_unconfined(&self, job: &str) -> bool {
        self.state.lock().watches.get(job).is_none_or(|watch| watch.is_unconfined)
    }

    /// Returns true if that command has more access than the sandbox gives, or is unknown.
    pub fn has_extra_access(&self, job: &str) -> bool {
        self.state.lock().watches.get(job).is_none_or(|watch| watch.has_extra_access)
    }

    /// Notes the changes that `pass` permits for as long as its call runs, so that they are not blamed on the commands
    /// and servers that run meanwhile.
    pub fn note_allowed(
        self: &Arc<Self>,
        pass: &Pass,
        protected: &ProtectedPaths,
    ) -> Option<ChangingCall> {
        let changed = pass.effects().iter().filter_map(|effect| match effect {
            Effect::Write(target) | Effect::Delete(target)
                if protected.reason(&target.path).is_some()
                    || self.is_named_by_git(&target.path) =>
            {
                Some(Some(target.path.clone()))
            }
            Effect::Exec(_) if *pass.confinement() == Confinement::Unconfined => {
                self.has_unconfined_command.store(true, Ordering::Relaxed);
                Some(None)
            }
            _ => None,
        });
        let changed: Vec<_> = changed.take(MAX_ALLOWED).collect();
        (!changed.is_empty()).then(|| ChangingCall::begin(self, changed))
    }

    /// Waits for the check after the command's end. Returns its report, and the limit of the sandbox that the command
    /// seems to have met, judging by its output. `is_success` is true if it did what was asked.
    pub async fn findings(
        &self,
        job: &Job,
        output: &str,
        is_success: bool,
    ) -> (Option<String>, Option<ReachedLimit>) {
        let watch = self.state.lock().watches.get(job.id()).cloned();
        let Some(watch) = watch else { return (None, None) };
        watch.checked.cancelled().await;
        let report = self.state.lock().reports.remove(job.id());
        let has_succeeded = is_success && report.is_none();
        let output = output.to_owned();
        let end = job.end();
        let looking = spawn_blocking(move || watch.reached_limit(&output, has_succeeded, end));
        let limit = timeout(LOOK_TIME, looking).await.ok().and_then(Result::ok).flatten();
        (report, limit)
    }

    /// The reports about commands that no call waits for; each is returned once.
    pub fn take_reports(&self, jobs: &Jobs) -> Option<String> {
        let mut state = self.state.lock();
        let issued = state.reports.extract_if(|job, _| jobs.has_issued(job));
        let mut text = String::new();
        for (job, report) in issued {
            text.push_str(&format!("{job}: {report}\n"));
        }
        if !state.server_report.is_empty() {
            text.push_str(&std::mem::take(&mut state.server_report));
            text.push('\n');
        }
        text.push_str(&std::mem::take(&mut state.ignored.report));
        (!text.is_empty()).then_some(text)
    }

    /// Notes that the present changes of these paths were told. Blocks.
    fn note_told(&self, paths: &[PathBuf]) {
        let now: Vec<_> =
            paths.iter().filter_map(|path| Some((path.clone(), changed_at(path)?))).collect();
        self.state.lock().changes.note_told(now);
    }

    /// Watches the protected paths from now on until the session is closed, for as long as its confined
    /// servers run.
    pub fn watch_servers(&self, watch: ServerWatch) {
        self.tracker.spawn(watch.run(self.stop.clone()));
    }

    /// Returns true if a call of a server, or else a command, runs, not in the background, that checks the protected
    /// paths at its end.
    fn is_checking_now(&self, is_call: bool) -> bool {
        let state = self.state.lock();
        state.watches.values().any(|watch| {
            let is_awaited = !watch.is_in_background.load(Ordering::Relaxed);
            watch.is_checking() && is_awaited && watch.is_call == is_call
        })
    }

    /// Waits for the last check and removes the temporary folder. All commands must have ended.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        let temp = self.state.lock().temp.take();
        spawn_blocking(move || drop(temp)).await.ok();
    }
}

impl GuardState {
    /// Returns true if a running command or call was allowed to change this path. Installed files are judged later, at
    /// its end.
    fn is_allowed(&self, path: &Path) -> bool {
        self.watches.values().any(|watch| {
            let mut places = watch.changes.paths.iter().chain(&watch.changes.installs_in);
            watch.is_checking() && places.any(|place| path.starts_with(place))
        })
    }
}

impl CommandSite {
    /// Takes a snapshot of the protected paths before a command runs. Blocks.
    pub(crate) fn take_snapshot(
        &self,
        repositories: Arc<BTreeSet<PathBuf>>,
    ) -> Arc<ProtectedSnapshot> {
        let settings = &self.settings;
        let programs = self.environment.get("PATH").map(std::env::split_paths);
        let state = self.guard.state.lock();
        let previous = state.last_snapshot.clone();
        let is_alone = !state.watches.values().any(|watch| !watch.is_call && watch.is_checking());
        drop(state);
        let tmp = self.roots.session_tmp().and_then(SessionTmp::known_folder);
        let temp = self.guard.known_temp_folder().into_iter().chain(tmp.map(Path::to_path_buf));
        let writable = settings.writable.iter().chain([&settings.private_caches]);
        let taken = ProtectedSnapshot::take(&settings.protected, repositories, previous.as_deref())
            .with_places(writable.cloned().chain(temp), programs.into_iter().flatten().collect());
        let snapshot = Arc::new(match previous.filter(|_| !is_alone) {
            Some(earlier) => taken.beside_commands(&earlier, &|path| self.guard.is_undone(path)),
            None => taken,
        });
        // A large one is dropped without the lock.
        let _old = self.guard.state.lock().last_snapshot.replace(Arc::clone(&snapshot));
        snapshot
    }

    /// Marks a command that may write as running, and keeps the history of the session's repositories before it. Tells
    /// the user once if that is not possible. Blocks.
    pub(crate) fn keep_history(&self, commands: &[SimpleCommand]) -> KeptHistory {
        let mark = RunningMark::new(&running_commands(&self.settings))
            .inspect_err(|error| tracing::warn!(%error, "a running command cannot be marked"))
            .ok();
        let folders = self.roots.folders().flat_map(repository::history_folders);
        let mut seen = BTreeSet::new();
        let all = folders.chain(self.nested_repositories());
        let repositories = all.filter(|git| seen.insert(git.clone())).collect();
        let place = self.settings.private_caches.join("history");
        let is_alone = !self.guard.state.lock().watches.values().any(|watch| watch.is_checking());
        let kept = self.guard.history.lock().keep(
            repositories,
            &place,
            (may_prune(commands), is_alone),
            mark,
        );
        for git in &kept.incomplete {
            let notice = format!(
                "The history in {} cannot be kept as a whole, so a command could lose it: it is on another disk than the agent's \
                 own folder and too large for a copy, or cannot be read.",
                git.display()
            );
            self.client.update(Update::Notice(notice));
        }
        kept
    }

    /// The repositories in the session's folders.
    fn nested_repositories(&self) -> Vec<PathBuf> {
        let found = self.tracker.repositories();
        let repositories = found.iter().filter(|git| {
            fs::symlink_metadata(git).is_ok_and(|info| info.is_dir())
                && GitLayout::of(git).is_repository()
        });
        repositories.take(MAX_NESTED).cloned().collect()
    }

    /// Registers a command that was started, signs for it, and checks the protected paths when it has ended.
    pub fn watch(&self, job: &Arc<Job>, pass: &Pass, confinement: CommandConfinement) {
        let guard = &self.guard;
        let signing = confinement.signing.map(|created| {
            created.map(|service| guard.run_while_running(Arc::clone(job), service.serve()))
        });
        let allowed = confinement.changes.paths.iter().cloned();
        let profile = confinement.profile.as_ref();
        let command = pass.effects().iter().find_map(Effect::command);
        let script = command.map(|command| Arc::clone(&command.script)).unwrap_or_default();
        let hidden = CommandWatch::hidden_in(&self.roots, profile);
        guard.state.lock().changes.allow(allowed, LONGEST_COMMAND);
        let newly_hidden = guard.state.lock().newly_hidden(&script, &hidden);
        if let Some(shown) = confinement.shown {
            guard.keep_while_running(Arc::clone(job), shown);
        }
        let watch = Arc::new(CommandWatch {
            script,
            is_unconfined: profile.is_none(),
            has_extra_access: pass.has_extra_access(),
            has_network: profile.is_some_and(|profile| profile.network.reaches_other_machines()),
            refused_hosts: confinement.refused_hosts,
            signing,
            environment: Arc::clone(&self.environment),
            writable: profile.map(|profile| profile.writable.clone()).unwrap_or_default(),
            hidden,
            newly_hidden,
            limits: confinement.limits,
            has_snapshot: confinement.snapshot.is_some(),
            changes: confinement.changes,
            ..CommandWatch::default()
        });
        match confinement.snapshot {
            Some(snapshot) => {
                let check = ProtectedCheck {
                    site: self.check_site(),
                    job: Arc::clone(job),
                    watch: Arc::clone(&watch),
                    snapshot,
                    layers: confinement.layers,
                    history: confinement.history,
                };
                guard.tracker.spawn(Arc::new(check).run());
            }
            None => {
                watch.checked.cancel();
                if watch.is_unconfined {
                    self.expect_changes_until_end(Arc::clone(job));
                }
            }
        }
        let GuardState { watches, reports, .. } = &mut *guard.state.lock();
        if watches.len() >= MAX_WATCHES {
            watches.retain(|job, old| !old.checked.is_cancelled() || reports.contains_key(job));
        }
        watches.insert(job.id().to_owned(), watch);
    }

    /// Expects changes of protected files until an unconfined command has ended, and not for longer: if this had to
    /// wait for a thread, changes by other commands would count as this command's.
    fn expect_changes_until_end(&self, job: Arc<Job>) {
        let changes = ChangingCall::begin(&self.guard, [None]);
        self.guard.tracker.spawn(async move {
            job.wait_for_end().await;
            drop(changes);
        });
    }

    /// Checks repositories, and files in subfolders, that have appeared during a confined call: takes away
    /// files that other programs would run.
    /// Returns the report for the model and the user. Blocks: not for the runtime's thread.
    /// `may_be_more` is true if not all folders could be searched.
    pub fn check_repositories(
        &self,
        (new, may_be_more): (Vec<PathBuf>, bool),
        (allowed, makes_environments): (&[PathBuf], bool),
    ) -> Option<String> {
        let reference = self.guard.state.lock().last_snapshot.clone();
        let environments: Vec<_> = environments_of(&new).filter(|_| makes_environments).collect();
        let new = ProtectedSnapshot::without_repositories(new, reference);
        let made = new.accepted_programs(environments, false);
        self.guard.note_told(&made);
        let allowed_now = self.guard.state.lock().changes.allowed_now();
        let allowed = [allowed, &allowed_now, &made].concat();
        let changes = new.check(&allowed, Some(&self.quarantine_folder()));
        let report = changes.map(|changes| {
            tracing::warn!(?changes, "a command made what starts programs");
            changes.message()
        });
        let more = may_be_more.then(|| NOT_SEARCHED.to_owned());
        let told: Vec<_> = report.into_iter().chain(more).collect();
        (!told.is_empty()).then(|| told.join("\n"))
    }
}

/// The folder with the marks of a project's commands.
fn running_commands(confinement: &ConfinementSettings) -> PathBuf {
    confinement.private_caches.join("running")
}

/// A file that is there and locked for as long as a command runs.
#[derive(Debug)]
pub(crate) struct RunningMark {
    path: PathBuf,
    _lock: File,
}

impl RunningMark {
    /// Makes a mark for a command that is about to begin. Blocks.
    pub(crate) fn new(folder: &Path) -> io::Result<RunningMark> {
        private_file::create_folder(folder)?;
        let path = folder.join(uuid::Uuid::new_v4().simple().to_string());
        // Locked before it gets its name: another agent takes an unlocked mark for abandoned.
        let file = tempfile::NamedTempFile::new_in(folder.parent().unwrap_or(folder))?;
        file.as_file().lock()?;
        let lock = file.persist(&path).map_err(|failed| failed.error)?;
        Ok(RunningMark { path, _lock: lock })
    }

    /// Returns true if no other command of the project runs, in this agent or another. Blocks.
    pub(crate) fn is_only(&self) -> bool {
        let entries = self.path.parent().and_then(|folder| fs::read_dir(folder).ok());
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        !paths.filter(|path| *path != self.path).any(|path| is_locked(&path))
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the mark of a command cannot be removed");
        }
    }
}

/// Returns true if a line tells git to delete old objects, or runs only git, which may do so now and then.
fn may_prune(commands: &[SimpleCommand]) -> bool {
    let prunes = commands.iter().any(|command| {
        command.program() == "git" && command.argv().any(|word| PRUNING.contains(&word))
    });
    let only_git = commands.iter().all(|command| {
        command.wrappers.is_empty() && ["git", "cd", "echo"].contains(&command.program())
    });
    prunes || only_git
}

/// Returns a report about commands that were running when the agent ended, once. Blocks; looks through the
/// session's folders only if there were such commands.
pub fn report_unfinished(confinement: &ConfinementSettings, roots: &Roots) -> Option<String> {
    let since = take_first_abandoned(&running_commands(confinement))?;
    let checkpoint = ChangeTracker::default();
    checkpoint.watch(roots, OBEYED, GitSettings::default(), Vec::new());
    let (repositories, _) = checkpoint.find_new_repositories(&BTreeSet::new());
    let repositories = Arc::new(repositories.into_iter().collect());
    let snapshot = ProtectedSnapshot::take(&confinement.protected, repositories, None);
    let changed: Vec<_> = snapshot
        .files()
        .filter(|path| changed_at(path).is_some_and(|at| at + CLOCK_LAG >= since))
        .collect();
    if changed.is_empty() {
        return None;
    }
    let inside = changed.iter().map(|path| path.strip_prefix(roots.real_cwd()).unwrap_or(path));
    let names: Vec<_> = inside.map(|path| escape_hidden_line(&path.to_string_lossy())).collect();
    Some(format!(
        "A command was running when the agent was killed. Since it began, files have changed that other programs run: {}. \
         Look at them before you open the project in an editor or use git there.",
        text::join_first(&names, MAX_NAMED)
    ))
}

/// Removes the marks of commands whose agent has ended. Returns the time at which the first of them began.
fn take_first_abandoned(folder: &Path) -> Option<SystemTime> {
    let mut first: Option<SystemTime> = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let Ok(file) = File::open(entry.path()) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        let Ok(began) = file.metadata().and_then(|found| found.modified()) else { continue };
        first = Some(first.map_or(began, |other| other.min(began)));
        fs::remove_file(entry.path()).ok();
    }
    first
}

/// Adds a text to a report, unless it has the text already.
fn add_to_report(report: &mut String, text: &str) {
    if report.contains(text) {
        return;
    }
    if !report.is_empty() {
        report.push('\n');
    }
    report.push_str(text);
}

#[cfg(test)]
mod tests;
