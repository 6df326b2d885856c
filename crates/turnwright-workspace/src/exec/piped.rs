//! A program that the agent talks to through pipes, such as an MCP server. Like every command it
//! ends as a process group.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::Environment;
use super::activity::{ProgramActivity, ProgramRoots};
use super::group::ProcessGroup;
use super::memory_limit::wait_until_above;
use super::running::{CommandExit, RunningCommand};
use turnwright_sandbox::SandboxProfile;

/// A program to run.
#[derive(Clone, Debug)]
pub struct PipedProgram {
    /// The program and its arguments.
    pub command_line: Vec<OsString>,
    /// The absolute path of its working folder.
    pub workdir: PathBuf,
    /// The complete environment. Whoever confines the program must use
    /// [`Environment::for_sandbox`].
    pub environment: Environment,
    /// Its confinement; `None` to run it unconfined.
    pub sandbox: Option<SandboxProfile>,
}

/// The pipes to the program.
#[derive(Debug)]
pub struct ProcessPipes {
    pub stdin: ChildStdin,
    /// Its answers.
    pub stdout: ChildStdout,
    /// Its messages for people.
    pub stderr: ChildStderr,
}

/// A running program. Dropping it kills it with all its descendants.
#[derive(Debug)]
pub struct PipedProcess(ProcessGroup);

impl PipedProcess {
    /// Starts the program. Must run on the runtime's thread, because a child is tied to the thread
    /// that forks.
    pub async fn start(program: &PipedProgram) -> io::Result<(PipedProcess, ProcessPipes)> {
        let (group, pipes) = ProcessGroup::start_piped(program).await?;
        Ok((PipedProcess(group), pipes))
    }

    /// Lets daemons that it has started, such as agents that hold keys, outlive this value. What stays in its process
    /// group is killed all the same.
    #[cfg(unix)]
    pub fn spare_daemons(&mut self) {
        self.0.spares_strays = true;
    }

    /// Has `activity` look at this program from now on.
    pub fn observe(&self, activity: &ProgramActivity) {
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &self.0.process.namespace {
            return activity.set(ProgramRoots::Namespace(namespace.children().collect()));
        }
        activity.set(ProgramRoots::Everything);
    }

    /// Waits until it and all that it has started hold more than `limit` bytes of memory, and returns how many
    /// they hold. Waits for ever without a limit, or if the system does not tell.
    pub fn memory_above(&self, limit: Option<u64>) -> impl Future<Output = u64> + Send + use<> {
        wait_until_above(self.0.memory(), limit)
    }

    pub async fn wait_for_end(&mut self) -> CommandExit {
        loop {
            match self.0.next_output(&mut |_| {}).await {
                Ok(None) => {}
                Ok(Some(exit)) => return exit,
                Err(_) => return CommandExit::Unknown,
            }
        }
    }

    /// Ends the program. Its input is closed by now, so it gets the time `patience` to end by
    /// itself, then SIGTERM, and after `grace` it is killed.
    pub async fn stop(mut self, patience: Duration, grace: Duration) {
        tokio::time::timeout(patience, self.wait_for_end()).await.ok();
        self.0.stop(grace).await;
    }
}
