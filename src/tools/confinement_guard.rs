//! Guards the protected paths while confined commands run: provides their temporary folder and
//! checks the protected paths when each has ended, whether or not a call still waits for it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::confinement::CommandConfinement;
use super::protected_snapshot::ProtectedSnapshot;
use super::{ToolEnv, ToolOutcome, sandbox_denial};
use turnwright_policy::permission::{Confinement, Pass, ProtectedPaths};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::update::Update;
use turnwright_workspace::exec::Job;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// At most this many commands are remembered after their end.
const MAX_WATCHES: usize = 64;
/// At most this many files and folders of a read-only path are checked for hard links.
const MAX_LINK_CHECKS: usize = 2_000;
/// At most this many paths can be allowed while a command runs.
const MAX_ALLOWED: usize = 1_000;

/// The running commands of a session and what is known of their effect on protected paths.
#[derive(Debug, Default)]
pub struct ConfinementGuard {
    temp: Mutex<Option<PrivateTempFolder>>,
    watches: Mutex<HashMap<String, Arc<CommandWatch>>>,
    last_snapshot: Mutex<Option<Arc<ProtectedSnapshot>>>,
    tracker: TaskTracker,
}

/// The advice to the model when an MCP call, not a command, has changed protected paths.
const CALL_HINT: &str = "Other programs run what is there. If the change is wanted, make it with the file \
                    tools; the user is asked.";

/// Instead of a report if the check itself has failed.
const NOT_CHECKED: &str = "[protected: because of a bug it could not be checked whether protected files were \
                    changed. Look at them.]";

/// The state of one command.
#[derive(Debug, Default)]
struct CommandWatch {
    /// The command is not confined.
    is_unconfined: bool,
    hint: Option<String>,
    has_snapshot: bool,
    allowed: Mutex<Vec<PathBuf>>,
    /// Paths that the kernel keeps read-only for the command, with their inodes. While the inode at
    /// a path is still the same, a change there was made by another program.
    read_only_inodes: Vec<(PathBuf, u64)>,
    /// An unconfined command has run meanwhile, so it is not known which of them made a change.
    is_ambiguous: AtomicBool,
    /// Cancelled when the check after the command's end is done.
    checked: CancellationToken,
    report: Mutex<Option<String>>,
}

impl ConfinementGuard {
    /// The private temporary folder of the session's commands; created on first use.
    pub(super) fn temp_folder(&self) -> Option<PathBuf> {
        let mut temp = lock(&self.temp);
        if temp.is_none() {
            match PrivateTempFolder::create() {
                Ok(folder) => *temp = Some(folder),
                Err(error) => {
                    tracing::warn!(%error, "cannot create a temporary folder for commands");
                }
            }
        }
        temp.as_ref().and_then(|it| fs::canonicalize(it.path()).ok())
    }

