//! One command that runs, or has run: what it prints, how it ended, and what can be asked of it.

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::output::{Look, Output};
use super::started::{Exit, Leftover, Signal, Started};

/// How long a command may clean up after SIGTERM before its group is killed.
const GRACE: Duration = Duration::from_millis(200);
/// How long a command may take to take its input.
const INPUT: Duration = Duration::from_secs(1);
/// How long output may wait to be written to its file.
const LAG: Duration = Duration::from_millis(500);
/// Orders that may wait.
const MOST_ORDERS: usize = 8;

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub how: Ended,
    /// How long it took.
    pub took: Duration,
    /// What it had left running.
    pub leftover: Leftover,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, or by a signal of whoever.
    Exited(Exit),
    /// We have stopped it: the user cancelled, or the session ended.
    Stopped,
    /// It has run for as long as any command may.
    TooLong,
    /// It was lost sight of; why.
    Lost(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(exit) => write!(formatter, "{exit}"),
            Ended::Stopped | Ended::TooLong => formatter.write_str("stopped"),
            Ended::Lost(_) => formatter.write_str("lost"),
        }
    }
}

/// Why a command did not take its input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It has ended.
    #[error("it has ended")]
    Over,
    /// It did not take it.
    #[error("{0}")]
    Refused(#[from] io::Error),
}

enum Order {
    Signal(Signal),
    Input(Vec<u8>, oneshot::Sender<io::Result<()>>),
}

/// How far a command is.
#[derive(Clone, Debug, Default)]
struct Progress {
    bytes: u64,
    end: Option<End>,
}

/// A command.
pub struct Job {
    id: String,
    command: String,
    begun: Instant,
    // A std mutex: held to copy a chunk in, or a few pages out.
    output: Mutex<Output>,
    progress: watch::Sender<Progress>,
    orders: mpsc::Sender<Order>,
    stop: CancellationToken,
    /// Who started it knows that it has ended.
    is_known: AtomicBool,
}

impl Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The task's end of a job.
pub(super) struct Orders(mpsc::Receiver<Order>);

impl Job {
    pub(super) fn new(
        id: String,
        command: String,
        file: &Path,
        stop: CancellationToken,
    ) -> (Job, Orders) {
        let (orders, inbox) = mpsc::channel(MOST_ORDERS);
        let output = Mutex::new(Output::new(file));
        let (progress, _) = watch::channel(Progress::default());
        let begun = Instant::now();
        let is_known = AtomicBool::new(false);
        (Job { id, command, begun, output, progress, orders, stop, is_known }, Orders(inbox))
    }

    /// Its name for the model.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// How long it has been running, or has run.
    pub fn age(&self) -> Duration {
        self.end().map_or_else(|| self.begun.elapsed(), |it| it.took)
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<End> {
        self.progress.borrow().end.clone()
    }

    /// Notes that its end is known to who started it; `false` if it was.
    pub fn note_end(&self) -> bool {
        !self.is_known.swap(true, Ordering::Relaxed)
    }

    /// How many bytes it has printed.
    pub fn bytes(&self) -> u64 {
        self.progress.borrow().bytes
    }

    /// What it has printed since the last look.
    pub fn look(&self) -> Look {
        self.output().look()
    }

    /// Whether it has printed anything since the last look.
    pub fn has_news(&self) -> bool {
        self.output().has_news()
    }

    /// The last lines, for a card that is still changing.
    pub fn last_lines(&self, limit: usize) -> String {
        self.output().last_lines(limit)
    }

    /// The bytes as they came, from the `from`th on, and which is the first of them: of those that
    /// are long past only the last are kept.
    pub fn raw_since(&self, from: u64) -> (u64, Vec<u8>) {
        self.output().raw_since(from)
    }

    /// Waits for its end.
    pub async fn ended(&self) -> End {
        let mut progress = self.progress.subscribe();
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            // The sender lives as long as we do.
            drop(progress.changed().await);
        }
    }

    /// Waits for more output than so many bytes, or for the end.
    pub async fn more_than(&self, bytes: u64) {
        let mut progress = self.progress.subscribe();
        drop(progress.wait_for(|it| it.bytes > bytes || it.end.is_some()).await);
    }

