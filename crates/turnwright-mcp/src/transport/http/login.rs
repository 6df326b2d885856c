//! Logs in to an HTTP server: OAuth with PKCE in the user's browser, which is redirected to a port of this
//! machine.
//!
//! The logins are stored: one file for each exact address, readable only by its owner. A login is locked while it
//! is renewed, so that two processes never use the same refresh token.

mod callback;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::FutureExt;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationRequest,
    AuthorizationSession, CredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::{Origin, Url};

use super::display_line;
use super::reply::read_body;
use callback::{CALLBACK, open_callback, parameter, repeated_parameter, wait_for_callback};
use turnwright_http::names_this_machine;
use turnwright_types::error_text::error_chain;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file::{self, FileLock};
use turnwright_types::redact;

/// How long the user may take in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the server may take for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// The types of answers that any client takes, and those that a client of MCP takes.
const ANY_TYPE: &str = "*/*";
pub(super) const MCP_TYPES: &str = "application/json, text/event-stream";
/// Maximum size of the metadata of an authorization server.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// Logs in and stores the credentials. The client id is for servers where clients are registered beforehand, or is the
/// address of a metadata document; the scopes are requested instead of those that the server proposes. The browser is
/// sent back to the `callback`, for clients that are registered with another one than ours; without a port, to any free
/// one. `show` receives the address that the user must open.
///
/// # Errors
/// If the login fails; the text is for the user.
pub async fn log_in(
    login: &ServerLogin,
    client_id: Option<String>,
    scopes: Vec<String>,
    callback: Option<&str>,
    show: impl FnOnce(&str),
) -> Result<(), String> {
    let (listener, redirect) = open_callback(callback.unwrap_or(CALLBACK)).await?;
    let starting = start_session(login, client_id, scopes, redirect.to_string());
    let (session, server) =
        timeout(STEP_TIMEOUT, starting).await.unwrap_or_else(|_| Err(step_timed_out()))?;
    let address = Url::parse(session.get_authorization_url())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or("the server gives no valid address for its login page")?;
    if let Some(name) = repeated_parameter(&address) {
        return Err(display_line(&format!(
            "the address of the login page repeats `{name}`: the server's \
             `authorization_endpoint` has one of its own"
        )));
    }
    let state =
        parameter(&address, "state").ok_or("the address of the login page has no `state`")?;
    show(address.as_str());
    let waiting = wait_for_callback(&listener, redirect.path(), &state, &server);
    let waited = timeout(LOGIN_TIMEOUT, waiting).await;
    let answer = waited.map_err(|_| {
        format!("the login was not completed within {} s", LOGIN_TIMEOUT.as_secs())
    })??;
    redact::register_keys(parameter(&answer, "code")).map_err(|error| error.to_string())?;
    let exchange = timeout(STEP_TIMEOUT, session.handle_callback_url(answer.as_str())).await;
    let exchanged = exchange.map_err(|_| step_timed_out())?;
    exchanged.map(drop).map_err(|error| describe_error(&error))
}

async fn start_session(
    login: &ServerLogin,
    client_id: Option<String>,
    mut scopes: Vec<String>,
    redirect: String,
) -> Result<(AuthorizationSession, AuthorizationMetadata), String> {
    let (manager, metadata) = login.discover().await.map_err(|error| describe_error(&error))?;
    let offline = "offline_access".to_owned();
    let supported = metadata.scopes_supported.as_deref().unwrap_or_default();
    if scopes.is_empty() {
        scopes = manager.select_initial_scopes(&[]).await;
    } else if supported.contains(&offline) && !scopes.contains(&offline) {
        scopes.push(offline);
    }
    let mut request = AuthorizationRequest::new(redirect).with_initial_scope_selection();
    request.scopes = scopes;
    request.client_id = client_id;
    let session = open_session(login, manager, request).await.map_err(|error| {
        let why = describe_error(&error);
        match error {
            _ if metadata.issuer.is_none() => format!(
                "the server does not say how to log in, and the default endpoints did not work ({why}). \
                 If it requires a key, set it in a header"
            ),
            AuthError::RegistrationFailed(_) => {
                format!("{why}. If you have a client id for this server, use `--client-id`")
            }
            _ => why,
        }
    })?;
    Ok((session, metadata))
}