    /// Takes a snapshot of the protected paths before a command runs. Blocks.
    pub(super) fn take_snapshot(&self, protected: &ProtectedPaths) -> Arc<ProtectedSnapshot> {
        let previous = lock(&self.last_snapshot).clone();
        let snapshot = Arc::new(ProtectedSnapshot::take(protected, previous.as_deref()));
        *lock(&self.last_snapshot) = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Registers a command that was started and checks the protected paths when it has ended.
    pub(super) fn watch(
        &self,
        job: &Arc<Job>,
        confinement: CommandConfinement,
        quarantine: PathBuf,
    ) {
        let watch = Arc::new(CommandWatch {
            is_unconfined: confinement.profile.is_none(),
            hint: confinement.hint,
            has_snapshot: confinement.snapshot.is_some(),
            allowed: Mutex::new(confinement.allowed),
            read_only_inodes: confinement.read_only_inodes,
            ..CommandWatch::default()
        });
        match confinement.snapshot {
            Some(snapshot) => {
                let (job, watch) = (Arc::clone(job), Arc::clone(&watch));
                self.tracker.spawn(async move {
                    job.wait_for_end().await;
                    let done = watch.checked.clone().drop_guard();
                    let failed = Arc::clone(&watch);
                    let checking =
                        tokio::task::spawn_blocking(move || watch.check(&snapshot, &quarantine));
                    if checking.await.is_err() {
                        *lock(&failed.report) = Some(NOT_CHECKED.to_owned());
                    }
                    drop(done);
                });
            }
            None => watch.checked.cancel(),
        }
        let mut watches = lock(&self.watches);
        if watches.len() >= MAX_WATCHES {
            watches.retain(|_, it| !it.checked.is_cancelled() || lock(&it.report).is_some());
        }
        watches.insert(job.id().to_owned(), watch);
    }

    /// Whether that command is unconfined or unknown.
    pub(super) fn is_unconfined(&self, job: &str) -> bool {
        lock(&self.watches).get(job).is_none_or(|it| it.is_unconfined)
    }

    /// Notes what `pass` permits to change, so that it is not blamed on the commands that run
    /// meanwhile.
    pub(super) fn note_allowed(&self, pass: &Pass, protected: &ProtectedPaths) {
        let watches: Vec<_> = lock(&self.watches).values().cloned().collect();
        for watch in watches.iter().filter(|it| it.has_snapshot && !it.checked.is_cancelled()) {
            for effect in pass.effects() {
                match effect {
                    Effect::Write(target) | Effect::Delete(target)
                        if protected.reason(&target.path).is_some() =>
                    {
                        let mut allowed = lock(&watch.allowed);
                        if allowed.len() < MAX_ALLOWED {
                            allowed.push(target.path.clone());
                        }
                    }
                    Effect::Exec(_) if *pass.confinement() == Confinement::Unconfined => {
                        watch.is_ambiguous.store(true, Ordering::Relaxed);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Waits for the check after the command's end and adds its report, or a hint about the
    /// sandbox, to the outcome.
    pub(super) async fn add_report(&self, job: &Job, outcome: &mut ToolOutcome) {
        let Some(watch) = lock(&self.watches).get(job.id()).cloned() else { return };
        watch.checked.cancelled().await;
        if let Some(report) = lock(&watch.report).take() {
            outcome.ok = false;
            append_note(outcome, report);
        }
        let output = outcome.raw.get("output").and_then(serde_json::Value::as_str);
        let met_a_wall = !outcome.ok && output.is_some_and(sandbox_denial::is_likely);
        if let Some(hint) = watch.hint.as_ref().filter(|_| met_a_wall) {
            append_note(outcome, hint.clone());
        }
    }

    /// The reports about commands that no call waits for; each is returned once.
    pub(super) fn take_reports(&self) -> Option<String> {
        let watches = lock(&self.watches);
        let reports = watches.iter().filter_map(|(job, it)| {
            let report = lock(&it.report).take()?;
            Some(format!("{job}: {report}\n"))
        });
        let text: String = reports.collect();
        (!text.is_empty()).then_some(text)
    }

    /// Waits for the last check and removes the temporary folder. All commands must have ended.
    pub async fn close(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        let temp = lock(&self.temp).take();
        drop(tokio::task::spawn_blocking(move || drop(temp)).await);
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
        let watch = Arc::new(CommandWatch { has_snapshot: true, ..CommandWatch::default() });
        lock(&env.guard.watches).insert(name.clone(), watch);
        let mut call = RemoteCallGuard(Some(GuardedCall { env, name, snapshot: None }));
        if let Some(call) = &mut call.0 {
            let protected = &call.env.confinement.protected;
            call.snapshot = Some(call.env.guard.take_snapshot(protected));
        }
        call
    }

    /// Checks the protected paths after the call. Tells the user what was found and returns it.
    pub(crate) async fn finish(mut self) -> Option<String> {
        let call = self.0.take()?;
        let client = Arc::clone(&call.env.client);
        let checking = tokio::task::spawn_blocking(move || call.check());
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
    /// Removes what has appeared, unless the user has allowed it. What has changed may be the work of
    /// another program and is only reported.
    fn check(self) -> Option<String> {
        let watch = lock(&self.env.guard.watches).remove(&self.name)?;
        let quarantine = self.env.quarantine_folder();
        let allowed = lock(&watch.allowed).clone();
        let restores = !watch.is_ambiguous.load(Ordering::Relaxed);
        let snapshot = self.snapshot?;
        let known: Vec<_> = allowed.iter().cloned().chain(snapshot.files()).collect();
        let new = snapshot.check(&known, &quarantine, restores).map(|it| (it, restores));
        let changed = snapshot.check(&allowed, &quarantine, false).map(|it| (it, false));
        let found = new.into_iter().chain(changed.filter(|_| restores));
        let reports = found.map(|(changes, restores)| {
            tracing::warn!(?changes, "protected paths were changed during a call");
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
    fn check(&self, snapshot: &ProtectedSnapshot, quarantine: &Path) {
        let mut allowed = lock(&self.allowed).clone();
        let same = self
            .read_only_inodes
            .iter()
            .filter(|(path, number)| inode(path) == Some((*number, true)));
        allowed.extend(same.map(|(path, _)| path.clone()));
        let restores = !self.is_ambiguous.load(Ordering::Relaxed);
        if let Some(changes) = snapshot.check(&allowed, quarantine, restores) {
            tracing::warn!(?changes, "a command changed protected paths");
            *lock(&self.report) = Some(changes.message(restores));
        }
    }
}

/// The paths that the sandbox keeps read-only, with their inodes. Left out are paths with a hard
/// link elsewhere, through which the command could still write them. Blocks: not for the runtime's
/// thread.
pub(super) fn read_only_inodes(profile: &SandboxProfile) -> Vec<(PathBuf, u64)> {
    if !turnwright_sandbox::namespace_support().mounts {
        return Vec::new();
    }
    let only = |it: &PathBuf| inode(it).filter(|(_, is_only)| *is_only).map(|it| it.0);
    profile.read_only.iter().filter_map(|it| Some((it.clone(), only(it)?))).collect()
}

/// The inode of a file or folder, and whether neither it nor anything in it has a second hard link
/// through which it could be changed.
#[cfg(unix)]
fn inode(path: &Path) -> Option<(u64, bool)> {
    use std::os::unix::fs::MetadataExt;
    let number = fs::symlink_metadata(path).ok()?.ino();
    let (mut left, mut paths) = (MAX_LINK_CHECKS, vec![path.to_path_buf()]);
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).ok()?;
        if left == 0 || !metadata.is_dir() && metadata.nlink() > 1 {
            return Some((number, false));
        }
        left -= 1;
        if metadata.is_dir() {
            paths.extend(fs::read_dir(&path).ok()?.flatten().take(left + 1).map(|it| it.path()));
        }
    }
    Some((number, true))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<(u64, bool)> {
    None
}

fn append_note(outcome: &mut ToolOutcome, note: String) {
    outcome.text.push_str(if outcome.text.ends_with('\n') { "" } else { "\n" });
    outcome.text.push_str(&note);
    outcome.content.push(CallContent::Text(note));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests;
