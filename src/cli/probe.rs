//! `turnwright sandbox-probe`: what the proof of the sandbox tries and a shell cannot. Ends with 0 if
//! it has come through. For nobody else: it does no harm that a shell could not do.

use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(super) enum Probe {
    /// Come through, always
    Ready,
    /// Call a listener of this machine
    Internet { port: u16 },
    /// Send a datagram
    Datagram { port: u16 },
    /// Open a netlink socket
    Netlink,
    /// Call a listener by its abstract name
    Abstract { name: String },
    /// Empty a file by its name
    Truncate { path: std::path::PathBuf },
    /// Make a user namespace
    Namespace,
    /// Do nothing, for a while
    Wait,
}

pub(super) fn run(probe: &Probe) -> ExitCode {
    let came_through = match probe {
        Probe::Ready => true,
        // Who may open one has come through, whether or not somebody answers.
        Probe::Internet { port } => match TcpStream::connect((Ipv4Addr::LOCALHOST, *port)) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        },
        Probe::Datagram { port } => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|it| it.send_to(b"x", (Ipv4Addr::LOCALHOST, *port)))
            .is_ok(),
        Probe::Netlink => system::netlink(),
        Probe::Abstract { name } => system::call(name),
        Probe::Truncate { path } => system::truncate(path),
        Probe::Namespace => system::new_user(),
        Probe::Wait => {
            std::thread::sleep(std::time::Duration::from_secs(120));
            true
        }
    };
    if came_through { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{CString, c_char, c_int, c_long};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::path::Path;

    const AF_NETLINK: c_int = 16;
    const SOCK_RAW: c_int = 3;
    const CLONE_NEWUSER: c_int = 0x1000_0000;

    #[expect(unsafe_code, reason = "system calls that no crate of ours has")]
    mod calls {
        use super::{c_char, c_int, c_long};
        unsafe extern "C" {
            pub(super) safe fn socket(domain: c_int, sort: c_int, protocol: c_int) -> c_int;
            pub(super) safe fn unshare(flags: c_int) -> c_int;
            pub(super) fn truncate(path: *const c_char, length: c_long) -> c_int;
        }
    }

    pub(super) fn netlink() -> bool {
        calls::socket(AF_NETLINK, SOCK_RAW, 0) >= 0
    }

    pub(super) fn new_user() -> bool {
        calls::unshare(CLONE_NEWUSER) == 0
    }

    #[expect(unsafe_code, reason = "a system call that no crate of ours has")]
    pub(super) fn truncate(path: &Path) -> bool {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
        // SAFETY: the path ends with a zero byte and lives as long as the call.
        unsafe { calls::truncate(path.as_ptr(), 0) == 0 }
    }

    pub(super) fn call(name: &str) -> bool {
        let address = SocketAddr::from_abstract_name(name.as_bytes());
        address.and_then(|it| UnixStream::connect_addr(&it)).is_ok()
    }
}

/// Other systems have none of these.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::Path;

    pub(super) fn netlink() -> bool {
        false
    }

    pub(super) fn new_user() -> bool {
        false
    }

    pub(super) fn truncate(_: &Path) -> bool {
        false
    }

    pub(super) fn call(_: &str) -> bool {
        false
    }
}
