//! The HTTP client of one server. It sends the configured headers or a login's token, follows no redirect to
//! another origin, bounds what it reads, and interprets failures. [`channel`] carries messages with it.

pub(crate) mod channel;
pub(crate) mod login;
mod reply;
pub(crate) mod standard_headers;

use std::time::Duration;

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use rmcp::transport::auth::AuthError;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use url::Url;

use crate::server::connection::ConnectFailure;
use crate::server::spec::ServerTransport;
use login::{LoginStore, MCP_TYPES, ServerLogin};
use reply::{
    Attempt, EVENT_STREAM, EventStream, JSON, Reply, content_type, is_trouble, read_reply,
    status_error, unexpected_type,
};
use turnwright_http::{ConnectionFault, PROXY_LOGIN};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::redact;
use turnwright_types::secret::Secret;
use turnwright_types::text;

/// How long a connection may take to be opened, and a session to be renewed.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum length of the cookies of a server. Further ones are ignored.
const MAX_COOKIE_BYTES: usize = 8 * 1024;
/// The TCP keep-alive interval.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 3;
/// How long the request that deletes a session may take.
pub(crate) const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a server's text in an error message.
const MAX_TEXT_CHARS: usize = 300;
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Headers that belong to the transport or the protocol and cannot be configured.
const RESERVED_HEADERS: &str = "connection content-length host last-event-id mcp-method mcp-name \
                                mcp-session-id transfer-encoding";
/// Further headers, which users copy from examples. They are left out, because each request sets them itself.
const COPIED_HEADERS: [&str; 3] = ["accept", "content-type", "mcp-protocol-version"];

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The status, and the server's explanation of it.
    #[error("HTTP {status}{}", if .body.is_empty() { String::new() } else { format!(": {body}") })]
    Status { status: StatusCode, scope: Option<String>, body: String },
    /// The server does not know the session any more.
    #[error("the server does not know the session any more")]
    SessionExpired,
    #[error("{0}")]
    Request(reqwest::Error),
    /// The response is none of this protocol.
    #[error("{0}")]
    Unexpected(String),
    #[error("{0}")]
    Auth(#[from] AuthError),
}

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
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or("its address is not an http or https URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "its address contains a user name or password, which would be shown: use a \
                       header instead";
            return Err(why.to_owned());
        }
        let headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, Secret::from(value))).collect();
        header_map(&headers)?;
        Ok(ServerTransport::Http { url, headers })
    }
}

/// Validates and converts headers.
fn header_map(headers: &[(String, Secret)]) -> Result<HeaderMap, String> {
    let sent = headers
        .iter()
        .filter(|(name, _)| !COPIED_HEADERS.iter().any(|copied| name.eq_ignore_ascii_case(copied)));
    sent.map(|(name, value)| header(name, value)).collect()
}

fn header(name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), String> {
    let shown = escape_hidden_line(name);
    let invalid = || format!("the header `{shown}` contains invalid characters");
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    if RESERVED_HEADERS.split(' ').any(|reserved| reserved == key.as_str()) {
        return Err(format!("the header `{key}` cannot be set"));
    }
    let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok((key, value))
}

pub(crate) fn unexpected(response: &str) -> ConnectFailure {
    let response = display_line(response);
    ConnectFailure::Failed(format!("it did not answer like an MCP server: {response}"))
}

/// Makes one short line of a server's text that is safe to show, without the keys that it may repeat.
pub(crate) fn display_line(text: &str) -> String {
    text::clip(escape_hidden_line(&redact::text(text)).trim(), MAX_TEXT_CHARS)
}

