//! A PID namespace for one program. Its first process waits, and makes the connections of the program if
//! there is a [`SocketSupervisor`]: when it is killed, the kernel kills all others, and no process can
//! leave. The kernel kills it when the caller dies.
//!
//! `unshare` moves only later children into the namespace. So the process that enters the sandbox
//! starts two children, the first process and the program, and ends. Both are children of the caller,
//! because of `CLONE_PARENT`, so the caller learns how the program ends and when all others have.

use std::ffi::CStr;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, pause, poll};
use rustix::mount::MountFlags;
use rustix::process::{PidfdFlags, Signal, getpid, kill_process, pidfd_open};

use super::super::NamespaceProcesses;
use super::landlock_ruleset::{allow_mounted, read_rights};
use super::socket_supervisor::SocketSupervisor;
use super::syscalls;

/// The name that `ps` shows for the first process.
const INIT_NAME: &CStr = c"turnwright-init";

/// A namespace to be entered.
#[derive(Debug)]
pub(super) struct ProcessNamespace {
    /// The process that ends the namespace with its own end.
    caller: OwnedFd,
    /// The numbers of the two processes, written by the process that starts them.
    numbers: (PipeReader, PipeWriter),
    /// The descriptors that the first process keeps open, sorted.
    kept: Vec<RawFd>,
    supervisor: Option<SocketSupervisor>,
}

impl ProcessNamespace {
    /// The first process keeps the descriptors `locks` open.
    pub(super) fn new(
        locks: Vec<RawFd>,
        supervisor: Option<SocketSupervisor>,
    ) -> io::Result<ProcessNamespace> {
        let caller = pidfd_open(getpid(), PidfdFlags::empty())?;
        let numbers = io::pipe()?;
        rustix::io::ioctl_fionbio(&numbers.0, true)?;
        let mut kept = locks;
        kept.extend(supervisor.iter().flat_map(SocketSupervisor::kept_descriptors));
        kept.sort_unstable();
        Ok(ProcessNamespace { caller, numbers, kept, supervisor })
    }

    pub(super) fn supervisor(&self) -> Option<&SocketSupervisor> {
        self.supervisor.as_ref()
    }

    /// Starts the first process and a second one, in which this returns. The calling process ends.
    /// `unshare` must have been called before.
    pub(super) fn enter(&self) -> io::Result<()> {
        // Until it has closed its descriptors, the first process must not run a handler of the caller.
        let mask = syscalls::block_all_signals()?;
        let Some(init) = syscalls::clone_sibling()? else { self.wait_for_ever() };
        match syscalls::clone_sibling() {
            Ok(None) => syscalls::set_signal_mask(&mask),
            Ok(Some(program)) => {
                let numbers = [init, program].map(|process| process.as_raw_pid().to_ne_bytes());
                rustix::io::write(&self.numbers.1, numbers.as_flattened()).ok();
                syscalls::exit_now(0)
            }
            Err(error) => {
                kill_process(init, Signal::KILL).ok();
                Err(error)
            }
        }
    }

    /// Runs the first process. It inherits no confinement, but it executes nothing either.
    fn wait_for_ever(&self) -> ! {
        let supervised = self.prepare_to_wait().and_then(|()| match &self.supervisor {
            Some(supervisor) => supervisor.supervise(),
            None => Ok(()),
        });
        if supervised.is_err() {
            syscalls::exit_now(1);
        }
        loop {
            pause();
        }
    }

    fn prepare_to_wait(&self) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The caller may have died before the call.
        let mut caller = [PollFd::new(&self.caller, PollFlags::IN)];
        if poll(&mut caller, Some(&Timespec::default()))? > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Orphans vanish when they end.
        syscalls::ignore_ended_children()?;
        rustix::thread::set_name(INIT_NAME)?;
        syscalls::close_all_but(&self.kept)
    }

    /// The processes, once the program was started.
    pub(super) fn processes(&self) -> Option<NamespaceProcesses> {
        let mut numbers = [[0; size_of::<u32>()]; 2];
        (&self.numbers.0).read_exact(numbers.as_flattened_mut()).ok()?;
        let [init, program] = numbers.map(u32::from_ne_bytes);
        Some(NamespaceProcesses { init, program })
    }
}

/// Shows the processes of this namespace in `/proc`, and no others. Where a container covers parts of
/// `/proc`, the kernel refuses this, and the old view stays, unless it is required.
pub(super) fn mount_proc(ruleset: BorrowedFd<'_>, is_required: bool) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None) {
        Err(_) if !is_required => return Ok(()),
        mounted => mounted?,
    }
    allow_mounted(ruleset, c"/proc", read_rights())
}
