//! The stored OAuth logins of HTTP servers: one file for each exact address, readable only by its owner.
//! A login is locked while it is renewed, so that two processes never use the same refresh token.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use rmcp::transport::auth::{AuthError, AuthorizationManager, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::spawn_blocking;
use url::{Host, Url};

use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_types::private_file::FileLock;
use turnwright_types::redact;

/// How long a renewal may take, including the wait for another process's.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Seconds before its expiry at which a token is renewed.
const RENEWAL_MARGIN: u64 = 60;
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The folder with all logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStore(PathBuf);

/// The place of one server's login, which may be empty.
#[derive(Clone, Debug)]
pub struct ServerLogin {
    url: Url,
    file: PathBuf,
}

/// The content of a login file.
#[derive(Serialize, Deserialize)]
struct LoginFile {
    url: Url,
    credentials: StoredCredentials,
}

impl LoginStore {
    /// The store below the user's configuration folder.
    pub fn new(config: &Path) -> LoginStore {
        LoginStore(config.join("mcp-logins"))
    }

    /// Returns the login for an address; `None` if a token must not be sent there, because the
    /// connection is neither encrypted nor local.
    pub fn login_for(&self, url: &Url) -> Option<ServerLogin> {
        let is_local = match url.host()? {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let mut url = url.clone();
        url.set_fragment(None);
        let name = sha256_hex(url.as_str().as_bytes());
        let file = self.0.join(format!("{name}.json"));
        (url.scheme() == "https" || is_local).then_some(ServerLogin { url, file })
    }
}

impl ServerLogin {
    /// Removes the login. Returns false if there was none.
    pub fn remove(&self) -> io::Result<bool> {
        private_file::remove(&self.file)
    }

    /// When the login was last changed, if there is one.
    pub(crate) async fn changed_at(&self) -> Option<SystemTime> {
        let file = self.file.clone();
        spawn_blocking(move || fs::metadata(file).and_then(|metadata| metadata.modified()).ok())
            .await
            .ok()
            .flatten()
    }

    /// Returns the access token, renewed if it is about to expire; `None` without a login.
    pub(crate) async fn token(&self) -> Result<Option<String>, AuthError> {
        match self.read().await? {
            Some(stored) if is_expiring(&stored) => self.renew(None).await,
            stored => Ok(stored.as_ref().and_then(access_token)),
        }
    }

    /// Returns a new token in place of one that was refused or has expired.
    pub(crate) async fn renew(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        let renewal = async {
            let _lock = self.lock().await?;
            // Another process may have renewed it meanwhile.
            let Some(stored) = self.read().await? else { return Ok(None) };
            let token = access_token(&stored);
            let is_new = refused.is_none_or(|refused| token.as_deref() != Some(refused));
            if is_new && !is_expiring(&stored) {
                return Ok(token);
            }
            let mut manager = self.manager().await?;
            if !manager.initialize_from_store().await? {
                return Err(AuthError::AuthorizationRequired);
            }
            manager.refresh_token().await?;
            Ok(self.read().await?.as_ref().and_then(access_token))
        };
        tokio::time::timeout(RENEWAL_TIMEOUT, renewal)
            .await
            .unwrap_or_else(|_| Err(AuthError::TokenRefreshFailed("it took too long".to_owned())))
    }

    /// Creates the OAuth client for this server, which stores its credentials here.
    pub(crate) async fn manager(&self) -> Result<AuthorizationManager, AuthError> {
        let url = self.url.clone();
        // Blocking, because the system's certificates are read.
        let built = spawn_blocking(move || {
            turnwright_http::install_tls_provider();
            AuthorizationManager::new_allowing_private_addresses(url).now_or_never()
        });
        let mut manager = built
            .await
            .ok()
            .flatten()
            .unwrap_or_else(|| Err(AuthError::InternalError("no client".to_owned())))?;
        manager.set_credential_store(self.clone());
        Ok(manager)
    }

    async fn read(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let login = self.clone();
        let stored = on_disk(move || match fs::read(&login.file) {
            Ok(bytes) => Ok(serde_json::from_slice::<LoginFile>(&bytes)
                .ok()
                .filter(|saved| saved.url == login.url)
                .map(|saved| saved.credentials)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await?;
        if let Some(stored) = &stored {
            register_tokens(stored)?;
        }
        Ok(stored)
    }

    async fn lock(&self) -> Result<FileLock, AuthError> {
        let path = self.file.with_extension("lock");
        loop {
            let path = path.clone();
            match on_disk(move || FileLock::try_acquire(&path)).await? {
                Some(lock) => return Ok(lock),
                None => tokio::time::sleep(LOCK_POLL_INTERVAL).await,
            }
        }
    }
}

/// Runs blocking file I/O.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, AuthError> {
    let result = spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    result.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
}

fn field<'a>(token: &'a Value, name: &str) -> Option<&'a str> {
    token.get(name)?.as_str()
}

fn token(stored: &StoredCredentials) -> Value {
    serde_json::to_value(&stored.token_response).unwrap_or_default()
}

fn access_token(stored: &StoredCredentials) -> Option<String> {
    field(&token(stored), "access_token").map(str::to_owned)
}

fn is_expiring(stored: &StoredCredentials) -> bool {
    let lifetime = token(stored).get("expires_in").and_then(Value::as_u64);
    let (Some(lifetime), Some(since)) = (lifetime, stored.token_received_at) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // A token of a minute is not renewed before each request.
    now.saturating_sub(since) >= lifetime.saturating_sub(RENEWAL_MARGIN.min(lifetime / 2))
}

/// Registers the tokens for redaction.
fn register_tokens(stored: &StoredCredentials) -> Result<(), AuthError> {
    let token = token(stored);
    let names = ["access_token", "refresh_token", "id_token"];
    redact::register_keys(names.iter().filter_map(|name| Some(field(&token, name)?.to_owned())))
        .map_err(|error| AuthError::CredentialStoreError(error.to_string()))
}

type CredentialFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl CredentialStore for ServerLogin {
    fn load<'a, 'b>(&'a self) -> CredentialFuture<'b, Option<StoredCredentials>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.read())
    }

    fn save<'a, 'b>(&'a self, credentials: StoredCredentials) -> CredentialFuture<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        let file = self.file.clone();
        Box::pin(async move {
            register_tokens(&credentials)?;
            let kept = LoginFile { url: self.url.clone(), credentials };
            on_disk(move || private_file::write(&file, &serde_json::to_vec_pretty(&kept)?)).await
        })
    }

    fn clear<'a, 'b>(&'a self) -> CredentialFuture<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        let login = self.clone();
        Box::pin(on_disk(move || login.remove().map(drop)))
    }
}
