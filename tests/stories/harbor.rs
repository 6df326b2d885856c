//! The sequence of Harbor's generic ACP agent: it takes the first option of the category `model`, sets the value that
//! matches the wanted model without its provider, allows the first thing that can be allowed, and reads usage and the
//! output of commands from the updates.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, runs, says};

/// The keys in which the runner looks for the output of a call.
const OUTPUT_KEYS: [&str; 3] = ["output", "formatted_output", "aggregated_output"];

/// The variables of the registry entry that `turnwright eval export` writes.
fn variables() -> Vec<(String, String)> {
    let entry: Value = serde_json::from_str(turnwright_eval::harbor::REGISTRY_ENTRY).unwrap();
    let variables = entry["distribution"]["local"]["env"].as_object().unwrap();
    variables
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// The values of an option, also of those that are in groups.
fn values(option: &Value) -> Vec<String> {
    let items = option["options"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .flat_map(|item| match item["value"].as_str() {
            Some(value) => vec![value.to_owned()],
            None => values(item),
        })
        .collect()
}

#[test]
fn the_runner_of_harbor_finds_model_usage_and_output() {
    let usage =
        json!({ "usage": { "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 } });
    let mut answer = says("Done.");
    answer.as_array_mut().unwrap().push(usage);
    let mut builder = TestAgent::builder().model(json!([runs("echo found"), answer]));
    for (name, value) in variables() {
        builder = builder.variable(&name, &value);
    }
    let mut agent = builder.permission("allow_once").initialize();
    let opened = agent.call_new_session();
    opened["result"]["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    let options = opened["result"]["configOptions"].as_array().unwrap();
    let option = options.iter().find(|option| option["category"] == "model").unwrap();
    let all = values(option);
    let same: Vec<_> =
        all.iter().filter(|value| value.rsplit('/').next() == Some("scripted")).collect();
    let [value] = same[..] else { panic!("{all:?}") };
    let params = json!({ "sessionId": agent.session, "configId": option["id"], "value": value });
    let set = agent.call("session/set_config_option", &params);
    assert!(set["result"].is_object(), "{set}");
    assert_eq!(agent.turn("Find it"), "end_turn");
    let usage = agent.updates_of("usage_update").pop().unwrap();
    assert!(usage["used"].as_u64().unwrap() > 0 && usage["size"].as_u64().unwrap() > 0, "{usage}");
    if turnwright_sandbox::can_confine() {
        let card = cards::card(&agent, 0);
        let output = OUTPUT_KEYS.iter().find_map(|key| card["rawOutput"][*key].as_str());
        assert_eq!(output.map(str::trim_end), Some("found"), "{card}");
    }
}
