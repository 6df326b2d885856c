//! The connections of a program that failed because of its sandbox. Its supervisor notes them in a pipe, and the process
//! that has started the program reads them.

use std::io::{PipeReader, Read};
use std::net::{IpAddr, SocketAddr};

/// The length of an address in the pipe: its host as one of IPv6, and its port.
const LENGTH: usize = 18;

/// The end of a pipe in which connections of a program are noted, while it runs. Not all are.
#[derive(Debug)]
pub struct RefusedConnections(PipeReader);

impl RefusedConnections {
    /// `notes` must not block.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(notes: PipeReader) -> RefusedConnections {
        RefusedConnections(notes)
    }

    /// The addresses, each returned once: nothing of the program's network listens there, or it may not connect to
    /// anything there.
    pub fn take(&mut self) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        let mut bytes = [0; LENGTH];
        while self.0.read_exact(&mut bytes).is_ok() {
            all.push(decode(bytes));
        }
        all
    }
}

/// The addresses that were noted already, at most so many that a pipe always holds them.
#[cfg(target_os = "linux")]
pub(crate) type NotedConnections = [Option<SocketAddr>; 16];

/// Notes an address in the pipe, once. Makes only system calls.
#[cfg(target_os = "linux")]
pub(crate) fn note_refused(
    address: SocketAddr,
    notes: &std::io::PipeWriter,
    noted: &mut NotedConnections,
) {
    if noted.contains(&Some(address)) {
        return;
    }
    let Some(free) = noted.iter_mut().find(|place| place.is_none()) else { return };
    *free = Some(address);
    // Without it, the user is told less.
    rustix::io::write(notes, &encode(address)).ok();
}

/// The bytes of an address in the pipe.
#[cfg(target_os = "linux")]
fn encode(address: SocketAddr) -> [u8; LENGTH] {
    let host = match address.ip() {
        IpAddr::V4(host) => host.to_ipv6_mapped(),
        IpAddr::V6(host) => host,
    };
    let mut bytes = [0; LENGTH];
    bytes[..16].copy_from_slice(&host.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

fn decode(bytes: [u8; LENGTH]) -> SocketAddr {
    let [host @ .., high, low] = bytes;
    let host: [u8; 16] = host;
    SocketAddr::new(IpAddr::from(host).to_canonical(), u16::from_be_bytes([high, low]))
}
