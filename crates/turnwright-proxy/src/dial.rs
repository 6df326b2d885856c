//! Connects to hosts. A name is looked up once, its addresses are checked, and one of those is connected to. Where the
//! environment names a proxy for a host, that one looks the name up and makes a tunnel, also for plain requests: it
//! would take further ones for other hosts over the same connection.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::web::reserved_kind;
use url::{Host, Url};

use crate::hosts::{HostAccess, Target};

/// The most time for a look-up, or an attempt to connect.
const TIME: Duration = Duration::from_secs(10);
/// At most this many addresses of a name are tried, each twice: the programs were told not to try again.
const MAX_ADDRESSES: usize = 4;
/// At most this many names are looked up at the same time.
const MAX_LOOKUPS: usize = 8;
/// The most bytes of a proxy's answer.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Why there is no connection to a host.
#[derive(Debug)]
pub(crate) enum DialError {
    /// It has only addresses of this kind, as in "a private".
    Address(&'static str),
    /// It was not found, or does not answer.
    Failed(String),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> DialError {
        DialError::Failed(io_error_text(&error))
    }
}

type LookupFn = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// Finds hosts, and decides which addresses may be connected to.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) lookup: LookupFn,
    /// Describes why an address is not reached, as in "a private".
    pub(crate) refuses: fn(IpAddr, HostAccess) -> Option<&'static str>,
    /// The proxy for a URL, as the environment spells it.
    pub(crate) proxy: fn(&Url) -> Option<String>,
    /// Each look-up takes a thread.
    lookups: Arc<Semaphore>,
}

impl Default for Dialer {
    fn default() -> Dialer {
        Dialer {
            lookup: Arc::new(|name| {
                Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            }),
            refuses: refused_kind,
            proxy: turnwright_http::proxy_url,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

/// Describes why an address is not reached: everything that is not clearly public, and this machine by any address.
fn refused_kind(address: IpAddr, access: HostAccess) -> Option<&'static str> {
    let canonical = address.to_canonical();
    let is_private = matches!(canonical, IpAddr::V4(address) if address.is_private());
    match reserved_kind(address) {
        Some(kind) if !(is_private && access == HostAccess::Named) => Some(kind),
        // Only an own address can be bound to.
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
        let room = self.lookups.acquire().await.map_err(io::Error::other)?;
        let dialer = self.clone();
        let host = target.host.clone();
        let looking = spawn_blocking(move || dialer.addresses(&host, access));
        let found = timeout(TIME, looking).await.map_err(io::Error::from)?;
        let addresses = found.map_err(io::Error::other)??;
        drop(room);
        let mut last = DialError::Failed("it has no address".to_owned());
        for address in addresses.iter().chain(&addresses) {
            match connect(SocketAddr::new(*address, target.port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    /// The addresses of a host that may be connected to. Blocks.
    fn addresses(&self, host: &Host, access: HostAccess) -> Result<Vec<IpAddr>, DialError> {
        let found = match host {
            Host::Domain(name) => (self.lookup)(name)?,
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
        };
        let mut refused = None;
        let mut addresses = Vec::new();
        for address in found.into_iter().take(MAX_ADDRESSES) {
            match (self.refuses)(address, access) {
                Some(kind) => refused = Some(kind),
                None => addresses.push(address),
            }
        }
        match refused {
            Some(kind) if addresses.is_empty() => Err(DialError::Address(kind)),
            _ => Ok(addresses),
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    timeout(TIME, TcpStream::connect(address)).await.map_err(io::Error::from)?
}

/// Connects to a host through a proxy of the user.
async fn dial_through(proxy: &str, target: &Target) -> Result<TcpStream, DialError> {
    let whole = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    let url = Url::parse(&whole).ok().filter(|url| url.scheme() == "http");
    let place =
        url.as_ref().and_then(|url| Some((url.host()?.to_owned(), url.port_or_known_default()?)));
    let (Some(url), Some((host, port))) = (&url, place) else {
        return Err(DialError::Failed("the proxy of this machine is not one for HTTP".to_owned()));
    };
    let host = match host {
        Host::Domain(name) => name,
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    let connecting = timeout(TIME, TcpStream::connect((host.as_str(), port)));
    let mut stream = connecting.await.map_err(io::Error::from)??;
    let place = format!("{}:{}", target.host, target.port);
    let header = authorization(url);
    let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let status = timeout(TIME, read_status(&mut stream)).await.map_err(io::Error::from)??;
    if !(200..300).contains(&status) {
        return Err(DialError::Failed(format!("the proxy of this machine answers with {status}")));
    }
    Ok(stream)
}

/// The header with the name and password in the URL of a proxy, with the end of its line; empty if there are none.
fn authorization(proxy: &Url) -> String {
    let password = proxy.password().unwrap_or_default();
    if proxy.username().is_empty() && password.is_empty() {
        return String::new();
    }
    let plain = format!("{}:{password}", proxy.username());
    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(percent_decoded(&plain)))
}

/// Replaces `%` and two digits by the byte that they mean.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// Reads the head of an answer, and nothing beyond it. Returns its status.
async fn read_status(stream: &mut TcpStream) -> Result<u16, DialError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_ANSWER_BYTES {
            return Err(DialError::Failed("the answer of its proxy is too long".to_owned()));
        }
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head);
    let status = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    status.ok_or_else(|| DialError::Failed("its proxy does not speak HTTP".to_owned()))
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn a_name_that_turns_private_is_not_reached() {
        let answers = ["93.184.216.34", "127.0.0.1"];
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let lookup: LookupFn = Arc::new(move |_| {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(vec![answers[number].parse().unwrap()])
        });
        let dialer = Dialer { lookup, ..Dialer::default() };
        let host = Host::Domain("rebinding.example".to_owned());
        let found = dialer.addresses(&host, HostAccess::Public).unwrap();
        assert_eq!(found, ["93.184.216.34".parse::<IpAddr>().unwrap()]);
        let error = dialer.addresses(&host, HostAccess::Public).unwrap_err();
        assert!(matches!(error, DialError::Address("a loopback")), "{error:?}");
    }
}
