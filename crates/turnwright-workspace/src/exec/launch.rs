//! The launcher: runs a program the way the agent runs its commands, in a terminal of the editor
//! or of a person, and tells the agent what it prints and how it ends.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::Environment;
use super::group::Group;
use super::link::{Event, Frame, Link};
use super::started::{Exit, Leftover, Started, number};
use turnwright_types::redact;
use turnwright_sandbox::Profile;

/// How long the agent may take to say that the program is to run.
const GREETING: Duration = Duration::from_secs(10);
/// How long the program may clean up before it is killed, when nobody says.
const GRACE: Duration = Duration::from_millis(200);
/// How long an end may take to become known that we have made.
const REAP: Duration = Duration::from_millis(100);
/// How long the last words may take, to a terminal or an agent that does not read.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How long the program may take to take its input.
const INPUT: Duration = Duration::from_secs(1);
/// Bytes that may wait for the agent before the program has to.
const MARK: usize = 256 * 1024;

/// What to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The variables that it gets.
    pub environment: Environment,
    /// Whether the agent may give it input. If not, its stdin is empty.
    pub takes_input: bool,
    /// Where the agent listens, if one does.
    pub report: Option<PathBuf>,
    /// What it is kept to, if nobody reports: an agent brings its own word.
    pub jail: Option<Profile>,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Without the agent nobody knows what became of it.
    #[error("the agent cannot be reached at {}: {error}. Nothing was run.", .at.display())]
    Unreachable {
        /// Where it was to listen.
        at: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// It would have run without walls.
    #[error(transparent)]
    NoSandbox(io::Error),
    /// The program cannot be started.
    #[error("{} cannot be started: {error}", .program.to_string_lossy())]
    NotStarted {
        /// Its name.
        program: OsString,
        /// What happened.
        error: io::Error,
    },
}