/// The HTTP client of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HttpConnection {
    client: Client,
    url: Url,
    /// The configured headers.
    headers: HeaderMap,
    /// The login whose token is sent; `None` if the user has configured an `Authorization` header, or
    /// if a token must not be sent.
    login: Option<ServerLogin>,
    /// The header with the cookies of the server. Load balancers know by them which instance of it has the session.
    cookies: watch::Sender<HeaderMap>,
    /// The last failure, or the first that has ended the connection.
    failure: watch::Sender<Option<RequestFailure>>,
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) struct RequestFailure {
    pub(crate) reason: ConnectFailure,
    /// The failure would be the same with another version of the protocol.
    pub(crate) is_conclusive: bool,
    /// The connection cannot be used any more.
    ends_connection: bool,
}

impl HttpConnection {
    pub(crate) async fn new(
        url: &Url,
        headers: &[(String, Secret)],
        logins: &LoginStore,
    ) -> Result<HttpConnection, String> {
        redact::register_keys(headers.iter().filter_map(|(_, value)| credential(value)))
            .map_err(|error| error.to_string())?;
        let has_key = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let login = logins.login_for(url).filter(|_| !has_key);
        let is_https = url.scheme() == "https";
        let building = spawn_blocking(move || build_client(is_https));
        let built = building.await.map_err(|error| error.to_string())?;
        let client = built.map_err(|error| ConnectionFault::of(&error).to_string())?;
        Ok(HttpConnection {
            client,
            url: url.clone(),
            headers: header_map(headers)?,
            login,
            cookies: watch::Sender::default(),
            failure: watch::Sender::new(None),
        })
    }

    /// Waits until the connection cannot be used any more, and returns the reason.
    pub(crate) async fn lost(&self) -> String {
        let mut failures = self.failure.subscribe();
        let failure = failures.wait_for(|last| last.iter().any(|last| last.ends_connection)).await;
        let why = failure.ok().and_then(|last| Some(last.as_ref()?.reason.why().to_owned()));
        why.unwrap_or_default()
    }

    pub(crate) fn last_failure(&self) -> Option<RequestFailure> {
        self.failure.borrow().clone()
    }

    /// Records what an error means, and removes the URL from it, which may contain a key.
    fn record(&self, error: HttpError) -> HttpError {
        if let Some(mut failure) = self.interpret(&error) {
            if let ConnectFailure::Failed(why) | ConnectFailure::Lasting(why) = &mut failure.reason
                && let Some(proxy) = turnwright_http::proxy_of(&self.url)
            {
                why.push_str(&format!(" (through the proxy {proxy})"));
            }
            self.failure.send_modify(|last| {
                *last = last.take().filter(|known| known.ends_connection).or(Some(failure));
            });
        }
        match error {
            HttpError::Request(error) => HttpError::Request(error.without_url()),
            error => error,
        }
    }

    fn interpret(&self, error: &HttpError) -> Option<RequestFailure> {
        let mut is_conclusive = true;
        let mut ends_connection = false;
        let reason = match error {
            HttpError::Status { status: StatusCode::UNAUTHORIZED, .. }
            | HttpError::Auth(
                AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_),
            ) => {
                ends_connection = true;
                if self.headers.contains_key(AUTHORIZATION) {
                    let why = "it rejects the key in its `Authorization` header (HTTP 401)";
                    ConnectFailure::Lasting(why.to_owned())
                } else {
                    ConnectFailure::NeedsLogin
                }
            }
            HttpError::Status { status: StatusCode::FORBIDDEN, scope, body } => {
                ConnectFailure::Lasting(format!(
                    "it denies access (HTTP 403): your login, or the key in its headers, is not \
                     permitted to use it{}",
                    server_explanation(scope.as_deref(), body)
                ))
            }
            HttpError::Status { status: StatusCode::PROXY_AUTHENTICATION_REQUIRED, .. } => {
                ConnectFailure::Lasting(PROXY_LOGIN.to_owned())
            }
            HttpError::Status { status, .. } if is_trouble(*status) => {
                let why = format!("it has a problem of its own (HTTP {})", status.as_u16());
                ConnectFailure::Failed(why)
            }
            HttpError::Auth(error) => {
                let shown = display_line(&error.to_string());
                ConnectFailure::Failed(format!("its login could not be renewed: {shown}"))
            }
            HttpError::Request(error) if error.is_connect() => {
                ends_connection = true;
                let fault = ConnectionFault::of(error);
                let why = format!("it cannot be reached: {}", fault_text(&fault));
                let is_lasting = fault.is_lasting();
                if is_lasting { ConnectFailure::Lasting(why) } else { ConnectFailure::Failed(why) }
            }
            HttpError::SessionExpired
            | HttpError::Status { status: StatusCode::METHOD_NOT_ALLOWED, .. } => return None,
            _ => {
                is_conclusive = false;
                unexpected(&error.to_string())
            }
        };
        Some(RequestFailure { reason, is_conclusive, ends_connection })
    }

    async fn token(&self) -> Result<Option<String>, HttpError> {
        let Some(login) = &self.login else { return Ok(None) };
        Ok(login.token().await?)
    }

    /// Returns a new token in place of one that was refused, if there is one.
    async fn renew(&self, refused: &str) -> Option<String> {
        let token = self.login.as_ref()?.renew(Some(refused)).await;
        token.inspect_err(|error| tracing::info!(%error, "a token was not renewed")).ok().flatten()
    }
}

