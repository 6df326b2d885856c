//! `docs/tools.md` lists exactly the tools that the model is offered.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use crate::agent::{TestAgent, says};

/// The names in the first column of the first table of `docs/tools.md`.
fn documented_tools() -> BTreeSet<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tools.md")).unwrap();
    let section = page.split("\n## ").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    section.lines().filter_map(name).collect()
}

/// The tools that the model is offered in a mode. The model, the project's skill and the large MCP
/// server are chosen so that the optional tools are among them.
fn offered_tools(mode: &str) -> BTreeSet<String> {
    let many: Vec<_> = (0..41).map(|it| json!({ "name": format!("t{it}") })).collect();
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", "[web]\nsearch = 'ollama'\n")
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
fn the_documentation_lists_the_tools_that_are_offered() {
    let mut offered = offered_tools("ask");
    offered.extend(offered_tools("plan"));
    // These are offered while a language server is ready.
    offered.extend(["definition", "rename_symbol"].map(str::to_owned));
    assert_eq!(documented_tools(), offered);
}
