//! One connection to a server: a process with pipes, an HTTP client or a link, and `rmcp`'s service on top.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::Peer;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::any_transport::AnyTransport;
use super::elicitation::WaitingCalls;
use super::handler::ServerMessageHandler;
use super::http::{self, HttpConnection};
use super::link::LinkedServer;
use super::link_transport::LinkTransport;
use super::message_io;
use super::pool::ServerEnv;
use super::process::ServerProcess;
use super::program_setup::ProgramRequest;
use super::progress::ProgressRouter;
use super::spec::{ServerSpec, ServerTransport};
use turnwright_types::effect::{escape_hidden_line, shorten_title};
use turnwright_types::redact;
use turnwright_workspace::exec::{Environment, ProgramActivity};

/// How long `rmcp` may take to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// What is needed to connect, and until when.
#[derive(Debug)]
pub(super) struct ConnectRequest<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) env: &'a ServerEnv,
    pub(super) environment: &'a Environment,
    /// Notified when the server's tools or prompts have changed.
    pub(super) changed: Arc<Notify>,
    pub(super) callers: WaitingCalls,
    pub(super) activity: &'a ProgramActivity,
    /// Set once the server turns out to know only the protocol without a handshake.
    pub(super) is_modern: &'a AtomicBool,
    pub(super) stop: &'a CancellationToken,
    pub(super) deadline: Instant,
}

impl ConnectRequest<'_> {
    /// Runs a future until the server is stopped or the deadline passes.
    ///
    /// # Errors
    /// If the future did not complete.
    pub(super) async fn until_deadline<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> Result<T, String> {
        tokio::select! {
            output = future => Ok(output),
            () = self.stop.cancelled() => Err("it was stopped".to_owned()),
            () = sleep_until(self.deadline) => {
                let limit = self.spec.start_timeout().as_secs_f32();
                let download = self.spec.downloader().map(|it| format!(
                    ". `{it} …` may still have been downloading: run it once in a terminal, or set a \
                     higher `start_seconds` for the server"
                ));
                Err(format!("it was not ready within {limit} s{}", download.unwrap_or_default()))
            }
        }
    }
}

/// Why a connection could not be opened, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectFailure {
    /// For the user.
    pub(super) why: String,
    /// Retrying would not help.
    pub(super) is_final: bool,
    /// A login would help.
    pub(super) needs_login: bool,
}

/// Why an HTTP server cannot be used.
#[derive(Clone, Debug)]
pub(super) enum HttpFailure {
    /// With the reason, for the user.
    Failed(String),
    NeedsLogin,
}

impl From<String> for HttpFailure {
    fn from(why: String) -> HttpFailure {
        HttpFailure::Failed(why)
    }
}

impl From<HttpFailure> for ConnectFailure {
    fn from(unusable: HttpFailure) -> ConnectFailure {
        match unusable {
            HttpFailure::Failed(why) => why.into(),
            HttpFailure::NeedsLogin => ConnectFailure {
                why: "it requires a login".to_owned(),
                is_final: true,
                needs_login: true,
            },
        }
    }
}

impl From<String> for ConnectFailure {
    fn from(why: String) -> ConnectFailure {
        ConnectFailure { why, is_final: false, needs_login: false }
    }
}

/// An open connection to a server.
#[derive(Debug)]
pub(super) struct Connection {
    service: RunningService<RoleClient, ServerMessageHandler>,
    channel: Channel,
}

/// What is below `rmcp`'s service.
#[derive(Debug)]
enum Channel {
    Process(Box<ServerProcess>),
    Http(HttpConnection),
    /// Receives the reason when the link has no more answers.
    Link(watch::Receiver<Option<String>>),
}

impl Connection {
    /// # Errors
    /// If the server cannot be used.
    pub(super) async fn open(request: &ConnectRequest<'_>) -> Result<Connection, ConnectFailure> {
        let handler = ServerMessageHandler {
            roots: Arc::new(request.env.roots_of(request.spec)),
            changed: Arc::clone(&request.changed),
            server: request.spec.name.clone(),
            forms: request.env.supports_forms,
            callers: request.callers.clone(),
            progress: ProgressRouter::default(),
        };
        match &request.spec.transport {
            ServerTransport::Stdio { .. } => Connection::to_process(request, handler).await,
            ServerTransport::Http { url, headers } => {
                let opening = http::open(url, headers, &request.env.logins, handler);
                let (service, http) = request.until_deadline(opening).await??;
                Ok(Connection { service, channel: Channel::Http(http) })
            }
            ServerTransport::Linked(link) => {
                Connection::through_link(request, link.clone(), handler).await
            }
        }
    }

