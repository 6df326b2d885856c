//! A program that is talked to: its input and its output are pipes of ours, what it says besides
//! is heard apart, and it ends as a group like every command.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::Environment;
use super::group::Group;
use super::started::{Exit, Started};
use turnwright_sandbox::Profile;

/// What to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where, absolute.
    pub workdir: PathBuf,
    /// The variables that it gets, all of them: whoever confines it leaves out the ways out.
    pub environment: Environment,
    /// What it is kept to; `None` for nothing.
    pub jail: Option<Profile>,
}

/// The three ways to talk to it.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it answers.
    pub stdout: ChildStdout,
    /// What it says to people.
    pub stderr: ChildStderr,
}

/// A running program. Dropping it kills it with all that it has started.
#[derive(Debug)]
pub struct Piped(Group);

impl Piped {
    /// Starts it. Takes milliseconds on the runtime's thread: a child is tied to the thread that
    /// forks.
    ///
    /// # Errors
    /// When it does not start, or cannot be confined as it is to be.
    pub fn start(program: &Program) -> io::Result<(Piped, Pipes)> {
        let (group, pipes) = Group::piped(program)?;
        Ok((Piped(group), pipes))
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Exit {
        let mut nothing = |_: &[u8]| {};
        loop {
            match self.0.next(&mut nothing).await {
                Ok(None) => {}
                Ok(Some(exit)) => return exit,
                Err(_) => return Exit::Unknown,
            }
        }
    }

    /// Ends it. Its input is closed by now, so it may be about to end by itself: it is given
    /// `patience` for that, then TERM, then after `grace` it is killed.
    pub async fn stop(mut self, patience: Duration, grace: Duration) {
        drop(tokio::time::timeout(patience, self.ended()).await);
        self.0.stop(grace).await;
    }
}
