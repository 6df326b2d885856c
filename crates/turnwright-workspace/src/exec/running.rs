//! The interface to a running command, whether it is a process group of the agent or runs in a
//! terminal of the client.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::MemoryMeter;

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

    /// Asks the command to end and kills it after `grace`. Afterwards nothing of it is running.
    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, Leftover>;

    /// Measures its memory, where the system allows that.
    fn memory(&self) -> Option<MemoryMeter> {
        None
    }

    /// The connections that failed because of its sandbox, each returned once.
    fn take_refused_connections(&mut self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Sends a signal to all its processes.
    fn send_signal(&mut self, signal: Signal);

    /// Writes to its input. A last byte of 4 (control-D) ends the input.
    fn write_input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
}

/// How a command exited.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The processes that a command had left running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing was running.
    None,
    /// Something was running and was stopped.
    Stopped,
}

/// The signals that can be sent to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The signal of control-C.
    Int,
    /// A request to end.
    Term,
    /// An immediate end.
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