    /// Waits for news and then for a quiet moment, or for the end.
    pub async fn settled(&self, quiet: Duration) {
        let mut bytes = self.bytes();
        if !self.has_news() {
            self.more_than(bytes).await;
        }
        while self.end().is_none() {
            bytes = self.bytes();
            if tokio::time::timeout(quiet, self.more_than(bytes)).await.is_err() {
                return;
            }
        }
    }

    /// Has it ended. [`Job::ended`] says when it has.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Sends it a signal. One that has ended needs none.
    pub async fn signal(&self, signal: Signal) {
        drop(self.orders.send(Order::Signal(signal)).await);
    }

    /// Gives it input.
    ///
    /// # Errors
    /// When it does not take it.
    pub async fn input(&self, bytes: Vec<u8>) -> Result<(), InputError> {
        let (done, taken) = oneshot::channel();
        self.orders.send(Order::Input(bytes, done)).await.map_err(|_| InputError::Over)?;
        taken.await.map_err(|_| InputError::Over)?.map_err(InputError::from)
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: &[u8]) {
        self.work(|output| output.push(bytes));
    }

    fn work(&self, work: impl FnOnce(&mut Output)) {
        let mut output = self.output();
        work(&mut output);
        let total = output.total();
        drop(output);
        self.progress.send_modify(|it| it.bytes = total);
    }

    fn close(&self, how: Ended, leftover: Leftover) {
        let took = self.begun.elapsed();
        self.progress.send_modify(|it| {
            it.end.get_or_insert(End { how, took, leftover });
        });
    }

    /// Writes to the file what it needs, `all` or what is worth the while.
    async fn write(&self, all: bool) {
        let Some(work) = self.output().next_work(all) else { return };
        if let Ok(work) = tokio::task::spawn_blocking(move || work.run()).await {
            self.output().written(work);
        }
    }
}

/// Says that a job has ended even if its task dies.
struct Closing(Arc<Job>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(Ended::Lost("its watcher has died".to_owned()), Leftover::Nothing);
    }
}

/// Listens to a command until it ends, and makes it end after `longest`.
pub(super) async fn drive(
    job: Arc<Job>,
    mut orders: Orders,
    mut started: Box<dyn Started>,
    longest: Duration,
) {
    let closing = Closing(Arc::clone(&job));
    let mut sink = |bytes: &[u8]| job.take(bytes);
    let limit = tokio::time::sleep(longest);
    tokio::pin!(limit);
    let how = loop {
        let lags = job.output().lags();
        tokio::select! {
            biased;
            () = job.stop.cancelled() => break Ended::Stopped,
            () = &mut limit => break Ended::TooLong,
            Some(order) = orders.0.recv() => {
                job.stop.run_until_cancelled(obey(started.as_mut(), order)).await;
            }
            next = started.next(&mut sink) => match next {
                Ok(None) => {
                    job.write(false).await;
                    // Who shows it has to see it before there is much more of it.
                    tokio::task::yield_now().await;
                }
                Ok(Some(exit)) => break Ended::Exited(exit),
                Err(error) => break Ended::Lost(error.to_string()),
            },
            () = tokio::time::sleep(LAG), if lags => job.write(true).await,
        }
    };
    if matches!(how, Ended::Exited(_)) {
        started.drain(&mut sink).await;
    }
    // After a normal exit too: what it has left running would hold our pipe, or just go on.
    let leftover = started.stop(GRACE).await;
    started.drain(&mut sink).await;
    drop(started);
    job.work(Output::finish);
    job.write(true).await;
    job.close(how, leftover);
    drop(closing);
}

async fn obey(started: &mut dyn Started, order: Order) {
    match order {
        Order::Signal(signal) => started.signal(signal),
        Order::Input(bytes, done) => {
            let taken = tokio::time::timeout(INPUT, started.input(&bytes)).await;
            let silent = |_| Err(io::Error::other("it does not read its input"));
            drop(done.send(taken.unwrap_or_else(silent)));
        }
    }
}
