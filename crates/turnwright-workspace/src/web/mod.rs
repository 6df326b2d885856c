//! Fetches web pages: decides which addresses may be reached (`address_guard`), fetches a URL, and converts
//! the response to text for a model (`page`, `html`). Redirects are followed here so that each hop is checked, and
//! everything that a server sends is bounded. `search` asks services that search the web. Knows nothing of tools and
//! permissions.

mod html;
mod address_guard;
mod page;
pub mod search;

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION};
use reqwest::{Client, ClientBuilder, Response, redirect};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit, watch};
use tokio::task::spawn_blocking;
use url::Url;

use turnwright_http::ConnectionFault;
use turnwright_types::error_text::{io_error_text, without_error_numbers};
use turnwright_types::patience::timeout;

use address_guard::{AllowedHost, HostAccess, LookupError, LookupFn, PublicResolver};

pub use address_guard::{
    USUAL_PORTS, is_stand_in, local_name_kind, parse_url, permission_host, reserved_kind,
    system_lookup,
};
pub use page::{PageCache, WebPage, to_page, wrap_untrusted};
pub use turnwright_http::is_loopback;

/// The maximum number of redirects within one host that are followed.
const MAX_REDIRECTS: usize = 5;
/// Many documentation servers offer their pages as Markdown, too.
const ACCEPTED_TYPES: &str = "text/markdown, text/plain;q=0.9, text/html;q=0.8, */*;q=0.1";

/// The text does not quote the server, since errors must not carry its words.
const INVALID_REDIRECT: &str =
    "it redirects to something that is not an http or https URL, or that contains credentials";

#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// The time for connecting, including TLS.
    pub connect: Duration,
    /// The time from the DNS lookup to the last byte, with all redirects.
    pub total: Duration,
    /// Bytes of a body whose length the server declares. It does so for bodies that are not
    /// compressed.
    pub declared_bytes: usize,
    /// Bytes of any other body, after decompression.
    pub streamed_bytes: usize,
}

impl Default for FetchLimits {
    fn default() -> FetchLimits {
        FetchLimits {
            connect: Duration::from_secs(10),
            total: Duration::from_secs(20),
            declared_bytes: 5 * 1024 * 1024,
            streamed_bytes: 20 * 1024 * 1024,
        }
    }
}

/// The HTTP clients for all sessions, and what they may reach.
pub struct WebFetcher {
    limits: FetchLimits,
    lookup: LookupFn,
    proxies: Vec<String>,
    /// The hosts that may have any address, as the settings name them now.
    allowed: watch::Sender<Vec<AllowedHost>>,
    /// The client for public addresses; it connects to no others.
    public_client: OnceCell<Client>,
    /// The client for hosts that the user has allowed by name.
    allowed_client: OnceCell<Client>,
    /// Limits how many pages are converted at once, since each may take tens of megabytes.
    conversions: Semaphore,
}

impl Default for WebFetcher {
    fn default() -> WebFetcher {
        WebFetcher::with(FetchLimits::default(), Arc::new(system_lookup))
    }
}

impl fmt::Debug for WebFetcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WebFetcher").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A server's response.
#[derive(Debug)]
pub struct FetchedBody {
    /// The URL after redirects.
    pub url: Url,
    pub status: u16,
    /// The content type with its parameters, as the server sent it.
    pub content_type: String,
    /// The body or its beginning.
    pub bytes: Vec<u8>,
    /// The length of the body according to the server.
    pub length: Option<u64>,
    /// True if the body was longer than the limit.
    pub is_truncated: bool,
    /// The target of a redirect that was not followed.
    pub redirect: Option<String>,
}

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is of a kind that is not public, as in "a private", and is not allowed.
    #[error(
        "{host} is {what} address, which is not fetched. The user can allow it with \
         `allow = [\"{host}\"]` in `[web]` of the settings"
    )]
    Blocked { host: String, what: &'static str },
    /// The name could not be looked up.
    #[error("{host} was not found: {reason}")]
    UnknownHost { host: String, reason: String },
    #[error("nothing answers at {0}. Is the server running?")]
    ConnectionRefused(String),
    /// The TLS connection is not trustworthy.
    #[error("no safe connection to {host}: {reason}")]
    Tls { host: String, reason: String },
    #[error("{host} took longer than {} s", limit.as_secs_f32())]
    Timeout { host: String, limit: Duration },
    #[error("{host} redirects more than {MAX_REDIRECTS} times; the last time to {last}")]
    TooManyRedirects { host: String, last: String },
    /// The body has an encoding that was not asked for.
    #[error("{0} sends its response in an unsupported encoding")]
    UnsupportedEncoding(String),
    /// Any other failure.
    #[error("the request to {host} failed: {reason}")]
    RequestFailed { host: String, reason: String },
}

