//! The HTTP client: one connection pool per endpoint, built when it is first needed, with a
//! clock for each way to wait.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use reqwest::{Client, Method, RequestBuilder, Response, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::failure::{self, Report};
use super::list::{self, Listed};
use super::quirks::Key;
use super::{LlmError, wait};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long the first byte may take: a local server may have to load the model and read a long
/// prompt first.
const FIRST_BYTE: Duration = Duration::from_secs(600);
/// How long a list of models may take, from the first byte sent to the last one read.
const LISTING: Duration = Duration::from_secs(10);
/// The most of such a list that is read.
const LARGEST_LIST: usize = 4 * 1024 * 1024;
/// How long a stream may be silent once it has begun.
const SILENCE: Duration = Duration::from_secs(180);
/// How long the end of a body may take to come after the end of what it says.
const REST: Duration = Duration::from_secs(1);
/// How long the explanation of an error may take.
const EXPLANATION: Duration = Duration::from_secs(10);
/// The most of an error's body that is read.
const ERROR_BODY: usize = 64 * 1024;

/// An OpenAI-compatible server.
pub struct Endpoint {
    base: Url,
    key: Option<SecretString>,
    /// The header that the key goes in.
    key_header: Key,
    /// Sent with each request, over what is usual.
    headers: HeaderMap,
    /// What must not be repeated.
    secrets: Vec<SecretString>,
    client: OnceCell<Client>,
    rests: Rests,
}

