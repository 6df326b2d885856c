//! Connects to hosts. A name is looked up once, its addresses are checked, and one of those is connected to. If the
//! environment names a proxy for a host, that proxy looks the name up and opens a tunnel. Plain requests use a tunnel
//! as well, because otherwise the proxy would accept further requests for other hosts over the same connection.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use turnwright_types::error_text::io_error_text;
use turnwright_types::text;
use turnwright_workspace::web::reserved_kind;
use url::{Host, Url};

use crate::command_hosts::HostRefusal;
use crate::hosts::{HostAccess, Target};

/// The time limit for a look-up, and for an attempt to connect.
const TIME: Duration = Duration::from_secs(10);
/// The most addresses of each family that are tried.
const MAX_ADDRESSES: usize = 2;
/// The delay between the starts of two attempts to connect.
const HEAD_START: Duration = Duration::from_millis(250);
/// The most names that are looked up at the same time.
const MAX_LOOKUPS: usize = 8;
/// The most bytes of a proxy's answer.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// The reason why there is no connection to a host.
#[derive(Debug)]
pub(crate) enum DialError {
    Refused(HostRefusal),
    /// The host was not found, or does not answer.
    Failed(String),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> DialError {
        DialError::Failed(io_error_text(&error))
    }
}

/// Looks up hosts and decides to which addresses connections are allowed.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) lookup: fn(&str) -> io::Result<Vec<IpAddr>>,
    /// Returns the kind of an address that must not be reached, as in "a private".
    pub(crate) refuses: fn(IpAddr, HostAccess) -> Option<&'static str>,
    /// The proxy for a URL, as the environment spells it.
    pub(crate) proxy: fn(&Url) -> Option<String>,
    /// Limits concurrent look-ups, because each takes a thread.
    lookups: Arc<Semaphore>,
}

impl Default for Dialer {
    fn default() -> Dialer {
        Dialer {
            lookup: |name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()),
            refuses: refused_kind,
            proxy: turnwright_http::proxy_url,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

/// Returns the kind of an address that must not be reached: any that is not clearly public or belongs to this machine.
fn refused_kind(address: IpAddr, access: HostAccess) -> Option<&'static str> {
    let canonical = address.to_canonical();
    let is_private = matches!(canonical, IpAddr::V4(address) if address.is_private());
    match reserved_kind(address) {
        Some(kind) if !(is_private && access == HostAccess::Named) => Some(kind),
        // Binding succeeds only for this machine's own addresses.
        _ => UdpSocket::bind((canonical, 0)).is_ok().then_some("this machine's own"),
    }
}

impl Dialer {
    /// Connects to a host.
    pub(crate) async fn dial(
        &self,
        target: &Target,
        access: HostAccess,
    ) -> Result<TcpStream, DialError> {
        let url = Url::parse(&format!("https://{}:{}/", target.host, target.port));
        if let Some(proxy) = url.ok().and_then(|url| (self.proxy)(&url)) {
            return dial_through(&proxy, target).await;
        }
        let room = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let dialer = self.clone();
        let host = target.host.clone();
        let looking = spawn_blocking(move || {
            let found = dialer.addresses(&host, access);
            // The system's look-up cannot be cancelled, so it counts until it ends, even if nothing waits for it.
            drop(room);
            found
        });
        let found = timeout(TIME, looking).await.map_err(io::Error::from)?;
        connect_to_any(found.map_err(io::Error::other)??, target.port).await
    }

