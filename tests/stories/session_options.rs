//! `session/options`, and the values that options have from the start (R-OPT), which are unstable.

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::McpHttpStub;
use turnwright_testing::session_requests::{code, open, opening_params, result, status};

use crate::agent::{TestAgent, says};
use crate::models::two;
use crate::provider::{List, Provider, configured, current_values, set};

/// Asks for the options of a new session in the workspace, or of this one.
fn look(agent: &mut TestAgent, session: &Value) -> Value {
    let params = json!({ "cwd": agent.workspace(), "sessionId": session });
    result(agent.call("session/options", &params))
}

/// Opens a session by this method with these initial values, and makes it the current one.
fn open_with(agent: &mut TestAgent, method: &str, initial: &Value) -> Value {
    let session = agent.session.clone();
    let mut params = opening_params(agent, &session);
    params["configOptions"] = initial.clone();
    let opened = result(agent.call(method, &params));
    opened["sessionId"].as_str().unwrap_or(&session).clone_into(&mut agent.session);
    opened
}

fn session_count(agent: &mut TestAgent) -> usize {
    result(agent.call("session/list", &json!({})))["sessions"].as_array().unwrap().len()
}

#[test]
fn r_opt_1_a_session_starts_with_the_options_that_were_told_and_looking_opens_nothing() {
    let provider = Provider::of(&["a", "b"]);
    let stub = McpHttpStub::good();
    let settings = format!("{}[mcp.servers.far]\nurl = '{}'\n", two(&provider), stub.url());
    let mut agent = configured(&settings).initialize();
    let told = look(&mut agent, &Value::Null);
    assert_eq!(current_values(&told), ["model=p/a", "mode=ask"]);
    assert_eq!(session_count(&mut agent), 0);
    let locks = agent.home().join("state/sessions");
    assert_eq!(std::fs::read_dir(locks).map_or(0, Iterator::count), 0, "nothing is locked");
    assert_eq!(stub.requests().len() + provider.requests().len(), 0, "nobody is asked");
    let is_update = |it: &Value| it["method"] == "session/update";
    assert!(!agent.log.iter().any(is_update), "nothing is announced");
    let opened = result(agent.call_new_session());
    assert_eq!(opened["configOptions"], told["configOptions"]);
    assert_eq!(opened["modes"], told["modes"]);
}

#[test]
fn r_opt_1_the_options_of_a_stored_session_are_those_of_its_resumption_and_it_stays_as_it_is() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    let session = json!(agent.session);
    set(&mut agent, "model", "p/b");
    set(&mut agent, "thought_level", "high");
    set(&mut agent, "mode", "plan");
    assert_eq!(agent.turn("hi"), "end_turn");
    let expected = ["model=p/b", "thought_level=high", "mode=plan"];
    assert_eq!(current_values(&look(&mut agent, &session)), expected);
    assert_eq!(agent.turn("still there?"), "end_turn");
    agent.restart();
    let told = look(&mut agent, &session);
    assert_eq!(current_values(&told), expected);
    let id = session.as_str().unwrap();
    assert_eq!(status(&mut agent, id), "saved");
    let resumed = result(open(&mut agent, "session/resume", id));
    assert_eq!(resumed["configOptions"], told["configOptions"]);
}

#[test]
fn r_opt_1_what_cannot_be_opened_has_no_options() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let cwd = agent.workspace().to_path_buf();
    let table = [
        (json!({}), -32602),
        (json!({ "cwd": 5 }), -32602),
        (json!({ "cwd": "relative" }), -32602),
        (json!({ "cwd": cwd.join("nowhere") }), -32602),
        (json!({ "cwd": cwd, "additionalDirectories": ["relative"] }), -32602),
        (json!({ "cwd": cwd, "additionalDirectories": "none" }), -32602),
        (json!({ "cwd": cwd, "sessionId": 5 }), -32602),
        (json!({ "cwd": cwd, "sessionId": "nobody" }), -32002),
        (json!({ "cwd": "relative", "sessionId": agent.session }), -32602),
    ];
    for (params, expected) in table {
        assert_eq!(code(&agent.call("session/options", &params)), expected, "{params}");
    }
    // The folder of a stored session may be gone.
    let gone = json!({ "cwd": cwd.join("nowhere"), "sessionId": agent.session });
    result(agent.call("session/options", &gone));
    let nothing = json!({ "cwd": cwd, "additionalDirectories": null, "sessionId": null });
    result(agent.call("session/options", &nothing));
    let mut agent = TestAgent::unconfigured().initialize();
    let params = json!({ "cwd": agent.workspace() });
    assert_eq!(code(&agent.call("session/options", &params)), -32000);
}

