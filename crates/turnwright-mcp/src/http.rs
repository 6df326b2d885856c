//! The HTTP client below `rmcp`'s streamable HTTP transport. It sends the configured headers or a login's
//! token, follows no redirect to another origin, and interprets failures.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::model::{ClientJsonRpcMessage, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthError;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::any_transport::AnyTransport;
use super::connection::HttpFailure;
use super::event_pacer::EventPacer;
use super::handler::ServerMessageHandler;
use super::login_store::{LoginStore, ServerLogin};
use super::spec::{SecretValue, ServerTransport};
use turnwright_http::{ConnectionFault, Tls};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::redact;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The TCP keep-alive interval.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Maximum size of an event. A response that is not a stream has the same limit, set by `rmcp`.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
const MAX_REDIRECTS: usize = 3;
/// How long the request that deletes a session may take.
pub(super) const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a server's text in an error message.
const MAX_TEXT_CHARS: usize = 300;
/// Headers that belong to the transport or the protocol and cannot be configured.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// `rmcp`'s error of a request.
type TransportError = StreamableHttpError<reqwest::Error>;

impl ServerTransport {
    /// Creates an HTTP transport that sends these headers with each request.
    ///
    /// # Errors
    /// If the address or a header is invalid. The text is for the user and contains no header value.
    pub fn http(
        url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<ServerTransport, String> {
        let url = Url::parse(url)
            .ok()
            .filter(|it| matches!(it.scheme(), "http" | "https") && it.has_host())
            .ok_or("its address is not an http or https URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "its address contains a user name or password, which would be shown: use a \
                        header instead"
                    .to_owned(),
            );
        }
        let headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, SecretValue::from(value))).collect();
        header_map(&headers)?;
        Ok(ServerTransport::Http { url, headers })
    }
}

/// Validates and converts headers.
fn header_map(
    headers: &[(String, SecretValue)],
) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let convert = |(name, value): &(String, SecretValue)| {
        let shown = escape_hidden_line(name);
        let invalid = || format!("the header `{shown}` contains invalid characters");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        if RESERVED_HEADERS.contains(&key.as_str()) {
            return Err(format!("the header `{key}` cannot be set"));
        }
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok((key, value))
    };
    headers.iter().map(convert).collect()
}

/// A running service, and the HTTP connection below it.
pub(super) type HttpService = (RunningService<RoleClient, ServerMessageHandler>, HttpConnection);

/// Connects to a server: first with a handshake, which all servers knew until 2025, and without one if
/// that fails.
///
/// # Errors
/// If the server cannot be used.
pub(super) async fn open(
    url: &Url,
    headers: &[(String, SecretValue)],
    logins: &LoginStore,
    handler: ServerMessageHandler,
) -> Result<HttpService, HttpFailure> {
    let connection =
        HttpConnection::new(url, headers, logins, Arc::clone(&handler.changed)).await?;
    let headers = header_map(headers)?;
    let transport = || {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers.clone())
            .max_sse_event_size(MAX_EVENT_BYTES);
        config.session_recovery_timeout = CONNECT_TIMEOUT;
        AnyTransport::new(StreamableHttpClientTransport::with_client(connection.clone(), config))
    };
    let handshake = ClientLifecycleMode::Initialize;
    match handler.clone().serve_with_lifecycle(transport(), handshake).await {
        Ok(service) => return Ok((service, connection)),
        Err(error) => match connection.last_failure() {
            Some(failure) if failure.is_conclusive => return Err(failure.reason),
            _ => tracing::debug!(%error, "the handshake failed"),
        },
    }
    let modern =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    match handler.serve_with_lifecycle(transport(), modern).await {
        Ok(service) => Ok((service, connection)),
        Err(error) => {
            let failure = connection.last_failure();
            Err(failure.map_or_else(|| unexpected(&error.to_string()), |it| it.reason))
        }
    }
}

fn unexpected(response: &str) -> HttpFailure {
    let response = display_line(response);
    HttpFailure::Failed(format!("it did not answer like an MCP server: {response}"))
}

