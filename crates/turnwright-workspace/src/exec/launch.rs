//! The launcher: runs a program like a command of the agent, but in a terminal. In one of the editor, the
//! agent tells it what to run, and it reports the program's output and end to the agent. In one of a
//! person, it is `turnwright sandbox`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Environment;
use super::group::ProcessGroup;
use super::job::{CommandExit, RunningCommand, signal_number};
use super::launcher_link::{
    self, LaunchRequest, LauncherLink, LinkFrame, NONCE_VARIABLE, SOCKET_VARIABLE,
};
use turnwright_sandbox::{SandboxProfile, SessionNetwork};
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;

/// How long the agent may take to tell the launcher to run the program.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the program may clean up before it is killed, unless the agent sets another time.
const DEFAULT_GRACE: Duration = Duration::from_millis(200);
/// How long to wait for the exit status after the group was ended.
const REAP_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the last output may take to reach a terminal that does not read.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(300);
/// How long an agent may take to read the last output and the exit status. Without them it takes a command
/// for one whose terminal was closed, so a busy machine gets time. If the agent has ended, this ends at once.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the program may take to accept its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes that may wait for the agent before the program is no longer read.
const MAX_BACKLOG: usize = 256 * 1024;

/// Who says what the launcher runs.
#[derive(Clone, Debug)]
pub enum LaunchSource {
    /// The person who has typed this program and its arguments.
    Person { program: Vec<OsString>, sandbox: Box<SandboxProfile> },
    /// The agent that waits for its reports at this socket. The nonce is the value of [`NONCE_VARIABLE`], which
    /// tells the agent that this is the launcher it waits for.
    Agent { socket: PathBuf, nonce: String },
}

/// Why the launcher has run nothing.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Without the agent nobody would learn how the program ended. It listens at this path.
    #[error("the agent cannot be reached at {}: {}. Nothing was run.", .at.display(), io_error_text(.error))]
    Unreachable { at: PathBuf, error: io::Error },
    /// The program could not be confined.
    #[error("{}", io_error_text(.0))]
    NoSandbox(io::Error),
    #[error("{} cannot be started: {}", .program.to_string_lossy(), io_error_text(.error))]
    NotStarted { program: OsString, error: io::Error },
}

impl LaunchError {
    /// The exit code that shells and similar launchers use for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Unreachable { .. } | LaunchError::NoSandbox(_) => 125,
            LaunchError::NotStarted { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::NotStarted { .. } => 126,
        }
    }
}

/// Runs the program to its end and displays its output. A signal, or the end of the agent, ends the
/// program with all its descendants. Returns its exit code as shells do: 128 plus the number for a
/// signal.
///
/// `display` leads to a task that displays the output, because writing to a terminal may block.
/// `display_finished` ends when all output is displayed and the sender is dropped.
pub async fn launch(
    source: LaunchSource,
    environment: &Environment,
    display: Sender<Vec<u8>>,
    display_finished: JoinHandle<()>,
) -> Result<u8, LaunchError> {
    // Handlers must exist before there is a program that the signals are to end.
    let signals = TerminationSignals::new();
    let (link, network, program, workdir, accepts_input, sandbox) = match source {
        LaunchSource::Agent { socket, nonce } => {
            let connected = connect(&socket, &nonce).await;
            let (link, network, request) =
                connected.map_err(|error| LaunchError::Unreachable { at: socket, error })?;
            let LaunchRequest { program, workdir, accepts_input, sandbox } = request;
            let program = program.into_iter().map(OsString::from).collect();
            (Some(link), network, program, Some(workdir), accepts_input, sandbox)
        }
        LaunchSource::Person { program, sandbox } => {
            (None, None, program, None, false, Some(*sandbox))
        }
    };
    // Others may read the editor's terminal, so keys are redacted.
    let redactor = link.is_some().then(redact::StreamRedactor::default);
    let mut targets = OutputTargets { display: Some(display), display_finished, link, redactor };
    #[expect(clippy::disallowed_methods, reason = "this process runs one command")]
    let moved = workdir.map_or(Ok(()), std::env::set_current_dir);
    let started = moved.and_then(|()| {
        ProcessGroup::start_program(&program, environment, accepts_input, sandbox, network)
    });
    match started {
        Ok(group) => Ok(run(group, targets, signals).await),
        Err(error) => {
            let program = program.into_iter().next().unwrap_or_default();
            let error = if turnwright_sandbox::is_setup_error(&error) {
                LaunchError::NoSandbox(error)
            } else {
                LaunchError::NotStarted { program, error }
            };
            // The caller reports the error to the terminal.
            targets.report(&LinkFrame::Output(format!("{error}\n").into_bytes()));
            targets.end(CommandExit::Code(error.exit_code().into()), false).await;
            Err(error)
        }
    }
}

