//! Guards the protected paths while confined commands run: provides their temporary folder and
//! checks the protected paths when each has ended, whether or not a call still waits for it.

mod other_changes;
mod protected_check;

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::confinement::{CommandConfinement, CommandSigning};
use super::hidden_paths::KnownFolders;
use super::ignored_search::{IgnoredSearch, SearchPlace};
use super::kept_history::{HistoryKeeper, KeptHistory};
use super::linked_files::LinkedFiles;
use super::protected_snapshot::ProtectedSnapshot;
use super::sandbox_denial::{self, DenialNote};
use super::server_watch::{ServerWatch, WatchedServers, changed_near};
use super::unfinished_commands::OtherCommands;
use super::{ToolEnv, ToolOutcome, private_caches};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::{Confinement, Pass, ProtectedPaths};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::ChangeTracker;
use turnwright_workspace::exec::{Job, JobEnd, Jobs};
use turnwright_workspace::files::SessionTmp;
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

pub(super) use other_changes::CLOCK_LAG;
use other_changes::{ChangingCall, OtherChanges};
use protected_check::ProtectedCheck;
pub(super) use protected_check::{SETTLING_TIME, changed, pause_after};

/// How often the protected paths are checked while a command runs in the background.
pub(super) const BACKGROUND_CHECK_PERIOD: Duration = Duration::from_secs(2);
/// At most this many commands are remembered after their end.
const MAX_WATCHES: usize = 64;
/// At most this many files and folders of a read-only path are checked for hard links.
#[cfg(unix)]
const MAX_LINK_CHECKS: usize = 2_000;
/// How long a command that was allowed to change a protected path may do so.
const LONGEST_COMMAND: Duration = Duration::from_secs(1_800);
/// At most this many paths of one call can be allowed while a command runs.
const MAX_ALLOWED: usize = 1_000;

/// The running commands of a session and what is known of their effect on protected paths.
#[derive(Debug, Default)]
pub struct ConfinementGuard {
    temp: Mutex<Option<PrivateTempFolder>>,
    watches: Mutex<HashMap<String, Arc<CommandWatch>>>,
    last_snapshot: Mutex<Option<Arc<ProtectedSnapshot>>>,
    known_folders: KnownFolders,
    linked_files: LinkedFiles,
    history: HistoryKeeper,
    pub(super) servers: Arc<WatchedServers>,
    pub(super) others: Arc<OtherChanges>,
    ignored: IgnoredSearch,
    /// Set when the use of the private caches was noted.
    has_noted_caches: AtomicBool,
    /// Set when the missing caches of this session's commands were made.
    pub(super) has_made_caches: AtomicBool,
    tracker: TaskTracker,
}

/// The advice to the model when an MCP call, not a command, has changed protected paths.
pub(super) const CALL_HINT: &str = "Other programs run what is there. If the change is wanted, make it with the file \
                    tools; the user is asked.";

/// The advice to the model when the sandbox seems to be why a command has failed.
const HOW_TO_ESCALATE: &str = "If it needs more call again with \"escalate\": \"network\", a path, \"sign\", or \"full\"; the \
                    user is asked.";

/// Instead of a report if the check itself has failed.
const NOT_CHECKED: &str = "[protected: because of a bug it could not be checked whether protected files were \
                    changed. Look at them.]";

/// The report if repositories may have appeared that were not found.
pub(super) const NOT_SEARCHED: &str = "[protected: the command left folders that cannot be searched for git repositories, or too many. \
                            Do not run git in folders that are new before you have looked at them.]";

/// Searching for new repositories takes at most one part in this many of a background command's time.
pub(super) const SEARCH_PAUSE_FACTOR: u32 = 50;

/// The state of one command.
#[derive(Debug, Default)]
struct CommandWatch {
    /// It is a call of a server, and no command.
    is_call: bool,
    /// The command is not confined.
    is_unconfined: bool,
    /// The command has more access than the sandbox gives.
    has_extra_access: bool,
    limits: Option<String>,
    has_network: bool,
    signing: CommandSigning,
    /// Where it may write.
    writable: Vec<PathBuf>,
    has_snapshot: bool,
    /// Virtual environments of Python that it makes, or into which it installs packages.
    installs_in: Vec<PathBuf>,
    /// True if it may make virtual environments of Python.
    makes_environments: bool,
    allowed: Vec<PathBuf>,
    /// Paths that the kernel keeps read-only for the command, with their inodes. While the inode at
    /// a path is still the same, a change there was made by another program.
    read_only_inodes: Vec<(PathBuf, u64)>,
    is_in_background: AtomicBool,
    /// Cancelled when the check after the command's end is done.
    checked: CancellationToken,
    report: Mutex<Option<String>>,
}

