//! Clients that do not read: the agent's memory stays bounded, and cancels and the end of stdin still
//! work.
//!
//! `TestAgent` always reads, so these tests use a client of their own, which reads only on request.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::process_report::{peak_memory, wait_until_idle};
use turnwright_testing::process_waits::{self, Input};
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{LIMIT, eventually, prompt, says, subcommand};

/// The most memory of an agent beside a stream or an output of hundreds of megabytes. Without optimisation the program
/// alone takes half of it.
const MAX_PEAK: u64 = 96 * MIB;
const MIB: u64 = 1024 * 1024;

/// A client that reads a line only when the test asks for one.
struct ManualClient {
    child: Child,
    stdin: Option<Input>,
    /// The pipe stays open and is never read.
    _stderr: ChildStderr,
    permits: Sender<()>,
    lines: Receiver<Value>,
    model: Server,
    folder: TempDir,
}

impl ManualClient {
    fn start(replies: &Value, log: Option<&str>) -> ManualClient {
        let folder = turnwright_testing::temporary_folder();
        let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
        let model = Server::start(scenario, 0).unwrap();
        let mut child = subcommand(folder.path(), &[])
            .env("OPENAI_BASE_URL", model.base_url())
            .env("TURNWRIGHT_MODEL", "scripted")
            .envs(log.map(|it| ("TURNWRIGHT_LOG", it)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (permits, permit) = channel();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while permit.recv().is_ok() && stdout.read_line(&mut line).unwrap() > 0 {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let stdin = Some(Input::of(&mut child));
        let stderr = child.stderr.take().unwrap();
        ManualClient { child, stdin, _stderr: stderr, permits, lines, model, folder }
    }

    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.stdin.as_ref().unwrap().write(line.as_bytes()).unwrap();
    }

    fn request(&mut self, id: &Value, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Reads one line.
    fn read(&mut self) -> Value {
        self.permits.send(()).unwrap();
        self.lines.recv_timeout(LIMIT).expect("a line within the limit")
    }

    /// Reads until the answer to a request has come.
    fn answer_to(&mut self, id: &Value) -> Value {
        loop {
            let message = self.read();
            if message.get("method").is_none() && message["id"] == *id {
                return message;
            }
        }
    }

    /// Opens a session and returns its identifier.
    fn session(&mut self) -> String {
        self.request(&json!("i"), "initialize", &json!({ "protocolVersion": 1 }));
        self.answer_to(&json!("i"));
        let params = json!({ "cwd": self.folder.path(), "mcpServers": [] });
        self.request(&json!("n"), "session/new", &params);
        self.answer_to(&json!("n"))["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// The peak memory of the agent, in bytes.
    fn peak(&self) -> u64 {
        peak_memory(self.child.id())
    }

    fn wait_until_idle(&self) {
        wait_until_idle(self.child.id());
    }

    /// Checks that the agent ends by itself and with status 0.
    fn must_end(mut self) {
        let mut status = None;
        eventually("the agent ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
    }
}

impl Drop for ManualClient {
    fn drop(&mut self) {
        // After a successful test the process has ended or is no longer needed.
        process_waits::kill(&mut self.child);
    }
}

/// A reply of about 200 MB.
fn flood() -> Value {
    json!([{ "text": "0123456789abcdef".repeat(256), "repeat": 50_000 }])
}

#[test]
fn an_unread_reply_stream_pauses_and_can_be_cancelled() {
    let mut client = ManualClient::start(&json!([flood(), says("Here.")]), None);
    let session = client.session();
    client.request(&json!(1), "session/prompt", &prompt(&session, "tell me all"));
    client.model.wait_for_requests(1, LIMIT).unwrap();
    client.wait_until_idle();
    assert!(client.peak() < MAX_PEAK, "{} MiB", client.peak() / MIB);
    assert_eq!(client.model.hung_up(), 0);

    let cancel = json!({ "sessionId": session });
    client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel }));
    // The cancel takes effect although the client still does not read.
    client.model.wait_for_hang_ups(1, LIMIT).unwrap();
    assert_eq!(client.answer_to(&json!(1))["result"]["stopReason"], "cancelled");
    client.request(&json!(2), "session/prompt", &prompt(&session, "still there?"));
    assert_eq!(client.answer_to(&json!(2))["result"]["stopReason"], "end_turn");
}

#[test]
fn the_end_of_stdin_ends_an_unread_reply_stream() {
    let mut client = ManualClient::start(&json!([flood()]), None);
    let session = client.session();
    client.request(&json!(1), "session/prompt", &prompt(&session, "tell me all"));
    client.model.wait_for_requests(1, LIMIT).unwrap();
    client.wait_until_idle();
    drop(client.stdin.take());
    client.must_end();
}

#[test]
fn r_tr_4_a_client_that_never_reads_stderr_is_served_at_any_log_level() {
    let reply = json!([{ "text": "word ", "repeat": 3_000 }]);
    let mut client = ManualClient::start(&json!([reply]), Some("trace"));
    let session = client.session();
    // A pipe holds 64 KiB; this writes many times as much into the log.
    for id in 0..2_000 {
        client.request(&json!(id), "_x/y", &json!({ "padding": "x".repeat(100) }));
        client.send(&json!({ "jsonrpc": "2.0", "method": "_x/y".repeat(20), "params": {} }));
        assert_eq!(client.answer_to(&json!(id))["error"]["code"], -32601);
    }
    client.request(&json!("p"), "session/prompt", &prompt(&session, "hi"));
    assert_eq!(client.answer_to(&json!("p"))["result"]["stopReason"], "end_turn");
    drop(client.stdin.take());
    client.must_end();
}

/// A long identifier, which makes the answer as long.
fn large_id(number: usize) -> Value {
    json!(format!("{number} {}", "x".repeat(64 * 1024)))
}

#[test]
fn the_agent_stops_reading_requests_while_answers_are_unread() {
    const COUNT: usize = 2_000;
    let mut client = ManualClient::start(&json!([]), None);
    client.session();
    let stdin = client.stdin.take().unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        for number in 0..COUNT {
            let message = json!({ "jsonrpc": "2.0", "id": large_id(number), "method": "_x/y" });
            stdin.write(format!("{message}\n").as_bytes()).unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
        stdin
    });
    eventually("requests are taken", || written.load(Ordering::Relaxed) > 10);
    client.wait_until_idle();
    let peak = client.peak();
    assert!(peak < 80 * MIB, "{} MiB", peak / MIB);
    let accepted = written.load(Ordering::Relaxed);
    assert!(accepted < COUNT as u64, "{accepted} requests were taken");
    let mut number = 0;
    while number < COUNT {
        let message = client.read();
        if message.get("method").is_none() {
            assert_eq!(message["id"], large_id(number), "the answers are not in order");
            number += 1;
        }
    }
    client.stdin = Some(writer.join().unwrap());
    drop(client.stdin.take());
    client.must_end();
}

#[test]
fn the_end_of_stdin_ends_an_agent_with_unread_answers() {
    let mut client = ManualClient::start(&json!([]), None);
    client.session();
    // After these requests the agent has stopped reading.
    for number in 0..150 {
        let message = json!({ "jsonrpc": "2.0", "id": large_id(number), "method": "_x/y" });
        client.send(&message);
    }
    // These exceed what the agent reads ahead, so some stay in the pipe before the end.
    for number in 0..100 {
        client.request(&json!(number), "_x/y", &json!({}));
    }
    client.wait_until_idle();
    drop(client.stdin.take());
    client.must_end();
}

#[test]
fn thousands_of_small_requests_are_answered_once_each_and_in_order() {
    let mut client = ManualClient::start(&json!([]), None);
    client.session();
    let stdin = client.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for id in 0..5_000 {
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": "_x/y", "params": {} });
            stdin.write(format!("{message}\n").as_bytes()).unwrap();
        }
        stdin
    });
    let mut next = 0;
    while next < 5_000 {
        let message = client.read();
        if message.get("method").is_none() {
            assert_eq!(message["id"], next);
            next += 1;
        }
    }
    client.stdin = Some(writer.join().unwrap());
}

#[cfg(unix)]
#[test]
fn an_unread_command_output_does_not_fill_the_memory() {
    let yes = json!({ "name": "exec", "arguments": { "command": "yes | head -c 300000000" } });
    let mut client = ManualClient::start(&json!([[{ "call": yes }], says("Much.")]), None);
    let session = client.session();
    client.request(&json!(1), "session/prompt", &prompt(&session, "say yes"));
    let question = loop {
        let message = client.read();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome }));
    client.model.wait_for_requests(2, LIMIT).unwrap();
    assert!(client.peak() < MAX_PEAK, "{} MiB", client.peak() / MIB);
    assert_eq!(client.answer_to(&json!(1))["result"]["stopReason"], "end_turn");
}
