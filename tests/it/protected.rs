//! Protected places and commands that would remove them.

use serde_json::json;

use crate::agent::{TestAgent, calls, says};

#[test]
fn removing_or_moving_a_folder_that_holds_one_asks_too() {
    let deeds = [
        calls("delete_path", &json!({ "path": ".github", "recursive": true })),
        calls("move_path", &json!({ "from": ".github", "to": "away" })),
        calls("move_path", &json!({ "from": "notes", "to": ".git/hooks/post-commit" })),
        calls("exec", &json!({ "command": "echo x > .git/hooks/post-commit", "escalate": "full" })),
    ];
    for deed in deeds {
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_MODE", "auto")
            .file(".git/config", "")
            .file(".github/workflows/ci.yml", "")
            .file("notes", "")
            .model(json!([deed, says("Ok.")]))
            .start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(agent.path(".git/config").exists() && agent.path("notes").exists(), "{deed}");
    }
}
