//! The commands of one session. All of them are ended when it closes. A command that would fill the disk with its
//! temporary folder is stopped before.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::descendants::wait_until_above;
use super::job::{EndReason, Job, JobEnd, JobRequest, RunningCommand, supervise};
use super::output::delete_old_outputs;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::text;

/// The most commands that may run at the same time.
const MAX_RUNNING: usize = 16;
/// The most ended commands that are remembered.
const MAX_ENDED: usize = 32;
/// The time limit of a command that was started to be waited for.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);
/// The time limit of a server or watcher. No session lasts as long.
const BACKGROUND_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Maximum length of a command line in a list.
const MAX_NAME_CHARS: usize = 60;

/// The commands of a session. Dropping it stops them.
pub struct Jobs {
    folder: PathBuf,
    /// The start of each id. A number follows.
    prefix: String,
    /// The last such number.
    count: AtomicU64,
    time_limit: Duration,
    space: SpaceLimits,
    list: JobList,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// The jobs that are running, and some that have ended.
// Held only to look at a short list.
type JobList = Arc<Mutex<Vec<Arc<Job>>>>;

/// Tells which jobs of a list are running. Unlike the list, it does not stop them when it is dropped.
#[derive(Clone)]
pub struct RunningJobs(JobList);

impl RunningJobs {
    pub fn ids(&self) -> Vec<String> {
        let jobs = self.0.lock();
        let running = jobs.iter().filter(|job| job.end().is_none());
        running.map(|job| job.id().to_owned()).collect()
    }
}

impl Jobs {
    /// An empty list. Long outputs are written to files in this folder.
    pub fn new(folder: PathBuf) -> Jobs {
        Jobs {
            folder,
            prefix: "p".to_owned(),
            count: AtomicU64::new(0),
            time_limit: TIME_LIMIT,
            space: SpaceLimits::default(),
            list: Arc::default(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Makes this list a part of `whole`: its commands are stopped together with those of `whole`. Its ids begin with
    /// `prefix`, so that they differ.
    #[must_use]
    pub fn within(mut self, whole: &Jobs, prefix: String) -> Jobs {
        self.stop = whole.stop.child_token();
        self.prefix = prefix;
        self
    }

    /// True if this is the id of a job of this list, which may be forgotten by now.
    pub fn has_issued(&self, id: &str) -> bool {
        let number = id.strip_prefix(self.prefix.as_str());
        number.is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    /// Makes ids continue after this number, since earlier ones occur in the conversation and their
    /// outputs still exist.
    pub fn continue_numbering_after(&self, number: u64) {
        self.count.fetch_max(number, Ordering::Relaxed);
    }

    /// The folder for the long outputs of a session.
    pub fn output_folder(state: &Path, session: &SessionId) -> PathBuf {
        state.join("outputs").join(session.as_str())
    }

    /// Removes the long outputs of sessions that were deleted. Blocks.
    pub fn remove_outputs(state: &Path, deleted: &[SessionId]) {
        for id in deleted {
            // In a database from elsewhere, an id may be a path that leads out of the folder.
            let is_path = id.as_str().is_empty() || id.as_str().contains(['.', '/', '\\', ':']);
            if !is_path
                && let Err(error) = fs::remove_dir_all(Jobs::output_folder(state, id))
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, %id, "the outputs of a session were not removed");
            }
        }
    }

    /// Sets another time limit for commands that are waited for.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_time_limit(mut self, time_limit: Duration) -> Jobs {
        self.time_limit = time_limit;
        self
    }

    /// Sets another limit for temporary folders.
    #[cfg(unix)]
    #[cfg(test)]
    #[must_use]
    pub(super) fn with_space(mut self, space: SpaceLimits) -> Jobs {
        self.space = space;
        self
    }

    /// Reserves a slot for a command, before the command is started.
    ///
    /// # Errors
    /// A message for the model that lists the commands, if too many are running.
    pub fn admit(&self, command: &str) -> Result<JobSlot<'_>, String> {
        let mut jobs = self.list.lock();
        prune(&mut jobs);
        if jobs.iter().filter(|job| job.end().is_none()).count() >= MAX_RUNNING {
            drop(jobs);
            return Err(format!(
                "{MAX_RUNNING} commands are running, which is the maximum. Nothing was run. Stop \
                 one with exec_output signal=\"term\", or wait for one. {}",
                self.describe()
            ));
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{}{number}", self.prefix);
        let file = self.folder.join(format!("{id}.txt"));
        let (job, requests) = Job::new(id, command.to_owned(), &file, self.stop.child_token());
        let job = Arc::new(job);
        jobs.push(Arc::clone(&job));
        Ok(JobSlot { jobs: self, job, requests: Some(requests), is_background: false })
    }

    pub fn find(&self, id: &str) -> Option<Arc<Job>> {
        self.list.lock().iter().find(|job| job.id() == id).cloned()
    }

    /// Stops the command whose output the client draws in this terminal. Returns false if none runs there.
    pub fn stop_in_terminal(&self, terminal: &CallId) -> bool {
        let jobs = self.list.lock();
        let mut running = jobs.iter().filter(|job| job.end().is_none());
        let shown = running.find(|job| job.terminal() == Some(terminal));
        shown.inspect(|job| job.stop_for_user()).is_some()
    }

    /// Removes a job that has ended and was reported.
    pub fn remove(&self, job: &Arc<Job>) {
        self.list.lock().retain(|other| !Arc::ptr_eq(other, job));
    }

    /// Lists all jobs in one line for the model.
    pub fn describe(&self) -> String {
        let jobs = self.list.lock();
        let mut text = String::new();
        for job in jobs.iter() {
            let name = text::cut(escape_hidden_line(job.command()), MAX_NAME_CHARS);
            let how = match job.end() {
                None => format!("running for {} s", job.age().as_secs()),
                Some(end) => end.reason.to_string(),
            };
            let start = if text.is_empty() { "Jobs: " } else { "; " };
            text.push_str(&format!("{start}{} `{name}` ({how})", job.id()));
        }
        if text.is_empty() { "There are no jobs.".to_owned() } else { text + "." }
    }

    /// Returns the ids of the running jobs whose output was not asked for since they were started.
    pub fn neglected(&self) -> Vec<String> {
        let jobs = self.list.lock();
        let neglected = jobs.iter().filter(|job| job.end().is_none() && !job.was_looked_at());
        neglected.map(|job| job.id().to_owned()).collect()
    }

    /// Tells which jobs are running, now and later.
    pub fn running(&self) -> RunningJobs {
        RunningJobs(Arc::clone(&self.list))
    }

    /// Reports the jobs that have ended since the last call, one line each; `None` if there are
    /// none.
    pub fn take_end_notices(&self) -> Option<String> {
        let jobs = self.list.lock();
        let mut text = String::new();
        for job in jobs.iter() {
            let Some(end) = job.end().filter(|_| job.mark_end_reported()) else { continue };
            let id = job.id();
            text.push_str(&format!(
                "[{id} ended: {}; exec_output id={id} has its output]\n",
                end.reason
            ));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Calls `report` when this job has ended.
    pub fn at_end(&self, job: &Arc<Job>, report: impl FnOnce(&JobEnd) + Send + 'static) {
        let job = Arc::clone(job);
        self.tracker.spawn(async move { report(&job.wait_for_end().await) });
    }

    /// Stops all commands. Even if the user then cancels one, it gets no more time to clean up.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops all commands and waits until they have ended.
    pub async fn close(&self) {
        self.stop();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Removes the oldest ended jobs if there are too many.
fn prune(jobs: &mut Vec<Arc<Job>>) {
    let ended = jobs.iter().filter(|job| job.end().is_some()).count();
    let mut surplus = ended.saturating_sub(MAX_ENDED);
    jobs.retain(|job| {
        let is_removed = surplus > 0 && job.end().is_some();
        surplus -= usize::from(is_removed);
        !is_removed
    });
}

/// A reserved slot for a command that is about to be started. Dropping it frees the slot.
pub struct JobSlot<'a> {
    jobs: &'a Jobs,
    job: Arc<Job>,
    requests: Option<mpsc::Receiver<JobRequest>>,
    /// It may run as long as its session.
    pub is_background: bool,
}

impl JobSlot<'_> {
    /// Runs a started command in the background, and watches its temporary folders and its memory.
    pub fn run(
        mut self,
        started: Box<dyn RunningCommand>,
        temp: Vec<PathBuf>,
        memory: Option<u64>,
    ) -> Arc<Job> {
        let job = Arc::clone(&self.job);
        if let Some(requests) = self.requests.take() {
            let space = self.jobs.space;
            let meter = started.memory();
            let used_up = async move {
                tokio::select! {
                    bytes = wait_until_full(temp, space) => EndReason::TempFolderFull(bytes),
                    bytes = wait_until_above(meter, memory) => EndReason::MemoryFull(bytes),
                }
            };
            let limit = if self.is_background { BACKGROUND_LIMIT } else { self.jobs.time_limit };
            let supervision = supervise(Arc::clone(&job), requests, started, limit, used_up);
            self.jobs.tracker.spawn(supervision);
            delete_old_outputs_if_due(&self.jobs.folder);
        }
        job
    }
}

impl Drop for JobSlot<'_> {
    fn drop(&mut self) {
        if self.requests.is_some() {
            self.jobs.remove(&self.job);
        }
    }
}

/// Old outputs are looked for with the first command of the process, and again after so many, because the process may
/// last for weeks.
const COMMANDS_PER_CLEANUP: u64 = 256;

/// Deletes outputs that are older than a week, if that is due, in the background.
fn delete_old_outputs_if_due(folder: &Path) {
    static COMMANDS: AtomicU64 = AtomicU64::new(0);
    let is_due = COMMANDS.fetch_add(1, Ordering::Relaxed).is_multiple_of(COMMANDS_PER_CLEANUP);
    if let Some(all) = folder.parent().filter(|_| is_due).map(Path::to_path_buf) {
        drop(spawn_blocking(move || delete_old_outputs(&all, SystemTime::now())));
    }
}

/// How often the free space is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most entries that are counted.
const MAX_ENTRIES: usize = 200_000;

/// How much a temporary folder may hold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceLimits {
    /// The most, however much is free.
    pub(super) most: u64,
    /// The space to leave free on its disk.
    pub(super) reserve: u64,
    /// The folder is measured whenever its disk has lost as much. If it holds less, it is not what
    /// fills the disk.
    pub(super) step: u64,
}

impl Default for SpaceLimits {
    fn default() -> SpaceLimits {
        SpaceLimits { most: 8 << 30, reserve: 1 << 30, step: 256 << 20 }
    }
}

/// Waits until folders on one disk exceed their common limit, and returns their size. Waits for ever without a folder,
/// or if the free space is unknown.
async fn wait_until_full(folders: Vec<PathBuf>, limits: SpaceLimits) -> u64 {
    if folders.is_empty() {
        return std::future::pending().await;
    }
    let folders: Arc<[PathBuf]> = folders.into();
    // The free space when the folder was measured last.
    let mut mark = None;
    loop {
        let places = Arc::clone(&folders);
        let looking = spawn_blocking(move || look(&places, limits, mark));
        match looking.await {
            Ok(ControlFlow::Break(bytes)) => return bytes,
            Ok(ControlFlow::Continue(free)) => mark = free,
            // The process is ending.
            Err(_) => std::future::pending().await,
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Looks at the free space. Breaks with the bytes that the folders hold if that is too much, and otherwise continues
/// with the new mark.
fn look(
    folders: &[PathBuf],
    limits: SpaceLimits,
    mark: Option<u64>,
) -> ControlFlow<u64, Option<u64>> {
    let Some(free) = folders.first().and_then(|folder| free_bytes(folder)) else {
        return ControlFlow::Continue(mark);
    };
    let Some(before) = mark.filter(|mark| *mark > free) else {
        return ControlFlow::Continue(Some(free));
    };
    if before - free < limits.step {
        return ControlFlow::Continue(mark);
    }
    let held = size_below(folders);
    if held > limits.most || held > limits.step && free < limits.reserve {
        return ControlFlow::Break(held);
    }
    ControlFlow::Continue(Some(free))
}

/// The bytes that the files below folders take on the disk.
fn size_below(folders: &[PathBuf]) -> u64 {
    let mut open = folders.to_vec();
    let mut size = 0;
    let mut entries = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return size;
            }
            // The metadata of a link is its own.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                Ok(metadata) => size += size_on_disk(&metadata),
                Err(_) => {}
            }
        }
    }
    size
}

#[cfg(unix)]
fn size_on_disk(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn size_on_disk(metadata: &Metadata) -> u64 {
    metadata.len()
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn only_the_outputs_of_deleted_sessions_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let folder = |id: &str| Jobs::output_folder(state.path(), &SessionId::from(id));
        fs::create_dir_all(folder("a-1").join("deep")).unwrap();
        fs::create_dir(folder("b")).unwrap();
        Jobs::remove_outputs(state.path(), &["", ".", "..", "../..", "a-1"].map(SessionId::from));
        assert!(!folder("a-1").exists() && folder("b").exists());
    }

    #[test]
    fn only_what_is_in_the_folder_counts() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        let outside = folder.path().join("out");
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("deep/a"), vec![1; 300_000]).unwrap();
        fs::write(outside.join("b"), vec![1; 3_000_000]).unwrap();
        fs::File::create(inside.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let size = size_below(std::slice::from_ref(&inside));
        assert!((300_000..400_000).contains(&size), "{size}");
        let limits = |most, reserve| SpaceLimits { most, reserve, step: 200_000 };
        let is_full = |limits| {
            let before = free_bytes(&inside).map(|free| free + (1 << 30));
            look(std::slice::from_ref(&inside), limits, before).is_break()
        };
        assert!(is_full(limits(250_000, 0)));
        assert!(is_full(limits(u64::MAX, u64::MAX)));
        assert!(!is_full(limits(u64::MAX, 0)));
        assert!(!is_full(SpaceLimits { step: 500_000, ..limits(u64::MAX, u64::MAX) }));
    }

    #[tokio::test]
    async fn old_outputs_are_deleted_again_in_a_process_that_lasts_for_weeks() {
        let all = tempfile::tempdir().unwrap();
        let old = all.path().join("other/p1.txt");
        fs::create_dir(all.path().join("other")).unwrap();
        for _ in 0..2 {
            fs::File::create(&old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            // The commands of other tests count, too.
            for _ in 0..1_000 {
                if !old.exists() {
                    break;
                }
                for _ in 0..COMMANDS_PER_CLEANUP {
                    delete_old_outputs_if_due(&all.path().join("own"));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!old.exists());
        }
    }
}
