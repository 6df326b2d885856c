//! The sandbox on Linux: Landlock, seccomp and namespaces. Everything is prepared in the parent, so
//! that the child only makes system calls between `fork` and `exec`.

mod capabilities;
mod epoll_transfer;
mod landlock_ruleset;
mod mount_namespace;
mod mounts;
mod outside_connections;
mod private_layer;
mod private_tmp;
mod raw_devices;
mod real_path;
mod seccomp_filter;
mod session_network;
mod socket_address;
mod socket_supervisor;
mod supervised_call;
mod support;
mod syscalls;
mod unix_sockets;

#[cfg(test)]
mod hidden_tests;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod private_tmp_tests;
#[cfg(test)]
mod shared_memory_tests;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, pause, poll};
use rustix::mount::MountFlags;
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal, getpid, kill_process, pidfd_open};
use seccompiler::BpfProgram;

use super::{
    NamespaceProcesses, NamespaceSupport, Network, Refusals, SandboxProfile, SetupError,
    namespace_support, sandbox_support,
};
use landlock_ruleset::{allow_mounted, read_rights};
use mount_namespace::MountNamespace;
use outside_connections::OutsideConnections;
pub(super) use private_layer::publish_layer;
use private_tmp::TmpMounts;
use seccomp_filter::FilterKind;
pub use session_network::SessionNetwork;
use socket_supervisor::SocketSupervisor;
pub(super) use support::{can_layer_caches, probe, probe_namespaces};
use unix_sockets::OpenSockets;

/// A sandbox that is ready to be entered by a child process.
#[derive(Debug)]
pub struct LinuxSandbox {
    ruleset: OwnedFd,
    filter: &'static BpfProgram,
    may_debug: bool,
    /// The places where the profile lets the program connect to sockets.
    open_sockets: Vec<PathBuf>,
    network: Network,
    /// `None` if the program uses the network of the machine.
    session_network: Option<Arc<SessionNetwork>>,
    outside: OutsideConnections,
    mount_namespace: Option<MountNamespace>,
    process_namespace: Option<ProcessNamespace>,
    /// The child writes the index of the step that failed.
    failed_step: (PipeReader, PipeWriter),
}

