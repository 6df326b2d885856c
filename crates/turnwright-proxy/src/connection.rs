//! One connection of a program to the proxy: CONNECT, a plain HTTP request for a full URL, or SOCKS5. The first byte
//! distinguishes SOCKS5 from HTTP. Nothing beyond the request is read before its host is admitted, and a refused
//! request is answered only with the reason.
//!
//! A plain request is forwarded without the headers for the proxy and with the admitted host as its `Host`. Only one
//! request per connection is forwarded, because the next one may be for a different host.

use std::io;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Header, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional, sink};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Host;

use crate::dial::DialError;
use crate::hosts::Target;
use crate::{CommandHosts, CommandProxy};

/// The time that a program has to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The limits for reading the rest of what a refused program sends.
const REST_TIME: Duration = Duration::from_secs(1);
const MAX_REST_BYTES: u64 = 1024 * 1024;
const MAX_HEADERS: usize = 100;

const SOCKS5: u8 = 5;
/// The authentication methods of SOCKS5, and the answer that none is acceptable.
const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The replies of SOCKS5 to a request.
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const UNKNOWN_COMMAND: u8 = 7;
const UNKNOWN_ADDRESS: u8 = 8;

/// Headers that are meant for the proxy or that it writes itself, in lower case. Those in `CONNECTION_HEADERS` are kept
/// if the connection is upgraded to WebSocket.
const OWN_HEADERS: [&str; 3] = ["host", "proxy-authorization", "proxy-connection"];
const CONNECTION_HEADERS: [&str; 5] =
    ["connection", "http2-settings", "keep-alive", "te", "upgrade"];

/// Serves one connection until it ends.
pub(crate) async fn serve(
    mut client: TcpStream,
    proxy: &CommandProxy,
    hosts: &CommandHosts,
) -> io::Result<()> {
    let first = timeout(REQUEST_TIME, client.read_u8()).await??;
    if first == SOCKS5 {
        serve_socks(client, proxy, hosts).await
    } else {
        serve_http(client, first, proxy, hosts).await
    }
}

/// Connects to a host once it is admitted.
async fn connect(
    target: &Target,
    proxy: &CommandProxy,
    hosts: &CommandHosts,
) -> Result<TcpStream, DialError> {
    let access = hosts.admit(target).await.map_err(DialError::Refused)?;
    proxy.dialer.dial(target, access).await.inspect_err(|error| {
        if let DialError::Refused(refusal) = error {
            hosts.note_refusal(target, *refusal);
        }
    })
}

async fn serve_http(
    mut client: TcpStream,
    first: u8,
    proxy: &CommandProxy,
    hosts: &CommandHosts,
) -> io::Result<()> {
    let mut received = vec![first];
    if !timeout(REQUEST_TIME, read_head(&mut client, &mut received)).await?? {
        return answer(&mut client, "431 Request Header Fields Too Large", "", "").await;
    }
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(&received);
    let (Ok(Status::Complete(length)), Some(method), Some(place)) =
        (parsed, request.method, request.path)
    else {
        return answer(&mut client, "400 Bad Request", "", "This is no HTTP request.\n").await;
    };
    let is_connect = method == "CONNECT";
    let (authority, path) = if is_connect { (place, "") } else { split_address(place) };
    let target = Target::parse(authority, (!is_connect).then_some(80));
    let Some((target, body)) = target.zip(body_length(request.headers)) else {
        let text = "The proxy of the sandbox takes CONNECT HOST:PORT, and requests for http://HOST/PATH.\n";
        return answer(&mut client, "400 Bad Request", "", text).await;
    };
    if !has_token(request.headers, proxy) {
        let login = "Proxy-Authenticate: Basic realm=\"sandbox\"\r\n";
        let text =
            "The token in the variables of this command is missing, or of another command.\n";
        return answer(&mut client, "407 Proxy Authentication Required", login, text).await;
    }
    let mut host = match connect(&target, proxy, hosts).await {
        Ok(host) => host,
        Err(failure) => return answer_failure(&mut client, &target, failure).await,
    };
    let rest = &received[length..];
    if is_connect {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        host.write_all(rest).await?;
        return copy_bidirectional(&mut client, &mut host).await.map(drop);
    }
    host.write_all(&forwarded_head(method, path, &target, request.headers)).await?;
    pass_on_request(&mut client, rest, body, &mut host).await
}

