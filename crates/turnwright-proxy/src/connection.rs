//! One connection of a program to the proxy: CONNECT, plain HTTP requests for full URLs, or SOCKS5. The first byte
//! distinguishes SOCKS5 from HTTP. No body is read before its host is admitted, and a refused request is answered only
//! with the reason.
//!
//! A plain request is forwarded to the host of its URL, or to the user's proxy, over a connection of its own, without
//! the headers for this proxy and with that host as its `Host`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::{self, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::dial::{self, DialError, Dialed};
use crate::hosts::Target;
use crate::{CommandHosts, CommandProxy};

/// The time that a program has to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Headers about one connection, which are not forwarded.
const CONNECTION_HEADERS: [&str; 6] =
    ["connection", "http2-settings", "keep-alive", "proxy-connection", "te", "upgrade"];

const SOCKS5: u8 = 5;
/// The authentication methods of SOCKS5, and the answer that none is acceptable.
const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The SOCKS5 command to connect, and the type of an address that is a host name.
const CONNECT: u8 = 1;
const NAME: u8 = 3;
/// The replies of SOCKS5 to a request.
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The tunnels, and the connections to the hosts of plain requests.
#[derive(Default)]
struct Tasks {
    /// Keeps nothing of a task that has ended, because a program may send any number of requests over one connection.
    running: TaskTracker,
    /// Ends all tasks.
    stop: CancellationToken,
}

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(self.stop.clone().run_until_cancelled_owned(task));
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    client: TcpStream,
    proxy: &CommandProxy,
    hosts: &CommandHosts,
) -> io::Result<()> {
    let mut first = [0];
    timeout(REQUEST_TIME, client.peek(&mut first)).await??;
    let connection = ClientConnection { proxy, hosts, tasks: Tasks::default() };
    if first == [SOCKS5] {
        return connection.serve_socks(client).await;
    }
    let _ended_on_drop = connection.tasks.stop.drop_guard_ref();
    let service = service_fn(|request| connection.answer(request));
    let serving = server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    serving.await.map_err(io::Error::other)?;
    connection.tasks.running.close();
    connection.tasks.running.wait().await;
    Ok(())
}

/// A connection of a program, with the proxy and the hosts of its command.
struct ClientConnection<'a> {
    proxy: &'a CommandProxy,
    hosts: &'a CommandHosts,
    tasks: Tasks,
}

