//! Connects to hosts. A name is looked up once, its addresses are checked, and one of those is connected to. If the
//! environment names a proxy for a host, that proxy looks the name up and opens a tunnel. Each plain request is sent to
//! it over a connection of its own, because many proxies open tunnels to port 443 only. One that wants a login gets
//! tunnels alone.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::{BoxFuture, select_ok};
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tower_service::Service;
use turnwright_types::error_text::io_error_text;
use turnwright_types::text;
use turnwright_workspace::web::{is_stand_in, reserved_kind, system_lookup};
use url::Url;

use crate::command_hosts::address_refusal;
use crate::hosts::{HostAccess, Target};

/// The time limit for a look-up, for an attempt to connect, and for the answer of a proxy.
const TIME: Duration = Duration::from_secs(10);
/// The schemes of the user's proxies that can be used.
const SCHEMES: [&str; 3] = ["http", "socks5", "socks5h"];
/// The most addresses of a host that are tried.
const MAX_ADDRESSES: usize = 16;
/// The delay between the starts of two attempts to connect.
const HEAD_START: Duration = Duration::from_millis(250);
/// The most bytes of a proxy's answer.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// The most names that are looked up for one command at the same time, because each takes a thread.
pub(crate) const MAX_LOOKUPS: usize = 8;

/// The reason why there is no connection to a host.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The reason and the remedy.
    Refused(String),
    /// The host was not found, or does not answer.
    Failed(String),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> DialError {
        DialError::Failed(io_error_text(&error))
    }
}

/// A connection to a host, or the reason why there is none.
pub(crate) type Dialed = Result<TcpStream, DialError>;
/// A function that connects to a host. Tests have one of their own.
pub(crate) type Dial = fn(Target, HostAccess, Arc<Semaphore>) -> BoxFuture<'static, Dialed>;

/// Connects to a host. `lookups` limits the look-ups of the command.
pub(crate) async fn dial(target: Target, access: HostAccess, lookups: Arc<Semaphore>) -> Dialed {
    let url = Url::parse(&format!("https://{}:{}/", target.host, target.port));
    if let Some(proxy) = url.ok().and_then(|url| turnwright_http::proxy_url(&url)) {
        return dial_through(&proxy, &target).await;
    }
    let looked = timeout(TIME, look_up(target, access, lookups)).await;
    connect_to_any(looked.map_err(io::Error::from)??).await
}

/// Looks up the addresses of a host that may be reached.
async fn look_up(
    target: Target,
    access: HostAccess,
    lookups: Arc<Semaphore>,
) -> Result<Vec<SocketAddr>, DialError> {
    let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
    let looking = spawn_blocking(move || {
        let found = (target.host.to_string().as_str(), target.port).to_socket_addrs()?;
        let allowed = allowed_addresses(found, access, target.name().is_some());
        // The system's look-up cannot be cancelled, so it counts until it ends, even if nothing waits for it.
        drop(permit);
        allowed
    });
    looking.await.map_err(io::Error::from)?
}

/// Keeps the addresses that may be reached. Others are never tried, not even if these fail.
fn allowed_addresses(
    found: impl Iterator<Item = SocketAddr>,
    access: HostAccess,
    is_name: bool,
) -> Result<Vec<SocketAddr>, DialError> {
    let mut error = DialError::Failed("it has no address".to_owned());
    let mut allowed = Vec::new();
    for address in found.take(MAX_ADDRESSES) {
        match refused_kind(address.ip(), access, is_name) {
            Some(kind) => error = DialError::Refused(address_refusal(kind)),
            None => allowed.push(address),
        }
    }
    if allowed.is_empty() { Err(error) } else { Ok(allowed) }
}

/// Returns the kind of an address that must not be reached: any that is not clearly public or belongs to this machine.
/// `is_name` is true if the program has named the host, and not its address.
fn refused_kind(address: IpAddr, access: HostAccess, is_name: bool) -> Option<&'static str> {
    let canonical = address.to_canonical();
    let may_be_private = access == HostAccess::Named && canonical.is_ipv4();
    let refused = reserved_kind(address).filter(|kind| match *kind {
        // Tailscale and Zscaler use addresses of the second kind.
        "a private" | "a carrier's internal" => !may_be_private,
        _ => !(is_name && is_stand_in(address, system_lookup)),
    });
    // Binding succeeds only for this machine's own addresses.
    refused.or_else(|| UdpSocket::bind((canonical, 0)).is_ok().then_some("this machine's own"))
}

/// Connects to the first of these addresses, of which there is at least one, that answers.
async fn connect_to_any(addresses: Vec<SocketAddr>) -> Dialed {
    let numbered = addresses.into_iter().zip(0..);
    let attempts =
        numbered.map(|(address, number)| Box::pin(connect_after(HEAD_START * number, address)));
    Ok(select_ok(attempts).await?.0)
}

async fn connect_after(delay: Duration, address: SocketAddr) -> io::Result<TcpStream> {
    sleep(delay).await;
    timeout(TIME, TcpStream::connect(address)).await?
}

/// Returns the user's proxy that takes plain requests to a host; `None` if there is none.
pub(crate) fn plain_proxy(target: &Target) -> Option<Url> {
    let url = Url::parse(&format!("http://{}:{}/", target.host, target.port)).ok()?;
    let proxy = parse_proxy(&turnwright_http::proxy_url(&url)?).ok()?;
    // Many proxies quote the whole request, with the login, in their error pages, which the program reads.
    (proxy.scheme() == "http" && login(&proxy).is_none()).then_some(proxy)
}

