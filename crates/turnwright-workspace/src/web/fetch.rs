//! Getting one page: redirects by hand, each hop checked again, and a bound on everything that
//! may come.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION};
use reqwest::{Client, Response, redirect};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use url::Url;

use super::guard::{self, Allowed, Way};
use super::resolve::{self, Guarded, Lookup, LookupError};

/// Hops within one host that are followed.
const MOST_REDIRECTS: usize = 5;
/// Many servers of documentation have their pages as Markdown, too.
const WANTED: &str = "text/markdown, text/plain;q=0.9, text/html;q=0.8, */*;q=0.1";

/// A server's own words stay out of errors.
const NO_TARGET: &str =
    "it redirects to what is no http or https URL, or has a name or a password in it";

/// What is enough.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a connection, with TLS.
    pub connect: Duration,
    /// From the look-up to the last byte, with all redirects.
    pub total: Duration,
    /// Bytes of a body whose server says how long it is, which it does of what is not compressed.
    pub sent: usize,
    /// Bytes of any body, decompressed.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            total: Duration::from_secs(20),
            sent: 5 * 1024 * 1024,
            held: 20 * 1024 * 1024,
        }
    }
}

/// The network, for all sessions.
pub struct Web {
    limits: Limits,
    lookup: Lookup,
    proxies: Vec<String>,
    // A std mutex: held to copy a short list.
    allowed: Mutex<Arc<Vec<Allowed>>>,
    /// For everybody: connects to public addresses only.
    public: OnceCell<Client>,
    /// For hosts that the user has allowed by name.
    any: OnceCell<Client>,
    /// Pages that are unfolded at once: each may take tens of megabytes.
    unfolding: Semaphore,
}

impl Default for Web {
    fn default() -> Web {
        Web::with(Limits::default(), resolve::system())
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Web").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What a server has answered.
#[derive(Debug)]
pub struct Fetched {
    /// Where it came from, after redirects.
    pub url: Url,
    /// The status.
    pub status: u16,
    /// The type with its parameters, as the server says it.
    pub kind: String,
    /// The body, or its beginning.
    pub bytes: Vec<u8>,
    /// How long the server says the body is.
    pub length: Option<u64>,
    /// The body is longer than what is kept.
    pub cut: bool,
    /// Where it leads, if that was not followed.
    pub redirect: Option<String>,
}

/// Why there is nothing.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The guard refuses it.
    #[error(
        "{host} is {what} address, which is not fetched. The user can allow it with \
         `allow = [\"{host}\"]` in `[web]` of the settings"
    )]
    Blocked {
        /// Whose it is, with its port.
        host: String,
        /// As in "a private".
        what: &'static str,
    },
    /// The name is not known.
    #[error("{host} was not found: {reason}")]
    Unknown {
        /// The name.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// Nobody listens there.
    #[error("{0} refuses connections. Does the server run?")]
    Refused(String),
    /// No encryption that can be trusted.
    #[error("no safe connection to {host}: {reason}")]
    Tls {
        /// Whose.
        host: String,
        /// What TLS says.
        reason: String,
    },
    /// It took too long.
    #[error("{host} took longer than {} s", limit.as_secs_f32())]
    Timeout {
        /// Who did not answer.
        host: String,
        /// How long it could have taken.
        limit: Duration,
    },
    /// It sends in circles.
    #[error("{host} redirects more than {MOST_REDIRECTS} times; the last time to {last}")]
    Circles {
        /// Who.
        host: String,
        /// Where to.
        last: String,
    },
    /// The body is packed in a way that nobody has asked for.
    #[error("{0} sends its answer compressed in a way that cannot be read")]
    Packed(String),
    /// Anything else.
    #[error("the request to {host} failed: {reason}")]
    Broken {
        /// Who.
        host: String,
        /// What it is.
        reason: String,
    },
}

impl Web {
    pub(super) fn with(limits: Limits, lookup: Lookup) -> Web {
        Web {
            limits,
            lookup,
            proxies: Vec::new(),
            allowed: Mutex::default(),
            public: OnceCell::new(),
            any: OnceCell::new(),
            unfolding: Semaphore::new(2),
        }
    }

    /// Names the proxies' hosts, which may be anywhere. What goes through a proxy is looked up by
    /// it, so that only names and literal addresses can be checked here.
    pub fn set_proxies(&mut self, hosts: Vec<String>) {
        self.proxies = hosts;
    }