impl ClientConnection<'_> {
    /// Connects to a host, or to the user's proxy for plain requests to it, once the host is admitted.
    async fn connect(&self, target: &Target, plain_proxy: Option<&Url>) -> Dialed {
        let admitted = self.hosts.admit(target).await;
        let connected = match (admitted, plain_proxy) {
            (Ok(_), Some(plain_proxy)) => dial::connect_to_proxy(plain_proxy).await,
            (Ok(access), None) => {
                (self.proxy.dial)(target.clone(), access, Arc::clone(&self.proxy.lookups)).await
            }
            (Err(why), _) => Err(DialError::Refused(why)),
        };
        connected.inspect_err(|error| {
            if let DialError::Refused(why) = error {
                self.hosts.note_refusal(target, why);
            }
        })
    }

    /// Answers an HTTP request.
    async fn answer(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let Some(target) = target_of(&request) else {
            let text = "The proxy of the sandbox takes CONNECT HOST:PORT, and requests for http://HOST/PATH.\n";
            return Ok(explained(StatusCode::BAD_REQUEST, text));
        };
        let login = request.headers_mut().remove(PROXY_AUTHORIZATION);
        let is_right = login.is_some_and(|login| login.as_bytes() == self.proxy.login().as_bytes());
        if self.proxy.needs_token && !is_right {
            let text =
                "The token in the variables of this command is missing, or of another command.\n";
            let mut response = explained(StatusCode::PROXY_AUTHENTICATION_REQUIRED, text);
            let realm = HeaderValue::from_static("Basic realm=\"sandbox\"");
            response.headers_mut().insert(PROXY_AUTHENTICATE, realm);
            return Ok(response);
        }
        let is_tunnel = request.method() == Method::CONNECT;
        let plain_proxy = if is_tunnel { None } else { (self.proxy.plain_proxy)(&target) };
        let mut host = match self.connect(&target, plain_proxy.as_ref()).await {
            Ok(host) => host,
            Err(error) => return Ok(failure(&target, &error)),
        };
        if is_tunnel {
            let upgrade = hyper::upgrade::on(request);
            self.tasks.spawn(async move {
                if let Ok(client) = upgrade.await {
                    // If one side fails, the programs notice it themselves.
                    copy_bidirectional(&mut TokioIo::new(client), &mut host).await.ok();
                }
            });
            return Ok(explained(StatusCode::OK, ""));
        }
        Ok(match forward(request, &target, plain_proxy.as_ref(), host, &self.tasks).await {
            Ok(response) => response.map(BodyExt::boxed_unsync),
            Err(error) => failure(&target, &DialError::Failed(error.to_string())),
        })
    }

    /// Serves a connection of SOCKS5.
    async fn serve_socks(&self, mut client: TcpStream) -> io::Result<()> {
        let reading = timeout(REQUEST_TIME, self.read_socks_request(&mut client));
        let Some(target) = reading.await?? else { return client.shutdown().await };
        let reply = match self.connect(&target, None).await {
            Ok(mut host) => {
                answer_socks(&mut client, SUCCEEDED).await?;
                return copy_bidirectional(&mut client, &mut host).await.map(drop);
            }
            Err(DialError::Refused(_)) => NOT_ALLOWED,
            Err(DialError::Failed(_)) => UNREACHABLE,
        };
        answer_socks(&mut client, reply).await?;
        client.shutdown().await
    }

    /// Reads a SOCKS5 request: methods, token and target. Returns `None` if it was refused.
    async fn read_socks_request(&self, client: &mut TcpStream) -> io::Result<Option<Target>> {
        let _version = client.read_u8().await?;
        let methods = read_counted(client).await?;
        let method = if methods.contains(&PASSWORD) {
            PASSWORD
        } else if methods.contains(&NO_LOGIN) && !self.proxy.needs_token {
            NO_LOGIN
        } else {
            NO_METHOD
        };
        client.write_all(&[SOCKS5, method]).await?;
        if method == NO_METHOD {
            return Ok(None);
        }
        if method == PASSWORD {
            let _version = client.read_u8().await?;
            let _name = read_counted(client).await?;
            let password = read_counted(client).await?;
            let token = self.proxy.token.expose().as_bytes();
            let is_wrong = self.proxy.needs_token && password != token;
            client.write_all(&[1, u8::from(is_wrong)]).await?;
            if is_wrong {
                return Ok(None);
            }
        }
        let mut head = [0; 4];
        client.read_exact(&mut head).await?;
        let mut target = None;
        if let [SOCKS5, CONNECT, _, NAME] = head {
            let name = String::from_utf8_lossy(&read_counted(client).await?).into_owned();
            let port = client.read_u16().await?;
            target = Target::parse(&format!("{name}:{port}"), None);
        }
        if target.is_none() {
            answer_socks(client, NOT_ALLOWED).await?;
        }
        Ok(target)
    }
}

/// Returns the host that a request is for; `None` if the proxy does not take such requests.
fn target_of(request: &Request<Incoming>) -> Option<Target> {
    let uri = request.uri();
    let authority = uri.authority()?.as_str();
    if request.method() == Method::CONNECT {
        Target::parse(authority, None)
    } else {
        Target::parse(authority, Some(80)).filter(|_| uri.scheme_str() == Some("http"))
    }
}

