//! A cancel in every phase of a turn (R-CANCEL-1, -2, -4, -5): whatever the agent waits for, it
//! stops waiting at once, and everything that `cancellation::cancel_and_go_on` checks holds.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::cancellation::{
    NEXT, assert_valid, cancel_and_go_on, expect_cancelled, go_on, next_reply,
};
use turnwright_testing::raw_server::{RawServer, text_stream, wait_for_the_end, write_stream};

use crate::agent::{LIMIT, TestAgent, calls, eventually, runs};

/// Cancels the turn. The agent must then close its connection to the model, which it would otherwise
/// keep for minutes.
fn cancel_the_stream(agent: &mut TestAgent, id: &Value) {
    agent.cancel();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    expect_cancelled(agent, id);
    go_on(agent);
}

/// Starts a server that passes its first connection to `play` and answers the other requests.
fn bad_at_first(play: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> RawServer {
    RawServer::start(move |number, stream| match number {
        0 => play(stream),
        _ => write_stream(stream, &text_stream("All is well.")),
    })
}

fn cancel_a_request_without_an_answer(server: &RawServer) {
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &server.base_url()).start();
    let id = agent.prompt("one");
    server.wait_for_requests(1);
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    eventually("the connection is closed", || server.has_finished(1));
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert_eq!(agent.text(), "All is well.");
    assert_valid(&server.body(1));
}

#[test]
fn r_cancel_2_while_the_server_has_accepted_the_connection_and_sends_nothing() {
    cancel_a_request_without_an_answer(&bad_at_first(wait_for_the_end));
}

#[test]
fn r_cancel_2_while_the_server_stalls_in_the_middle_of_its_headers() {
    cancel_a_request_without_an_answer(&bad_at_first(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-ty").unwrap();
        wait_for_the_end(stream);
    }));
}

#[test]
fn r_cancel_2_while_the_body_of_an_error_stalls() {
    cancel_a_request_without_an_answer(&bad_at_first(|stream| {
        stream.write_all(b"HTTP/1.1 500 \r\ncontent-length: 100\r\n\r\nfoo").unwrap();
        wait_for_the_end(stream);
    }));
}

#[test]
fn r_cancel_2_while_waiting_for_the_response_head() {
    let mut agent =
        TestAgent::builder().model(json!([[{ "stall_headers_ms": 60_000 }], next_reply()])).start();
    let id = agent.prompt("one");
    agent.model_request(0);
    cancel_the_stream(&mut agent, &id);
}

#[test]
fn r_cancel_2_while_waiting_for_the_first_token() {
    let mut agent = TestAgent::builder().model(json!([[{ "hang": true }], next_reply()])).start();
    let id = agent.prompt("one");
    agent.model_request(0);
    cancel_the_stream(&mut agent, &id);
}

