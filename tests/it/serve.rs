//! `turnwright serve` and `turnwright connect` as programs: token, certificate, signals and refusals (R-REM-9,
//! R-REM-10).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

#[cfg(unix)]
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;
use turnwright_testing::raw_server::RawServer;
#[cfg(unix)]
use turnwright_testing::session_requests::set_mode;
use turnwright_testing::{cards, process_waits};

use crate::agent::{TestAgent, TestAgentBuilder, subcommand};
#[cfg(unix)]
use crate::agent::{calls, says};

const TOKEN: &str = "token-of-these-tests";
const VARIABLE: &str = "TURNWRIGHT_SERVE_TOKEN";

/// An agent that is served on a socket. Dropping it ends the agent.
pub struct Served {
    agent: Child,
    stderr: BufReader<ChildStderr>,
    /// The address that the agent has printed.
    pub url: String,
    home: TempDir,
}

fn serve(arguments: &[&str], token: Option<&str>) -> Served {
    serve_with(arguments, token, &[("TURNWRIGHT_MODEL", "offline")])
}

/// Starts an agent with these variables.
pub fn serve_with(arguments: &[&str], token: Option<&str>, variables: &[(&str, &str)]) -> Served {
    let home = turnwright_testing::temporary_folder();
    let mut command = command(home.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.args(arguments).envs(variables.iter().copied()).stderr(Stdio::piped());
    command.envs(token.map(|token| (VARIABLE, token)));
    let mut agent = command.spawn().unwrap();
    let mut stderr = BufReader::new(agent.stderr.take().unwrap());
    let line = next_line(&mut stderr);
    let url = line.strip_prefix("Serving at ").unwrap_or_else(|| panic!("{line}")).to_owned();
    Served { agent, stderr, url, home }
}

fn next_line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The program with these arguments, in an environment of its own.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = subcommand(home, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

impl Served {
    pub fn process(&self) -> u32 {
        self.agent.id()
    }

    /// The folder of the agent's own files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The resident memory in bytes.
    #[cfg(target_os = "linux")]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// An editor that reaches the agent by `turnwright connect`.
    fn editor(&self, token: &str) -> TestAgentBuilder {
        TestAgent::offline().argument("connect").argument(&self.url).variable(VARIABLE, token)
    }

    /// Ends the agent with SIGTERM, or kills it where there are no signals.
    fn end(&mut self) -> ExitStatus {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process};
            kill_process(Pid::from_child(&self.agent), Signal::TERM).unwrap();
        }
        #[cfg(windows)]
        self.agent.kill().unwrap();
        process_waits::wait(&mut self.agent)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let status = self.end();
        if !std::thread::panicking() {
            assert_eq!(status.success(), cfg!(unix), "the agent ended with {status}");
        }
    }
}

/// Runs the program to its end, and returns its exit status and what it has printed on stderr.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let home = turnwright_testing::temporary_folder();
    let mut command = command(home.path(), arguments);
    let output = process_waits::output(command.envs(variables.iter().copied())).unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

#[test]
fn r_rem_9_without_a_token_a_new_one_is_printed_and_only_it_opens_the_agent() {
    let mut served = serve(&[], None);
    let line = next_line(&mut served.stderr);
    let token = line.strip_prefix("TURNWRIGHT_SERVE_TOKEN=").unwrap().to_owned();
    assert!(token.len() >= 32, "{token}");
    let mut editor = served.editor(&token).file("a.txt", "hello\n").start();
    assert_eq!(editor.turn("read a.txt"), "end_turn");
    assert!(editor.text().contains("hello"), "{}", editor.text());
    let (status, text) = run(&["connect", &served.url], &[(VARIABLE, TOKEN)]);
    assert_eq!(status, Some(1));
    assert_eq!(text, "turnwright connect: the agent at 127.0.0.1 refuses the token\n");
}

#[cfg(unix)]
#[test]
fn r_rem_9_no_command_and_no_message_has_the_token() {
    let served = serve(&[], Some(TOKEN));
    let mut editor = served.editor(TOKEN).permission("allow_once").start();
    assert_eq!(editor.turn(&format!("run env; echo {TOKEN}")), "end_turn");
    let told = Value::from(editor.log.clone()).to_string();
    assert!(told.contains("PATH=") && !told.contains(VARIABLE), "{told}");
    // The user's own words are the user's; the agent never repeats them.
    assert!(!editor.text().contains(TOKEN), "{}", editor.text());
}

