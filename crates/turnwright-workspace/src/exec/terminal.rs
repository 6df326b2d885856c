//! A command in a terminal of the editor. What runs there is our launcher, which tells us what
//! the command prints and how it ends; where it cannot reach us, the terminal's word counts.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::UnixListener;
use tokio::time::{Instant, sleep_until, timeout};

use super::group::{Group, shell};
use super::link::{Event, Frame, Link};
use super::started::{Exit, Leftover, Signal, Sink, Started};
use super::{Environment, Spec};
use turnwright_types::client::{TerminalCommand, TerminalError, TerminalExit, TerminalOutput, Terminals};
use turnwright_types::ids::TerminalId;

/// Bytes that the editor is asked to keep.
const KEPT: u64 = 1024 * 1024;
/// After this time without a word of the launcher, the terminal is asked as well.
const LAUNCHER: Duration = Duration::from_millis(300);
/// How long the editor may take for each step of an end.
const ENDING: Duration = Duration::from_millis(500);
/// Bytes of one piece of input.
const PIECE: usize = 64 * 1024;

/// Where this program is: what the editor's terminals are to run. Looked up once; a new version
/// may be put in its place while we run.
pub fn launcher() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| std::env::current_exe().ok()).as_deref()
}

/// The editor's terminals are not where we are: the launcher does not find us there. There is one
/// editor to a process, and this does not change.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Whether a launcher has run nothing because it did not find us.
pub fn is_elsewhere() -> bool {
    ELSEWHERE.load(Ordering::Relaxed)
}

/// Why a command does not run in a terminal of the editor. It does not run at all then.
#[derive(Debug, thiserror::Error)]
pub enum NoTerminal {
    /// Nothing to listen with, or nothing to run.
    #[error("the launcher has no line to us: {0}")]
    Line(#[from] io::Error),
    /// The editor did not open one.
    #[error(transparent)]
    Refused(#[from] TerminalError),
}

/// How a terminal has ended, in the editor's words.
type Word = Result<(TerminalExit, TerminalOutput), TerminalError>;

/// A command in a terminal of the editor. Dropping it ends the command and gives the terminal
/// back.
pub struct TerminalRun {
    terminal: Held,
    spec: Spec,
    state: State,
    /// On its way to a terminal that only the editor can reach.
    killing: Option<BoxFuture<'static, ()>>,
    /// Output that nobody has asked for yet.
    kept: Vec<u8>,
    exit: Option<Exit>,
    leftover: Leftover,
}

enum State {
    /// The terminal is there, the launcher is not yet.
    Waiting { listener: UnixListener, _folder: tempfile::TempDir, ask: Ask },
    /// The launcher is there.
    Linked(Link),
    /// The launcher has not found us from where it was. It has run nothing, so we do.
    Here(Box<Group>),
    /// It is over.
    Ended,
}

/// The question how the terminal has ended.
enum Ask {
    At(Instant),
    Asked(BoxFuture<'static, Word>),
}

/// A terminal that is given back when this is dropped, and only then.
struct Held {
    terminals: Arc<dyn Terminals>,
    id: TerminalId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.terminals.release(self.id.clone());
    }
}

impl Held {
    /// Waits for the terminal's end and takes what it shows then.
    fn word(&self) -> BoxFuture<'static, Word> {
        let (terminals, id) = (Arc::clone(&self.terminals), self.id.clone());
        Box::pin(async move {
            let exit = terminals.wait(id.clone()).await?;
            // How it has ended is known without it.
            let output = terminals.output(id).await.unwrap_or_default();
            Ok((exit, output))
        })
    }

    fn kill(&self) -> BoxFuture<'static, ()> {
        let (terminals, id) = (Arc::clone(&self.terminals), self.id.clone());
        Box::pin(async move { drop(timeout(ENDING, terminals.kill(id)).await) })
    }
}

impl fmt::Debug for TerminalRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TerminalRun").field("id", &self.terminal.id).finish_non_exhaustive()
    }
}

