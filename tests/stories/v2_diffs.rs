//! How version 2 of the protocol shows files that are moved and deleted (R-TWO-12).

use serde_json::{Value, json};
use turnwright_testing::session_requests::result;

use crate::agent::{TestAgent, calls, says};

/// The changes of the last card that shows some, with its patches.
fn shown(agent: &TestAgent) -> Vec<(Value, String)> {
    let is_diff = |it: &Value| it["content"][0]["type"] == "diff";
    let card = agent.updates().into_iter().rfind(is_diff).expect("a card with changes");
    let content = card["content"].as_array().unwrap().clone();
    let text = |it: &Value| it["patch"]["text"].as_str().unwrap().to_owned();
    let changed = content.iter().filter(|it| it["type"] == "diff");
    changed.map(|it| (it["changes"].clone(), text(it))).collect()
}

#[test]
fn v2_tool_calls_say_which_files_are_moved_and_deleted() {
    let patch = "*** Begin Patch\n*** Delete File: a.txt\n*** Update File: b.txt\n\
        *** Move to: c.txt\n@@\n-one\n+two\n*** End Patch\n";
    let mut agent = TestAgent::builder()
        .v2()
        .file("a.txt", "old\n")
        .file("b.txt", "one\n")
        .model(json!([calls("apply_patch", &json!({ "patch": patch })), says("Done.")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(!agent.path("a.txt").exists() && !agent.path("b.txt").exists());
    let path = |name: &str| agent.path(name).to_str().unwrap().to_owned();
    // A patch has `/` on Windows, too.
    let [a, b, c] = ["a.txt", "b.txt", "c.txt"].map(|it| path(it).replace('\\', "/"));
    let deleted = (
        json!([{ "operation": "delete", "path": path("a.txt"), "fileType": "text" }]),
        format!(
            "diff --git {a} {a}\ndeleted file mode 100644\n--- {a}\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
        ),
    );
    let moved = (
        json!([{ "operation": "move", "oldPath": path("b.txt"), "path": path("c.txt"), "fileType": "text" }]),
        format!(
            "diff --git {b} {c}\nrename from {b}\nrename to {c}\n--- {b}\n+++ {c}\n@@ -1 +1 @@\n-one\n+two\n"
        ),
    );
    assert_eq!(shown(&agent), [deleted, moved]);

    // A replay shows the same.
    let live = shown(&agent);
    agent.restart();
    let params = json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    assert_eq!(shown(&agent), live);
}

#[test]
fn v2_tool_calls_show_that_an_undo_deletes_what_was_added() {
    let write = calls("write_file", &json!({ "path": "new.txt", "content": "new\n" }));
    let replies = json!([write, says("Done.")]);
    let mut agent = TestAgent::builder().v2().model(replies).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(shown(&agent)[0].0[0]["operation"], "add");
    assert_eq!(agent.turn("/undo"), "end_turn");
    assert!(!agent.path("new.txt").exists());
    assert_eq!(shown(&agent)[0].0[0]["operation"], "delete");
}