/// Reads until the head of a request is complete or invalid. Returns false if it is too long.
async fn read_head(client: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<bool> {
    while is_partial(received) {
        if received.len() >= MAX_HEAD_BYTES {
            return Ok(false);
        }
        if client.read_buf(received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(true)
}

fn is_partial(head: &[u8]) -> bool {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    matches!(httparse::Request::new(&mut headers).parse(head), Ok(Status::Partial))
}

/// Returns the values of the headers with this name.
fn values<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    named.map(|header| header.value)
}

fn is_for_websocket(headers: &[Header<'_>]) -> bool {
    values(headers, "upgrade").any(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Returns the length of a request's body; `u64::MAX` if only the body itself shows its end, `None` if it is ambiguous.
fn body_length(headers: &[Header<'_>]) -> Option<u64> {
    let has_encoding = values(headers, "transfer-encoding").next().is_some();
    let mut lengths = values(headers, "content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) if has_encoding || is_for_websocket(headers) => Some(u64::MAX),
        (None, _) => Some(0),
        // A number with a sign parses here, but the host may reject it or read it differently.
        (Some(digits), None) if !has_encoding && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok()?.parse().ok()
        }
        (Some(_), _) => None,
    }
}

/// Forwards the body of a plain request, whose beginning is in `received`, and the host's answer.
async fn pass_on_request(
    client: &mut TcpStream,
    received: &[u8],
    body: u64,
    host: &mut TcpStream,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.split();
    let (mut from_host, mut to_host) = host.split();
    let mut request = received.chain(from_client).take(body);
    let sending = async {
        copy(&mut request, &mut to_host).await?;
        // Discard further requests until the program closes the connection.
        copy(&mut request.into_inner(), &mut sink()).await?;
        to_host.shutdown().await
    };
    let answering = async {
        copy(&mut from_host, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(sending, answering).map(drop)
}

/// Splits the URL of a plain request into host with port, and path. Both are empty if the URL is not a plain HTTP one.
fn split_address(address: &str) -> (&str, &str) {
    let scheme = "http://";
    let is_plain =
        address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let rest = if is_plain { &address[scheme.len()..] } else { "" };
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

fn has_token(headers: &[Header<'_>], proxy: &CommandProxy) -> bool {
    let mut logins = values(headers, "proxy-authorization");
    !proxy.needs_token || logins.any(|login| login == proxy.login().as_bytes())
}

/// Returns the head of a plain request as it is sent to the host.
fn forwarded_head(method: &str, path: &str, target: &Target, headers: &[Header<'_>]) -> Vec<u8> {
    let is_upgrade = is_for_websocket(headers);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let port = if target.port == 80 { String::new() } else { format!(":{}", target.port) };
    let start = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {}{port}\r\n", target.host);
    let mut head = start.into_bytes();
    if !is_upgrade {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        let is_left_out = OWN_HEADERS.contains(&name.as_str())
            || !is_upgrade && CONNECTION_HEADERS.contains(&name.as_str());
        if !is_left_out {
            head.extend_from_slice(header.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(header.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

async fn answer_failure(
    client: &mut TcpStream,
    target: &Target,
    failure: DialError,
) -> io::Result<()> {
    match failure {
        DialError::Refused(refusal) => {
            let why = refusal.reason(&target.to_string());
            let text =
                format!("turnwright: commands in the sandbox do not reach {target}: {why}.\n");
            answer(client, "403 Forbidden", "X-Proxy-Error: host-not-allowed\r\n", &text).await
        }
        DialError::Failed(why) => {
            let text = format!("turnwright: {target} was not reached: {why}.\n");
            answer(client, "502 Bad Gateway", "", &text).await
        }
    }
}

async fn answer(client: &mut TcpStream, status: &str, headers: &str, text: &str) -> io::Result<()> {
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    // Closing a connection with unread bytes may reset it, so that the answer is lost.
    timeout(REST_TIME, copy(&mut client.take(MAX_REST_BYTES), &mut sink())).await?.map(drop)
}

async fn serve_socks(
    mut client: TcpStream,
    proxy: &CommandProxy,
    hosts: &CommandHosts,
) -> io::Result<()> {
    let reading = timeout(REQUEST_TIME, read_socks_request(&mut client, proxy));
    let Some(target) = reading.await?? else { return client.shutdown().await };
    match connect(&target, proxy, hosts).await {
        Ok(mut host) => {
            answer_socks(&mut client, SUCCEEDED).await?;
            copy_bidirectional(&mut client, &mut host).await.map(drop)
        }
        Err(failure) => {
            let code = match failure {
                DialError::Refused(_) => NOT_ALLOWED,
                DialError::Failed(_) => UNREACHABLE,
            };
            answer_socks(&mut client, code).await?;
            client.shutdown().await
        }
    }
}

/// Reads a SOCKS5 request after its first byte: methods, token and target. Returns `None` if it was refused.
async fn read_socks_request(
    client: &mut TcpStream,
    proxy: &CommandProxy,
) -> io::Result<Option<Target>> {
    let methods = read_counted(client).await?;
    if methods.contains(&PASSWORD) {
        client.write_all(&[SOCKS5, PASSWORD]).await?;
        let _version = client.read_u8().await?;
        let _name = read_counted(client).await?;
        let is_right = read_counted(client).await? == proxy.token.as_bytes() || !proxy.needs_token;
        client.write_all(&[1, u8::from(!is_right)]).await?;
        if !is_right {
            return Ok(None);
        }
    } else if methods.contains(&NO_LOGIN) && !proxy.needs_token {
        client.write_all(&[SOCKS5, NO_LOGIN]).await?;
    } else {
        client.write_all(&[SOCKS5, NO_METHOD]).await?;
        return Ok(None);
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [SOCKS5, command, _, kind] = head else { return Ok(None) };
    let target = match kind {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address).await?;
            Target::new(Host::Ipv4(address.into()), client.read_u16().await?)
        }
        3 => {
            let name = read_counted(client).await?;
            let port = client.read_u16().await?;
            String::from_utf8(name)
                .ok()
                .and_then(|name| Target::parse(&format!("{name}:{port}"), None))
        }
        4 => {
            let mut address = [0; 16];
            client.read_exact(&mut address).await?;
            Target::new(Host::Ipv6(address.into()), client.read_u16().await?)
        }
        _ => None,
    };
    let code = if target.is_none() { UNKNOWN_ADDRESS } else { UNKNOWN_COMMAND };
    if command != 1 || target.is_none() {
        answer_socks(client, code).await?;
        return Ok(None);
    }
    Ok(target)
}

/// Reads bytes that are preceded by a byte with their number.
async fn read_counted(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer_socks(client: &mut TcpStream, code: u8) -> io::Result<()> {
    client.write_all(&[SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;
    use crate::{HostList, HostVerdict};

    /// Starts a proxy for which all names lead to an echo server on this machine. Also returns the command's hosts.
    async fn proxied(
        needs_token: bool,
    ) -> (JoinSet<()>, SocketAddr, String, u16, Arc<CommandHosts>) {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let echo = TcpListener::bind(local).await.unwrap();
        let port = echo.local_addr().unwrap().port();
        let listener = TcpListener::bind(local).await.unwrap();
        let mut proxy = CommandProxy::new(listener, needs_token).unwrap();
        proxy.dialer.lookup = |_| Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        proxy.dialer.refuses = |_, _| None;
        proxy.dialer.proxy = |_| None;
        let listed = HostList::parse(&[format!("a.example:{port}"), format!("*.b.example:{port}")]);
        let (hosts, _) = CommandHosts::new(listed, std::iter::empty(), |_| HostVerdict::Ask);
        let hosts = Arc::new(hosts);
        let address = proxy.address();
        let login = proxy.login();
        let mut tasks = JoinSet::new();
        tasks.spawn(proxy.serve(Arc::clone(&hosts)));
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).await.unwrap();
                stream.write_all(&bytes[..count]).await.unwrap();
            }
        });
        (tasks, address, login, port, hosts)
    }

    /// Sends these bytes and returns the answer, up to the end of the connection.
    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.ok();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn only_listed_hosts_are_connected_and_only_with_the_token() {
        let (_tasks, address, right, port, hosts) = proxied(true).await;
        let right = right.as_str();
        for (host, login, expected) in [
            (format!("a.example:{port}"), right, "200 Connection established"),
            (format!("A.Example.:{port}"), right, "200 Connection established"),
            (format!("x.b.example:{port}"), right, "200 Connection established"),
            (format!("b.example:{port}"), right, "403 Forbidden"),
            ("a.example:22".to_owned(), right, "403 Forbidden"),
            (format!("evil.example\0.b.example:{port}"), right, "400 Bad Request"),
            (format!("127.0.0.1:{port}"), right, "403 Forbidden"),
            (format!("[::1]:{port}"), right, "403 Forbidden"),
            ("a.example".to_owned(), right, "400 Bad Request"),
            (format!("a.example:{port}"), "Basic b3RoZXI=", "407 Proxy Authentication Required"),
            (format!("a.example:{port}"), "", "407 Proxy Authentication Required"),
        ] {
            let request =
                format!("CONNECT {host} HTTP/1.1\r\nProxy-Authorization: {login}\r\n\r\nhello");
            let answer = ask(address, request.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{host:?}: {answer}");
            assert_eq!(answer.ends_with("\r\n\r\nhello"), expected.starts_with("200"), "{answer}");
        }
        let report = hosts.refused().report().unwrap().for_user;
        assert!(
            report.contains(&format!("b.example:{port}")) && report.contains("a.example:22"),
            "{report}"
        );
    }

    #[tokio::test]
    async fn a_plain_request_is_for_the_host_that_was_admitted() {
        let (_tasks, address, login, port, _) = proxied(true).await;
        let request = format!(
            "GET http://A.Example.:{port}/x?y HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: {login}\r\n\
             Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n\
             GET http://evil.example/ HTTP/1.1\r\nAuthorization: secret\r\n\r\n"
        );
        let passed_on = ask(address, request.as_bytes()).await;
        assert_eq!(
            passed_on,
            format!(
                "GET /x?y HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
            )
        );
        for wrong in [
            "GET / HTTP/1.1",
            "GET https://a.example/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "POST http://a.example/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "nonsense",
            "\u{16}\u{3}\u{1}",
        ] {
            let request = format!("{wrong}\r\nProxy-Authorization: {login}\r\n\r\n");
            let answer = ask(address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{wrong}: {answer}");
        }
        let long = format!("GET http://a.example/ HTTP/1.1\r\nA: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(ask(address, long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_request_ends_with_its_body() {
        for (headers, expected) in [
            (&[("Accept", "*/*")][..], Some(0)),
            (&[("Content-Length", "5")], Some(5)),
            (&[("transfer-encoding", "chunked")], Some(u64::MAX)),
            (&[("Upgrade", "WebSocket")], Some(u64::MAX)),
            (&[("Upgrade", "h2c")], Some(0)),
            (&[("content-length", "5"), ("Content-Length", "6")], None),
            (&[("Content-Length", "5"), ("Transfer-Encoding", "chunked")], None),
            (&[("Content-Length", "-5")], None),
            (&[("Content-Length", "+5")], None),
        ] {
            let pairs = headers.iter();
            let parsed: Vec<_> =
                pairs.map(|&(name, value)| Header { name, value: value.as_bytes() }).collect();
            assert_eq!(body_length(&parsed), expected, "{headers:?}");
        }
    }

    #[tokio::test]
    async fn socks_takes_names_and_the_token_as_the_password() {
        let (_tasks, address, login, port, _) = proxied(true).await;
        let token = crate::token_of(&login);
        let request = |name: &str, token: &str| {
            let mut bytes = vec![5, 1, 2, 1, 2, b't', b'w'];
            bytes.push(u8::try_from(token.len()).unwrap());
            bytes.extend_from_slice(token.as_bytes());
            bytes.extend_from_slice(&[5, 1, 0, 3, u8::try_from(name.len()).unwrap()]);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&port.to_be_bytes());
            bytes.extend_from_slice(b"hello");
            bytes
        };
        let right = ask(address, &request("a.example", &token)).await;
        assert!(
            right.starts_with("\u{5}\u{2}\u{1}\0\u{5}\0") && right.ends_with("hello"),
            "{right:?}"
        );
        let refused = ask(address, &request("evil.example\0.b.example", &token)).await;
        assert!(refused.starts_with("\u{5}\u{2}\u{1}\0\u{5}\u{8}"), "{refused:?}");
        let refused = ask(address, &request("evil.example", &token)).await;
        assert!(refused.starts_with("\u{5}\u{2}\u{1}\0\u{5}\u{2}"), "{refused:?}");
        let foreign = ask(address, &request("a.example", "other")).await;
        assert!(foreign.starts_with("\u{5}\u{2}\u{1}\u{1}"), "{foreign:?}");
        assert_eq!(ask(address, &[5, 1, 0]).await.chars().count(), 2, "it needs the token");
    }

    #[tokio::test]
    async fn a_flood_of_connections_waits_and_the_next_is_served_after_it() {
        let (_tasks, address, login, port, _) = proxied(true).await;
        let mut flood = Vec::new();
        for _ in 0..crate::MAX_CONNECTIONS {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        let request = format!(
            "CONNECT a.example:{port} HTTP/1.1\r\nProxy-Authorization: {login}\r\n\r\nhello"
        );
        let asking = ask(address, request.as_bytes());
        tokio::pin!(asking);
        let early = timeout(Duration::from_millis(100), &mut asking).await;
        assert!(early.is_err(), "it waits");
        drop(flood);
        assert!(asking.await.ends_with("hello"));
    }

    #[tokio::test]
    async fn without_a_token_only_the_port_counts() {
        let (_tasks, address, _, port, _) = proxied(false).await;
        let request = format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\nhello");
        assert!(ask(address, request.as_bytes()).await.ends_with("hello"));
    }

    #[tokio::test]
    async fn the_proxy_ends_with_its_command_and_with_it_every_connection() {
        let (mut tasks, address, login, port, _) = proxied(true).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("CONNECT a.example:{port} HTTP/1.1\r\nProxy-Authorization: {login}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_u8().await.unwrap();
        tasks.shutdown().await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
