//! The HTTP client: one lazily built connection pool per endpoint. How long a reply may take is up
//! to the caller, who drops the request; everything else has a timeout here.

pub(crate) mod request_body;
pub(crate) mod traffic;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName,
    HeaderValue, TRANSFER_ENCODING,
};
use reqwest::{Client, Method, RequestBuilder, Response, Url, redirect};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::exchange::Secrets;
use super::model_list::{self, ListedModel};
use super::quirks::{KeyHeader, Quirks};
use super::{ErrorKind, LlmError};
use crate::errors::error_body::{self, ErrorReport};
use crate::errors::{refusals, retry_after};
use request_body::RequestBody;
use traffic::{Exchange, ExchangeObserver, PlayedResponse, Traffic};
use turnwright_http::ConnectionFault;
use turnwright_types::redact;
use turnwright_types::secret::Secret;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The most connections that are kept after a burst of requests, and for how long: enough for a few sessions.
const MAX_IDLE_CONNECTIONS: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for listing the models, from sending the request to reading the last byte.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// How long to wait for the end of a body after the end of its content.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout for reading the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// An OpenAI-compatible server.
pub struct Endpoint {
    base: Url,
    key: Option<Secret>,
    /// The header that carries the key.
    key_header: KeyHeader,
    /// Custom headers, which override the standard ones.
    headers: HeaderMap,
    /// Values that must never be repeated in messages.
    pub(super) secrets: Secrets,
    /// Advice on a key that the server refuses, for messages.
    pub(super) key_advice: Option<String>,
    client: OnceCell<Client>,
    /// True if the base URL has no version, and the API was found below `/v1`.
    has_version_path: AtomicBool,
    /// True once the server has answered anything.
    has_answered: AtomicBool,
    /// True once a request has succeeded.
    has_succeeded: AtomicBool,
    /// Observes the requests, or answers them.
    traffic: Option<Arc<dyn Traffic>>,
}

/// Advice about a refusal that may be a proxy's.
const PROXY_ADVICE: &str = "If the proxy refuses it, add the host to no_proxy or ask who runs the proxy; else check the key";

/// The error about a base URL. It is not quoted: it may be a key, or contain a password.
const NOT_A_URL: &str =
    "The base URL is not an http or https URL. Use something like https://api.openai.com/v1";

