//! The headers for an MCP server on HTTP appear in no log. `tests/stories/mcp_http.rs` tests the rest of
//! the connection.

use std::sync::Mutex;

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, answer_json};

use crate::agent::{TestAgent, calls, says};

const KEY: &str = "sk-canary-7-of-a-server";

/// The result of the first call, as the model gets it.
fn first_result(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

#[test]
fn r_mcp_8_the_value_of_a_header_is_in_no_log_and_no_answer() {
    static HEADERS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let stub = McpHttpStub::start(|request, stream| {
        let key = request.header("x-key").unwrap_or_default().to_owned();
        HEADERS.lock().unwrap().push(key.clone());
        let is_call = request.method() == "tools/call";
        if is_call {
            // The server's error repeats the header that it got.
            let body = json!({ "jsonrpc": "2.0", "id": request.body["id"],
                "error": { "code": -32603, "message": format!("{key} is not good enough") } });
            answer_json(stream, "", &body);
        }
        is_call
    });
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .variable("TURNWRIGHT_LOG", "trace")
        .noisy()
        .server_as(stub.server("far", &[("X-Key", KEY), ("X-Team", "the-blue-team")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(first_result(&agent).contains("is not good enough"), "{}", first_result(&agent));
    let log: Vec<_> = agent.log.iter().map(Value::to_string).collect();
    let (_, stderr) = agent.close();
    assert!(stderr.contains("turnwright_mcp"), "the log is empty");
    for text in log.iter().chain([&stderr]) {
        assert!(!text.contains(KEY), "{text}");
        assert!(!text.contains("the-blue-team"), "{text}");
    }
    assert!(HEADERS.lock().unwrap().iter().all(|it| it == KEY));
}
