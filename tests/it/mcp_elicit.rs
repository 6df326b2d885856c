//! Elicitation requests of MCP servers: the agent forwards them to the client under the server's name,
//! never answers for the user, and declines requests that the client cannot show. The last test sends
//! other requests of servers.

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A server whose tool asks the user for a name. `mode` adds fields to the request.
pub fn asking(mode: &Value) -> Value {
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

/// The answer that the server got, which its tool returns to the model.
fn answered(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

#[test]
fn m_13_an_elicitation_is_forwarded_to_the_client_with_the_servers_name() {
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
fn m_13_only_an_accepted_form_that_fits_the_schema_is_passed_on() {
    let table = [
        (json!({ "action": "decline" }), "decline"),
        (json!({ "action": "cancel" }), "cancel"),
        (json!({ "action": "accept", "content": { "name": 5 } }), "decline"),
        (json!({ "action": "accept", "content": {} }), "decline"),
        (json!({ "action": "accept" }), "decline"),
        (json!({ "action": "sure" }), "cancel"),
    ];
    for (answer, expected) in table {
        let mut agent = agent(&asking(&json!({}))).capabilities(forms()).start();
        let turn = agent.prompt("go");
        let question = agent.wait_for_request("elicitation/create");
        agent.respond(&question, &answer);
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        let result = answered(&agent);
        assert!(result.contains(&format!(r#""action":"{expected}""#)), "{answer}: {result}");
        assert!(!result.contains("content\":{\""), "{answer}: {result}");
    }
}

#[test]
fn m_13_a_form_may_have_no_fields_or_optional_ones_as_pydantic_writes_them() {
    let types = json!([{ "type": "string", "maxLength": 9 }, { "type": "null" }]);
    let optional = json!({ "why": { "anyOf": types, "default": null, "title": "Why" } });
    let shown = json!({ "why": { "type": "string", "maxLength": 9, "title": "Why" } });
    for (fields, shown) in [(json!({}), json!({})), (optional, shown)] {
        let schema = json!({ "requestedSchema": { "type": "object", "properties": fields } });
        let mut agent = agent(&asking(&schema)).capabilities(forms()).start();
        let turn = agent.prompt("go");
        let question = agent.wait_for_request("elicitation/create");
        assert_eq!(question["params"]["requestedSchema"]["properties"], shown);
        agent.respond(&question, &json!({ "action": "accept" }));
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        let result = answered(&agent);
        assert!(result.contains(r#""action":"accept","content":{}"#), "{result}");
    }
}

#[test]
fn m_13_elicitation_is_declined_and_not_declared_if_the_client_lacks_it() {
    let mut scenario = asking(&json!({}));
    scenario["log"] = "heard".into();
    let mut agent = agent(&scenario).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(answered(&agent).contains(r#""action":"decline""#), "{}", answered(&agent));
    let log = agent.read("heard");
    let initialize: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    let capabilities = &initialize["params"]["capabilities"];
    assert!(capabilities.get("elicitation").is_none(), "{initialize}");
    assert!(capabilities.get("sampling").is_none(), "{initialize}");
    assert!(capabilities["roots"].is_object(), "{initialize}");
}

fn page(url: &Value) -> Value {
    json!({ "mode": "url", "url": url, "elicitationId": "1" })
}

#[test]
fn m_13_a_page_is_shown_by_a_client_that_can_and_by_others_as_a_form_without_fields() {
    let address = "https://example.org:8443/login?x=\u{e9}";
    let shown = "https://example.org:8443/login?x=%C3%A9";
    let question = "The MCP server forms asks you to visit a page on example.org:8443. The server \
                    says: Who are\u{241b}[2J you?";
    let address_in_form = format!(
        "Address: {shown}\nIt is not opened for you: accept when you have opened it yourself."
    );
    for modes in [json!({ "url": {} }), json!({ "form": {}, "url": {} }), json!({ "form": {} })] {
        let mut agent = agent(&asking(&page(&address.into())))
            .capabilities(json!({ "elicitation": modes }))
            .start();
        let turn = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        let params = &request["params"];
        if modes["url"].is_object() {
            assert_eq!(params["mode"], "url");
            assert_eq!(params["url"], shown);
            assert_eq!(params["message"], question);
            assert!(params["elicitationId"].as_str().is_some_and(|id| id != "1"), "{params}");
        } else {
            assert_eq!(params["mode"], "form");
            assert_eq!(params["message"], format!("{question}\n\n{address_in_form}"));
            assert_eq!(params["requestedSchema"]["properties"], json!({}));
        }
        assert!(params["toolCallId"].is_string(), "{params}");
        agent.respond(&request, &json!({ "action": "accept", "content": { "name": "Ada" } }));
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        let result = answered(&agent);
        assert!(result.contains(r#"{"action":"accept"}"#), "{modes}: {result}");
    }
}

#[test]
fn m_13_a_page_is_declined_or_cancelled_as_the_user_says() {
    let table = [
        (json!({ "action": "decline" }), "decline"),
        (json!({ "action": "cancel" }), "cancel"),
        (json!({ "action": "sure" }), "cancel"),
        (json!({ "action": 3 }), "decline"),
        (json!(null), "decline"),
    ];
    for (answer, expected) in table {
        let mut agent = agent(&asking(&page(&"http://localhost:1/".into())))
            .capabilities(json!({ "elicitation": { "url": {} } }))
            .start();
        let turn = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        agent.respond(&request, &answer);
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        let result = answered(&agent);
        assert!(result.contains(&format!(r#"{{"action":"{expected}"}}"#)), "{answer}: {result}");
    }
}

/// The error of a request for which the user has to visit a page first.
fn page_required() -> Value {
    let mut required = page(&"https://example.org/".into());
    required["message"] = "Log in.".into();
    json!({ "code": -32042, "message": "a login is required",
        "data": { "elicitations": [required] } })
}

#[test]
fn m_13_a_call_that_is_refused_until_the_user_has_visited_a_page_is_sent_again() {
    let scenario = json!({ "tools": [{ "name": "ask" }], "log": "heard",
        "answers": { "ask": [{ "error": page_required() }] } });
    let mut agent = agent(&scenario).capabilities(json!({ "elicitation": { "url": {} } })).start();
    let turn = agent.prompt("go");
    for action in ["accept", "decline"] {
        let request = agent.wait_for_request("elicitation/create");
        assert_eq!(request["params"]["url"], "https://example.org/");
        agent.respond(&request, &json!({ "action": action }));
    }
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    assert!(answered(&agent).contains("error -32042"), "{}", answered(&agent));
    assert_eq!(agent.read("heard").matches("\"tools/call\"").count(), 2);
}

#[test]
fn m_13_a_resource_and_a_prompt_that_require_a_page_are_requested_again() {
    let refused = json!({ "error": page_required() });
    let scenario = json!({ "tools": [{ "name": "ask" }], "log": "heard",
        "resources": [{ "uri": "notes://1", "name": "first" }], "prompts": [{ "name": "greet" }],
        "got": { "notes://1": refused, "greet": refused } });
    let read = calls("mcp__forms__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([read, says("done")]))
        .permission("allow_once")
        .server("forms", &scenario)
        .capabilities(json!({ "elicitation": { "url": {} } }))
        .start();
    for (prompt, method, has_call) in
        [("go", "resources/read", true), ("/forms:greet", "prompts/get", false)]
    {
        let turn = agent.prompt(prompt);
        for action in ["accept", "decline"] {
            let request = agent.wait_for_request("elicitation/create");
            assert_eq!(request["params"]["url"], "https://example.org/");
            assert_eq!(request["params"]["toolCallId"].is_string(), has_call, "{request}");
            agent.respond(&request, &json!({ "action": action }));
        }
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        assert_eq!(agent.read("heard").matches(&format!("\"{method}\"")).count(), 2, "{method}");
    }
    assert!(answered(&agent).contains("error -32042"), "{}", answered(&agent));
    assert!(agent.text().contains("error -32042"), "{}", agent.text());
}

#[test]
fn m_13_what_is_no_page_or_cannot_be_shown_is_declined_without_a_question() {
    let both = json!({ "elicitation": { "form": {}, "url": {} } });
    let good = json!("https://example.org/");
    let table = [
        (page(&json!("javascript:alert(1)")), both.clone()),
        (page(&json!("file:///etc/passwd")), both.clone()),
        (page(&json!("https://")), both.clone()),
        (page(&json!("example.org")), both.clone()),
        (page(&json!(5)), both.clone()),
        (page(&json!(null)), both.clone()),
        (page(&json!(format!("https://example.org/{}", "x".repeat(4_000)))), both.clone()),
        (json!({ "mode": "page", "url": good }), both.clone()),
        (json!({ "mode": "url", "url": good, "message": 7 }), both),
        (page(&good), json!({ "elicitation": {} })),
        (page(&good), json!({})),
        (json!({}), json!({ "elicitation": { "url": {} } })),
    ];
    for (request, capabilities) in table {
        let mut agent = agent(&asking(&request)).capabilities(capabilities).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = answered(&agent);
        assert!(result.contains(r#""action":"decline""#), "{request}: {result}");
        assert!(agent.log.iter().all(|it| it["method"] != "elicitation/create"), "{request}");
    }
}

#[test]
fn m_13_servers_are_told_of_the_modes_that_the_client_has_or_that_a_form_stands_in_for() {
    let table = [
        (json!({ "form": {} }), json!({ "form": {}, "url": {} })),
        (json!({ "url": {} }), json!({ "url": {} })),
        (json!({}), Value::Null),
    ];
    for (modes, expected) in table {
        let scenario = json!({ "tools": [{ "name": "ask" }], "log": "heard" });
        let mut agent = agent(&scenario).capabilities(json!({ "elicitation": modes })).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let log = agent.read("heard");
        let initialize: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert_eq!(initialize["params"]["capabilities"]["elicitation"], expected, "{modes}");
    }
}

#[test]
fn a_cancel_withdraws_the_elicitation() {
    let mut agent = agent(&asking(&json!({}))).capabilities(forms()).start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    agent.cancel();
    agent.wait_for("the withdrawal of the elicitation", |message| {
        message["method"] == "$/cancel_request" && message["params"]["requestId"] == question["id"]
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
