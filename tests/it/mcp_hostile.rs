//! Malicious and broken MCP servers: an unreadable answer fails the call at once, and floods of requests
//! block neither the turn nor later permission requests.

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, event};
use turnwright_testing::raw_server::write_stream;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A server whose tool `act` answers with these steps.
fn answering(steps: &Value) -> Value {
    json!({ "tools": [{ "name": "act" }], "answers": { "act": steps } })
}

/// An agent whose model calls the tool in each of two turns.
fn agent(scenario: &Value) -> TestAgentBuilder {
    let call = || calls("mcp__foe__act", &json!({}));
    TestAgent::builder()
        .model(json!([call(), says("one"), call(), says("two")]))
        .permission("allow_once")
        .server("foe", scenario)
}

/// The result of the first call, as the model gets it.
fn first_result(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q$N","method":"elicitation/create","params":
    {"message":"Who?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

#[test]
fn an_answer_that_cannot_be_read_fails_the_call_at_once() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let table = [
        (format!(r#","result":{{"content":[],"structuredContent":{deep}}}"#), "nests too deeply"),
        (r#","result":{"content":[{"type":"text","text":"\x"}]}"#.to_owned(), "not valid JSON"),
        (r#","error":"out of paper""#.to_owned(), "out of paper"),
        (r#","error":{"code":"E7","message":"out of ink"}"#.to_owned(), "out of ink"),
        (String::new(), "neither a result nor an error"),
        (
            r#","result":{"content":[{"type":"text","text":"fine"}]},"error":null"#.to_owned(),
            "fine",
        ),
    ];
    for (answer, words) in table {
        let line = format!(r#"{{"jsonrpc":"2.0","id":$ID{answer}}}"#);
        let mut agent = agent(&answering(&json!([{ "say": line }, { "never": true }]))).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(first_result(&agent).contains(words), "{words}: {}", first_result(&agent));
    }
}

#[test]
fn an_event_that_cannot_be_read_fails_the_call_with_its_error() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_call = request.method() == "tools/call";
        if is_call {
            let broken = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": "no paper" });
            write_stream(stream, &event(&broken));
        }
        is_call
    });
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__foe__echo", &json!({})), says("done")]))
        .permission("allow_once")
        .server_as(stub.server("foe", &[]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(first_result(&agent).contains("no paper"), "{}", first_result(&agent));
}

#[test]
fn elicitations_of_a_finished_call_do_not_delay_the_next_permission_request() {
    let question = QUESTION.replace('\n', "");
    let steps = json!([{ "say": question, "repeat": 10 }, { "text": "over" }]);
    let mut agent = agent(&answering(&steps)).capabilities(forms()).start();
    // The client answers none of the elicitations.
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(agent.text(), "onetwo");
    let elicitations = agent.log.iter().filter(|it| it["method"] == "elicitation/create");
    assert!(elicitations.count() <= 2, "an elicitation was forwarded after its call had finished");
}

#[test]
fn a_call_may_send_at_most_twenty_elicitations() {
    let question = QUESTION.replace('\n', "");
    let ask = json!({ "ask": { "method": "elicitation/create",
        "params": serde_json::from_str::<Value>(&question).unwrap()["params"] } });
    let mut agent = agent(&answering(&vec![ask; 22].into())).capabilities(forms()).start();
    let turn = agent.prompt("go");
    for _ in 0..20 {
        let question = agent.wait_for_request("elicitation/create");
        agent.respond(&question, &json!({ "action": "cancel" }));
    }
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    let result = first_result(&agent);
    let counts = ["cancel", "decline"].map(|it| result.matches(&format!(r#""{it}""#)).count());
    assert_eq!(counts, [20, 2], "{result}");
}

#[test]
fn a_flood_of_requests_does_not_keep_a_turn_from_being_cancelled() {
    let ping = r#"{"jsonrpc":"2.0","id":$N,"method":"ping"}"#;
    let steps = json!([{ "say": ping, "repeat": 10_000_000 }]);
    let mut agent = agent(&answering(&steps)).start();
    let turn = agent.prompt("go");
    agent.wait_for_status("in_progress");
    agent.cancel();
    assert_eq!(agent.stop_reason(&turn), "cancelled");
}