#[test]
fn r_rem_9_the_token_may_be_in_a_file() {
    let folder = turnwright_testing::temporary_folder();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\nnot this\n")).unwrap();
    let served = serve(&["--token-file", file.to_str().unwrap()], Some("another-token-of-these"));
    let mut editor = TestAgent::offline()
        .argument("connect")
        .argument(&served.url)
        .argument("--token-file")
        .argument(file.to_str().unwrap())
        .start();
    assert_eq!(editor.turn("hello"), "end_turn");
}

#[test]
fn a_file_with_the_token_may_have_a_mark_quotes_or_the_line_that_was_printed() {
    let folder = turnwright_testing::temporary_folder();
    let file = folder.path().join("token");
    let served = serve(&[], Some(TOKEN));
    for text in [
        format!("\u{feff}{TOKEN}\r\n"),
        format!("\"{TOKEN}\""),
        format!("\u{feff}{VARIABLE}={TOKEN}\r\n"),
        format!("export {VARIABLE}='{TOKEN}'\n"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let arguments = ["connect", &served.url, "--token-file", file.to_str().unwrap()];
        assert_eq!(run(&arguments, &[]), (Some(0), String::new()), "{text}");
    }
}

#[test]
fn a_refused_name_is_told_with_the_option_that_allows_it() {
    let server = RawServer::reading(|_, _, stream| {
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").ok();
    });
    let url = format!("ws://{}/acp", server.host());
    let (status, stderr) = run(&["connect", &url], &[(VARIABLE, TOKEN)]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("start the agent with --allow-host 127.0.0.1"), "{stderr}");
}

/// Commands have a `/tmp` of their own.
#[cfg(unix)]
fn folder_outside_of_tmp() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

#[cfg(unix)]
#[test]
fn no_command_reads_the_token_or_the_key_of_the_certificate() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or `auto` asks about each command");
        return;
    }
    let folder = folder_outside_of_tmp();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("token-1"), TOKEN).unwrap();
    std::os::unix::fs::symlink("token-1", path("token")).unwrap();
    std::fs::copy(tls_file("key.pem"), path("certificate-key")).unwrap();
    std::fs::write(path("plain"), "anybody may read this\n").unwrap();
    let certificate = tls_file("certificate.pem").to_str().unwrap().to_owned();
    let (token, key) = (path("token"), path("certificate-key"));
    let served =
        serve(&["--token-file", &token, "--tls-cert", &certificate, "--tls-key", &key], None);
    let authority = tls_file("authority.pem").to_str().unwrap().to_owned();
    let names = ["plain", "token", "token-1", "certificate-key"];
    let script = names.map(|name| format!("cp {} {name}\n", path(name))).concat();
    let mut editor =
        served.editor(TOKEN).variable("SSL_CERT_FILE", &authority).file("copy.sh", &script).start();
    set_mode(&mut editor, "auto");
    assert_eq!(editor.turn("run sh copy.sh"), "end_turn");
    let copied = names
        .map(|name| std::fs::metadata(editor.path(name)).is_ok_and(|metadata| metadata.len() > 0));
    assert_eq!(copied, [true, false, false, false], "{}", editor.text());
}

#[cfg(unix)]
#[test]
fn another_agent_of_the_user_does_not_read_the_token() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or `auto` asks about each command");
        return;
    }
    let folder = folder_outside_of_tmp();
    let token = folder.path().join("mine").to_str().unwrap().to_owned();
    std::fs::write(&token, TOKEN).unwrap();
    let home = turnwright_testing::temporary_folder();
    let variables =
        [("TURNWRIGHT_HOME", home.path().to_str().unwrap()), ("TURNWRIGHT_MODEL", "offline")];
    let _served = serve_with(&["--token-file", &token], None, &variables);
    let mut other = TestAgent::builder()
        .variable(variables[0].0, variables[0].1)
        .variable("TURNWRIGHT_MODE", "auto")
        .file("copy.sh", &format!("cp {token} copy; touch done"))
        .model(json!([calls("exec", &json!({ "command": "sh copy.sh" })), says("Ok.")]))
        .start();
    assert_eq!(other.turn("go"), "end_turn");
    assert!(other.path("done").exists(), "{}", other.text());
    let copy = std::fs::read_to_string(other.path("copy")).unwrap_or_default();
    assert_eq!(copy, "");
}

