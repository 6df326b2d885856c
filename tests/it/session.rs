//! Sessions (R-SESS): commands run in the session's folder, and identifiers are unique across processes.

use std::collections::HashSet;

use serde_json::json;
use turnwright_testing::command_lines::line_for;

use crate::agent::{TestAgent, calls, says};

#[test]
fn r_sess_3_a_session_works_in_its_own_folder() {
    // The test client starts the agent in `/`, so the agent's own folder is another one.
    let mut agent = TestAgent::builder()
        .file("deep/er/here.txt", "x")
        .permission("allow_once")
        .model(json!([
            calls("exec", &json!({ "command": line_for("pwd; ls", "cd & dir /b") })),
            says("There.")
        ]))
        .initialize();
    let cwd = agent.path("deep/er");
    let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    agent.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
    assert_eq!(agent.turn("where?"), "end_turn");
    let result = agent.model_transcript(1).pop().unwrap();
    let real = std::fs::canonicalize(&cwd).unwrap().display().to_string();
    let expected = format!("{}\nhere.txt", real.trim_start_matches(r"\\?\"));
    assert!(result.replace('\r', "").contains(&expected), "{result}");
}

#[test]
fn r_sess_1_identifiers_are_unique_within_and_across_processes() {
    let mut first = TestAgent::builder().initialize();
    let mut second = TestAgent::builder().initialize();
    let mut seen = HashSet::new();
    for _ in 0..100 {
        assert!(seen.insert(first.new_session()));
        assert!(seen.insert(second.new_session()));
    }
}
