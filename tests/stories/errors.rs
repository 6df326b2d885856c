//! JSON-RPC and errors (R-ERR): every request gets exactly one answer, other messages get none, and
//! an error has the right code and a readable message.

use serde_json::{Value, json};
use turnwright_testing::schema::walk;
use turnwright_testing::session_requests::{code, opening_params, session_params};

use crate::agent::{TestAgent, prompt, says};

/// The error codes of JSON-RPC and ACP. The agent must use no other codes.
const KNOWN: [i64; 8] = [-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002];

#[test]
fn r_err_1_every_request_gets_exactly_one_answer() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).start();
    let session = agent.session.clone();
    let folder = agent.workspace().to_path_buf();
    let requests = [
        ("initialize", json!({ "protocolVersion": 1 })),
        ("initialize", json!({})),
        ("authenticate", json!({ "methodId": "configured" })),
        ("authenticate", json!({ "methodId": "nothing" })),
        ("session/new", json!({ "cwd": folder, "mcpServers": [] })),
        ("session/new", json!({ "cwd": "src", "mcpServers": [] })),
        ("session/new", json!([])),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "plan" })),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "no" })),
        ("session/prompt", prompt(&session, "hi")),
        ("session/prompt", prompt(&session, "/status")),
        ("session/prompt", prompt("nobody", "hi")),
        ("session/prompt", json!({ "sessionId": session, "prompt": [] })),
        ("session/cancel", json!({ "sessionId": session })),
        ("foo/bar", json!({})),
        ("_foo/bar", json!({})),
    ];
    let ids: Vec<_> = requests.iter().map(|it| agent.request(it.0, &it.1)).collect();
    for id in &ids {
        agent.answer_to(id);
    }
    agent.sync();
    for (id, (method, params)) in ids.iter().zip(&requests) {
        let is_answer = |it: &&Value| it.get("method").is_none() && it["id"] == *id;
        let count = agent.log.iter().filter(is_answer).count();
        assert_eq!(count, 1, "{method} {params}");
        let answer = agent.answer_to(id);
        assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{answer}");
    }
}

#[test]
fn r_err_2_a_notification_is_never_answered() {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    // After this update, the agent sends nothing on its own initiative.
    agent.wait_for_update("available_commands_update");
    let before = agent.log.len();
    let session = agent.session.clone();
    agent.notify("session/cancel", &json!({ "sessionId": "nobody" }));
    agent.notify("session/cancel", &json!({ "sessionId": 5 }));
    agent.notify("session/cancel", &json!({}));
    agent.notify("session/cancel", &json!([]));
    agent.notify("session/cancel", &json!({ "sessionId": session }));
    agent.notify("$/cancel_request", &json!({ "requestId": 12345 }));
    agent.notify("$/cancel_request", &json!({ "requestId": { "a": 1 } }));
    agent.notify("$/cancel_request", &json!({}));
    agent.notify("$/anything", &json!({}));
    agent.notify("_x/y", &json!({ "a": 1 }));
    agent.notify("no/such", &json!({}));
    // A message with the method of a request but without an id is a notification too, and has no
    // effect.
    agent.notify("session/new", &json!({ "cwd": "/", "mcpServers": [] }));
    agent.notify("session/prompt", &prompt(&session, "hi"));
    agent.sync();
    assert_eq!(agent.log.len(), before + 1, "{:?}", &agent.log[before..]);
    assert_eq!(agent.turn("really"), "end_turn");
    assert_eq!(agent.model_transcript(0), ["user really"]);
}

#[test]
fn r_err_3_an_unknown_method_is_not_found() {
    let mut agent = TestAgent::builder().start();
    let session = json!({ "sessionId": agent.session });
    for method in ["foo/bar", "_foo/bar", "", "Initialize", "session/update"] {
        assert_eq!(code(&agent.call(method, &session)), -32601, "{method}");
    }
    // The client serves these methods, not the agent.
    for method in ["fs/read_text_file", "terminal/create", "session/request_permission"] {
        assert_eq!(code(&agent.call(method, &session)), -32601, "{method}");
    }
}