#[test]
fn r_rem_9_what_cannot_be_served_or_reached_is_said() {
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);

    let missing = "the agent's token is missing: set TURNWRIGHT_SERVE_TOKEN, or use --token-file";
    let token: &[(&str, &str)] = &[(VARIABLE, TOKEN)];
    let (certificate, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let table: [Row<'_>; 15] = [
        (&["serve", "--listen", "0.0.0.0:0"], token, 1, "a certificate is needed"),
        (&["serve", "--listen", "nowhere"], token, 2, "expected IP:PORT, such as 127.0.0.1:4077"),
        (&["serve", "--listen", ":4077"], token, 2, "expected IP:PORT, such as 127.0.0.1:4077"),
        (&["serve", "--listen", "localhost:0"], &[(VARIABLE, "short")], 1, "the token is shorter"),
        (&["serve"], &[(VARIABLE, "short")], 1, "the token is shorter than 16 characters"),
        (&["serve", "--tls-cert", certificate], token, 2, "--tls-key"),
        (
            &["serve", "--tls-cert", key, "--tls-key", key],
            token,
            1,
            "key.pem: there is no certificate",
        ),
        (&["serve", "--token-file", "/nowhere/token"], token, 1, "/nowhere/token: "),
        (&["connect", "ws://127.0.0.1:1/acp"], &[], 1, missing),
        (&["connect", "ws://127.0.0.1:1/acp"], token, 1, "nothing answers there"),
        (&["connect", "ws://192.0.2.1/acp"], token, 1, "would go to 192.0.2.1 unencrypted"),
        (&["connect", "http://localhost.example/acp"], token, 1, "unencrypted; use wss://"),
        (&["connect", "ftp://127.0.0.1/acp"], token, 1, "it begins with ws:// or wss://"),
        (&["connect", "127.0.0.1:4077"], token, 2, "expected a URL: ws://127.0.0.1:4077/acp"),
        (&["connect", "localhost:4077"], token, 2, "expected a URL: ws://127.0.0.1:4077/acp"),
    ];
    for (arguments, variables, expected, text) in table {
        let (status, stderr) = run(arguments, variables);
        assert_eq!(status, Some(expected), "{arguments:?}: {stderr}");
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
    }
}

