//! Connections of a program to addresses outside of its private network. Where they are allowed, the supervisor makes
//! them with a socket of the machine's network, which takes the place of the program's.
//!
//! * The machine itself is not outside: its loopback, all addresses that it has, whatever listens there, and what is
//!   only valid on one of its links, such as the metadata address of clouds. Only addresses that the profile names
//!   are reached there: nameservers, proxies, and what the user was asked about.
//! * Addresses that IPv6 has for IPv4 addresses count as those, too: a gateway may turn them back. The route is that of
//!   the IPv6 address, unless the kernel itself makes the IPv4 one of it.
//! * Comparing addresses is not enough, since a machine may have many on one interface, or whole networks: the kernel's
//!   routing tables are asked if packets to an address leave the machine.
//! * A socket for datagrams is always connected, so it receives from that address only. It could still send to others
//!   with `sendmsg`, whose address is behind pointers: to look at each would make all sockets slow.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::syscalls::{self, SocketOption};
use crate::Network;

/// The services that clouds and overlay networks offer on their machines, besides those at link-local addresses and
/// below Amazon's `fd00:ec2::/32`.
const CLOUD_SERVICES: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 100)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x53)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses that a private network has besides loopback: resolvers look up names only for families with such an
/// address. The first is the dummy address of RFC 7600.
pub(super) const PRIVATE_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
pub(super) const PRIVATE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x7477, 0, 0, 0, 0, 0, 8);
const PRIVATE_ADDRESSES: [IpAddr; 2] = [IpAddr::V4(PRIVATE_IPV4), IpAddr::V6(PRIVATE_IPV6)];

/// The options that a program may have set before it connects.
const COPIED_OPTIONS: &[SocketOption] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
];
/// The `libc` crate does not have it yet.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The port of nameservers.
const NAMESERVER_PORT: u16 = 53;

/// The addresses that a program in a private network reaches outside of it; by default none.
#[derive(Debug, Default)]
pub(super) struct OutsideConnections {
    has_internet: bool,
    /// The addresses of this machine that are reached all the same.
    named: Vec<SocketAddr>,
}

/// Where an address lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// In the network of the program's socket.
    OwnNetwork,
    /// Outside, and the program may connect to it.
    Outside,
    /// Outside, and the program may not connect to it.
    Refused,
}