/// Opens the session of a client, which is registered unless it has an id. A session that registers its client itself
/// forgets the secret that some servers give a client, and require for each renewal.
async fn open_session(
    login: &ServerLogin,
    mut manager: AuthorizationManager,
    mut request: AuthorizationRequest,
) -> Result<AuthorizationSession, AuthError> {
    if request.client_id.is_none() {
        let scopes: Vec<_> = request.scopes.iter().map(String::as_str).collect();
        let client = manager.register_client("turnwright", &request.redirect_uri, &scopes).await?;
        redact::register_keys(client.client_secret.clone()).map_err(as_store_error)?;
        request.client_id = Some(client.client_id);
        request.client_secret.clone_from(&client.client_secret);
        let client_secret = client.client_secret;
        manager.set_credential_store(ServerLogin { client_secret, ..login.clone() });
    }
    AuthorizationSession::new(manager, request).await.map_err(|(_, error)| error)
}

/// Refuses a server whose login would be sent over a connection that is neither encrypted nor local.
fn check_endpoints(server: &AuthorizationMetadata) -> Result<(), AuthError> {
    let endpoints = [
        ("authorization_endpoint", Some(&server.authorization_endpoint)),
        ("token_endpoint", Some(&server.token_endpoint)),
        ("registration_endpoint", server.registration_endpoint.as_ref()),
        // The authorization server, whose metadata could be changed on the way.
        ("issuer", server.issuer.as_ref()),
    ];
    for (name, endpoint) in endpoints {
        let Some(address) = endpoint else { continue };
        if !Url::parse(address).is_ok_and(|url| is_encrypted_or_local(&url)) {
            return Err(AuthError::MetadataError(format!(
                "the login is not sent without encryption, and the server's `{name}` is neither \
                 `https` nor on this machine ({address})"
            )));
        }
    }
    Ok(())
}

fn is_encrypted_or_local(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && names_this_machine(url)
}

/// Returns true if the code of a login is sent to the host where the user logs in, or to one below it.
fn keeps_code(server: &AuthorizationMetadata) -> bool {
    let login = dotted_host(&server.authorization_endpoint);
    let both = login.zip(dotted_host(&server.token_endpoint));
    both.is_some_and(|(login, token)| token.ends_with(&login))
}

fn origin(url: &str) -> Option<Origin> {
    Some(Url::parse(url).ok()?.origin())
}

/// The host of a URL behind a dot, so that a comparison of ends compares whole names.
fn dotted_host(url: &str) -> Option<String> {
    Some(format!(".{}", Url::parse(url).ok()?.host_str()?))
}

fn step_timed_out() -> String {
    format!("the server did not answer within {} s", STEP_TIMEOUT.as_secs())
}

fn describe_error(error: &AuthError) -> String {
    display_line(&error_chain(error))
}

/// The time limit of a renewal, including the wait for another process's.
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
    /// The secret of the client that the server has registered, to be stored with the credentials.
    client_secret: Option<String>,
}

/// The content of a login file.
#[derive(Serialize, Deserialize)]
struct LoginFile {
    url: Url,
    credentials: StoredCredentials,
    /// The secret of the client, if the server has given it one.
    client_secret: Option<String>,
}

impl LoginStore {
    /// The store below the user's configuration folder.
    pub fn new(config: &Path) -> LoginStore {
        LoginStore(config.join("mcp-logins"))
    }

    /// Returns the login for an address; `None` if a token must not be sent there, because the
    /// connection is neither encrypted nor local.
    pub fn login_for(&self, url: &Url) -> Option<ServerLogin> {
        let mut url = url.clone();
        url.set_fragment(None);
        let file = self.0.join(format!("{}.json", sha256_hex(url.as_str().as_bytes())));
        is_encrypted_or_local(&url).then_some(ServerLogin { url, file, client_secret: None })
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
        on_disk(move || fs::metadata(file)?.modified()).await.ok()
    }

    /// Returns the access token, renewed if it is about to expire; `None` without a login.
    pub(crate) async fn token(&self) -> Result<Option<String>, AuthError> {
        match self.read().await? {
            Some(saved) if is_expiring(&saved.credentials) => self.renew(None).await,
            saved => Ok(saved.and_then(|saved| access_token(&saved.credentials))),
        }
    }

    /// Returns the access token, even if it is about to expire; `None` without a login.
    pub(super) async fn stored_token(&self) -> Result<Option<String>, AuthError> {
        Ok(self.read().await?.and_then(|saved| access_token(&saved.credentials)))
    }