#[test]
fn r_err_4_bad_parameters_are_invalid_params() {
    let mut agent = TestAgent::builder().start();
    let session = agent.session.clone();
    let folder = agent.workspace().to_path_buf();
    let text = json!([{ "type": "text", "text": "hi" }]);
    let table = [
        ("authenticate", json!({})),
        ("authenticate", json!({ "methodId": 5 })),
        ("authenticate", json!({ "methodId": null })),
        ("session/new", json!({})),
        ("session/new", json!({ "mcpServers": [] })),
        ("session/new", json!({ "cwd": 5, "mcpServers": [] })),
        ("session/new", json!({ "cwd": null, "mcpServers": [] })),
        ("session/new", json!({ "cwd": folder, "mcpServers": "none" })),
        ("session/prompt", json!({})),
        ("session/prompt", json!({ "sessionId": session })),
        ("session/prompt", json!({ "sessionId": 5, "prompt": text })),
        ("session/prompt", json!({ "prompt": text })),
        ("session/set_mode", json!({})),
        ("session/set_mode", json!({ "sessionId": session })),
        ("session/set_mode", json!({ "sessionId": session, "modeId": 5 })),
        ("session/set_mode", json!({ "modeId": "ask" })),
    ];
    for (method, params) in table {
        let answer = agent.call(method, &params);
        assert_eq!(code(&answer), -32602, "{method} {params}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(method), "the message does not name the method: {message}");
    }
    agent.send_line(r#"{"jsonrpc":"2.0","id":"absent","method":"session/new"}"#);
    assert_eq!(code(&agent.answer_to(&json!("absent"))), -32602);
    agent.send_line(r#"{"jsonrpc":"2.0","id":"null","method":"session/new","params":null}"#);
    assert_eq!(code(&agent.answer_to(&json!("null"))), -32602);
}

#[test]
fn r_err_4_invalid_parameters_are_explained_in_words_of_their_fields() {
    let mut agent = TestAgent::builder().start();
    let folder = agent.workspace().to_path_buf();
    let session = agent.session.clone();
    let text = json!({ "type": "text", "text": "hi" });
    let server = json!({ "name": "x", "command": "/bin/true", "args": [null], "env": [] });
    let good = json!({ "name": "x", "command": "/bin/true", "args": [], "env": [] });
    let table = [
        ("session/new", json!([]), "the value must be an object, not a list"),
        ("session/new", json!({ "mcpServers": [] }), "`cwd` is missing"),
        ("session/new", json!({ "cwd": 5, "mcpServers": [] }), "`cwd` must be text, not 5"),
        (
            "session/new",
            json!({ "cwd": folder, "mcpServers": "sk-secret" }),
            "`mcpServers` must be a list, not text",
        ),
        (
            "session/new",
            json!({ "cwd": folder, "mcpServers": [server] }),
            "`mcpServers[0].args[0]` must be text, not null",
        ),
        (
            "session/new",
            json!({ "cwd": folder, "mcpServers": vec![&good; 257] }),
            "`mcpServers` has 257 servers; at most 256 are possible",
        ),
        ("session/load", json!({ "sessionId": session }), "`cwd` is missing"),
        ("initialize", json!({ "protocolVersion": {} }), "`protocolVersion` must be"),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [text, { "type": "text", "text": true }] }),
            "`prompt[1]` must be text, not true",
        ),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [{ "type": "song" }] }),
            "`prompt[0].type` cannot be `song`; known: text, image",
        ),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [{ "text": "hi" }] }),
            "`prompt[0].type` is missing",
        ),
    ];
    for (method, params, expected) in table {
        let answer = agent.call(method, &params);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{method} {params}: {message}");
        assert!(!message.contains(" column ") && !message.contains("sk-"), "{message}");
        assert_eq!(answer["error"]["data"].get("details"), None, "nothing is said twice");
    }
}

#[test]
fn r_err_5_a_session_that_does_not_exist_is_not_found() {
    let mut agent = TestAgent::builder().start();
    for session in ["nobody", "", "sess-00000000-0000-0000-0000-000000000000"] {
        let answers = [
            agent.call("session/prompt", &prompt(session, "hi")),
            agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" })),
        ];
        for answer in answers {
            assert_eq!(code(&answer), -32002, "{answer}");
            assert_eq!(answer["error"]["data"]["sessionId"], session, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("Session not found"), "{message}");
            assert!(
                answer["error"]["data"]["details"].as_str().unwrap().contains(session),
                "{answer}"
            );
        }
    }
}

#[test]
fn r_err_8_an_error_message_is_one_short_line_even_for_a_long_input() {
    let mut agent = TestAgent::builder().start();
    let session = agent.session.clone();
    let long = "word\nand\r\nanother ".repeat(2_000);
    let answers = [
        agent.call(&long, &json!({})),
        agent.call("authenticate", &json!({ "methodId": long })),
        agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": long })),
        agent.call("session/prompt", &prompt(&long, "hi")),
        agent.call("session/new", &json!({ "cwd": long, "mcpServers": [] })),
        agent.call("session/new", &json!({ "cwd": format!("/{long}"), "mcpServers": [] })),
        agent.call("session/new", &json!({ "cwd": "/", "mcpServers": long })),
    ];
    for answer in answers {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty());
        assert!(!message.contains(['\n', '\r']), "more than one line: {message}");
        assert!(message.len() < 600, "{} bytes: {message}", message.len());
    }
}