/// The server's explanation of a refusal, as a sentence to append.
fn server_explanation(scope: Option<&str>, body: &str) -> String {
    match scope {
        Some(scope) => format!(". It requires the scope `{}`", display_line(scope)),
        None if body.trim().is_empty() => String::new(),
        None => format!(". It said: {}", display_line(body)),
    }
}

/// Why the server could not be reached, and what to check.
fn fault_text(fault: &ConnectionFault) -> String {
    match fault {
        ConnectionFault::Refused => "nothing answers there. Is the server running?".to_owned(),
        fault => display_line(&fault.to_string()),
    }
}

/// The key in the value of a header. A URL is none.
fn credential(value: &Secret) -> Option<String> {
    let key = redact::header_key(value.expose())?;
    (!key.contains("://")).then(|| key.to_owned())
}

fn build_client(is_https: bool) -> reqwest::Result<Client> {
    let builder = turnwright_http::client_builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .redirect(redirect::Policy::custom(redirect_policy));
    turnwright_http::build_client(builder, is_https)
}

/// Follows a redirect only within the same origin, because the headers must not be sent elsewhere, and
/// only if the request stays the same.
fn redirect_policy(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_same_origin =
        attempt.previous().first().is_some_and(|url| url.origin() == attempt.url().origin());
    let keeps_request =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if is_same_origin && keeps_request && attempt.previous().len() <= MAX_REDIRECTS {
        return attempt.follow();
    }
    attempt.stop()
}

