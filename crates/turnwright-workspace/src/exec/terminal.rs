//! Runs a command in a terminal of the editor. What runs there is the launcher, which reports the
//! command's output and end to the agent. If the launcher cannot reach the agent, the editor's own
//! report of the terminal counts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout};

use super::CommandSpec;
use super::environment::NONINTERACTIVE_VARIABLES;
use super::group::{ProcessGroup, shell};
use super::job::{CommandExit, OutputSink, RunningCommand, Signal};
use super::launcher_link::{
    self, LaunchRequest, LauncherLink, LauncherListener, LinkFrame, NONCE_VARIABLE, SOCKET_VARIABLE,
};
use super::program_search::launcher_program;
use turnwright_sandbox::Refusal;
use turnwright_types::client::{
    ClientTerminals, TerminalCommand, TerminalError, TerminalExit, TerminalOutput,
};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::TerminalId;
use turnwright_types::text;

/// Bytes of output that the editor is asked to keep.
const OUTPUT_LIMIT: u64 = 1024 * 1024;
/// How long to wait for the launcher before the editor is asked about the terminal as well.
const LAUNCHER_TIMEOUT: Duration = Duration::from_millis(300);
/// How long the editor may take for each step of ending a terminal.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum length of a terminal's name, in characters.
const MAX_LABEL_CHARS: usize = 200;
/// The punctuation that means nothing to a shell, wherever it stands in a word.
const PLAIN_PUNCTUATION: &str = "_-./:,@+%";
/// The distance in Unicode from ASCII punctuation to its wide forms.
const WIDE_FORMS: u32 = 0xfee0;
/// The size of one input frame.
const INPUT_CHUNK: usize = 64 * 1024;

/// True if the editor's terminals are on another machine, so that the launcher cannot find the
/// agent. A process serves one editor, so this does not change.
static IS_EDITOR_REMOTE: AtomicBool = AtomicBool::new(false);

/// True if a launcher has run nothing because it did not find the agent.
pub fn is_editor_remote() -> bool {
    IS_EDITOR_REMOTE.load(Ordering::Relaxed)
}

