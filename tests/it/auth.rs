//! Authentication (R-AUTH) with the subcommands `turnwright login` and `logout`, and their effect on
//! running and on new agents.

use std::process::Output;

use serde_json::{Value, json};
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, piped, says, subcommand};

/// Initializes the agent and returns the authentication methods that it offers.
fn methods(agent: &mut TestAgent, capabilities: &Value) -> Vec<Value> {
    let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    agent.call("initialize", &params)["result"]["authMethods"].as_array().unwrap().clone()
}

fn ids(methods: &[Value]) -> Vec<&str> {
    methods.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

/// Runs a subcommand with the folders of an agent and with `input` as its stdin.
fn turnwright(agent: &TestAgent, arguments: &[&str], input: &str) -> Output {
    piped(&mut subcommand(agent.home(), arguments), input)
}

fn model(replies: &Value) -> Server {
    Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0).unwrap()
}

fn key_of(model: &Server, number: usize) -> String {
    let requests = model.wait_for_requests(number + 1, crate::agent::LIMIT).unwrap();
    let header =
        requests[number].headers.iter().find(|it| it.0.eq_ignore_ascii_case("authorization"));
    header.map(|it| it.1.clone()).unwrap_or_default()
}

fn terminal() -> Value {
    json!({ "auth": { "terminal": true } })
}

#[test]
fn r_auth_1_the_offline_model_counts_as_a_provider_if_it_is_selected() {
    let agents = [
        TestAgent::offline(),
        TestAgent::unconfigured().argument("--model").argument("offline"),
        TestAgent::unconfigured().argument("acp").argument("--model=offline"),
    ];
    for agent in agents {
        let mut agent = agent.spawn();
        assert_eq!(ids(&methods(&mut agent, &terminal())), ["configured"]);
        agent.session = agent.new_session();
        assert_eq!(agent.turn("hello"), "end_turn");
    }
}

#[test]
fn r_auth_2_and_9_the_terminal_method_is_offered_only_to_clients_with_terminal_authentication() {
    let offers = [
        (json!({}), vec!["offline"]),
        (json!({ "auth": {} }), vec!["offline"]),
        (json!({ "auth": { "terminal": false } }), vec!["offline"]),
        (json!({ "auth": null, "terminal": true }), vec!["offline"]),
        (terminal(), vec!["offline", "login"]),
    ];
    for (capabilities, expected) in offers {
        let mut agent = TestAgent::unconfigured().spawn();
        let methods = methods(&mut agent, &capabilities);
        assert_eq!(ids(&methods), expected, "{capabilities}");
        for method in &methods {
            let kind = method["type"].as_str().unwrap_or("agent");
            let expected = if method["id"] == "login" { "terminal" } else { "agent" };
            assert_eq!(kind, expected, "{method}");
            assert!(method.get("command").is_none() && method.get("vars").is_none(), "{method}");
        }
    }
}

#[test]
fn r_auth_5_without_a_provider_a_session_is_refused_with_instructions() {
    let mut agent = TestAgent::unconfigured().initialize();
    let answer = agent.call_new_session();
    assert_eq!(code(&answer), -32000);
    let message = answer["error"]["message"].as_str().unwrap();
    for word in ["OPENAI_API_KEY", "turnwright login", "offline"] {
        assert!(message.contains(word), "{message}");
    }
    // An endpoint without the name of a model is not enough either, and the error says so.
    let mut agent =
        TestAgent::unconfigured().variable("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").initialize();
    let answer = agent.call_new_session();
    assert_eq!(code(&answer), -32000);
    assert!(answer["error"]["message"].as_str().unwrap().contains("TURNWRIGHT_MODEL"), "{answer}");
}

#[test]
fn r_auth_6_logout_is_a_subcommand_that_deletes_the_key_and_not_a_method() {
    let mut agent = TestAgent::unconfigured().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let auth = answer["result"]["agentCapabilities"]["auth"].clone();
    assert!(auth["logout"].is_null(), "the agent offers `logout`, so this test is out of date");
    assert_eq!(code(&agent.call("logout", &json!({}))), -32601);

    assert!(turnwright(&agent, &["login"], "\nsk-stored\n\n").status.success());
    let mut second = TestAgent::unconfigured().variable("TURNWRIGHT_HOME", &home(&agent)).spawn();
    assert_eq!(ids(&methods(&mut second, &json!({}))), ["configured"]);
    assert!(turnwright(&agent, &["logout"], "").status.success());
    assert!(!agent.home().join("config/login.json").exists());
    let mut second =
        TestAgent::unconfigured().variable("TURNWRIGHT_HOME", &home(&agent)).initialize();
    assert_eq!(code(&second.call_new_session()), -32000);
    // A logout without a stored key succeeds, too.
    assert!(turnwright(&agent, &["logout"], "").status.success());
}

