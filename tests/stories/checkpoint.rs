//! The session store records what calls do to files: the state before and after each call, so that
//! the call can be undone.

#[cfg(unix)]
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::stored_changes::file_changes;

use crate::agent::{TestAgent, calls, says};

#[test]
fn a_tool_that_changes_files_records_the_states_before_and_after() {
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Delete File: d/b\n*** Add \
                 File: n/new\n+x\n*** End Patch";
    let table: Vec<(&str, Value, &[&str])> = vec![
        ("write_file", json!({ "path": "a", "content": "two\n" }), &[r#"a: "one\n" → "two\n""#]),
        (
            "write_file",
            json!({ "path": "x/y/z", "content": "new" }),
            &["x/y/z: absent → \"new\"", "x/y: absent → folder", "x: absent → folder"],
        ),
        (
            "edit_file",
            json!({ "path": "a", "edits": [{ "old_text": "one", "new_text": "two" }] }),
            &[r#"a: "one\n" → "two\n""#],
        ),
        (
            "edit_file",
            json!({ "path": "a", "edits": [{ "old_text": "no", "new_text": "x" }] }),
            &[],
        ),
        (
            "delete_path",
            json!({ "path": "d", "recursive": true }),
            &[
                "d/b: \"b\\n\" → absent",
                "d/e/c: \"c\\n\" 755 → absent",
                "d/e: folder → absent",
                "d/l: link b → absent",
                "d: folder → absent",
            ],
        ),
        (
            "move_path",
            json!({ "from": "d/e", "to": "f" }),
            &[
                "d/e/c: \"c\\n\" 755 → absent",
                "d/e: folder → absent",
                "f/c: absent → \"c\\n\" 755",
                "f: absent → folder",
            ],
        ),
        (
            "apply_patch",
            json!({ "patch": patch }),
            &[
                r#"a: "one\n" → "two\n""#,
                r#"d/b: "b\n" → absent"#,
                r#"n/new: absent → "x\n""#,
                "n: absent → folder",
            ],
        ),
    ];
    for (tool, arguments, expected) in table {
        let builder =
            TestAgent::builder().file("a", "one\n").file("d/b", "b\n").file("d/e/c", "c\n");
        let replies = json!([calls(tool, &arguments), says("Done.")]);
        let mut agent = builder.model(replies).permission("allow_once").start();
        #[cfg(unix)]
        symlink("b", agent.path("d/l")).unwrap();
        #[cfg(unix)]
        fs::set_permissions(agent.path("d/e/c"), fs::Permissions::from_mode(0o755)).unwrap();
        let result = cards::turn(&mut agent);
        // Windows has no mode bits, and lets only administrators make links.
        let expected = expected.iter().filter(|it| cfg!(unix) || !it.contains("link"));
        let expected: Vec<_> =
            expected.map(|it| it.replace(if cfg!(unix) { "" } else { " 755" }, "")).collect();
        assert_eq!(file_changes(&agent), expected, "{tool}: {result}");
    }
}

#[test]
fn a_file_that_is_too_large_to_keep_is_recorded_without_its_content() {
    let replies = json!([calls("delete_path", &json!({ "path": "big" })), says("Done.")]);
    let builder = TestAgent::builder().file("big", &"x".repeat(12 << 20));
    let mut agent = builder.model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    assert_eq!(file_changes(&agent), ["big: lost 12582912 → absent"]);
    let text = cards::card_text(&cards::card(&agent, 0));
    assert!(text.contains("Not restorable by /undo: big (12 MiB)"), "{text}");
}

#[test]
fn a_change_is_recorded_before_the_client_writes_the_file() {
    let fs = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let write = calls("write_file", &json!({ "path": "a", "content": "two\n" }));
    let builder = TestAgent::builder().file("a", "saved\n").capabilities(fs);
    let builder = builder.model(json!([write, says("Done.")])).permission("allow_once");
    let mut agent = builder.start();
    let id = agent.prompt("go");
    let shown = json!({ "content": "not saved\n" });
    let mut written = false;
    while !written {
        let request = agent.wait_for("a request about a file", |message| {
            message["method"].as_str().is_some_and(|it| it.starts_with("fs/"))
        });
        written = request["method"] == "fs/write_text_file";
        if written {
            // The recorded state before the write is the unsaved text, not the text on the disk.
            assert_eq!(file_changes(&agent), [r#"a: "not saved\n" → lost 4"#]);
            agent.respond(&request, &json!(null));
        } else {
            agent.respond(&request, &shown);
        }
    }
    let request = agent.wait_for_request("fs/read_text_file");
    agent.respond(&request, &json!({ "content": "two\n" }));
    agent.stop_reason(&id);
    assert_eq!(agent.read("a"), "saved\n");
    assert_eq!(file_changes(&agent), [r#"a: "not saved\n" → "two\n""#]);
}