/// Why a command was not started in a terminal of the editor. It is not run at all then.
#[derive(Debug, thiserror::Error)]
pub enum TerminalStartError {
    /// The socket or the launcher is missing.
    #[error("the launcher cannot be started in the editor's terminal: {}", io_error_text(.0))]
    NoLauncher(#[from] io::Error),
    /// The editor did not open a terminal.
    #[error(transparent)]
    Refused(#[from] TerminalError),
}

/// How a terminal has ended according to the editor.
type TerminalEnd = Result<(TerminalExit, TerminalOutput), TerminalError>;

/// A command in a terminal of the editor. Dropping it ends the command and releases the terminal.
pub struct TerminalRun {
    terminal: TerminalHandle,
    spec: CommandSpec,
    state: TerminalState,
    /// A kill request that is under way to the editor.
    pending_kill: Option<BoxFuture<'static, ()>>,
    /// Output that was received but not passed on yet.
    unread_output: Vec<u8>,
    exit: Option<CommandExit>,
    had_leftovers: bool,
    refusals: Vec<Refusal>,
}

enum TerminalState {
    /// The terminal is open, and the launcher has not connected yet.
    Waiting {
        listener: LauncherListener,
        /// After a while asks the editor how the terminal has ended.
        end: BoxFuture<'static, TerminalEnd>,
    },
    Connected(LauncherLink),
    /// The launcher did not find the agent and has run nothing, so the command is being started here.
    Starting(BoxFuture<'static, io::Result<ProcessGroup>>),
    /// The command runs here.
    Local(Box<ProcessGroup>),
    Ended,
}

/// A terminal that is released when this is dropped, and only then.
struct TerminalHandle {
    terminals: Arc<dyn ClientTerminals>,
    id: TerminalId,
}

impl Drop for TerminalHandle {
    fn drop(&mut self) {
        self.terminals.release(self.id.clone());
    }
}

impl TerminalHandle {
    /// Waits for the terminal's end and takes its output. The editor is not asked before `due`.
    fn wait_for_end(&self, due: Instant) -> BoxFuture<'static, TerminalEnd> {
        let terminals = Arc::clone(&self.terminals);
        let id = self.id.clone();
        Box::pin(async move {
            sleep_until(due).await;
            let exit = terminals.wait(id.clone()).await?;
            // The exit status counts even without the output.
            let output = terminals.output(id).await.unwrap_or_default();
            Ok((exit, output))
        })
    }

    fn kill(&self) -> BoxFuture<'static, ()> {
        let terminals = Arc::clone(&self.terminals);
        let id = self.id.clone();
        Box::pin(async move {
            timeout(END_TIMEOUT, terminals.kill(id)).await.ok();
        })
    }
}

impl TerminalRun {
    /// Opens a terminal for the command. If the future is dropped, no terminal stays behind.
    ///
    /// # Errors
    /// If no terminal can be opened. Nothing was run then.
    pub async fn start(
        terminals: Arc<dyn ClientTerminals>,
        spec: &CommandSpec,
    ) -> Result<TerminalRun, TerminalStartError> {
        if is_editor_remote() {
            return Err(not_found().into());
        }
        let program = launcher_program().ok_or_else(not_found)?.to_owned();
        let listener = LauncherListener::bind().await?;
        // The protocol needs text, and the name of our temporary folder is UTF-8.
        let socket = listener.socket().into_os_string().into_string().map_err(|_| not_found())?;
        // The editor adds its own environment.
        let quiet = NONINTERACTIVE_VARIABLES.iter().map(|(name, value)| (*name, (*value).into()));
        let extra = spec.extra_variables.iter().cloned();
        let launcher = [(SOCKET_VARIABLE, socket), (NONCE_VARIABLE, listener.nonce.clone())];
        let variables = quiet.chain(extra).chain(launcher);
        let command = TerminalCommand {
            program,
            // This argument is not executed: editors show it as the terminal's name.
            arguments: vec![label(&spec.command)],
            env: variables.map(|(name, value)| (name.to_owned(), value)).collect(),
            workdir: spec.workdir.clone(),
            output_byte_limit: OUTPUT_LIMIT,
        };
        let id = terminals.create(command).await?;
        let terminal = TerminalHandle { terminals, id };
        let end = terminal.wait_for_end(Instant::now() + LAUNCHER_TIMEOUT);
        Ok(TerminalRun {
            terminal,
            spec: spec.clone(),
            state: TerminalState::Waiting { listener, end },
            pending_kill: None,
            unread_output: Vec::new(),
            exit: None,
            had_leftovers: false,
            refusals: Vec::new(),
        })
    }

    pub fn id(&self) -> &TerminalId {
        &self.terminal.id
    }

    /// Handles one event. Returns the exit if that was the end.
    async fn handle_event(&mut self, sink: OutputSink<'_>) -> io::Result<Option<CommandExit>> {
        match &mut self.state {
            TerminalState::Waiting { listener, end } => tokio::select! {
                biased;
                stream = listener.accept() => {
                    launcher_link::send_network(&stream, self.spec.network.as_deref())?;
                    let mut link = LauncherLink::new(stream);
                    link.send(&LinkFrame::Run(Box::new(LaunchRequest {
                        program: shell(&self.spec.command),
                        workdir: self.spec.workdir.to_string_lossy().into_owned(),
                        accepts_input: self.spec.accepts_input,
                        sandbox: self.spec.sandbox.clone(),
                    })));
                    // Replacing the state removes the socket, so only one launcher can connect.
                    self.state = TerminalState::Connected(link);
                },
                () = complete_pending(&mut self.pending_kill) => {}
                end = end => return Ok(self.handle_terminal_end(end, sink)),
            },
            TerminalState::Connected(link) => match link.next().await {
                Ok(Some(LinkFrame::Output(bytes))) => sink(&bytes),
                Ok(Some(LinkFrame::Refused(refusals))) => self.refusals = refusals,
                Ok(Some(LinkFrame::Exit(exit, had_leftovers))) => {
                    self.had_leftovers = had_leftovers;
                    self.state = TerminalState::Ended;
                    return Ok(Some(exit));
                }
                Ok(_) => {}
                // A launcher that reports no exit was ended from outside.
                Err(_) => {
                    self.state = TerminalState::Ended;
                    return Ok(Some(CommandExit::TerminalClosed));
                }
            },
            TerminalState::Starting(starting) => match starting.await {
                Ok(group) => self.state = TerminalState::Local(Box::new(group)),
                Err(error) => {
                    self.state = TerminalState::Ended;
                    return Err(error);
                }
            },
            TerminalState::Local(group) => return group.next_output(sink).await,
            TerminalState::Ended => {
                return Ok(self.exit.clone().or(Some(CommandExit::Unknown)));
            }
        }
        Ok(None)
    }

