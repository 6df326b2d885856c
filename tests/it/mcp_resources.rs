//! Resources of MCP servers: the agent adds a tool to those of the server, which lists and reads them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, answer, answer_json};

use crate::agent::{TestAgent, calls, eventually, says};

fn scenario() -> Value {
    json!({
        "tools": [{ "name": "echo" }],
        "resources": [
            { "uri": "notes://1", "name": "first", "description": "The first\u{202e} note" },
            { "uri": "notes://2", "name": "picture", "mimeType": "image/png" },
        ],
        "got": {
            "notes://1": { "contents": [{ "uri": "notes://1", "text": "Buy \u{1b}[31mmilk" }] },
            "notes://2": { "contents": [{ "uri": "notes://2", "blob": "AAAA", "mimeType": "application/zip" }] },
        },
    })
}

/// Calls the tool and returns the result that the model gets.
fn read_resource(arguments: &Value, scenario: &Value) -> String {
    let call = calls("mcp__notes__read_resource", arguments);
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server("notes", scenario)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    agent.model_transcript(1).pop().unwrap()
}

#[test]
fn m_21_resources_are_listed_and_read() {
    let table = [
        (json!({}), "notes://1 – first (The first\\u{202e} note)"),
        (json!({ "uri": "notes://1" }), "[resource notes://1]\nBuy ␛[31mmilk"),
        (
            json!({ "uri": "notes://2" }),
            "[resource notes://2: application/zip, 3 bytes, not shown]",
        ),
        (json!({ "uri": "notes://3" }), "there is no notes://3"),
    ];
    for (arguments, expected) in table {
        let result = read_resource(&arguments, &scenario());
        assert!(result.replace("\\n", "\n").contains(expected), "{arguments}: {result}");
    }
}

#[test]
fn m_21_one_invalid_resource_hides_no_other() {
    let mut scenario = scenario();
    for wrong in [json!(null), json!("notes://3"), json!({ "uri": 7, "name": "x" })] {
        scenario["resources"].as_array_mut().unwrap().insert(0, wrong);
    }
    let result = read_resource(&json!({}), &scenario);
    assert!(result.contains("notes://1 – first") && result.contains("notes://2"), "{result}");
}

#[test]
fn the_permission_request_does_not_show_the_agents_words_as_the_servers_description() {
    let call = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .server("notes", &scenario())
        .start();
    agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission").to_string();
    assert!(question.contains("reads a resource of the server"), "{question}");
    assert!(!question.contains("the server's description"), "{question}");
}