impl WebFetcher {
    fn with(limits: FetchLimits, lookup: LookupFn) -> WebFetcher {
        WebFetcher {
            limits,
            lookup,
            proxies: Vec::new(),
            allowed: watch::Sender::default(),
            public_client: OnceCell::new(),
            allowed_client: OnceCell::new(),
            conversions: Semaphore::new(2),
        }
    }

    /// Sets the names of proxies, which may have any address. What goes through a proxy is looked
    /// up by the proxy, so only names and literal addresses can be checked here.
    pub fn set_proxies(&mut self, hosts: Vec<String>) {
        self.proxies = hosts;
    }

    /// Sets the hosts that may be fetched from at any address, such as `localhost:3000`.
    pub fn set_allowed(&self, hosts: &[String]) {
        let parsed = hosts.iter().filter_map(|host| {
            let allowed = AllowedHost::parse(host);
            if allowed.is_none() {
                tracing::warn!(entry = host, "`web.allow` has an invalid entry");
            }
            allowed
        });
        self.allowed.send_replace(parsed.collect());
    }

    /// Checks what can be checked without a DNS lookup.
    ///
    /// # Errors
    /// If the URL must not be fetched.
    pub fn check(&self, url: &Url) -> Result<(), FetchError> {
        self.host_access(url).map(drop)
    }

    fn host_access(&self, url: &Url) -> Result<HostAccess, FetchError> {
        let checked = address_guard::check(url, &self.allowed.borrow());
        let access = checked.map_err(|what| blocked(url, what))?;
        let is_proxy = url
            .host_str()
            .is_some_and(|host| self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(host)));
        if access == HostAccess::Public && is_proxy {
            return Err(blocked(url, "a proxy's"));
        }
        Ok(access)
    }

    /// The proxy through which a page is fetched.
    pub fn proxy_of(&self, url: &str) -> Option<String> {
        let url = Url::parse(url).ok()?;
        let access = self.host_access(&url).ok()?;
        turnwright_http::proxy_of(&url).filter(|_| access == HostAccess::Public)
    }

    /// Fetches a URL. Follows redirects as long as they stay with the host that the user was asked
    /// about. Cancel safe.
    ///
    /// # Errors
    /// If there is no response. A bad status is a response.
    pub async fn fetch(&self, url: Url) -> Result<FetchedBody, FetchError> {
        self.fetch_in_time(url, None).await
    }

    /// Fetches a URL of a private network, in which all connections are made through this socket. Follows redirects
    /// within the same host. Cancel safe.
    ///
    /// # Errors
    /// If there is no response. A bad status is a response.
    #[cfg(unix)]
    pub async fn fetch_through(
        &self,
        url: Url,
        socket: &std::path::Path,
    ) -> Result<FetchedBody, FetchError> {
        let builder = client_builder(self.limits.connect).no_proxy().unix_socket(socket);
        let client = builder.build().map_err(|error| request_failed(&url, error.to_string()))?;
        self.fetch_in_time(url, Some(&client)).await
    }

    /// Waits until another page may be converted.
    pub async fn conversion_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.conversions.acquire().await.ok()
    }

    /// `private_client` is the one for a private network, which has no other addresses.
    async fn fetch_in_time(
        &self,
        url: Url,
        private_client: Option<&Client>,
    ) -> Result<FetchedBody, FetchError> {
        let limit = self.limits.total;
        let host = host_and_port(&url);
        timeout(limit, self.fetch_with_redirects(url, private_client))
            .await
            .map_err(|_| FetchError::Timeout { host, limit })?
    }

    async fn fetch_with_redirects(
        &self,
        mut url: Url,
        private_client: Option<&Client>,
    ) -> Result<FetchedBody, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_request(&url, private_client).await?;
            let Some(target) = redirect_target(&response) else {
                return self.read_body(url, response).await;
            };
            let next = url.join(&target).ok().and_then(|joined| parse_url(joined.as_str()).ok());
            let Some(next) = next else {
                return Err(request_failed(&url, INVALID_REDIRECT.to_owned()));
            };
            if private_client.is_none() {
                self.check(&next)?;
            }
            let stays = permission_host(&next) == permission_host(&url)
                && (next.scheme() == "https" || url.scheme() == "http");
            if !stays {
                return Ok(FetchedBody {
                    status: response.status().as_u16(),
                    content_type: String::new(),
                    bytes: Vec::new(),
                    length: None,
                    is_truncated: false,
                    redirect: Some(next.to_string()),
                    url,
                });
            }
            url = next;
        }
        Err(FetchError::TooManyRedirects { host: host_and_port(&url), last: url.to_string() })
    }

    async fn send_request(
        &self,
        url: &Url,
        private_client: Option<&Client>,
    ) -> Result<Response, FetchError> {
        let built = match private_client {
            Some(client) => Ok(client),
            None => self.get_or_build_client(self.host_access(url)?).await,
        };
        let client = built.map_err(|reason| request_failed(url, reason))?;
        let request = client.get(url.clone()).header(ACCEPT, ACCEPTED_TYPES);
        request.send().await.map_err(|error| self.classify_error(url, &error))
    }

    async fn get_or_build_client(&self, access: HostAccess) -> Result<&Client, String> {
        let cell = match access {
            HostAccess::Public => &self.public_client,
            HostAccess::Any => &self.allowed_client,
        };
        let guard = (access == HostAccess::Public).then(|| PublicResolver {
            lookup: Arc::clone(&self.lookup),
            proxies: self.proxies.clone(),
        });
        let connect = self.limits.connect;
        cell.get_or_try_init(|| async move {
            // Loading the system's certificates takes milliseconds.
            let building = spawn_blocking(move || build_client(guard, connect));
            let built = building.await.map_err(|error| error.to_string())?;
            built.map_err(|error| ConnectionFault::of(&error).to_string())
        })
        .await
    }

    async fn read_body(&self, url: Url, mut response: Response) -> Result<FetchedBody, FetchError> {
        // The client has decoded gzip and removed its header. Some servers send `utf-8` or `none`, without a meaning.
        if header(&response, CONTENT_ENCODING).is_some_and(|encoding| is_compression(&encoding)) {
            return Err(FetchError::UnsupportedEncoding(host_and_port(&url)));
        }
        let content_type = header(&response, CONTENT_TYPE).unwrap_or_default();
        let status = response.status().as_u16();
        let length = response.content_length();
        let most =
            if length.is_some() { self.limits.declared_bytes } else { self.limits.streamed_bytes };
        let mut bytes = Vec::new();
        let mut is_truncated = false;
        while !is_truncated && !page::is_opaque(&content_type) {
            let next = response.chunk().await.map_err(|error| self.classify_error(&url, &error))?;
            let Some(chunk) = next else { break };
            let room = most.saturating_sub(bytes.len());
            is_truncated = chunk.len() > room;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Ok(FetchedBody { url, status, content_type, bytes, length, is_truncated, redirect: None })
    }

    /// Finds the cause at the bottom of an error.
    fn classify_error(&self, url: &Url, error: &reqwest::Error) -> FetchError {
        let host = host_and_port(url);
        if error.is_timeout() {
            let limit = if error.is_connect() { self.limits.connect } else { self.limits.total };
            return FetchError::Timeout { host, limit };
        }
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            reason = error.to_string();
            match error.downcast_ref::<LookupError>() {
                Some(LookupError::Blocked { what }) => return blocked(url, what),
                Some(LookupError::Failed(error)) => {
                    return FetchError::UnknownHost { host, reason: io_error_text(error) };
                }
                None => {}
            }
            let io = error.downcast_ref::<io::Error>();
            if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                return FetchError::ConnectionRefused(host);
            }
            source = error.source();
        }
        match ConnectionFault::of(error) {
            ConnectionFault::Tls(reason) => FetchError::Tls { host, reason },
            fault @ ConnectionFault::Certificate(_) => {
                FetchError::Tls { host, reason: fault.to_string() }
            }
            _ => FetchError::RequestFailed { host, reason: without_error_numbers(&reason) },
        }
    }
}