/// Sends a plain request to its host, or to the user's proxy.
async fn forward(
    mut request: Request<Incoming>,
    target: &Target,
    plain_proxy: Option<&Url>,
    host: TcpStream,
    tasks: &Tasks,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(host)).await?;
    tasks.spawn(async move {
        connection.await.ok();
    });
    let port = if target.port == 80 { String::new() } else { format!(":{}", target.port) };
    let authority = format!("{}{port}", target.host);
    let path = request.uri().path_and_query().cloned();
    let mut parts = uri::Parts::default();
    if plain_proxy.is_some() {
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = authority.parse().ok();
    }
    parts.path_and_query = path;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    if let Ok(name) = HeaderValue::try_from(authority) {
        headers.insert(HOST, name);
    }
    let mut response = sender.send_request(request).await?;
    response.headers_mut().remove(CONNECTION);
    Ok(response)
}

fn failure(target: &Target, error: &DialError) -> Response<Body> {
    match error {
        DialError::Refused(why) => {
            let text =
                format!("turnwright: commands in the sandbox do not reach {target}: {why}.\n");
            explained(StatusCode::FORBIDDEN, text)
        }
        DialError::Failed(why) => {
            let text = format!("turnwright: {target} was not reached: {why}.\n");
            explained(StatusCode::BAD_GATEWAY, text)
        }
    }
}