#[test]
fn m_23_what_the_server_calls_fresh_is_not_asked_for_again_until_one_of_its_tools_has_run() {
    let table = [(Some(60_000), 1, 2), (None, 2, 3), (Some(-1), 2, 3)];
    for (ttl, before, after) in table {
        let mut scenario = scenario();
        scenario["log"] = "heard".into();
        scenario["got"]["notes://1"]["ttlMs"] = json!(ttl);
        let read = || calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
        let echo = calls("mcp__notes__echo", &json!({}));
        let replies = json!([read(), read(), says("one"), echo, read(), says("two")]);
        let mut agent = TestAgent::builder()
            .model(replies)
            .permission("allow_once")
            .server("notes", &scenario)
            .start();
        for count in [before, after] {
            assert_eq!(agent.turn("go"), "end_turn");
            let last = agent.model_transcript(agent.model().requests().len() - 1).concat();
            assert!(last.contains("milk"), "{last}");
            let heard = agent.read("heard").matches(r#""method":"resources/read""#).count();
            assert_eq!(heard, count, "{ttl:?}");
        }
    }
}

#[test]
fn m_26_the_model_is_told_once_with_the_next_request_that_a_resource_has_changed() {
    let line = "The resource notes://1 of the MCP server notes has changed since you read it.";
    let table = [
        // The revision, whether the server tells of changes, what has changed, how often the model is told.
        (false, true, "notes://1", 1),
        (true, true, "notes://1", 1),
        (false, true, "notes://1/part", 1),
        (false, true, "notes://12", 0),
        (false, true, "notes://2", 0),
        (false, false, "notes://1", 0),
    ];
    for (modern, subscribes, changed, times) in table {
        let mut scenario = scenario();
        scenario["modern"] = modern.into();
        scenario["subscribes"] = subscribes.into();
        scenario["log"] = "heard".into();
        let steps = json!([{ "updated": changed }, { "updated": changed }, { "text": "changed" }]);
        scenario["answers"] = json!({ "echo": steps });
        let read = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
        let change = calls("mcp__notes__echo", &json!({}));
        let mut agent = TestAgent::builder()
            .model(json!([read, says("one"), change, says("two"), says("three")]))
            .permission("allow_once")
            .server("notes", &scenario)
            .start();
        for words in ["read", "change", "more"] {
            assert_eq!(agent.turn(words), "end_turn");
        }
        let told =
            |number| agent.model_request(number)["messages"].to_string().matches(line).count();
        let all = [told(1), told(2), told(3), told(4)];
        assert_eq!(all, [0, 0, times, times], "{modern}, {subscribes}, {changed}");
        let heard = agent.read("heard");
        let asked = |method: &str| heard.contains(&format!("\"method\":\"{method}\""));
        assert_eq!(asked("resources/subscribe"), subscribes && !modern);
        if modern {
            let wanted = r#""notifications":{"resourceSubscriptions":["notes://1"]}"#;
            assert!(heard.contains(wanted), "{heard}");
        } else if times == 1 {
            let ended = "\"method\":\"resources/unsubscribe\"";
            eventually("the end of the subscription", || agent.read("heard").contains(ended));
        }
    }
}

#[test]
fn m_26_a_server_that_was_restarted_is_asked_for_changes_again() {
    let table = [
        (false, r#""method":"resources/subscribe""#),
        (true, r#""notifications":{"resourceSubscriptions":["notes://1"]}"#),
    ];
    for (modern, subscription) in table {
        let mut scenario = scenario();
        scenario["modern"] = modern.into();
        scenario["subscribes"] = true.into();
        scenario["log"] = "heard".into();
        scenario["answers"] = json!({ "echo": [{ "die": 3 }] });
        let read = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
        let echo = calls("mcp__notes__echo", &json!({}));
        let mut agent = TestAgent::builder()
            .model(json!([read, says("one"), echo, says("two")]))
            .permission("allow_once")
            .server("notes", &scenario)
            .start();
        let count = |agent: &TestAgent| agent.read("heard").matches(subscription).count();
        assert_eq!(agent.turn("read"), "end_turn");
        eventually("the subscription", || count(&agent) == 1);
        assert_eq!(agent.turn("end the server"), "end_turn");
        eventually("the next subscription", || count(&agent) == 2);
    }
}

#[test]
fn m_26_a_server_over_http_that_has_forgotten_the_session_is_asked_for_changes_again() {
    let forgot = AtomicBool::new(false);
    let stub = McpHttpStub::start(move |request, stream| {
        let result = match request.method() {
            "initialize" => json!({ "protocolVersion": request.body["params"]["protocolVersion"],
                "capabilities": { "tools": {}, "resources": { "subscribe": true } },
                "serverInfo": { "name": "stub", "version": "1" } }),
            "resources/read" => json!({ "contents": [{ "uri": "notes://1", "text": "milk" }] }),
            "resources/subscribe" => json!({}),
            "tools/call" if !forgot.swap(true, Ordering::Relaxed) => {
                answer(stream, "404 Not Found", "", "");
                return true;
            }
            _ => return false,
        };
        answer_json(stream, "mcp-session-id: session-1\r\n", &request.result(&result));
        true
    });
    let read = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
    let echo = calls("mcp__notes__echo", &json!({}));
    let mut agent = TestAgent::builder()
        .model(json!([read, says("one"), echo, says("two")]))
        .permission("allow_once")
        .server_as(stub.server("notes", &[]))
        .start();
    assert_eq!(agent.turn("read"), "end_turn");
    stub.wait_for("the subscription", |sent| sent.method() == "resources/subscribe");
    assert_eq!(agent.turn("call"), "end_turn");
    let sent = |method: &str| {
        let requests = stub.requests().into_iter().enumerate();
        let matching = requests.filter(|(_, request)| request.method() == method);
        matching.map(|(number, _)| number).collect::<Vec<_>>()
    };
    eventually("the next subscription", || sent("resources/subscribe").len() == 2);
    assert!(sent("notifications/initialized")[1] < sent("resources/subscribe")[1]);
}

#[test]
fn a_server_without_resources_has_no_such_tool() {
    let result = read_resource(&json!({}), &json!({ "tools": [{ "name": "echo" }] }));
    assert!(result.contains("No tool"), "{result}");
}

#[test]
fn in_plan_mode_a_rule_can_allow_reading_a_resource() {
    let call = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .own_file("config/config.toml", "[permissions]\nallow = [\"mcp(notes/read_resource)\"]\n")
        .server("notes", &scenario())
        .start();
    let session = agent.session.clone();
    let mode = json!({ "sessionId": session, "modeId": "plan" });
    agent.call("session/set_mode", &mode);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.log.iter().all(|it| it["method"] != "session/request_permission"));
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains("milk"), "{result}");
}

#[test]
fn m_21_a_resource_that_a_prompt_mentions_can_be_read() {
    let call = calls("mcp__notes__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server("notes", &scenario())
        .start();
    let link = json!({ "type": "resource_link", "name": "first", "uri": "notes://1" });
    let params = json!({ "sessionId": agent.session, "prompt": [link] });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert!(agent.model_transcript(0).concat().contains("[first](notes://1)"));
    assert!(agent.model_transcript(1).concat().contains("milk"));
}
