//! The process that runs a command.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

#[cfg(target_os = "linux")]
use super::command_namespace::CommandNamespace;
#[cfg(target_os = "linux")]
use super::descendants::{self, StartedChildren};
#[cfg(windows)]
use super::windows_group::JobObject;
use turnwright_sandbox::Sandbox;

/// A started command.
#[derive(Debug)]
pub(super) struct CommandProcess {
    /// The process that was spawned. With a namespace it has only started the program, and ends.
    pub(super) child: Child,
    /// Dropping it ends the command.
    #[cfg(windows)]
    job: JobObject,
    #[cfg(target_os = "linux")]
    pub(super) namespace: Option<CommandNamespace>,
    #[cfg(target_os = "linux")]
    _started: StartedChildren,
}

impl CommandProcess {
    /// Starts the command, which enters the sandbox by itself.
    #[cfg(target_os = "linux")]
    pub(super) fn spawn(
        command: &mut Command,
        sandbox: Option<&Sandbox>,
    ) -> io::Result<CommandProcess> {
        let (child, namespace, started) = descendants::start(|| {
            let child = command.spawn().map_err(|error| match sandbox {
                Some(sandbox) => sandbox.explain(error),
                None => error,
            });
            // Also after an error there may be some.
            let processes = sandbox.and_then(Sandbox::processes);
            let namespace = processes.map(CommandNamespace::open).transpose();
            Ok((child?, namespace?))
        })?;
        Ok(CommandProcess { child, namespace, _started: started })
    }

    #[cfg(not(any(target_os = "linux", windows)))]
    pub(super) fn spawn(
        command: &mut Command,
        sandbox: Option<&Sandbox>,
    ) -> io::Result<CommandProcess> {
        let child = command.spawn().map_err(|error| match sandbox {
            Some(sandbox) => sandbox.explain(error),
            None => error,
        })?;
        Ok(CommandProcess { child })
    }

    /// Starts the command without a window. It is suspended until its job object has it, so that the job has
    /// everything that it starts.
    #[cfg(windows)]
    pub(super) fn spawn(command: &mut Command, _: Option<&Sandbox>) -> io::Result<CommandProcess> {
        const SUSPENDED: u32 = 4;
        const NO_WINDOW: u32 = 0x0800_0000;
        let job = JobObject::new()?;
        let child = command.creation_flags(SUSPENDED | NO_WINDOW).spawn()?;
        let (Some(handle), Some(id)) = (child.raw_handle(), child.id()) else {
            return Err(io::Error::other("it has ended at once"));
        };
        job.adopt(handle, id)?;
        Ok(CommandProcess { child, job })
    }

    /// The number of the program's process.
    pub(super) fn id(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &self.namespace {
            return Some(namespace.program_id());
        }
        self.child.id()
    }

    /// Waits for the end of the program. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &mut self.namespace {
            return namespace.wait().await;
        }
        Ok(status)
    }

    /// Kills the program and everything that it has started.
    #[cfg(windows)]
    pub(super) fn kill_all(&self) {
        self.job.terminate();
    }

    #[cfg(windows)]
    pub(super) fn has_running_processes(&self) -> bool {
        self.job.running_processes() > 0
    }
}
