//! A server on streamable HTTP: our client below `rmcp`'s transport. It sends the headers that are
//! set or the token of a login, follows nobody to another place, and knows what a refusal means.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::model::{ClientJsonRpcMessage, ProtocolVersion};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, ServiceExt,
};
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

use super::handler::Handler;
use super::link::Unusable;
use super::logins::{Login, Logins};
use super::spec::{Hidden, Reach};
use super::stream::Pace;
use turnwright_types::effect::visible_line;
use turnwright_types::redact;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long a connection is silent before it is tried whether the other side is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Bytes of one event. An answer in one piece has the same limit, which is `rmcp`'s.
const LARGEST_EVENT: usize = 16 * 1024 * 1024;
/// Times that a server may send a request elsewhere.
const MOST_REDIRECTS: usize = 3;
/// How long the end of a session may take to be told.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);
/// Characters of what a server says about a refusal.
const LONGEST_WORDS: usize = 300;
/// Headers that are about how a request is sent, or the protocol's own.
const OURS: &[&str] = &[
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

/// What `rmcp` says of a request that has failed.
type Failure = StreamableHttpError<reqwest::Error>;

impl Reach {
    /// A server at that address, with these headers on each request.
    ///
    /// # Errors
    /// What is wrong with them, for people, without any value.
    pub fn http(
        url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Reach, String> {
        let url = Url::parse(url)
            .ok()
            .filter(|it| matches!(it.scheme(), "http" | "https") && it.has_host())
            .ok_or("its address is no http or https URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("its address has a name or a password in it, which would be shown: put \
                        them in a header"
                .to_owned());
        }
        let headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, Hidden::from(value))).collect();
        pack(&headers)?;
        Ok(Reach::Http { url, headers })
    }
}

/// The headers as they are sent.
fn pack(headers: &[(String, Hidden)]) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let pack = |(name, value): &(String, Hidden)| {
        let shown = visible_line(name);
        let wrong = || format!("the header `{shown}` has characters that a header cannot have");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        if OURS.contains(&key.as_str()) {
            return Err(format!("the header `{key}` cannot be set"));
        }
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((key, value))
    };
    headers.iter().map(pack).collect()
}

/// A connection, and the client below it.
pub(super) type Connection = (RunningService<RoleClient, Handler>, Wire);

/// Connects: with a handshake first, as all servers did until 2025, and without one where that is
/// refused.
///
/// # Errors
/// Why it cannot be used.
pub(super) async fn open(
    url: &Url,
    headers: &[(String, Hidden)],
    logins: &Logins,
    handler: Handler,
) -> Result<Connection, Unusable> {
    let wire = Wire::new(url, headers, logins, Arc::clone(&handler.changed)).await?;
    let headers = pack(headers)?;
    let transport = || {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers.clone())
            .max_sse_event_size(LARGEST_EVENT);
        config.session_recovery_timeout = CONNECT;
        StreamableHttpClientTransport::with_client(wire.clone(), config)
    };
    match handler.clone().serve(transport()).await {
        Ok(service) => return Ok((service, wire)),
        Err(error) => match wire.last() {
            Some(trouble) if trouble.is_clear => return Err(trouble.why),
            _ => tracing::debug!(%error, "no handshake"),
        },
    }
    let modern =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    match handler.serve_with_lifecycle(transport(), modern).await {
        Ok(service) => Ok((service, wire)),
        Err(error) => Err(wire.last().map_or_else(|| odd(&error.to_string()), |it| it.why)),
    }
}

fn odd(words: &str) -> Unusable {
    Unusable::Failed(format!("it did not answer as a server does: {}", shown(words)))
}

