//! The logins at servers on HTTP: one file each, that only its owner can read, under the server's
//! exact address. Whoever renews one has it locked, so that no other process spends the same token.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use ring::digest::{SHA256, digest};
use rmcp::transport::auth::{AuthError, AuthorizationManager, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};

use turnwright_workspace::private_file;
use turnwright_types::ids::hex;
use turnwright_types::redact;

/// How long a renewal may take, with the wait for somebody else's.
const LIMIT: Duration = Duration::from_secs(20);
/// How long before its end a token is renewed.
const MARGIN: u64 = 60;
/// How often a lock is tried for.
const PAUSE: Duration = Duration::from_millis(20);

/// Where logins are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logins(PathBuf);

/// The login at one server, whether there is one or not.
#[derive(Clone, Debug)]
pub struct Login {
    url: Url,
    file: PathBuf,
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    url: Url,
    credentials: StoredCredentials,
}

impl Logins {
    /// Those in the user's folder of settings.
    pub fn new(config: &Path) -> Logins {
        Logins(config.join("mcp-logins"))
    }

    /// The login at that address; `None` if a token must not go there, because anybody on the way
    /// could read it.
    pub fn at(&self, url: &Url) -> Option<Login> {
        let is_here = match url.host()? {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let mut url = url.clone();
        url.set_fragment(None);
        let name = hex(digest(&SHA256, url.as_str().as_bytes()).as_ref());
        let file = self.0.join(format!("{name}.json"));
        (url.scheme() == "https" || is_here).then_some(Login { url, file })
    }
}

impl Login {
    /// Forgets it. Returns whether there was one.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn remove(&self) -> io::Result<bool> {
        private_file::remove(&self.file)
    }

    /// When it was changed last, if it is there. To be compared.
    pub(super) async fn changed_at(&self) -> Option<SystemTime> {
        let file = self.file.clone();
        let look = move || fs::metadata(file).and_then(|it| it.modified()).ok();
        tokio::task::spawn_blocking(look).await.ok().flatten()
    }

    /// A token to be sent along, renewed if it is about to end; `None` without a login.
    ///
    /// # Errors
    /// When it could not be renewed.
    pub(super) async fn token(&self) -> Result<Option<String>, AuthError> {
        match self.read().await? {
            Some(stored) if is_over(&stored) => self.renew(None).await,
            stored => Ok(stored.as_ref().and_then(access)),
        }
    }

    /// Another token in place of one that was refused, or of one that is over.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(super) async fn renew(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        let late = || AuthError::TokenRefreshFailed("it took too long".to_owned());
        let renewal = async {
            let _lock = self.lock().await?;
            // Somebody else may have done it meanwhile.
            let Some(stored) = self.read().await? else { return Ok(None) };
            let token = access(&stored);
            let is_news = refused.is_none_or(|it| token.as_deref() != Some(it));
            if is_news && !is_over(&stored) {
                return Ok(token);
            }
            let mut manager = self.manager().await?;
            if !manager.initialize_from_store().await? {
                return Err(AuthError::AuthorizationRequired);
            }
            manager.refresh_token().await?;
            Ok(self.read().await?.as_ref().and_then(access))
        };
        tokio::time::timeout(LIMIT, renewal).await.unwrap_or_else(|_| Err(late()))
    }

    /// What speaks OAuth for this server, and keeps here what it gets.
    pub(super) async fn manager(&self) -> Result<AuthorizationManager, AuthError> {
        let url = self.url.clone();
        // Certificates are read, which takes milliseconds.
        let build = move || {
            super::http::prepare_tls();
            AuthorizationManager::new_allowing_private_addresses(url).now_or_never()
        };
        let manager = tokio::task::spawn_blocking(build).await.ok().flatten();
        let mut manager =
            manager.unwrap_or_else(|| Err(AuthError::InternalError("no client".to_owned())))?;
        manager.set_credential_store(self.clone());
        Ok(manager)
    }

    async fn read(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let login = self.clone();
        let read = move || match fs::read(&login.file) {
            Ok(bytes) => Ok(serde_json::from_slice::<Kept>(&bytes)
                .ok()
                .filter(|it| it.url == login.url)
                .map(|it| it.credentials)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let stored = on_disk(read).await?;
        if let Some(stored) = &stored {
            learn(stored);
        }
        Ok(stored)
    }

    async fn lock(&self) -> Result<Option<File>, AuthError> {
        let path = self.file.with_extension("lock");
        loop {
            let path = path.clone();
            match on_disk(move || try_lock(&path)).await {
                Err(AuthError::TokenRefreshFailed(_)) => tokio::time::sleep(PAUSE).await,
                result => return result,
            }
        }
    }
}

#[cfg(unix)]
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().create(true).append(true).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(file))
}

/// Elsewhere the last one wins.
#[cfg(not(unix))]
fn try_lock(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Does something with files. What would have to wait has failed for the moment.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, AuthError> {
    let result = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.into()));
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
            AuthError::TokenRefreshFailed("somebody else is at it".to_owned())
        }
        _ => AuthError::CredentialStoreError(error.to_string()),
    })
}

fn field<'a>(token: &'a Value, name: &str) -> Option<&'a str> {
    token.get(name)?.as_str()
}

fn token(stored: &StoredCredentials) -> Value {
    serde_json::to_value(&stored.token_response).unwrap_or_default()
}

fn access(stored: &StoredCredentials) -> Option<String> {
    field(&token(stored), "access_token").map(str::to_owned)
}

fn is_over(stored: &StoredCredentials) -> bool {
    let lifetime = token(stored).get("expires_in").and_then(Value::as_u64);
    let (Some(lifetime), Some(since)) = (lifetime, stored.token_received_at) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // A token of a minute is not renewed before each request.
    now.saturating_sub(since) >= lifetime.saturating_sub(MARGIN.min(lifetime / 2))
}

/// Has the tokens hidden from now on, wherever they stand.
fn learn(stored: &StoredCredentials) {
    let token = token(stored);
    let names = ["access_token", "refresh_token", "id_token"];
    redact::learn(names.iter().filter_map(|it| Some(field(&token, it)?.to_owned())));
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl CredentialStore for Login {
    fn load<'a, 'b>(&'a self) -> Answer<'b, Option<StoredCredentials>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.read())
    }

    fn save<'a, 'b>(&'a self, credentials: StoredCredentials) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        learn(&credentials);
        let kept = Kept { url: self.url.clone(), credentials };
        let file = self.file.clone();
        Box::pin(on_disk(move || private_file::store(&file, &serde_json::to_vec_pretty(&kept)?)))
    }

    fn clear<'a, 'b>(&'a self) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        let login = self.clone();
        Box::pin(on_disk(move || login.remove().map(drop)))
    }
}