/// The path that most base URLs end in, and that is easily forgotten.
const VERSION_PATH: &str = "/v1";

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint for a base URL such as `https://api.openai.com/v1`.
    ///
    /// # Errors
    /// Fails if the base URL is not an HTTP URL or contains credentials, or if the key cannot be
    /// put in a header.
    pub fn new(base_url: &str, key: Option<Secret>) -> Result<Endpoint, LlmError> {
        let base = Url::parse(base_url.trim_end_matches('/'))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| LlmError::Config(NOT_A_URL.to_owned()))?;
        let host = base.host_str().unwrap_or_default();
        if key.as_ref().is_some_and(|key| bearer_value(key).is_none()) {
            return Err(LlmError::Config(format!(
                "The key for {host} contains invalid characters. Paste it again without spaces or line breaks"
            )));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(LlmError::Config(format!(
                "The base URL for {host} contains a user name or a password, which would be shown and \
                 logged. Set `key_env`, `key_file` or `headers` instead"
            )));
        }
        let base = complete_azure_url(base);
        let secrets = Secrets(key.iter().cloned().collect());
        Ok(Endpoint {
            base,
            key,
            key_header: KeyHeader::Bearer,
            headers: HeaderMap::new(),
            secrets,
            key_advice: None,
            client: OnceCell::new(),
            has_version_path: AtomicBool::new(false),
            has_answered: AtomicBool::new(false),
            has_succeeded: AtomicBool::new(false),
            traffic: None,
        })
    }

    /// Routes all requests through `traffic`.
    #[must_use]
    pub fn with_traffic(mut self, traffic: Arc<dyn Traffic>) -> Endpoint {
        self.traffic = Some(traffic);
        self
    }

    pub(super) fn with_key_header(mut self, key_header: KeyHeader) -> Endpoint {
        self.key_header = key_header;
        self
    }

    /// Sets the advice in errors about a refused key, such as where the key comes from.
    #[must_use]
    pub fn with_key_advice(mut self, advice: Option<String>) -> Endpoint {
        let other = refusals::other_site(&self.host()).filter(|_| self.key.is_some());
        let more = other.map(|site| format!(". A key of {site} needs a `base_url` there"));
        self.key_advice = advice.map(|advice| advice + &more.unwrap_or_default());
        self
    }

    /// Adds headers to each request, overriding the standard ones.
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (String, Secret)>,
    ) -> Result<Endpoint, LlmError> {
        for (name, value) in headers {
            let wrong = || {
                LlmError::Config(format!(
                    "The header `{}` for {} contains invalid characters. Correct it in the \
                     settings",
                    name.escape_debug(),
                    self.host()
                ))
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let sent = sensitive_value(value.expose()).ok_or_else(wrong)?;
            // The HTTP client controls these itself.
            if [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(&key) {
                return Err(LlmError::Config(format!("The header `{key}` cannot be set")));
            }
            self.headers.insert(key, sent);
            self.secrets.0.extend(credential_in_header(&value));
        }
        Ok(self)
    }

    pub(super) fn base_url(&self) -> String {
        self.base.to_string()
    }

    /// The port, if the URL has one.
    pub(super) fn port(&self) -> Option<u16> {
        self.base.port()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.base.scheme() == "https"
    }

    /// The host and port, for messages.
    pub fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or("the model");
        match self.base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Returns the HTTP client, building it on first use. With TLS that takes milliseconds, so it
    /// happens off the runtime's thread.
    pub(super) async fn client(&self) -> Result<&Client, LlmError> {
        self.client
            .get_or_try_init(|| async {
                let is_https = self.is_encrypted();
                spawn_blocking(move || build_client(is_https))
                    .await
                    .map_err(|error| LlmError::Config(error.to_string()))?
                    .map_err(|error| self.connect_fault(ConnectionFault::of(&error)))
            })
            .await
    }

    /// Builds the client ahead of the first request.
    pub(super) async fn warm_up(&self) {
        if let Err(error) = self.client().await {
            // The first request fails in the same way and reports it.
            tracing::debug!(%error, "could not build the HTTP client ahead of time");
        }
    }

    /// The base URL that works in place of the configured one, which lacks the version.
    pub(super) fn corrected_base_url(&self) -> Option<String> {
        let is_corrected = self.has_version_path.load(Ordering::Relaxed);
        is_corrected.then(|| {
            let mut corrected = self.base.clone();
            corrected
                .set_path(&format!("{}{VERSION_PATH}", self.base.path().trim_end_matches('/')));
            corrected.into()
        })
    }

    /// Posts a JSON body with these headers. Returns once the head of a successful response has been received.
    pub(super) async fn post(
        &self,
        path: &str,
        body: RequestBody,
        headers: &[(&'static str, String)],
    ) -> Result<ReplyBody, LlmError> {
        self.with_version(|version| {
            let body = body.clone();
            async move {
                let exchange = self.begin_exchange(path, &|| body.to_vec());
                let request = self.answer_request(version, path, headers).await?;
                self.send(request.body(body), exchange).await
            }
        })
        .await
    }

    /// Sends a request. `send` gets the path that was found to be missing between the base URL and the paths
    /// of the API. If a base URL without a version has no such API, it is sent once more, below `/v1` of the same
    /// path. If it is not there either, the first error counts.
    async fn with_version<T, F: Future<Output = Result<T, LlmError>>>(
        &self,
        send: impl Fn(&'static str) -> F,
    ) -> Result<T, LlmError> {
        if self.has_version_path.load(Ordering::Relaxed) {
            return send(VERSION_PATH).await;
        }
        let first = match send("").await {
            Err(error)
                if error.kind() == ErrorKind::UrlNotFound
                    && matches!(error.status(), Some(404 | 405))
                    && lacks_version(&self.base) =>
            {
                error
            }
            result => return result,
        };
        match send(VERSION_PATH).await {
            Err(
                LlmError::Status { kind: ErrorKind::UrlNotFound, .. } | LlmError::Connect { .. },
            ) => Err(first),
            // Other requests are sent meanwhile, so only an answer changes where they go.
            answered => {
                self.has_version_path.store(true, Ordering::Relaxed);
                answered
            }
        }
    }

    /// Prepares a request for an answer, still without its body.
    async fn answer_request(
        &self,
        version: &str,
        path: &str,
        headers: &[(&'static str, String)],
    ) -> Result<RequestBuilder, LlmError> {
        let request = self
            .request(Method::POST, version, path)
            .await?
            .header("content-type", "application/json")
            .header("accept", "text/event-stream, application/json");
        Ok(headers.iter().fold(request, |building, (name, value)| building.header(*name, value)))
    }

    /// Lists the models that the server offers.
    pub(super) async fn list_models(&self) -> Result<Vec<ListedModel>, LlmError> {
        self.list_models_within(LIST_TIMEOUT).await
    }

    async fn list_models_within(&self, limit: Duration) -> Result<Vec<ListedModel>, LlmError> {
        let too_long = LlmError::TimedOut { host: self.host(), limit };
        let reading = self.with_version(|version| self.read_models(version));
        tokio::time::timeout(limit, reading).await.unwrap_or(Err(too_long))
    }

    async fn read_models(&self, version: &str) -> Result<Vec<ListedModel>, LlmError> {
        let request = self.request(Method::GET, version, "/models").await?;
        Ok(model_list::parse_model_list(&self.read_short(request, "/models").await?))
    }

    /// Requests a path outside the versioned API, and reads the answer as JSON.
    pub(super) async fn outside_version(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, LlmError> {
        let mut url = self.base.clone();
        let start = self.base.path().trim_end_matches('/').trim_end_matches(VERSION_PATH);
        url.set_path(&format!("{start}{path}"));
        let mut request = self.request_to(method, url).await?;
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        Ok(serde_json::from_slice(&self.read_short(request, path).await?).unwrap_or_default())
    }

    async fn read_short(&self, request: RequestBuilder, path: &str) -> Result<Vec<u8>, LlmError> {
        let exchange = self.begin_exchange(path, &Vec::new);
        let mut body = self.send(request.header("accept", "application/json"), exchange).await?;
        let mut bytes = Vec::new();
        body.read(&mut bytes, MAX_LIST_BYTES).await?;
        Ok(bytes)
    }

    async fn request(
        &self,
        method: Method,
        version: &str,
        path: &str,
    ) -> Result<RequestBuilder, LlmError> {
        let mut url = self.base.clone();
        let is_deployment = url.path().starts_with("/openai/deployments/") && is_azure(&url);
        // A deployment has no Responses API (quirk C.4 #22).
        if is_deployment && path == "/responses" {
            url.set_path("/openai/v1/responses");
            url.set_query(None);
        } else {
            url.set_path(&format!("{}{version}{path}", self.base.path().trim_end_matches('/')));
        }
        self.request_to(method, url).await
    }

    async fn request_to(&self, method: Method, url: Url) -> Result<RequestBuilder, LlmError> {
        let client = self.client().await?;
        // Compression would delay the pieces of a stream. A server that compresses anyway is understood.
        let request = client.request(method, url).header(ACCEPT_ENCODING, "identity");
        let Some(key) = &self.key else { return Ok(request) };
        let is_token = key.expose().starts_with("eyJ") && key.expose().contains('.');
        let (name, value) = match self.key_header {
            // Azure takes a token of Entra ID, as `az account get-access-token` prints it, for a wrong key there.
            KeyHeader::ApiKey if !(is_token && is_azure(&self.base)) => {
                (HeaderName::from_static("api-key"), sensitive_value(key.expose()))
            }
            KeyHeader::Bearer | KeyHeader::ApiKey => (AUTHORIZATION, bearer_value(key)),
        };
        Ok(match value {
            Some(value) => request.header(name, value),
            None => request,
        })
    }

    fn begin_exchange(&self, path: &str, body: &dyn Fn() -> Vec<u8>) -> Exchange {
        self.traffic.as_ref().map_or(Exchange::Live, |traffic| traffic.begin(path, body))
    }

    async fn send(
        &self,
        request: RequestBuilder,
        exchange: Exchange,
    ) -> Result<ReplyBody, LlmError> {
        // Replaces headers of the same name that are already set.
        let request = request.headers(self.headers.clone());
        let mut observer = None;
        let response = match exchange {
            Exchange::Played(playing) => playing.await.and_then(PlayedResponse::into_response),
            Exchange::Live => request.send().await.map_err(|error| ConnectionFault::of(&error)),
            Exchange::Observed(observes) => {
                observer = Some(observes);
                request.send().await.map_err(|error| ConnectionFault::of(&error))
            }
        };
        let response = response.map_err(|fault| {
            if let Some(observer) = &mut observer {
                observer.on_fault(&fault);
            }
            self.connect_fault(fault)
        })?;
        if let Some(observer) = &mut observer {
            let headers = response.headers().iter();
            let mut texts =
                headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            observer.on_head(response.status().as_u16(), &mut texts);
        }
        self.has_answered.store(true, Ordering::Relaxed);
        let is_success = response.status().is_success();
        self.has_succeeded.fetch_or(is_success, Ordering::Relaxed);
        let body = ReplyBody { response, host: self.host(), observer };
        if is_success { Ok(body) } else { Err(self.status_error(body).await) }
    }

    fn connect_fault(&self, fault: ConnectionFault) -> LlmError {
        let proxy = turnwright_http::proxy_of(&self.base);
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        LlmError::Connect { host: self.host(), fault, proxy, has_answered }
    }

    async fn status_error(&self, mut body: ReplyBody) -> LlmError {
        let response = &body.response;
        let status = response.status().as_u16();
        let now = retry_after::server_time(response.headers(), SystemTime::now());
        let header_delay = retry_after::from_headers(response.headers(), now);
        let location = response
            .headers()
            .get("location")
            .and_then(|value| value.to_str().ok())
            .map(|target| format!("it redirects to {target}"));
        let mut bytes = Vec::new();
        // A partial body will do: the status says most of it.
        let reading = body.read(&mut bytes, MAX_ERROR_BYTES);
        tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await.ok();
        // Redact before the text is shortened, because even a part of the key must not be shown.
        let text = self.secrets.redact(&String::from_utf8_lossy(&bytes));
        let ErrorReport { message, mut kind, retry_after, failed_generation, .. } =
            error_body::parse(&text, Some(status), header_delay, now);
        let lacks_key = self.secrets.0.is_empty()
            && status == 500
            && refusals::is_bare_failure(&text)
            && !self.has_succeeded.load(Ordering::Relaxed);
        if lacks_key {
            kind = ErrorKind::Auth;
        }
        // Redact again, because in JSON the key may have been escaped, as in `\/`.
        let message = self.secrets.redact(&location.unwrap_or(message));
        let failed_generation =
            failed_generation.map(|output| Box::new(self.secrets.redact(&output)));
        let proxy = turnwright_http::proxy_of(&self.base).map(Box::new);
        let key_advice = match status {
            403 | 407 if proxy.is_some() => Some(PROXY_ADVICE.to_owned()),
            _ if lacks_key => Some(refusals::NO_KEY_ADVICE.to_owned()),
            _ => refusals::upstream_advice(&self.host(), &text).or_else(|| self.key_advice.clone()),
        };
        LlmError::Status {
            host: self.host().into(),
            status,
            proxy,
            message,
            retry_after,
            kind,
            key_advice: key_advice.map(Box::new),
            failed_generation,
        }
    }
}

/// The key in the value of a header. Short words and URLs are none.
fn credential_in_header(value: &Secret) -> Option<Secret> {
    let key = redact::header_key(value.expose())?;
    (key.len() >= 8 && !key.contains("://")).then(|| key.into())
}

fn bearer_value(key: &Secret) -> Option<HeaderValue> {
    sensitive_value(&format!("Bearer {}", key.expose()))
}

fn sensitive_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Azure's portal shows the host of a resource, a project on it, or the path of the Responses API with its version;
/// the API without versions, which refuses one, is at `/openai/v1` (quirk C.4 #22).
fn complete_azure_url(mut base: Url) -> Url {
    let path = base.path().trim_end_matches('/');
    let is_project = path.starts_with("/api/projects/") && path.matches('/').count() == 3;
    let is_shown = is_project || matches!(path, "" | "/openai" | "/openai/responses");
    if is_shown && is_azure(&base) {
        base.set_path("/openai/v1");
        // Takes `preview`, but no date.
        if base.query().is_some_and(|query| query.contains("api-version=2")) {
            base.set_query(None);
        }
    }
    base
}

/// Returns true for Azure's hosts of models. Others below its domains belong to its customers.
fn is_azure(url: &Url) -> bool {
    Quirks::lookup(url.host_str().unwrap_or_default(), "").key == KeyHeader::ApiKey
}

fn build_client(is_https: bool) -> reqwest::Result<Client> {
    let builder = turnwright_http::client_builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // A redirected POST would send the key and the conversation to another host.
        .redirect(redirect::Policy::none());
    turnwright_http::build_client(builder, is_https)
}

/// Returns true if no part of the path is a version, such as `v1` or `v1beta`.
fn lacks_version(base: &Url) -> bool {
    let mut numbered = base.path().split('/').filter_map(|part| part.strip_prefix('v'));
    !numbered.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The body of a response.
#[derive(Debug)]
pub(super) struct ReplyBody {
    response: Response,
    host: String,
    observer: Option<Box<dyn ExchangeObserver>>,
}

impl ReplyBody {
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next bytes, or `None` at the end. Cancel safe.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, LlmError> {
        let chunk = self.response.chunk().await;
        if let Some(observer) = &mut self.observer {
            match &chunk {
                Ok(Some(bytes)) => observer.on_bytes(bytes),
                end => observer.on_end(end.is_err()),
            }
        }
        chunk.map_err(|error| {
            tracing::info!(%error, "the stream broke");
            LlmError::Truncated { host: self.host.clone() }
        })
    }

    /// Reads the body up to its end, or up to the chunk with which it has more than `limit` bytes.
    async fn read(&mut self, bytes: &mut Vec<u8>, limit: usize) -> Result<(), LlmError> {
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > limit {
                break;
            }
        }
        Ok(())
    }

    /// Reads the rest of the body, usually a few bytes, in the background. Dropping a body before
    /// its end closes the connection, and the next request would need a new one, with a new TLS
    /// handshake.
    #[expect(clippy::disallowed_methods, reason = "it outlives its endpoint by a second at most")]
    pub(super) fn drain(self) {
        let ReplyBody { mut response, observer, .. } = self;
        if let Some(mut observer) = observer {
            observer.on_end(false);
        }
        tokio::spawn(async move {
            let reading = async { while let Ok(Some(_)) = response.chunk().await {} };
            // If the server does not finish the body in time, the connection is dropped.
            tokio::time::timeout(DRAIN_TIMEOUT, reading).await.ok();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_hosts_are_completed() {
        let version = "?api-version=2024-10-21";
        for (given, expected) in [
            ("https://x.openai.azure.com", "https://x.openai.azure.com/openai/v1"),
            ("https://x.openai.azure.com/openai/", "https://x.openai.azure.com/openai/v1"),
            (
                "https://x.openai.azure.com/?api-version=preview",
                "https://x.openai.azure.com/openai/v1?api-version=preview",
            ),
            ("https://models.inference.ai.azure.com", "https://models.inference.ai.azure.com/"),
            ("https://x.cloudapp.azure.com:8000", "https://x.cloudapp.azure.com:8000/"),
            ("https://h/", "https://h/"),
        ] {
            assert_eq!(Endpoint::new(given, None).unwrap().base_url(), expected);
        }
        let given = format!("https://x.openai.azure.com/openai/deployments/d{version}");
        assert_eq!(Endpoint::new(&given, None).unwrap().base_url(), given);
    }

    #[test]
    fn addresses_as_azures_portal_shows_them_lead_to_the_api_without_versions() {
        for (host, path) in [
            ("x.cognitiveservices.azure.com", "/openai/responses?api-version=2025-04-01-preview"),
            ("x.openai.azure.com", "/?api-version=2024-10-21"),
            ("x.services.ai.azure.com", "/api/projects/p"),
            ("x.openai.azure.us", "/openai/"),
        ] {
            let endpoint = Endpoint::new(&format!("https://{host}{path}"), None).unwrap();
            assert_eq!(endpoint.base_url(), format!("https://{host}/openai/v1"));
        }
        for given in [
            "https://x.services.ai.azure.com/api/projects/p/openai/v1",
            "https://x.services.ai.azure.com/models?api-version=2024-05-01-preview",
            "https://h/openai/responses",
        ] {
            assert_eq!(Endpoint::new(given, None).unwrap().base_url(), given);
        }
    }

    #[tokio::test]
    async fn a_token_of_entra_is_sent_to_azure_as_one_and_not_as_a_key() {
        let token = "eyJ0eXAi.eyJhdWQi.c2ln";
        for (host, key, header, value) in [
            ("x.openai.azure.com", "0123456789abcdef", "api-key", "0123456789abcdef"),
            ("x.openai.azure.com", "eyJ456789abcdef0", "api-key", "eyJ456789abcdef0"),
            ("x.openai.azure.com", token, "authorization", "Bearer eyJ0eXAi.eyJhdWQi.c2ln"),
            // A gateway whose own keys are such tokens, with `key = "api_key"` in the settings.
            ("h", token, "api-key", token),
        ] {
            let endpoint = Endpoint::new(&format!("http://{host}/v1"), Some(key.into()))
                .unwrap()
                .with_key_header(KeyHeader::ApiKey);
            let url = endpoint.base.clone();
            let request = endpoint.request_to(Method::GET, url).await.unwrap().build().unwrap();
            let headers = request.headers();
            assert_eq!(headers.get(header).unwrap(), value);
            let sent = [headers.get("api-key"), headers.get("authorization")];
            assert_eq!(sent.iter().flatten().count(), 1);
        }
    }

    /// pal-mcp-server#274, opencode#13999.
    #[tokio::test]
    async fn the_responses_api_of_azure_is_not_below_a_deployment() {
        for (base, path, expected) in [
            (
                "http://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
                "/responses",
                "http://x.openai.azure.com/openai/v1/responses",
            ),
            (
                "http://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
                "/chat/completions",
                "http://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
            ),
            (
                "http://h/openai/deployments/d",
                "/responses",
                "http://h/openai/deployments/d/responses",
            ),
        ] {
            let endpoint = Endpoint::new(base, None).unwrap();
            let request = endpoint.answer_request("", path, &[]).await.unwrap().build().unwrap();
            assert_eq!(request.url().as_str(), expected);
        }
    }

    #[test]
    fn invalid_urls_and_keys_are_rejected_without_showing_the_key() {
        for base_url in ["localhost:8080/v1", "file:///etc", "sk-secret", "sk-secret.key"] {
            let error = Endpoint::new(base_url, None).unwrap_err();
            assert!(!error.to_string().contains("sk-"), "{error}");
        }
        let error = Endpoint::new("http://me:secret@h/v1", None).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = Endpoint::new("http://h/v1", Some("sk-\nsecret".into())).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        for (name, value) in [("X Y", "secret"), ("X-Y", "sec\nret"), ("", "secret")] {
            let endpoint = Endpoint::new("http://h/v1", None).unwrap();
            let error = endpoint.with_headers([(name.to_owned(), value.into())]).unwrap_err();
            assert!(!error.to_string().contains("sec"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_endless_list_of_models_times_out() {
        use std::io::{Read, Write};
        for head in ["", "HTTP/1.1 200 OK\r\n\r\n{\"data\":["] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                    stream.write_all(head.as_bytes()).unwrap();
                }
            });
            let endpoint = Endpoint::new(&base_url, None).unwrap();
            let error = endpoint.list_models_within(Duration::from_millis(200)).await.unwrap_err();
            assert!(matches!(error, LlmError::TimedOut { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_burst_of_requests_leaves_few_connections_open() {
        use std::io::{Read, Write};
        use std::sync::atomic::AtomicUsize;
        const BURST: usize = 24;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let open = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&open);
        std::thread::spawn(move || {
            let answers_together = Arc::new(std::sync::Barrier::new(BURST));
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                let counter = Arc::clone(&counter);
                let barrier = Arc::clone(&answers_together);
                std::thread::spawn(move || {
                    let mut request = [0; 1024];
                    assert!(stream.read(&mut request).is_ok_and(|count| count > 0));
                    barrier.wait();
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").unwrap();
                    while stream.read(&mut request).is_ok_and(|count| count > 0) {}
                    counter.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let endpoint = Endpoint::new(&base_url, None).unwrap();
        let requests = (0..BURST).map(|_| endpoint.list_models());
        for listed in futures_util::future::join_all(requests).await {
            listed.unwrap();
        }
        let are_closed = async {
            while open.load(Ordering::SeqCst) > MAX_IDLE_CONNECTIONS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), are_closed).await.unwrap();
        assert!(open.load(Ordering::SeqCst) > 0, "the next request needs no new connection");
    }

    #[test]
    fn a_refused_key_may_be_that_of_the_other_site_of_the_provider() {
        for (base, site) in [
            ("https://api.moonshot.ai/v1", "A key of api.moonshot.cn needs"),
            ("https://open.bigmodel.cn/api/paas/v4", "A key of api.z.ai needs"),
            ("https://dashscope.aliyuncs.com/v1", "A key of dashscope-intl.aliyuncs.com needs"),
            ("https://api.deepseek.com/v1", ""),
        ] {
            let advise = |key: Option<&str>| {
                let endpoint = Endpoint::new(base, key.map(Secret::from)).unwrap();
                endpoint.with_key_advice(Some("Check it".to_owned())).key_advice.unwrap()
            };
            let advice = advise(Some("sk-1"));
            assert!(advice.starts_with("Check it") && advice.contains(site), "{advice}");
            assert_eq!(advice == "Check it", site.is_empty(), "{advice}");
            assert_eq!(advise(None), "Check it");
        }
    }

    #[test]
    fn keys_in_headers_are_redacted() {
        let headers = [
            ("authorization", "Bearer sk-12345678"),
            ("X-Title", "editor"),
            ("HTTP-Referer", "https://example.com/"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.into()));
        let endpoint = Endpoint::new("http://h/v1", Some("key-in-use".into())).unwrap();
        let secrets = endpoint.with_headers(headers).unwrap().secrets;
        let text = "editor at https://example.com/ with sk-12345678 and key-in-use";
        assert_eq!(secrets.redact(text), "editor at https://example.com/ with [key] and [key]");
    }
}
