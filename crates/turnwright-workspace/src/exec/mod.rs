//! Shell commands: started in a group of their own, with nothing of ours in their hands, heard
//! with bounded memory, and ended as a group on every path. Each is a job, with a task of its own
//! that listens to it whether or not anybody waits.

mod clean;
mod environment;
mod group;
mod job;
mod jobs;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod link;
#[cfg(unix)]
mod members;
mod output;
mod piped;
mod spill;
mod started;
mod stray;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod watch;

use std::path::PathBuf;

use turnwright_sandbox::Profile;
use turnwright_types::dialect::Dialect;

pub use environment::{Environment, names_secret};
pub use group::Group;
pub use job::{End, Ended, InputError, Job};
pub use jobs::{Berth, Jobs, TooMany};
#[cfg(unix)]
pub use launch::{Launch, LaunchError, Screen, launch};
pub use output::{Look, Output, shortened};
pub use piped::{Piped, Pipes, Program};
pub use started::{Exit, Leftover, Signal, Sink, Started};
#[cfg(unix)]
pub use terminal::{NoTerminal, TerminalRun, is_elsewhere, launcher};

/// What to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The command line, for the shell.
    pub command: String,
    /// Where, absolute.
    pub workdir: PathBuf,
    /// The variables that it gets.
    pub environment: Environment,
    /// Whether it can be given input. If not, its stdin is empty.
    pub takes_input: bool,
    /// Variables for this command on top of these.
    pub extra: Vec<(&'static str, String)>,
    /// What it is kept to; `None` for nothing.
    pub jail: Option<Profile>,
}

/// The shell that runs commands.
pub fn dialect() -> Dialect {
    if group::has_bash() { Dialect::Bash } else { Dialect::Posix }
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
