//! What the README says about the tools is what the model is told.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use crate::agent::{TestAgent, says};

/// The first column of the table below `## Tools`.
fn promised() -> BTreeSet<String> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("\n## Tools\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let name = |it: &str| Some(it.strip_prefix("| `")?.split('`').next()?.to_owned());
    section.lines().filter_map(name).collect()
}

/// What a model that is used to patches is offered in a project with a skill and with many tools of
/// a server, in a mode.
fn offered(mode: &str) -> BTreeSet<String> {
    let many: Vec<_> = (0..41).map(|it| json!({ "name": format!("t{it}") })).collect();
    let mut agent = TestAgent::builder()
        .server("many", &json!({ "tools": many }))
        .file(".agents/skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\nHi.\n")
        .variable("TURNWRIGHT_MODEL", "gpt-5-mini")
        .variable("TURNWRIGHT_MODE", mode)
        .model(json!([says("Hello.")]))
        .start();
    agent.turn("hi");
    let tools = agent.model_request(0)["tools"].clone();
    let name = |it: &serde_json::Value| it["function"]["name"].as_str().unwrap().to_owned();
    tools.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn the_readme_lists_the_tools_that_there_are() {
    let (usual, planning) = (offered("ask"), offered("plan"));
    assert_eq!(promised(), usual.union(&planning).cloned().collect());
}