impl LaunchError {
    /// The exit code that shells and the like use for it.
    pub fn code(&self) -> u8 {
        match self {
            LaunchError::Unreachable { .. } | LaunchError::NoSandbox(_) => 125,
            LaunchError::NotStarted { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::NotStarted { .. } => 126,
        }
    }
}

/// Who shows what is printed. Waits for those who read, so it is not a part of us.
#[derive(Debug)]
pub struct Screen {
    /// Takes what is printed.
    pub out: Sender<Vec<u8>>,
    /// Ends when all of it is shown and no more will come.
    pub shown: tokio::task::JoinHandle<()>,
}

/// Runs the program to its end; what it prints goes to the screen as it comes. A signal, and the end
/// of the agent, end the program with all that it has started. Returns its exit code as shells
/// have it: 128 and the number for a signal.
///
/// # Errors
/// When nothing was run.
pub async fn launch(launch: &Launch, screen: Screen) -> Result<u8, LaunchError> {
    // Before anything runs that they are to end.
    let signals = Signals::new();
    let (link, jail) = match &launch.report {
        Some(at) => {
            let greeted = connect(at).await;
            let (link, jail) =
                greeted.map_err(|error| LaunchError::Unreachable { at: at.clone(), error })?;
            (Some(link), jail)
        }
        None => (None, launch.jail.clone()),
    };
    // The terminal of an editor is shown to more than the one who types in it.
    let keys = link.is_some().then(redact::Stream::default);
    let mut outlets = Outlets { out: Some(screen.out), shown: screen.shown, link, keys };
    match Group::launch(&launch.program, &launch.environment, launch.takes_input, jail.as_ref()) {
        Ok(group) => Ok(run(group, outlets, signals).await),
        Err(error) => {
            let program = launch.program.first().cloned().unwrap_or_default();
            let error = if turnwright_sandbox::is_failure(&error) {
                LaunchError::NoSandbox(error)
            } else {
                LaunchError::NotStarted { program, error }
            };
            // The terminal is told by who called us.
            outlets.say(&Frame::Output(format!("{error}\n").into_bytes()));
            outlets.end(Exit::Code(error.code().into()), Leftover::Nothing).await;
            Err(error)
        }
    }
}

async fn run(mut group: Group, mut outlets: Outlets, mut signals: Signals) -> u8 {
    let mut heard = Vec::new();
    let mut told = None;
    let mut grace = GRACE;
    let exit = loop {
        let mut sink = |bytes: &[u8]| heard.extend_from_slice(bytes);
        tokio::select! {
            biased;
            signal = signals.next() => {
                told = Some(signal);
                break Some(Exit::Closed);
            }
            order = order(&mut outlets.link) => match order {
                Some(Frame::Signal(signal)) => group.signal(signal),
                Some(Frame::Input(bytes)) => {
                    // Who does not read its input must not keep us from what else there is.
                    drop(timeout(INPUT, group.input(&bytes)).await);
                }
                Some(Frame::Stop(wanted)) => {
                    grace = wanted;
                    break None;
                }
                Some(_) => {}
                None => break None,
            },
            () = screen_room(outlets.out.as_ref()), if !outlets.screen_has_room() => {}
            end = group.next(&mut sink), if outlets.have_room() => match end {
                Ok(None) => {}
                Ok(exit) => break exit,
                Err(_) => break None,
            },
        }
        if !outlets.pass(&mut heard) {
            break None;
        }
    };
    // What it had printed is in the pipe, which is smaller than that. What it has left behind may go
    // on talking, faster than anybody reads.
    let mut sink = |bytes: &[u8]| {
        if heard.len() < MARK {
            heard.extend_from_slice(bytes);
        }
    };
    if exit.is_some() {
        group.drain(&mut sink).await;
    }
    let leftover = group.stop(grace).await;
    group.drain(&mut sink).await;
    let exit = match exit {
        Some(exit) => exit,
        None => reap(&mut group).await,
    };
    drop(timeout(LAST_WORDS, screen_room(outlets.out.as_ref())).await);
    outlets.pass(&mut heard);
    heard = outlets.keys.take().map(|mut it| it.finish()).unwrap_or_default();
    outlets.pass(&mut heard);
    let code = match (told, &exit) {
        (Some(number), _) => 128 + number,
        (None, Exit::Code(code)) => *code,
        (None, Exit::Signal(name)) => 128 + number(name),
        (None, Exit::Closed | Exit::Unknown) => i32::from(u8::MAX),
    };
    outlets.end(exit, leftover).await;
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// How it ended, after it was made to.
async fn reap(group: &mut Group) -> Exit {
    let mut nothing = |_: &[u8]| {};
    let end = async {
        loop {
            match group.next(&mut nothing).await {
                Ok(None) => {}
                Ok(Some(exit)) => break Some(exit),
                Err(_) => break None,
            }
        }
    };
    timeout(REAP, end).await.ok().flatten().unwrap_or(Exit::Unknown)
}

/// The line to the agent, and what it wants the program to be kept to.
async fn connect(at: &Path) -> io::Result<(Link, Option<Profile>)> {
    let greeted = async {
        let mut link = Link::new(UnixStream::connect(at).await?);
        loop {
            match link.next().await? {
                Event::Frame(Frame::Run(jail)) => return Ok((link, jail.map(|it| *it))),
                Event::Frame(_) | Event::Drained => {}
                Event::End => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    };
    timeout(GREETING, greeted).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The next order of the agent; `None` when it has gone. Without an agent there is none, ever.
async fn order(link: &mut Option<Link>) -> Option<Frame> {
    let Some(link) = link else { return std::future::pending().await };
    match link.next().await {
        Ok(Event::Frame(frame)) => Some(frame),
        // Only to look again whether there is room for more.
        Ok(Event::Drained) => Some(Frame::Run(None)),
        Ok(Event::End) | Err(_) => None,
    }
}

/// Waits until the screen takes more.
async fn screen_room(out: Option<&Sender<Vec<u8>>>) {
    if let Some(out) = out {
        drop(out.reserve().await);
    }
}

/// Who is told.
struct Outlets {
    /// `None` once nobody looks any more.
    out: Option<Sender<Vec<u8>>>,
    shown: tokio::task::JoinHandle<()>,
    link: Option<Link>,
    /// Hides keys, for an agent.
    keys: Option<redact::Stream>,
}

impl Outlets {
    fn have_room(&self) -> bool {
        self.screen_has_room() && self.link.as_ref().is_none_or(|it| it.backlog() < MARK)
    }

    fn screen_has_room(&self) -> bool {
        self.out.as_ref().is_none_or(|it| it.capacity() > 0)
    }

    /// Passes on what was heard. `false` when nobody is left to hear it.
    fn pass(&mut self, heard: &mut Vec<u8>) -> bool {
        if self.out.as_ref().is_some_and(Sender::is_closed) {
            self.out = None;
        }
        if let Some(keys) = &mut self.keys {
            *heard = keys.push(heard).into_owned();
        }
        // In pieces that are frames: while the program is being ended, more may come at once.
        for piece in heard.chunks(MARK) {
            self.say(&Frame::Output(piece.to_vec()));
        }
        let heard = std::mem::take(heard);
        if let Some(out) = self.out.as_ref().filter(|_| !heard.is_empty()) {
            drop(out.try_send(heard));
        }
        self.out.is_some() || self.link.is_some()
    }

    fn say(&mut self, frame: &Frame) {
        if let Some(link) = &mut self.link {
            link.say(frame);
        }
    }

    /// The agent hears of the end when all is on the screen: it may close that at once.
    async fn end(mut self, exit: Exit, leftover: Leftover) {
        self.out = None;
        drop(timeout(LAST_WORDS, &mut self.shown).await);
        if let Some(mut link) = self.link {
            link.say(&Frame::Exit(exit, leftover));
            drop(timeout(LAST_WORDS, link.flush()).await);
        }
    }
}

/// The signals that mean the end.
struct Signals(Vec<(i32, tokio::signal::unix::Signal)>);

impl Signals {
    fn new() -> Signals {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let listen = |it: SignalKind| Some((it.as_raw_value(), signal(it).ok()?));
        Signals(kinds.into_iter().filter_map(listen).collect())
    }

    async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, it)| {
            Box::pin(async {
                it.recv().await;
                *number
            })
        });
        if waits.len() == 0 {
            return std::future::pending().await;
        }
        futures_util::future::select_all(waits).await.0
    }
}
