//! `turnwright mcp-server` (S3-10) serves the built-in tools to other MCP clients. The tests talk with a
//! real process, line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::command_lines::{run_on, then};
use turnwright_testing::session_requests::code;

use crate::agent::{LIMIT, assert_gone, eventually, is_alive, subcommand};

/// The key of the model provider, which no message may contain.
const KEY: &str = "sk-canary-of-the-mcp-server";
/// The newest protocol revision whose connections begin with `initialize`.
const LEGACY: &str = "2025-11-25";

/// The server process, and the client's end of the connection.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All messages of the server so far.
    log: Vec<Value>,
    folder: TempDir,
    home: TempDir,
    last_id: i64,
}

impl Server {
    fn start(arguments: &[&str], files: &[(&str, &str)]) -> Server {
        let (folder, home) =
            (turnwright_testing::temporary_folder(), turnwright_testing::temporary_folder());
        for (path, content) in files {
            std::fs::write(folder.path().join(path), content).unwrap();
        }
        let mut child = subcommand(home.path(), &["mcp-server"])
            .args(arguments)
            .current_dir(folder.path())
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
        Server { child, stdin, lines, log: Vec::new(), folder, home, last_id: 0 }
    }

    /// Starts a server and initializes it with the revision [`LEGACY`] and the client's capabilities.
    fn initialized(arguments: &[&str], capabilities: &Value, files: &[(&str, &str)]) -> Server {
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
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request.to_string());
        id
    }

    /// Reads messages up to the first that `is_match` accepts, and returns that one.
    fn wait_for(&mut self, what: &str, is_match: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let remaining = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(remaining) else {
                panic!("{what} did not come: {:#?}", self.log)
            };
            assert!(!line.contains(KEY), "{line}");
            let message: Value = serde_json::from_str(&line).unwrap();
            self.log.push(message.clone());
            if is_match(&message) {
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

    /// The text of a call's result, and whether the call failed.
    fn result(&mut self, name: &str, arguments: &Value) -> (String, bool) {
        text_and_failure(&self.call(name, arguments))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Closes the server's stdin and waits until the process has ended with status 0 and an empty stderr.
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
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr, "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The text of the result in an answer, and whether the call failed.
fn text_and_failure(answer: &Value) -> (String, bool) {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no result: {answer}"));
    (text.to_owned(), answer["result"]["isError"] == true)
}

/// The `_meta` that a client of the revision 2026-07-28 sends with each request.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

#[test]
fn all_protocol_revisions_are_supported() {
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
    assert!(text_and_failure(&answer).0.contains("hello"));
    server.close();
}

#[test]
fn s3_10_the_first_page_lists_all_tools_and_an_invalid_cursor_is_an_error() {
    let mut server = Server::initialized(&[], &json!({}), &[]);
    let mut list = |params: Value| {
        let page = server.ask("tools/list", &params)["result"].take();
        // Many clients request only the first page.
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
fn an_invalid_request_is_an_error_and_a_failed_call_a_result() {
    let mut server = Server::initialized(&[], &json!({}), &[]);
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
fn an_error_repeats_only_the_beginning_of_a_long_text() {
    let mut server = Server::initialized(&[], &json!({}), &[]);
    let long = "x".repeat(1_000_000);
    let mut of_another_version = meta(&json!({}));
    of_another_version["io.modelcontextprotocol/protocolVersion"] = json!(long);
    let requests = [
        (long.as_str(), json!({})),
        ("tools/list", json!({ "_meta": of_another_version })),
        ("tools/list", json!({ "cursor": long })),
        ("tools/call", json!({ "name": long })),
    ];
    for (method, params) in requests {
        let answer = server.ask(method, &params);
        assert!(answer["error"].is_object(), "{}", &method[..10]);
        assert!(answer.to_string().len() < 4096, "{}", &method[..10]);
    }
    server.close();
}

#[test]
fn without_elicitation_a_refused_call_says_what_would_allow_it() {
    let mut server = Server::initialized(&[], &json!({}), &[]);
    let write = json!({ "path": "new", "content": "x" });
    let (text, failed) = server.result("write_file", &write);
    assert!(failed && text.contains("--mode auto-edit") && text.contains("edit(/new)"), "{text}");
    assert!(!server.path("new").exists());
    server.close();
    let mut server = Server::initialized(&["--mode", "auto-edit"], &json!({}), &[]);
    assert!(!server.result("write_file", &write).1);
    assert_eq!(std::fs::read_to_string(server.path("new")).unwrap(), "x");
    let audit = server.home.path().join("state/permissions.jsonl");
    eventually("the audit log contains the call", || {
        std::fs::read_to_string(&audit).is_ok_and(|it| it.contains("\"ran\"") && it.contains("new"))
    });
    server.close();
}

#[test]
fn a_call_asks_through_elicitation_and_runs_only_if_it_is_accepted() {
    let yes = json!({ "action": "accept", "content": { "decision": "Allow once" } });
    for (answer, is_written) in [
        (yes, true),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
        (json!({ "action": "accept", "content": { "decision": "yes" } }), false),
        (json!({ "action": "accept" }), false),
        (json!({}), false),
    ] {
        let mut server = Server::initialized(&[], &json!({ "elicitation": {} }), &[]);
        let call = json!({ "name": "write_file", "arguments": { "path": "new", "content": "x" } });
        let id = server.request("tools/call", &call);
        let question = server.wait_for("a question", |it| it["method"] == "elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("+x"), "{question}");
        assert!(!server.path("new").exists());
        let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer });
        server.send(&reply.to_string());
        let (text, failed) = text_and_failure(&server.answer(id));
        assert_eq!((!failed, server.path("new").exists()), (is_written, is_written), "{text}");
        server.close();
    }
}

#[test]
fn a_request_with_an_id_that_is_in_use_is_refused_and_the_first_one_is_answered() {
    let mut server = Server::initialized(&[], &json!({ "elicitation": {} }), &[("a", "hello\n")]);
    let call = json!({ "name": "write_file", "arguments": { "path": "new", "content": "x" } });
    let id = server.request("tools/call", &call);
    let question = server.wait_for("a question", |it| it["method"] == "elicitation/create");
    server.last_id = id - 1;
    let call = json!({ "name": "read_file", "arguments": { "path": "a" } });
    let refused = server.ask("tools/call", &call);
    assert_eq!(code(&refused), -32600, "{refused}");
    let declined = json!({ "action": "decline" });
    let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": declined });
    server.send(&reply.to_string());
    let (_, failed) = text_and_failure(&server.answer(id));
    assert!(failed && !server.path("new").exists());
    server.close();
}

/// The command of the withdrawn call ignores SIGTERM, so it runs on until it is killed.
#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_withdrawn_id_can_be_used_again_while_its_first_call_winds_down() {
    let mut server = Server::initialized(&["--mode", "full"], &json!({}), &[]);
    let stubborn = "trap '' TERM; touch begun; while true; do sleep 0.02; done";
    let call = json!({ "name": "exec", "arguments": { "command": stubborn } });
    let id = server.request("tools/call", &call);
    eventually("the command runs", || server.path("begun").exists());
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
    });
    server.send(&cancel.to_string());
    server.last_id = id - 1;
    let (text, failed) = server.result("exec", &json!({ "command": "sleep 1; echo second" }));
    assert!(!failed && text.contains("second"), "{text}");
    server.close();
}

#[test]
fn in_revision_2026_07_28_the_answer_to_a_question_is_bound_to_its_call_and_counts_once() {
    let mut server = Server::start(&[], &[]);
    let meta = meta(&json!({ "elicitation": { "form": {} } }));
    let arguments = json!({ "path": "new", "content": "x" });
    let call = json!({ "name": "write_file", "arguments": arguments, "_meta": meta });
    let question = server.ask("tools/call", &call)["result"].take();
    assert_eq!(question["resultType"], "input_required");
    let yes = json!({ "action": "accept", "content": { "decision": "Allow once" } });
    let mut answered = call.clone();
    answered["requestState"] = question["requestState"].clone();
    answered["inputResponses"] = json!({ "permission": yes });
    let mut other_call = answered.clone();
    other_call["arguments"]["path"] = json!("other");
    assert_eq!(code(&server.ask("tools/call", &other_call)), -32602);
    assert_eq!(code(&server.ask("tools/call", &answered)), -32602);
    let question = server.ask("tools/call", &call)["result"].take();
    answered["requestState"] = question["requestState"].clone();
    assert!(!text_and_failure(&server.ask("tools/call", &answered)).1);
    assert!(server.path("new").exists() && !server.path("other").exists());
    server.close();
}

#[test]
fn the_server_applies_the_policy_of_sessions() {
    let mut server = Server::initialized(&["--mode", "plan"], &json!({ "elicitation": {} }), &[]);
    let write = json!({ "path": "new", "content": "x" });
    let (text, failed) = server.result("write_file", &write);
    assert!(failed && text.contains("Plan mode"), "{text}");
    server.close();
    let mut server = Server::initialized(&["--mode", "auto"], &json!({}), &[]);
    let outside = format!("{}outside", "../".repeat(20));
    for path in ["/etc/turnwright-was-here", ".git/hooks/pre-commit", &outside] {
        let write = json!({ "path": path, "content": "x" });
        let (text, failed) = server.result("write_file", &write);
        assert!(failed, "{path}: {text}");
    }
    let (text, failed) = server.result("exec", &json!({ "command": "rm -rf /" }));
    assert!(failed && text.contains("never run"), "{text}");
    server.close();
}

#[test]
fn the_folders_come_from_the_command_line_or_from_the_client() {
    let other = turnwright_testing::temporary_folder();
    std::fs::write(other.path().join("a"), "elsewhere\n").unwrap();
    let root = other.path().to_str().unwrap();
    let mut server = Server::initialized(&["--root", root], &json!({ "roots": {} }), &[]);
    assert!(server.result("read_file", &json!({ "path": "a" })).0.contains("elsewhere"));
    server.close();
    let mut server = Server::initialized(&[], &json!({ "roots": {} }), &[]);
    let id =
        server.request("tools/call", &json!({ "name": "read_file", "arguments": { "path": "a" } }));
    let request = server.wait_for("a question", |it| it["method"] == "roots/list");
    let roots = json!({ "roots": [{ "uri": format!("file://{root}") }] });
    server.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": roots }).to_string());
    assert!(text_and_failure(&server.answer(id)).0.contains("elsewhere"));
    server.close();
}

#[cfg(unix)]
#[test]
fn the_root_folder_is_refused_under_any_name() {
    let links = turnwright_testing::temporary_folder();
    let link = links.path().join("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    for root in ["/", "/tmp/..", link.to_str().unwrap()] {
        let mut server = Server::initialized(&["--root", root], &json!({}), &[]);
        let (text, failed) = server.result("list_dir", &json!({ "path": "." }));
        assert!(failed && text.contains("the whole machine"), "{root}: {text}");
        server.close();
    }
}

#[test]
fn progress_is_reported_and_a_cancel_ends_the_command() {
    let mut server = Server::initialized(&["--mode", "full"], &json!({}), &[]);
    let call = json!({
        "name": "exec",
        "arguments": { "command": then("echo begun", &run_on("73910391")) },
        "_meta": { "progressToken": "p" },
    });
    let id = server.request("tools/call", &call);
    let progress = server.wait_for("progress", |it| it["method"] == "notifications/progress");
    assert_eq!(
        (&progress["params"]["progressToken"], &progress["params"]["message"]),
        (&json!("p"), &json!("begun"))
    );
    eventually("the command runs", || is_alive("73910391"));
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
    });
    server.send(&cancel.to_string());
    assert_gone("73910391");
    assert_eq!(server.ask("ping", &json!({}))["result"], json!({}));
    assert!(!server.log.iter().any(|it| it["id"] == id));
    server.close();
}

