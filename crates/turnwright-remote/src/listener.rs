//! Accepts sockets, and speaks HTTP on them.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::PATH;
use crate::access::AccessRules;
use crate::connection::{ObserveConnection, ServeConnection};
use crate::handshakes::{Handshake, Handshakes};
use crate::http_server::HttpServer;

#[cfg(target_os = "linux")]
use crate::silence::SILENCE_LIMIT;
use crate::tls::{TlsFiles, TlsFilesError, acceptor};
use turnwright_rpc::OutgoingFilter;

/// The maximum number of open sockets.
const MAX_SOCKETS: usize = 1_024;
/// The maximum number of sockets that wait to be accepted. A client for which there is no room tries again
/// after a second, so a burst must not fill it.
const BACKLOG: u32 = 1_024;
/// How long a client may take for the head of a request, and how long a socket is kept between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
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

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{0} can be reached by other machines, so a certificate is needed")]
    NeedsTls(SocketAddr),
    #[error(transparent)]
    TlsFiles(#[from] TlsFilesError),
    #[error("nothing can listen at {0}: {1}")]
    Bind(SocketAddr, io::Error),
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
    pub fn bind(options: ListenOptions) -> Result<Listener, ListenError> {
        let ListenOptions { address, access, tls } = options;
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(ListenError::NeedsTls(address));
        }
        let access =
            if tls.is_none() { access.listening_unencrypted(address.ip()) } else { access };
        let tls = tls.as_ref().map(acceptor).transpose()?;
        let socket = listen(address).map_err(|error| ListenError::Bind(address, error))?;
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
        let mut handshakes = Handshakes::default();
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
            let handshake = handshakes.begin();
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
        Some(tls) => match timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;
    use turnwright_rpc::{LineDirection, LineObserver};

    use super::*;
    use crate::http_server::READ_TIMEOUT;

    struct NoObserver;

    impl LineObserver for NoObserver {
        fn on_line(&self, _: LineDirection, _: &[u8]) {}
    }

    /// Sends these bytes on a socket and then nothing. Returns what is answered until the socket is closed, and
    /// after how many seconds that is.
    async fn answer_to(bytes: &str) -> (String, u64) {
        let access = AccessRules::new("secret", Vec::new());
        let serve: ServeConnection = Arc::new(|_| Box::pin(std::future::ready(())));
        let observe: ObserveConnection = Arc::new(|_| Arc::new(NoObserver));
        let server = Arc::new(HttpServer::new(access, |_, _| None, observe, serve));
        let (stream, mut client) = tokio::io::duplex(4096);
        client.write_all(bytes.as_bytes()).await.unwrap();
        let begin = Instant::now();
        let serving = serve_http(stream, server, Handshakes::default().begin());
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
}