    /// Returns a new token in place of one that was refused or has expired.
    #[expect(clippy::disallowed_methods, reason = "it must not end with whoever waits for it")]
    pub(crate) async fn renew(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        let renewal = async {
            let lock = self.lock().await?;
            // A server that replaces its refresh tokens tells the new one only once, so this goes on if nobody waits.
            let renewing = self.clone().renew_locked(lock, refused.map(str::to_owned));
            tokio::spawn(renewing).await.map_err(as_store_error)?
        };
        timeout(RENEWAL_TIMEOUT, renewal)
            .await
            .unwrap_or_else(|_| Err(AuthError::TokenRefreshFailed("it took too long".to_owned())))
    }

    /// Renews the login, unless that was done before the lock was free.
    async fn renew_locked(
        self,
        _lock: FileLock,
        refused: Option<String>,
    ) -> Result<Option<String>, AuthError> {
        let Some(saved) = self.read().await? else { return Ok(None) };
        let stored = saved.credentials;
        let token = access_token(&stored);
        if (refused.is_none() || token != refused) && !is_expiring(&stored) {
            return Ok(token);
        }
        let (mut manager, server) = self.discover().await?;
        // While a server does not say who issues its tokens, its own address takes the place of the issuer. Then
        // its endpoints must not get a token that another server has issued, and the login is kept.
        let is_own = server.issuer.as_deref().and_then(origin) == Some(self.url.origin());
        let is_other = server.issuer.is_none() || is_own && server.issuer != stored.issuer;
        if is_other && stored.issuer.is_some() {
            return Err(AuthError::NoAuthorizationSupport);
        }
        if !manager.initialize_from_store().await? {
            return Err(AuthError::AuthorizationRequired);
        }
        if let Some(secret) = saved.client_secret {
            let client = OAuthClientConfig::new(stored.client_id, self.url.as_str());
            manager.configure_client(client.with_client_secret(&secret))?;
            let client_secret = Some(secret);
            manager.set_credential_store(ServerLogin { client_secret, ..self.clone() });
        }
        let mut renewed = manager.refresh_token().await;
        // Entra renews a token only for scopes that are named. After any other failure, a second use of a refresh
        // token that the server replaces each time could pass for a theft.
        if let Err(AuthError::TokenRefreshFailed(why)) = &renewed
            && UNNAMED_SCOPE_CODES.iter().any(|code| why.contains(code))
            && !stored.granted_scopes.is_empty()
        {
            manager.set_refresh_scopes(stored.granted_scopes);
            renewed = manager.refresh_token().await;
        }
        renewed.map_err(as_rejection)?;
        self.stored_token().await
    }

    /// Discovers the authorization server of this server. Returns an OAuth client for it, and its metadata, which have
    /// no issuer if they are only guessed.
    async fn discover(&self) -> Result<(AuthorizationManager, AuthorizationMetadata), AuthError> {
        let mut manager = self.manager(ANY_TYPE).await?;
        let mut resolved = manager.resolve_metadata().await;
        // Some servers redirect everyone but clients of MCP to their manual, which is elsewhere. Others would answer
        // such a client with a stream that does not end, so this is not the first attempt.
        if let Err(AuthError::DiscoveryRequestFailed { url, .. }) = &resolved
            && *url == self.url
        {
            manager = self.manager(MCP_TYPES).await?;
            resolved = manager.resolve_metadata().await;
        }
        let mut misnamed = None;
        if let Err(
            AuthError::AuthorizationServerMismatch { expected_issuer, .. }
            | AuthError::AuthorizationServerMissingIssuer { expected_issuer },
        ) = &resolved
        {
            misnamed = self.metadata_of(expected_issuer).await.filter(keeps_code);
        }
        let metadata = misnamed.clone().map_or_else(|| resolved.map(|found| found.metadata), Ok)?;
        check_endpoints(&metadata)?;
        // Metadata at an unusual address can name any issuer. Users would log in there, and the code and later the
        // refresh token would go to whoever has written them.
        if misnamed.is_none()
            && let Some(issuer) = &metadata.issuer
            && origin(issuer) != origin(&metadata.token_endpoint)
            && self
                .metadata_of(issuer)
                .await
                .is_none_or(|own| own.token_endpoint != metadata.token_endpoint)
        {
            let why = format!("the `issuer` ({issuer}) does not confirm the `token_endpoint`");
            return Err(AuthError::MetadataError(why));
        }
        // At such an address it may also name none.
        if metadata.issuer.is_none() && !keeps_code(&metadata) {
            let why = "the `token_endpoint` is not on the host of the `authorization_endpoint`";
            return Err(AuthError::MetadataError(why.to_owned()));
        }
        manager.set_metadata(metadata.clone());
        Ok((manager, metadata))
    }