    /// Returns the addresses of a host to which connections are allowed. Blocks.
    fn addresses(&self, host: &Host, access: HostAccess) -> Result<Vec<IpAddr>, DialError> {
        let found = match host {
            Host::Domain(name) => (self.lookup)(name)?,
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
        };
        let mut refused = None;
        let mut addresses = Vec::new();
        let mut counts = [0; 2];
        for address in found {
            // Limit each family separately, because one of them may not work in this network.
            let count = &mut counts[usize::from(address.is_ipv6())];
            match (self.refuses)(address, access) {
                Some(kind) => refused = Some(kind),
                None if *count == MAX_ADDRESSES => {}
                None => {
                    *count += 1;
                    addresses.push(address);
                }
            }
        }
        match refused {
            Some(kind) if addresses.is_empty() => {
                Err(DialError::Refused(HostRefusal::Address(kind)))
            }
            _ => Ok(addresses),
        }
    }
}

/// Connects to the first of these addresses that answers.
async fn connect_to_any(addresses: Vec<IpAddr>, port: u16) -> Result<TcpStream, DialError> {
    let mut attempts = JoinSet::new();
    let mut wait = Duration::ZERO;
    for address in addresses {
        attempts.spawn(connect(SocketAddr::new(address, port), wait));
        wait += HEAD_START;
    }
    let mut failure = DialError::Failed("it has no address".to_owned());
    while let Some(attempt) = attempts.join_next().await {
        match attempt.map_err(io::Error::from) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) | Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

async fn connect(address: SocketAddr, wait: Duration) -> io::Result<TcpStream> {
    sleep(wait).await;
    timeout(TIME, TcpStream::connect(address)).await.map_err(io::Error::from)?
}

/// Connects to a host through the user's proxy.
async fn dial_through(proxy: &str, target: &Target) -> Result<TcpStream, DialError> {
    let whole = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    let parsed = Url::parse(&whole).ok();
    let Some(url) = parsed.filter(|url| url.scheme() == "http" && url.has_host()) else {
        return Err(DialError::Failed("the proxy of this machine is not one for HTTP".to_owned()));
    };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    let connecting = timeout(TIME, TcpStream::connect((host, port)));
    let mut stream = connecting.await.map_err(io::Error::from)??;
    let place = format!("{}:{}", target.host, target.port);
    let header = authorization(&url);
    let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let status = timeout(TIME, read_status(&mut stream)).await.map_err(io::Error::from)??;
    if !(200..300).contains(&status) {
        return Err(DialError::Failed(format!("the proxy of this machine answers with {status}")));
    }
    Ok(stream)
}

/// Returns the header line for the name and password in the URL of a proxy; empty if there are none.
fn authorization(proxy: &Url) -> String {
    let password = proxy.password().unwrap_or_default();
    if proxy.username().is_empty() && password.is_empty() {
        return String::new();
    }
    let plain = text::percent_decoded(format!("{}:{password}", proxy.username()).as_bytes());
    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(plain))
}

/// Reads the head of a proxy's answer and nothing beyond it. Returns the status.
async fn read_status(stream: &mut TcpStream) -> Result<u16, DialError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_ANSWER_BYTES {
        head.push(stream.read_u8().await?);
    }
    let answer = String::from_utf8_lossy(&head);
    let status = answer.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    let is_whole = head.ends_with(b"\r\n\r\n");
    status.filter(|_| is_whole).ok_or_else(|| {
        DialError::Failed("the proxy of this machine does not speak HTTP".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_is_reached_only_if_it_is_public_or_named_and_private() {
        use HostAccess::{Named, Public};
        for (address, access, expected) in [
            ("10.0.0.7", Public, Some("a private")),
            ("10.0.0.7", Named, None),
            ("::ffff:10.0.0.7", Named, None),
            ("127.0.0.1", Named, Some("a loopback")),
            ("169.254.169.254", Named, Some("a link-local")),
            ("100.100.100.200", Named, Some("a carrier's internal")),
            ("fd00:ec2::254", Named, Some("a private")),
            ("::1", Named, Some("a loopback")),
            ("64:ff9b::7f00:1", Named, Some("a loopback")),
            ("192.0.2.7", Public, Some("a documentation")),
        ] {
            assert_eq!(refused_kind(address.parse().unwrap(), access), expected, "{address}");
        }
    }

    #[test]
    fn the_password_of_a_proxy_is_decoded() {
        let url = Url::parse("http://me:a%40b%25@proxy.example:3128").unwrap();
        let expected = BASE64_STANDARD.encode("me:a@b%");
        assert_eq!(authorization(&url), format!("Proxy-Authorization: Basic {expected}\r\n"));
        assert_eq!(authorization(&Url::parse("http://proxy.example").unwrap()), "");
    }

    #[test]
    fn a_name_that_turns_private_is_not_reached() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let lookup = |_: &str| {
            let number = ASKED.fetch_add(1, Ordering::Relaxed);
            Ok(vec![["93.184.216.34", "127.0.0.1"][number].parse().unwrap()])
        };
        let dialer = Dialer { lookup, ..Dialer::default() };
        let host = Host::Domain("rebinding.example".to_owned());
        let found = dialer.addresses(&host, HostAccess::Public).unwrap();
        assert_eq!(found, ["93.184.216.34".parse::<IpAddr>().unwrap()]);
        let error = dialer.addresses(&host, HostAccess::Public).unwrap_err();
        let is_loopback = matches!(error, DialError::Refused(HostRefusal::Address("a loopback")));
        assert!(is_loopback, "{error:?}");
    }

    #[test]
    fn addresses_of_both_families_are_tried() {
        let lookup = |_: &str| {
            let names =
                ["2606:4700::1", "2606:4700::2", "10.0.0.1", "2606:4700::3", "93.184.216.34"];
            Ok(names.iter().map(|name| name.parse().unwrap()).collect())
        };
        let dialer = Dialer { lookup, ..Dialer::default() };
        let host = Host::Domain("a.example".to_owned());
        let found = dialer.addresses(&host, HostAccess::Public).unwrap();
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["2606:4700::1", "2606:4700::2", "93.184.216.34"]);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_not_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // No host has an address of this range, which is reserved for documentation.
        let nowhere = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        let addresses = vec![nowhere, IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let began = std::time::Instant::now();
        connect_to_any(addresses, port).await.unwrap();
        assert!(began.elapsed() < TIME);
    }
}
