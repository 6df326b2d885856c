//! Calls of which a server makes a task (an extension of the protocol revision 2026-07-28): how a task is followed to
//! its end, cancelled, and found again after its server was restarted.

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, McpRequest, answer, answer_json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, says};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A server that makes a task of each call and tells these states of it.
fn with_states(states: &Value) -> Value {
    let task = json!({ "taskId": "t-1", "status": "working", "statusMessage": "begun",
        "ttlMs": null, "pollIntervalMs": 250 });
    json!({ "modern": true, "tools": [{ "name": "t" }], "answers": { "t": [{ "task": task }] },
        "states": states, "log": "heard" })
}

/// An agent whose model calls the tool once.
fn calling(scenario: &Value) -> TestAgentBuilder {
    TestAgent::builder()
        .model(json!([calls("mcp__s__t", &json!({})), says("done")]))
        .permission("allow_once")
        .server("s", scenario)
}

/// The result of that call, as the model gets it.
fn call_result(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

/// The requests of this method that the server has heard.
fn heard(agent: &TestAgent, method: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(agent.path("heard")).unwrap_or_default();
    let messages = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter(|message| message["method"] == method).collect()
}

fn completed() -> Value {
    let content = json!([{ "type": "text", "text": "made it" }]);
    json!({ "status": "completed", "result": { "content": content } })
}

#[test]
fn m_50_a_call_that_became_a_task_has_the_result_of_its_end() {
    let working = json!({ "status": "working", "statusMessage": "*half way*" });
    let mut agent = calling(&with_states(&json!([working, working, completed()]))).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains("made it"), "{}", call_result(&agent));
    let updates = format!("{:?}", agent.updates());
    assert!(updates.contains("s: begun"), "{updates}");
    assert!(updates.contains(r"s: \\*half way\\*"), "{updates}");
    assert_eq!(heard(&agent, "tasks/get").len(), 3);
    assert!(heard(&agent, "tasks/cancel").is_empty());
    let table = [("tools/list", false), ("tools/call", true), ("tasks/get", true)];
    for (method, is_declared) in table {
        let capabilities = &heard(&agent, method)[0]["params"]["_meta"][CAPABILITIES];
        assert_eq!(capabilities["extensions"][EXTENSION].is_object(), is_declared, "{method}");
    }
}

#[test]
fn m_50_a_task_of_a_server_without_the_extension_is_no_result_and_nothing_is_declared_to_it() {
    for is_modern in [true, false] {
        let mut scenario = with_states(&json!(null));
        scenario["modern"] = is_modern.into();
        let mut agent = calling(&scenario).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = call_result(&agent);
        assert!(result.contains("a task that cannot be used"), "{result}");
        assert!(!agent.read("heard").contains(EXTENSION), "{is_modern}");
        assert!(heard(&agent, "tasks/get").is_empty());
    }
}

#[test]
fn m_52_a_task_that_requires_input_asks_the_user_once() {
    let question = json!({ "method": "elicitation/create", "params": { "mode": "form",
        "message": "Who?", "requestedSchema": { "type": "object",
            "properties": { "name": { "type": "string" } }, "required": ["name"] } } });
    let required = json!({ "status": "input_required", "inputRequests": { "who": question } });
    let mut agent = calling(&with_states(&json!([required, required, completed()])))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    assert_eq!(question["params"]["message"], "The MCP server s asks: Who?");
    agent.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    assert!(call_result(&agent).contains("made it"), "{}", call_result(&agent));
    let updates = heard(&agent, "tasks/update");
    let params = &updates[0]["params"];
    assert_eq!((updates.len(), &params["taskId"]), (1, &json!("t-1")));
    let answer = json!({ "who": { "action": "accept", "content": { "name": "Ada" } } });
    assert_eq!(params["inputResponses"], answer);
}

#[test]
fn m_51_a_cancelled_turn_and_a_closed_session_cancel_the_task() {
    for is_closed in [false, true] {
        let mut agent = calling(&with_states(&json!([{ "status": "working" }]))).start();
        let turn = agent.prompt("go");
        agent.wait_for_status("in_progress");
        eventually("the task is looked at", || !heard(&agent, "tasks/get").is_empty());
        if is_closed {
            let session = agent.session.clone();
            agent.call("session/close", &json!({ "sessionId": session }));
        } else {
            agent.cancel();
        }
        assert_eq!(agent.stop_reason(&turn), "cancelled");
        eventually("the task is cancelled", || heard(&agent, "tasks/cancel").len() == 1);
        assert_eq!(heard(&agent, "tasks/cancel")[0]["params"]["taskId"], "t-1");
    }
}

