//! The commands of one session. All of them are dead when it has closed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::job::{Job, Orders, drive};
use super::spill;
use super::started::Started;
use turnwright_types::effect::visible_line;
use turnwright_types::ids::SessionId;

/// Commands that may run at the same time.
const MOST_RUNNING: usize = 16;
/// Commands that are remembered after their end.
const MOST_ENDED: usize = 32;
/// How long any command may run.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// Characters of a command in a list.
const LONGEST_NAME: usize = 60;

/// There are too many running commands; the text says which.
#[derive(Debug, thiserror::Error)]
#[error(
    "{MOST_RUNNING} commands are running, and there may be no more. Nothing was run. Stop one with \
     exec_output signal=\"term\", or wait for one. {0}"
)]
pub struct TooMany(String);

/// The commands. Dropping them ends them.
#[derive(Debug)]
pub struct Jobs {
    folder: PathBuf,
    longest: Duration,
    // A std mutex: held to look at a short list.
    table: Arc<Mutex<Table>>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Table {
    count: u64,
    jobs: Vec<Arc<Job>>,
}

impl Jobs {
    /// No commands yet. Long outputs go to files in this folder.
    pub fn new(folder: PathBuf) -> Jobs {
        Jobs {
            folder,
            longest: LONGEST,
            table: Arc::default(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Goes on with names behind that number: earlier ones stand in the conversation, and their
    /// outputs are kept.
    pub fn go_on_after(&self, number: u64) {
        let mut table = lock(&self.table);
        table.count = table.count.max(number);
    }

    /// Where the long outputs of a session lie.
    pub fn folder(state: &Path, session: &SessionId) -> PathBuf {
        state.join("outputs").join(session.as_str())
    }

    /// The same, but no command may run longer than that.
    #[must_use]
    pub fn no_longer_than(mut self, longest: Duration) -> Jobs {
        self.longest = longest;
        self
    }

    /// Makes room for a command. It has to be asked for before the command is started.
    ///
    /// # Errors
    /// When too many are running.
    pub fn admit(&self, command: &str) -> Result<Berth<'_>, TooMany> {
        let mut table = lock(&self.table);
        table.prune();
        if table.jobs.iter().filter(|it| it.end().is_none()).count() >= MOST_RUNNING {
            drop(table);
            return Err(TooMany(self.list()));
        }
        table.count += 1;
        let id = format!("p{}", table.count);
        let file = self.folder.join(format!("{id}.txt"));
        let (job, orders) = Job::new(id, command.to_owned(), &file, self.stop.child_token());
        let job = Arc::new(job);
        table.jobs.push(Arc::clone(&job));
        Ok(Berth { jobs: self, job, orders: Some(orders) })
    }

    /// The command of that name.
    pub fn find(&self, id: &str) -> Option<Arc<Job>> {
        lock(&self.table).jobs.iter().find(|it| it.id() == id).cloned()
    }

    /// Forgets a command that has ended and been told about.
    pub fn forget(&self, job: &Arc<Job>) {
        lock(&self.table).jobs.retain(|it| !Arc::ptr_eq(it, job));
    }

    /// What there is, in a line for the model.
    pub fn list(&self) -> String {
        let table = lock(&self.table);
        let mut text = String::new();
        for job in &table.jobs {
            let name: String = visible_line(job.command()).chars().take(LONGEST_NAME).collect();
            let how = match job.end() {
                None => format!("running for {} s", job.age().as_secs()),
                Some(end) => end.how.to_string(),
            };
            let start = if text.is_empty() { "Jobs: " } else { "; " };
            text.push_str(&format!("{start}{} `{name}` ({how})", job.id()));
        }
        if text.is_empty() { "There are no jobs.".to_owned() } else { text + "." }
    }

    /// The names of those that run.
    pub fn running(&self) -> Vec<String> {
        let table = lock(&self.table);
        let running = table.jobs.iter().filter(|it| it.end().is_none());
        running.map(|it| it.id().to_owned()).collect()
    }

    /// Which have ended since somebody asked, a line for each; `None` if there is no news.
    pub fn news(&self) -> Option<String> {
        let table = lock(&self.table);
        let line = |job: &Arc<Job>| {
            let end = job.end().filter(|_| job.note_end())?;
            let id = job.id();
            Some(format!("[{id} ended: {}; exec_output id={id} has its output]\n", end.how))
        };
        let text: String = table.jobs.iter().filter_map(line).collect();
        (!text.is_empty()).then_some(text)
    }

    /// Ends all commands and waits until they are dead.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Table {
    /// Forgets the oldest of those that have ended, if there are many.
    fn prune(&mut self) {
        let ended = self.jobs.iter().filter(|it| it.end().is_some()).count();
        let mut surplus = ended.saturating_sub(MOST_ENDED);
        self.jobs.retain(|it| {
            let goes = surplus > 0 && it.end().is_some();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place for a command that is about to be started. Dropping it gives the place back.
pub struct Berth<'a> {
    jobs: &'a Jobs,
    job: Arc<Job>,
    orders: Option<Orders>,
}

impl std::fmt::Debug for Berth<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Berth").field(&self.job).finish()
    }
}

impl Berth<'_> {
    /// The command was started: listens to it from now on.
    pub fn run(mut self, started: Box<dyn Started>) -> Arc<Job> {
        let job = Arc::clone(&self.job);
        if let Some(orders) = self.orders.take() {
            let driving = drive(Arc::clone(&job), orders, started, self.jobs.longest);
            self.jobs.tracker.spawn(driving);
            sweep_once(&self.jobs.folder);
        }
        job
    }
}

impl Drop for Berth<'_> {
    fn drop(&mut self) {
        if self.orders.is_some() {
            self.jobs.forget(&self.job);
        }
    }
}

/// Removes the outputs of last week, once a process. Nobody waits for it.
fn sweep_once(folder: &Path) {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| {
        if let Some(all) = folder.parent().map(Path::to_path_buf) {
            drop(tokio::task::spawn_blocking(move || spill::sweep(&all, SystemTime::now())));
        }
    });
}