/// Passes output and input on until the program, the connection or the launcher ends. Returns how the program has ended
/// (`None` if it still runs), the signal that ends the launcher, and how long the program may take to end.
async fn relay(
    group: &mut ProcessGroup,
    targets: &mut OutputTargets,
    signals: &mut TerminationSignals,
    output: &mut Vec<u8>,
) -> (Option<CommandExit>, Option<i32>, Duration) {
    let mut end_signal = None;
    let mut grace = DEFAULT_GRACE;
    let exit = loop {
        let mut sink = |bytes: &[u8]| output.extend_from_slice(bytes);
        tokio::select! {
            biased;
            signal = signals.next() => {
                end_signal = Some(signal);
                break Some(CommandExit::TerminalClosed);
            }
            request = next_request(&mut targets.link) => match request {
                Some(LinkFrame::Signal(signal)) => group.send_signal(signal),
                Some(LinkFrame::Input(bytes)) => {
                    // A program that does not read its input must not block other events.
                    timeout(INPUT_TIMEOUT, group.write_input(&bytes)).await.ok();
                }
                Some(LinkFrame::Stop(wanted)) => {
                    grace = wanted;
                    break None;
                }
                Some(_) => {}
                None => break None,
            },
            () = wait_for_display(targets.display.as_ref()), if !targets.display_has_room() => {}
            end = group.next_output(&mut sink), if targets.have_room() => match end {
                Ok(None) => {}
                Ok(exit) => break exit,
                Err(_) => break None,
            },
        }
        if !targets.forward(output) {
            break None;
        }
    };
    (exit, end_signal, grace)
}

async fn run(
    mut group: ProcessGroup,
    mut targets: OutputTargets,
    mut signals: TerminationSignals,
) -> u8 {
    let mut output = Vec::new();
    let (exit, end_signal, grace) =
        relay(&mut group, &mut targets, &mut signals, &mut output).await;
    // All output of the program itself is in the pipe, which holds less than this. Background
    // processes may print more, faster than anybody reads.
    let mut sink = |bytes: &[u8]| {
        if output.len() < MAX_BACKLOG {
            output.extend_from_slice(bytes);
        }
    };
    if exit.is_some() {
        group.drain(&mut sink).await;
    }
    let had_leftovers = group.stop(grace).await;
    group.drain(&mut sink).await;
    targets.report(&LinkFrame::Refused(group.take_refusals()));
    let exit = match exit {
        Some(exit) => exit,
        None => {
            let end = timeout(REAP_TIMEOUT, group.wait_for_end()).await;
            end.unwrap_or(CommandExit::Unknown)
        }
    };
    timeout(FLUSH_TIMEOUT, wait_for_display(targets.display.as_ref())).await.ok();
    targets.forward(&mut output);
    output = targets.redactor.take().map(|mut redactor| redactor.finish()).unwrap_or_default();
    targets.forward(&mut output);
    let code = match (end_signal, &exit) {
        (Some(number), _) => 128 + number,
        (None, CommandExit::Code(code)) => *code,
        (None, CommandExit::Signal(name)) => 128 + signal_number(name),
        (None, CommandExit::TerminalClosed | CommandExit::Unknown) => i32::from(u8::MAX),
    };
    targets.end(exit, had_leftovers).await;
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// Connects to the agent and receives what is to be run.
async fn connect(
    socket: &Path,
    nonce: &str,
) -> io::Result<(LauncherLink, Option<Arc<SessionNetwork>>, LaunchRequest)> {
    if nonce.is_empty() {
        return Err(io::Error::other(format!(
            "{SOCKET_VARIABLE} is set and {NONCE_VARIABLE} is not; unset it if you have set it"
        )));
    }
    let connected = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(nonce.as_bytes()).await?;
        let network = launcher_link::receive_network(&stream).await?;
        let mut link = LauncherLink::new(stream);
        loop {
            if let Some(LinkFrame::Run(request)) = link.next().await? {
                return Ok((link, network, *request));
            }
        }
    };
    timeout(CONNECT_TIMEOUT, connected).await?
}