/// Makes one short line of a server's text that is safe to show, without the keys that it may repeat.
pub(super) fn display_line(text: &str) -> String {
    let line = escape_hidden_line(&redact::text(text)).trim().to_owned();
    match line.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The HTTP client of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct HttpConnection {
    client: Client,
    /// The login whose token is sent; `None` if the user has configured an `Authorization` header, or
    /// if a token must not be sent.
    login: Option<ServerLogin>,
    has_key: bool,
    // Held only to copy a short text.
    last: Arc<Mutex<Option<RequestFailure>>>,
    lost: CancellationToken,
    changed: Arc<Notify>,
    pacer: EventPacer,
}

/// Why a request failed.
#[derive(Clone, Debug)]
struct RequestFailure {
    reason: HttpFailure,
    /// The failure would be the same with another version of the protocol.
    is_conclusive: bool,
    /// The connection cannot be used any more.
    ends_connection: bool,
}

impl HttpConnection {
    async fn new(
        url: &Url,
        headers: &[(String, SecretValue)],
        logins: &LoginStore,
        changed: Arc<Notify>,
    ) -> Result<HttpConnection, String> {
        redact::register_keys(headers.iter().filter_map(|(_, value)| credential(value)))
            .map_err(|error| error.to_string())?;
        let is_key = |name: &String| name.eq_ignore_ascii_case("authorization");
        let has_key = headers.iter().any(|(name, _)| is_key(name));
        let login = logins.login_for(url).filter(|_| !has_key);
        let tls = Tls::for_scheme(url.scheme());
        let client = tokio::task::spawn_blocking(move || build_client(tls)).await;
        let client = client.map_err(|error| error.to_string())?;
        let client =
            client.map_err(|error| format!("the HTTP client could not be created: {error}"))?;
        let lost = CancellationToken::new();
        Ok(HttpConnection {
            client,
            login,
            has_key,
            last: Arc::default(),
            lost,
            changed,
            pacer: EventPacer::default(),
        })
    }

    /// Waits until the connection cannot be used any more, and returns the reason.
    pub(super) async fn lost(&self) -> String {
        self.lost.cancelled().await;
        match self.last_failure().map(|it| it.reason) {
            Some(HttpFailure::Failed(why)) => why,
            Some(HttpFailure::NeedsLogin) | None => "it requires a login".to_owned(),
        }
    }

    fn last_failure(&self) -> Option<RequestFailure> {
        self.last.lock().clone()
    }

    /// Records what an error means, and removes the URL from it, which may contain a key.
    fn record(&self, error: TransportError) -> TransportError {
        if matches!(error, StreamableHttpError::SessionExpired) {
            // `rmcp` opens a new session, which may offer other tools.
            self.changed.notify_one();
            return error;
        }
        if let Some(failure) = self.interpret(&error) {
            if failure.ends_connection {
                self.lost.cancel();
            }
            *self.last.lock() = Some(failure);
        }
        match error {
            StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
            error => error,
        }
    }

    fn interpret(&self, error: &TransportError) -> Option<RequestFailure> {
        let conclusive = |reason: HttpFailure, ends_connection| {
            Some(RequestFailure { reason, is_conclusive: true, ends_connection })
        };
        let failed = |why: String| conclusive(HttpFailure::Failed(why), false);
        match (status(error), error) {
            (Some(StatusCode::UNAUTHORIZED), _)
            | (
                _,
                StreamableHttpError::Auth(
                    AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_),
                ),
            ) => conclusive(self.unauthorized(), true),
            (Some(StatusCode::FORBIDDEN), _) => failed(format!(
                "it denies access (HTTP 403): your login, or the key in its headers, is not \
                 permitted to use it{}",
                server_explanation(error)
            )),
            (Some(it), _) if it.is_server_error() || it == StatusCode::TOO_MANY_REQUESTS => {
                failed(format!("it has a problem of its own (HTTP {})", it.as_u16()))
            }
            (_, StreamableHttpError::Auth(error)) => {
                let why = display_line(&error.to_string());
                failed(format!("its login could not be renewed: {why}"))
            }
            (_, StreamableHttpError::Client(error)) if error.is_connect() => {
                let why = format!("it cannot be reached: {}", connection_fault(error));
                conclusive(HttpFailure::Failed(why), true)
            }
            (_, StreamableHttpError::ServerDoesNotSupportSse) => None,
            _ => Some(RequestFailure {
                reason: unexpected(&error.to_string()),
                is_conclusive: false,
                ends_connection: false,
            }),
        }
    }

    fn unauthorized(&self) -> HttpFailure {
        if self.has_key {
            return HttpFailure::Failed(
                "it rejects the key in its `Authorization` header (HTTP 401)".to_owned(),
            );
        }
        HttpFailure::NeedsLogin
    }

    async fn token(&self) -> Result<Option<String>, TransportError> {
        let Some(login) = &self.login else { return Ok(None) };
        login.token().await.map_err(|error| self.record(error.into()))
    }

    /// Returns a new token in place of one that was refused, if there is one.
    async fn renew(&self, refused: &str) -> Option<String> {
        let token = self.login.as_ref()?.renew(Some(refused)).await;
        token
            .inspect_err(|error| tracing::info!(%error, "the token could not be renewed"))
            .ok()
            .flatten()
    }
}

