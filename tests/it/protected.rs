//! Protected files: a tool call that changes them asks, even in `auto` mode.

use serde_json::json;

use crate::agent::{TestAgent, calls, says};

#[test]
fn changing_moving_or_deleting_protected_files_asks() {
    let tool_calls = [
        calls("delete_path", &json!({ "path": ".github", "recursive": true })),
        calls("move_path", &json!({ "from": ".github", "to": "away" })),
        calls("move_path", &json!({ "from": "notes", "to": ".git/hooks/post-commit" })),
        calls("exec", &json!({ "command": "echo x > .git/hooks/post-commit", "escalate": "full" })),
    ];
    for tool_call in tool_calls {
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_MODE", "auto")
            .file(".git/config", "")
            .file(".github/workflows/ci.yml", "")
            .file("notes", "")
            .model(json!([tool_call, says("Ok.")]))
            .start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(agent.path(".git/config").exists() && agent.path("notes").exists(), "{tool_call}");
    }
}
