//! What MCP servers ask of the user: it is shown as theirs, never answered by us, and only asked of a
//! user who can see it.

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A server whose tool asks for a name.
fn asking(mode: &Value) -> Value {
    let mut params = json!({ "message": "Who are\u{1b}[2J you?", "requestedSchema": {
        "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] } });
    for (key, value) in mode.as_object().unwrap() {
        params[key] = value.clone();
    }
    let ask = json!({ "method": "elicitation/create", "params": params });
    json!({ "tools": [{ "name": "ask" }], "answers": { "ask": [{ "ask": ask }] } })
}

fn agent(scenario: &Value) -> TestAgentBuilder {
    TestAgent::builder()
        .model(json!([calls("mcp__forms__ask", &json!({})), says("done")]))
        .permission("allow_once")
        .server("forms", scenario)
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// What the server was answered, as the model was told it.
fn answered(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

#[test]
fn m_13_a_question_of_a_server_is_the_users_with_the_servers_name() {
    let mut agent = agent(&asking(&json!({}))).capabilities(forms()).start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    let params = &question["params"];
    assert_eq!(params["message"], "The MCP server forms asks: Who are␛[2J you?");
    assert_eq!(params["requestedSchema"]["required"], json!(["name"]));
    assert!(params["toolCallId"].is_string(), "{params}");
    agent.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    assert!(answered(&agent).contains(r#""content":{"name":"Ada"}"#), "{}", answered(&agent));
}

#[test]
fn m_13_only_a_clear_yes_with_what_was_asked_for_is_one() {
    let table = [
        (json!({ "action": "decline" }), "decline"),
        (json!({ "action": "cancel" }), "cancel"),
        (json!({ "action": "accept", "content": { "name": 5 } }), "decline"),
        (json!({ "action": "accept", "content": {} }), "decline"),
        (json!({ "action": "accept" }), "decline"),
        (json!({ "action": "sure" }), "decline"),
    ];
    for (answer, expected) in table {
        let mut agent = agent(&asking(&json!({}))).capabilities(forms()).start();
        let turn = agent.prompt("go");
        let question = agent.wait_for_request("elicitation/create");
        agent.respond(&question, &answer);
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        let told = answered(&agent);
        assert!(told.contains(&format!(r#""action":"{expected}""#)), "{answer}: {told}");
        assert!(!told.contains("content\":{\""), "{answer}: {told}");
    }
}

#[test]
fn m_13_what_the_client_cannot_show_is_declined_and_not_declared() {
    let mut scenario = asking(&json!({}));
    scenario["log"] = "heard".into();
    let mut agent = agent(&scenario).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(answered(&agent).contains(r#""action":"decline""#), "{}", answered(&agent));
    let heard = agent.read("heard");
    let greeting: Value = serde_json::from_str(heard.lines().next().unwrap()).unwrap();
    let capabilities = &greeting["params"]["capabilities"];
    assert!(capabilities.get("elicitation").is_none(), "{greeting}");
    assert!(capabilities.get("sampling").is_none(), "{greeting}");
    assert!(capabilities["roots"].is_object(), "{greeting}");
}

#[test]
fn a_page_to_open_is_not_shown_as_something_else() {
    let page = json!({ "mode": "url", "url": "https://example.org/login", "elicitationId": "1" });
    let mut agent = agent(&asking(&page)).capabilities(forms()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(answered(&agent).contains(r#""action":"decline""#), "{}", answered(&agent));
}

#[test]
fn a_cancel_withdraws_the_question() {
    let mut agent = agent(&asking(&json!({}))).capabilities(forms()).start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    agent.cancel();
    agent.wait_for("its withdrawal", |it| {
        it["method"] == "$/cancel_request" && it["params"]["requestId"] == question["id"]
    });
    assert_eq!(agent.stop_reason(&turn), "cancelled");
}

#[test]
fn m_14_roots_are_the_sessions_folders_and_sampling_is_refused() {
    let table = [("roots/list", "file:///"), ("sampling/createMessage", "-32601"), ("ping", "{}")];
    for (method, expected) in table {
        let params = if method.starts_with("sampling") {
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }], "maxTokens": 5 })
        } else {
            json!({})
        };
        let ask = json!({ "ask": { "method": method, "params": params } });
        let scenario = json!({ "tools": [{ "name": "ask" }], "answers": { "ask": [ask] } });
        let mut agent = agent(&scenario).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(answered(&agent).contains(expected), "{method}: {}", answered(&agent));
    }
}