/// Sends these requests, whose errors must be short.
fn assert_short_errors(agent: &mut TestAgent, requests: &[(&str, Value)]) {
    for (method, params) in requests {
        let answer = agent.call(method, params);
        assert!(KNOWN.contains(&code(&answer)), "{method}");
        let message = answer["error"]["message"].as_str().unwrap();
        let whole = answer.to_string().len();
        assert!(message.len() < 600 && whole < 4096, "{method}: {whole} bytes");
    }
}

#[test]
fn r_err_8_an_error_repeats_only_the_beginning_of_a_long_text() {
    let mut agent = TestAgent::builder().start();
    let session = agent.session.clone();
    let folder = agent.workspace().to_path_buf();
    let long = "x".repeat(1_000_000);
    let long_path = format!("/{long}");
    let value = json!({ "configId": long, "value": "plan" });
    let requests = [
        ("authenticate", json!({ "methodId": long })),
        ("session/new", json!({ "cwd": long })),
        ("session/new", json!({ "cwd": long_path })),
        ("session/new", json!({ "cwd": folder, "additionalDirectories": [long] })),
        ("session/new", json!({ "cwd": folder, "additionalDirectories": [long_path] })),
        ("session/new", json!({ "cwd": folder, "configOptions": [value, value] })),
        ("session/load", opening_params(&agent, &long)),
        ("session/resume", opening_params(&agent, &long)),
        ("session/fork", opening_params(&agent, &long)),
        ("session/fork", json!({ "sessionId": session, "cwd": folder, "cursorId": long })),
        ("session/options", json!({ "cwd": long })),
        ("session/options", json!({ "cwd": folder, "sessionId": long })),
        ("session/status", session_params(&long)),
        ("session/archive", session_params(&long)),
        ("session/unarchive", session_params(&long)),
        ("session/prompt", prompt(&long, "hi")),
        ("session/set_mode", json!({ "sessionId": long, "modeId": "plan" })),
        ("session/set_mode", json!({ "sessionId": session, "modeId": long })),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": long, "value": "plan" }),
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "mode", "value": long }),
        ),
        ("_session/steering", prompt(&long, "hi")),
        ("_turnwright/history", session_params(&long)),
        (long.as_str(), json!({})),
    ];
    assert_short_errors(&mut agent, &requests);
}

#[test]
fn v2_r_err_8_an_error_repeats_only_the_beginning_of_a_long_text() {
    let mut agent = TestAgent::builder().v2().start();
    let session = agent.session.clone();
    let folder = agent.workspace().to_path_buf();
    let long = "x".repeat(1_000_000);
    let value = json!({ "configId": long, "type": "id", "value": "plan" });
    let skill = json!({ "type": "skill", "name": long });
    let requests = [
        ("auth/login", json!({ "methodId": long })),
        ("session/new", json!({ "cwd": folder, "configOptions": [value, value] })),
        ("session/resume", opening_params(&agent, &long)),
        ("session/prompt", json!({ "sessionId": session, "prompt": [skill] })),
        ("tool_call/cancel", json!({ "sessionId": long, "toolCallId": "c" })),
        ("tool_call/cancel", json!({ "sessionId": session, "toolCallId": long })),
        ("terminal/cancel", json!({ "sessionId": session, "terminalId": long })),
    ];
    assert_short_errors(&mut agent, &requests);
}

#[test]
fn r_err_9_only_codes_of_json_rpc_and_acp_are_used() {
    let refuses = json!([{ "status": 400, "body": { "error": { "message": "no" } } }]);
    let denies = json!([{ "status": 401, "body": { "error": { "message": "bad key" } } }]);
    let mut agent = TestAgent::builder().model(json!([refuses, denies])).start();
    let session = agent.session.clone();
    let id = agent.prompt("hi");
    assert_eq!(code(&agent.answer_to(&id)), -32603);
    let id = agent.prompt("hi");
    assert_eq!(code(&agent.answer_to(&id)), -32000);
    agent.call("foo/bar", &json!({}));
    agent.call("session/new", &json!({}));
    agent.call("session/prompt", &prompt("nobody", "hi"));
    agent.call("session/prompt", &json!({ "sessionId": session, "prompt": [] }));
    agent.send_line("{oops");
    agent.send_line("[]");
    agent.sync();
    let errors: Vec<_> = agent.log.iter().filter_map(|it| it["error"]["code"].as_i64()).collect();
    assert!(errors.len() >= 9, "{errors:?}");
    assert!(errors.iter().all(|it| KNOWN.contains(it)), "{errors:?}");
}

