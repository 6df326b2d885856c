//! Accepts sockets, and speaks HTTP on them, inside TLS if there is a certificate.
//!
//! When too many sockets wait whose clients have not shown the token yet, the oldest is closed, so that clients
//! which open sockets and send nothing keep nobody else out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::crypto::ring as provider;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::access::AccessRules;
use crate::http_server::{HttpServer, MAX_CONNECTIONS, READ_TIMEOUT};
#[cfg(target_os = "linux")]
use crate::silence::SILENCE_LIMIT;
use crate::{ObserveConnection, PATH, ServeConnection};
use turnwright_rpc::OutgoingFilter;

/// The maximum number of open sockets.
const MAX_SOCKETS: usize = 1_024;
/// The maximum number of sockets that wait to be accepted. A client for which there is no room tries again
/// after a second, so a burst must not fill it.
const BACKLOG: u32 = 1_024;
/// How long a client may take for the head of a request, and how long a socket is kept between requests: longer than
/// proxies keep theirs (at most two minutes), since a request that is sent while a socket is closed is lost.
const HEAD_TIMEOUT: Duration = Duration::from_secs(150);
/// The pause in accepting after the system had no room for another socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The response to clients for which there is no room.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Where and how to listen.
#[derive(Debug)]
pub struct ListenOptions {
    pub address: SocketAddr,
    pub access: AccessRules,
    /// Without it only this machine can be served.
    pub tls: Option<TlsFiles>,
}

/// A listening socket that accepts nothing yet.
pub struct Listener {
    socket: TcpListener,
    access: AccessRules,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Begins to listen. Reads the files of the certificate, which blocks.
    ///
    /// # Errors
    /// If other machines could reach an address without TLS, if the certificate cannot be used, or if the
    /// system refuses the address.
    pub fn bind(options: ListenOptions) -> io::Result<Listener> {
        let ListenOptions { address, access, tls } = options;
        if tls.is_none() && !address.ip().is_loopback() {
            let why = "can be reached by other machines, so a certificate is needed";
            return Err(io::Error::other(format!("{address} {why}")));
        }
        let access =
            if tls.is_none() { access.listening_unencrypted(address.ip()) } else { access };
        let tls = tls.as_ref().map(acceptor).transpose()?;
        let socket = listen(address).map_err(|error| {
            io::Error::other(format!("nothing can listen at {address}: {error}"))
        })?;
        Ok(Listener { socket, access, tls })
    }

    /// The address of the agent for clients that open a WebSocket. With `https` instead of `wss`, or `http`
    /// instead of `ws`, it is the address of the HTTP transport.
    ///
    /// # Errors
    /// If the system does not report the port.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        Ok(format!("{scheme}://{}{PATH}", self.socket.local_addr()?))
    }

    /// Accepts connections until `stop` is cancelled, and then waits until all have ended. Each is given to
    /// `serve`; `filter` sees every message to a client, and the observer from `observe` sees the lines of a
    /// connection.
    pub async fn run(
        self,
        serve: ServeConnection,
        filter: OutgoingFilter,
        observe: ObserveConnection,
        stop: CancellationToken,
    ) {
        let Listener { socket, access, tls } = self;
        let server = Arc::new(HttpServer::new(access, filter, observe, serve));
        let mut waiting = VecDeque::new();
        let places = Arc::new(Semaphore::new(MAX_SOCKETS));
        while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
            let (stream, _) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                refuse(stream);
                continue;
            };
            // Small messages go out at once.
            stream.set_nodelay(true).ok();
            give_up_if_unreachable(&stream);
            let handshake = begin_handshake(&mut waiting);
            let evicted = handshake.evicted.clone();
            let socket_server = Arc::clone(&server);
            let socket_tls = tls.clone();
            let socket_stop = stop.clone();
            server.tasks.spawn(async move {
                let serving = serve_socket(stream, socket_tls, socket_server, handshake);
                tokio::select! {
                    () = serving => {}
                    () = evicted.cancelled() => {}
                    () = socket_stop.cancelled() => {}
                }
                drop(place);
            });
        }
        server.end_connections();
        server.tasks.close();
        server.tasks.wait().await;
    }
}

/// Listens at an address.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Elsewhere this would let another program listen at the same address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Makes the system close the socket if the client's machine acknowledges nothing for a while. Otherwise it
/// takes a quarter of an hour to notice that a network is gone.
fn give_up_if_unreachable(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        let milliseconds = u32::try_from(SILENCE_LIMIT.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds) {
            tracing::debug!(%error, "a socket has no time limit");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// Tells a client that there is no room, if its socket takes that much at once.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        drop(stream.write(NO_ROOM));
    }
}

