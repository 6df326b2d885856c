//! `turnwright mcp-server`: our tools for other MCP clients (S3-10), as lines on a real process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{LIMIT, eventually, is_alive};

/// A key that is loaded, and that nobody is to see.
const KEY: &str = "sk-canary-of-the-mcp-server";
/// The newest revision that begins with `initialize`.
const LEGACY: &str = "2025-11-25";

/// The server, and its client.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What has come so far.
    log: Vec<Value>,
    folder: TempDir,
    home: TempDir,
    last: i64,
}

impl Server {
    fn start(arguments: &[&str], files: &[(&str, &str)]) -> Server {
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (path, content) in files {
            std::fs::write(folder.path().join(path), content).unwrap();
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .arg("mcp-server")
            .args(arguments)
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TURNWRIGHT_HOME", home.path())
            .env("OPENAI_API_KEY", KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let stdin = child.stdin.take();
        Server { child, stdin, lines, log: Vec::new(), folder, home, last: 0 }
    }

    /// One that a client of that revision, which can do so much, has begun to speak with.
    fn begun(arguments: &[&str], capabilities: &Value, files: &[(&str, &str)]) -> Server {
        let mut server = Server::start(arguments, files);
        server.initialize(LEGACY, capabilities);
        server
    }

    fn initialize(&mut self, revision: &str, capabilities: &Value) -> Value {
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({
            "protocolVersion": revision, "capabilities": capabilities, "clientInfo": about,
        });
        let answer = self.ask("initialize", &params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        answer
    }

    fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> i64 {
        self.last += 1;
        let id = self.last;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request.to_string());
        id
    }

    /// The next message that is what is waited for.
    fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("{what} did not come: {:#?}", self.log)
            };
            assert!(!line.contains(KEY), "{line}");
            let message: Value = serde_json::from_str(&line).unwrap();
            self.log.push(message.clone());
            if is_it(&message) {
                return message;
            }
        }
    }

    fn answer(&mut self, id: i64) -> Value {
        self.wait_for("the answer", |it| it["id"] == id && it.get("method").is_none())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": name, "arguments": arguments }))
    }

    /// The text of a call's result, and whether it has failed.
    fn result(&mut self, name: &str, arguments: &Value) -> (String, bool) {
        said(&self.call(name, arguments))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Closes its input and waits for its end.
    fn close(&mut self) {
        drop(self.stdin.take());
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the server has not ended");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn said(answer: &Value) -> (String, bool) {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no result: {answer}"));
    (text.to_owned(), answer["result"]["isError"] == true)
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

/// What a client of the modern revision says with each request.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

#[test]
fn each_revision_is_spoken() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = Server::start(&[], &[("a", "hello\n")]);
        let answer = server.initialize(revision, &json!({}));
        assert_eq!(answer["result"]["protocolVersion"], revision);
        assert_eq!(answer["result"]["capabilities"], json!({ "tools": { "listChanged": true } }));
        assert!(server.result("read_file", &json!({ "path": "a" })).0.contains("hello"));
        assert_eq!(server.ask("ping", &json!({}))["result"], json!({}));
        server.close();
    }
    let mut server = Server::start(&[], &[("a", "hello\n")]);
    let meta = meta(&json!({}));
    let answer = server.ask("server/discover", &json!({ "_meta": meta }));
    let versions = answer["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.len() == 5, "{answer}");
    let call = json!({ "name": "read_file", "arguments": { "path": "a" }, "_meta": meta });
    let answer = server.ask("tools/call", &call);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert!(said(&answer).0.contains("hello"));
    server.close();
}

