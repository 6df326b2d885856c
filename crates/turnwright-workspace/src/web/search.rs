//! Searches the web with a service that the user's settings name. A service that is throttled, refuses or fails gives an
//! error, and never an empty list of results. No redirect is followed, because the request has the key and the query.

mod backends;

use reqwest::Client;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use tokio::task::spawn_blocking;
use url::Url;

use super::{
    FetchError, FetchedBody, WebFetcher, client_builder, header, host_and_port, is_loopback,
    parse_url, redirect_target, request_failed,
};
use turnwright_types::patience::timeout;
use turnwright_types::secret::Secret;

pub use backends::{SEARCH_BACKENDS, SearchBackend, WebHit, search_backend};

/// The most bytes of an answer. The largest ones of these services have some hundred kilobytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// A query for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebQuery {
    pub words: String,
    /// The most results.
    pub count: usize,
    /// The domains that results may be from; all if there are none.
    pub domains: Vec<String>,
}

impl WebQuery {
    fn allows(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let mut before = self.domains.iter().filter_map(|domain| host.strip_suffix(&**domain));
        self.domains.is_empty() || before.any(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

/// Why a search gave nothing, as the end of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The key is missing, must not be sent, or is refused.
    #[error("{0}")]
    Key(String),
    /// The service could not be asked, or has not answered with results.
    #[error("{0}")]
    Failed(String),
}

/// A service as the user's settings name it.
#[derive(Clone, Debug)]
pub struct SearchService {
    backend: &'static SearchBackend,
    url: Url,
    /// The settings have the address, so it may be one of this machine or of the local network.
    has_own_address: bool,
    pub key: Option<Secret>,
}

impl SearchService {
    /// The service at its usual address, or at the one that the settings have. `None` if it has no address.
    pub fn new(backend: &'static SearchBackend, address: Option<&str>) -> Option<SearchService> {
        let mut url = parse_url(address.or(backend.url)?).ok()?;
        if backend.url.is_none() && !url.path().ends_with("/search") {
            url.path_segments_mut().ok()?.pop_if_empty().push("search");
        }
        Some(SearchService { backend, url, has_own_address: address.is_some(), key: None })
    }

    pub fn name(&self) -> &'static str {
        self.backend.name
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host that learns what is searched for.
    pub fn host(&self) -> String {
        host_and_port(&self.url)
    }

    pub fn needs_key(&self) -> bool {
        self.backend.key_env.is_some()
    }

    /// Asks the service. Cancel safe.
    pub async fn search(
        &self,
        web: &WebFetcher,
        query: &WebQuery,
    ) -> Result<Vec<WebHit>, SearchError> {
        self.check_key()?;
        let limit = web.limits.total;
        let answered = timeout(limit, web.ask_service(self, query)).await;
        let answer = answered.unwrap_or(Err(FetchError::Timeout { host: self.host(), limit }));
        let (body, retry_after) = answer.map_err(|error| SearchError::Failed(error.to_string()))?;
        if body.status != 200 {
            return Err(self.refusal(&body, retry_after.as_deref()));
        }
        let hits = self.json(&body).and_then(|answer| self.backend.hits(&answer, query));
        hits.map_err(SearchError::Failed)
    }

    /// Checks what can be checked of the key before anything is sent.
    pub fn check_key(&self) -> Result<(), SearchError> {
        let Some(variable) = self.backend.key_env else { return Ok(()) };
        let name = self.name();
        if self.key.is_none() {
            let place = if self.has_own_address { "`web.search_key_env`" } else { variable };
            return Err(SearchError::Key(format!(
                "there is no key for {name}; the user can store one with `turnwright login search`, or set {place}"
            )));
        }
        if self.url.scheme() == "http" && !is_loopback(&self.url) {
            return Err(SearchError::Key(format!(
                "the key of {name} is not sent without encryption; `web.search_url` must begin with https"
            )));
        }
        Ok(())
    }

    /// Says what an answer with another status than 200 means.
    fn refusal(&self, body: &FetchedBody, retry_after: Option<&str>) -> SearchError {
        let name = self.name();
        let status = body.status;
        SearchError::Failed(match status {
            403 if !self.needs_key() => format!(
                "{name} refuses to answer with JSON (status 403); whoever runs it has to add `json` to \
                 `search.formats` in its settings.yml"
            ),
            401 | 403 => {
                return SearchError::Key(format!("{name} refuses the key (status {status})"));
            }
            402 | 432 | 433 => {
                format!("{name} has no searches left for this key or its plan (status {status})")
            }
            202 | 429 => {
                let seconds = retry_after.and_then(|text| text.trim().parse::<u32>().ok());
                let wait = seconds.map_or("later".to_owned(), |wait| format!("in {wait} s"));
                format!("{name} has refused: too many searches (status {status}); try again {wait}")
            }
            400 | 413 | 414 | 422 => {
                format!("{name} refuses this query (status {status}); a shorter one may help")
            }
            300..400 => {
                let target = body.redirect.as_ref().and_then(|text| self.url.join(text).ok());
                let host = target.map_or("another address".to_owned(), |url| host_and_port(&url));
                format!("{name} redirects to {host}, which is not followed (status {status})")
            }
            _ => format!("{name} has failed (status {status})"),
        })
    }

    fn json(&self, body: &FetchedBody) -> Result<Value, String> {
        let name = self.name();
        if body.is_truncated || body.bytes.len() > MAX_ANSWER_BYTES {
            return Err(format!("{name} has sent more than {MAX_ANSWER_BYTES} bytes"));
        }
        serde_json::from_slice(&body.bytes).map_err(|_| {
            let is_page = body.content_type.starts_with("text/html");
            let what = if is_page { "a web page" } else { "something else" };
            let host = self.host();
            format!("{name} has answered with {what} in place of JSON; is {host} its API?")
        })
    }
}

impl WebFetcher {
    /// Sends a query to a service. Returns the answer, and when to ask again.
    async fn ask_service(
        &self,
        service: &SearchService,
        query: &WebQuery,
    ) -> Result<(FetchedBody, Option<String>), FetchError> {
        let backend = service.backend;
        let mut url = service.url.clone();
        let built = self.service_client(service).await;
        let client = built.map_err(|reason| request_failed(&url, reason))?;
        let fields = backend.request(query);
        let mut request = if backend.is_get {
            let pairs = fields.iter().map(|(name, value)| {
                (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            });
            url.query_pairs_mut().extend_pairs(pairs);
            client.get(url.clone())
        } else {
            let body = Value::Object(fields).to_string();
            client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body)
        };
        if let Some(key) = &service.key {
            let (name, before) = backend.key_header;
            let parsed = HeaderValue::from_str(&format!("{before}{}", key.expose()));
            let mut value = parsed.map_err(|_| {
                request_failed(&url, "the key has characters that cannot be sent".to_owned())
            })?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let sent = request.header(ACCEPT, "application/json").send().await;
        let response = sent.map_err(|error| self.classify_error(&url, &error))?;
        let redirect = redirect_target(&response);
        let retry_after = header(&response, RETRY_AFTER);
        let body = self.read_body(url, response).await?;
        Ok((FetchedBody { redirect, ..body }, retry_after))
    }

    /// The client for public addresses, or one that reaches the address in the settings wherever it is.
    async fn service_client(&self, service: &SearchService) -> Result<Client, String> {
        if !service.has_own_address {
            return self.get_or_build_client(&self.public_client, true).await.cloned();
        }
        let connect = self.limits.connect;
        // Loading the system's certificates takes milliseconds.
        let building = spawn_blocking(move || client_builder(connect).build());
        let built = building.await.map_err(|error| error.to_string())?;
        built.map_err(|error| error.to_string())
    }
}