impl CommandWatch {
    /// The access that the sandbox has denied to the command, as far as it can be named.
    fn denial(&self, output: &str, is_success: bool, end: Option<JobEnd>) -> Option<DenialNote> {
        if !is_success {
            let read_only: Vec<_> =
                self.read_only_inodes.iter().map(|(path, _)| path.as_path()).collect();
            if let Some(path) = sandbox_denial::refused_path(output, &read_only) {
                return Some(DenialNote::of_protected(path));
            }
            if let Some(note) = self.signing.denial(output) {
                return Some(note);
            }
        }
        let refused = end.map(|end| end.refused_connections).unwrap_or_default();
        let denial = sandbox_denial::refused_connections(&refused, self.has_network, !is_success);
        denial.or_else(|| {
            let named = sandbox_denial::unwritable_path(output).filter(|_| !is_success)?;
            sandbox_denial::unwritable_place(Path::new(named), &self.writable)
        })
    }
}

impl ConfinementGuard {
    /// The private temporary folder of the session's commands; created on first use.
    pub(super) fn temp_folder(&self) -> Option<PathBuf> {
        let mut temp = self.temp.lock();
        if temp.is_none() {
            match PrivateTempFolder::create() {
                Ok(folder) => *temp = Some(folder),
                Err(error) => {
                    tracing::warn!(%error, "cannot create a temporary folder for commands");
                }
            }
        }
        temp.as_ref().and_then(|folder| real_path(folder.path()).ok())
    }

