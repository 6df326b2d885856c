//! Logging in at a server on HTTP: OAuth with PKCE, by the user's browser, which comes back to a
//! port of this machine. What is got is kept in [`super::logins`].

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

use super::http::shown;
use super::logins::Login;
use turnwright_types::redact;

/// How long the user may take in the browser.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the server may take for one step.
const STEP: Duration = Duration::from_secs(30);
/// How long the browser may take to send its request, and the most of it that is read.
const READING: Duration = Duration::from_secs(10);
const LARGEST_REQUEST: usize = 16 * 1024;
/// Connections at the same time. Browsers open some that they never use.
const MOST_CONNECTIONS: usize = 16;

/// What somebody may have to say for a login.
#[derive(Clone, Debug, Default)]
pub struct LoginOptions {
    /// Who we are, where that has to be arranged beforehand.
    pub client_id: Option<String>,
    /// What is asked for, if not what the server proposes.
    pub scopes: Vec<String>,
}

/// Logs in, and keeps what is got. `show` is given the address that the user has to open.
///
/// # Errors
/// Why it did not come to that, for people.
pub async fn log_in(
    login: &Login,
    options: LoginOptions,
    show: impl FnOnce(&str),
) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(|error| format!("no port could be opened: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let beginning = begin(login, options, format!("http://127.0.0.1:{port}/callback"));
    let session = timeout(STEP, beginning).await.unwrap_or_else(|_| Err(late()))?;
    let address = Url::parse(session.get_authorization_url())
        .ok()
        .filter(|it| matches!(it.scheme(), "http" | "https"))
        .ok_or("the server names no usable address for its login")?;
    let state = parameter(&address, "state").ok_or("the address of the login has no state")?;
    show(address.as_str());
    let back = timeout(PATIENCE, wait(&listener, &state)).await;
    let back = back.map_err(|_| format!("nobody logged in within {} s", PATIENCE.as_secs()))??;
    redact::learn(parameter(&back, "code"));
    match timeout(STEP, session.handle_callback_url(back.as_str())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err(late()),
    }
}

async fn begin(
    login: &Login,
    options: LoginOptions,
    redirect: String,
) -> Result<AuthorizationSession, String> {
    let mut manager = login.manager().await.map_err(|error| words(&error))?;
    let found = manager.resolve_metadata().await.map_err(|error| words(&error))?;
    let is_told = found.source != AuthorizationMetadataSource::LegacyEndpointFallback;
    manager.set_metadata(found.metadata);
    let mut request = AuthorizationRequest::new(redirect)
        .with_client_name("turnwright")
        .with_initial_scope_selection()
        .with_scopes(options.scopes);
    if let Some(id) = options.client_id {
        request = request.with_preregistered_client(id);
    }
    AuthorizationSession::new(manager, request).await.map_err(|(_, error)| {
        let why = words(&error);
        if is_told {
            return why;
        }
        format!(
            "the server does not say how to log in there, and the usual way did not work ({why}). \
             If it wants a key, set it in a header"
        )
    })
}

fn late() -> String {
    format!("the server did not answer within {} s", STEP.as_secs())
}

/// With the last cause, which says most.
fn words(error: &AuthError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let (first, last) = (error.to_string(), last.to_string());
    if first.contains(&last) { shown(&first) } else { shown(&format!("{first}: {last}")) }
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits for the browser to come back from this login.
async fn wait(listener: &TcpListener, state: &str) -> Result<Url, String> {
    let mut visits = FuturesUnordered::new();
    loop {
        tokio::select! {
            stream = listener.accept(), if visits.len() < MOST_CONNECTIONS => {
                let (stream, _) = stream.map_err(|error| error.to_string())?;
                visits.push(timeout(READING, visit(stream, state)));
            }
            Some(visit) = visits.next() => {
                // Anything else was somebody else, or nobody.
                if let Ok(Ok(Some(back))) = visit {
                    return back;
                }
            }
        }
    }
}

/// One visit. Whoever does not know the state has not come from this login.
async fn visit(mut stream: TcpStream, state: &str) -> io::Result<Option<Result<Url, String>>> {
    let path = read(&mut stream).await?;
    let url = Url::parse("http://127.0.0.1").and_then(|it| it.join(&path)).ok();
    let url = url.filter(|it| it.path() == "/callback");
    let Some(url) = url.filter(|it| parameter(it, "state").as_deref() == Some(state)) else {
        say(&mut stream, "400 Bad Request", "This is not the login that is waited for.").await?;
        return Ok(None);
    };
    if let Some(error) = parameter(&url, "error") {
        say(&mut stream, "200 OK", "The login was refused. You can close this page.").await?;
        let more = parameter(&url, "error_description").unwrap_or_default();
        let why = shown(format!("{error} {more}").trim());
        return Ok(Some(Err(format!("the login was refused ({why})"))));
    }
    say(&mut stream, "200 OK", "Go back to the terminal. You can close this page.").await?;
    Ok(Some(Ok(url)))
}

/// The path that is asked for, with what follows the question mark.
async fn read(stream: &mut TcpStream) -> io::Result<String> {
    let (mut head, mut piece) = (Vec::new(), [0; 2048]);
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let count = stream.read(&mut piece).await?;
        if count == 0 || head.len() > LARGEST_REQUEST {
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

async fn say(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
