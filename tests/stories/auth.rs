//! Authentication (R-AUTH): what is offered when, and what it opens.

use serde_json::{Value, json};

use crate::agent::{TestAgent, says};

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

/// Initializes and returns the methods that are offered.
fn methods(agent: &mut TestAgent, capabilities: &Value) -> Vec<Value> {
    let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    agent.call("initialize", &params)["result"]["authMethods"].as_array().unwrap().clone()
}

fn ids(methods: &[Value]) -> Vec<&str> {
    methods.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

fn new_session(agent: &mut TestAgent) -> Value {
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [] });
    agent.call("session/new", &params)
}

fn terminal() -> Value {
    json!({ "auth": { "terminal": true } })
}

#[test]
fn r_auth_1_with_a_provider_there_is_one_method_and_it_is_quick_and_harmless() {
    for capabilities in [json!({}), terminal()] {
        let mut agent = TestAgent::builder().model(json!([says("Hello.")])).spawn();
        let methods = methods(&mut agent, &capabilities);
        assert_eq!(ids(&methods), ["configured"]);
        let name = methods[0]["name"].as_str().unwrap();
        assert!(!name.is_empty());
        for _ in 0..2 {
            let answer = agent.call("authenticate", &json!({ "methodId": "configured" }));
            assert_eq!(answer["result"], json!({}), "{answer}");
        }
        agent.session = agent.new_session();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(agent.text(), "Hello.", "another model answered");
    }
}

#[test]
fn r_auth_3_the_offline_method_opens_the_gate() {
    let mut agent = TestAgent::unconfigured().initialize();
    assert_eq!(code(&new_session(&mut agent)), -32000);
    let answer = agent.call("authenticate", &json!({ "methodId": "offline" }));
    assert_eq!(answer["result"], json!({}), "{answer}");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert!(!agent.text().is_empty());
}

#[test]
fn r_auth_4_only_what_was_offered_to_be_called_may_be_called() {
    let mut agent = TestAgent::unconfigured().spawn();
    methods(&mut agent, &terminal());
    for method in ["login", "configured", "nothing", "", "Offline"] {
        let answer = agent.call("authenticate", &json!({ "methodId": method }));
        assert_eq!(code(&answer), -32602, "{method}");
    }
    assert_eq!(code(&new_session(&mut agent)), -32000, "something opened the gate");

    let mut agent = TestAgent::builder().initialize();
    for method in ["login", "offline", "nothing"] {
        let answer = agent.call("authenticate", &json!({ "methodId": method }));
        assert_eq!(code(&answer), -32602, "{method}");
    }
}

#[test]
fn r_auth_5_a_key_that_is_refused_is_a_matter_of_authentication() {
    let denies = json!([{ "status": 401, "body": { "error": { "message": "bad key" } } }]);
    let mut agent = TestAgent::builder().model(json!([denies, says("Hello.")])).start();
    let id = agent.prompt("hi");
    assert_eq!(code(&agent.answer_to(&id)), -32000);
    assert_eq!(agent.turn("again"), "end_turn");
}
