//! A command that runs or has run: its output, its end, and requests to it; and the interface to a running command,
//! whether it is a process group of the agent or runs in a terminal of the client.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MemoryMeter;
use super::output::{CommandOutput, OutputExcerpt};
use tokio::task::spawn_blocking;
use turnwright_sandbox::Refusal;
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::CallId;
use turnwright_types::patience::sleep_until;

/// How long a command may clean up after SIGTERM before its group is killed.
const TERM_GRACE: Duration = Duration::from_millis(200);
/// The same for a command that the user or the time limit stops: it may have to release a lock on another machine.
const LONG_GRACE: Duration = Duration::from_secs(1);
/// How long a command may take to accept its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long output may wait before it is written to its file.
const MAX_WRITE_DELAY: Duration = Duration::from_millis(500);
/// The most requests that may wait.
const MAX_PENDING_REQUESTS: usize = 8;

/// Receives output as it arrives.
pub type OutputSink<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// A running command. Dropping it ends it.
pub trait RunningCommand: Send {
    /// Waits for more output, which is passed to `sink` unchanged, or for the end of the command
    /// itself. Cancel safe.
    fn next_output<'a>(
        &'a mut self,
        sink: OutputSink<'a>,
    ) -> BoxFuture<'a, io::Result<Option<CommandExit>>>;

    /// Passes on output that still arrives after the end, for a short while.
    fn drain<'a>(&'a mut self, sink: OutputSink<'a>) -> BoxFuture<'a, ()>;

    /// Asks the command to end and kills it after `grace`. Afterwards nothing of it is running. Returns true if
    /// something was.
    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, bool>;

    /// Measures its memory, where the system allows that.
    fn memory(&self) -> Option<MemoryMeter> {
        None
    }

    /// The refusals of its sandbox, each returned once.
    fn take_refusals(&mut self) -> Vec<Refusal> {
        Vec::new()
    }

    /// Sends a signal to all its processes.
    fn send_signal(&mut self, signal: Signal);

    /// Writes to its input. A last byte of 4 (control-D) ends the input.
    fn write_input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
}

/// The end of a command by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandExit {
    /// By itself, with this code.
    Code(i32),
    /// By the signal with this name.
    Signal(String),
    /// Its terminal in the editor was closed or ended.
    TerminalClosed,
    /// The exit status is not known.
    Unknown,
}

impl CommandExit {
    /// True only for exit code 0.
    pub fn is_success(&self) -> bool {
        *self == CommandExit::Code(0)
    }

    /// The exit code, if there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            CommandExit::Code(code) => Some(*code),
            CommandExit::Signal(_) | CommandExit::TerminalClosed | CommandExit::Unknown => None,
        }
    }
}

impl fmt::Display for CommandExit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandExit::Code(code) => write!(formatter, "exit {code}"),
            CommandExit::Signal(name) => write!(formatter, "killed by {name}"),
            CommandExit::TerminalClosed => {
                formatter.write_str("ended: the user closed its terminal")
            }
            CommandExit::Unknown => formatter.write_str("ended, exit code unknown"),
        }
    }
}

/// The signals that can be sent to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// The signal of control-C.
    #[serde(alias = "SIGINT", alias = "INT")]
    Int,
    /// A request to end.
    #[serde(alias = "SIGTERM", alias = "TERM")]
    Term,
    /// An immediate end.
    #[serde(alias = "SIGKILL", alias = "KILL")]
    Kill,
}

/// The name of a signal, for numbers that mean the same on all systems.
#[cfg(unix)]
pub(super) fn signal_name(number: i32) -> String {
    let known = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        7 if cfg!(target_os = "linux") => "SIGBUS",
        10 if cfg!(target_os = "linux") => "SIGUSR1",
        12 if cfg!(target_os = "linux") => "SIGUSR2",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    known.to_owned()
}

/// The number of a signal; 0 if the name is unknown.
#[cfg(unix)]
pub(super) fn signal_number(wanted: &str) -> i32 {
    (1..=64).find(|number| signal_name(*number) == wanted).unwrap_or(0)
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    pub reason: EndReason,
    pub duration: Duration,
    /// True if it had left processes running, which were stopped.
    pub had_leftovers: bool,
    /// The refusals of its sandbox.
    pub refusals: Vec<Refusal>,
}

/// Why a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By itself, or by a signal from elsewhere.
    Exited(CommandExit),
    /// The agent has stopped it, because the user cancelled or the session ended.
    Stopped,
    StoppedByUser,
    /// It reached the time limit for commands.
    TimedOut,
    /// Its temporary folder holds so many bytes that the disk would soon be full.
    TempFolderFull(u64),
    /// It held so many bytes of memory, more than it may.
    MemoryFull(u64),
    /// Its state is unknown, for this reason.
    Lost(String),
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Exited(exit) => write!(formatter, "{exit}"),
            EndReason::StoppedByUser => formatter.write_str("stopped by the user"),
            EndReason::Stopped
            | EndReason::TimedOut
            | EndReason::TempFolderFull(_)
            | EndReason::MemoryFull(_) => formatter.write_str("stopped"),
            EndReason::Lost(_) => formatter.write_str("lost"),
        }
    }
}