/// The ends of bodies that are being read. A std mutex: held for the time of one spawn.
type Rests = Arc<Mutex<JoinSet<()>>>;

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint at a base URL such as `https://api.openai.com/v1`.
    ///
    /// # Errors
    /// When that is no HTTP URL, or the key cannot stand in a header.
    pub fn new(base_url: &str, key: Option<SecretString>) -> Result<Endpoint, LlmError> {
        let base = Url::parse(base_url.trim_end_matches('/'))
            .ok()
            .filter(|it| matches!(it.scheme(), "http" | "https") && it.has_host())
            .ok_or_else(|| {
                LlmError::Settings(format!(
                    "The base URL `{base_url}` is not an http or https URL. It has to be \
                     something like https://api.openai.com/v1"
                ))
            })?;
        if key.as_ref().is_some_and(|it| bearer(it).is_none()) {
            return Err(LlmError::Settings(format!(
                "The key for {} has characters that a key cannot have. Paste it again without \
                 spaces or line breaks",
                base.host_str().unwrap_or_default()
            )));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(LlmError::Settings(format!(
                "The base URL for {} has a name or a password in it, which would be shown and \
                 logged. Put the key where keys belong: `key_env`, `key_file` or `headers`",
                base.host_str().unwrap_or_default()
            )));
        }
        let base = complete(base);
        let secrets = key.iter().cloned().collect();
        let (headers, client) = (HeaderMap::new(), OnceCell::new());
        Ok(Endpoint {
            base,
            key,
            key_header: Key::Bearer,
            headers,
            secrets,
            client,
            rests: Rests::default(),
        })
    }

    /// With the key in this header.
    pub(super) fn with_key_in(mut self, key_header: Key) -> Endpoint {
        self.key_header = key_header;
        self
    }

    /// With these headers on each request, over those that are usual.
    ///
    /// # Errors
    /// When a name or a value cannot be a header's.
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (String, SecretString)>,
    ) -> Result<Endpoint, LlmError> {
        for (name, value) in headers {
            let wrong = || {
                LlmError::Settings(format!(
                    "The header `{}` that is set for {} has characters that a header cannot \
                     have. Correct it in the settings",
                    name.escape_debug(),
                    self.host()
                ))
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut sent = HeaderValue::from_str(value.expose_secret()).map_err(|_| wrong())?;
            // These are about how it is sent.
            if [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(&key) {
                return Err(LlmError::Settings(format!("The header `{key}` cannot be set")));
            }
            sent.set_sensitive(true);
            self.headers.insert(key, sent);
            self.secrets.extend(credential(&value));
        }
        Ok(self)
    }

    /// The base URL.
    pub(super) fn base(&self) -> String {
        self.base.to_string()
    }

    /// The host, for messages.
    pub fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or("the model");
        match self.base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Builds the client if it is not there yet. With TLS that takes milliseconds, so it happens
    /// off the runtime's thread.
    pub(super) async fn client(&self) -> Result<&Client, LlmError> {
        self.client
            .get_or_try_init(|| async {
                let encrypted = self.base.scheme() == "https";
                tokio::task::spawn_blocking(move || build(encrypted))
                    .await
                    .map_err(|error| LlmError::Settings(error.to_string()))?
                    .map_err(|source| LlmError::Connect { host: self.host(), source })
            })
            .await
    }

    /// Builds the client ahead of the first request.
    pub(super) async fn warm_up(&self) {
        if let Err(error) = self.client().await {
            // The first request meets the same trouble and reports it.
            tracing::debug!(%error, "no HTTP client yet");
        }
    }

    /// Posts a JSON body and returns when the head of a successful answer is there.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Body, LlmError> {
        let request = self
            .request(Method::POST, path)
            .await?
            .header("content-type", "application/json")
            .header("accept", "text/event-stream, application/json");
        self.send(request.body(body), FIRST_BYTE).await
    }

    /// The models that are served here.
    pub(super) async fn models(&self) -> Result<Vec<Listed>, LlmError> {
        self.models_within(LISTING).await
    }

    async fn models_within(&self, limit: Duration) -> Result<Vec<Listed>, LlmError> {
        let too_long = LlmError::Silent { host: self.host(), limit };
        tokio::time::timeout(limit, self.read_models()).await.unwrap_or(Err(too_long))
    }

    async fn read_models(&self) -> Result<Vec<Listed>, LlmError> {
        let request = self.request(Method::GET, "/models").await?;
        let mut body = self.send(request.header("accept", "application/json"), LISTING).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = body.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LARGEST_LIST {
                break;
            }
        }
        Ok(list::models(&bytes))
    }

    async fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, LlmError> {
        let client = self.client().await?;
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let request = client.request(method, url);
        let Some(key) = &self.key else { return Ok(request) };
        let (name, value) = match self.key_header {
            Key::Bearer => (AUTHORIZATION, bearer(key)),
            Key::ApiKey => (HeaderName::from_static("api-key"), sensitive(key.expose_secret())),
        };
        Ok(match value {
            Some(value) => request.header(name, value),
            None => request,
        })
    }

    async fn send(&self, request: RequestBuilder, limit: Duration) -> Result<Body, LlmError> {
        // These take the place of what is there already.
        let request = request.headers(self.headers.clone());
        let response = match tokio::time::timeout(limit, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(source)) => {
                return Err(LlmError::Connect { host: self.host(), source: source.without_url() });
            }
            Err(_) => return Err(LlmError::Silent { host: self.host(), limit }),
        };
        if response.status().is_success() {
            return Ok(self.body(response));
        }
        Err(self.refusal(response).await)
    }

    fn body(&self, response: Response) -> Body {
        let rests = Arc::clone(&self.rests);
        Body { response, host: self.host(), patience: FIRST_BYTE, rests }
    }

    async fn refusal(&self, response: Response) -> LlmError {
        let status = response.status().as_u16();
        let told = wait::in_headers(response.headers(), SystemTime::now());
        let location = response
            .headers()
            .get("location")
            .and_then(|it| it.to_str().ok())
            .map(|it| format!("it redirects to {it}"));
        let mut body = self.body(response);
        let mut bytes = Vec::new();
        let explanation = async {
            while let Ok(Some(chunk)) = body.chunk().await {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > ERROR_BODY {
                    break;
                }
            }
        };
        // What has come by then has to do; the status says most of it.
        drop(tokio::time::timeout(EXPLANATION, explanation).await);
        // Before the text is shortened: a part of the key is too much, too.
        let text = self.secret().redact(&String::from_utf8_lossy(&bytes));
        let Report { message, kind, retry_after, leaked, .. } =
            failure::read(&text, Some(status), told);
        // And once more: in the JSON the key may have been escaped, as in `\/`.
        let message = self.secret().redact(&location.unwrap_or(message));
        let leaked = leaked.map(|it| Box::new(self.secret().redact(&it)));
        LlmError::Status { host: self.host(), status, message, retry_after, kind, leaked }
    }

    /// The key and the like, for those who must not repeat them.
    pub(super) fn secret(&self) -> Secret {
        Secret(self.secrets.clone())
    }
}

/// What must not be shown to anybody.
#[derive(Clone, Debug, Default)]
pub(super) struct Secret(Vec<SecretString>);

impl Secret {
    /// The text without the key: some servers repeat the one they refuse.
    pub(super) fn redact(&self, text: &str) -> String {
        let keys = self.0.iter().map(ExposeSecret::expose_secret).filter(|it| it.len() >= 4);
        keys.fold(text.to_owned(), |text, key| text.replace(key, "[key]"))
    }
}

/// What may be a key in the value of a header, as in `Bearer KEY`. Short words and addresses are
/// none.
fn credential(value: &SecretString) -> Option<SecretString> {
    let last = value.expose_secret().split_whitespace().next_back()?;
    (last.len() >= 8 && !last.contains("://")).then(|| last.into())
}