/// The HTTP status of an error, if it has one.
fn status(error: &TransportError) -> Option<StatusCode> {
    match error {
        StreamableHttpError::AuthRequired(_) => Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => Some(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(it) => StatusCode::from_u16(it.status).ok(),
        StreamableHttpError::Client(error) => error.status(),
        StreamableHttpError::UnexpectedServerResponse(text) => {
            StatusCode::from_bytes(text.strip_prefix("HTTP ")?.get(..3)?.as_bytes()).ok()
        }
        _ => None,
    }
}

/// The server's explanation of a refusal, as a sentence to append.
fn server_explanation(error: &TransportError) -> String {
    match error {
        StreamableHttpError::InsufficientScope(it) => match &it.required_scope {
            Some(scope) => format!(". It requires the scope `{}`", display_line(scope)),
            None => String::new(),
        },
        StreamableHttpError::UnexpectedServerResponse(text) => match text.split_once(": ") {
            Some((_, text)) if !text.trim().is_empty() => {
                format!(". It said: {}", display_line(text))
            }
            _ => String::new(),
        },
        _ => String::new(),
    }
}

/// Why the server could not be reached, and what to check.
fn connection_fault(error: &reqwest::Error) -> String {
    match ConnectionFault::of(error) {
        ConnectionFault::Refused => "nothing answers there. Is the server running?".to_owned(),
        fault => display_line(&fault.to_string()),
    }
}

/// The part of a header value that may be a key, as in `Bearer KEY`.
fn credential(value: &SecretValue) -> Option<String> {
    let last = value.expose().split_whitespace().next_back()?;
    (!last.contains("://")).then(|| last.to_owned())
}

fn build_client(tls: Tls) -> reqwest::Result<Client> {
    let builder = turnwright_http::client_builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .redirect(redirect::Policy::custom(redirect_policy));
    turnwright_http::build_client(builder, tls)
}

/// Follows a redirect only within the same origin, because the headers must not be sent elsewhere, and
/// only if the request stays the same.
fn redirect_policy(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_same_origin =
        attempt.previous().first().is_some_and(|it| it.origin() == attempt.url().origin());
    let keeps_request =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if is_same_origin && keeps_request && attempt.previous().len() <= MAX_REDIRECTS {
        return attempt.follow();
    }
    attempt.stop()
}

impl StreamableHttpClient for HttpConnection {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth,
            headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_event_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let post = |token: Option<String>| {
            let (uri, message, session) = (uri.clone(), message.clone(), session.clone());
            let headers = headers.clone();
            self.client.post_message_with_max_sse_event_size(
                uri,
                message,
                session,
                token,
                headers,
                max_event_bytes,
            )
        };
        let _sending = self.pacer.sending(&message);
        let token = self.token().await?;
        let mut result = post(token.clone()).await;
        let is_refused =
            result.as_ref().is_err_and(|it| status(it) == Some(StatusCode::UNAUTHORIZED));
        if is_refused
            && let Some(refused) = token
            && let Some(token) = self.renew(&refused).await
        {
            result = post(Some(token)).await;
        }
        match result {
            Ok(StreamableHttpPostResponse::Sse(stream, session)) => {
                Ok(StreamableHttpPostResponse::Sse(self.pacer.events(stream), session))
            }
            result => result.map_err(|error| self.record(error)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), TransportError> {
        let deletion = async {
            let token = self.token().await?;
            self.client.delete_session(uri, session, token, headers).await
        };
        let result = tokio::time::timeout(DELETE_TIMEOUT, deletion).await.unwrap_or(Ok(()));
        result.map_err(|error| self.record(error))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, TransportError> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            auth,
            headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_event_bytes: usize,
    ) -> Result<BoxedSseResponse, TransportError> {
        let token = self.token().await?;
        let stream = self
            .client
            .get_stream_with_max_sse_event_size(
                uri,
                session,
                last_event,
                token,
                headers,
                max_event_bytes,
            )
            .await;
        stream.map(|it| self.pacer.events(it)).map_err(|error| self.record(error))
    }
}