#[test]
fn commands_end_when_the_client_disconnects_or_the_server_gets_a_signal() {
    // On Windows the server can only be killed.
    for (word, is_signal) in [("73920392", false), ("73930393", true)] {
        let mut server = Server::initialized(&["--mode", "full"], &json!({}), &[]);
        let call = json!({ "name": "exec", "arguments": { "command": run_on(word) } });
        server.request("tools/call", &call);
        eventually("the command runs", || is_alive(word));
        if is_signal {
            if cfg!(windows) {
                server.child.kill().unwrap();
                assert_gone(word);
                continue;
            }
            let server = server.child.id().to_string();
            assert!(Command::new("kill").arg(server).status().unwrap().success());
            assert_gone(word);
        }
        server.close();
        assert_gone(word);
    }
}

#[test]
fn invalid_lines_are_answered_and_do_not_end_the_server() {
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
fn too_many_calls_are_refused_with_a_time_to_retry() {
    let mut server = Server::initialized(&[], &json!({}), &[("a", "hello\n")]);
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
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn keys_and_control_characters_are_removed_from_results() {
    let mut server = Server::initialized(&["--mode", "full"], &json!({}), &[("a", KEY)]);
    let (text, _) = server.result("read_file", &json!({ "path": "a" }));
    assert!(text.contains("[hidden:"), "{text}");
    let (text, _) = server.result("exec", &json!({ "command": "cat a; printf '\\033[2J'; env" }));
    assert!(text.contains("[hidden:") && !text.contains('\u{1b}'), "{text}");
    server.close();
}

#[cfg(target_os = "linux")]
#[test]
fn a_repository_that_a_command_makes_is_checked_without_a_session() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: without mount namespaces the command is asked about");
    }
    let script = "git init -q sub && git -C sub config core.fsmonitor ./x";
    let mut server = Server::initialized(&["--mode", "auto"], &json!({}), &[("script", script)]);
    let (text, failed) = server.result("exec", &json!({ "command": "sh script" }));
    assert!(failed && text.contains("sub/.git/config"), "{text}");
    assert!(!server.path("sub/.git/config").exists());
    server.close();
}