fn bearer(key: &SecretString) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {}", key.expose_secret()))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Azure's portal shows the bare host of a resource; the API that needs no version is below it
/// (quirk C.4 #22).
fn complete(mut base: Url) -> Url {
    let is_azure = base.host_str().is_some_and(|it| it.ends_with(".azure.com"));
    if is_azure && matches!(base.path(), "" | "/" | "/openai") {
        base.set_path("/openai/v1");
    }
    base
}

fn build(encrypted: bool) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        // A stream that is compressed comes in lumps.
        .no_gzip()
        // A redirected POST would carry the key and the conversation to somebody else.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("turnwright/", env!("CARGO_PKG_VERSION")));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    if encrypted {
        // The second call of a process finds the provider installed, which is as good.
        drop(rustls::crypto::CryptoProvider::install_default(
            rustls::crypto::ring::default_provider(),
        ));
        return builder.build();
    }
    // Without TLS nothing may take the time to load the system's certificates.
    let plain = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|it| it.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    match plain {
        Ok(tls) => builder.tls_backend_preconfigured(tls).build(),
        Err(_) => builder.build(),
    }
}

/// The body of an answer, read under the silence clock.
#[derive(Debug)]
pub(super) struct Body {
    response: Response,
    host: String,
    /// How long the next bytes may take. Some servers send the head at once and load the model
    /// then, so the first bytes have as much time as the head.
    patience: Duration,
    rests: Rests,
}

impl Body {
    /// Whose answer it is.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The next bytes, or `None` at the end. Safe to cancel.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, LlmError> {
        let limit = self.patience;
        match tokio::time::timeout(limit, self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                self.patience = SILENCE;
                Ok(chunk)
            }
            Ok(Err(error)) => {
                tracing::info!(%error, "the stream broke");
                Err(LlmError::Truncated { host: self.host.clone() })
            }
            Err(_) => Err(LlmError::Silent { host: self.host.clone(), limit }),
        }
    }
}

impl Body {
    /// Nothing more is of interest. Reads on to the end, which is a few bytes away: a body that
    /// is dropped before its end closes the connection, and the next request has to connect and
    /// shake hands anew.
    pub(super) fn finish(self) {
        let Body { mut response, rests, .. } = self;
        let mut rests = rests.lock().unwrap_or_else(PoisonError::into_inner);
        while rests.try_join_next().is_some() {}
        rests.spawn(async move {
            let reading = async { while let Ok(Some(_)) = response.chunk().await {} };
            // A server that does not come to its end loses the connection.
            drop(tokio::time::timeout(REST, reading).await);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_may_be_given_as_its_portal_shows_it() {
        let version = "?api-version=2024-10-21";
        for (given, expected) in [
            ("https://x.openai.azure.com", "https://x.openai.azure.com/openai/v1"),
            ("https://x.openai.azure.com/openai/", "https://x.openai.azure.com/openai/v1"),
            ("https://h/", "https://h/"),
        ] {
            assert_eq!(Endpoint::new(given, None).unwrap().base(), expected);
        }
        let given = format!("https://x.openai.azure.com/openai/deployments/d{version}");
        assert_eq!(Endpoint::new(&given, None).unwrap().base(), given);
    }

    #[test]
    fn a_base_url_or_key_that_cannot_work_is_refused_without_showing_the_key() {
        assert!(Endpoint::new("localhost:8080/v1", None).is_err());
        assert!(Endpoint::new("file:///etc", None).is_err());
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
    async fn a_list_of_models_that_does_not_come_to_its_end_is_given_up() {
        use std::io::{Read, Write};
        for head in ["", "HTTP/1.1 200 OK\r\n\r\n{\"data\":["] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.read(&mut [0; 1024]).is_ok_and(|it| it > 0) {
                    stream.write_all(head.as_bytes()).unwrap();
                }
            });
            let endpoint = Endpoint::new(&base_url, None).unwrap();
            let error = endpoint.models_within(Duration::from_millis(200)).await.unwrap_err();
            assert!(matches!(error, LlmError::Silent { .. }), "{error}");
        }
    }

    #[test]
    fn what_may_be_a_key_in_a_header_is_not_repeated() {
        let headers = [
            ("authorization", "Bearer sk-12345678"),
            ("X-Title", "editor"),
            ("HTTP-Referer", "https://example.com/"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.into()));
        let endpoint = Endpoint::new("http://h/v1", Some("key-in-use".into())).unwrap();
        let secret = endpoint.with_headers(headers).unwrap().secret();
        let text = "editor at https://example.com/ with sk-12345678 and key-in-use";
        assert_eq!(secret.redact(text), "editor at https://example.com/ with [key] and [key]");
    }
}