fn parse_proxy(proxy: &str) -> Result<Url, DialError> {
    let whole = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    match Url::parse(&whole) {
        Ok(url) if SCHEMES.contains(&url.scheme()) && url.has_host() => Ok(url),
        _ => Err(DialError::Failed(
            "the proxy of this machine is not one for HTTP or SOCKS5".to_owned(),
        )),
    }
}

/// Connects to a proxy itself.
pub(crate) async fn connect_to_proxy(proxy: &Url) -> Dialed {
    let host = proxy.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = proxy.port_or_known_default().unwrap_or_default();
    let connecting = timeout(TIME, TcpStream::connect((host, port)));
    Ok(connecting.await.map_err(io::Error::from)??)
}

/// Connects to a host through the user's proxy.
pub(crate) async fn dial_through(proxy: &str, target: &Target) -> Dialed {
    let url = parse_proxy(proxy)?;
    if url.scheme() != "http" {
        return dial_through_socks(&url, target).await;
    }
    let mut stream = connect_to_proxy(&url).await?;
    let place = format!("{}:{}", target.host, target.port);
    let login = basic_login(&url);
    let header =
        login.map_or_else(String::new, |login| format!("Proxy-Authorization: {login}\r\n"));
    let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let head = timeout(TIME, read_head(&mut stream)).await.map_err(io::Error::from)??;
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    if status.starts_with('2') && head.ends_with("\r\n\r\n") {
        Ok(stream)
    } else {
        let shown = text::first_chars(status, 3);
        Err(DialError::Failed(format!("the proxy of this machine answers with {shown:?}")))
    }
}

/// Connects to a host through a proxy for SOCKS5, which looks the name up.
async fn dial_through_socks(proxy: &Url, target: &Target) -> Dialed {
    let place =
        format!("//{}:{}", proxy.host_str().unwrap_or_default(), proxy.port().unwrap_or(1080));
    let proxy_uri = Uri::try_from(format!("http:{place}")).map_err(io::Error::other)?;
    let host_uri = Uri::try_from(format!("https://{}:{}", target.host, target.port));
    let mut socks = SocksV5::new(proxy_uri, HttpConnector::new());
    if let Some((name, password)) = login(proxy) {
        socks = socks.with_auth(name, password);
    }
    let connecting = timeout(TIME, socks.call(host_uri.map_err(io::Error::other)?));
    let connected = connecting.await.map_err(io::Error::from)?;
    Ok(connected.map_err(io::Error::other)?.into_inner())
}

/// Returns the name and password in the URL of a proxy.
fn login(proxy: &Url) -> Option<(String, String)> {
    let password = proxy.password().unwrap_or_default();
    let [name, password] = [proxy.username(), password]
        .map(|part| String::from_utf8_lossy(&text::percent_decoded(part.as_bytes())).into_owned());
    (!name.is_empty() || !password.is_empty()).then_some((name, password))
}

/// Returns the login for a proxy as its header has it.
fn basic_login(proxy: &Url) -> Option<String> {
    login(proxy)?;
    let plain = format!("{}:{}", proxy.username(), proxy.password().unwrap_or_default());
    let decoded = text::percent_decoded(plain.as_bytes());
    Some(format!("Basic {}", BASE64_STANDARD.encode(decoded)))
}

/// Reads the head of a proxy's answer and nothing beyond it.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_ANSWER_BYTES {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
            ("100.100.100.200", Named, Some("a cloud's internal")),
            ("100.96.0.96", Named, Some("a cloud's internal")),
            ("100.64.0.7", Named, None),
            ("100.64.0.7", Public, Some("a carrier's internal")),
            ("fd00:ec2::254", Named, Some("a private")),
            ("::1", Named, Some("a loopback")),
            ("64:ff9b::7f00:1", Named, Some("a loopback")),
            ("192.0.2.7", Public, Some("a documentation")),
            // Behind a proxy that answers all look-ups, it may stand for any host.
            ("198.18.0.7", Named, Some("a benchmarking")),
        ] {
            assert_eq!(
                refused_kind(address.parse().unwrap(), access, false),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn the_password_of_a_proxy_is_decoded() {
        let url = Url::parse("http://me:a%40b%25%E4@proxy.example:3128").unwrap();
        let expected = BASE64_STANDARD.encode(b"me:a@b%\xe4");
        assert_eq!(basic_login(&url), Some(format!("Basic {expected}")));
        assert_eq!(basic_login(&Url::parse("http://proxy.example").unwrap()), None);
    }

    #[test]
    fn only_allowed_addresses_are_left() {
        let allowed = |all: &[&str]| {
            let found = all.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 443));
            let allowed = allowed_addresses(found, HostAccess::Public, true).ok()?;
            Some(allowed.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>())
        };
        let mixed = ["2606:4700::1", "10.0.0.1", "93.184.216.34", "127.0.0.1"];
        let expected = ["2606:4700::1", "93.184.216.34"].map(str::to_owned);
        assert_eq!(allowed(&mixed), Some(expected.to_vec()));
        assert_eq!((allowed(&["127.0.0.1"]), allowed(&[])), (None, None));
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_not_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // No host has an address of this range, which is reserved for documentation.
        let nowhere = SocketAddr::new("2001:db8::1".parse().unwrap(), port);
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let began = std::time::Instant::now();
        connect_to_any(vec![nowhere, here]).await.unwrap();
        assert!(began.elapsed() < TIME);
    }
}