async fn serve_socket(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    server: Arc<HttpServer>,
    handshake: Arc<Handshake>,
) {
    match tls {
        None => serve_http(stream, server, handshake).await,
        Some(tls) => match timeout(READ_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, server, handshake).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        },
    }
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: Arc<HttpServer>,
    handshake: Arc<Handshake>,
) {
    let service = service_fn(|request| {
        let server = &server;
        let handshake = &handshake;
        async move { Ok::<_, Infallible>(server.answer(request, || handshake.admit()).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a socket was closed");
    }
}

/// The maximum number of sockets that wait for their first authorised request: all clients may come back at
/// once.
const MAX_WAITING: usize = MAX_CONNECTIONS;

/// A socket that is waiting, until this is dropped or the socket is admitted.
#[derive(Debug, Default)]
struct Handshake {
    is_admitted: AtomicBool,
    /// Cancelled when the socket has to make room for others.
    evicted: CancellationToken,
}

/// Adds a socket to those that are waiting, oldest first. Sockets that no longer wait stay in the list until it is
/// full.
fn begin_handshake(waiting: &mut VecDeque<Weak<Handshake>>) -> Arc<Handshake> {
    if waiting.len() >= MAX_WAITING {
        waiting.retain(|socket| socket.upgrade().is_some_and(|socket| socket.is_waiting()));
    }
    if waiting.len() >= MAX_WAITING
        && let Some(oldest) = waiting.pop_front().and_then(|socket| socket.upgrade())
    {
        oldest.evicted.cancel();
    }
    let handshake = Arc::new(Handshake::default());
    waiting.push_back(Arc::downgrade(&handshake));
    handshake
}

impl Handshake {
    /// Notes that the client has shown the token: the socket is no longer closed for others.
    fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    fn is_waiting(&self) -> bool {
        !self.is_admitted.load(Ordering::Relaxed)
    }
}

/// The files of a certificate and its key, in the format PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

fn unreadable(file: &Path, error: &pem::Error) -> io::Error {
    let why = match error {
        pem::Error::NoItemsFound => "there is no certificate or key in the format PEM".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    io::Error::other(format!("{}: {why}", file.display()))
}

fn unusable(error: &rustls::Error) -> io::Error {
    io::Error::other(format!("the certificate and the key cannot be used: {error}"))
}

/// Reads the files. Blocks.
fn acceptor(files: &TlsFiles) -> io::Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|all| if all.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(all) })
        .map_err(|error| unreadable(&files.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// Sends these bytes on a socket and then nothing. Returns what is answered until the socket is closed, and
    /// after how many seconds that is.
    async fn answer_to(bytes: &str) -> (String, u64) {
        let access = AccessRules::new("secret", Vec::new(), Vec::new());
        let serve: ServeConnection = Arc::new(|_| Box::pin(std::future::ready(())));
        let observe: ObserveConnection = Arc::new(|_| Arc::new(|_, _: &[u8]| ()));
        let server = Arc::new(HttpServer::new(access, |_, _| None, observe, serve));
        let (stream, mut client) = tokio::io::duplex(4096);
        client.write_all(bytes.as_bytes()).await.unwrap();
        let begin = Instant::now();
        let serving = serve_http(stream, server, begin_handshake(&mut VecDeque::new()));
        let mut answer = String::new();
        let (read, ()) = tokio::join!(client.read_to_string(&mut answer), serving);
        read.unwrap();
        (answer, begin.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_end_is_given_up() {
        let head = "POST /acp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\n\
            content-type: application/json\r\nconnection: close\r\ncontent-length: 100\r\n";
        let table = [
            ("", "", HEAD_TIMEOUT),
            ("GET /acp HT", "", HEAD_TIMEOUT),
            (head, "", HEAD_TIMEOUT),
            // Proxies send the next request on the same socket: cloudflared for 90 seconds, Caddy for 120.
            (
                "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
                "HTTP/1.1 401 ",
                Duration::from_secs(150),
            ),
            (&format!("{head}\r\n{{"), "HTTP/1.1 408 ", READ_TIMEOUT),
        ];
        for (bytes, expected, after) in table {
            let (answer, seconds) = answer_to(bytes).await;
            assert!(answer.starts_with(expected) && expected.is_empty() == answer.is_empty());
            assert_eq!(seconds, after.as_secs(), "{bytes}: {answer}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_gives_up_a_socket_whose_machine_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, _client) = tokio::join!(listener.accept(), client);
        let (socket, _) = accepted.unwrap();
        give_up_if_unreachable(&socket);
        let limit = rustix::net::sockopt::tcp_user_timeout(&socket).unwrap();
        assert_eq!(u128::from(limit), SILENCE_LIMIT.as_millis());
    }

    #[test]
    fn the_oldest_socket_that_waits_makes_room() {
        let mut all = VecDeque::new();
        let admitted = begin_handshake(&mut all);
        admitted.admit();
        drop(begin_handshake(&mut all));
        let waiting: Vec<_> = (0..=MAX_WAITING).map(|_| begin_handshake(&mut all)).collect();
        let evicted: Vec<_> = waiting.iter().map(|socket| socket.evicted.is_cancelled()).collect();
        assert!(!admitted.evicted.is_cancelled());
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
        drop(waiting);
        assert!(all.iter().all(|socket| socket.upgrade().is_none()));
    }
}