pub(super) enum JobRequest {
    Signal(Signal),
    Input(Vec<u8>, oneshot::Sender<io::Result<()>>),
}

/// How far a command has got.
struct JobProgress {
    output: CommandOutput,
    end: Option<JobEnd>,
}

/// A command that runs or has run.
pub struct Job {
    id: String,
    command: String,
    begun: Instant,
    // Looked at only to copy a chunk in or a few pages out.
    progress: watch::Sender<JobProgress>,
    requests: mpsc::Sender<JobRequest>,
    stop: CancellationToken,
    is_stopped_by_user: AtomicBool,
    /// The model has been told that it has ended.
    is_end_reported: AtomicBool,
    /// The model has asked for its output since it was started.
    was_looked_at: AtomicBool,
    /// The terminal in which the client draws its output.
    terminal: OnceLock<CallId>,
}

impl Job {
    pub(super) fn new(
        id: String,
        command: String,
        file: &Path,
        stop: CancellationToken,
    ) -> (Job, mpsc::Receiver<JobRequest>) {
        let (requests, inbox) = mpsc::channel(MAX_PENDING_REQUESTS);
        let progress =
            watch::Sender::new(JobProgress { output: CommandOutput::new(file), end: None });
        let begun = Instant::now();
        let job = Job {
            id,
            command,
            begun,
            progress,
            requests,
            stop,
            is_stopped_by_user: AtomicBool::new(false),
            is_end_reported: AtomicBool::new(false),
            was_looked_at: AtomicBool::new(false),
            terminal: OnceLock::new(),
        };
        (job, inbox)
    }

    /// The id that the model uses.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn command(&self) -> &str {
        &self.command
    }

    /// Records that the client draws the output in this terminal.
    pub fn set_terminal(&self, terminal: CallId) {
        self.terminal.set(terminal).ok();
    }

    pub(super) fn terminal(&self) -> Option<&CallId> {
        self.terminal.get()
    }

    /// How long it has been running, or ran.
    pub fn age(&self) -> Duration {
        self.end().map_or_else(|| self.begun.elapsed(), |end| end.duration)
    }

    /// How it ended; `None` while it runs.
    pub fn end(&self) -> Option<JobEnd> {
        self.progress.borrow().end.clone()
    }

    /// Records that its end was reported. Returns false if it was reported before.
    pub fn mark_end_reported(&self) -> bool {
        !self.is_end_reported.swap(true, Ordering::Relaxed)
    }

    /// Records that the model has asked for its output.
    pub fn mark_looked_at(&self) {
        self.was_looked_at.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_looked_at(&self) -> bool {
        self.was_looked_at.load(Ordering::Relaxed)
    }

    /// The number of bytes that it has printed.
    pub fn bytes(&self) -> u64 {
        self.progress.borrow().output.total()
    }

    /// Takes the output since the last call.
    pub fn take_output(&self) -> OutputExcerpt {
        let mut excerpt = OutputExcerpt::default();
        self.change_output(|output| excerpt = output.take_excerpt());
        excerpt
    }

    /// True if it has printed anything since the last [`Job::take_output`].
    pub fn has_new_output(&self) -> bool {
        self.progress.borrow().output.has_new_output()
    }

    /// The last lines, for a card that is still changing.
    pub fn last_lines(&self, limit: usize) -> String {
        self.progress.borrow().output.last_lines(limit)
    }

    /// The raw output from byte `from` on, and the number of its first byte. That is greater than
    /// `from` if the bytes are no longer kept.
    pub fn raw_since(&self, from: u64) -> (u64, Vec<u8>) {
        self.progress.borrow().output.raw_since(from)
    }

    pub async fn wait_for_end(&self) -> JobEnd {
        let mut progress = self.progress.subscribe();
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            // The sender lives as long as `self`.
            progress.changed().await.ok();
        }
    }

    /// Waits until it has printed more than this many bytes, or has ended.
    pub async fn wait_for_more_than(&self, bytes: u64) {
        let mut progress = self.progress.subscribe();
        progress
            .wait_for(|progress| progress.output.total() > bytes || progress.end.is_some())
            .await
            .ok();
    }

    /// Waits for new output and then until nothing more comes for the time `quiet`, or until it has
    /// ended.
    pub async fn wait_until_quiet(&self, quiet: Duration) {
        let mut bytes = self.bytes();
        if !self.has_new_output() {
            self.wait_for_more_than(bytes).await;
        }
        while self.end().is_none() {
            bytes = self.bytes();
            if tokio::time::timeout(quiet, self.wait_for_more_than(bytes)).await.is_err() {
                return;
            }
        }
    }

    /// Stops the command. [`Job::wait_for_end`] waits until it has ended.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops the command when the guard is dropped, unless that is disarmed before.
    pub fn stop_on_drop(&self) -> DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Stops the command because the user wants that, unless it is being stopped already.
    pub fn stop_for_user(&self) {
        if !self.stop.is_cancelled() {
            self.is_stopped_by_user.store(true, Ordering::Relaxed);
            self.stop();
        }
    }

    /// Sends it a signal. Does nothing if it has ended.
    pub async fn send_signal(&self, signal: Signal) {
        self.requests.send(JobRequest::Signal(signal)).await.ok();
    }

    /// Writes to its input.
    ///
    /// # Errors
    /// If it has ended or does not accept the input.
    pub async fn write_input(&self, bytes: Vec<u8>) -> io::Result<()> {
        let (done, taken) = oneshot::channel();
        self.requests.send(JobRequest::Input(bytes, done)).await.ok();
        // Without an answer its task is over.
        taken.await.unwrap_or_else(|_| Err(io::Error::other("it has ended")))
    }

    fn stop_reason(&self) -> EndReason {
        if self.is_stopped_by_user.load(Ordering::Relaxed) {
            EndReason::StoppedByUser
        } else {
            EndReason::Stopped
        }
    }

    /// Adds to the output, and wakes those who wait for more.
    fn update_output(&self, work: impl FnOnce(&mut CommandOutput)) {
        self.progress.send_modify(|progress| work(&mut progress.output));
    }

    /// Changes what is kept of the output, of which nobody has to know.
    fn change_output(&self, work: impl FnOnce(&mut CommandOutput)) {
        self.progress.send_if_modified(|progress| {
            work(&mut progress.output);
            false
        });
    }

    fn set_end(&self, reason: EndReason, had_leftovers: bool, refusals: Vec<Refusal>) {
        let duration = self.begun.elapsed();
        let end = JobEnd { reason, duration, had_leftovers, refusals };
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    /// Writes waiting output to its file: all of it, or only full chunks.
    async fn write_to_file(&self, all: bool) {
        let mut next = None;
        self.change_output(|output| next = output.file_output.next_write(all));
        let Some(work) = next else { return };
        if let Ok(file) = spawn_blocking(work).await {
            self.change_output(|output| output.file_output.finish_write(file));
        }
    }
}