/// Returns a response with an explanation.
fn explained(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Reads one byte, and then as many bytes as it says.
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
    use std::net::{Ipv4Addr, SocketAddr};

    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;
    use crate::{HostList, HostVerdict};

    /// Starts a proxy for which all names lead to a server on this machine, which answers with what it is sent, up to
    /// `hello`. Also returns the command's hosts.
    async fn proxied(
        needs_token: bool,
    ) -> (JoinSet<()>, SocketAddr, String, u16, Arc<CommandHosts>) {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let echo = TcpListener::bind(local).await.unwrap();
        let port = echo.local_addr().unwrap().port();
        let listener = TcpListener::bind(local).await.unwrap();
        let mut proxy = CommandProxy::new(listener, needs_token).unwrap();
        proxy.dial = |target, _, _| {
            Box::pin(
                async move { Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, target.port)).await?) },
            )
        };
        let listed = HostList::parse(&[format!("a.example:{port}"), format!("*.b.example:{port}")]);
        let (hosts, _) = CommandHosts::new(listed, std::iter::empty(), |_| HostVerdict::Ask);
        let hosts = Arc::new(hosts);
        let address = proxy.address;
        let login = proxy.login();
        let mut tasks = JoinSet::new();
        tasks.spawn(proxy.serve(Arc::clone(&hosts)));
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"hello")
                    && stream.read_buf(&mut bytes).await.unwrap_or_default() > 0
                {}
                let length = bytes.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), &bytes].concat()).await.ok();
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
            (format!("a.example:{port}"), right, "200 OK"),
            (format!("A.Example.:{port}"), right, "200 OK"),
            (format!("x.b.example:{port}"), right, "200 OK"),
            (format!("b.example:{port}"), right, "403 Forbidden"),
            ("a.example:22".to_owned(), right, "403 Forbidden"),
            (format!("evil.example\0.b.example:{port}"), right, "400 Bad Request"),
            (format!("127.0.0.1:{port}"), right, "403 Forbidden"),
            (format!("[::1]:{port}"), right, "403 Forbidden"),
            ("a.example".to_owned(), right, "400 Bad Request"),
            (format!("a.example:{port}"), "Basic b3RoZXI=", "407 Proxy Authentication Required"),
            (format!("a.example:{port}"), "", "407 Proxy Authentication Required"),
        ] {
            let request = format!(
                "CONNECT {host} HTTP/1.1\r\nConnection: close\r\nProxy-Authorization: {login}\r\n\r\nhello"
            );
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
    async fn each_plain_request_is_for_the_host_of_its_url() {
        let (_tasks, address, login, port, _) = proxied(true).await;
        let request = format!(
            "POST http://A.Example.:{port}/x?y HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: {login}\r\n\
             Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\nAccept: */*\r\nContent-Length: 5\r\n\r\nhello\
             GET http://evil.example/ HTTP/1.1\r\nConnection: close\r\nProxy-Authorization: {login}\r\n\
             Authorization: secret\r\n\r\n"
        );
        let answers = ask(address, request.as_bytes()).await;
        let (first, second) = answers.split_once("HTTP/1.1 403 Forbidden\r\n").unwrap();
        let (_, forwarded) = first.split_once("POST /x?y HTTP/1.1\r\n").unwrap();
        for part in [&*format!("host: a.example:{port}\r\n"), "accept: */*\r\n", "\r\n\r\nhello"] {
            assert!(forwarded.contains(part), "{part}: {forwarded}");
        }
        for part in ["evil", "roxy", "pgrade", "secret"] {
            assert!(!forwarded.contains(part), "{part}: {forwarded}");
        }
        assert!(second.contains("do not reach evil.example"), "{second}");
        for wrong in [
            "GET / HTTP/1.1",
            "GET https://a.example/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "nonsense",
            "\u{16}\u{3}\u{1}",
        ] {
            let request =
                format!("{wrong}\r\nConnection: close\r\nProxy-Authorization: {login}\r\n\r\n");
            let answer = ask(address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{wrong}: {answer}");
        }
        let long = format!("GET http://a.example/ HTTP/1.1\r\nA: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(ask(address, long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    }

    #[tokio::test]
    async fn the_users_proxy_gets_a_plain_request_as_it_is_and_a_socks_proxy_any() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut proxy = CommandProxy::new(listener, false).unwrap();
        let (_tasks, socks, login, port, _) = proxied(true).await;
        proxy.plain_proxy = |target| Url::parse(&format!("http://127.0.0.1:{}", target.port)).ok();
        let listed = HostList::parse(&[format!("a.example:{port}")]);
        let (hosts, _) = CommandHosts::new(listed, std::iter::empty(), |_| HostVerdict::Ask);
        let address = proxy.address;
        let mut tasks = JoinSet::new();
        tasks.spawn(proxy.serve(Arc::new(hosts)));
        let request = format!(
            "POST http://A.Example:{port} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\
             Proxy-Authorization: Basic b3RoZXI=\r\nContent-Length: 5\r\n\r\nhello"
        );
        let answer = ask(address, request.as_bytes()).await;
        for part in [
            format!("POST http://a.example:{port}/ HTTP/1.1\r\n"),
            format!("host: a.example:{port}\r\n"),
        ] {
            assert!(answer.contains(&part) && !answer.contains("evil"), "{part}: {answer}");
            assert!(!answer.contains("roxy-"), "{answer}");
        }
        let refused =
            ask(address, b"GET http://evil.example/ HTTP/1.1\r\nConnection: close\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");

        let decoded = BASE64_STANDARD.decode(login.trim_start_matches("Basic ")).unwrap();
        let name_and_token = String::from_utf8(decoded).unwrap();
        let target = Target::parse(&format!("a.example:{port}"), None).unwrap();
        let through = format!("socks5h://{name_and_token}@{socks}");
        let mut stream = dial::dial_through(&through, &target).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        assert!(bytes.ends_with(b"hello"));
    }

    #[tokio::test]
    async fn requests_that_have_ended_are_forgotten() {
        let tasks = Tasks::default();
        for _ in 0..100 {
            tasks.spawn(async {});
            tokio::task::yield_now().await;
        }
        assert!(tasks.running.len() < 10);
    }

    #[tokio::test]
    async fn socks_takes_names_and_the_token_as_the_password() {
        let (_tasks, address, login, port, _) = proxied(true).await;
        let decoded = BASE64_STANDARD.decode(login.trim_start_matches("Basic ")).unwrap();
        let decoded = String::from_utf8(decoded).unwrap();
        let token = decoded.trim_start_matches("tw:");
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
        let right = ask(address, &request("a.example", token)).await;
        assert!(
            right.starts_with("\u{5}\u{2}\u{1}\0\u{5}\0") && right.ends_with("hello"),
            "{right:?}"
        );
        let refused = ask(address, &request("evil.example\0.b.example", token)).await;
        assert!(refused.starts_with("\u{5}\u{2}\u{1}\0\u{5}\u{2}"), "{refused:?}");
        let refused = ask(address, &request("evil.example", token)).await;
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