/// The agent's next request; `None` when it is gone. Without an agent it waits for ever.
async fn next_request(link: &mut Option<LauncherLink>) -> Option<LinkFrame> {
    let Some(link) = link else { return std::future::pending().await };
    // Once everything is sent, a frame that asks for nothing, so that the caller checks again whether
    // there is room for more output.
    link.next().await.ok().map(|frame| frame.unwrap_or(LinkFrame::Output(Vec::new())))
}

/// Waits until the display accepts more.
async fn wait_for_display(display: Option<&Sender<Vec<u8>>>) {
    if let Some(display) = display {
        display.reserve().await.ok();
    }
}

/// Where the output goes.
struct OutputTargets {
    /// `None` once the display has failed.
    display: Option<Sender<Vec<u8>>>,
    display_finished: JoinHandle<()>,
    link: Option<LauncherLink>,
    /// Redacts keys, if an agent is connected.
    redactor: Option<redact::StreamRedactor>,
}

impl OutputTargets {
    fn have_room(&self) -> bool {
        self.display_has_room()
            && self.link.as_ref().is_none_or(|link| link.backlog() < MAX_BACKLOG)
    }

    fn display_has_room(&self) -> bool {
        self.display.as_ref().is_none_or(|display| display.capacity() > 0)
    }

    /// Passes output on. Returns false when nobody is left to receive it.
    fn forward(&mut self, output: &mut Vec<u8>) -> bool {
        if self.display.as_ref().is_some_and(Sender::is_closed) {
            self.display = None;
        }
        if let Some(redactor) = &mut self.redactor {
            *output = redactor.push(output).into_owned();
        }
        // In chunks that fit into a frame: while the program is being ended, more may arrive at
        // once.
        for piece in output.chunks(MAX_BACKLOG) {
            self.report(&LinkFrame::Output(piece.to_vec()));
        }
        let output = std::mem::take(output);
        if let Some(display) = self.display.as_ref().filter(|_| !output.is_empty()) {
            display.try_send(output).ok();
        }
        self.display.is_some() || self.link.is_some()
    }

    fn report(&mut self, frame: &LinkFrame) {
        if let Some(link) = &mut self.link {
            link.send(frame);
        }
    }

    /// Reports the end to the agent after everything is displayed, because the agent may then close
    /// the terminal at once.
    async fn end(mut self, exit: CommandExit, had_leftovers: bool) {
        self.display = None;
        timeout(FLUSH_TIMEOUT, &mut self.display_finished).await.ok();
        if let Some(mut link) = self.link {
            link.send(&LinkFrame::Exit(exit, had_leftovers));
            timeout(REPORT_TIMEOUT, link.flush()).await.ok();
        }
    }
}

/// The signals that end the launcher.
struct TerminationSignals(Vec<(i32, tokio::signal::unix::Signal)>);

impl TerminationSignals {
    fn new() -> TerminationSignals {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals =
            kinds.into_iter().filter_map(|kind| Some((kind.as_raw_value(), signal(kind).ok()?)));
        TerminationSignals(signals.collect())
    }

    async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, stream)| {
            Box::pin(async {
                stream.recv().await;
                *number
            })
        });
        if waits.len() == 0 {
            return std::future::pending().await;
        }
        futures_util::future::select_all(waits).await.0
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::spawn_blocking;

    use super::*;

    #[tokio::test]
    async fn an_agent_that_reads_late_gets_the_last_output_and_the_exit() {
        let (ours, its) = UnixStream::pair().unwrap();
        let mut link = LauncherLink::new(ours);
        // More than the socket holds.
        for _ in 0..16 {
            link.send(&LinkFrame::Output(vec![b'x'; MAX_BACKLOG]));
        }
        let targets = OutputTargets {
            display: None,
            display_finished: spawn_blocking(|| {}),
            link: Some(link),
            redactor: None,
        };
        let reads = async {
            tokio::time::sleep(FLUSH_TIMEOUT * 3).await;
            let mut agent = LauncherLink::new(its);
            let mut bytes = 0;
            loop {
                match agent.next().await.unwrap() {
                    Some(LinkFrame::Output(output)) => bytes += output.len(),
                    Some(LinkFrame::Exit(exit, _)) => return (bytes, exit),
                    Some(_) | None => {}
                }
            }
        };
        let ((), (bytes, exit)) = tokio::join!(targets.end(CommandExit::Code(0), false), reads);
        assert_eq!((bytes, exit), (16 * MAX_BACKLOG, CommandExit::Code(0)));
    }
}