#[test]
fn a_task_is_looked_for_again_after_its_server_was_restarted() {
    let unknown = json!({ "error": { "code": -32602, "message": "Task not found" } });
    let table =
        [(completed(), "made it"), (unknown, "no longer reports on the call's task: error")];
    for (later, expected) in table {
        let mut scenario = with_states(&json!([{ "status": "working" }, { "die": 3 }]));
        scenario["died"] = "died".into();
        scenario["later_states"] = json!([later]);
        let mut agent = calling(&scenario).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(call_result(&agent).contains(expected), "{expected}: {}", call_result(&agent));
        assert_eq!(heard(&agent, "tools/call").len(), 1);
    }
}

#[test]
fn a_task_of_a_server_that_stays_down_fails_its_call() {
    let mut scenario = with_states(&json!([{ "die": 3 }]));
    scenario["died"] = "died".into();
    scenario["later_states"] = json!([{ "die": 3 }]);
    let mut agent = calling(&scenario).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = call_result(&agent);
    assert!(result.contains("The connection to the server s was lost during the call"), "{result}");
}

#[test]
fn m_55_a_task_in_place_of_another_result_is_an_invalid_response() {
    let task = json!({ "resultType": "task", "taskId": "t-1", "status": "working" });
    let scenario = json!({ "modern": true, "states": [completed()], "log": "heard",
        "resources": [{ "uri": "notes://1", "name": "first" }], "got": { "notes://1": task } });
    let call = calls("mcp__s__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server("s", &scenario)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains("the result is malformed"), "{}", call_result(&agent));
    assert!(heard(&agent, "tasks/get").is_empty());
}

#[test]
fn m_55_a_task_in_place_of_the_result_of_a_task_is_an_invalid_response() {
    let task = json!({ "resultType": "task", "taskId": "t-2", "status": "working" });
    let state = json!({ "status": "completed", "result": task });
    let mut agent = calling(&with_states(&json!([state]))).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = call_result(&agent);
    assert!(result.contains("the call's task has ended without its result"), "{result}");
}

/// Answers as a server over HTTP that makes a task of each call. Returns false for what it leaves to the test.
fn answer_with_task(request: &McpRequest, stream: &mut std::net::TcpStream) -> bool {
    let result = match request.method() {
        "initialize" => {
            let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": {
                "code": -32022, "message": "no such version",
                "data": { "supported": ["2026-07-28"] } } });
            let head = "content-type: application/json\r\n";
            answer(stream, "400 Bad Request", head, &body.to_string());
            return true;
        }
        "server/discover" => json!({ "resultType": "complete", "ttlMs": 0,
            "supportedVersions": ["2026-07-28"], "cacheScope": "private",
            "capabilities": { "tools": {}, "extensions": { EXTENSION: {} } } }),
        "tools/call" => json!({ "resultType": "task", "taskId": "t-1", "status": "working",
            "ttlMs": null, "pollIntervalMs": 250 }),
        _ => return false,
    };
    answer_json(stream, "", &request.result(&result));
    true
}

#[test]
fn m_53_over_http_requests_name_the_task_in_a_header_and_are_sent_again_after_trouble() {
    let polls = std::sync::atomic::AtomicUsize::new(0);
    let stub = McpHttpStub::start(move |request, stream| {
        if request.method() == "tasks/get" {
            match polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                // The connection is closed without an answer.
                0 => {}
                1 => answer(stream, "429 Too Many Requests", "", ""),
                // The stream has no answer.
                2 => answer(stream, "200 OK", "content-type: text/event-stream\r\n", ""),
                _ => {
                    let mut state = completed();
                    state["taskId"] = "t-1".into();
                    answer_json(stream, "", &request.result(&state));
                }
            }
            return true;
        }
        answer_with_task(request, stream)
    });
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__s__echo", &json!({})), says("done")]))
        .permission("allow_once")
        .server_as(stub.server("s", &[]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains("made it"), "{}", call_result(&agent));
    let requests = stub.requests();
    let polls: Vec<_> = requests.iter().filter(|sent| sent.method() == "tasks/get").collect();
    assert_eq!(polls.len(), 4);
    assert!(polls.iter().all(|poll| poll.header("mcp-name") == Some("t-1")), "{polls:?}");
}

#[test]
fn m_51_over_http_a_closed_session_cancels_the_task() {
    let stub = McpHttpStub::start(|request, stream| {
        if request.method() == "tasks/get" {
            let state = json!({ "taskId": "t-1", "status": "working", "pollIntervalMs": 250 });
            answer_json(stream, "", &request.result(&state));
            return true;
        }
        answer_with_task(request, stream)
    });
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__s__echo", &json!({})), says("done")]))
        .permission("allow_once")
        .server_as(stub.server("s", &[]))
        .start();
    let turn = agent.prompt("go");
    agent.wait_for_status("in_progress");
    stub.wait_for("a look at the task", |sent| sent.method() == "tasks/get");
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    assert_eq!(agent.stop_reason(&turn), "cancelled");
    stub.wait_for("the cancellation of the task", |sent| {
        sent.method() == "tasks/cancel" && sent.header("mcp-name") == Some("t-1")
    });
}
