//! The PID namespace of a command. All that the command starts is in there, and ends with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use turnwright_sandbox::NamespaceProcesses;

use super::descendants;

/// How long killed processes may take to end. One that waits for a device may take for ever.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A namespace. Dropping it kills everything in it.
#[derive(Debug)]
pub(super) struct CommandNamespace {
    /// `None` once it is killed.
    init: Option<NamespaceProcess>,
    program: NamespaceProcess,
}

/// A child of this process.
#[derive(Debug)]
struct NamespaceProcess {
    id: Pid,
    /// Readable when the process has ended.
    handle: AsyncFd<OwnedFd>,
    /// Set once it is reaped.
    status: Option<ExitStatus>,
}

impl NamespaceProcess {
    #[expect(unsafe_code, reason = "registers a descriptor with the runtime")]
    fn open(id: Pid) -> io::Result<NamespaceProcess> {
        let pidfd = pidfd_open(id, PidfdFlags::empty())?;
        // SAFETY: an owned descriptor that is neither replaced nor closed while it is registered.
        let handle = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        Ok(NamespaceProcess { id, handle, status: None })
    }

    /// Waits for its end and reaps it. Cancel safe.
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            let mut ended = self.handle.readable().await?;
            match waitpid(Some(self.id), WaitOptions::NOHANG)? {
                Some((_, status)) => self.status = Some(ExitStatus::from_raw(status.as_raw())),
                None => ended.clear_ready(),
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.status.is_some() || descendants::is_zombie(self.id)
    }
}

impl CommandNamespace {
    /// Opens the namespace of a command that was just started. If that fails, the command is killed.
    pub(super) fn open(processes: NamespaceProcesses) -> io::Result<CommandNamespace> {
        let (Some(init_id), Some(program_id)) = (pid(processes.init), pid(processes.program))
        else {
            return Err(io::Error::other("a process number is out of range"));
        };
        let opened = NamespaceProcess::open(init_id).and_then(|init| {
            let program = NamespaceProcess::open(program_id)?;
            Ok(CommandNamespace { init: Some(init), program })
        });
        opened.inspect_err(|_| {
            kill_process(init_id, Signal::KILL).ok();
        })
    }

    pub(super) fn program_id(&self) -> u32 {
        self.program.id.as_raw_pid().cast_unsigned()
    }

    /// Those of the two processes that are children of this one.
    pub(super) fn children(&self) -> impl Iterator<Item = Pid> {
        let both = self.init.iter().chain([&self.program]);
        both.filter(|process| process.status.is_none()).map(|process| process.id)
    }

    /// Waits for the end of the program. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.program.wait().await
    }

    /// The children of the first process and of the program, zombies included. All other processes are among or
    /// below them: an orphan becomes a child of the first process.
    fn others(&self) -> Vec<Pid> {
        self.children().flat_map(descendants::of).collect()
    }

    /// A look, for a blocking thread, at whether a process of the group is running.
    pub(super) fn group_check(&self, group: Pid) -> impl FnOnce() -> bool + Send + 'static {
        let children = self.children().collect();
        move || {
            let mut all = descendants::with_descendants(children);
            all.any(|process| descendants::is_running_member(process, group))
        }
    }

    /// Returns true if the program has ended and nothing else is running.
    pub(super) fn has_ended(&self) -> bool {
        self.program.has_ended() && !is_any_running(&self.others())
    }

    /// Kills everything in the namespace and waits for the end of what has run in it. Returns whether
    /// anything was running besides the program.
    pub(super) async fn kill(&mut self) -> bool {
        let others = self.others();
        let had_others = is_any_running(&others);
        self.kill_init();
        let Some(mut init) = self.init.take() else { return had_others };
        // If it was alone, nothing depends on its end: it is reaped while the agent goes on. Of processes that start
        // the next one and end, one at least is seen, though it may have ended meanwhile.
        if !others.is_empty() || self.program.status.is_none() {
            // The first process ends last: when all others are reaped, and this reaps the program.
            let end = async {
                self.program.wait().await.ok();
                init.wait().await.ok();
            };
            tokio::time::timeout(END_TIMEOUT, end).await.ok();
        }
        if init.status.is_none() {
            leave(init.id);
        }
        had_others
    }

    fn kill_init(&self) {
        if let Some(init) = &self.init {
            pidfd_send_signal(init.handle.get_ref(), Signal::KILL).ok();
        }
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn is_any_running(processes: &[Pid]) -> bool {
    processes.iter().any(|process| !descendants::is_zombie(*process))
}

/// Has a killed child reaped when it ends.
fn leave(child: Pid) {
    descendants::abandon(child);
    // Without a runtime it is reaped before the next command.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        let Ok(process) = NamespaceProcess::open(child) else { return };
        if process.handle.readable().await.is_ok() {
            descendants::reap_abandoned();
        }
    });
}

impl Drop for CommandNamespace {
    fn drop(&mut self) {
        self.kill_init();
        // The first process ends when the program was reaped.
        self.children().for_each(leave);
    }
}
