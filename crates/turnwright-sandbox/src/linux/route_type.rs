//! Asks the kernel's routing tables if packets to an address leave the machine. Comparing addresses is not enough,
//! since a machine may have many on one interface, or whole networks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::syscalls;

/// The header of a message, the header of a route, and an attribute with an address (`man 7 rtnetlink`).
const REQUEST_BYTES: usize = 16 + 12 + 4 + 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// The offsets of the type of a message, the type of a route, and the number of an error.
const MESSAGE_TYPE: usize = 4;
const ROUTE_TYPE: usize = 16 + 7;
const ERROR: usize = 16;

/// Returns true if packets to an address stay on this machine, or reach all machines of a network. Makes system calls
/// only.
pub(super) fn is_of_machine(address: IpAddr) -> bool {
    match route_type(address) {
        Ok(route) => route.is_some_and(|route| route != libc::RTN_UNICAST),
        // Where the tables cannot be asked, as in gVisor, only an address of the machine can be bound to.
        Err(_) => can_bind(address).unwrap_or(true),
    }
}

/// The type of the route to an address; `None` if there is no route.
fn route_type(address: IpAddr) -> io::Result<Option<u8>> {
    let socket = syscalls::open_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut buffer = [0; REQUEST_BYTES];
    let request = request(address, &mut buffer);
    syscalls::send_to(socket.as_fd(), request, 0, &[])?;
    let mut answer = [0; 1024];
    // The kernel has answered by now.
    let received = syscalls::receive(socket.as_fd(), &mut answer)?;
    let kind = received.get(MESSAGE_TYPE..MESSAGE_TYPE + 2).ok_or_else(unclear)?;
    match u16::from_ne_bytes([kind[0], kind[1]]) {
        libc::RTM_NEWROUTE => received.get(ROUTE_TYPE).copied().map(Some).ok_or_else(unclear),
        NLMSG_ERROR => {
            let number = received.get(ERROR..).and_then(<[u8]>::first_chunk).ok_or_else(unclear)?;
            match -i32::from_ne_bytes(*number) {
                libc::ENETUNREACH | libc::EHOSTUNREACH => Ok(None),
                number => Err(io::Error::from_raw_os_error(number)),
            }
        }
        _ => Err(unclear()),
    }
}

fn unclear() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn request(address: IpAddr, buffer: &mut [u8; REQUEST_BYTES]) -> &[u8] {
    let (family, length) = match address {
        IpAddr::V4(_) => (AF_INET, 4),
        IpAddr::V6(_) => (AF_INET6, 16),
    };
    let total = 16 + 12 + 4 + length;
    buffer[0] = total;
    buffer[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    buffer[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    buffer[16] = family;
    // The bits of the prefix.
    buffer[17] = length * 8;
    buffer[28..30].copy_from_slice(&u16::from(4 + length).to_ne_bytes());
    buffer[30..32].copy_from_slice(&libc::RTA_DST.to_ne_bytes());
    match address {
        IpAddr::V4(address) => buffer[32..36].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => buffer[32..48].copy_from_slice(&address.octets()),
    }
    &buffer[..usize::from(total)]
}

fn can_bind(address: IpAddr) -> io::Result<bool> {
    let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = syscalls::open_socket(domain, libc::SOCK_DGRAM, 0)?;
    let mut buffer = [0; syscalls::MAX_ADDRESS];
    let bytes = syscalls::address_bytes(SocketAddr::new(address, 0), &mut buffer);
    match syscalls::bind(socket.as_fd(), bytes) {
        Err(error) if syscalls::is_errno(&error, &[libc::EADDRNOTAVAIL]) => Ok(false),
        bound => bound.map(|()| true),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test runs itself in another network")]
mod tests {
    use std::process::Command;

    use super::super::outside_connections::{Destination, OutsideConnections};
    use super::*;
    use crate::Network;

    /// Addresses of the machine, and whole networks of it.
    const SETUP: &str = "ip link set lo up && ip addr add 10.9.9.1/24 dev lo && ip addr add 10.9.9.2/24 dev lo && \
        ip addr add fd01::1/64 dev lo nodad && ip addr add fd01::2/64 dev lo nodad && \
        ip addr add 2002:808:808:1::50/64 dev lo nodad && ip addr add 64:ff9b::808:808/128 dev lo nodad && \
        ip route replace local 10.77.0.0/16 dev lo && ip route replace local 10.78.0.0/16 dev lo src 10.9.9.1 && \
        ip route replace broadcast 10.9.9.255 dev lo && ip route replace blackhole 10.79.0.0/16 && \
        ip route replace 10.80.0.0/16 dev lo && exec \"$0\" --nocapture \"$1\"";
    const NAME: &str = "packets_to_all_addresses_of_the_machine_stay_there";

    #[test]
    fn packets_to_all_addresses_of_the_machine_stay_there() {
        let is_in_network = can_bind("10.78.0.5".parse().unwrap()).unwrap_or(false);
        if !is_in_network {
            let tests = std::env::current_exe().unwrap();
            let own = ["-Urn", "sh", "-c", SETUP];
            let mut command = Command::new("unshare");
            command.args(own).arg(tests).arg(NAME);
            match command.output() {
                Ok(output) if String::from_utf8_lossy(&output.stderr).contains("COMPARED") => {
                    assert!(output.status.success(), "{output:?}");
                }
                other => eprintln!("NOT TESTED: {other:?}"),
            }
            return;
        }
        eprintln!("COMPARED");
        for (address, is_own) in [
            ("10.9.9.1", true),
            ("10.9.9.2", true),
            ("10.9.9.255", true),
            ("10.77.0.5", true),
            ("10.78.0.5", true),
            ("127.0.0.2", true),
            ("fd01::1", true),
            ("fd01::2", true),
            ("2002:808:808:1::50", true),
            ("64:ff9b::808:808", true),
            ("10.79.0.5", false),
            ("10.80.0.5", false),
            ("8.8.8.8", false),
            ("2606:4700::1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(is_of_machine(address), is_own, "{address}");
        }
        // Their forms as IPv4 addresses are outside.
        let outside = OutsideConnections::new(Network::Internet, &[]);
        for (address, expected) in [
            ("[2002:808:808:1::50]:80", Destination::Refused),
            ("[64:ff9b::808:808]:80", Destination::Refused),
            ("[2002:808:808:2::50]:80", Destination::Outside),
            ("[64:ff9b::808:809]:80", Destination::Outside),
            ("[::ffff:8.8.8.8]:80", Destination::Outside),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(outside.destination(address), expected, "{address}");
        }
    }

    #[test]
    fn an_address_of_the_machine_can_be_bound_to() {
        assert_eq!(can_bind("127.0.0.1".parse().unwrap()).ok(), Some(true));
        assert_eq!(can_bind("192.0.2.1".parse().unwrap()).ok(), Some(false));
    }
}