    /// Sets which hosts may be fetched from wherever they are, as in `localhost:3000`.
    pub fn set_allowed(&self, hosts: &[String]) {
        let parsed = hosts.iter().filter_map(|it| {
            let allowed = Allowed::parse(it);
            if allowed.is_none() {
                tracing::warn!(entry = it, "`web.allow` has an entry that is no host");
            }
            allowed
        });
        let all = Arc::new(parsed.collect());
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Checks what can be checked without asking anybody.
    ///
    /// # Errors
    /// When this is not fetched.
    pub fn check(&self, url: &Url) -> Result<(), FetchError> {
        self.way(url).map(drop)
    }

    fn way(&self, url: &Url) -> Result<Way, FetchError> {
        let allowed = Arc::clone(&self.allowed.lock().unwrap_or_else(PoisonError::into_inner));
        let way = guard::check(url, &allowed).map_err(|what| blocked(url, what))?;
        let is_proxy = |host: &str| self.proxies.iter().any(|it| it.eq_ignore_ascii_case(host));
        if way == Way::Public && url.host_str().is_some_and(is_proxy) {
            return Err(blocked(url, "a proxy's"));
        }
        Ok(way)
    }

    /// Gets it. Follows redirects as long as they stay with the host that the user was asked
    /// about. Safe to cancel.
    ///
    /// # Errors
    /// When there is no answer at all; a bad status is an answer.
    pub async fn fetch(&self, url: Url) -> Result<Fetched, FetchError> {
        let limit = self.limits.total;
        let host = shown(&url);
        let too_long = |_| FetchError::Timeout { host, limit };
        tokio::time::timeout(limit, self.follow(url)).await.map_err(too_long)?
    }

    /// Waits for a turn to make a page of what was fetched.
    pub async fn unfolding(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.unfolding.acquire().await.ok()
    }

    async fn follow(&self, mut url: Url) -> Result<Fetched, FetchError> {
        for _ in 0..=MOST_REDIRECTS {
            let response = self.ask(&url).await?;
            let Some(target) = redirect(&response) else {
                return self.read(url, response).await;
            };
            let next = url.join(&target).ok().and_then(|it| guard::parse(it.as_str()).ok());
            let Some(next) = next else {
                let host = shown(&url);
                return Err(FetchError::Broken { host, reason: NO_TARGET.to_owned() });
            };
            self.check(&next)?;
            let stays = guard::effect_host(&next) == guard::effect_host(&url)
                && (next.scheme() == "https" || url.scheme() == "http");
            if !stays {
                return Ok(Fetched {
                    status: response.status().as_u16(),
                    kind: String::new(),
                    bytes: Vec::new(),
                    length: None,
                    cut: false,
                    redirect: Some(next.to_string()),
                    url,
                });
            }
            url = next;
        }
        Err(FetchError::Circles { host: shown(&url), last: url.to_string() })
    }

    async fn ask(&self, url: &Url) -> Result<Response, FetchError> {
        let client = match self.way(url)? {
            Way::Public => self.client(&self.public, true).await,
            Way::Any => self.client(&self.any, false).await,
        };
        let broken = |reason| FetchError::Broken { host: shown(url), reason };
        let request = client.map_err(broken)?.get(url.clone()).header(ACCEPT, WANTED);
        request.send().await.map_err(|error| self.explain(url, &error))
    }

    async fn client<'a>(
        &self,
        cell: &'a OnceCell<Client>,
        is_guarded: bool,
    ) -> Result<&'a Client, String> {
        let guard = is_guarded
            .then(|| Guarded { lookup: Arc::clone(&self.lookup), proxies: self.proxies.clone() });
        let connect = self.limits.connect;
        cell.get_or_try_init(|| async move {
            // Loading the system's certificates takes milliseconds.
            let building = tokio::task::spawn_blocking(move || build(guard, connect));
            let built = building.await.map_err(|error| error.to_string())?;
            built.map_err(|error| error.to_string())
        })
        .await
    }

    async fn read(&self, url: Url, mut response: Response) -> Result<Fetched, FetchError> {
        let header = |name: HeaderName| {
            let value = response.headers().get(name);
            value.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned())
        };
        // Gzip is taken away by now.
        if header(CONTENT_ENCODING).is_some_and(|it| it != "identity") {
            return Err(FetchError::Packed(shown(&url)));
        }
        let kind = header(CONTENT_TYPE).unwrap_or_default();
        let (status, length) = (response.status().as_u16(), response.content_length());
        let most = if length.is_some() { self.limits.sent } else { self.limits.held };
        let (mut bytes, mut cut) = (Vec::new(), false);
        while !cut && !super::page::is_opaque(&kind) {
            let next = response.chunk().await.map_err(|error| self.explain(&url, &error))?;
            let Some(chunk) = next else { break };
            let room = most.saturating_sub(bytes.len());
            cut = chunk.len() > room;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Ok(Fetched { url, status, kind, bytes, length, cut, redirect: None })
    }

    /// Finds what is wrong at the bottom of an error.
    fn explain(&self, url: &Url, error: &reqwest::Error) -> FetchError {
        let host = shown(url);
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
                    return FetchError::Unknown { host, reason: error.to_string() };
                }
                None => {}
            }
            let io = error.downcast_ref::<io::Error>();
            if io.is_some_and(|it| it.kind() == io::ErrorKind::ConnectionRefused) {
                return FetchError::Refused(host);
            }
            if io.is_some_and(is_tls) {
                return FetchError::Tls { host, reason };
            }
            source = error.source();
        }
        FetchError::Broken { host, reason }
    }
}

/// What an I/O error wraps is not its source; and it may wrap another.
fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| {
        inner.is::<rustls::Error>() || inner.downcast_ref::<io::Error>().is_some_and(is_tls)
    })
}

fn blocked(url: &Url, what: &'static str) -> FetchError {
    FetchError::Blocked { host: shown(url), what }
}

/// Host and port for people, as `web.allow` takes them.
fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Where an answer leads.
fn redirect(response: &Response) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let target = response.headers().get(LOCATION)?;
    Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
}

fn build(guard: Option<Guarded>, connect: Duration) -> reqwest::Result<Client> {
    // The second call of a process finds the provider installed, which is as good.
    drop(rustls::crypto::CryptoProvider::install_default(rustls::crypto::ring::default_provider()));
    let builder = Client::builder()
        .connect_timeout(connect)
        // Each page is looked up and connected to anew.
        .pool_max_idle_per_host(0)
        .redirect(redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("turnwright/", env!("CARGO_PKG_VERSION")));
    match guard {
        Some(guard) => builder.dns_resolver(guard).build(),
        // What the user has allowed is near: no proxy has to be asked for it.
        None => builder.no_proxy().build(),
    }
}