fn blocked(url: &Url, what: &'static str) -> FetchError {
    FetchError::Blocked { host: host_and_port(url), what }
}

fn request_failed(url: &Url, reason: String) -> FetchError {
    FetchError::RequestFailed { host: host_and_port(url), reason }
}

/// Host and port, in the syntax of `web.allow`.
fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn redirect_target(response: &Response) -> Option<String> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    header(response, LOCATION).filter(|_| is_redirect)
}

fn is_compression(sent: &str) -> bool {
    let encoding = sent.to_ascii_lowercase();
    ["gzip", "br", "zstd", "deflate", "compress"].iter().any(|name| encoding.contains(name))
}

fn header(response: &Response, name: HeaderName) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn build_client(guard: Option<PublicResolver>, connect: Duration) -> reqwest::Result<Client> {
    let guarded = guard.map(|guard| client_builder(connect).dns_resolver(guard));
    // Hosts that the user has allowed are nearby and need no proxy.
    let builder = guarded.unwrap_or_else(|| client_builder(connect).no_proxy());
    turnwright_http::build_client(builder, true)
}

fn client_builder(connect: Duration) -> ClientBuilder {
    turnwright_http::client_builder()
        .connect_timeout(connect)
        // Each request looks the name up again, so that it is checked again.
        .pool_max_idle_per_host(0)
        .redirect(redirect::Policy::none())
        .referer(false)
}

#[cfg(test)]
mod tests;
