//! What can be done with a command that runs, wherever it does: as a group of ours or in a
//! terminal of the client.

use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// Takes output as it comes.
pub type Sink<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// A command that runs, wherever it does. Dropping it ends it.
pub trait Started: Send {
    /// Waits for more output, handed to `sink` raw, or for the end of the command itself. Safe to
    /// cancel.
    fn next<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, io::Result<Option<Exit>>>;

    /// Output that is still to come after the end, for a short while.
    fn drain<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, ()>;

    /// Asks it to end and makes it end when the grace is over; afterwards nothing of it runs.
    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, Leftover>;

    /// Sends a signal to all of it.
    fn signal(&mut self, signal: Signal);

    /// Gives it input. A last byte of 4 (control-D) ends the input.
    fn input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
}

/// How a command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal: its name.
    Signal(String),
    /// Its terminal in the editor was closed or ended.
    Closed,
    /// Nobody says.
    Unknown,
}

impl Exit {
    /// Whether it did what it was to do. Only a code of zero says that.
    pub fn is_success(&self) -> bool {
        *self == Exit::Code(0)
    }

    /// Its code, if it has one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(*code),
            Exit::Signal(_) | Exit::Closed | Exit::Unknown => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(formatter, "exit {code}"),
            Exit::Signal(name) => write!(formatter, "killed by {name}"),
            Exit::Closed => formatter.write_str("ended: the user closed its terminal"),
            Exit::Unknown => formatter.write_str("ended, exit code unknown"),
        }
    }
}

/// What was found running when a command was made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing.
    Nothing,
    /// Something, which was ended.
    Stopped,
}

/// The signals that one may want to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// What control-C sends.
    Int,
    /// Please end.
    Term,
    /// End.
    Kill,
}

/// The name of a signal by its number, where the numbers are the same everywhere.
pub(super) fn name(number: i32) -> String {
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

/// The number of a signal of that name; 0 for one that nobody knows.
#[cfg(unix)]
pub(super) fn number(wanted: &str) -> i32 {
    (1..=64).find(|it| name(*it) == wanted).unwrap_or(0)
}
