//! The unstable surfaces about accounts and providers: `auth/status`, and `providers/*`, by which a client
//! replaces the default provider for the process (R-PROV-1).

use std::path::Path;

use serde_json::{Value, json};
use turnwright_testing::LIMIT;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, says};

const TOKEN: &str = "canary-of-the-clients-gateway";

fn status(agent: &mut TestAgent) -> Value {
    agent.call("auth/status", &json!({}))["result"].clone()
}

fn current(agent: &mut TestAgent) -> Value {
    let answer = agent.call("providers/list", &json!({}));
    let providers = answer["result"]["providers"].as_array().unwrap();
    assert_eq!(providers.len(), 1, "{answer}");
    assert_eq!(providers[0]["providerId"], "default");
    providers[0]["current"].clone()
}

fn set(agent: &mut TestAgent, base_url: &str) -> Value {
    let params = json!({
        "providerId": "default", "apiType": "openai", "baseUrl": base_url,
        "headers": { "Authorization": format!("Bearer {TOKEN}"), "X-Team": "blue" },
    });
    agent.call("providers/set", &params)
}

fn contains(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return contains(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|it| it == text.as_bytes())
    })
}

#[test]
fn the_status_says_whether_sessions_can_be_opened_and_by_which_account() {
    let mut agent = TestAgent::builder().model(json!([])).initialize();
    let url = agent.model().base_url();
    let account = json!({ "label": url, "active": true });
    assert_eq!(status(&mut agent), json!({ "state": "authenticated", "accounts": [account] }));

    let mut agent = TestAgent::offline().initialize();
    assert_eq!(status(&mut agent)["state"], "not_required");
}

#[test]
fn a_change_of_the_status_is_announced() {
    let mut agent = TestAgent::unconfigured().initialize();
    assert_eq!(status(&mut agent)["state"], "unauthenticated");
    agent.call("authenticate", &json!({ "methodId": "offline" }));
    let update = agent.wait_for("the update", |it| it["method"] == "auth/status_update");
    assert_eq!(update["params"]["state"], "not_required");
    // What changes nothing is not announced.
    agent.call("authenticate", &json!({ "methodId": "offline" }));
    agent.sync();
    let updates = agent.log.iter().filter(|it| it["method"] == "auth/status_update");
    assert_eq!(updates.count(), 1);
}

#[test]
fn r_prov_1_a_client_replaces_the_provider_for_new_sessions_and_gets_none_of_our_keys() {
    let gateway = json!({ "replies": [says("From the gateway.")] });
    let gateway = Server::start(Scenario::from_value(gateway).unwrap(), 0).unwrap();
    let mut agent = TestAgent::builder().model(json!([says("From our own.")])).start();
    let own = json!({ "apiType": "openai", "baseUrl": agent.model().base_url() });
    assert_eq!(current(&mut agent), own);

    assert_eq!(set(&mut agent, &gateway.base_url())["result"], json!({}));
    let replaced = json!({ "apiType": "openai", "baseUrl": gateway.base_url() });
    assert_eq!(current(&mut agent), replaced);
    // A session that is open goes on with its model.
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), "From our own.");

    agent.session = agent.new_session();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), "From the gateway.");
    let requests = gateway.wait_for_requests(1, LIMIT).unwrap();
    let headers = &requests.iter().find(|it| it.body["messages"].is_array()).unwrap().headers;
    let sent = |name: &str| headers.iter().find(|it| it.0.eq_ignore_ascii_case(name));
    assert_eq!(sent("authorization").unwrap().1, format!("Bearer {TOKEN}"));
    assert_eq!(sent("x-team").unwrap().1, "blue");
    assert!(!contains(agent.home(), TOKEN), "the token is on the disk");
}

#[test]
fn r_prov_1_a_disabled_provider_is_listed_and_not_used() {
    let mut agent = TestAgent::builder().model(json!([])).initialize();
    let disable = |id: &str| json!({ "providerId": id });
    assert_eq!(agent.call("providers/disable", &disable("unknown"))["result"], json!({}));
    assert_eq!(agent.call("providers/disable", &disable("default"))["result"], json!({}));
    let update = agent.wait_for("the update", |it| it["method"] == "auth/status_update");
    assert_eq!(update["params"]["state"], "unauthenticated");
    assert_eq!(current(&mut agent), Value::Null);
    let answer = agent.call_new_session();
    assert_eq!(code(&answer), -32000);
    assert!(answer["error"]["message"].as_str().unwrap().contains("disabled"), "{answer}");

    let gateway =
        Server::start(Scenario::from_value(json!({ "replies": [] })).unwrap(), 0).unwrap();
    set(&mut agent, &gateway.base_url());
    assert!(agent.call_new_session()["result"].is_object());
}

#[test]
fn r_prov_1_what_cannot_be_used_is_refused_and_changes_nothing() {
    let mut agent = TestAgent::builder().model(json!([])).initialize();
    let before = current(&mut agent);
    for (id, api, url) in [
        ("other", "openai", "http://localhost:1/v1"),
        ("default", "anthropic", "http://localhost:1/v1"),
        ("default", "openai", "file:///etc/passwd"),
        ("default", "openai", "localhost"),
        ("default", "openai", "http://me:secret@localhost:1/v1"),
        ("default", "openai", "http://localhost:1/v1?key=secret"),
    ] {
        let params = json!({ "providerId": id, "apiType": api, "baseUrl": url, "headers": {} });
        assert_eq!(code(&agent.call("providers/set", &params)), -32602, "{params}");
    }
    assert_eq!(current(&mut agent), before);
}
