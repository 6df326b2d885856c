//! The browser's way back from a login: a port of this machine, and the response of the authorization server that is
//! sent there.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::transport::auth::AuthorizationMetadata;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::{Host, Url};

use crate::transport::http::display_line;
use turnwright_http::names_this_machine;

/// The address to which the browser is sent back, without the port.
pub(super) const CALLBACK: &str = "http://127.0.0.1/callback";
/// How long the browser may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request that is read.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Concurrent connections. Browsers open some that they never use.
const MAX_CONNECTIONS: usize = 16;

/// Opens the port of a callback, and returns it with the address.
pub(super) async fn open_callback(wanted: &str) -> Result<(TcpListener, Url), String> {
    let mut address = Url::parse(wanted)
        .ok()
        .filter(|url| url.scheme() == "http" && names_this_machine(url))
        .filter(|url| url.query().is_none() && url.fragment().is_none())
        .ok_or("the callback must be on this machine, such as http://localhost:3118/callback")?;
    let ip = match address.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
        // Browsers try both addresses of the name.
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let listener = TcpListener::bind((ip, address.port().unwrap_or_default()))
        .await
        .map_err(|error| format!("could not open a local port: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    address.set_port(Some(port)).map_err(|()| "the callback cannot have a port")?;
    Ok((listener, address))
}

/// Returns true if the response names the issuer of this server, letter by letter, or may do without a name
/// (RFC 9207). Any value but `false` in the metadata promises a name. An error is shown only then; for a code,
/// rmcp checks it again.
fn is_from(server: &AuthorizationMetadata, response: &Url) -> bool {
    let promised = server.additional_fields.get("authorization_response_iss_parameter_supported");
    match parameter(response, "iss") {
        Some(named) => server.issuer.as_ref() == Some(&named),
        None => matches!(promised, None | Some(Value::Bool(false))),
    }
}

pub(super) fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Returns the first parameter that occurs twice, which OAuth forbids: two readers could each take another value.
pub(super) fn repeated_parameter(url: &Url) -> Option<String> {
    let mut seen = HashSet::new();
    let (name, _) = url.query_pairs().find(|(name, _)| !seen.insert(name.clone()))?;
    Some(name.into_owned())
}

/// Waits for the browser to be redirected back from this login.
pub(super) async fn wait_for_callback(
    listener: &TcpListener,
    path: &str,
    state: &str,
    server: &AuthorizationMetadata,
) -> Result<Url, String> {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            stream = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let (stream, _) = stream.map_err(|error| error.to_string())?;
                let handling = handle_connection(stream, path, state, server);
                connections.push(timeout(REQUEST_TIMEOUT, handling));
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

/// Handles one connection. Returns `None` unless the request has the `path` and the `state` of this login.
async fn handle_connection(
    mut stream: TcpStream,
    path: &str,
    state: &str,
    server: &AuthorizationMetadata,
) -> io::Result<Option<Result<Url, String>>> {
    let asked = read_path(&mut stream).await?;
    let url = Url::parse(CALLBACK)
        .and_then(|base| base.join(&asked))
        .ok()
        .filter(|url| url.path() == path && parameter(url, "state").as_deref() == Some(state));
    let Some(url) = url else {
        respond(&mut stream, "400 Bad Request", "This request belongs to no running login.")
            .await?;
        return Ok(None);
    };
    let fault = if repeated_parameter(&url).is_some() {
        Some("the response repeats a parameter")
    } else if is_from(server, &url) {
        None
    } else {
        Some("the response is not from the server of this login (`iss` is missing or wrong)")
    };
    if let Some(why) = fault {
        respond(&mut stream, "400 Bad Request", why).await?;
        return Ok(Some(Err(why.to_owned())));
    }
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
pub(super) async fn read_path(stream: &mut TcpStream) -> io::Result<String> {
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

pub(super) async fn respond(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m_42_a_response_is_accepted_only_from_the_issuer_letter_by_letter() {
        let issuer = Some("https://a.example/x");
        // Each row: the issuer in the metadata, whether it is always named, the query, and the result.
        let table = [
            (issuer, true, "iss=https%3A%2F%2Fa.example%2Fx", true),
            (issuer, false, "iss=https://a.example/x", true),
            (issuer, true, "code=1", false),
            (issuer, false, "code=1", true),
            (issuer, false, "iss=https://a.example/x/", false),
            (issuer, false, "iss=https://A.example/x", false),
            (issuer, false, "iss=https://a.example:443/x", false),
            (issuer, false, "iss=", false),
            (issuer, false, "iss=https://b.example/&iss=https://a.example/x", false),
            (None, false, "iss=https://a.example/x", false),
            (None, true, "code=1", false),
            (None, false, "code=1", true),
        ];
        for (issuer, is_always_named, query, expected) in table {
            let metadata: AuthorizationMetadata = serde_json::from_value(json!({
                "authorization_endpoint": "https://a.example/authorize",
                "token_endpoint": "https://a.example/token",
                "issuer": issuer,
                "authorization_response_iss_parameter_supported": is_always_named,
            }))
            .unwrap();
            let response = Url::parse(&format!("http://127.0.0.1/callback?{query}")).unwrap();
            assert_eq!(is_from(&metadata, &response), expected, "{issuer:?} {query}");
        }
    }

    #[test]
    fn m_42_a_promise_of_a_name_that_is_not_a_boolean_counts() {
        let response = Url::parse("http://127.0.0.1/callback?code=1").unwrap();
        for promise in [json!("true"), json!("false"), json!(1), json!(0), json!([])] {
            let server = serde_json::from_value(json!({
                "authorization_endpoint": "https://a.example/authorize",
                "token_endpoint": "https://a.example/token",
                "issuer": "https://a.example",
                "authorization_response_iss_parameter_supported": promise,
            }))
            .unwrap();
            assert!(!is_from(&server, &response), "{server:?}");
        }
    }

    #[tokio::test]
    async fn the_browser_is_sent_back_to_the_callback_of_a_registered_client_on_this_machine() {
        for (wanted, expected) in [
            (CALLBACK, "http://127.0.0.1:PORT/callback"),
            ("http://localhost/oauth/callback", "http://localhost:PORT/oauth/callback"),
        ] {
            let (listener, address) = open_callback(wanted).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            assert_eq!(address.as_str(), expected.replace("PORT", &port.to_string()));
            let fixed = format!("http://localhost:{port}/callback");
            assert!(open_callback(&fixed).await.unwrap_err().contains("port"), "{fixed}");
            drop(listener);
            assert_eq!(open_callback(&fixed).await.unwrap().1.as_str(), fixed);
        }
        for bad in ["3118", "https://localhost/", "http://a.example/", "http://localhost/?a"] {
            assert!(open_callback(bad).await.unwrap_err().contains("on this machine"), "{bad}");
        }
    }
}