impl TerminalRun {
    /// Opens a terminal for the command. Dropping the future leaves none behind.
    ///
    /// # Errors
    /// When there is none. Nothing was run, and nothing will be.
    pub async fn start(
        terminals: Arc<dyn Terminals>,
        spec: &Spec,
    ) -> Result<TerminalRun, NoTerminal> {
        let nothing = || io::Error::from(io::ErrorKind::NotFound);
        if is_elsewhere() {
            return Err(nothing().into());
        }
        let program = launcher().ok_or_else(nothing)?.to_owned();
        let (folder, listener) = listen().await?;
        let mut arguments = vec!["sandbox".to_owned(), "--report".to_owned()];
        // Text by the protocol; a folder whose name is none is not ours.
        let at = folder.path().join(SOCKET).into_os_string().into_string();
        arguments.push(at.map_err(|_| nothing())?);
        if spec.takes_input {
            arguments.push("--input".to_owned());
        }
        arguments.push("--".to_owned());
        arguments.extend(shell(&spec.command));
        let extra = spec.extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let command = TerminalCommand {
            program,
            arguments,
            variables: Environment::quiet().into_iter().chain(extra).collect(),
            workdir: spec.workdir.clone(),
            limit: KEPT,
        };
        let id = terminals.create(command).await?;
        let ask = Ask::At(Instant::now() + LAUNCHER);
        Ok(TerminalRun {
            terminal: Held { terminals, id },
            spec: spec.clone(),
            state: State::Waiting { listener, _folder: folder, ask },
            killing: None,
            kept: Vec::new(),
            exit: None,
            leftover: Leftover::Nothing,
        })
    }

    /// Which terminal.
    pub fn id(&self) -> &TerminalId {
        &self.terminal.id
    }

    /// One event of several; `None` unless it is the end.
    async fn step(&mut self, sink: Sink<'_>) -> io::Result<Option<Exit>> {
        match &mut self.state {
            State::Waiting { listener, ask, .. } => tokio::select! {
                biased;
                accepted = listener.accept() => if let Ok((stream, _)) = accepted
                    && is_ours(&stream)
                {
                    let mut link = Link::new(stream);
                    link.say(&Frame::Run(self.spec.jail.clone().map(Box::new)));
                    // With the state goes the socket: there is only one launcher.
                    self.state = State::Linked(link);
                },
                () = quietly(&mut self.killing) => {}
                word = answer(ask) => match word {
                    None => *ask = Ask::Asked(self.terminal.word()),
                    Some(word) => return self.believe(word, sink),
                },
            },
            State::Linked(link) => match link.next().await {
                Ok(Event::Frame(Frame::Output(bytes))) => sink(&bytes),
                Ok(Event::Frame(Frame::Exit(exit, leftover))) => {
                    self.leftover = leftover;
                    self.state = State::Ended;
                    return Ok(Some(exit));
                }
                Ok(Event::Frame(_) | Event::Drained) => {}
                // Who does not say how it ended has not ended by itself.
                Ok(Event::End) | Err(_) => {
                    self.state = State::Ended;
                    return Ok(Some(Exit::Closed));
                }
            },
            State::Here(group) => return group.next(sink).await,
            State::Ended => return Ok(self.exit.clone().or(Some(Exit::Unknown))),
        }
        Ok(None)
    }

    /// The terminal has ended and the launcher was never heard of: it runs on another machine, or
    /// the editor runs commands in its own way.
    fn believe(&mut self, word: Word, sink: Sink<'_>) -> io::Result<Option<Exit>> {
        if word.as_ref().is_ok_and(|(exit, output)| has_run_nothing(exit, output)) {
            ELSEWHERE.store(true, Ordering::Relaxed);
            self.state = State::Here(Box::new(Group::start(&self.spec)?));
            return Ok(None);
        }
        self.state = State::Ended;
        Ok(Some(told(word, sink)))
    }

