//! Logs in to an HTTP server: OAuth with PKCE in the user's browser, which is redirected to a port of this
//! machine. [`super::login_store`] stores the result.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadataSource, AuthorizationRequest, AuthorizationSession,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

use super::display_line;
use super::login_store::ServerLogin;
use turnwright_types::redact;

/// How long the user may take in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the server may take for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the browser may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request that is read.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Concurrent connections. Browsers open some that they never use.
const MAX_CONNECTIONS: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct LoginOptions {
    /// The client id, for servers where clients are registered beforehand.
    pub client_id: Option<String>,
    /// The scopes to request instead of those that the server proposes.
    pub scopes: Vec<String>,
}

/// Logs in and stores the credentials. `show` receives the address that the user must open.
///
/// # Errors
/// If the login fails; the text is for the user.
pub async fn log_in(
    login: &ServerLogin,
    options: LoginOptions,
    show: impl FnOnce(&str),
) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .map_err(|error| format!("could not open a local port: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let starting = start_session(login, options, format!("http://127.0.0.1:{port}/callback"));
    let session =
        timeout(STEP_TIMEOUT, starting).await.unwrap_or_else(|_| Err(step_timed_out()))?;
    let address = Url::parse(session.get_authorization_url())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or("the server gives no valid address for its login page")?;
    let state =
        parameter(&address, "state").ok_or("the address of the login page has no `state`")?;
    show(address.as_str());
    let waited = timeout(LOGIN_TIMEOUT, wait_for_callback(&listener, &state)).await;
    let callback = waited.map_err(|_| {
        format!("the login was not completed within {} s", LOGIN_TIMEOUT.as_secs())
    })??;
    redact::register_keys(parameter(&callback, "code")).map_err(|error| error.to_string())?;
    match timeout(STEP_TIMEOUT, session.handle_callback_url(callback.as_str())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(describe_error(&error)),
        Err(_) => Err(step_timed_out()),
    }
}

async fn start_session(
    login: &ServerLogin,
    options: LoginOptions,
    redirect: String,
) -> Result<AuthorizationSession, String> {
    let mut manager = login.manager().await.map_err(|error| describe_error(&error))?;
    let found = manager.resolve_metadata().await.map_err(|error| describe_error(&error))?;
    let is_advertised = found.source != AuthorizationMetadataSource::LegacyEndpointFallback;
    manager.set_metadata(found.metadata);
    let mut request = AuthorizationRequest::new(redirect)
        .with_client_name("turnwright")
        .with_initial_scope_selection()
        .with_scopes(options.scopes);
    if let Some(id) = options.client_id {
        request = request.with_preregistered_client(id);
    }
    AuthorizationSession::new(manager, request).await.map_err(|(_, error)| {
        let why = describe_error(&error);
        if is_advertised {
            return why;
        }
        format!(
            "the server does not say how to log in, and the default endpoints did not work ({why}). \
             If it requires a key, set it in a header"
        )
    })
}

fn step_timed_out() -> String {
    format!("the server did not answer within {} s", STEP_TIMEOUT.as_secs())
}

/// The error, followed by its innermost cause, which is the most specific.
fn describe_error(error: &AuthError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let first = error.to_string();
    let last = last.to_string();
    if first.contains(&last) {
        display_line(&first)
    } else {
        display_line(&format!("{first}: {last}"))
    }
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits for the browser to be redirected back from this login.
async fn wait_for_callback(listener: &TcpListener, state: &str) -> Result<Url, String> {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            stream = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let (stream, _) = stream.map_err(|error| error.to_string())?;
                connections.push(timeout(REQUEST_TIMEOUT, handle_connection(stream, state)));
            }
            Some(result) = connections.next() => {
                // All other connections do not belong to this login.
                if let Ok(Ok(Some(callback))) = result {
                    return callback;
                }
            }
        }
    }
}

/// Handles one connection. Returns `None` unless the request has the `state` of this login.
async fn handle_connection(
    mut stream: TcpStream,
    state: &str,
) -> io::Result<Option<Result<Url, String>>> {
    let path = read_path(&mut stream).await?;
    let url = Url::parse("http://127.0.0.1").and_then(|base| base.join(&path)).ok().filter(|url| {
        url.path() == "/callback" && parameter(url, "state").as_deref() == Some(state)
    });
    let Some(url) = url else {
        respond(&mut stream, "400 Bad Request", "This request belongs to no running login.")
            .await?;
        return Ok(None);
    };
    if let Some(error) = parameter(&url, "error") {
        respond(&mut stream, "200 OK", "The login was refused. You can close this page.").await?;
        let more = parameter(&url, "error_description").unwrap_or_default();
        let why = display_line(format!("{error} {more}").trim());
        return Ok(Some(Err(format!("the login was refused ({why})"))));
    }
    respond(&mut stream, "200 OK", "Go back to the terminal. You can close this page.").await?;
    Ok(Some(Ok(url)))
}

/// Reads a request and returns its path with the query.
async fn read_path(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let count = stream.read(&mut piece).await?;
        if count == 0 || head.len() > MAX_REQUEST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&piece[..count]);
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn respond(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
