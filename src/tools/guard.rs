//! The guard over commands that run: their temporary folder, and the look at protected places when
//! they have ended, whoever waits for that.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cell::Cell;
use super::tripwire::Tripwire;
use super::{Outcome, denial};
use turnwright_types::effect::{Content, Effect};
use turnwright_workspace::exec::Job;
use turnwright_policy::permission::{Confinement, Pass, Protected};
use turnwright_sandbox::Profile;

/// Commands that are remembered after their end.
const MOST_WATCHES: usize = 64;
/// Files and folders in a kept place that are looked at for second names.
const MOST_LOOKED_AT: usize = 2_000;
/// Paths that may be allowed while a command runs.
const MOST_ALLOWED: usize = 1_000;

/// The commands of a session that are kept to something.
#[derive(Debug, Default)]
pub struct Cells {
    temp: Mutex<Option<TempDir>>,
    // Std mutexes: held to look at a short list.
    watches: Mutex<HashMap<String, Arc<Watch>>>,
    last: Mutex<Option<Arc<Tripwire>>>,
    tracker: TaskTracker,
}

/// A look at the protected places, to be taken again.
#[derive(Debug)]
pub struct Lookout {
    name: String,
    tripwire: Arc<Tripwire>,
}

/// What is said about such a place to whoever does not run commands.
const HINT: &str = "Others run what lies there. If that is wanted, use the tools for files; the \
                    user is asked.";

/// What is known of one command.
#[derive(Debug, Default)]
struct Watch {
    /// Nothing keeps it in.
    is_open: bool,
    hint: Option<String>,
    has_tripwire: bool,
    allowed: Mutex<Vec<PathBuf>>,
    /// Places that the kernel keeps from the command, each with what it was. As long as it is that,
    /// what has changed in it is somebody else's work.
    kept: Vec<(PathBuf, u64)>,
    /// Something else that nothing keeps in has run meanwhile: who has done what is not known.
    is_shared: AtomicBool,
    /// The look at its end was taken.
    over: CancellationToken,
    report: Mutex<Option<String>>,
}

impl Cells {
    /// The temporary folder of the session's commands, which nobody else gets into.
    pub(super) fn temp(&self) -> Option<PathBuf> {
        let mut temp = lock(&self.temp);
        if temp.is_none() {
            match private_folder() {
                Ok(folder) => *temp = Some(folder),
                Err(error) => tracing::warn!(%error, "there is no temporary folder for commands"),
            }
        }
        temp.as_ref().and_then(|it| fs::canonicalize(it.path()).ok())
    }

    /// Looks at the protected places before a command.
    pub(super) fn set_tripwire(&self, protected: &Protected) -> Arc<Tripwire> {
        let last = lock(&self.last).clone();
        let tripwire = Arc::new(Tripwire::set(protected, last.as_deref()));
        *lock(&self.last) = Some(Arc::clone(&tripwire));
        tripwire
    }

    /// Watches over a command that has been started.
    pub(super) fn watch(&self, job: &Arc<Job>, cell: Cell, aside: PathBuf) {
        let watch = Arc::new(Watch {
            is_open: cell.jail.is_none(),
            hint: cell.hint,
            has_tripwire: cell.tripwire.is_some(),
            allowed: Mutex::new(cell.allowed),
            kept: cell.kept,
            ..Watch::default()
        });
        match cell.tripwire {
            Some(tripwire) => {
                let (job, watch) = (Arc::clone(job), Arc::clone(&watch));
                self.tracker.spawn(async move {
                    job.ended().await;
                    let done = watch.over.clone().drop_guard();
                    let looking =
                        tokio::task::spawn_blocking(move || watch.look(&tripwire, &aside));
                    if looking.await.is_err() {
                        tracing::error!("the look at protected places has failed");
                    }
                    drop(done);
                });
            }
            None => watch.over.cancel(),
        }
        let mut watches = lock(&self.watches);
        if watches.len() >= MOST_WATCHES {
            watches.retain(|_, it| !it.over.is_cancelled() || lock(&it.report).is_some());
        }
        watches.insert(job.id().to_owned(), watch);
    }

    /// Looks at the protected places before a call of a program that is kept in and is no command.
    /// Not for the runtime's thread.
    pub fn look_out(&self, call: &str, protected: &Protected) -> Lookout {
        let name = format!("call {call}");
        let watch = Arc::new(Watch { has_tripwire: true, ..Watch::default() });
        lock(&self.watches).insert(name.clone(), watch);
        Lookout { name, tripwire: self.set_tripwire(protected) }
    }