fn home(agent: &TestAgent) -> String {
    agent.home().to_string_lossy().into_owned()
}

#[test]
fn r_auth_7_the_offered_login_stores_the_key_and_a_running_agent_then_works() {
    let server = model(&json!([says("Hello from there.")]));
    let mut agent = TestAgent::unconfigured().spawn();
    let offered = methods(&mut agent, &terminal());
    assert_eq!(code(&agent.call_new_session()), -32000);

    let arguments: Vec<_> =
        offered[1]["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let input = format!("{}\nsk-from-login\nscripted\n", server.base_url());
    let output = turnwright(&agent, &arguments, &input);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"", "the login has written to stdout");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("sk-from-login"), "{output:?}");

    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), "Hello from there.");
    assert_eq!(key_of(&server, 0), "Bearer sk-from-login");
    assert_eq!(ids(&methods(&mut agent, &terminal())), ["configured"]);
}

#[cfg(unix)]
#[test]
fn r_auth_7_the_stored_key_is_private_and_a_new_process_is_authenticated() {
    use std::os::unix::fs::PermissionsExt;
    let agent = TestAgent::unconfigured().initialize();
    assert!(turnwright(&agent, &["login"], "\nsk-stored\n\n").status.success());
    let file = agent.home().join("config/login.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains("sk-stored"));
    // The login leaves no other file behind.
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);

    let mut other =
        TestAgent::unconfigured().variable("TURNWRIGHT_HOME", &home(&agent)).initialize();
    assert!(other.call_new_session()["result"].is_object());
}

#[test]
fn r_auth_7_an_incomplete_login_fails_and_stores_nothing() {
    let agent = TestAgent::unconfigured().initialize();
    for input in ["", "\n", "\nsk-half", "\n\n\n"] {
        let output = turnwright(&agent, &["login"], input);
        assert!(!output.status.success(), "{input:?}: {output:?}");
        assert!(!agent.home().join("config/login.json").exists(), "{input:?}");
    }
}

#[test]
fn r_auth_7_the_login_does_not_prompt_for_values_of_flags() {
    let agent = TestAgent::unconfigured().initialize();
    let arguments = ["login", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"];
    let output = turnwright(&agent, &arguments, "sk-flags\n");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(agent.home().join("config/login.json")).unwrap();
    let stored: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({ "key": "sk-flags", "base_url": "http://127.0.0.1:9/v1", "model": "m" });
    assert_eq!(stored, json!({ "logins": [expected] }));
}

#[test]
fn r_auth_3_a_second_login_replaces_the_first_in_a_running_agent() {
    let denies = json!([{ "status": 401, "body": { "error": { "message": "bad key" } } }]);
    let server = model(&json!([denies, says("Hello.")]));
    let mut agent = TestAgent::unconfigured().initialize();
    let login = |agent: &TestAgent, key: &str| {
        let input = format!("{}\n{key}\nscripted\n", server.base_url());
        assert!(turnwright(agent, &["login"], &input).status.success());
    };
    login(&agent, "sk-mistyped");
    agent.session = agent.new_session();
    let id = agent.prompt("hi");
    let answer = agent.answer_to(&id);
    assert_eq!(code(&answer), -32000);
    let file = agent.home().join("config").join("login.json");
    let place = format!("Check the key in {}, or run", file.display());
    assert!(answer["error"]["message"].as_str().unwrap().contains(&place), "{answer}");
    login(&agent, "sk-right");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(key_of(&server, 1), "Bearer sk-right");
}

#[test]
fn r_auth_3_a_login_overrides_an_earlier_choice_of_the_offline_model() {
    let server = model(&json!([says("Hello from there.")]));
    let mut agent = TestAgent::unconfigured().initialize();
    // Several clients call the first method on every start without asking the user.
    agent.call("authenticate", &json!({ "methodId": "offline" }));
    agent.new_session();
    let input = format!("{}\nsk-from-login\nscripted\n", server.base_url());
    assert!(turnwright(&agent, &["login"], &input).status.success());
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), "Hello from there.");
}

#[test]
fn r_auth_6_after_a_logout_new_sessions_of_a_running_agent_need_a_login() {
    let server = model(&json!([says("Hello."), says("Still here.")]));
    let mut agent = TestAgent::unconfigured().initialize();
    let input = format!("{}\nsk-from-login\nscripted\n", server.base_url());
    assert!(turnwright(&agent, &["login"], &input).status.success());
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert!(turnwright(&agent, &["logout"], "").status.success());
    assert_eq!(code(&agent.call_new_session()), -32000);
    // A session that is open keeps its key.
    assert_eq!(agent.turn("again"), "end_turn");
}
