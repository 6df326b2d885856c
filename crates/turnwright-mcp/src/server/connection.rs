//! One connection to a server: a process with pipes, HTTP or a link.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ServerTask;
use super::handshake::{self, HandshakeError, NEWEST_VERSION};
use super::spec::{ServerSpec, ServerTransport};
use crate::call::server_requests::ServerMessageHandler;
use crate::transport::http::channel::HttpChannel;
use crate::transport::http::{self, DELETE_TIMEOUT, HttpConnection};
use crate::transport::link::{LinkChannel, LinkedServer};
use crate::transport::process::{self, ServerProcess};
use crate::transport::program_setup::ProgramRequest;
use crate::transport::{Channel, Peer, PeerError};
use turnwright_types::effect::{escape_hidden_line, shorten_title};
use turnwright_types::patience::{sleep_until, timeout};
use turnwright_types::redact;

/// Time limit for writing queued messages when a connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// An attempt to connect to a server.
pub(super) struct ConnectRequest<'a> {
    pub(super) server: &'a ServerTask,
    pub(super) stop: &'a CancellationToken,
    pub(super) deadline: Instant,
}

impl ConnectRequest<'_> {
    fn handler(&self) -> ServerMessageHandler {
        let ServerTask { spec, env, changed, callers, .. } = self.server;
        ServerMessageHandler {
            roots: Arc::new(env.roots_of(spec)),
            changed: Arc::clone(changed),
            server: spec.name.clone(),
            elicitation: env.elicitation,
            callers: callers.clone(),
        }
    }

    /// Runs a future until the server is stopped or the deadline passes.
    pub(super) async fn until_deadline<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> Result<T, String> {
        tokio::select! {
            output = future => Ok(output),
            () = self.stop.cancelled() => Err("it was stopped".to_owned()),
            () = sleep_until(self.deadline) => {
                let limit = self.server.spec.start_timeout().as_secs_f32();
                let download = self.server.spec.downloader().map(|program| format!(
                    ". `{program} …` may still have been downloading: run it once in a terminal, or set a \
                     higher `start_seconds` for the server"
                ));
                Err(format!("it was not ready within {limit} s{}", download.unwrap_or_default()))
            }
        }
    }
}

/// Why a connection could not be opened, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// With the reason, for the user.
    Failed(String),
    /// The same, if another attempt would fail in the same way.
    Lasting(String),
    /// The same, if the server may accept the other way to begin: with the handshake or without.
    Refused(String),
    NeedsLogin,
}

impl ConnectFailure {
    /// The reason, for the user.
    pub(crate) fn why(&self) -> &str {
        match self {
            ConnectFailure::Failed(why)
            | ConnectFailure::Lasting(why)
            | ConnectFailure::Refused(why) => why,
            ConnectFailure::NeedsLogin => "it requires a login",
        }
    }
}

impl From<String> for ConnectFailure {
    fn from(why: String) -> ConnectFailure {
        ConnectFailure::Failed(why)
    }
}

/// An open connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: Peer,
    kind: ConnectionKind,
    /// The tasks that carry the messages. Dropping them ends the connection.
    tasks: JoinSet<()>,
}

/// The process, HTTP channel or link that the connection depends on.
#[derive(Debug)]
enum ConnectionKind {
    Process(Box<ServerProcess>),
    Http(Arc<HttpChannel>),
    /// Receives the reason when the link has no more answers.
    Link(watch::Receiver<Option<String>>),
}

type Opened = Result<Connection, ConnectFailure>;

impl Connection {
    pub(super) async fn open(request: &ConnectRequest<'_>) -> Opened {
        let ServerTask { spec, env, .. } = request.server;
        match &spec.transport {
            ServerTransport::Stdio { .. } => Connection::to_process(request).await,
            ServerTransport::Http { url, headers } => {
                let opening = async {
                    let made = HttpConnection::new(url, headers, &env.logins).await;
                    let connection = made.map_err(ConnectFailure::Lasting)?;
                    Connection::over_http(connection, request.handler()).await
                };
                Box::pin(request.until_deadline(opening)).await?
            }
            ServerTransport::Linked(link) => Connection::through_link(request, link.clone()).await,
        }
    }

