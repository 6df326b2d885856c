//! The private network of a session's commands. It has only a loopback interface, so the commands reach each other's
//! servers but not the machine's. It is made when the first command needs it.
//!
//! From outside, only the agent reaches a server there, because it can connect sockets in the network: for `web_fetch`,
//! and for ports that the user has opened to the programs of this machine. It also listens there itself, for the
//! commands that reach hosts through a proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use turnwright_proxy::serve_each;
use turnwright_sandbox::SessionNetwork;

/// Where servers listen, the usual one first.
const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// At most this many connections to a port are passed on at the same time. Others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The network, once it is made.
#[derive(Debug, Default)]
pub struct CommandNetwork(OnceLock<Arc<SessionNetwork>>);

impl CommandNetwork {
    /// The network; `None` if there are none here, or none can be made now. Makes it if there is none yet, with shared
    /// memory of at most this many bytes, and blocks for some milliseconds then.
    pub fn get(&self, memory_limit: Option<u64>) -> Option<Arc<SessionNetwork>> {
        let network = self.if_used().or_else(|| create_network(memory_limit))?;
        Some(Arc::clone(self.0.get_or_init(|| network)))
    }

    /// The network, if a command has used it.
    pub fn if_used(&self) -> Option<Arc<SessionNetwork>> {
        self.0.get().cloned()
    }
}

fn create_network(memory_limit: Option<u64>) -> Option<Arc<SessionNetwork>> {
    let is_possible = turnwright_sandbox::namespace_support().network;
    let created = is_possible.then(|| SessionNetwork::create_within(memory_limit))?;
    let network = created.inspect_err(|error| tracing::warn!(%error, "commands share no network"));
    network.ok().map(Arc::new)
}

/// At most this many connections wait to be accepted.
const BACKLOG: u32 = 1024;

/// Listens at a free port of the network. To be called on a thread of the runtime; blocks for about a millisecond.
pub(crate) fn listen(network: &Arc<SessionNetwork>) -> io::Result<TcpListener> {
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let socket = open_socket(network, host)?;
    socket.bind(SocketAddr::new(host, 0))?;
    socket.listen(BACKLOG)
}

/// Connects to a port of the network.
pub async fn connect(network: &Arc<SessionNetwork>, port: u16) -> io::Result<TcpStream> {
    let mut refused = io::ErrorKind::ConnectionRefused.into();
    for host in HOSTS {
        let opener = Arc::clone(network);
        let opening = spawn_blocking(move || open_socket(&opener, host));
        let socket = opening.await.map_err(io::Error::other)??;
        match timeout(CONNECT_TIMEOUT, socket.connect(SocketAddr::new(host, port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => refused = error,
            Err(_) => refused = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(refused)
}

/// Copies data between a connection and a port of the network, in both directions.
pub async fn pass_on(
    mut outer: impl AsyncRead + AsyncWrite + Unpin,
    network: Arc<SessionNetwork>,
    port: u16,
) {
    if let Ok(mut inner) = connect(&network, port).await {
        copy_bidirectional(&mut outer, &mut inner).await.ok();
    }
}

/// Returns true if it is IPv6 that the machine lacks, in its kernel or on its loopback interface.
fn lacks_ipv6(host: IpAddr, error: &io::Error) -> bool {
    host.is_ipv6() && error.kind() != io::ErrorKind::AddrInUse
}

/// Opens a port to the programs of this machine. Returns where they connect, and the note about it.
pub async fn open_port(port: u16) -> (Vec<TcpListener>, String) {
    let mut listeners = Vec::new();
    for host in HOSTS {
        match TcpListener::bind(SocketAddr::new(host, port)).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if lacks_ipv6(host, &error) => {}
            Err(error) => {
                let why = turnwright_types::error_text::io_error_text(&error);
                let note = format!("[port {port} could not be opened to the user: {why}]");
                return (Vec::new(), note);
            }
        }
    }
    let note = format!(
        "[http://localhost:{port} is open to the user's browser and other programs of this machine while the command runs]"
    );
    (listeners, note)
}

/// Forwards connections from programs of this machine to a port of the network, forever.
pub async fn publish(listeners: Vec<TcpListener>, network: Arc<SessionNetwork>, port: u16) {
    let mut accepting = Vec::new();
    for listener in &listeners {
        accepting.push(serve_each(listener, MAX_CONNECTIONS, |outer: TcpStream| {
            pass_on(outer, Arc::clone(&network), port)
        }));
    }
    futures_util::future::join_all(accepting).await;
}

#[cfg(target_os = "linux")]
fn open_socket(network: &Arc<SessionNetwork>, host: IpAddr) -> io::Result<tokio::net::TcpSocket> {
    let socket = std::net::TcpStream::from(network.open_socket(host.is_ipv6())?);
    socket.set_nonblocking(true)?;
    Ok(tokio::net::TcpSocket::from_std_stream(socket))
}

#[cfg(not(target_os = "linux"))]
fn open_socket(network: &Arc<SessionNetwork>, _: IpAddr) -> io::Result<tokio::net::TcpSocket> {
    match **network {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_opened_on_a_machine_without_ipv6_and_not_where_it_is_taken() {
        let lacking = [io::Error::from_raw_os_error(97), io::ErrorKind::AddrNotAvailable.into()];
        for error in lacking {
            assert!(lacks_ipv6(HOSTS[1], &error) && !lacks_ipv6(HOSTS[0], &error), "{error}");
        }
        assert!(!lacks_ipv6(HOSTS[1], &io::ErrorKind::AddrInUse.into()));
    }
}