impl OutsideConnections {
    /// `named` are the addresses of the profile. Reads the list of nameservers.
    pub(super) fn new(network: Network, named: &[SocketAddr]) -> OutsideConnections {
        let has_internet = network == Network::Internet;
        let list = has_internet.then(|| fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        let nameservers = list.as_deref().map(nameservers).unwrap_or_default();
        OutsideConnections { has_internet, named: [named, &nameservers].concat() }
    }

    /// Returns true if the program may send datagrams to addresses outside, and receive them.
    pub(super) fn has_datagrams(&self) -> bool {
        // `sendmsg` could send them to any other address.
        self.has_internet
    }

    pub(super) fn is_named(&self, address: SocketAddr) -> bool {
        let host = address.ip().to_canonical();
        self.named
            .iter()
            .any(|named| named.port() == address.port() && named.ip().to_canonical() == host)
    }

    /// Returns true if this address is out of reach only because of the sandbox: it lies outside, or a server of the
    /// machine may listen there.
    pub(super) fn is_out_of_reach(&self, address: SocketAddr, error: i32) -> bool {
        let host = canonical(address.ip());
        if host.is_loopback() || host.is_unspecified() {
            let is_lookup = address.port() == NAMESERVER_PORT && !self.has_internet;
            return error == libc::ECONNREFUSED || is_lookup;
        }
        [libc::EACCES, libc::ENETUNREACH].contains(&error)
            && (error == libc::EACCES || !self.has_internet)
    }

    /// Where an address lies. Makes only system calls.
    pub(super) fn destination(&self, address: SocketAddr) -> Destination {
        let host = canonical(address.ip());
        if self.is_named(address) {
            return Destination::Outside;
        }
        let is_private = host.is_loopback() || host.is_unspecified();
        if !self.has_internet || is_private || PRIVATE_ADDRESSES.contains(&host) {
            return Destination::OwnNetwork;
        }
        // The kernel connects to this one.
        let target = address.ip().to_canonical();
        let is_refused = is_near(host) || target != host && is_near(target);
        if is_refused { Destination::Refused } else { Destination::Outside }
    }
}

/// Returns true if a socket is one for connections, or for a look-up of a name.
pub(super) fn is_worth_noting(socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
    let kind = syscalls::socket_option(socket, libc::SO_TYPE);
    let is_stream = kind.is_ok_and(|kind| kind == libc::SOCK_STREAM);
    address.port() == NAMESERVER_PORT || is_stream && address.port() > 0
}

/// Returns true if a connection has ended. Its error is not consumed.
pub(super) fn is_closed(socket: BorrowedFd<'_>) -> bool {
    const CLOSED: u8 = 7;
    let mut state = [0];
    let option = (libc::IPPROTO_TCP, libc::TCP_INFO);
    syscalls::get_option(socket, option, &mut state).is_ok() && state == [CLOSED]
}

/// The time that a socket waits when it connects; `None` if it waits for ever.
pub(super) fn connect_timeout(socket: BorrowedFd<'_>) -> Option<Duration> {
    let mut value = [0; size_of::<libc::timeval>()];
    syscalls::get_option(socket, (libc::SOL_SOCKET, libc::SO_SNDTIMEO), &mut value).ok()?;
    let (seconds, microseconds) = value.split_first_chunk()?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let microseconds = u64::try_from(i64::from_ne_bytes(microseconds.try_into().ok()?)).ok()?;
    let timeout = Duration::from_secs(seconds) + Duration::from_micros(microseconds);
    (!timeout.is_zero()).then_some(timeout)
}

/// Returns true if an address is of the machine, of one of its links, or of its cloud.
fn is_near(address: IpAddr) -> bool {
    is_of_link(address) || is_of_cloud(address) || is_of_machine(address)
}

/// An IPv4 address if this is an IPv6 form of one, otherwise the same address.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(address) = address else { return address };
    let (high, low) = match address.segments() {
        // Mapped, compatible, NAT64 and 6to4. The compatible form of 0.0.0.1 is the loopback address.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => (high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high > 0 => (high, low),
        _ => return IpAddr::V6(address),
    };
    IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

/// Returns true if an address is valid on one of the machine's links only, or stands for several hosts.
fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_link_local() || address.is_multicast() || address.is_broadcast()
        }
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

/// Returns true if the cloud or the overlay network offers a service of this machine there.
fn is_of_cloud(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) if address.segments().starts_with(&[0xfd00, 0xec2]) => true,
        address => CLOUD_SERVICES.contains(&address),
    }
}

/// The number of the network that a socket belongs to.
pub(super) fn network_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = [0; size_of::<u64>()];
    syscalls::get_option(socket, (libc::SOL_SOCKET, SO_NETNS_COOKIE), &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// The number of the network of this process.
pub(super) fn own_network() -> io::Result<u64> {
    network_of(syscalls::open_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?.as_fd())
}

/// A socket of this process's network that is like this one.
pub(super) fn open_similar(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let domain = syscalls::socket_option(socket, libc::SO_DOMAIN)?;
    if ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
        return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
    }
    let protocol = match syscalls::socket_option(socket, libc::SO_PROTOCOL)? {
        libc::IPPROTO_MPTCP => libc::IPPROTO_TCP,
        protocol => protocol,
    };
    let known = [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
    if !known.contains(&protocol) {
        return Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
    }
    let kind = syscalls::socket_option(socket, libc::SO_TYPE)?;
    let similar = syscalls::open_socket(domain, kind, protocol)?;
    for name in COPIED_OPTIONS {
        let mut value = [0; 16];
        // Not every socket has every option.
        if let Ok(value) = syscalls::get_option(socket, *name, &mut value) {
            syscalls::set_option(similar.as_fd(), *name, value).ok();
        }
    }
    let flags = rustix::fs::fcntl_getfl(socket)?;
    rustix::fs::fcntl_setfl(&similar, flags)?;
    Ok(similar)
}

/// The addresses of the nameservers in the text of `resolv.conf`.
fn nameservers(list: &str) -> Vec<SocketAddr> {
    let addresses = list.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let value = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        let without_scope = value.split('%').next()?;
        Some(SocketAddr::new(without_scope.parse().ok()?, NAMESERVER_PORT))
    });
    addresses.collect()
}

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