/// A step of the setup in the child, and its name for error messages.
type SetupStep = (&'static str, fn(&LinuxSandbox) -> io::Result<()>);

/// The setup, in order.
const STEPS: &[SetupStep] = &[
    ("closing descriptors", |_| syscalls::set_close_on_exec()),
    ("disabling core dumps", |_| disable_core_dumps()),
    ("entering the mount namespace", LinuxSandbox::enter_mount_namespace),
    ("entering the PID namespace", LinuxSandbox::enter_process_namespace),
    // After the supervisor was started, which stays in the network of the machine.
    ("entering the network", LinuxSandbox::enter_network),
    ("dropping capabilities", |_| capabilities::drop_capabilities()),
    ("no_new_privs", |_| Ok(rustix::thread::set_no_new_privs(true)?)),
    ("Landlock", |sandbox| syscalls::restrict_self(sandbox.ruleset.as_fd())),
    // Last, because it denies the system calls of the other steps.
    ("seccomp", LinuxSandbox::install_filter),
];

impl LinuxSandbox {
    /// Prepares a sandbox for the profile, in the parent process. The program in it shares `session_network`, unless
    /// the profile gives it the network of the machine. Without a session's network, it shares a private network with
    /// nobody.
    ///
    /// # Errors
    /// When it cannot be built. The command must not be run then.
    pub fn prepare(
        profile: &SandboxProfile,
        session_network: Option<Arc<SessionNetwork>>,
    ) -> io::Result<Self> {
        Self::with_namespaces(profile, session_network, namespace_support())
            .map_err(|error| setup_error(&error.to_string()))
    }

    fn with_namespaces(
        profile: &SandboxProfile,
        session_network: Option<Arc<SessionNetwork>>,
        namespaces: NamespaceSupport,
    ) -> io::Result<Self> {
        if !super::can_confine() {
            return Err(io::Error::other(sandbox_support().missing.join(" ")));
        }
        let abi = sandbox_support().landlock_abi.unwrap_or_default();
        // Symlinks are resolved. A path that cannot be resolved cannot be read either.
        let real = profile.hidden.iter().filter_map(|path| real_path::real_path(path));
        let mut hidden: Vec<_> = real.filter(|path| path != Path::new("/dev/null")).collect();
        if !namespaces.mounts || !raw_devices::are_private(profile) {
            hidden.extend(raw_devices::find(profile));
        }
        let mut network = possible_network(profile.network, namespaces);
        let session_network = match session_network {
            _ if network == Network::On || !namespaces.network => None,
            None if network == Network::Internet => Some(SessionNetwork::create()?.into()),
            None => SessionNetwork::create().ok().map(Arc::new),
            shared => shared,
        };
        if session_network.is_none() && network == Network::Loopback {
            network = Network::Off;
        }
        let planned = namespaces
            .mounts
            .then(|| MountNamespace::plan(profile, &hidden, session_network.clone()));
        let mount_namespace = planned.transpose()?;
        // The ruleset has to hide them if there is no mount namespace.
        let hidden: &[PathBuf] = if mount_namespace.is_some() { &[] } else { &hidden };
        // Without a supervisor, nothing tells the sockets that are shown there from the program's own.
        let private_tmp = mount_namespace.as_ref().and_then(MountNamespace::private_tmp);
        let shows_sockets =
            !namespaces.supervision && private_tmp.is_some_and(TmpMounts::shows_read_only);
        let tmp = profile.private_tmp.as_ref().filter(|_| shows_sockets);
        let without_sockets = tmp.map(|tmp| tmp.folder.as_path());
        Ok(Self {
            ruleset: landlock_ruleset::build(profile, (hidden, without_sockets), abi)?,
            filter: seccomp_filter::program(FilterKind { network, ..FilterKind::default() })?,
            may_debug: profile.debug,
            open_sockets: profile.writable.iter().chain(&profile.sockets).cloned().collect(),
            network,
            outside: OutsideConnections::new(network, &profile.machine_addresses),
            session_network,
            mount_namespace,
            process_namespace: None,
            failed_step: io::pipe()?,
        })
    }

    /// Also gives the program a PID namespace, if this system has them
    /// ([`NamespaceSupport::processes`]). The process that calls [`enter`](Self::enter) then ends, with
    /// exit code 0, and a new child of the caller goes on: see [`processes`](Self::processes).
    ///
    /// # Errors
    /// When this process has too many open files.
    pub fn with_process_namespace(mut self) -> io::Result<Self> {
        let needs_supervisor = self.needs_supervisor();
        if let Some(namespace) = &mut self.mount_namespace
            && namespace_support().processes
        {
            let locks = namespace.isolate_processes();
            self.filter = seccomp_filter::program(FilterKind {
                network: self.network,
                has_own_processes: true,
                may_debug: self.may_debug,
                is_supervised: needs_supervisor,
            })?;
            let supervisor = if needs_supervisor {
                let mut partly_open = namespace.layered_caches();
                // Places of the machine's `/tmp` that are shown are read-only there.
                partly_open.extend(namespace.private_tmp().map(|_| PathBuf::from("/tmp")));
                let sockets = OpenSockets::new(
                    std::mem::take(&mut self.open_sockets),
                    partly_open,
                    self.session_network.is_some(),
                    self.network.reaches_other_machines(),
                );
                let outside = std::mem::take(&mut self.outside);
                Some(SocketSupervisor::new(sockets, outside)?)
            } else {
                None
            };
            self.process_namespace = Some(ProcessNamespace::new(locks, supervisor)?);
        }
        Ok(self)
    }

    /// Returns true if connections have to be looked at one by one, and can be.
    fn needs_supervisor(&self) -> bool {
        // In a private network, a program may be handed a socket by one that may reach more.
        let has_private_network = self.session_network.is_some();
        let tmp = self.mount_namespace.as_ref().and_then(MountNamespace::private_tmp);
        // Landlock's rule for the private `/tmp` covers what is mounted in it, too.
        let shows_sockets = tmp.is_some_and(TmpMounts::shows_read_only);
        let is_needed = has_private_network || shows_sockets || !can_landlock_close_sockets();
        namespace_support().supervision && is_needed
    }

    /// Returns true if the program gets a PID namespace.
    pub fn has_process_namespace(&self) -> bool {
        self.process_namespace.is_some()
    }

    /// The processes of the PID namespace, to be asked for once, when the program was started; `None`
    /// without such a namespace. Both are children of the calling process, which has to reap them.
    pub fn processes(&self) -> Option<NamespaceProcesses> {
        self.process_namespace.as_ref()?.processes()
    }

    /// The refusals of the sandbox to the program; `None` if nobody supervises it.
    pub fn refusals(&self) -> Option<Refusals> {
        let supervisor = self.process_namespace.as_ref()?.supervisor.as_ref()?;
        supervisor.refusals().map(Refusals::new).ok()
    }

    /// Confines the calling process, for good. It is made to be called in a child, between `fork`
    /// and `exec`: it makes system calls only and does not allocate.
    ///
    /// # Errors
    /// When a step fails. The command must not be run then.
    pub fn enter(&self) -> io::Result<()> {
        for (number, (_, step)) in (0_u8..).zip(STEPS) {
            if let Err(error) = step(self) {
                rustix::io::write(&self.failed_step.1, &[number]).ok();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Turns the error of a spawn into one that names the step of [`enter`](Self::enter) that
    /// failed. An error with another cause is returned unchanged.
    pub fn explain(&self, error: io::Error) -> io::Error {
        let mut number = [0];
        rustix::io::ioctl_fionbio(&self.failed_step.0, true).ok();
        let read = (&self.failed_step.0).read_exact(&mut number).ok();
        match read.and_then(|()| STEPS.get(usize::from(number[0]))) {
            Some((step, _)) => setup_error(&format!("{step}: {error}")),
            None => error,
        }
    }

    fn enter_process_namespace(&self) -> io::Result<()> {
        let Some(namespace) = &self.process_namespace else { return Ok(()) };
        namespace.enter()?;
        let is_required = namespace.supervisor.is_some();
        mount_proc(self.ruleset.as_fd(), is_required)
    }

    fn enter_network(&self) -> io::Result<()> {
        self.session_network.as_ref().map_or(Ok(()), |network| network.join())
    }

    fn install_filter(&self) -> io::Result<()> {
        match self.process_namespace.as_ref().and_then(|namespace| namespace.supervisor.as_ref()) {
            Some(supervisor) => supervisor.install_filter(self.filter),
            None => seccompiler::apply_filter(self.filter).map_err(|error| to_io_error(&error)),
        }
    }

    fn enter_mount_namespace(&self) -> io::Result<()> {
        let Some(namespace) = &self.mount_namespace else { return Ok(()) };
        namespace.enter(Some(self.ruleset.as_fd()))
    }
}

/// The name that `ps` shows for the first process.
const INIT_NAME: &CStr = c"turnwright-init";

/// A PID namespace for one program. Its first process waits, and makes the connections of the program if
/// there is a [`SocketSupervisor`]: when it is killed, the kernel kills all others, and no process can
/// leave. The kernel kills it when the caller dies.
///
/// `unshare` moves only later children into the namespace. So the process that enters the sandbox
/// starts two children, the first process and the program, and ends. Both are children of the caller,
/// because of `CLONE_PARENT`, so the caller learns how the program ends and when all others have.
#[derive(Debug)]
struct ProcessNamespace {
    /// The process that ends the namespace with its own end.
    caller: OwnedFd,
    /// The numbers of the two processes, written by the process that starts them.
    numbers: (PipeReader, PipeWriter),
    /// The last process number that was given in the PID namespace of the process that writes this file. The kernel need
    /// not have it, and containers may deny it.
    last_number: Option<File>,
    /// The descriptors that the first process keeps open, sorted.
    kept: Vec<RawFd>,
    supervisor: Option<SocketSupervisor>,
}

impl ProcessNamespace {
    /// The first process keeps the descriptors `locks` open.
    fn new(locks: Vec<RawFd>, supervisor: Option<SocketSupervisor>) -> io::Result<Self> {
        let caller = pidfd_open(getpid(), PidfdFlags::empty())?;
        let numbers = io::pipe()?;
        rustix::io::ioctl_fionbio(&numbers.0, true)?;
        let mut kept = locks;
        kept.extend(supervisor.iter().flat_map(SocketSupervisor::kept_descriptors));
        kept.sort_unstable();
        let last_number = File::options().write(true).open("/proc/sys/kernel/ns_last_pid").ok();
        Ok(ProcessNamespace { caller, numbers, last_number, kept, supervisor })
    }

    /// Starts the first process and a second one, in which this returns. The calling process ends.
    /// `unshare` must have been called before.
    fn enter(&self) -> io::Result<()> {
        // Until it has closed its descriptors, the first process must not run a handler of the caller.
        let mask = syscalls::block_all_signals()?;
        let Some(init) = syscalls::clone_sibling(None)? else { self.wait_for_ever() };
        // Programs name files after their number, and take one for running if it exists. So the numbers go on from one
        // that no other command begins with, and not from 2 in each namespace.
        match syscalls::clone_sibling(Some(init)) {
            Ok(None) => {
                if let Some(mut last_number) = self.last_number.as_ref() {
                    write!(last_number, "{}", init.as_raw_pid()).ok();
                }
                syscalls::set_signal_mask(&mask)
            }
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
    fn processes(&self) -> Option<NamespaceProcesses> {
        let mut numbers = [[0; size_of::<u32>()]; 2];
        (&self.numbers.0).read_exact(numbers.as_flattened_mut()).ok()?;
        let [init, program] = numbers.map(u32::from_ne_bytes);
        Some(NamespaceProcesses { init, program })
    }
}

/// Shows the processes of this namespace in `/proc`, and no others. Where a container covers parts of
/// `/proc`, the kernel refuses this, and the old view stays, unless it is required.
fn mount_proc(ruleset: BorrowedFd<'_>, is_required: bool) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None) {
        Err(_) if !is_required => return Ok(()),
        mounted => mounted?,
    }
    allow_mounted(ruleset, c"/proc", read_rights())
}

/// The network that the program gets instead, if this system cannot give it the one of its profile.
fn possible_network(wanted: Network, namespaces: NamespaceSupport) -> Network {
    match wanted {
        Network::Loopback if !namespaces.network => Network::Off,
        Network::Internet if !(namespaces.network && namespaces.supervision) => Network::On,
        other => other,
    }
}

fn can_landlock_close_sockets() -> bool {
    sandbox_support().landlock_abi.is_some_and(|abi| abi >= 9)
}

fn setup_error(why: &str) -> io::Error {
    io::Error::other(SetupError(why.trim_end_matches('.').to_owned()))
}

/// Core dumps are written by the kernel, outside of the sandbox.
fn disable_core_dumps() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    Ok(rustix::process::setrlimit(Resource::Core, none)?)
}

/// Converts without allocating, which is not allowed between `fork` and `exec`.
fn to_io_error(error: &seccompiler::Error) -> io::Error {
    use seccompiler::Error::{Prctl, Seccomp};
    let number = if let Prctl(why) | Seccomp(why) = error { why.raw_os_error() } else { None };
    io::Error::from_raw_os_error(number.unwrap_or(libc::EINVAL))
}