#[test]
fn s3_10_all_tools_are_on_the_first_page_cursors_lead_on_and_one_that_is_none_is_an_error() {
    let mut server = Server::begun(&[], &json!({}), &[]);
    let mut list = |params: Value| {
        let page = server.ask("tools/list", &params)["result"].take();
        // Many clients ask for the first page and no other.
        assert!(page.get("nextCursor").is_none(), "{page}");
        let mut names = Vec::new();
        for tool in page["tools"].as_array().unwrap() {
            assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
            assert_eq!(tool["inputSchema"]["type"], "object");
            names.push(tool["name"].as_str().unwrap().to_owned());
        }
        names
    };
    let names = list(json!({}));
    let rest = list(json!({ "cursor": format!("after:{}", names[3]) }));
    assert_eq!(rest, names[4..]);
    for name in ["read_file", "edit_file", "apply_patch", "exec", "web_fetch"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    for name in ["plan", "ask_user", "exit_plan", "history", "memory", "skill"] {
        assert!(!names.iter().any(|it| it == name), "{name}");
    }
    assert_eq!(code(&server.ask("tools/list", &json!({ "cursor": "x" }))), -32602);
    server.close();
}

#[test]
fn what_cannot_be_meant_is_an_error_and_what_did_not_work_is_a_result() {
    let mut server = Server::begun(&[], &json!({}), &[]);
    assert_eq!(code(&server.call("nope", &json!({}))), -32602);
    assert_eq!(code(&server.call("plan", &json!({}))), -32602);
    assert_eq!(code(&server.ask("tools/call", &json!({ "name": 5 }))), -32602);
    assert_eq!(
        code(&server.ask("tools/call", &json!({ "name": "exec", "arguments": [] }))),
        -32602
    );
    assert_eq!(code(&server.ask("resources/nope", &json!({}))), -32601);
    let (text, failed) = server.result("read_file", &json!({ "line": 5 }));
    assert!(failed && text.contains("path"), "{text}");
    let (text, failed) = server.result("read_file", &json!({ "path": "missing" }));
    assert!(failed && text.contains("missing"), "{text}");
    server.close();
}

#[test]
fn where_nobody_can_be_asked_a_call_is_refused_and_what_would_allow_it_is_said() {
    let mut server = Server::begun(&[], &json!({}), &[]);
    let write = json!({ "path": "new", "content": "x" });
    let (text, failed) = server.result("write_file", &write);
    assert!(failed && text.contains("--mode auto-edit") && text.contains("edit(/new)"), "{text}");
    assert!(!server.path("new").exists());
    server.close();
    let mut server = Server::begun(&["--mode", "auto-edit"], &json!({}), &[]);
    assert!(!server.result("write_file", &write).1);
    assert_eq!(std::fs::read_to_string(server.path("new")).unwrap(), "x");
    let audit = server.home.path().join("state/permissions.jsonl");
    eventually("the audit has the call", || {
        std::fs::read_to_string(&audit).is_ok_and(|it| it.contains("\"ran\"") && it.contains("new"))
    });
    server.close();
}

#[test]
fn the_user_is_asked_through_the_client_and_only_a_clear_yes_is_one() {
    let yes = json!({ "action": "accept", "content": { "decision": "Allow once" } });
    for (answer, is_written) in [
        (yes, true),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
        (json!({ "action": "accept", "content": { "decision": "yes" } }), false),
        (json!({ "action": "accept" }), false),
        (json!({}), false),
    ] {
        let mut server = Server::begun(&[], &json!({ "elicitation": {} }), &[]);
        let call = json!({ "name": "write_file", "arguments": { "path": "new", "content": "x" } });
        let id = server.request("tools/call", &call);
        let question = server.wait_for("a question", |it| it["method"] == "elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("+x"), "{question}");
        assert!(!server.path("new").exists());
        let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer });
        server.send(&reply.to_string());
        let (text, failed) = said(&server.answer(id));
        assert_eq!((!failed, server.path("new").exists()), (is_written, is_written), "{text}");
        server.close();
    }
}

#[test]
fn in_the_modern_revision_the_question_is_a_round_of_its_own_and_its_answer_counts_once() {
    let mut server = Server::start(&[], &[]);
    let meta = meta(&json!({ "elicitation": { "form": {} } }));
    let arguments = json!({ "path": "new", "content": "x" });
    let call = json!({ "name": "write_file", "arguments": arguments, "_meta": meta });
    let asked = server.ask("tools/call", &call)["result"].take();
    assert_eq!(asked["resultType"], "input_required");
    let yes = json!({ "action": "accept", "content": { "decision": "Allow once" } });
    let mut again = call.clone();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ "permission": yes });
    let mut other = again.clone();
    other["arguments"]["path"] = json!("other");
    assert_eq!(code(&server.ask("tools/call", &other)), -32602);
    assert_eq!(code(&server.ask("tools/call", &again)), -32602);
    let asked = server.ask("tools/call", &call)["result"].take();
    again["requestState"] = asked["requestState"].clone();
    assert!(!said(&server.ask("tools/call", &again)).1);
    assert!(server.path("new").exists() && !server.path("other").exists());
    server.close();
}

#[test]
fn the_policy_is_that_of_a_session() {
    let mut server = Server::begun(&["--mode", "plan"], &json!({ "elicitation": {} }), &[]);
    let write = json!({ "path": "new", "content": "x" });
    let (text, failed) = server.result("write_file", &write);
    assert!(failed && text.contains("Plan mode"), "{text}");
    server.close();
    let mut server = Server::begun(&["--mode", "auto"], &json!({}), &[]);
    for path in ["/etc/turnwright-was-here", ".git/hooks/pre-commit", "../outside"] {
        let write = json!({ "path": path, "content": "x" });
        let (text, failed) = server.result("write_file", &write);
        assert!(failed, "{path}: {text}");
    }
    let (text, failed) = server.result("exec", &json!({ "command": "rm -rf /" }));
    assert!(failed && text.contains("never run"), "{text}");
    server.close();
}

