//! `turnwright sandbox -- PROGRAM …`: runs a command in the agent's sandbox. And the launcher that an agent has started
//! in a terminal of the editor.
//!
//! `turnwright sandbox-probe`: the escape attempts of the sandbox check that a shell cannot make. Exits
//! with 0 if the attempt succeeded. Hidden; it can do nothing that a shell could not do as well.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Subcommand};

use super::CliError;
use turnwright_config::Config;
use turnwright_sandbox::Network;
use turnwright_terminal::run_in_sandbox;
use turnwright_workspace::exec::SOCKET_VARIABLE;

/// The exit status if the command could not be started.
const NOT_STARTED: u8 = 125;

#[derive(Debug, Args)]
pub(super) struct SandboxCliArgs {
    /// Allow writing only to the temporary folder
    #[arg(long)]
    read_only: bool,
    /// Allow network access
    #[arg(long)]
    network: bool,
    /// Allow writing to this file or folder too (repeatable)
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(args: SandboxCliArgs, config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    let network = if args.network { Network::Internet } else { Network::Loopback };
    let status = run_in_sandbox(args.program, &args.write, args.read_only, network, config);
    super::exit_code("sandbox", status.map(ExitCode::from).map_err(CliError::from), NOT_STARTED)
}

/// True if an agent has had this process started. Its arguments must not be parsed then.
pub(super) fn is_launcher() -> bool {
    turnwright_config::own_variable(SOCKET_VARIABLE).is_some()
}

pub(super) fn run_for_agent(config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    turnwright_terminal::run_for_agent(config)
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SandboxProbe {
    /// Always succeed
    Ready,
    /// Connect to a local TCP listener
    Internet { port: u16 },
    /// Send a datagram
    Datagram { port: u16 },
    /// Open a netlink socket to learn of devices
    Netlink,
    /// Connect to an abstract Unix socket
    Abstract { name: String },
    /// Connect to a Unix socket
    Socket { path: PathBuf },
    /// Send a datagram to a Unix socket, from one of a pair or another one
    UnixDatagram { path: PathBuf },
    /// Give a process the priority that it has
    Priority { pid: i32 },
    /// Change the priority of all processes of a user who has none
    UserPriority,
    /// Truncate a file by its path
    Truncate { path: PathBuf },
    /// Create a user namespace
    Namespace,
    /// Start the next process of a chain in a process group of its own, with the same stdin, and end
    Respawn {
        /// How many processes follow
        count: u32,
        /// The file to lock and to use as stdin
        lock: Option<PathBuf>,
    },
    /// Sleep
    Wait,
}

pub(in crate::cli) fn run_probe(probe: &SandboxProbe) -> ExitCode {
    let succeeded = match probe {
        SandboxProbe::Ready => true,
        SandboxProbe::Internet { port } => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok(),
        SandboxProbe::Datagram { port } => send_datagrams(*port).is_ok(),
        #[cfg(target_os = "linux")]
        SandboxProbe::Netlink => system::netlink(),
        #[cfg(target_os = "linux")]
        SandboxProbe::Abstract { name } => system::connect_abstract(name),
        SandboxProbe::Socket { path } => UnixStream::connect(path).is_ok(),
        SandboxProbe::UnixDatagram { path } => send_datagram(path),
        #[cfg(target_os = "linux")]
        SandboxProbe::Priority { pid } => system::set_priority(*pid),
        #[cfg(target_os = "linux")]
        SandboxProbe::UserPriority => system::set_user_priority(),
        #[cfg(target_os = "linux")]
        SandboxProbe::Truncate { path } => system::truncate(path),
        #[cfg(target_os = "linux")]
        SandboxProbe::Namespace => system::create_user_namespace(),
        SandboxProbe::Respawn { count, lock } => respawn(*count, lock.as_deref()).is_ok(),
        SandboxProbe::Wait => {
            std::thread::sleep(std::time::Duration::from_secs(120));
            true
        }
        // The other attempts are specific to Linux.
        #[cfg(not(target_os = "linux"))]
        _ => false,
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sends to a port of this machine. If nothing of this network listens there, the second datagram says so.
fn send_datagrams(port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.send(b"x")?;
    socket.send(b"x").map(drop)
}

fn send_datagram(socket: &Path) -> bool {
    let sends = |sender: UnixDatagram| sender.send_to(b"x", socket).is_ok();
    UnixDatagram::unbound().is_ok_and(sends) || UnixDatagram::pair().is_ok_and(|pair| sends(pair.0))
}

#[expect(clippy::disallowed_methods, reason = "this runs our own program, in the sandbox")]
fn respawn(count: u32, lock: Option<&Path>) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let Some(next) = count.checked_sub(1) else { return Ok(()) };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["sandbox-probe", "respawn", &next.to_string()]).process_group(0);
    command.stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(lock) = lock {
        let lock = std::fs::OpenOptions::new().create(true).append(true).open(lock)?;
        turnwright_types::private_file::lock_now(&lock)?;
        command.stdin(lock);
    }
    command.spawn().map(drop)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "system calls that have no safe form here")]
mod system {
    use std::ffi::CString;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::path::Path;

    use rustix::process::{Pid, Uid};

    pub(super) fn netlink() -> bool {
        // SAFETY: the call takes only numbers.
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT) >= 0 }
    }

    pub(super) fn create_user_namespace() -> bool {
        // SAFETY: the call takes only a number.
        unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 }
    }

    pub(super) fn set_priority(pid: i32) -> bool {
        let process = Pid::from_raw(pid);
        let priority = rustix::process::getpriority_process(process);
        priority.and_then(|current| rustix::process::setpriority_process(process, current)).is_ok()
    }

    pub(super) fn set_user_priority() -> bool {
        const NOBODY: u32 = u32::MAX - 1;
        // That there are no such processes is said only by a system that allows the call.
        let result = rustix::process::setpriority_user(Uid::from_raw(NOBODY), 0);
        matches!(result, Ok(()) | Err(rustix::io::Errno::SRCH))
    }

    pub(super) fn truncate(path: &Path) -> bool {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
        // SAFETY: the path ends with a zero byte and lives as long as the call.
        unsafe { libc::truncate(path.as_ptr(), 0) == 0 }
    }

    pub(super) fn connect_abstract(name: &str) -> bool {
        let address = SocketAddr::from_abstract_name(name.as_bytes());
        address.and_then(|address| UnixStream::connect_addr(&address)).is_ok()
    }
}