    /// Looks again. What has appeared there is taken away, unless the user has allowed it; what has
    /// changed there may be somebody else's work and is only told. Not for the runtime's thread.
    pub fn look_again(&self, lookout: &Lookout, aside: &Path) -> Option<String> {
        let watch = lock(&self.watches).remove(&lookout.name)?;
        let allowed = lock(&watch.allowed).clone();
        let puts_right = !watch.is_shared.load(Ordering::Relaxed);
        let tripwire = &lookout.tripwire;
        let known: Vec<_> = allowed.iter().cloned().chain(tripwire.files()).collect();
        let new = tripwire.check(&known, aside, puts_right).map(|it| (it, puts_right));
        let changed = tripwire.check(&allowed, aside, false).map(|it| (it, false));
        let found = new.into_iter().chain(changed.filter(|_| puts_right));
        let reports = found.map(|(trespass, puts_right)| {
            tracing::warn!(?trespass, "protected places have changed during a call");
            trespass.text_about("the server, or somebody else during the call,", HINT, puts_right)
        });
        let reports: Vec<_> = reports.collect();
        (!reports.is_empty()).then(|| reports.join("\n"))
    }

    /// Whether nothing keeps that command in.
    pub(super) fn is_open(&self, job: &str) -> bool {
        lock(&self.watches).get(job).is_none_or(|it| it.is_open)
    }

    /// Notes what the user has allowed while commands run: it was not their doing.
    pub(super) fn allow(&self, pass: &Pass, protected: &Protected) {
        let watches: Vec<_> = lock(&self.watches).values().cloned().collect();
        for watch in watches.iter().filter(|it| it.has_tripwire && !it.over.is_cancelled()) {
            for effect in pass.effects() {
                match effect {
                    Effect::Write(target) | Effect::Delete(target)
                        if protected.why(&target.path).is_some() =>
                    {
                        let mut allowed = lock(&watch.allowed);
                        if allowed.len() < MOST_ALLOWED {
                            allowed.push(target.path.clone());
                        }
                    }
                    Effect::Exec(_) if *pass.confinement() == Confinement::Open => {
                        watch.is_shared.store(true, Ordering::Relaxed);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Waits until a command that has ended was looked after, and says in its outcome what came
    /// of that.
    pub(super) async fn settle(&self, job: &Job, outcome: &mut Outcome) {
        let Some(watch) = lock(&self.watches).get(job.id()).cloned() else { return };
        watch.over.cancelled().await;
        if let Some(report) = lock(&watch.report).take() {
            outcome.ok = false;
            add(outcome, report);
        }
        let output = outcome.raw.get("output").and_then(serde_json::Value::as_str);
        let met_a_wall = !outcome.ok && output.is_some_and(denial::is_likely);
        if let Some(hint) = watch.hint.as_ref().filter(|_| met_a_wall) {
            add(outcome, hint.clone());
        }
    }

    /// What commands have done to protected places that nobody waits for; each is told once.
    pub(super) fn news(&self) -> Option<String> {
        let watches = lock(&self.watches);
        let reports = watches.iter().filter_map(|(job, it)| {
            let report = lock(&it.report).take()?;
            Some(format!("{job}: {report}\n"))
        });
        let text: String = reports.collect();
        (!text.is_empty()).then_some(text)
    }

    /// Waits for the last look and takes the temporary folder away. All commands have ended.
    pub async fn close(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        let temp = lock(&self.temp).take();
        drop(tokio::task::spawn_blocking(move || drop(temp)).await);
    }
}

impl Watch {
    fn look(&self, tripwire: &Tripwire, aside: &Path) {
        let mut allowed = lock(&self.allowed).clone();
        let same = self.kept.iter().filter(|(path, number)| inode(path) == Some((*number, true)));
        allowed.extend(same.map(|(path, _)| path.clone()));
        let puts_right = !self.is_shared.load(Ordering::Relaxed);
        if let Some(trespass) = tripwire.check(&allowed, aside, puts_right) {
            tracing::warn!(?trespass, "a command has changed protected places");
            *lock(&self.report) = Some(trespass.text(puts_right));
        }
    }
}

/// What the walls keep as it is, where they can: not what has a second name that they do not know.
/// Not for the runtime's thread.
pub(super) fn kept(profile: &Profile) -> Vec<(PathBuf, u64)> {
    if !turnwright_sandbox::rooms().mounts {
        return Vec::new();
    }
    let only = |it: &PathBuf| inode(it).filter(|(_, is_only)| *is_only).map(|it| it.0);
    profile.keep.iter().filter_map(|it| Some((it.clone(), only(it)?))).collect()
}

/// The number of a file or folder, and whether neither it nor anything in it has a second name, by
/// which it could be changed from elsewhere.
#[cfg(unix)]
fn inode(path: &Path) -> Option<(u64, bool)> {
    use std::os::unix::fs::MetadataExt;
    let number = fs::symlink_metadata(path).ok()?.ino();
    let (mut left, mut paths) = (MOST_LOOKED_AT, vec![path.to_path_buf()]);
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

fn add(outcome: &mut Outcome, note: String) {
    outcome.text.push_str(if outcome.text.ends_with('\n') { "" } else { "\n" });
    outcome.text.push_str(&note);
    outcome.content.push(Content::Text(note));
}

/// A temporary folder that nobody else may look into.
///
/// # Errors
/// When it cannot be made.
pub fn private_folder() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("turnwright-").rand_bytes(12);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o700));
    }
    builder.tempdir()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