#[test]
fn r_rem_10_other_machines_are_served_with_a_certificate() {
    let (certificate, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let served = serve(&files, Some(TOKEN));
    assert!(served.url.starts_with("wss://"), "{}", served.url);
    let (status, text) = run(&["connect", &served.url], &[(VARIABLE, TOKEN)]);
    assert_eq!(status, Some(1));
    assert!(text.contains("its certificate is not accepted"), "{text}");
    assert!(text.contains("SSL_CERT_FILE"), "{text}");
    if turnwright_testing::lacks_under_wine("a certificate that is trusted for one program") {
        return;
    }
    let authority = tls_file("authority.pem");
    let mut editor = served
        .editor(TOKEN)
        .variable("SSL_CERT_FILE", authority.to_str().unwrap())
        .file("a.txt", "hello\n")
        .start();
    assert_eq!(editor.turn("read a.txt"), "end_turn");
}

/// The stores of macOS and Windows do not know the variable.
#[test]
fn a_page_is_fetched_with_the_certificates_that_the_variable_names() {
    if turnwright_testing::lacks_under_wine("a certificate that is trusted for one program") {
        return;
    }
    let certificate = tls_file("certificate.pem");
    let key = tls_file("key.pem");
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let served = serve(&files, Some(TOKEN));
    let page = served.url.replace("wss://", "https://").replace("/acp", "/");
    let host = page.trim_start_matches("https://").trim_end_matches('/');
    let builder = TestAgent::builder()
        .variable("SSL_CERT_FILE", tls_file("authority.pem").to_str().unwrap())
        .own_file("config/config.toml", &format!("[web]\nallow = [\"{host}\"]\n"));
    let (_, result) = cards::run(builder, "web_fetch", &json!({ "url": page }));
    assert!(result.contains("The server did not give the page."), "{result}");
}

#[test]
fn an_untrusted_certificate_is_not_tried_again_and_the_variable_is_named() {
    let (certificate, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let served = serve(&files, Some(TOKEN));
    let place = served.url.replace("wss://", "https://").replace("/acp", "");
    let server =
        json!({ "type": "http", "name": "far", "url": format!("{place}/mcp"), "headers": [] });
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", &format!("{place}/v1"))
        .variable("TURNWRIGHT_MODEL", "m")
        .server_as(server)
        .start();
    let id = agent.prompt("go");
    let answer = agent.wait_for("the answer", |it| it["id"] == id);
    let message = answer["error"]["message"].as_str().unwrap();
    for words in
        ["its certificate is not accepted: nobody whom this computer trusts", "SSL_CERT_FILE"]
    {
        assert!(message.contains(words), "{words}: {message}");
    }
    let log: Vec<_> = agent.log.iter().map(ToString::to_string).collect();
    assert!(!log.iter().any(|it| it.contains("etrying") || it.contains("ry again")), "{log:#?}");
    let is_notice = |it: &&String| it.contains("The MCP server far is unavailable");
    let notice = log.iter().find(is_notice).unwrap();
    assert!(notice.contains("SSL_CERT_FILE"), "{notice}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_computer_without_certificates_is_told_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let server =
        json!({ "type": "http", "name": "far", "url": "https://mcp.invalid/", "headers": [] });
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", "https://models.invalid/v1")
        .variable("TURNWRIGHT_MODEL", "m")
        .variable("SSL_CERT_FILE", "/dev/null")
        .variable("SSL_CERT_DIR", empty.path().to_str().unwrap())
        .server_as(server)
        .start();
    let id = agent.prompt("go");
    let answer = agent.wait_for("the answer", |line| line["id"] == id);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("Install the package ca-certificates"), "{message}");
    let log: Vec<_> = agent.log.iter().map(ToString::to_string).collect();
    assert!(!log.iter().any(|line| line.contains("rying again")), "{log:#?}");
    let is_notice = |line: &&String| line.contains("The MCP server far is unavailable");
    let notice = log.iter().find(is_notice).unwrap();
    assert!(notice.contains("ca-certificates"), "{notice}");
}

#[test]
fn r_rem_10_an_agent_that_ends_is_a_lost_connection_for_the_editor() {
    for is_killed in [false, true] {
        let mut served = serve(&[], Some(TOKEN));
        let mut editor = served.editor(TOKEN).noisy().start();
        if is_killed {
            process_waits::kill(&mut served.agent);
        } else {
            served.end();
        }
        // If its input ended first, nothing would be lost.
        editor.wait_for_own_end();
        let (status, stderr) = editor.close();
        assert_eq!(status.code(), Some(1));
        assert_eq!(stderr, "turnwright connect: the connection to 127.0.0.1 was lost\n");
        editor.break_off(|_| ());
        // It has ended already.
        std::mem::forget(served);
    }
}

#[test]
fn r_rem_10_a_killed_bridge_leaves_its_session_to_the_next_one() {
    let served = serve(&[], Some(TOKEN));
    let mut editor = served.editor(TOKEN).start();
    editor.prompt("run echo one > file; sleep 2; echo two >> file");
    let question = editor.wait_for_request("session/request_permission");
    let session = editor.session.clone();
    editor.kill();
    editor.restart();
    editor.load(&session);
    let again = editor.wait_for_request("session/request_permission");
    assert_eq!(
        question["params"]["toolCall"]["toolCallId"],
        again["params"]["toolCall"]["toolCallId"]
    );
    editor.respond(&again, &json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(editor.turn("hello"), "end_turn");
}

#[test]
#[cfg(target_os = "linux")]
fn r_rem_8_ten_thousand_attempts_to_connect_cost_no_memory_and_keep_nobody_out() {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const ATTEMPTS: usize = 10_000;
    /// After so many attempts at once, the agent is given the time to refuse each fourth.
    const AT_ONCE: usize = 1_000;
    let token = "a-token-of-the-tests";
    let served = serve(&[], Some(token));
    let mut agent = served.editor(token).start();
    assert_eq!(agent.turn("before"), "end_turn");
    let before = served.resident();
    let host = served.url.trim_start_matches("ws://").trim_end_matches("/acp");
    let wrong = "POST /acp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n";
    let bytes = ["", "GET /acp HTTP/1.1\r\nx: ", "\x16\x03\x01\x02\x00", wrong];
    let mut open = std::collections::VecDeque::new();
    for number in 0..ATTEMPTS {
        let Ok(mut socket) = TcpStream::connect(host) else { continue };
        // It may be refused before it has said anything.
        let said = bytes[number % bytes.len()];
        drop(socket.write_all(said.as_bytes()));
        if said == wrong && number > AT_ONCE {
            let mut answer = [0; 12];
            socket.read_exact(&mut answer).unwrap();
            assert_eq!(str::from_utf8(&answer), Ok("HTTP/1.1 401"));
        }
        open.push_back(socket);
        if open.len() > 300 {
            open.pop_front();
        }
    }
    assert_eq!(agent.turn("meanwhile"), "end_turn");
    let mut other = served.editor(token).start();
    assert_eq!(other.turn("afterwards"), "end_turn");
    let grown = served.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
}
