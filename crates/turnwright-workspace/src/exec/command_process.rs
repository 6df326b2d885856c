//! The process that runs a command.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use turnwright_sandbox::Sandbox;

#[cfg(target_os = "linux")]
use super::command_namespace::CommandNamespace;
#[cfg(target_os = "linux")]
use super::descendants::{self, StartedChildren};

/// A started command.
#[derive(Debug)]
pub(super) struct CommandProcess {
    /// The process that was spawned. With a namespace it has only started the program, and ends.
    child: Child,
    #[cfg(target_os = "linux")]
    namespace: Option<CommandNamespace>,
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
            let child = command.spawn();
            let child = child.map_err(|error| match sandbox {
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

    #[cfg(not(target_os = "linux"))]
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

    #[cfg(target_os = "linux")]
    pub(super) fn namespace(&self) -> Option<&CommandNamespace> {
        self.namespace.as_ref()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn namespace_mut(&mut self) -> Option<&mut CommandNamespace> {
        self.namespace.as_mut()
    }

    /// Kills the program, but nothing that it has started.
    #[cfg(windows)]
    pub(super) fn start_kill(&mut self) {
        drop(self.child.start_kill());
    }

    pub(super) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(super) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }
}