#[test]
fn v2_r_opt_1_the_options_come_with_the_commands_that_files_bring() {
    let own = "---\ndescription: Greets.\n---\nSay hello.\n";
    let mut agent = TestAgent::builder().v2().own_file("config/prompts/greet.md", own).initialize();
    let params = json!({ "cwd": agent.workspace() });
    let told = result(agent.call("session/options", &params));
    assert!(told.get("modes").is_none(), "{told}");
    let commands = told["availableCommands"].as_array().unwrap().iter();
    let names: Vec<_> = commands.map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"help") && names.contains(&"greet"), "{names:?}");
}

#[test]
fn r_opt_2_initial_values_are_set_before_the_answer_and_without_an_update() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let initial = json!([
        { "configId": "model", "value": "p/b" },
        { "configId": "thought_level", "value": "high", "_meta": { "x": 1 } },
        { "configId": "mode", "value": "plan" },
    ]);
    let expected = ["model=p/b", "thought_level=high", "mode=plan"];
    let source = agent.session.clone();
    for method in ["session/new", "session/fork"] {
        agent.session.clone_from(&source);
        let opened = open_with(&mut agent, method, &initial);
        assert_eq!(current_values(&opened), expected, "{method}");
        assert_eq!(opened["modes"]["currentModeId"], "plan", "{method}");
        agent.sync();
        for kind in ["config_option_update", "current_mode_update"] {
            assert!(agent.updates_of(kind).is_empty(), "{method}");
        }
    }
    assert_eq!(agent.turn("hi"), "end_turn");
    let bodies = provider.chat_requests();
    let body = bodies.iter().rfind(|it| it["model"] == "b").unwrap();
    assert_eq!(body["reasoning_effort"], "high");
    // They are stored, and a later opening begins with them.
    agent.restart();
    for (method, value) in [("session/load", "ask"), ("session/resume", "auto-edit")] {
        let only_mode = json!([{ "configId": "mode", "value": value }]);
        let opened = open_with(&mut agent, method, &only_mode);
        let expected = format!("model=p/b thought_level=high mode={value}");
        assert_eq!(current_values(&opened).join(" "), expected, "{method}");
        assert!(agent.updates_of("config_option_update").is_empty(), "{method}");
    }
}

#[test]
fn r_opt_2_a_conversation_is_replayed_when_the_initial_values_are_set() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&two(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    agent.restart();
    provider.lists(List::Hangs);
    let asked = provider.list_request_count();
    let mut params = opening_params(&agent, &agent.session);
    params["configOptions"] = json!([{ "configId": "model", "value": "p/c" }]);
    let opening = agent.request("session/load", &params);
    provider.wait_for_listings(asked + 1);
    agent.sync();
    assert!(agent.updates_of("user_message_chunk").is_empty(), "{:?}", agent.updates());
    provider.lists(List::Of(vec!["c"]));
    let opened = result(agent.answer_to(&opening));
    assert_eq!(current_values(&opened)[0], "model=p/c");
    assert_eq!(agent.updates_of("user_message_chunk").len(), 1);
}

#[test]
fn r_opt_2_a_value_that_cannot_be_set_is_ignored_in_the_order_of_the_list() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider))
        .own_file("managed/config.toml", "max_mode = 'auto-edit'\n")
        .start();
    let effort = json!({ "configId": "thought_level", "value": "high" });
    let model = json!({ "configId": "model", "value": "p/b" });
    let usual = vec!["model=p/a", "mode=ask"];
    for (initial, expected) in [
        (json!(null), usual.clone()),
        (json!([]), usual.clone()),
        (json!([{ "configId": "speed", "value": "fast" }]), usual.clone()),
        (json!([{ "configId": "speed", "type": "boolean", "value": true }]), usual.clone()),
        (json!([{ "configId": "mode", "type": "boolean", "value": true }]), usual.clone()),
        (json!([{ "configId": "mode", "value": "anything" }]), usual.clone()),
        (json!([{ "configId": "mode", "value": "full" }]), usual.clone()),
        (json!([{ "configId": "model", "value": "nobody/a" }]), usual.clone()),
        (json!([{ "configId": "model", "value": "" }]), usual.clone()),
        (json!([effort]), usual),
        (json!([effort, model]), vec!["model=p/b", "thought_level=default", "mode=ask"]),
        (json!([model, effort]), vec!["model=p/b", "thought_level=high", "mode=ask"]),
        (
            json!([{ "configId": "speed", "value": "fast" }, { "configId": "mode", "value": "plan" }]),
            vec!["model=p/a", "mode=plan"],
        ),
    ] {
        let opened = open_with(&mut agent, "session/new", &initial);
        assert_eq!(current_values(&opened), expected, "{initial}");
    }
}