#[test]
fn r_cancel_2_while_thoughts_stream() {
    let thinks = json!([{ "thought": "hm ", "repeat": 100_000, "every_ms": 1 }]);
    let mut agent = TestAgent::builder().model(json!([thinks, next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_thought_chunk");
    cancel_the_stream(&mut agent, &id);
}

#[test]
fn r_cancel_2_while_text_streams() {
    let talks = json!([{ "text": "bla ", "repeat": 100_000, "every_ms": 1 }]);
    let mut agent = TestAgent::builder().model(json!([talks, next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.wait_for_update("agent_message_chunk");
    cancel_the_stream(&mut agent, &id);
    // The model receives exactly the text that the user has seen.
    let shown = agent.text().replace("All is well.", "");
    assert_eq!(agent.model_transcript(1)[1], format!("assistant {}", shown.trim_end()));
}

#[test]
fn r_cancel_2_while_text_floods() {
    let floods = json!([{ "text": "bla ", "repeat": 50_000_000 }]);
    let mut agent = TestAgent::builder().model(json!([floods, next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    expect_cancelled(&mut agent, &id);
}

#[test]
fn r_cancel_2_while_tool_arguments_stream() {
    let arguments = json!({ "path": "a.txt", "content": "x".repeat(500) });
    let writes = json!([{ "call": { "name": "write_file", "arguments": arguments, "pieces": 500,
        "every_ms": 100 } }]);
    let mut agent =
        TestAgent::builder().model(json!([writes, next_reply()])).permission("allow_once").start();
    let id = agent.prompt("one");
    agent.wait_for_update("tool_call");
    cancel_the_stream(&mut agent, &id);
    assert!(!agent.path("a.txt").exists());
    // The model receives nothing of a call that was never complete.
    assert!(!agent.model_request(1)["messages"].to_string().contains("write_file"));
}

#[test]
fn r_cancel_4_while_the_client_does_not_answer_a_permission_request() {
    let mut agent = TestAgent::builder().model(json!([runs("touch ran"), next_reply()])).start();
    let id = agent.prompt("one");
    let question = agent.wait_for_request("session/request_permission");
    agent.cancel();
    let withdrawal = agent.wait_for("the withdrawal", |it| it["method"] == "$/cancel_request");
    assert_eq!(withdrawal["params"]["requestId"], question["id"]);
    // The withdrawal must come before the answer to the prompt.
    assert!(!agent.log.iter().any(|it| it["id"] == id && it.get("result").is_some()));
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
    assert!(!agent.path("ran").exists());
}

#[test]
fn r_cancel_4_the_client_may_answer_the_permission_request_as_cancelled() {
    let mut agent = TestAgent::builder().model(json!([runs("touch ran"), next_reply()])).start();
    let id = agent.prompt("one");
    let question = agent.wait_for_request("session/request_permission");
    agent.cancel();
    agent.respond(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
    assert!(!agent.path("ran").exists());
}

#[test]
fn r_perm_7_the_answer_cancelled_ends_the_turn_before_session_cancel_arrives() {
    for answer in [
        json!({ "outcome": { "outcome": "cancelled" } }),
        json!({ "outcome": { "outcome": "cancelled", "optionId": "allow_once" } }),
    ] {
        let mut agent =
            TestAgent::builder().model(json!([runs("touch ran"), next_reply()])).start();
        let id = agent.prompt("one");
        let question = agent.wait_for_request("session/request_permission");
        agent.respond(&question, &answer);
        expect_cancelled(&mut agent, &id);
        assert_eq!(agent.model().requests().len(), 1, "the model is not asked in vain");
        agent.cancel();
        go_on(&mut agent);
        assert!(!agent.path("ran").exists());
    }
}

#[test]
fn r_cancel_5_an_allow_after_the_end_of_the_turn_executes_nothing() {
    let write = calls("write_file", &json!({ "path": "ran", "content": "new\n" }));
    for call in [runs("touch ran"), write] {
        let mut agent = TestAgent::builder().model(json!([call, next_reply()])).start();
        let id = agent.prompt("one");
        let question = agent.wait_for_request("session/request_permission");
        agent.cancel();
        expect_cancelled(&mut agent, &id);
        agent.choose(&question, "allow_once");
        agent.choose(&question, "allow_always");
        go_on(&mut agent);
        agent.settle(Duration::from_millis(300));
        assert!(!agent.path("ran").exists());
    }
}

#[test]
fn r_cancel_5_an_allow_in_the_same_write_as_the_cancel_executes_nothing() {
    let mut agent = TestAgent::builder().model(json!([runs("touch ran"), next_reply()])).start();
    let id = agent.prompt("one");
    let question = agent.wait_for_request("session/request_permission");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_always" } });
    let cancel = json!({ "sessionId": agent.session });
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel });
    let allow = json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome });
    agent.send_bytes(format!("{cancel}\n{allow}\n").as_bytes());
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
    assert!(!agent.path("ran").exists());
}

#[test]
fn r_cancel_5_no_permission_is_requested_for_the_calls_that_follow() {
    let writes = json!([
        { "call": { "name": "write_file", "arguments": { "path": "a.txt", "content": "a" } } },
        { "call": { "name": "write_file", "arguments": { "path": "b.txt", "content": "b" } } },
        { "call": { "name": "exec", "arguments": { "command": "touch ran" } } },
    ]);
    let mut agent = TestAgent::builder().model(json!([writes, next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_request("session/request_permission");
    cancel_and_go_on(&mut agent, &id);
    let requests = agent.log.iter().filter(|it| it["method"] == "session/request_permission");
    assert_eq!(requests.count(), 1);
    assert_eq!(std::fs::read_dir(agent.workspace()).unwrap().count(), 0);
    let results = agent.model_transcript(1);
    assert_eq!(results.iter().filter(|it| it.starts_with("tool ")).count(), 3, "{results:#?}");
}

#[test]
fn r_cancel_2_while_the_client_does_not_answer_file_reads() {
    let names = ["a.txt", "b.txt", "c.txt"];
    let reads =
        names.map(|name| json!({ "call": { "name": "read_file", "arguments": { "path": name } } }));
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .file("b.txt", "beta\n")
        .file("c.txt", "gamma\n")
        .capabilities(json!({ "fs": { "readTextFile": true, "writeTextFile": true } }))
        .model(json!([reads, next_reply()]))
        .start();
    let id = agent.prompt("one");
    let request_ids = names.map(|_| agent.wait_for_request("fs/read_text_file")["id"].clone());
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    let withdrawn = agent.log.iter().filter(|it| it["method"] == "$/cancel_request");
    let mut withdrawn: Vec<_> = withdrawn.map(|it| it["params"]["requestId"].clone()).collect();
    withdrawn.sort_by_key(Value::to_string);
    assert_eq!(withdrawn, request_ids);
    go_on(&mut agent);
    // No read was served by the disk, as it is when the client does not answer for a while.
    let results = agent.model_transcript(1).join("\n");
    assert!(!["alpha", "beta", "gamma"].iter().any(|it| results.contains(it)), "{results}");
    // The agent ignores an answer that comes after the cancel.
    agent.respond(&json!({ "id": request_ids[0] }), &json!({ "content": "late" }));
    agent.sync();
}

#[test]
fn r_cancel_2_while_the_client_does_not_answer_a_file_write() {
    let writes = calls("write_file", &json!({ "path": "new.txt", "content": "new\n" }));
    let mut agent = TestAgent::builder()
        .capabilities(json!({ "fs": { "readTextFile": false, "writeTextFile": true } }))
        .model(json!([writes, next_reply()]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    let request = agent.wait_for_request("fs/write_text_file");
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    let withdrawal = agent.log.iter().find(|it| it["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawal["params"]["requestId"], request["id"]);
    go_on(&mut agent);
    // The client may have written the file all the same, and the model must be told so.
    let results = agent.model_transcript(1);
    assert!(results[2].contains("Read the file to see whether"), "{results:#?}");
}

#[test]
fn r_cancel_2_while_the_client_does_not_answer_the_read_before_a_write() {
    let writes = calls("write_file", &json!({ "path": "a.txt", "content": "new\n" }));
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .capabilities(json!({ "fs": { "readTextFile": true, "writeTextFile": false } }))
        .model(json!([writes, next_reply()]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    let first = agent.wait_for_request("fs/read_text_file");
    agent.respond(&first, &json!({ "content": "old\n" }));
    agent.wait_for_request("fs/read_text_file");
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
    assert_eq!(agent.read("a.txt"), "old\n");
}

#[test]
fn r_cancel_2_while_many_files_are_read() {
    // When the cancel comes, some of the reads are done, some are running and some have not
    // started.
    let content = "x".repeat(200) + "\n";
    let reads: Vec<_> = (0..100)
        .map(|line| json!({ "path": "big.txt", "start_line": line + 1 }))
        .map(|it| json!({ "call": { "name": "read_file", "arguments": it } }))
        .collect();
    let mut agent = TestAgent::builder()
        .file("big.txt", &content.repeat(20_000))
        .model(json!([reads, next_reply()]))
        .start();
    let id = agent.prompt("one");
    agent.wait_for_status("in_progress");
    cancel_and_go_on(&mut agent, &id);
    let results = agent.model_transcript(1);
    assert_eq!(results.iter().filter(|it| it.starts_with("tool ")).count(), 100);
}

#[test]
fn r_cancel_2_while_waiting_for_a_retry() {
    let busy = json!([{ "status": 429, "headers": { "Retry-After": "60" },
        "body": { "error": { "message": "Slow down." } } }]);
    let mut agent = TestAgent::builder().model(json!([busy, next_reply()])).start();
    let started = Instant::now();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_thought_chunk");
    cancel_and_go_on(&mut agent, &id);
    assert!(started.elapsed() < Duration::from_secs(50), "the cancel has waited for the retry");
    assert_eq!(agent.model().requests().len(), 2);
}
