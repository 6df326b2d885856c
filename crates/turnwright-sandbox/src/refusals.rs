//! The refusals of a sandbox to its program: connections that failed because of it, and system calls. The program's
//! supervisor notes it in a pipe, and the process that has started the program reads it.

use std::io::{PipeReader, Read};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The length of a note in the pipe: the place of a system call in [`RefusedCall::ALL`], or another number and an
/// address, its host as one of IPv6, and its port.
const LENGTH: usize = 19;

/// Access that the sandbox has refused to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A connection that failed: nothing of the program's network listens at the address, or it may not connect to
    /// anything there.
    Connection(SocketAddr),
    /// A system call.
    Call(RefusedCall),
}

/// A kind of system call that the sandbox refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedCall {
    /// A socket for the network, if the program has none.
    NetworkSocket,
    /// A Unix socket for datagrams.
    DatagramSocket,
    /// A socket of another family, or for another part of the kernel.
    OtherSocket,
    /// Counting or recording events of the processor and the kernel.
    PerfEvents,
    /// Making a namespace, or entering one.
    Namespace,
    /// Mounting and unmounting.
    Mount,
    /// A mode with a set-user-ID or set-group-ID bit.
    SetIdMode,
    IoUring,
    /// The keyrings of the kernel.
    Keyring,
    Userfaultfd,
}

impl RefusedCall {
    const ALL: [RefusedCall; 10] = [
        RefusedCall::NetworkSocket,
        RefusedCall::DatagramSocket,
        RefusedCall::OtherSocket,
        RefusedCall::PerfEvents,
        RefusedCall::Namespace,
        RefusedCall::Mount,
        RefusedCall::SetIdMode,
        RefusedCall::IoUring,
        RefusedCall::Keyring,
        RefusedCall::Userfaultfd,
    ];
}

/// The end of a pipe in which refusals to a program are noted, while it runs. Not all are.
#[derive(Debug)]
pub struct Refusals(PipeReader);

impl Refusals {
    /// `notes` must not block.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(notes: PipeReader) -> Refusals {
        Refusals(notes)
    }

    /// The refusals, each returned once.
    pub fn take(&mut self) -> Vec<Refusal> {
        let mut all = Vec::new();
        let mut bytes = [0; LENGTH];
        while self.0.read_exact(&mut bytes).is_ok() {
            all.push(decode(bytes));
        }
        all
    }
}

/// The refusals that were noted already, at most so many that a pipe always holds them. Calls do not take the places of
/// connections.
#[cfg(target_os = "linux")]
#[derive(Default)]
pub(crate) struct NotedRefusals {
    connections: [Option<Refusal>; 16],
    calls: [Option<Refusal>; RefusedCall::ALL.len()],
}

#[cfg(target_os = "linux")]
impl NotedRefusals {
    /// Notes a refusal in the pipe, once. Makes only system calls.
    pub(crate) fn note(&mut self, refusal: Refusal, notes: &std::io::PipeWriter) {
        let noted = match refusal {
            Refusal::Connection(_) => &mut self.connections[..],
            Refusal::Call(_) => &mut self.calls[..],
        };
        if noted.contains(&Some(refusal)) {
            return;
        }
        let Some(free) = noted.iter_mut().find(|place| place.is_none()) else { return };
        *free = Some(refusal);
        // Without it, the user is told less.
        rustix::io::write(notes, &encode(refusal)).ok();
    }
}

/// The bytes of a refusal in the pipe.
#[cfg(target_os = "linux")]
fn encode(refusal: Refusal) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0] = u8::MAX;
    match refusal {
        Refusal::Call(call) => bytes[0] = call as u8,
        Refusal::Connection(address) => {
            let host = match address.ip() {
                IpAddr::V4(host) => host.to_ipv6_mapped(),
                IpAddr::V6(host) => host,
            };
            bytes[1..17].copy_from_slice(&host.octets());
            bytes[17..].copy_from_slice(&address.port().to_be_bytes());
        }
    }
    bytes
}

fn decode(bytes: [u8; LENGTH]) -> Refusal {
    let [place, host @ .., high, low] = bytes;
    if let Some(call) = RefusedCall::ALL.get(usize::from(place)) {
        return Refusal::Call(*call);
    }
    let port = u16::from_be_bytes([high, low]);
    Refusal::Connection(SocketAddr::new(IpAddr::from(host).to_canonical(), port))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_the_same_after_the_pipe() {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let addresses = ["127.0.0.1:80", "[2001:db8::1]:443", "0.0.0.0:53"];
        let connections = addresses.map(|address| Refusal::Connection(address.parse().unwrap()));
        let calls = RefusedCall::ALL.map(Refusal::Call);
        let all: Vec<_> = connections.into_iter().chain(calls).collect();
        let mut noted = NotedRefusals::default();
        for refusal in all.iter().chain(&all) {
            noted.note(*refusal, &writer);
        }
        let mut refusals = Refusals::new(reader);
        assert_eq!(refusals.take(), all);
        assert!(refusals.take().is_empty());
    }

    #[test]
    fn only_some_connections_are_noted_and_calls_all_the_same() {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut noted = NotedRefusals::default();
        for port in 1..100 {
            noted.note(Refusal::Connection(([127, 0, 0, 1], port).into()), &writer);
        }
        noted.note(Refusal::Call(RefusedCall::Mount), &writer);
        let taken = Refusals::new(reader).take();
        assert_eq!((taken.len(), taken.last()), (17, Some(&Refusal::Call(RefusedCall::Mount))));
    }
}
