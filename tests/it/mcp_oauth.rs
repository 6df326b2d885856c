//! OAuth logins at MCP servers: `turnwright mcp login`, with the test in the place of the browser, the
//! stored login, and its use by sessions.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, McpRequest, answer, answer_json};
use url::Url;

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, says, subcommand};

/// The state of the authorization server.
#[derive(Default)]
struct AuthState {
    /// The code challenge of the last login.
    challenge: String,
    /// The number of tokens that were issued.
    tokens: usize,
    /// The number of the valid token, or 0.
    valid: usize,
    /// The lifetime of a token in seconds.
    lifetime: u64,
    /// The error with which the server refuses to renew tokens.
    renewal_error: Option<&'static str>,
    /// Tokens are renewed while nobody holds this.
    renewal_gate: Arc<Mutex<()>>,
    /// True if it renews them nevertheless for scopes that are named.
    wants_scope: bool,
    /// The secret that a client gets when it is registered, and must show for each token.
    client_secret: Option<&'static str>,
    /// True if the metadata is at another address of the server.
    is_moved: bool,
    /// The path of the authorization server behind the address of the MCP server.
    named_path: &'static str,
    /// True if the server has no metadata.
    is_silent: bool,
    /// True if whoever takes no stream of events is redirected to a manual.
    shows_manual: bool,
    /// Fields that the metadata of the server has besides, or in place of, the usual ones.
    metadata: Vec<(&'static str, Value)>,
}

type Shared = Arc<Mutex<AuthState>>;

fn token(number: usize) -> String {
    format!("sk-canary-token-{number}-of-a-login")
}

/// An MCP server that requires a login and is its own authorization server.
fn server(lifetime: u64) -> (McpHttpStub, Shared) {
    let auth = Shared::default();
    auth.lock().unwrap().lifetime = lifetime;
    let shared = Arc::clone(&auth);
    let stub = McpHttpStub::start(move |request, stream| {
        let mut auth = shared.lock().unwrap();
        let base = format!("http://{}", request.header("host").unwrap());
        let takes_events =
            request.header("accept").is_some_and(|types| types.contains("event-stream"));
        match (request.verb.as_str(), request.path.split('?').next().unwrap()) {
            ("GET", path) if auth.is_silent && path.starts_with("/.well-known/") => {
                answer(stream, "404 Not Found", "", "");
            }
            ("GET", path) if auth.is_moved && path.starts_with("/.well-known/") => {
                answer(stream, "301 Moved Permanently", &format!("location: /moved{path}\r\n"), "");
            }
            ("GET", path) if path.contains("/.well-known/oauth-protected-resource") => {
                let body = json!({ "resource": format!("{base}/mcp"),
                    "authorization_servers": [format!("{base}{}", auth.named_path)],
                    "scopes_supported": ["notes"] });
                answer_json(stream, "", &body);
            }
            ("GET", path) if path.contains("/.well-known/oauth-authorization-server") => {
                let mut body = json!({
                    "issuer": base,
                    "authorization_endpoint": format!("{base}/authorize"),
                    "token_endpoint": format!("{base}/token"),
                    "registration_endpoint": format!("{base}/register"),
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "code_challenge_methods_supported": ["S256"],
                });
                for (name, value) in &auth.metadata {
                    body[*name] = value.clone();
                }
                answer_json(stream, "", &body);
            }
            ("POST", "/register") => {
                let body = json!({ "client_id": "client-1", "client_secret": auth.client_secret,
                    "redirect_uris": request.body["redirect_uris"] });
                answer_json(stream, "", &body);
            }
            ("POST", "/moved") => {
                let head = format!("location: {base}/register\r\n");
                answer(stream, "307 Temporary Redirect", &head, "");
            }
            ("POST", "/token") => issue_token(&mut auth, request, stream),
            ("GET", "/mcp") if auth.shows_manual && !takes_events => {
                answer(stream, "302 Found", "location: https://manual.example/mcp\r\n", "");
            }
            (_, "/mcp") => {
                let valid = format!("Bearer {}", token(auth.valid));
                if auth.valid > 0 && request.header("authorization") == Some(&valid) {
                    return false;
                }
                let head = format!(
                    "www-authenticate: Bearer resource_metadata=\
                     \"{base}/.well-known/oauth-protected-resource/mcp\"\r\n"
                );
                answer(stream, "401 Unauthorized", &head, "");
            }
            _ => answer(stream, "404 Not Found", "", ""),
        }
        true
    });
    (stub, auth)
}

/// Issues a token for an authorization code or a refresh token.
fn issue_token(auth: &mut AuthState, request: &McpRequest, stream: &mut TcpStream) {
    let form: Vec<(String, String)> =
        url::form_urlencoded::parse(request.text.as_bytes()).into_owned().collect();
    let field =
        |name: &str| form.iter().find(|it| it.0 == name).map(|it| it.1.clone()).unwrap_or_default();
    let gate = Arc::clone(&auth.renewal_gate);
    let is_good = match field("grant_type").as_str() {
        "authorization_code" => {
            let hash =
                ring::digest::digest(&ring::digest::SHA256, field("code_verifier").as_bytes());
            field("code") == "code-1" && base64_url(hash.as_ref()) == auth.challenge
        }
        "refresh_token" => {
            let _open = gate.lock().unwrap();
            (auth.renewal_error.is_none() || auth.wants_scope && field("scope") == "notes")
                && field("refresh_token") == format!("refresh-{}", auth.tokens)
        }
        _ => false,
    };
    // It has the name and the secret of the client.
    let shown = request.header("authorization").unwrap_or_default();
    let is_known = auth.client_secret.is_some() == shown.starts_with("Basic ");
    if !is_good || !is_known {
        let error = auth.renewal_error.unwrap_or("invalid_grant");
        let body = json!({ "error": error }).to_string();
        return answer(stream, "400 Bad Request", "content-type: application/json\r\n", &body);
    }
    auth.tokens += 1;
    auth.valid = auth.tokens;
    let body = json!({ "access_token": token(auth.tokens), "token_type": "Bearer",
        "expires_in": auth.lifetime, "refresh_token": format!("refresh-{}", auth.tokens),
        "id_token": "sk-canary-id-token" });
    answer_json(stream, "", &body);
}

fn base64_url(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = [0; 3];
        bits[..group.len()].copy_from_slice(group);
        let all = u32::from_be_bytes([0, bits[0], bits[1], bits[2]]);
        for position in 0..=group.len() {
            text.push(char::from(letters[(all >> (18 - 6 * position)) as usize & 63]));
        }
    }
    text
}