/// Returns true if packets to an address stay on this machine, or reach all machines of a network. Makes only system
/// calls.
fn is_of_machine(address: IpAddr) -> bool {
    match route_type(address) {
        Ok(route) => route.is_some_and(|route| route != libc::RTN_UNICAST),
        // Where the tables cannot be asked, as in gVisor, only an address of the machine can be bound to.
        Err(_) => can_bind(address).unwrap_or(true),
    }
}

/// The type of the route to an address; `None` if there is no route.
fn route_type(address: IpAddr) -> io::Result<Option<u8>> {
    let socket_kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let socket = syscalls::open_socket(libc::AF_NETLINK, socket_kind, libc::NETLINK_ROUTE)?;
    let mut buffer = [0; REQUEST_BYTES];
    rustix::io::write(&socket, request(address, &mut buffer))?;
    let mut answer = [0; 1024];
    // The kernel has answered by now.
    let length = rustix::io::read(&socket, &mut answer)?;
    let received = &answer[..length];
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
    match UdpSocket::bind(SocketAddr::new(address, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        bound => bound.map(|_| true),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test runs itself in another network")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_machine_is_not_outside_whatever_its_addresses_look_like() {
        use Destination::{Outside, OwnNetwork, Refused};
        let named = ["127.0.0.1:5432".parse().unwrap(), "[::1]:5432".parse().unwrap()];
        let internet = OutsideConnections { has_internet: true, named: named.to_vec() };
        let nothing = OutsideConnections { has_internet: false, named: named.to_vec() };
        for (address, expected) in [
            ("1.1.1.1:443", Outside),
            ("[2606:4700::1]:443", Outside),
            ("[::ffff:1.1.1.1]:443", Outside),
            ("10.1.2.3:80", Outside),
            ("127.0.0.1:80", OwnNetwork),
            ("127.9.9.9:80", OwnNetwork),
            ("0.0.0.0:80", OwnNetwork),
            ("[::1]:80", OwnNetwork),
            ("[::]:80", OwnNetwork),
            ("[::ffff:127.0.0.1]:80", OwnNetwork),
            ("[::127.0.0.1]:80", OwnNetwork),
            ("[64:ff9b::7f00:1]:80", OwnNetwork),
            ("[2002:7f00:1::]:80", OwnNetwork),
            ("127.0.0.1:5432", Outside),
            ("[::ffff:127.0.0.1]:5432", Outside),
            ("[::1]:5432", Outside),
            ("127.0.0.2:5432", OwnNetwork),
            ("[2002:7f00:1::]:5432", OwnNetwork),
            ("[64:ff9b::7f00:1]:5432", OwnNetwork),
            ("192.0.0.8:80", OwnNetwork),
            ("[fd00:7477::8]:80", OwnNetwork),
            ("169.254.169.254:80", Refused),
            ("100.100.100.100:53", Refused),
            ("[::ffff:169.254.169.254]:80", Refused),
            ("[64:ff9b::a9fe:a9fe]:80", Refused),
            ("[fe80::1]:80", Refused),
            ("[fd00:ec2::254]:80", Refused),
            ("[fd00:ec2::23]:80", Refused),
            ("[fd00:42::42]:80", Refused),
            ("168.63.129.16:80", Refused),
            ("224.0.0.251:5353", Refused),
            ("[ff02::fb]:5353", Refused),
            ("255.255.255.255:9", Refused),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(internet.destination(address), expected, "{address}");
            let without = if nothing.is_named(address) { Outside } else { OwnNetwork };
            assert_eq!(nothing.destination(address), without, "{address}");
        }
    }

    #[test]
    fn nameservers_are_read_from_their_list() {
        let list = "# nameserver 9.9.9.9\nsearch lan\nnameserver 127.0.0.53\n\tnameserver  fe80::1%eth0 x\n\
                    nameserver\nnameserver name\noptions edns0";
        let expected = ["127.0.0.53:53", "[fe80::1]:53"].map(|address| address.parse().unwrap());
        assert_eq!(nameservers(list), expected);
    }

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