/// Marks a job as ended even if its task panics.
struct CloseOnDrop(Arc<Job>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.set_end(
            EndReason::Lost("the task that reads its output has failed".to_owned()),
            false,
            Vec::new(),
        );
    }
}

/// Runs a command to its end, and stops it after the time limit or when it has used up what it may.
pub(super) async fn supervise(
    job: Arc<Job>,
    mut requests: mpsc::Receiver<JobRequest>,
    mut command_run: Box<dyn RunningCommand>,
    time_limit: Duration,
    used_up: impl Future<Output = EndReason>,
) {
    let closing = CloseOnDrop(Arc::clone(&job));
    let mut sink = |bytes: &[u8]| job.update_output(|output| output.push(bytes));
    let limit = sleep_until(tokio::time::Instant::now() + time_limit);
    tokio::pin!(limit, used_up);
    let how = loop {
        let lags = job.progress.borrow().output.file_output.is_behind();
        tokio::select! {
            biased;
            () = job.stop.cancelled() => break job.stop_reason(),
            () = &mut limit => break EndReason::TimedOut,
            reason = &mut used_up => break reason,
            Some(request) = requests.recv() => {
                job.stop.run_until_cancelled(handle_request(command_run.as_mut(), request)).await;
            }
            next = command_run.next_output(&mut sink) => match next {
                Ok(None) => {
                    job.write_to_file(false).await;
                    // Lets the display show this output before there is much more of it.
                    tokio::task::yield_now().await;
                }
                Ok(Some(exit)) => break EndReason::Exited(exit),
                Err(error) => break EndReason::Lost(io_error_text(&error)),
            },
            () = tokio::time::sleep(MAX_WRITE_DELAY), if lags => job.write_to_file(true).await,
        }
    };
    if matches!(how, EndReason::Exited(_)) {
        command_run.drain(&mut sink).await;
    }
    let has_time = matches!(how, EndReason::StoppedByUser | EndReason::TimedOut);
    let grace = if has_time { LONG_GRACE } else { TERM_GRACE };
    // After a normal exit too, because background processes would keep the pipe open or just go on.
    let had_leftovers = command_run.stop(grace).await;
    command_run.drain(&mut sink).await;
    let refusals = command_run.take_refusals();
    drop(command_run);
    job.update_output(CommandOutput::finish);
    job.write_to_file(true).await;
    job.set_end(how, had_leftovers, refusals);
    drop(closing);
}

async fn handle_request(command_run: &mut dyn RunningCommand, request: JobRequest) {
    match request {
        JobRequest::Signal(signal) => command_run.send_signal(signal),
        JobRequest::Input(bytes, done) => {
            let taken = tokio::time::timeout(INPUT_TIMEOUT, command_run.write_input(&bytes)).await;
            let result =
                taken.unwrap_or_else(|_| Err(io::Error::other("it does not read its input")));
            done.send(result).ok();
        }
    }
}