    /// Handles the end of a terminal whose launcher never connected: it runs on another machine, or
    /// the editor runs commands in its own way.
    fn handle_terminal_end(
        &mut self,
        end: TerminalEnd,
        sink: OutputSink<'_>,
    ) -> Option<CommandExit> {
        let has_failed = match &end {
            Ok((exit, output)) => is_launcher_failure(exit, output),
            Err(TerminalError::Failed(why)) => names_launcher(why),
            Err(TerminalError::Denied(_)) => false,
        };
        if has_failed {
            IS_EDITOR_REMOTE.store(true, Ordering::Relaxed);
            let spec = self.spec.clone();
            self.state =
                TerminalState::Starting(Box::pin(async move { ProcessGroup::start(&spec).await }));
            return None;
        }
        self.state = TerminalState::Ended;
        Some(exit_from_terminal(end, sink))
    }

    /// Tells a connected launcher to end the command. Returns false if it does not.
    async fn stop_launcher(&mut self, grace: Duration) -> bool {
        let TerminalState::Connected(link) = &mut self.state else { return false };
        link.send(&LinkFrame::Stop(grace));
        let unread_output = &mut self.unread_output;
        let end = async {
            loop {
                match link.next().await {
                    Ok(Some(LinkFrame::Output(bytes))) => unread_output.extend_from_slice(&bytes),
                    Ok(Some(LinkFrame::Exit(exit, _))) => return Some(exit),
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
        };
        self.exit = timeout(grace * 2 + END_TIMEOUT, end).await.unwrap_or_default();
        self.exit.is_some()
    }

    /// Ends a command in a terminal that only the editor can reach (R-TERM-5).
    async fn stop_terminal(&mut self, has_output: bool) {
        self.terminal.kill().await;
        if has_output {
            return;
        }
        let TerminalHandle { terminals, id } = &self.terminal;
        if let Ok(Ok(output)) = timeout(END_TIMEOUT, terminals.output(id.clone())).await {
            forward_output(&output, &mut |bytes| self.unread_output.extend_from_slice(bytes));
        }
    }
}

impl RunningCommand for TerminalRun {
    fn next_output<'a>(
        &'a mut self,
        sink: OutputSink<'a>,
    ) -> BoxFuture<'a, io::Result<Option<CommandExit>>> {
        Box::pin(async {
            let mut has_output = false;
            let exit = loop {
                let mut noted = |bytes: &[u8]| {
                    has_output = true;
                    sink(bytes);
                };
                let exit = self.handle_event(&mut noted).await?;
                if exit.is_some() || has_output {
                    break exit;
                }
            };
            if exit.is_some() {
                self.exit.clone_from(&exit);
            }
            Ok(exit)
        })
    }

    fn drain<'a>(&'a mut self, sink: OutputSink<'a>) -> BoxFuture<'a, ()> {
        if let TerminalState::Local(group) = &mut self.state {
            return group.drain(sink);
        }
        // The launcher reports the exit after all output.
        sink(&std::mem::take(&mut self.unread_output));
        Box::pin(std::future::ready(()))
    }

    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let is_connected = match &mut self.state {
                TerminalState::Local(group) => return group.stop(grace).await,
                TerminalState::Starting(_) => {
                    self.state = TerminalState::Ended;
                    return false;
                }
                TerminalState::Ended => return self.had_leftovers,
                TerminalState::Waiting { .. } => false,
                TerminalState::Connected(_) => true,
            };
            if !self.stop_launcher(grace).await {
                self.stop_terminal(is_connected).await;
            }
            // A launcher that connects only now is rejected and runs nothing.
            self.state = TerminalState::Ended;
            true
        })
    }

    fn take_refusals(&mut self) -> Vec<Refusal> {
        match &mut self.state {
            TerminalState::Local(group) => group.take_refusals(),
            _ => std::mem::take(&mut self.refusals),
        }
    }

    fn send_signal(&mut self, signal: Signal) {
        match &mut self.state {
            TerminalState::Connected(link) => link.send(&LinkFrame::Signal(signal)),
            TerminalState::Local(group) => group.send_signal(signal),
            // The editor can send only one signal.
            TerminalState::Waiting { .. } if signal != Signal::Int => {
                self.pending_kill = Some(self.terminal.kill());
            }
            TerminalState::Waiting { .. } | TerminalState::Starting(_) | TerminalState::Ended => {}
        }
    }

    fn write_input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let link = match &mut self.state {
                TerminalState::Connected(link) => link,
                TerminalState::Local(group) => return group.write_input(bytes).await,
                TerminalState::Waiting { .. }
                | TerminalState::Starting(_)
                | TerminalState::Ended => {
                    return Err(io::Error::other(
                        "the editor's terminal accepts no input from the agent",
                    ));
                }
            };
            for piece in bytes.chunks(INPUT_CHUNK) {
                link.send(&LinkFrame::Input(piece.to_vec()));
            }
            link.flush().await
        })
    }
}