/// What a server says, for people: short, in one line, and without the keys it may repeat.
pub(super) fn shown(words: &str) -> String {
    let line = visible_line(&redact::text(words)).trim().to_owned();
    match line.char_indices().nth(LONGEST_WORDS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The client.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    client: Client,
    /// Whose tokens are sent; `None` if the user has set a key, or none may be sent.
    login: Option<Login>,
    has_key: bool,
    /// What went wrong last. A std mutex: held to copy a few words.
    last: Arc<Mutex<Option<Trouble>>>,
    lost: CancellationToken,
    changed: Arc<Notify>,
    pace: Pace,
}

/// Why a request has failed.
#[derive(Clone, Debug)]
struct Trouble {
    why: Unusable,
    /// It would be the same with another revision of the protocol.
    is_clear: bool,
    /// Nothing can be done with the connection any more.
    is_the_end: bool,
}

impl Wire {
    async fn new(
        url: &Url,
        headers: &[(String, Hidden)],
        logins: &Logins,
        changed: Arc<Notify>,
    ) -> Result<Wire, String> {
        redact::learn(headers.iter().filter_map(|(_, value)| credential(value)));
        let is_key = |name: &String| name.eq_ignore_ascii_case("authorization");
        let has_key = headers.iter().any(|(name, _)| is_key(name));
        let login = logins.at(url).filter(|_| !has_key);
        let is_encrypted = url.scheme() == "https";
        let client = tokio::task::spawn_blocking(move || build(is_encrypted)).await;
        let client = client.map_err(|error| error.to_string())?;
        let client = client.map_err(|error| format!("there is no HTTP client: {error}"))?;
        let lost = CancellationToken::new();
        Ok(Wire {
            client,
            login,
            has_key,
            last: Arc::default(),
            lost,
            changed,
            pace: Pace::default(),
        })
    }

    /// Waits until it cannot be used any more. Says why.
    pub(super) async fn lost(&self) -> String {
        self.lost.cancelled().await;
        match self.last().map(|it| it.why) {
            Some(Unusable::Failed(why)) => why,
            Some(Unusable::NeedsLogin) | None => "it wants a login".to_owned(),
        }
    }

    fn last(&self) -> Option<Trouble> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what the failure means, and leaves out of it what nobody shall read.
    fn note(&self, failure: Failure) -> Failure {
        if matches!(failure, StreamableHttpError::SessionExpired) {
            // `rmcp` begins another session; who knows what that one offers.
            self.changed.notify_one();
            return failure;
        }
        if let Some(trouble) = self.trouble(&failure) {
            if trouble.is_the_end {
                self.lost.cancel();
            }
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        }
        match failure {
            StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
            failure => failure,
        }
    }

    fn trouble(&self, failure: &Failure) -> Option<Trouble> {
        let clear = |why: Unusable, is_the_end| Some(Trouble { why, is_clear: true, is_the_end });
        let failed = |why: String| clear(Unusable::Failed(why), false);
        match (status(failure), failure) {
            (Some(StatusCode::UNAUTHORIZED), _)
            | (
                _,
                StreamableHttpError::Auth(
                    AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_),
                ),
            ) => clear(self.refused(), true),
            (Some(StatusCode::FORBIDDEN), _) => failed(format!(
                "it does not let you in (HTTP 403): what you are logged in as, or the key in its \
                 headers, may not use it{}",
                said(failure)
            )),
            (Some(it), _) if it.is_server_error() || it == StatusCode::TOO_MANY_REQUESTS => {
                failed(format!("it is in trouble itself (HTTP {})", it.as_u16()))
            }
            (_, StreamableHttpError::Auth(error)) => {
                failed(format!("its login could not be renewed: {}", shown(&error.to_string())))
            }
            (_, StreamableHttpError::Client(error)) if error.is_connect() => {
                clear(Unusable::Failed(format!("it cannot be reached: {}", causes(error))), true)
            }
            (_, StreamableHttpError::ServerDoesNotSupportSse) => None,
            _ => {
                Some(Trouble { why: odd(&failure.to_string()), is_clear: false, is_the_end: false })
            }
        }
    }

    fn refused(&self) -> Unusable {
        if self.has_key {
            return Unusable::Failed(
                "it refuses the key in its header `Authorization` (HTTP 401)".to_owned(),
            );
        }
        Unusable::NeedsLogin
    }

    async fn token(&self) -> Result<Option<String>, Failure> {
        let Some(login) = &self.login else { return Ok(None) };
        login.token().await.map_err(|error| self.note(error.into()))
    }

    /// Another token in place of one that was refused, if there is any.
    async fn renew(&self, refused: &str) -> Option<String> {
        let token = self.login.as_ref()?.renew(Some(refused)).await;
        token.inspect_err(|error| tracing::info!(%error, "no other token")).ok().flatten()
    }
}