impl HttpConnection {
    /// Posts a message with these headers. Returns the answer, and the id of the session that the server has opened.
    pub(crate) async fn post(&self, message: &[u8], headers: HeaderMap, attempt: Attempt) -> Reply {
        let has_session = headers.contains_key(SESSION_HEADER);
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, JSON);
        let posting = async {
            let posted = request.header(ACCEPT, MCP_TYPES).body(message.to_vec());
            let response = self.send_renewed(posted, &headers).await?;
            read_reply(response, has_session, attempt).await
        };
        posting.await.map_err(|error| self.record(error))
    }

    /// Opens a stream of events, or continues one after the event of that id.
    pub(crate) async fn get(
        &self,
        mut headers: HeaderMap,
        last_id: Option<&str>,
    ) -> Result<EventStream, HttpError> {
        if let Some(id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert("last-event-id", id);
        }
        let getting = async {
            let request = self.client.get(self.url.clone()).header(ACCEPT, EVENT_STREAM);
            let response = self.send_renewed(request, &headers).await?;
            if !response.status().is_success() {
                return Err(status_error(response).await);
            }
            match content_type(&response) {
                Some(kind) if kind.starts_with(EVENT_STREAM) => Ok(EventStream::new(response)),
                other => Err(unexpected_type(other)),
            }
        };
        getting.await.map_err(|error| match error {
            // Servers need not have such a stream, and refuse it in many ways.
            HttpError::Status { .. } => error,
            error => self.record(error),
        })
    }

    /// Ends the session. The caller limits how long that may take.
    pub(crate) async fn delete(&self, headers: HeaderMap) {
        let deletion = async {
            // A renewal could be cut off by the end of the process, and the new refresh token be lost.
            let token = match &self.login {
                Some(login) => login.stored_token().await?,
                None => None,
            };
            let request = self.client.delete(self.url.clone());
            self.send(request, &headers, token).await
        };
        match deletion.await.map_err(|error| self.record(error)) {
            Ok(response) => tracing::debug!(status = %response.status(), "ended a session"),
            Err(error) => tracing::debug!(%error, "a session could not be ended"),
        }
    }

    /// Sends a request, and once more if the token of the login is refused and can be renewed.
    async fn send_renewed(
        &self,
        request: RequestBuilder,
        headers: &HeaderMap,
    ) -> Result<Response, HttpError> {
        let token = self.token().await?;
        let again = request.try_clone();
        let response = self.send(request, headers, token.clone()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(again), Some(refused)) = (again, token)
            && let Some(token) = self.renew(&refused).await
        {
            return self.send(again, headers, Some(token)).await;
        }
        Ok(response)
    }

    async fn send(
        &self,
        request: RequestBuilder,
        headers: &HeaderMap,
        token: Option<String>,
    ) -> Result<Response, HttpError> {
        let mut request = request.headers(headers.clone()).headers(self.cookies.borrow().clone());
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let sent = request.headers(self.headers.clone()).send().await;
        let response = sent.map_err(HttpError::Request)?;
        let all = response.headers().get_all(SET_COOKIE).iter();
        let mut set = all.filter_map(|value| value.to_str().ok()).peekable();
        if set.peek().is_some() {
            self.cookies.send_modify(|cookies| {
                let known = cookies.get(COOKIE).and_then(|line| line.to_str().ok());
                let line = set.fold(known.unwrap_or_default().to_owned(), with_cookie);
                let kept = header("cookie", &line.as_str().into());
                *cookies = kept.into_iter().filter(|_| !line.is_empty()).collect();
            });
        }
        Ok(response)
    }
}

/// The `Cookie` header once the server has set another cookie, which replaces one with the same name. A cookie that has
/// no value, or expires at once, is removed.
fn with_cookie(known: String, set: &str) -> String {
    let (cookie, attributes) = set.split_once(';').unwrap_or((set, ""));
    let Some((name, value)) = cookie.trim().split_once('=') else { return known };
    let is_over = value.is_empty() || attributes.to_ascii_lowercase().contains("max-age=0");
    let mut all: Vec<_> = known.split("; ").filter(|other| !other.is_empty()).collect();
    all.retain(|other| other.split('=').next() != Some(name));
    all.extend((!is_over).then_some(cookie.trim()));
    let line = all.join("; ");
    if line.len() <= MAX_COOKIE_BYTES { line } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_replaces_only_the_one_with_its_name() {
        let long = format!("long={}", "x".repeat(MAX_COOKIE_BYTES));
        for (set, expected) in [
            ("lb=pod-8; Path=/; HttpOnly", "user=1; lb=pod-8"),
            (" more=a=b ;Secure", "lb=pod-7; user=1; more=a=b"),
            ("user=; Path=/", "lb=pod-7"),
            ("user=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0", "lb=pod-7"),
            ("nonsense", "lb=pod-7; user=1"),
            (long.as_str(), "lb=pod-7; user=1"),
        ] {
            assert_eq!(with_cookie("lb=pod-7; user=1".to_owned(), set), expected, "{set}");
        }
        assert_eq!(with_cookie(String::new(), "lb=pod-7"), "lb=pod-7");
        assert_eq!(with_cookie("lb=pod-7".to_owned(), "lb="), "");
    }
}