    /// Connects to a process, first with the handshake: most servers know it, and one that knows only
    /// the handshake may never answer `server/discover`. If the server refuses it, a new process is
    /// started and connected without a handshake.
    async fn to_process(request: &ConnectRequest<'_>) -> Opened {
        let mut first = None;
        if !request.server.is_modern.load(Ordering::Relaxed) {
            match connect(request, true).await {
                Err(ConnectFailure::Refused(why)) => first = Some(why),
                opened => return opened,
            }
        }
        let failure = match connect(request, false).await {
            Ok(connection) => {
                request.server.is_modern.store(true, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(failure) => failure,
        };
        let Some(first) = first else { return Err(failure) };
        let why = format!("{first}; without a handshake: {}", failure.why());
        Err(match failure {
            ConnectFailure::Failed(_) => ConnectFailure::Failed(why),
            _ => ConnectFailure::Lasting(why),
        })
    }

    /// Connects over HTTP: first with a handshake, which all servers knew until 2025, and without one if
    /// that fails.
    async fn over_http(connection: HttpConnection, handler: ServerMessageHandler) -> Opened {
        let channel = |version| {
            let (http, answers) = HttpChannel::new(connection.clone(), version);
            (Peer::new(Channel::Http(Arc::clone(&http)), handler.clone()), http, answers)
        };
        let (mut peer, mut http, mut answers) = channel(None);
        if let Err(error) = handshake::initialize(&peer).await {
            match connection.last_failure() {
                Some(failure) if failure.is_conclusive => return Err(failure.reason),
                _ => tracing::debug!(%error, "the handshake failed"),
            }
            (peer, http, answers) = channel(Some(NEWEST_VERSION));
            if let Err(error) = handshake::discover(&peer).await {
                let known = connection.last_failure().map(|failure| failure.reason);
                return Err(known.unwrap_or_else(|| http::unexpected(&error.to_string())));
            }
        }
        let tasks = http.start_tasks(&peer, answers);
        Ok(Connection { peer, kind: ConnectionKind::Http(http), tasks })
    }

    /// Connects to a server that the client runs. A link has no handshake. If the server does not answer now,
    /// another attempt would not change that.
    async fn through_link(request: &ConnectRequest<'_>, link: LinkedServer) -> Opened {
        let link = LinkChannel::new(link);
        let reason = link.lost();
        let peer = Peer::new(Channel::Link(link), request.handler());
        let why = match request.until_deadline(handshake::discover(&peer)).await {
            Ok(Ok(())) => {
                let kind = ConnectionKind::Link(reason);
                return Ok(Connection { peer, kind, tasks: JoinSet::new() });
            }
            Ok(Err(error)) => {
                let lost = reason.borrow().as_deref().map(|reason| brief(&reason));
                lost.or_else(|| refusal(&error)).unwrap_or_else(|| no_server(&error))
            }
            Err(why) => why,
        };
        peer.close();
        Err(ConnectFailure::Lasting(why))
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The server's name and version, and the protocol version.
    pub(crate) fn server_info(&self) -> (String, String) {
        let Some(info) = self.peer.info() else { return Default::default() };
        (shorten_title(escape_hidden_line(&info.title)), info.version.clone())
    }

    /// True if the server sends change notifications only to subscribers.
    pub(crate) fn needs_subscription(&self) -> bool {
        self.peer.info().is_some_and(|info| !info.has_handshake() && info.announces_tools())
    }

    /// Waits for the connection to end, and describes how it ended.
    pub(crate) async fn ended(&mut self) -> String {
        match &mut self.kind {
            ConnectionKind::Process(process) => process.ended().await,
            ConnectionKind::Http(http) => http.connection.lost().await,
            ConnectionKind::Link(reason) => {
                // Not known if the peer is gone.
                let lost =
                    reason.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
                lost.map_or_else(|| "the connection was closed".to_owned(), |reason| brief(&reason))
            }
        }
    }

    /// Returns the reason for which a server over HTTP refuses this client, if it lets everyone connect and refuses
    /// only what follows. `why` is the text of the failure that this may explain.
    pub(crate) fn refusal(&self, why: &str) -> Option<ConnectFailure> {
        let ConnectionKind::Http(http) = &self.kind else { return None };
        let reason = http.connection.last_failure()?.reason;
        let is_meant = why == reason.why() || why.contains("HTTP 40");
        (is_meant && !matches!(reason, ConnectFailure::Failed(_))).then_some(reason)
    }

    /// Adds the end of a process's stderr to a message.
    pub(crate) fn with_stderr(&self, message: String) -> String {
        let ConnectionKind::Process(process) = &self.kind else { return message };
        process.with_stderr(message)
    }

    /// Ends the connection. The stdin of a process is closed first, as the protocol requires.
    pub(crate) async fn close(mut self) {
        // The cancellation of a task must still be sent. For a process, it is in the queue already.
        if !matches!(self.kind, ConnectionKind::Process(_)) {
            timeout(CLOSE_TIMEOUT, self.peer.tasks_ended()).await.ok();
        }
        self.peer.close();
        timeout(CLOSE_TIMEOUT, self.peer.tasks_ended()).await.ok();
        match self.kind {
            ConnectionKind::Process(process) => {
                close_pipes(self.tasks).await;
                process.stop(false).await;
            }
            ConnectionKind::Http(http) => {
                self.tasks.shutdown().await;
                timeout(DELETE_TIMEOUT, http.close()).await.ok();
            }
            ConnectionKind::Link(_) => {}
        }
    }
}

/// Waits until all queued messages are written, then closes the pipes.
async fn close_pipes(mut tasks: JoinSet<()>) {
    timeout(CLOSE_TIMEOUT, tasks.join_next()).await.ok();
    tasks.shutdown().await;
}

/// Starts the process and connects to it, with the handshake or without.
async fn connect(request: &ConnectRequest<'_>, has_handshake: bool) -> Opened {
    let server = request.server;
    let program = ProgramRequest {
        spec: server.spec.clone(),
        env: server.env.clone(),
        environment: server.environment.clone(),
    };
    let started = ServerProcess::start(program, &server.activity).await;
    let (mut process, output, input) = started.map_err(ConnectFailure::Lasting)?;
    let (peer, tasks) = process::connect(output, input, request.handler());
    let beginning = async {
        if has_handshake {
            handshake::initialize(&peer).await
        } else {
            handshake::discover(&peer).await
        }
    };
    let within_memory = async {
        tokio::select! {
            () = process.memory_exceeded() => None,
            result = Box::pin(beginning) => Some(result),
        }
    };
    let failure = match request.until_deadline(within_memory).await {
        Ok(Some(Ok(()))) => match peer.info().filter(|info| !info.has_known_version()) {
            None => {
                let kind = ConnectionKind::Process(Box::new(process));
                return Ok(Connection { peer, kind, tasks });
            }
            Some(info) => {
                ConnectFailure::Refused(unsupported_version(std::slice::from_ref(&info.version)))
            }
        },
        Ok(None) => process.ended().await.into(),
        Ok(Some(Err(error))) => match (refusal(&error), &error) {
            (Some(why), _) => ConnectFailure::Refused(why),
            (None, HandshakeError::Peer(_)) => {
                let has_sandbox = server.env.profile.is_some();
                (process.ended().await + container_hint(&server.spec, has_sandbox)).into()
            }
            (None, _) => process.with_stderr(no_server(&error)).into(),
        },
        Err(why) => process.with_stderr(why).into(),
    };
    peer.close();
    close_pipes(tasks).await;
    process.stop(server.spec.downloader().is_some()).await;
    Err(failure)
}

/// Added to the failure of a server that `docker` or `podman` should have started, which only asks whether the daemon
/// is running.
fn container_hint(spec: &ServerSpec, has_sandbox: bool) -> &'static str {
    match spec.downloader() {
        Some("docker" | "podman") if has_sandbox && spec.is_confined_program() => {
            ". In the sandbox it cannot reach the daemon: `sandbox = false` in the server's settings runs \
             it outside"
        }
        _ => "",
    }
}

fn no_server(error: &HandshakeError) -> String {
    format!("it does not answer like an MCP server: {}", brief(error))
}

fn unsupported_version(theirs: &[String]) -> String {
    let theirs = match theirs {
        [] => "another one".to_owned(),
        names => names[..names.len().min(5)].join(", "),
    };
    let theirs = shorten_title(escape_hidden_line(&theirs));
    format!("it uses protocol version {theirs}; supported are 2024-11-05 to 2026-07-28")
}

/// The reason, if the server answered and refused the way to begin.
fn refusal(error: &HandshakeError) -> Option<String> {
    match error {
        HandshakeError::Peer(PeerError::ErrorResponse(error)) => {
            Some(format!("it refused the connection: {}", brief(&error.message)))
        }
        HandshakeError::UnsupportedVersion(theirs) => Some(unsupported_version(theirs)),
        _ => None,
    }
}

/// Shortens a server's text to one line without API keys.
fn brief(said: &impl std::fmt::Display) -> String {
    shorten_title(escape_hidden_line(&redact::text(&said.to_string())))
}

#[cfg(test)]
mod tests {
    use turnwright_rpc::RpcError;

    use super::*;
    use crate::server::spec::ServerSource;

    #[test]
    fn a_container_that_fails_in_the_sandbox_is_said_to_reach_no_daemon() {
        // Each row: the program, and whether there is a sandbox, whether it is used, and whether there is a hint.
        let table = [
            ("/usr/bin/docker", true, true, true),
            ("podman", true, true, true),
            ("docker", false, true, false),
            ("docker", true, false, false),
            ("npx", true, true, false),
        ];
        for (command, has_sandbox, is_enabled, expected) in table {
            let transport = ServerTransport::Stdio {
                command: command.into(),
                arguments: Vec::new(),
                environment: Vec::new(),
            };
            let mut spec = ServerSpec::new("s", ServerSource::User, transport);
            spec.sandbox.is_enabled = is_enabled;
            let hint = container_hint(&spec, has_sandbox);
            assert_eq!(hint.contains("sandbox = false"), expected, "{command}");
        }
    }

    #[test]
    fn a_refused_handshake_is_told_apart_from_a_broken_server() {
        let error = PeerError::ErrorResponse(RpcError::method_not_found("initialize"));
        let refused = refusal(&error.into());
        assert!(refused.unwrap().starts_with("it refused the connection: "));
        let strange = HandshakeError::UnsupportedVersion(vec!["2031-01-01".to_owned()]);
        assert_eq!(
            refusal(&strange).unwrap(),
            "it uses protocol version 2031-01-01; supported are 2024-11-05 to 2026-07-28"
        );
        assert_eq!(refusal(&PeerError::Closed.into()), None);
    }
}
