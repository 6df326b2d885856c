//! A small model is offered few tools with few arguments, and may use the others all the same.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

const FEW: [&str; 9] = [
    "edit_file",
    "exec",
    "exec_output",
    "find_files",
    "grep",
    "list_dir",
    "move_path",
    "read_file",
    "write_file",
];

fn start(choice: &str, replies: &Value) -> TestAgent {
    let settings = format!("[agent]\ntools = \"{choice}\"\n");
    TestAgent::builder()
        .own_file("config/config.toml", &settings)
        .file("a.py", "x = 1\n")
        .permission("allow_once")
        .model(replies.clone())
        .start()
}

fn tools(agent: &TestAgent) -> Vec<Value> {
    let request = agent.model_request(0);
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"].clone()).collect()
}

#[test]
fn a_small_model_is_offered_nine_tools_with_few_arguments() {
    let mut agent = start("few", &json!([says("Done.")]));
    agent.turn("go");
    let tools = tools(&agent);
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, FEW);
    for tool in tools {
        let arguments = tool["parameters"]["properties"].as_object().unwrap();
        for name in ["background", "hidden", "offset", "timeout", "mode", "escalate"] {
            assert!(!arguments.contains_key(name), "{tool}");
        }
    }
}

#[test]
fn a_large_model_is_offered_all_of_them() {
    let mut agent = start("auto", &json!([says("Done.")]));
    agent.turn("go");
    let tools = tools(&agent);
    assert!(tools.len() > FEW.len(), "{tools:?}");
    let exec = tools.iter().find(|tool| tool["name"] == "exec").unwrap();
    assert!(exec["parameters"]["properties"]["background"].is_object(), "{exec}");
}

#[test]
fn what_a_small_model_is_not_offered_is_accepted() {
    let plan = calls("plan", &json!({ "entries": [{ "content": "look" }] }));
    let append = json!({ "path": "a.py", "content": "y = 2\n", "mode": "append" });
    let find = calls("find_files", &json!({ "glob": "*.py", "offset": 0, "hidden": true }));
    let write = calls("write_file", &append);
    let mut agent = start("few", &json!([plan, find, write, says("Done.")]));
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.updates_of("plan").len(), 1);
    assert_eq!(agent.read("a.py"), "x = 1\ny = 2\n");
    assert!(cards::results(&agent, 3)[1].starts_with("a.py\n"));
}