#[test]
fn r_opt_2_malformed_and_repeated_entries_fail_the_request_and_open_nothing() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let before = session_count(&mut agent);
    let twice = json!({ "configId": "mode", "value": "plan" });
    let unknown = json!({ "configId": "speed", "value": "fast" });
    for initial in [
        json!("plan"),
        json!({ "mode": "plan" }),
        json!([5]),
        json!([null]),
        json!([{}]),
        json!([{ "configId": 5, "value": "plan" }]),
        json!([{ "value": "plan" }]),
        json!([{ "configId": "mode" }]),
        json!([{ "configId": "mode", "value": 5 }]),
        json!([{ "configId": "mode", "value": true }]),
        json!([{ "configId": "mode", "type": "boolean" }]),
        json!([twice, twice]),
        json!([unknown, unknown]),
    ] {
        for method in ["session/new", "session/load", "session/resume", "session/fork"] {
            let mut params = opening_params(&agent, &agent.session);
            params["configOptions"] = initial.clone();
            assert_eq!(code(&agent.call(method, &params)), -32602, "{method} {initial}");
        }
    }
    assert_eq!(session_count(&mut agent), before);
    assert_eq!(agent.turn("still there?"), "end_turn");
}

fn unknown_options(count: usize) -> Value {
    (0..count).map(|number| json!({ "configId": format!("k{number}"), "value": "v" })).collect()
}

#[test]
fn r_opt_2_more_than_64_entries_are_refused_unread() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    for initial in [unknown_options(65), Value::from(vec![Value::Null; 65])] {
        for method in ["session/new", "session/load", "session/resume", "session/fork"] {
            let mut params = opening_params(&agent, &agent.session);
            params["configOptions"] = initial.clone();
            let answer = agent.call(method, &params);
            assert_eq!(code(&answer), -32602, "{method}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("more than 64 entries"), "{method}: {message}");
        }
    }
    open_with(&mut agent, "session/new", &unknown_options(64));
}

#[test]
fn v2_r_opt_2_each_value_has_a_type_and_one_that_we_do_not_have_is_ignored() {
    let mut agent = TestAgent::builder().v2().start();
    for initial in [
        json!([{ "configId": "mode", "value": "plan" }]),
        json!([{ "configId": "mode", "type": 5, "value": "plan" }]),
        json!([{ "configId": "mode", "type": "id", "value": true }]),
        json!([{ "configId": "mode", "type": "boolean", "value": "plan" }]),
        json!([{ "configId": "mode", "type": "_color" }]),
        json!([{ "type": "_color", "value": 5 }]),
        json!([
            { "configId": "mode", "type": "_color", "value": 5 },
            { "configId": "mode", "type": "id", "value": "plan" },
        ]),
    ] {
        for method in ["session/new", "session/resume", "session/fork"] {
            let mut params = opening_params(&agent, &agent.session);
            params["configOptions"] = initial.clone();
            assert_eq!(code(&agent.call(method, &params)), -32602, "{method} {initial}");
        }
    }
    for (kind, value, expected) in [
        ("_color", json!("plan"), "ask"),
        ("_color", json!({ "r": 5 }), "ask"),
        ("_color", Value::Null, "ask"),
        ("boolean", json!(true), "ask"),
        ("id", json!("plan"), "plan"),
    ] {
        let initial = json!([{ "configId": "mode", "type": kind, "value": value }]);
        let opened = open_with(&mut agent, "session/new", &initial);
        let options = opened["configOptions"].as_array().unwrap();
        let mode = options.iter().find(|it| it["configId"] == "mode").unwrap();
        assert_eq!(mode["currentValue"], expected, "{initial}");
    }
}
