//! Protected files, which other programs execute or obey: changing them requires permission in
//! every mode, and they can only be allowed once.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x" }))
}

#[test]
fn a_protected_file_requires_permission_in_every_mode_that_allows_changes() {
    for mode in ["ask", "auto-edit", "auto", "full"] {
        for path in [".git/hooks/pre-commit", ".vscode/tasks.json", ".GIT/config", ".envrc"] {
            let mut agent = TestAgent::builder()
                .variable("TURNWRIGHT_MODE", mode)
                .model(json!([write(path), says("Ok.")]))
                .start();
            let id = agent.prompt("go");
            let question = agent.wait_for_request("session/request_permission");
            agent.choose(&question, "reject_once");
            assert_eq!(agent.stop_reason(&id), "end_turn");
            assert!(!agent.path(path).exists(), "{mode} {path}");
        }
    }
}

#[test]
fn a_protected_file_can_only_be_allowed_once() {
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "full")
        .model(json!([write(".envrc"), write(".envrc"), write("a.txt"), says("Ok.")]))
        .permission("allow_always")
        .start();
    // The permission requests do not offer `allow_always`, so this answer does not allow the
    // writes.
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(&agent), 2);
    assert!(agent.path("a.txt").exists());
}
