//! A small model is offered few tools with few arguments, and may use the others all the same.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// Those that look come first, so that it reads before it edits.
const FEW: [&str; 9] = [
    "find_files",
    "grep",
    "list_dir",
    "read_file",
    "edit_file",
    "exec",
    "exec_output",
    "move_path",
    "write_file",
];

fn start(choice: &str, replies: &Value) -> TestAgent {
    builder(choice, replies).start()
}

fn builder(choice: &str, replies: &Value) -> TestAgentBuilder {
    let settings = format!("[agent]\ntools = \"{choice}\"\n");
    TestAgent::builder()
        .own_file("config/config.toml", &settings)
        .file("a.py", "x = 1\n")
        .permission("allow_once")
        .model(replies.clone())
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

#[test]
fn what_a_small_model_is_not_offered_is_not_named_and_a_tool_that_ends_the_task_is_explained() {
    let unknown = [calls("fly", &json!({})), calls("finish", &json!({ "message": "Done." }))];
    let replies = [unknown.to_vec(), vec![says("Done.")]].concat();
    let mut agent = start("few", &json!(replies));
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 2);
    assert!(results[0].starts_with("No tool \"fly\". Available: read_file"), "{results:?}");
    assert!(!results[0].contains("history") && !results[0].contains("ask_user"), "{results:?}");
    assert!(results[1].contains("the task ends with your answer. Say what is done."));
}

#[test]
fn alone_a_small_model_that_only_says_how_is_asked_once_to_do_it() {
    let write = calls("write_file", &json!({ "path": "a.py", "content": "x = 2\n" }));
    let done = [says("Open a.py in your editor."), write, says("Nothing can be run."), says("No.")];
    for (choice, alone, expected) in
        [("few", "1", "x = 2\n"), ("few", "0", "x = 1\n"), ("all", "1", "x = 1\n")]
    {
        let builder = builder(choice, &json!(done)).variable("TURNWRIGHT_ALONE", alone);
        let mut agent = builder.start();
        assert_eq!(agent.turn("x should be 2"), "end_turn");
        assert_eq!(agent.read("a.py"), expected, "{choice} {alone}");
        if expected == "x = 2\n" {
            let asked = agent.model_request(1)["messages"].to_string();
            assert!(asked.contains("You have called no tool"), "{asked}");
        } else {
            assert_eq!(agent.model().requests().len(), 1, "{choice} {alone}");
        }
    }
}