#[test]
fn the_folders_are_those_of_the_command_line_or_of_the_client() {
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("a"), "elsewhere\n").unwrap();
    let root = other.path().to_str().unwrap();
    let mut server = Server::begun(&["--root", root], &json!({ "roots": {} }), &[]);
    assert!(server.result("read_file", &json!({ "path": "a" })).0.contains("elsewhere"));
    server.close();
    let mut server = Server::begun(&[], &json!({ "roots": {} }), &[]);
    let id =
        server.request("tools/call", &json!({ "name": "read_file", "arguments": { "path": "a" } }));
    let asked = server.wait_for("a question", |it| it["method"] == "roots/list");
    let roots = json!({ "roots": [{ "uri": format!("file://{root}") }] });
    server.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots }).to_string());
    assert!(said(&server.answer(id)).0.contains("elsewhere"));
    server.close();
}

#[cfg(unix)]
#[test]
fn the_whole_machine_is_no_folder_by_whatever_name() {
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    for root in ["/", "/tmp/..", link.to_str().unwrap()] {
        let mut server = Server::begun(&["--root", root], &json!({}), &[]);
        let (text, failed) = server.result("list_dir", &json!({ "path": "." }));
        assert!(failed && text.contains("the whole machine"), "{root}: {text}");
        server.close();
    }
}

#[test]
fn progress_is_told_and_a_cancel_ends_the_command() {
    let mut server = Server::begun(&["--mode", "full"], &json!({}), &[]);
    let call = json!({
        "name": "exec",
        "arguments": { "command": "echo begun; sleep 73910391" },
        "_meta": { "progressToken": "p" },
    });
    let id = server.request("tools/call", &call);
    let news = server.wait_for("progress", |it| it["method"] == "notifications/progress");
    assert_eq!(
        (&news["params"]["progressToken"], &news["params"]["message"]),
        (&json!("p"), &json!("begun"))
    );
    assert!(is_alive("73910391"));
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
    });
    server.send(&cancel.to_string());
    eventually("the command has ended", || !is_alive("73910391"));
    assert_eq!(server.ask("ping", &json!({}))["result"], json!({}));
    assert!(!server.log.iter().any(|it| it["id"] == id));
    server.close();
}

#[test]
fn nothing_is_left_when_the_client_goes_or_the_server_is_told_to_stop() {
    for (word, is_signal) in [("73920392", false), ("73930393", true)] {
        let mut server = Server::begun(&["--mode", "full"], &json!({}), &[]);
        let call = json!({ "name": "exec", "arguments": { "command": format!("sleep {word}") } });
        server.request("tools/call", &call);
        eventually("the command runs", || is_alive(word));
        if is_signal {
            let server = server.child.id().to_string();
            assert!(Command::new("kill").arg(server).status().unwrap().success());
            eventually("the command has ended", || !is_alive(word));
        }
        server.close();
        assert!(!is_alive(word));
    }
}

#[test]
fn lines_that_are_no_messages_are_answered_and_end_nothing() {
    let mut server = Server::start(&[], &[("a", "hello\n")]);
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    for (line, expected) in [
        ("garbage", -32700),
        ("[1]", -32600),
        ("5", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":77,"method":"tools/list"}"#, -32602),
    ] {
        server.send(line);
        let answer = server.wait_for("an error", |it| it.get("error").is_some());
        assert_eq!(code(&answer), expected, "{line}");
    }
    let cancelled = json!({ "requestId": 1 });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled });
    server.send(&cancelled.to_string());
    let long = "x".repeat(64 * 1024 * 1024 + 1);
    server.send(&long);
    let answer = server.wait_for("an error", |it| it.get("error").is_some());
    assert_eq!(code(&answer), -32600);
    server.initialize(LEGACY, &json!({}));
    assert!(server.result("read_file", &json!({ "path": "a" })).0.contains("hello"));
    server.close();
}

#[test]
fn calls_that_come_too_fast_are_told_when_to_come_again() {
    let mut server = Server::begun(&[], &json!({}), &[("a", "hello\n")]);
    let call = json!({ "name": "read_file", "arguments": { "path": "a" } });
    let ids: Vec<_> = (0..120).map(|_| server.request("tools/call", &call)).collect();
    let mut refused = 0;
    for _ in &ids {
        let answer = server.wait_for("an answer", |it| it.get("id").is_some());
        if answer.get("error").is_some() {
            assert_eq!(code(&answer), -32000);
            assert!(answer["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 0);
            refused += 1;
        }
    }
    assert!(refused > 0 && refused < 120, "{refused}");
    server.close();
}

#[test]
fn no_key_is_in_any_answer() {
    let mut server = Server::begun(&["--mode", "full"], &json!({}), &[("a", KEY)]);
    let (text, _) = server.result("read_file", &json!({ "path": "a" }));
    assert!(text.contains("[key]"), "{text}");
    let (text, _) = server.result("exec", &json!({ "command": "cat a; printf '\\033[2J'; env" }));
    assert!(text.contains("[key]") && !text.contains('\u{1b}'), "{text}");
    server.close();
}