/// The status that a failure is about.
fn status(failure: &Failure) -> Option<StatusCode> {
    match failure {
        StreamableHttpError::AuthRequired(_) => Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => Some(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(it) => StatusCode::from_u16(it.status).ok(),
        StreamableHttpError::Client(error) => error.status(),
        StreamableHttpError::UnexpectedServerResponse(words) => {
            StatusCode::from_bytes(words.strip_prefix("HTTP ")?.get(..3)?.as_bytes()).ok()
        }
        _ => None,
    }
}

/// What the server has said about a refusal.
fn said(failure: &Failure) -> String {
    match failure {
        StreamableHttpError::InsufficientScope(it) => match &it.required_scope {
            Some(scope) => format!(". It wants the scope `{}`", shown(scope)),
            None => String::new(),
        },
        StreamableHttpError::UnexpectedServerResponse(words) => match words.split_once(": ") {
            Some((_, words)) if !words.trim().is_empty() => format!(". It said: {}", shown(words)),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

/// The last cause says most.
fn causes(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    shown(&last.to_string())
}

/// What may be a key in the value of a header, as in `Bearer KEY`.
fn credential(value: &Hidden) -> Option<String> {
    let last = value.expose().split_whitespace().next_back()?;
    (!last.contains("://")).then(|| last.to_owned())
}

/// Has TLS ready for every client of this process.
pub(super) fn prepare_tls() {
    // The second call finds it installed, which is as good.
    drop(rustls::crypto::CryptoProvider::install_default(rustls::crypto::ring::default_provider()));
}

fn build(is_encrypted: bool) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .redirect(redirect::Policy::custom(follow))
        .user_agent(concat!("turnwright/", env!("CARGO_PKG_VERSION")));
    prepare_tls();
    if is_encrypted {
        return builder.build();
    }
    // Without TLS nothing may take the time to load the system's certificates.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let plain = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|it| it.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    match plain {
        Ok(tls) => builder.tls_backend_preconfigured(tls).build(),
        Err(_) => builder.build(),
    }
}

/// Only within the same server, and only if what is sent stays the same: the headers are for
/// nobody else.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_the_same =
        attempt.previous().first().is_some_and(|it| it.origin() == attempt.url().origin());
    let keeps_all =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if is_the_same && keeps_all && attempt.previous().len() <= MOST_REDIRECTS {
        return attempt.follow();
    }
    attempt.stop()
}

impl StreamableHttpClient for Wire {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth,
            headers,
            LARGEST_EVENT,
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
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let post = |token: Option<String>| {
            let (uri, message, session) = (uri.clone(), message.clone(), session.clone());
            let headers = headers.clone();
            self.client
                .post_message_with_max_sse_event_size(uri, message, session, token, headers, most)
        };
        let _sending = self.pace.sending(&message);
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
                Ok(StreamableHttpPostResponse::Sse(self.pace.events(stream), session))
            }
            result => result.map_err(|failure| self.note(failure)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let goodbye = async {
            let token = self.token().await?;
            self.client.delete_session(uri, session, token, headers).await
        };
        let result = tokio::time::timeout(GOODBYE, goodbye).await.unwrap_or(Ok(()));
        result.map_err(|failure| self.note(failure))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, Failure> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            auth,
            headers,
            LARGEST_EVENT,
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
        most: usize,
    ) -> Result<BoxedSseResponse, Failure> {
        let token = self.token().await?;
        let stream = self
            .client
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, most)
            .await;
        stream.map(|it| self.pace.events(it)).map_err(|failure| self.note(failure))
    }
}