    /// Does some work until a job ends.
    pub(super) fn run_while_running(
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
    pub(super) fn known_temp_folder(&self) -> Option<PathBuf> {
        self.temp.lock().as_ref().and_then(|folder| real_path(folder.path()).ok())
    }

    /// The results of searches for secrets in the session's folders.
    pub(super) fn known_folders(&self) -> &KnownFolders {
        &self.known_folders
    }

    /// The results of searches for files with names outside the session's folders.
    pub(super) fn linked_files(&self) -> &LinkedFiles {
        &self.linked_files
    }

    /// Keeps the history of repositories before a command. Blocks.
    pub(super) fn keep_history(
        &self,
        repositories: Vec<PathBuf>,
        place: &Path,
        may_prune: bool,
        others: Option<OtherCommands>,
    ) -> KeptHistory {
        let is_alone = !self.watches.lock().values().any(|watch| watch.is_checking());
        self.history.keep(repositories, place, (may_prune, is_alone), others)
    }

    /// Takes a snapshot of the protected paths before a command runs. Blocks.
    pub(super) fn take_snapshot(
        &self,
        env: &ToolEnv,
        repositories: Arc<BTreeSet<PathBuf>>,
    ) -> Arc<ProtectedSnapshot> {
        let confinement = &env.confinement;
        let programs = env.command_environment.get("PATH").map(std::env::split_paths);
        let previous = self.last_snapshot.lock().clone();
        let protected = &confinement.protected;
        let tmp = env.files.roots().session_tmp().and_then(SessionTmp::known_folder);
        let temp = self.known_temp_folder().into_iter().chain(tmp.map(Path::to_path_buf));
        let writable = confinement.writable.iter().chain([&confinement.private_caches]);
        let taken = ProtectedSnapshot::take(protected, repositories, previous.as_deref())
            .with_places(writable.cloned().chain(temp), programs.into_iter().flatten().collect());
        let snapshot = Arc::new(taken);
        *self.last_snapshot.lock() = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Notes, once, that commands use the private caches of this project. Old ones are removed meanwhile.
    pub(super) fn note_caches(&self, folder: &Path) {
        if !self.has_noted_caches.swap(true, Ordering::Relaxed) {
            let folder = folder.to_path_buf();
            let tracker = self.tracker.clone();
            self.tracker.spawn_blocking(move || {
                private_caches::note_use(&folder, || tracker.is_closed());
            });
        }
    }

    /// Registers a command that was started and checks the protected paths when it has ended.
    pub(super) fn watch(
        &self,
        job: &Arc<Job>,
        pass: &Pass,
        confinement: CommandConfinement,
        checkpoint: &ChangeTracker,
        quarantine: PathBuf,
    ) {
        self.servers.allow(confinement.allowed.iter().cloned(), LONGEST_COMMAND);
        if let Some(shown) = confinement.shown {
            self.keep_while_running(Arc::clone(job), shown);
        }
        let profile = confinement.profile.as_ref();
        let watch = Arc::new(CommandWatch {
            is_unconfined: profile.is_none(),
            has_extra_access: pass.has_extra_access(),
            has_network: profile.is_some_and(|profile| profile.network.reaches_other_machines()),
            signing: confinement.signing,
            writable: profile.map(|profile| profile.writable.clone()).unwrap_or_default(),
            limits: confinement.limits,
            has_snapshot: confinement.snapshot.is_some(),
            installs_in: confinement.installs_in,
            makes_environments: confinement.makes_environments,
            allowed: confinement.allowed,
            read_only_inodes: confinement.read_only_inodes,
            ..CommandWatch::default()
        });
        match confinement.snapshot {
            Some(snapshot) => {
                let search = self.search_place(checkpoint, quarantine.clone());
                let check = ProtectedCheck {
                    watch: Arc::clone(&watch),
                    snapshot,
                    quarantine,
                    ignored: (self.ignored.clone(), search),
                    layers: Arc::new(confinement.layers),
                    history: Arc::new(confinement.history),
                    others: Arc::clone(&self.others),
                    _running: Arc::new(confinement.running),
                    servers: Arc::clone(&self.servers),
                };
                self.tracker.spawn(check.run(Arc::clone(job), checkpoint.clone()));
            }
            None => {
                watch.checked.cancel();
                if watch.is_unconfined {
                    let changes = self.others.begin([None]);
                    let job = Arc::clone(job);
                    self.tracker.spawn(async move {
                        job.wait_for_end().await;
                        drop(changes);
                    });
                }
            }
        }
        let mut watches = self.watches.lock();
        if watches.len() >= MAX_WATCHES {
            watches.retain(|_, old| !old.checked.is_cancelled() || old.report.lock().is_some());
        }
        watches.insert(job.id().to_owned(), watch);
    }

    /// Notes that a command goes on in the background: the protected paths are also checked while it
    /// runs.
    pub(super) fn note_background(&self, job: &str) {
        if let Some(watch) = self.watches.lock().get(job) {
            watch.is_in_background.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if that command is unconfined or unknown.
    pub(super) fn is_unconfined(&self, job: &str) -> bool {
        self.watches.lock().get(job).is_none_or(|watch| watch.is_unconfined)
    }

    /// Returns true if that command has more access than the sandbox gives, or is unknown.
    pub(super) fn has_extra_access(&self, job: &str) -> bool {
        self.watches.lock().get(job).is_none_or(|watch| watch.has_extra_access)
    }

    /// Notes the changes that `pass` permits for as long as its call runs, so that they are not blamed on the commands
    /// and servers that run meanwhile.
    pub(super) fn note_allowed(
        &self,
        pass: &Pass,
        protected: &ProtectedPaths,
    ) -> Option<ChangingCall> {
        let changed = pass.effects().iter().filter_map(|effect| match effect {
            Effect::Write(target) | Effect::Delete(target)
                if protected.reason(&target.path).is_some() =>
            {
                Some(Some(target.path.clone()))
            }
            Effect::Exec(_) if *pass.confinement() == Confinement::Unconfined => {
                self.servers.note_unconfined_command();
                Some(None)
            }
            _ => None,
        });
        let changed: Vec<_> = changed.take(MAX_ALLOWED).collect();
        (!changed.is_empty()).then(|| self.others.begin(changed))
    }

    /// Waits for the check after the command's end and adds its report, and the limits of the
    /// sandbox if they seem to be why it failed, to the outcome.
    pub(super) async fn add_report(&self, job: &Job, outcome: &mut ToolOutcome) {
        let Some(watch) = self.watches.lock().get(job.id()).cloned() else { return };
        watch.checked.cancelled().await;
        if let Some(report) = watch.report.lock().take() {
            outcome.ok = false;
            outcome.append_note(report);
        }
        let output =
            outcome.raw.get("output").and_then(serde_json::Value::as_str).unwrap_or_default();
        let denial = watch.denial(output, outcome.ok, job.end()).filter(|_| !watch.is_unconfined);
        if let Some(denial) = denial {
            outcome.add_line(&format!(
                "[sandbox: {}. If it is needed, call again with \"escalate\": \"{}\"; the user is asked.]",
                denial.what, denial.escalate
            ));
            outcome.content.push(CallContent::Text(format!("[sandbox: {}]", denial.what)));
            return;
        }
        let is_denial_likely = !outcome.ok && sandbox_denial::is_likely(output);
        if let Some(limits) = watch.limits.as_ref().filter(|_| is_denial_likely) {
            outcome.add_line(&format!("[{limits}. {HOW_TO_ESCALATE}]"));
            outcome.content.push(CallContent::Text(format!("[{limits}]")));
        }
    }

    /// The reports about commands that no call waits for; each is returned once.
    pub(super) fn take_reports(&self, jobs: &Jobs) -> Option<String> {
        let watches = self.watches.lock();
        let issued = watches.iter().filter(|(job, _)| jobs.has_issued(job));
        let reports = issued.filter_map(|(job, watch)| {
            let report = watch.report.lock().take()?;
            Some(format!("{job}: {report}\n"))
        });
        let servers = self.servers.take_report().map(|report| format!("{report}\n"));
        let text: String = reports.chain(servers).chain(self.ignored.take_report()).collect();
        (!text.is_empty()).then_some(text)
    }

    /// Checks repositories, and files in subfolders, that have appeared during a confined call: takes away
    /// files that other programs would run.
    /// Returns the report for the model and the user. Blocks: not for the runtime's thread.
    /// `may_be_more` is true if not all folders could be searched.
    pub(crate) fn check_repositories(
        &self,
        (new, may_be_more): (Vec<PathBuf>, bool),
        (allowed, makes_environments): (&[PathBuf], bool),
        quarantine: &Path,
    ) -> Option<String> {
        let reference = self.last_snapshot.lock().clone();
        let environments: Vec<_> = environments_of(&new).filter(|_| makes_environments).collect();
        let new = ProtectedSnapshot::without_repositories(new, reference);
        let made = new.accepted_programs(environments, false);
        self.servers.note_told(&made);
        let allowed = [allowed, &self.servers.allowed_now(), &made].concat();
        let changes = new.check(&allowed, quarantine, true);
        let report = changes.map(|changes| {
            tracing::warn!(?changes, "a command made what starts programs");
            changes.message(true)
        });
        match (report, may_be_more.then(|| NOT_SEARCHED.to_owned())) {
            (Some(report), Some(more)) => Some(format!("{report}\n{more}")),
            (report, more) => report.or(more),
        }
    }

    /// Searches the ignored folders for repositories, beside the calls.
    pub(super) fn search_ignored(&self, checkpoint: &ChangeTracker, quarantine: PathBuf) {
        self.ignored.request(self.search_place(checkpoint, quarantine));
    }

    /// Notes the repositories in ignored folders before the first command.
    pub(super) fn begin_ignored_search(&self, checkpoint: &ChangeTracker, quarantine: PathBuf) {
        self.ignored.begin(self.search_place(checkpoint, quarantine));
    }

    fn search_place(&self, checkpoint: &ChangeTracker, quarantine: PathBuf) -> SearchPlace {
        SearchPlace {
            checkpoint: checkpoint.clone(),
            quarantine,
            tracker: self.tracker.clone(),
            stop: self.servers.stopped(),
        }
    }

    /// Watches the protected paths from now on until the session is closed, for as long as its confined
    /// servers run.
    pub(crate) fn watch_servers(&self, watch: ServerWatch) {
        self.tracker.spawn(watch.run(self.servers.stopped()));
    }

    /// Returns true if a command runs, not in the background, that checks the protected paths meanwhile and at its end.
    pub(super) fn is_checking_command(&self) -> bool {
        self.watches.lock().values().any(|watch| watch.is_checking_now() && !watch.is_call)
    }

    /// Returns true if a call of a server runs that checks the protected paths at its end.
    pub(super) fn is_checking_call(&self) -> bool {
        self.watches.lock().values().any(|watch| watch.is_checking_now() && watch.is_call)
    }

    /// Returns true if a running command or call was allowed to change this path. Installed files are judged later, at
    /// its end.
    pub(super) fn is_allowed(&self, path: &Path) -> bool {
        self.watches.lock().values().any(|watch| {
            let mut places = watch.allowed.iter().chain(&watch.installs_in);
            watch.is_checking() && places.any(|place| path.starts_with(place))
        })
    }

    /// Waits for the last check and removes the temporary folder. All commands must have ended.
    pub async fn close(&self) {
        self.servers.stop();
        self.tracker.close();
        self.tracker.wait().await;
        let temp = self.temp.lock().take();
        spawn_blocking(move || drop(temp)).await.ok();
    }
}

/// Guards the protected paths during one call of a confined MCP server. They are also checked if the
/// call panics or is dropped.
pub(crate) struct RemoteCallGuard(Option<GuardedCall>);

struct GuardedCall {
    env: Arc<ToolEnv>,
    name: String,
    /// `None` until it is taken, and if that has failed.
    snapshot: Option<Arc<ProtectedSnapshot>>,
}

impl RemoteCallGuard {
    /// Takes a snapshot before the call. Blocks: not for the runtime's thread.
    pub(crate) fn new(env: Arc<ToolEnv>, call: &str) -> RemoteCallGuard {
        let name = format!("call {call}");
        let watch = CommandWatch { is_call: true, has_snapshot: true, ..CommandWatch::default() };
        env.guard.watches.lock().insert(name.clone(), Arc::new(watch));
        let mut call = RemoteCallGuard(Some(GuardedCall { env, name, snapshot: None }));
        if let Some(call) = &mut call.0 {
            let repositories = call.env.checkpoint.repositories();
            call.snapshot = Some(call.env.guard.take_snapshot(&call.env, repositories));
        }
        call
    }

    /// Checks the protected paths after the call. Reports findings to the user and returns the report.
    pub(crate) async fn finish(mut self) -> Option<String> {
        let call = self.0.take()?;
        let client = Arc::clone(&call.env.client);
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
        let tracker = call.env.guard.tracker.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(tracker.spawn_blocking_on(move || call.check(), &runtime)),
            Err(_) => drop(call.check()),
        }
    }
}

impl GuardedCall {
    /// Removes files that have appeared, unless the user has allowed them. Changes may be the work of
    /// another program and are only reported.
    fn check(self) -> Option<String> {
        let watch = self.env.guard.watches.lock().remove(&self.name)?;
        let quarantine = self.env.quarantine_folder();
        let allowed = watch.allowed.clone();
        let snapshot = self.snapshot?;
        let others = &self.env.guard.others;
        let is_told = |path: &Path| !others.are_allowed(path, changed_near(path));
        // Nearly always nothing has changed, and one look says so.
        snapshot.check(&allowed, &quarantine, false)?;
        let known: Vec<_> = allowed.iter().cloned().chain(snapshot.files()).collect();
        let is_trap = |path: &Path| !others.are_unknown(changed_near(path)) && is_told(path);
        let new = snapshot.check_if(&known, &quarantine, true, &is_trap);
        let changed = snapshot.check_if(&allowed, &quarantine, false, &is_told);
        let undone = new.map(|changes| (changes, true)).into_iter();
        let found = undone.chain(changed.map(|changes| (changes, false)));
        let reports = found.map(|(changes, restores)| {
            tracing::warn!(?changes, "protected paths were changed during a call");
            self.env.guard.servers.note_told(&changes.paths);
            changes.message_about(
                "the server, or another program during the call,",
                CALL_HINT,
                restores,
            )
        });
        let report = reports.collect::<Vec<_>>().join("\n");
        if report.is_empty() {
            return None;
        }
        self.env.client.update(Update::Notice(report.clone()));
        Some(report)
    }
}

impl CommandWatch {
    fn is_checking(&self) -> bool {
        self.has_snapshot && !self.checked.is_cancelled()
    }

    fn is_checking_now(&self) -> bool {
        self.is_checking() && !self.is_in_background.load(Ordering::Relaxed)
    }
}

/// The virtual environments of Python to which these paths belong.
fn environments_of(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().filter_map(|path| ProtectedPaths::environment_of(path)).map(Path::to_path_buf)
}

/// The paths that the sandbox keeps read-only, with their inodes. Left out are paths with a hard
/// link elsewhere, through which the command could still write them. Blocks: not for the runtime's
/// thread.
pub(super) fn read_only_inodes(profile: &SandboxProfile) -> Vec<(PathBuf, u64)> {
    if !turnwright_sandbox::namespace_support().mounts {
        return Vec::new();
    }
    let found = profile.read_only.iter().filter_map(|path| {
        let (number, is_only) = inode(path)?;
        is_only.then(|| (path.clone(), number))
    });
    found.collect()
}

/// The inode of a file or folder, and true if neither it nor anything in it has a second hard link
/// through which it could be changed.
#[cfg(unix)]
fn inode(path: &Path) -> Option<(u64, bool)> {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::symlink_metadata(path).ok()?.ino();
    let mut left = MAX_LINK_CHECKS;
    let mut paths = vec![path.to_path_buf()];
    while let Some(path) = paths.pop() {
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        if left == 0 || !metadata.is_dir() && metadata.nlink() > 1 {
            return Some((number, false));
        }
        left -= 1;
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).ok()?.flatten();
            paths.extend(entries.take(left + 1).map(|entry| entry.path()));
        }
    }
    Some((number, true))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<(u64, bool)> {
    None
}

#[cfg(test)]
mod tests;