    /// Ends a launcher that listens to us. `false` when it does not.
    async fn stop_launcher(&mut self, grace: Duration) -> bool {
        let State::Linked(link) = &mut self.state else { return false };
        link.say(&Frame::Stop(grace));
        let kept = &mut self.kept;
        let end = async {
            loop {
                match link.next().await {
                    Ok(Event::Frame(Frame::Output(bytes))) => kept.extend_from_slice(&bytes),
                    Ok(Event::Frame(Frame::Exit(exit, _))) => return Some(exit),
                    Ok(Event::Frame(_) | Event::Drained) => {}
                    Ok(Event::End) | Err(_) => return None,
                }
            }
        };
        match timeout(grace * 2 + ENDING, end).await {
            Ok(Some(exit)) => {
                self.exit = Some(exit);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Ends what runs in a terminal that only the editor can reach (R-TERM-5).
    async fn stop_terminal(&mut self, has_told: bool) {
        self.terminal.kill().await;
        if has_told {
            return;
        }
        let Held { terminals, id } = &self.terminal;
        if let Ok(Ok(output)) = timeout(ENDING, terminals.output(id.clone())).await {
            take(&output, &mut |it| self.kept.extend_from_slice(it));
        }
    }
}

impl Started for TerminalRun {
    fn next<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, io::Result<Option<Exit>>> {
        Box::pin(async {
            let mut has_told = false;
            let exit = loop {
                let mut noted = |bytes: &[u8]| {
                    has_told = true;
                    sink(bytes);
                };
                let exit = self.step(&mut noted).await?;
                if exit.is_some() || has_told {
                    break exit;
                }
            };
            if exit.is_some() {
                self.exit.clone_from(&exit);
            }
            Ok(exit)
        })
    }

    fn drain<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, ()> {
        if let State::Here(group) = &mut self.state {
            return group.drain(sink);
        }
        // The launcher says how it ended after all that was printed.
        sink(&std::mem::take(&mut self.kept));
        Box::pin(std::future::ready(()))
    }

    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, Leftover> {
        Box::pin(async move {
            let is_linked = match &mut self.state {
                State::Here(group) => return group.stop(grace).await,
                State::Ended => return self.leftover,
                State::Waiting { .. } => false,
                State::Linked(_) => true,
            };
            if !self.stop_launcher(grace).await {
                self.stop_terminal(is_linked).await;
            }
            // A launcher that comes only now finds nobody and runs nothing.
            self.state = State::Ended;
            Leftover::Stopped
        })
    }

    fn signal(&mut self, signal: Signal) {
        match &mut self.state {
            State::Linked(link) => link.say(&Frame::Signal(signal)),
            State::Here(group) => group.signal(signal),
            // The editor knows of one signal only.
            State::Waiting { .. } if signal != Signal::Int => {
                self.killing = Some(self.terminal.kill());
            }
            State::Waiting { .. } | State::Ended => {}
        }
    }

    fn input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let link = match &mut self.state {
                State::Linked(link) => link,
                State::Here(group) => return group.input(bytes).await,
                State::Waiting { .. } | State::Ended => {
                    return Err(io::Error::other("the editor's terminal takes no input from us"));
                }
            };
            for piece in bytes.chunks(PIECE) {
                link.say(&Frame::Input(piece.to_vec()));
            }
            link.flush().await
        })
    }
}

/// What the terminal says of its end; `None` when it is to be asked.
async fn answer(ask: &mut Ask) -> Option<Word> {
    match ask {
        Ask::At(time) => {
            sleep_until(*time).await;
            None
        }
        Ask::Asked(word) => Some(word.await),
    }
}

/// Does what there is to do, once. Never ends if there is nothing.
async fn quietly(work: &mut Option<BoxFuture<'static, ()>>) {
    let Some(doing) = work else { return std::future::pending().await };
    doing.await;
    *work = None;
}

/// The name of the socket in its folder.
const SOCKET: &str = "line";

/// A socket in a folder that nobody else can look into, under a name that nobody can guess.
async fn listen() -> io::Result<(tempfile::TempDir, UnixListener)> {
    use std::os::unix::fs::PermissionsExt;
    let made = tokio::task::spawn_blocking(|| {
        let only_us = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new()
            .prefix("turnwright-")
            .rand_bytes(16)
            .permissions(only_us)
            .tempdir()?;
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET))?;
        listener.set_nonblocking(true)?;
        io::Result::Ok((folder, listener))
    });
    let (folder, listener) = made.await.map_err(io::Error::other)??;
    Ok((folder, UnixListener::from_std(listener)?))
}

/// Whether the other side belongs to our user. Nobody else gets into the folder either.
fn is_ours(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|it| it.uid() == rustix::process::geteuid().as_raw())
}

/// Whether this is what our launcher says that has not found us, or what a shell says that has not
/// found our launcher.
fn has_run_nothing(exit: &TerminalExit, output: &TerminalOutput) -> bool {
    let says = |it: &str| output.text.contains(it);
    match exit.code {
        Some(125) => says("the agent cannot be reached") && says("Nothing was run."),
        Some(126 | 127) => launcher().and_then(Path::to_str).is_some_and(says),
        _ => false,
    }
}

fn told(word: Word, sink: Sink<'_>) -> Exit {
    let Ok((exit, output)) = word else { return Exit::Closed };
    take(&output, sink);
    let exit = output.exit.filter(|_| exit == TerminalExit::default()).unwrap_or(exit);
    match (exit.code, exit.signal) {
        (Some(code), _) => Exit::Code(i32::try_from(code).unwrap_or(i32::MAX)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

fn take(output: &TerminalOutput, sink: Sink<'_>) {
    if output.truncated {
        sink("[… the editor has not kept the beginning …]\n".as_bytes());
    }
    sink(output.text.as_bytes());
}