fn turnwright(home: &Path, arguments: &[&str]) -> Command {
    let mut command = subcommand(home, arguments);
    command
        .env("TURNWRIGHT_LOG", "trace")
        // Nothing on this machine is asked through a proxy, and nobody answers at this one.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Why a login ends before its address is shown.
fn refusal(home: &Path, stub: &McpHttpStub) -> String {
    let output = turnwright(home, &["mcp", "login", &stub.url()]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A `mcp login` process that waits for the browser.
struct PendingLogin {
    child: Child,
    address: Url,
}

impl PendingLogin {
    fn start(home: &Path, url: &str) -> PendingLogin {
        PendingLogin::start_with(home, &["mcp", "login", url])
    }

    fn start_with(home: &Path, arguments: &[&str]) -> PendingLogin {
        let mut child = turnwright(home, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut addresses = lines.map_while(Result::ok).filter_map(|it| Url::parse(&it).ok());
        let address = addresses.next();
        let Some(address) = address else {
            panic!("no address: {}", end(child).1);
        };
        PendingLogin { child, address }
    }

    fn parameter(&self, name: &str) -> String {
        let mut pairs = self.address.query_pairs();
        pairs.find(|it| it.0 == name).map(|it| it.1.into_owned()).unwrap_or_default()
    }

    /// Opens the redirect address with these parameters, as the browser does. Returns the response.
    fn redirect(&self, parameters: &[(&str, &str)]) -> String {
        let mut url = Url::parse(&self.parameter("redirect_uri")).unwrap();
        url.query_pairs_mut().extend_pairs(parameters);
        let mut stream =
            TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
        let path = format!("{}?{}", url.path(), url.query().unwrap());
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }
}

fn end(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Checks that the text contains no secret of the login.
fn assert_no_secret(text: &str) {
    for secret in ["sk-canary", "refresh-1", "code-1"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

/// Logs in, with the test in the role of the user and the browser.
fn log_in(home: &Path, stub: &McpHttpStub, auth: &Shared) {
    let login = PendingLogin::start(home, &stub.url());
    assert_eq!(login.parameter("code_challenge_method"), "S256");
    assert_eq!(login.parameter("scope"), "notes");
    assert_eq!(login.parameter("client_id"), "client-1");
    auth.lock().unwrap().challenge = login.parameter("code_challenge");
    let state = login.parameter("state");
    // Requests with a wrong state are refused and do not end the login.
    let page = login.redirect(&[("code", "code-1"), ("state", "wrong")]);
    assert!(page.starts_with("HTTP/1.1 400"), "{page}");
    let page = login.redirect(&[("error", "access_denied"), ("state", "wrong")]);
    assert!(page.starts_with("HTTP/1.1 400"), "{page}");
    let page = login.redirect(&[("code", "code-1"), ("state", &state)]);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let (ok, stderr) = end(login.child);
    assert!(ok, "{stderr}");
    assert_no_secret(&stderr);
}

/// The files of the stored logins.
fn logins(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.join("config/mcp-logins"));
    let entries = entries.map(|it| it.map(|it| it.unwrap().path()).collect::<Vec<_>>());
    let mut entries = entries.unwrap_or_default();
    entries.retain(|it| it.extension().is_some_and(|it| it == "json"));
    entries
}

fn calling(stub: &McpHttpStub, home: &Path) -> TestAgentBuilder {
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    TestAgent::builder()
        .model(json!([call, says("done"), call, says("done")]))
        .permission("allow_once")
        .variable("TURNWRIGHT_HOME", &home.to_string_lossy())
        .variable("TURNWRIGHT_LOG", "trace")
        .noisy()
        .server_as(stub.server("far", &[]))
}

/// The last message of a model request. Requests are numbered from 0.
fn last_message(agent: &TestAgent, number: usize) -> String {
    agent.model_transcript(number).pop().unwrap()
}

/// All messages of the agent to the client.
fn client_log(agent: &TestAgent) -> String {
    agent.log.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

/// Supabase gives each client a secret, and wants it with each renewal (codex#43216).
#[test]
fn the_secret_that_a_client_was_given_is_stored_and_shown_for_each_renewal() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    auth.lock().unwrap().client_secret = Some("sk-canary-client-secret");
    log_in(home.path(), &stub, &auth);
    let mut agent = calling(&stub, home.path()).start();
    for tokens in [2, 3] {
        auth.lock().unwrap().valid = 0;
        assert_eq!(agent.turn("go"), "end_turn");
        assert_eq!(auth.lock().unwrap().tokens, tokens);
    }
    assert_no_secret(&client_log(&agent));
    let (_, stderr) = agent.close();
    assert_no_secret(&stderr);
}

#[test]
fn a_client_is_registered_for_all_scopes_that_its_login_asks_for() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    auth.lock().unwrap().metadata =
        vec![("scopes_supported", json!(["mail", "notes", "offline_access"]))];
    let url = stub.url();
    let arguments = ["mcp", "login", &url, "--scope", "mail"];
    let login = PendingLogin::start_with(home.path(), &arguments);
    let scope = login.parameter("scope");
    login.redirect(&[("error", "access_denied"), ("state", &login.parameter("state"))]);
    end(login.child);
    assert_eq!(scope, "mail offline_access");
    let requests = stub.requests();
    let registration = requests.iter().find(|request| request.path == "/register").unwrap();
    assert_eq!(registration.body["scope"], scope);
}

#[test]
fn a_login_is_stored_privately_used_renewed_and_deleted() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    log_in(home.path(), &stub, &auth);
    let files = logins(home.path());
    assert_eq!(files.len(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    }

    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(last_message(&agent, 1).contains(r#"{"text":"hi"}"#), "{}", last_message(&agent, 1));
    // The server has revoked the token; the agent renews it with the refresh token.
    auth.lock().unwrap().valid = 0;
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(last_message(&agent, 3).contains(r#"{"text":"hi"}"#), "{}", last_message(&agent, 3));
    assert_eq!(auth.lock().unwrap().tokens, 2);
    let requests = stub.requests();
    let renewal = requests.iter().find(|it| it.text.contains("grant_type=refresh_token")).unwrap();
    assert!(renewal.text.contains("resource="), "{}", renewal.text);
    assert!(!renewal.text.contains("scope="), "{}", renewal.text);
    let registration = requests.iter().find(|it| it.path == "/register").unwrap();
    assert_eq!(registration.body["application_type"], "native");
    assert_no_secret(&client_log(&agent));
    let (_, stderr) = agent.close();
    assert_no_secret(&stderr);

    for expected in ["Logged out", "There was no stored login"] {
        let output = turnwright(home.path(), &["mcp", "logout", &stub.url()]).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
    }
    assert!(logins(home.path()).is_empty());
    let mut agent = calling(&stub, home.path()).start();
    agent.turn("go");
    let words = format!("Run `turnwright mcp login {}`", stub.url());
    assert!(client_log(&agent).contains(&words), "{}", client_log(&agent));
}

#[test]
fn an_expired_token_is_renewed_before_it_is_sent() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    log_in(home.path(), &stub, &auth);
    auth.lock().unwrap().lifetime = 3600;
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(last_message(&agent, 1).contains(r#"{"text":"hi"}"#), "{}", last_message(&agent, 1));
    assert_eq!(auth.lock().unwrap().tokens, 2, "the token was not renewed exactly once");
    let stale = format!("Bearer {}", token(1));
    assert!(stub.requests().iter().all(|it| it.header("authorization") != Some(&stale)));
}

#[test]
fn m_43_a_token_of_less_than_a_minute_is_not_renewed_for_each_request() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(58);
    log_in(home.path(), &stub, &auth);
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(last_message(&agent, 3).contains(r#"{"text":"hi"}"#), "{}", last_message(&agent, 3));
    assert_eq!(auth.lock().unwrap().tokens, 1);
}

#[test]
fn a_login_that_cannot_be_renewed_is_requested_and_a_new_one_is_used_at_once() {
    for error in ["invalid_grant", "invalid_client", "invalid_request", "unauthorized_client"] {
        let home = turnwright_testing::temporary_folder();
        let (stub, auth) = server(0);
        log_in(home.path(), &stub, &auth);
        auth.lock().unwrap().renewal_error = Some(error);
        let mut agent = calling(&stub, home.path()).start();
        agent.turn("go");
        assert!(client_log(&agent).contains("turnwright mcp login"), "{}", client_log(&agent));
        auth.lock().unwrap().lifetime = 3600;
        log_in(home.path(), &stub, &auth);
        stub.wait_for("the list of tools", |it| it.method() == "tools/list");
    }
}

/// As Entra does, which says AADSTS90009 or AADSTS9010010.
#[test]
fn a_token_is_renewed_for_its_scopes_if_the_server_wants_them_named() {
    for error in ["invalid_request", "invalid_target"] {
        let home = turnwright_testing::temporary_folder();
        let (stub, auth) = server(3600);
        log_in(home.path(), &stub, &auth);
        auth.lock().unwrap().wants_scope = true;
        auth.lock().unwrap().renewal_error = Some(error);
        auth.lock().unwrap().valid = 0;
        let mut agent = calling(&stub, home.path()).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(
            last_message(&agent, 1).contains(r#"{"text":"hi"}"#),
            "{}",
            last_message(&agent, 1)
        );
        assert_eq!(auth.lock().unwrap().tokens, 2);
    }
}

/// A server that replaces its refresh tokens may take the second use of one for a theft.
#[test]
fn a_failed_renewal_is_tried_again_at_once_only_where_named_scopes_may_help() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    log_in(home.path(), &stub, &auth);
    auth.lock().unwrap().renewal_error = Some("temporarily_unavailable");
    let mut agent = calling(&stub, home.path()).start();
    agent.turn("go");
    let requests = stub.requests();
    let renewals: Vec<_> = requests
        .iter()
        .filter(|request| request.text.contains("grant_type=refresh_token"))
        .map(|request| request.text.as_str())
        .collect();
    assert!(!renewals.is_empty() && !renewals.concat().contains("scope="), "{renewals:?}");
}

/// The server tells a new refresh token only once (openai/codex#41133).
#[test]
fn a_renewal_is_completed_and_stored_even_if_its_call_is_cancelled() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    log_in(home.path(), &stub, &auth);
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let gate = Arc::clone(&auth.lock().unwrap().renewal_gate);
    let closed = gate.lock().unwrap();
    auth.lock().unwrap().valid = 0;
    let turn = agent.prompt("go");
    agent.wait_for_status("in_progress");
    stub.wait_for("the renewal", |request| request.text.contains("grant_type=refresh_token"));
    agent.cancel();
    assert_eq!(agent.stop_reason(&turn), "cancelled");
    drop(closed);
    let file = &logins(home.path())[0];
    eventually("the new tokens are stored", || {
        fs::read_to_string(file).is_ok_and(|text| text.contains("refresh-2"))
    });
}

/// The process may end before the server has answered.
#[test]
fn no_login_is_renewed_to_end_a_session() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    log_in(home.path(), &stub, &auth);
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let file = &logins(home.path())[0];
    let mut login: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    login["credentials"]["token_received_at"] = json!(0);
    fs::write(file, login.to_string()).unwrap();
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    stub.wait_for("the end of the session", |request| request.verb == "DELETE");
    let requests = stub.requests();
    assert!(!requests.iter().any(|request| request.text.contains("grant_type=refresh_token")));
}

/// Its server could be another one than the authorization server.
#[test]
fn a_login_is_not_renewed_at_a_server_that_has_no_metadata_any_more() {
    for is_silent in [true, false] {
        let home = turnwright_testing::temporary_folder();
        let (stub, auth) = server(0);
        log_in(home.path(), &stub, &auth);
        auth.lock().unwrap().is_silent = is_silent;
        // Nobody checks that metadata there have an issuer.
        auth.lock().unwrap().named_path = "/x/.well-known/oauth-authorization-server";
        auth.lock().unwrap().metadata = vec![("issuer", json!(null))];
        let mut agent = calling(&stub, home.path()).start();
        agent.turn("go");
        let log = client_log(&agent);
        assert!(log.contains("its login could not be renewed"), "{log}");
        assert_eq!(auth.lock().unwrap().tokens, 1);
    }
}

#[test]
fn a_login_says_how_to_complete_it_in_a_browser_on_another_machine() {
    let home = turnwright_testing::temporary_folder();
    let (stub, _) = server(0);
    let mut child = turnwright(home.path(), &["mcp", "login", &stub.url()]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_told = lines.any(|line| line.contains("on another machine") && line.contains("curl"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_told);
}

#[test]
fn a_failed_login_stores_nothing() {
    let home = turnwright_testing::temporary_folder();
    let (stub, _) = server(3600);
    let login = PendingLogin::start(home.path(), &stub.url());
    let state = login.parameter("state");
    login.redirect(&[("error", "access_denied"), ("state", &state)]);
    let (ok, stderr) = end(login.child);
    assert!(!ok && stderr.contains("access_denied"), "{stderr}");

    // The server has not issued this code.
    let login = PendingLogin::start(home.path(), &stub.url());
    let state = login.parameter("state");
    login.redirect(&[("code", "code-2"), ("state", &state)]);
    let (ok, stderr) = end(login.child);
    assert!(!ok && stderr.contains("token exchange failed"), "{stderr}");

    let no_login = McpHttpStub::good();
    let table = [
        (no_login.url(), "does not say how to log in"),
        ("http://mcp.example.com/mcp".to_owned(), "unencrypted"),
        ("nowhere".to_owned(), "no server `nowhere`"),
        ("ftp://h/".to_owned(), "not an http or https URL"),
    ];
    for (server, expected) in table {
        let output = turnwright(home.path(), &["mcp", "login", &server]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{stderr}");
    }
    assert!(logins(home.path()).is_empty());
}

/// The document that the manual tells the user to publish.
fn documented_client() -> Value {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mcp.md")).unwrap();
    let mut blocks = text.split("```json\n").skip(1).filter_map(|it| it.split("```").next());
    let block = blocks.find(|it| it.contains("\"client_id\"")).unwrap();
    serde_json::from_str(block).unwrap()
}

#[test]
fn m_40_the_address_of_a_metadata_document_is_a_client_id_that_needs_no_registration() {
    let document = documented_client();
    let id = document["client_id"].as_str().unwrap();
    let home = turnwright_testing::temporary_folder();
    // The user has said that the server reads such documents, so it need not say so itself.
    for is_supported in [true, false] {
        let (stub, auth) = server(3600);
        auth.lock().unwrap().metadata =
            vec![("client_id_metadata_document_supported", json!(is_supported))];
        let url = stub.url();
        let arguments = ["mcp", "login", &url, "--client-id", id];
        let login = PendingLogin::start_with(home.path(), &arguments);
        assert_eq!(login.parameter("client_id"), id);
        // Any port of this machine is as good as another (RFC 8252, section 7.3).
        let mut redirect = Url::parse(&login.parameter("redirect_uri")).unwrap();
        redirect.set_port(None).unwrap();
        assert_eq!(document["redirect_uris"], json!([redirect.as_str()]));
        auth.lock().unwrap().challenge = login.parameter("code_challenge");
        let state = login.parameter("state");
        login.redirect(&[("code", "code-1"), ("state", &state)]);
        let (ok, stderr) = end(login.child);
        assert!(ok, "{stderr}");
        let requests = stub.requests();
        assert!(requests.iter().all(|it| it.path != "/register"));
        let exchange = requests.iter().find(|it| it.path == "/token").unwrap();
        let form = url::form_urlencoded::parse(exchange.text.as_bytes());
        assert!(form.into_owned().any(|it| it.0 == "client_id" && it.1 == id), "{}", exchange.text);
    }
    for field in ["client_name", "grant_types", "response_types", "token_endpoint_auth_method"] {
        assert!(!document[field].is_null(), "{field}");
    }
}

#[test]
fn a_registered_client_is_sent_back_to_its_own_address() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    let url = stub.url();
    let arguments =
        ["mcp", "login", &url, "--client-id", "app-1", "--callback", "http://localhost/oauth/done"];
    let login = PendingLogin::start_with(home.path(), &arguments);
    let redirect = login.parameter("redirect_uri");
    let is_own = redirect.starts_with("http://localhost:") && redirect.ends_with("/oauth/done");
    assert!(is_own, "{redirect}");
    auth.lock().unwrap().challenge = login.parameter("code_challenge");
    let state = login.parameter("state");
    login.redirect(&[("code", "code-1"), ("state", &state)]);
    let (ok, stderr) = end(login.child);
    assert!(ok, "{stderr}");
}

#[test]
fn m_41_without_another_way_a_client_is_registered_and_the_user_is_told_if_it_cannot_be() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    auth.lock().unwrap().metadata = vec![("client_id_metadata_document_supported", json!(true))];
    log_in(home.path(), &stub, &auth);
    auth.lock().unwrap().metadata.push(("registration_endpoint", Value::Null));
    let why = refusal(home.path(), &stub);
    assert!(why.contains("use `--client-id`"), "{why}");
}

#[test]
fn m_42_a_response_that_another_server_has_sent_ends_the_login() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    let own = format!("http://{}", stub.host());
    let with_slash = format!("{own}/");
    let code = ("code", "code-1");
    let refusal = ("error", "access_denied");
    let wrong = "the response is not from the server of this login";
    // Each row: the promise of the server to name itself, the response, the name in it, and the message to the user.
    let table = [
        (true, code, Some(own.as_str()), "Logged in"),
        (true, code, None, wrong),
        (true, code, Some("https://evil.example"), wrong),
        (false, code, Some(with_slash.as_str()), wrong),
        (true, refusal, Some(own.as_str()), "access_denied"),
        (true, refusal, None, wrong),
        (false, refusal, Some("https://evil.example"), wrong),
    ];
    for (is_named, response, name, expected) in table {
        auth.lock().unwrap().metadata =
            vec![("authorization_response_iss_parameter_supported", json!(is_named))];
        let login = PendingLogin::start(home.path(), &stub.url());
        auth.lock().unwrap().challenge = login.parameter("code_challenge");
        let exchanges = || stub.requests().iter().filter(|it| it.path == "/token").count();
        let before = exchanges();
        let state = login.parameter("state");
        let mut parameters = vec![response, ("state", state.as_str())];
        parameters.extend(name.map(|it| ("iss", it)));
        let page = login.redirect(&parameters);
        assert_eq!(page.starts_with("HTTP/1.1 400"), expected == wrong, "{page}");
        let (ok, stderr) = end(login.child);
        let shown = format!("{response:?} {name:?}: {stderr}");
        assert!(stderr.contains(expected), "{shown}");
        let is_login = expected == "Logged in";
        assert_eq!((ok, exchanges() > before), (is_login, is_login), "{shown}");
        assert!(expected != wrong || !stderr.contains("access_denied"), "{shown}");
    }
}

#[test]
fn a_login_is_not_sent_to_an_endpoint_without_encryption() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    let far = json!("http://192.0.2.1/x");
    for name in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
        auth.lock().unwrap().metadata = vec![(name, far.clone())];
        let why = refusal(home.path(), &stub);
        assert!(why.contains("not sent without encryption") && why.contains(name), "{why}");
    }
    assert!(stub.requests().iter().all(|it| it.path != "/register"));
    // Neither is a renewal.
    auth.lock().unwrap().metadata.clear();
    log_in(home.path(), &stub, &auth);
    auth.lock().unwrap().metadata = vec![("token_endpoint", far)];
    let mut agent = calling(&stub, home.path()).start();
    agent.turn("go");
    let log = client_log(&agent);
    assert!(log.contains("not sent without encryption"), "{log}");
}

/// Servers redirect these addresses, to one with a slash at its end or to that of their framework.
#[test]
fn the_metadata_of_a_server_may_be_at_another_address_of_it() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    auth.lock().unwrap().is_moved = true;
    log_in(home.path(), &stub, &auth);
    let requests = stub.requests();
    for name in ["oauth-protected-resource", "oauth-authorization-server"] {
        let moved = format!("/moved/.well-known/{name}");
        assert!(requests.iter().any(|request| request.path.starts_with(&moved)), "{name}");
    }
}

/// As the servers of Atlassian, Slack and Entra do.
#[test]
fn an_authorization_server_may_name_another_issuer_if_the_code_stays_with_the_login() {
    for issuer in [json!("https://issuer.example"), json!(null)] {
        let home = turnwright_testing::temporary_folder();
        let (stub, auth) = server(0);
        auth.lock().unwrap().metadata = vec![("issuer", issuer)];
        // A response that another server has sent, which the metadata name.
        let login = PendingLogin::start(home.path(), &stub.url());
        let state = login.parameter("state");
        let named = ("iss", "https://issuer.example");
        let page = login.redirect(&[("code", "code-1"), ("state", &state), named]);
        assert!(page.starts_with("HTTP/1.1 400"), "{page}");
        assert!(!end(login.child).0);
        log_in(home.path(), &stub, &auth);
        // The login belongs to the address, so that it is not renewed at another one that takes the name.
        let kept = fs::read_to_string(&logins(home.path())[0]).unwrap();
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["credentials"]["issuer"], format!("http://{}/", stub.host()));
        auth.lock().unwrap().lifetime = 3600;
        // The token has expired already, and its renewal searches again.
        let mut agent = calling(&stub, home.path()).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert_eq!(auth.lock().unwrap().tokens, 2);
    }
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    let elsewhere = json!("https://login.example/authorize");
    auth.lock().unwrap().metadata =
        vec![("issuer", json!("https://login.example")), ("authorization_endpoint", elsewhere)];
    let why = refusal(home.path(), &stub);
    assert!(why.contains("issuer mismatch"), "{why}");
}

#[test]
fn no_server_gets_the_codes_of_another_whose_name_it_takes() {
    let home = turnwright_testing::temporary_folder();
    let (known, _) = server(0);
    let (stub, auth) = server(0);
    // The issuer is compared with the usual addresses alone.
    auth.lock().unwrap().named_path = "/x/.well-known/oauth-authorization-server";
    auth.lock().unwrap().metadata = vec![("issuer", json!(format!("http://{}", known.host())))];
    let why = refusal(home.path(), &stub);
    assert!(why.contains("does not confirm"), "{why}");
}

#[test]
fn a_server_may_redirect_everyone_but_clients_of_mcp_to_its_manual() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    auth.lock().unwrap().shows_manual = true;
    log_in(home.path(), &stub, &auth);
    auth.lock().unwrap().lifetime = 3600;
    // The token has expired already, and its renewal searches again.
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(auth.lock().unwrap().tokens, 2);
}

#[test]
fn the_registration_of_a_client_follows_no_redirect() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(0);
    let moved = format!("http://{}/moved", stub.host());
    auth.lock().unwrap().metadata = vec![("registration_endpoint", json!(moved))];
    let why = refusal(home.path(), &stub);
    assert!(why.contains("307") && why.contains("--client-id"), "{why}");
    let requests = stub.requests();
    assert!(requests.iter().any(|request| request.path == "/moved"));
    assert!(requests.iter().all(|request| request.path != "/register"));
}

#[test]
fn m_42_a_repeated_parameter_ends_the_login_before_the_browser_reads_of_success() {
    let home = turnwright_testing::temporary_folder();
    let (stub, auth) = server(3600);
    let own = format!("http://{}", stub.host());
    for (name, value) in [("iss", "https://evil.example"), ("state", "evil"), ("code", "evil")] {
        let login = PendingLogin::start(home.path(), &stub.url());
        let state = login.parameter("state");
        let good = [("code", "code-1"), ("state", state.as_str()), ("iss", own.as_str())];
        let page = login.redirect(&[&good[..], &[(name, value)]].concat());
        assert!(page.starts_with("HTTP/1.1 400"), "{page}");
        let (ok, stderr) = end(login.child);
        assert!(!ok && stderr.contains("the response repeats a parameter"), "{stderr}");
    }
    assert!(stub.requests().iter().all(|it| it.path != "/token"));

    let fixed = format!("{own}/authorize?state=fixed");
    auth.lock().unwrap().metadata = vec![("authorization_endpoint", json!(fixed))];
    let why = refusal(home.path(), &stub);
    assert!(why.contains("repeats `state`"), "{why}");
    assert!(logins(home.path()).is_empty());
}
