//! Authentication (R-AUTH): which methods are offered, and what they permit.

use serde_json::{Value, json};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, says};

/// Sends `initialize`, and returns the authentication methods that are offered.
fn methods(agent: &mut TestAgent, capabilities: &Value) -> Vec<Value> {
    let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    agent.call("initialize", &params)["result"]["authMethods"].as_array().unwrap().clone()
}

fn ids(methods: &[Value]) -> Vec<&str> {
    methods.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

fn terminal() -> Value {
    json!({ "auth": { "terminal": true } })
}

#[test]
fn r_auth_1_with_a_provider_the_only_method_changes_nothing() {
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
        assert_eq!(agent.text(), "Hello.", "the answer must come from the configured model");
    }
}

#[test]
fn r_auth_3_the_offline_method_permits_sessions() {
    let mut agent = TestAgent::unconfigured().initialize();
    assert_eq!(code(&agent.call_new_session()), -32000);
    let answer = agent.call("authenticate", &json!({ "methodId": "offline" }));
    assert_eq!(answer["result"], json!({}), "{answer}");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert!(!agent.text().is_empty());
}

#[test]
fn r_auth_4_a_method_that_was_not_offered_is_refused() {
    let mut agent = TestAgent::unconfigured().spawn();
    methods(&mut agent, &terminal());
    for method in ["login", "configured", "nothing", "", "Offline"] {
        let answer = agent.call("authenticate", &json!({ "methodId": method }));
        assert_eq!(code(&answer), -32602, "{method}");
    }
    assert_eq!(
        code(&agent.call_new_session()),
        -32000,
        "a session was permitted without authentication"
    );

    let mut agent = TestAgent::builder().initialize();
    for method in ["login", "offline", "nothing"] {
        let answer = agent.call("authenticate", &json!({ "methodId": method }));
        assert_eq!(code(&answer), -32602, "{method}");
    }
}

#[test]
fn a_key_that_is_refused_within_the_answer_is_named_by_its_variable() {
    let denies = json!([{ "text": "Hm" }, { "error": { "message": "bad key", "code": 401 } }]);
    let mut agent = TestAgent::builder().model(json!([denies])).start();
    let id = agent.prompt("hi");
    let text = agent.answer_to(&id)["error"]["message"].to_string();
    assert!(text.contains("while answering"), "{text}");
    assert!(text.contains("Check the key in OPENAI_API_KEY"), "{text}");
}