/// A command as the name of its terminal: in one line, without hidden characters, and not too long. Some editors pass
/// it through a shell, with or without quotes around it, which would run parts of it outside of the sandbox. So most
/// punctuation gets its wide form. The raw input of the card has the exact command.
fn label(command: &str) -> String {
    let mut name = String::new();
    for char in escape_hidden_line(command.trim()).chars() {
        // If a word begins with `=`, zsh replaces it by the path of the program that follows.
        let is_inner_equals = char == '=' && name.ends_with(char::is_alphanumeric);
        let is_plain = !char.is_ascii_punctuation() || PLAIN_PUNCTUATION.contains(char);
        let wide = char::from_u32(u32::from(char) + WIDE_FORMS).unwrap_or(char);
        name.push(if is_plain || is_inner_equals { char } else { wide });
    }
    text::clip(name, MAX_LABEL_CHARS)
}

/// Completes the pending request. Waits for ever if there is none.
async fn complete_pending(work: &mut Option<BoxFuture<'static, ()>>) {
    let Some(doing) = work else { return std::future::pending().await };
    doing.await;
    *work = None;
}

/// True if this is the error of a launcher that did not find the agent, or of a shell or an editor that could
/// not start the launcher. A shell may name only a part of its path, which it has split at a blank.
fn is_launcher_failure(exit: &TerminalExit, output: &TerminalOutput) -> bool {
    let text = &output.text;
    match exit.code {
        Some(0) => false,
        Some(125) => {
            text.contains("the agent cannot be reached") && text.contains("Nothing was run.")
        }
        Some(126 | 127) => true,
        _ => names_launcher(text),
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn names_launcher(text: &str) -> bool {
    launcher_program().and_then(Path::to_str).is_some_and(|path| text.contains(path))
}

fn exit_from_terminal(end: TerminalEnd, sink: OutputSink<'_>) -> CommandExit {
    let Ok((exit, output)) = end else { return CommandExit::TerminalClosed };
    forward_output(&output, sink);
    let exit = output.exit.filter(|_| exit == TerminalExit::default()).unwrap_or(exit);
    match (exit.code, exit.signal) {
        // So node-pty reports a signal; the signal 0 is none.
        (Some(0), Some(signal)) if !matches!(signal.as_str(), "" | "0") => {
            CommandExit::Signal(signal)
        }
        (Some(code), _) => CommandExit::Code(i32::try_from(code).unwrap_or(i32::MAX)),
        (None, Some(signal)) => CommandExit::Signal(signal),
        (None, None) => CommandExit::Unknown,
    }
}

fn forward_output(output: &TerminalOutput, sink: OutputSink<'_>) {
    if output.truncated {
        sink("[… the editor has dropped the beginning …]\n".as_bytes());
    }
    sink(output.text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_reads_the_name_of_a_terminal_runs_nothing() {
        let table = [
            ("cargo test -p a_b --lib src/x.rs", "cargo test -p a_b --lib src/x.rs"),
            (" 日本 a:b,c@d+e ", "日本 a:b,c@d+e"),
            ("npm test && rm -rf x", "npm test ＆＆ rm -rf x"),
            ("echo \"$(id)\"", "echo ＂＄（id）＂"),
            ("a\nb", "a＼nb"),
            ("A=1 date --utc +%s =b", "A=1 date --utc +%s ＝b"),
        ];
        for (command, expected) in table {
            assert_eq!(label(command), expected, "{command}");
        }
        for char in ";&|<>()$`\\\"'*?[]{}#~!^=\n\t".chars() {
            assert!(!label(&format!("a {char}b")).contains(char), "{char:?}");
        }
    }
}