    /// Fetches the metadata of an authorization server, which may not name its address as its issuer, as those of
    /// Atlassian, Slack and Entra. Its address replaces the name, which could be that of another server, whose responses
    /// would then be accepted and whose tokens would be renewed here.
    async fn metadata_of(&self, address: &str) -> Option<AuthorizationMetadata> {
        let base = Url::parse(address).ok()?;
        let own_path = base.path().trim_end_matches('/');
        let server = self.url.clone();
        let client = spawn_blocking(move || http_client(&server, ANY_TYPE)).await.ok()?.ok()?;
        for path in [
            format!("/.well-known/oauth-authorization-server{own_path}"),
            format!("/.well-known/openid-configuration{own_path}"),
            format!("{own_path}/.well-known/openid-configuration"),
            "/.well-known/oauth-authorization-server".to_owned(),
        ] {
            let mut document = base.clone();
            document.set_path(&path);
            let response = client.get(document).send().await.ok()?;
            let body = read_body(response, MAX_METADATA_BYTES).await.ok()?.unwrap_or_default();
            if let Ok(mut found) = serde_json::from_slice::<AuthorizationMetadata>(&body) {
                found.issuer = Some(address.to_owned());
                return Some(found);
            }
        }
        None
    }

    /// Creates the OAuth client for this server, which stores its credentials here.
    async fn manager(&self, accepted: &'static str) -> Result<AuthorizationManager, AuthError> {
        let login = self.clone();
        // Blocking, because the system's certificates are read.
        spawn_blocking(move || manager(login, accepted)).await.map_err(as_store_error)?
    }

