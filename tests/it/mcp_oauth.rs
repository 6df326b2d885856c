//! Logging in at MCP servers: `turnwright mcp login` with a test in the place of the browser, what
//! is kept of it, and what an agent does with that.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, McpRequest, answer, answer_json};
use url::Url;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// What the server that gives logins knows.
#[derive(Default)]
struct Known {
    /// The address that the browser has to open, as it was asked for.
    challenge: String,
    /// How many tokens were given.
    tokens: usize,
    /// The token that is good; a number of `tokens`.
    good: usize,
    /// Seconds that a token lasts.
    lifetime: u64,
    /// No token is renewed any more.
    is_strict: bool,
}

type Shared = Arc<Mutex<Known>>;

fn token(number: usize) -> String {
    format!("sk-canary-token-{number}-of-a-login")
}

/// An MCP server that wants a login, and gives it itself.
fn server(lifetime: u64) -> (McpHttpStub, Shared) {
    let known = Shared::default();
    known.lock().unwrap().lifetime = lifetime;
    let shared = Arc::clone(&known);
    let stub = McpHttpStub::start(move |request, stream| {
        let mut known = shared.lock().unwrap();
        let base = format!("http://{}", request.header("host").unwrap());
        match (request.verb.as_str(), request.path.split('?').next().unwrap()) {
            ("GET", path) if path.starts_with("/.well-known/oauth-protected-resource") => {
                let body = json!({ "resource": format!("{base}/mcp"),
                    "authorization_servers": [base], "scopes_supported": ["notes"] });
                answer_json(stream, "", &body);
            }
            ("GET", path) if path.starts_with("/.well-known/oauth-authorization-server") => {
                let body = json!({
                    "issuer": base,
                    "authorization_endpoint": format!("{base}/authorize"),
                    "token_endpoint": format!("{base}/token"),
                    "registration_endpoint": format!("{base}/register"),
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "code_challenge_methods_supported": ["S256"],
                });
                answer_json(stream, "", &body);
            }
            ("POST", "/register") => {
                let body = json!({ "client_id": "client-1",
                    "redirect_uris": request.body["redirect_uris"] });
                answer_json(stream, "", &body);
            }
            ("POST", "/token") => give(&mut known, request, stream),
            (_, "/mcp") => {
                let good = format!("Bearer {}", token(known.good));
                if known.good > 0 && request.header("authorization") == Some(&good) {
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
    (stub, known)
}

/// Gives a token for a code or an older token.
fn give(known: &mut Known, request: &McpRequest, stream: &mut TcpStream) {
    let form: Vec<(String, String)> =
        url::form_urlencoded::parse(request.text.as_bytes()).into_owned().collect();
    let field =
        |name: &str| form.iter().find(|it| it.0 == name).map(|it| it.1.clone()).unwrap_or_default();
    let is_good = match field("grant_type").as_str() {
        "authorization_code" => {
            let hash =
                ring::digest::digest(&ring::digest::SHA256, field("code_verifier").as_bytes());
            field("code") == "code-1" && base64_url(hash.as_ref()) == known.challenge
        }
        "refresh_token" => {
            !known.is_strict && field("refresh_token") == format!("refresh-{}", known.tokens)
        }
        _ => false,
    };
    if !is_good {
        let body = json!({ "error": "invalid_grant" }).to_string();
        return answer(stream, "400 Bad Request", "content-type: application/json\r\n", &body);
    }
    known.tokens += 1;
    known.good = known.tokens;
    let body = json!({ "access_token": token(known.tokens), "token_type": "Bearer",
        "expires_in": known.lifetime, "refresh_token": format!("refresh-{}", known.tokens),
        "id_token": "sk-canary-id-token" });
    answer_json(stream, "", &body);
}

fn base64_url(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut bits = [0; 3];
        bits[..three.len()].copy_from_slice(three);
        let all = u32::from_be_bytes([0, bits[0], bits[1], bits[2]]);
        for place in 0..=three.len() {
            text.push(char::from(letters[(all >> (18 - 6 * place)) as usize & 63]));
        }
    }
    text
}

fn turnwright(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command
        .args(arguments)
        .env_clear()
        .env("TURNWRIGHT_HOME", home)
        .env("TURNWRIGHT_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A login that waits for the browser.
struct Waiting {
    child: Child,
    address: Url,
}

impl Waiting {
    fn start(home: &Path, url: &str) -> Waiting {
        let mut child = turnwright(home, &["mcp", "login", url]).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut addresses = lines.map_while(Result::ok).filter_map(|it| Url::parse(&it).ok());
        let address = addresses.next();
        let Some(address) = address else {
            panic!("no address: {}", end(child).1);
        };
        Waiting { child, address }
    }

    fn parameter(&self, name: &str) -> String {
        let mut pairs = self.address.query_pairs();
        pairs.find(|it| it.0 == name).map(|it| it.1.into_owned()).unwrap_or_default()
    }

    /// Comes back as the browser does, and returns what it is shown.
    fn come_back(&self, parameters: &[(&str, &str)]) -> String {
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

fn clean(text: &str) {
    for secret in ["sk-canary", "refresh-1", "code-1"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

/// Logs in as a user does.
fn log_in(home: &Path, stub: &McpHttpStub, known: &Shared) {
    let waiting = Waiting::start(home, &stub.url());
    assert_eq!(waiting.parameter("code_challenge_method"), "S256");
    assert_eq!(waiting.parameter("scope"), "notes");
    assert_eq!(waiting.parameter("client_id"), "client-1");
    known.lock().unwrap().challenge = waiting.parameter("code_challenge");
    let state = waiting.parameter("state");
    // Somebody else knocks first.
    let page = waiting.come_back(&[("code", "code-1"), ("state", "wrong")]);
    assert!(page.starts_with("HTTP/1.1 400"), "{page}");
    let page = waiting.come_back(&[("error", "access_denied"), ("state", "wrong")]);
    assert!(page.starts_with("HTTP/1.1 400"), "{page}");
    let page = waiting.come_back(&[("code", "code-1"), ("state", &state)]);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let (ok, stderr) = end(waiting.child);
    assert!(ok, "{stderr}");
    clean(&stderr);
}

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

fn told(agent: &TestAgent, number: usize) -> String {
    agent.model_transcript(number).pop().unwrap()
}

fn said(agent: &TestAgent) -> String {
    agent.log.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_login_is_kept_private_is_used_by_sessions_and_renewed_and_can_be_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let (stub, known) = server(3600);
    log_in(home.path(), &stub, &known);
    let files = logins(home.path());
    assert_eq!(files.len(), 1);
    assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);

    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(told(&agent, 1).contains(r#"{"text":"hi"}"#), "{}", told(&agent, 1));
    // The server has forgotten its tokens; the login is still good for another one.
    known.lock().unwrap().good = 0;
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(told(&agent, 3).contains(r#"{"text":"hi"}"#), "{}", told(&agent, 3));
    assert_eq!(known.lock().unwrap().tokens, 2);
    clean(&said(&agent));
    let (_, stderr) = agent.close();
    clean(&stderr);

    for expected in ["Logged out", "There was no stored login"] {
        let output = turnwright(home.path(), &["mcp", "logout", &stub.url()]).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
    }
    assert!(logins(home.path()).is_empty());
    let mut agent = calling(&stub, home.path()).start();
    agent.turn("go");
    let words = format!("Run `turnwright mcp login {}`", stub.url());
    assert!(said(&agent).contains(&words), "{}", said(&agent));
}

#[test]
fn a_token_that_is_over_is_renewed_before_it_is_sent() {
    let home = tempfile::tempdir().unwrap();
    let (stub, known) = server(0);
    log_in(home.path(), &stub, &known);
    known.lock().unwrap().lifetime = 3600;
    let mut agent = calling(&stub, home.path()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(told(&agent, 1).contains(r#"{"text":"hi"}"#), "{}", told(&agent, 1));
    assert_eq!(known.lock().unwrap().tokens, 2, "it was renewed more than once");
    let stale = format!("Bearer {}", token(1));
    assert!(stub.requests().iter().all(|it| it.header("authorization") != Some(&stale)));
}

#[test]
fn a_login_that_is_not_renewed_any_more_is_asked_for_and_used_as_soon_as_it_is_there() {
    let home = tempfile::tempdir().unwrap();
    let (stub, known) = server(0);
    log_in(home.path(), &stub, &known);
    known.lock().unwrap().is_strict = true;
    let mut agent = calling(&stub, home.path()).start();
    agent.turn("go");
    assert!(said(&agent).contains("turnwright mcp login"), "{}", said(&agent));
    known.lock().unwrap().lifetime = 3600;
    log_in(home.path(), &stub, &known);
    stub.wait_for("the list", |it| it.method() == "tools/list");
}

#[test]
fn a_login_that_is_refused_or_cannot_begin_keeps_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (stub, _) = server(3600);
    let waiting = Waiting::start(home.path(), &stub.url());
    let state = waiting.parameter("state");
    waiting.come_back(&[("error", "access_denied"), ("state", &state)]);
    let (ok, stderr) = end(waiting.child);
    assert!(!ok && stderr.contains("access_denied"), "{stderr}");

    // A code that was made up.
    let waiting = Waiting::start(home.path(), &stub.url());
    let state = waiting.parameter("state");
    waiting.come_back(&[("code", "code-2"), ("state", &state)]);
    let (ok, stderr) = end(waiting.child);
    assert!(!ok && stderr.contains("token exchange failed"), "{stderr}");

    let silent = McpHttpStub::good();
    let table = [
        (silent.url(), "does not say how to log in"),
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