    /// Connects to a process, first with the handshake: most servers know it, and one that knows only
    /// the handshake may never answer `server/discover`. If the server refuses it, a new process is
    /// started and connected without a handshake.
    async fn to_process(
        request: &ConnectRequest<'_>,
        handler: ServerMessageHandler,
    ) -> Result<Connection, ConnectFailure> {
        let mut first = None;
        if !request.is_modern.load(Ordering::Relaxed) {
            match connect(request, handler.clone(), ClientLifecycleMode::Initialize).await {
                Ok(connection) => return Ok(connection),
                Err(LifecycleError::Refused(why)) => first = Some(why),
                Err(LifecycleError::Other(failure)) => return Err(failure),
            }
        }
        let failure = match connect(request, handler, without_handshake()).await {
            Ok(connection) => {
                request.is_modern.store(true, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(LifecycleError::Refused(why)) => {
                ConnectFailure { why, is_final: true, needs_login: false }
            }
            Err(LifecycleError::Other(failure)) => failure,
        };
        let why = match first {
            Some(first) => format!("{first}; without a handshake: {}", failure.why),
            None => failure.why,
        };
        Err(ConnectFailure { why, ..failure })
    }

    /// Connects to a server that the client runs. A link has no handshake. If the server does not answer now,
    /// another attempt would not change that.
    async fn through_link(
        request: &ConnectRequest<'_>,
        link: LinkedServer,
        handler: ServerMessageHandler,
    ) -> Result<Connection, ConnectFailure> {
        let (transport, reason) = LinkTransport::new(link);
        let opening =
            handler.serve_with_lifecycle(AnyTransport::new(transport), without_handshake());
        let why = match request.until_deadline(opening).await {
            Ok(Ok(service)) => {
                return Ok(Connection { service, channel: Channel::Link(reason) });
            }
            Ok(Err(error)) => {
                let lost = reason.borrow().as_deref().map(|it| brief(&it));
                let unusual =
                    || format!("it does not answer like an MCP server: {}", brief(&error));
                lost.or_else(|| refusal(&error)).unwrap_or_else(unusual)
            }
            Err(why) => why,
        };
        Err(ConnectFailure { why, is_final: true, needs_login: false })
    }

    pub(super) fn progress(&self) -> ProgressRouter {
        self.service.service().progress.clone()
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// The server's name and version, and the protocol version.
    pub(super) fn server_info(&self) -> (String, String) {
        let Some(info) = self.peer().peer_info() else { return Default::default() };
        let title = info.server_info.as_ref().map(|it| format!("{} {}", it.name, it.version));
        let title = shorten_title(escape_hidden_line(&title.unwrap_or_default()));
        (title, info.protocol_version.to_string())
    }

    /// True if the server sends change notifications only to subscribers.
    pub(super) fn needs_subscription(&self) -> bool {
        self.peer().peer_info().is_some_and(|it| {
            let list_changed = it.capabilities.tools.as_ref().and_then(|it| it.list_changed);
            !it.protocol_version.has_initialize() && list_changed == Some(true)
        })
    }

    /// Waits for the connection to end, and describes how it ended.
    pub(super) async fn ended(&mut self) -> String {
        match &mut self.channel {
            Channel::Process(process) => process.ended().await,
            Channel::Http(http) => http.lost().await,
            Channel::Link(reason) => {
                // Not known if the sender is gone: `rmcp` has ended by itself.
                let lost = reason.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
                lost.map_or_else(|| "the connection was closed".to_owned(), |it| brief(&it))
            }
        }
    }

    /// Adds the end of a process's stderr to a message.
    pub(super) fn with_stderr(&self, message: String) -> String {
        match &self.channel {
            Channel::Process(process) => process.with_stderr(message),
            Channel::Http(_) | Channel::Link(_) => message,
        }
    }

    /// Ends the connection. The stdin of a process is closed first, as the protocol requires.
    pub(super) async fn close(self) {
        // Dropping the service closes the pipes, and cancels the requests of a link.
        let is_http = matches!(self.channel, Channel::Http(_));
        let limit = if is_http { http::DELETE_TIMEOUT } else { CLOSE_TIMEOUT };
        drop(timeout(limit, self.service.cancel()).await);
        if let Channel::Process(process) = self.channel {
            process.stop().await;
        }
    }
}

/// The lifecycle of the protocol's newest version.
fn without_handshake() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// Why a lifecycle mode did not work.
enum LifecycleError {
    /// The server refuses this mode, but may accept another.
    Refused(String),
    Other(ConnectFailure),
}

/// Starts the process and connects to it in the given mode.
async fn connect(
    request: &ConnectRequest<'_>,
    handler: ServerMessageHandler,
    mode: ClientLifecycleMode,
) -> Result<Connection, LifecycleError> {
    let Some(program_request) = ProgramRequest::new(request.spec, request.env, request.environment)
    else {
        return Err(LifecycleError::Other("it is not a local program".to_owned().into()));
    };
    let started = ServerProcess::start(program_request, request.activity).await;
    let (mut process, output, input) = started.map_err(|why| {
        LifecycleError::Other(ConnectFailure { why, is_final: true, needs_login: false })
    })?;
    let transport = AsyncRwTransport::new_client(output, input);
    let transport =
        transport.with_max_line_length(message_io::MAX_MESSAGE_BYTES + message_io::RETAINED_BYTES);
    let opening = handler.serve_with_lifecycle(AnyTransport::new(transport), mode);
    let error = match request.until_deadline(opening).await {
        Ok(Ok(service)) => match check_version(&service) {
            None => {
                return Ok(Connection { service, channel: Channel::Process(Box::new(process)) });
            }
            Some(why) => {
                drop(timeout(CLOSE_TIMEOUT, service.cancel()).await);
                LifecycleError::Refused(why)
            }
        },
        Ok(Err(error)) => match refusal(&error) {
            Some(why) => LifecycleError::Refused(why),
            None if matches!(
                error,
                ClientInitializeError::ConnectionClosed(_)
                    | ClientInitializeError::TransportError { .. }
            ) =>
            {
                LifecycleError::Other(process.ended().await.into())
            }
            None => {
                let why = format!("it does not answer like an MCP server: {}", brief(&error));
                LifecycleError::Other(process.with_stderr(why).into())
            }
        },
        Err(why) => LifecycleError::Other(process.with_stderr(why).into()),
    };
    process.stop_starting(request.spec.downloader().is_some()).await;
    Err(error)
}

fn check_version(service: &RunningService<RoleClient, ServerMessageHandler>) -> Option<String> {
    let revision = service.peer().peer_info()?.protocol_version.clone();
    let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(&revision);
    (!is_known).then(|| unsupported_version(&[revision]))
}

fn unsupported_version(theirs: &[ProtocolVersion]) -> String {
    let names: Vec<_> = theirs.iter().take(5).map(ToString::to_string).collect();
    let theirs = if names.is_empty() { "another one".to_owned() } else { names.join(", ") };
    let theirs = shorten_title(escape_hidden_line(&theirs));
    format!("it uses protocol version {theirs}; supported are 2024-11-05 to 2026-07-28")
}

/// The reason, if the server answered and refused the lifecycle mode.
fn refusal(error: &ClientInitializeError) -> Option<String> {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            Some(format!("it refused the connection: {}", brief(&error.message)))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            Some(unsupported_version(server_supported))
        }
        _ => None,
    }
}

/// Makes one short line without API keys of a server's text.
fn brief(said: &impl std::fmt::Display) -> String {
    shorten_title(escape_hidden_line(&redact::text(&said.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_lifecycle_is_told_apart_from_a_broken_server() {
        let error = rmcp::ErrorData::method_not_found::<rmcp::model::PingRequestMethod>();
        let refused = refusal(&ClientInitializeError::JsonRpcError(error));
        assert!(refused.unwrap().starts_with("it refused the connection: "));
        let versions = serde_json::from_value(serde_json::json!(["2031-01-01"])).unwrap();
        let strange = ClientInitializeError::NoCompatibleProtocolVersion {
            client_supported: Vec::new(),
            server_supported: versions,
        };
        assert_eq!(
            refusal(&strange).unwrap(),
            "it uses protocol version 2031-01-01; supported are 2024-11-05 to 2026-07-28"
        );
        assert_eq!(refusal(&ClientInitializeError::Cancelled), None);
    }
}