#[test]
fn r_err_10_malformed_optional_values_and_unknown_keys_are_ignored() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).spawn();
    let params = json!({
        "protocolVersion": 1, "clientCapabilities": "x", "clientInfo": 5, "_meta": 7, "new": {}
    });
    let answer = agent.call("initialize", &params);
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    let params =
        json!({ "cwd": agent.workspace(), "mcpServers": [], "_meta": "x", "color": "blue" });
    let answer = agent.call("session/new", &params);
    let session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
    let mut params = prompt(&session, "hi");
    params["_meta"] = json!([1]);
    params["mood"] = json!("good");
    params["prompt"][0]["annotations"] = json!({ "audience": ["nobody"], "priority": 0.3 });
    params["prompt"][0]["shape"] = json!("round");
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

#[test]
fn r_err_10_one_invalid_required_value_makes_the_whole_request_invalid() {
    let mut agent = TestAgent::builder().start();
    let session = agent.session.clone();
    let folder = agent.workspace().to_path_buf();
    let servers = [
        json!([{ "name": "x" }]),
        json!([{ "name": "x", "command": 5, "args": [], "env": [] }]),
        json!([{ "name": "x", "command": "/bin/true", "args": [null], "env": [] }]),
        json!([{ "name": "x", "command": "/bin/true", "args": [], "env": [{ "name": "A" }] }]),
        json!(["x"]),
        json!([null]),
    ];
    for servers in servers {
        let answer = agent.call("session/new", &json!({ "cwd": folder, "mcpServers": servers }));
        assert_eq!(code(&answer), -32602, "{servers}");
    }
    let prompts = [
        json!("hi"),
        json!({}),
        json!(null),
        json!([{ "type": "text" }]),
        json!([{ "type": "text", "text": 5 }]),
        json!([{ "text": "hi" }]),
        json!([{ "type": "text", "text": "hi" }, { "type": "text" }]),
        json!([{ "type": "song", "text": "la" }]),
        json!([{ "type": "resource_link", "name": "no uri" }]),
        json!(["hi"]),
        json!([null]),
    ];
    for blocks in prompts {
        let params = json!({ "sessionId": session, "prompt": blocks });
        assert_eq!(code(&agent.call("session/prompt", &params)), -32602, "{blocks}");
    }
    assert_eq!(agent.model().requests().len(), 0, "something was sent to the model");
    assert_eq!(agent.turn("still there?"), "end_turn");
}

#[test]
fn r_turn_11_and_15_content_that_was_not_offered_is_refused_and_the_session_goes_on() {
    let mut agent = TestAgent::builder().variable("TURNWRIGHT_MODEL", "o3-mini").initialize();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let offered = answer["result"]["agentCapabilities"]["promptCapabilities"].clone();
    agent.session = agent.new_session();
    let session = agent.session.clone();
    for kind in ["image", "audio"] {
        assert_ne!(offered[kind], true, "the agent offers it now, so this test is out of date");
        let block = json!({ "type": kind, "data": "AAAA", "mimeType": "application/x" });
        let blocks = json!([{ "type": "text", "text": "look" }, block]);
        let answer =
            agent.call("session/prompt", &json!({ "sessionId": session, "prompt": blocks }));
        assert_eq!(code(&answer), -32602, "{kind}");
    }
    let answer = agent.call("session/prompt", &json!({ "sessionId": session, "prompt": [] }));
    assert_eq!(code(&answer), -32602, "an empty prompt");
    assert_eq!(agent.model().requests().len(), 0);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.model_transcript(0), ["user hi"]);
}

#[test]
fn r_ext_2_every_key_is_in_the_schema() {
    let schema: Value =
        serde_json::from_str(include_str!("../data/schema/schema.v1.unstable.json")).unwrap();
    let mut known: Vec<String> =
        ["jsonrpc", "id", "method", "params", "result", "error"].map(str::to_owned).into();
    properties(&schema, &mut known);
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([
            [{ "thought": "Hm." },
             { "call": { "name": "write_file", "arguments": { "path": "a", "content": "b" } } }],
            says("Done.")
        ]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    agent.call("foo/bar", &json!({}));
    for message in &agent.log {
        walk(message, &mut |key, _| {
            assert!(known.iter().any(|it| it == key), "{key} is not in the schema: {message}");
        });
    }
}

/// Collects the names of all properties in the schema.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(named) = value.as_object().filter(|_| key == "properties") {
                    names.extend(named.keys().cloned());
                }
                properties(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|it| properties(it, names)),
        _ => {}
    }
}