    async fn read(&self) -> Result<Option<LoginFile>, AuthError> {
        let login = self.clone();
        let stored = on_disk(move || match fs::read(&login.file) {
            Ok(bytes) => Ok(serde_json::from_slice::<LoginFile>(&bytes)
                .ok()
                .filter(|saved| saved.url == login.url)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await?;
        stored.as_ref().map_or(Ok(()), register_tokens)?;
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

fn manager(login: ServerLogin, accepted: &'static str) -> Result<AuthorizationManager, AuthError> {
    let client = http_client(&login.url, accepted)?;
    let mut manager = AuthorizationManager::new_allowing_private_addresses(login.url.clone())
        .now_or_never()
        .unwrap_or_else(|| Err(AuthError::InternalError("no client".to_owned())))?;
    manager.with_client(client)?;
    manager.set_credential_store(login);
    Ok(manager)
}

/// Creates the HTTP client for the login to a server. It takes answers of the given types, unless a request says which.
/// It follows no redirects: they could lead the registration to an address that was not checked. For a server on
/// another machine it sends nothing without encryption, not even the requests that find out who issues the tokens.
fn http_client(server: &Url, accepted: &'static str) -> reqwest::Result<reqwest::Client> {
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accepted))]);
    let builder = turnwright_http::client_builder()
        .default_headers(headers)
        .timeout(STEP_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .https_only(!names_this_machine(server));
    turnwright_http::build_client(builder, true)
}

/// The codes, besides `invalid_grant`, with which servers reject a refresh token or client that they no longer know.
const REJECTION_CODES: [&str; 5] =
    ["invalid_client", "invalid_request", "invalid_scope", "invalid_token", "unauthorized_client"];
/// The codes with which servers refuse to renew a token for scopes that are not named.
const UNNAMED_SCOPE_CODES: [&str; 2] = ["invalid_request", "invalid_target"];

/// Marks a renewal as rejected if the user must log in again. Any other failed renewal may succeed later.
fn as_rejection(error: AuthError) -> AuthError {
    let AuthError::TokenRefreshFailed(why) = error else { return error };
    if REJECTION_CODES.iter().any(|code| why.contains(code)) {
        return AuthError::TokenRefreshRejected(why);
    }
    AuthError::TokenRefreshFailed(why)
}

/// Runs blocking file I/O.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, AuthError> {
    let result = spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    result.map_err(as_store_error)
}

fn as_store_error(error: impl std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

fn token(stored: &StoredCredentials) -> Value {
    serde_json::to_value(&stored.token_response).unwrap_or_default()
}

fn access_token(stored: &StoredCredentials) -> Option<String> {
    token(stored)["access_token"].as_str().map(str::to_owned)
}

fn is_expiring(stored: &StoredCredentials) -> bool {
    let lifetime = token(stored).get("expires_in").and_then(Value::as_u64);
    let (Some(lifetime), Some(since)) = (lifetime, stored.token_received_at) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // With the whole margin, a token that lives for a minute would be renewed before each request.
    now.saturating_sub(since) >= lifetime - RENEWAL_MARGIN.min(lifetime / 2)
}

/// Registers the tokens and the secret of the client for redaction.
fn register_tokens(stored: &LoginFile) -> Result<(), AuthError> {
    let token = token(&stored.credentials);
    let names = ["access_token", "refresh_token", "id_token"];
    let tokens = names.iter().filter_map(|name| Some(token[*name].as_str()?.to_owned()));
    redact::register_keys(tokens.chain(stored.client_secret.clone())).map_err(as_store_error)
}

#[async_trait]
impl CredentialStore for ServerLogin {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.read().await?.map(|saved| saved.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let ServerLogin { url, file, client_secret } = self.clone();
        let kept = LoginFile { url, credentials, client_secret };
        register_tokens(&kept)?;
        on_disk(move || private_file::write(&file, &serde_json::to_vec_pretty(&kept)?)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let login = self.clone();
        on_disk(move || login.remove().map(drop)).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::callback::{read_path, respond};
    use super::*;

    /// Metadata whose endpoints and issuer are at this address.
    fn metadata_at(address: &str) -> Value {
        json!({
            "authorization_endpoint": address,
            "token_endpoint": address,
            "registration_endpoint": address,
            "issuer": address,
        })
    }

    #[test]
    fn a_login_is_sent_only_to_encrypted_or_local_endpoints() {
        let good = ["https://a.example", "http://localhost:1", "http://127.0.0.2", "http://[::1]/"];
        for address in good {
            let server = serde_json::from_value(metadata_at(address)).unwrap();
            assert!(check_endpoints(&server).is_ok(), "{address}");
        }
        let names = ["authorization_endpoint", "token_endpoint", "registration_endpoint", "issuer"];
        let bad = [
            "http://a.example/",
            "http://192.0.2.1/",
            "http://localhost.a.example/",
            "javascript://localhost/",
            "/x",
        ];
        for address in bad {
            for name in names {
                let mut metadata = metadata_at("https://a.example");
                metadata[name] = json!(address);
                let server = serde_json::from_value(metadata).unwrap();
                let why = check_endpoints(&server).unwrap_err().to_string();
                assert!(why.contains(&format!("`{name}`")), "{address}: {why}");
            }
        }
    }

    #[tokio::test]
    async fn the_login_of_a_server_elsewhere_sends_nothing_without_encryption() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let plain = format!("http://{}/", listener.local_addr().unwrap());
        let far_server = Url::parse("https://a.example/mcp").unwrap();
        let far = http_client(&far_server, ANY_TYPE).unwrap();
        assert!(far.get(&plain).send().await.is_err());
        assert!(listener.accept().now_or_never().is_none());
        // A server on this machine may have its authorization server there.
        let near_server = Url::parse("http://localhost:1/mcp").unwrap();
        let near = http_client(&near_server, ANY_TYPE).unwrap();
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_path(&mut stream).await.unwrap();
            respond(&mut stream, "200 OK", "").await.unwrap();
        };
        let (sent, ()) = tokio::join!(near.get(&plain).send(), answer);
        assert!(sent.unwrap().status().is_success());
    }

    #[test]
    fn m_43_a_token_is_renewed_in_the_last_minute_or_the_second_half_of_a_short_life() {
        // Each row: lifetime and age in seconds, and whether the token is renewed.
        let table = [
            (3600, 0, false),
            (3600, 3500, false),
            (3600, 3545, true),
            (3600, 4000, true),
            (90, 20, false),
            (90, 50, true),
            (40, 0, false),
            (40, 10, false),
            (40, 25, true),
            (0, 0, true),
        ];
        for (lifetime, age, expected) in table {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let stored: StoredCredentials = serde_json::from_value(json!({
                "client_id": "client-1",
                "token_response":
                    { "access_token": "a", "token_type": "bearer", "expires_in": lifetime },
                "token_received_at": now - age,
            }))
            .unwrap();
            assert_eq!(is_expiring(&stored), expected, "{lifetime} s, after {age} s");
        }
    }
}
