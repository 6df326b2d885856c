//! What calls do to files is written down: what was there before and what is there after, so that
//! it can be undone.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, eventually, says};
use crate::cards;
use crate::ended;

fn store(agent: &TestAgent) -> Connection {
    let path = agent.home().join("state/sessions.db");
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// What has become of which file, in order: `path: before → after`.
fn changes(agent: &TestAgent) -> Vec<String> {
    let store = store(agent);
    let mut all = store
        .prepare("SELECT path, before, after FROM file_versions ORDER BY turn, id, path")
        .unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        let (path, before): (String, String) = (row.get(0)?, row.get(1)?);
        let after: Option<String> = row.get(2)?;
        let root = fs::canonicalize(agent.workspace()).unwrap();
        let path =
            path.strip_prefix(root.to_str().unwrap()).map_or(&*path, |it| &it[1..]).to_owned();
        let after = after.map_or("?".to_owned(), |it| state(&store, &it));
        Ok(format!("{path}: {} → {after}", state(&store, &before)))
    };
    let mut all: Vec<_> = all.query_map([], row).unwrap().map(Result::unwrap).collect();
    all.sort();
    all
}

/// A state in a word. A file is its text if that is kept, and its hash if not.
fn state(store: &Connection, state: &str) -> String {
    let state: Value = serde_json::from_str(state).unwrap();
    if let Some(name) = state.as_str() {
        return name.to_owned();
    }
    let file = &state["file"];
    if file.is_object() {
        let hash = file["hash"].as_str().unwrap();
        assert_eq!(hash.len(), 64);
        let mode = match file["mode"].as_u64().unwrap() {
            0o644 => String::new(),
            mode => format!(" {mode:o}"),
        };
        if file["is_kept"] == false {
            return format!("lost {}{mode}", file["size"]);
        }
        let bytes: Vec<u8> = store
            .query_row("SELECT bytes FROM blobs WHERE lower(hex(hash)) = ?", [hash], |it| it.get(0))
            .unwrap_or_else(|_| panic!("the bytes are not there: {state}"));
        assert_eq!(file["size"], bytes.len());
        return format!("{:?}{mode}", String::from_utf8_lossy(&bytes));
    }
    match (state["link"]["target"].as_str(), state["unknown"]["why"].as_str()) {
        (Some(target), _) => format!("link {target}"),
        (_, Some(why)) => format!("unknown {why}"),
        _ => "folder".to_owned(),
    }
}

#[test]
fn a_tool_that_changes_files_leaves_what_was_there_and_what_is() {
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
        symlink("b", agent.path("d/l")).unwrap();
        fs::set_permissions(agent.path("d/e/c"), fs::Permissions::from_mode(0o755)).unwrap();
        let result = cards::turn(&mut agent);
        assert_eq!(changes(&agent), expected, "{tool}: {result}");
    }
}

#[test]
fn what_a_command_has_changed_is_found() {
    let table: &[(&str, &[&str])] = &[
        ("sed -i s/one/two/ a", &[r#"a: "one\n" → "two\n""#]),
        ("echo two >> a", &[r#"a: "one\n" → "one\ntwo\n""#]),
        ("rm -r d", &["d/b: \"b\\n\" → absent", "d/l: link b → absent", "d: folder → absent"]),
        ("mkdir n; echo x > n/.new", &[r#"n/.new: absent → "x\n""#, "n: absent → folder"]),
        ("chmod +x a", &[r#"a: "one\n" → "one\n" 755"#]),
        ("mv a z", &[r#"a: "one\n" → absent"#, r#"z: absent → "one\n""#]),
        ("ln -sf a d/l", &["d/l: link b → link a"]),
        ("rm a; mkdir a", &[r#"a: "one\n" → folder"#]),
        ("echo two > a; echo one > a; touch d; echo x > ignored; rm was-ignored", &[]),
        ("rm .gitignore", &[".gitignore: \"*ignored\\n\" → absent"]),
        (
            "mv d n; ln -s n d",
            &[
                "d/b: \"b\\n\" → absent",
                "d/l: link b → absent",
                "d: folder → link n",
                "n/b: absent → \"b\\n\"",
                "n/l: absent → link b",
                "n: absent → folder",
            ],
        ),
        ("mv was-ignored n", &["n: unknown moved here from an untracked place → \"x\""]),
        ("cat a", &[]),
        ("echo x > .env", &[".env: unknown may hold secrets → lost 2"]),
    ];
    for (command, expected) in table {
        let builder =
            TestAgent::builder().file("a", "one\n").file("d/b", "b\n").file(".env", "K=1");
        let builder = builder.file(".gitignore", "*ignored\n").file("was-ignored", "x");
        let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
        let mut agent = builder.model(replies).permission("allow_once").start();
        symlink("b", agent.path("d/l")).unwrap();
        let result = cards::turn(&mut agent);
        assert_eq!(changes(&agent), *expected, "{command}: {result}");
    }
}

#[test]
fn calls_of_one_turn_see_what_those_before_have_left() {
    let write = calls("write_file", &json!({ "path": "a", "content": "two\n" }));
    let exec = |command: &str| calls("exec", &json!({ "command": command }));
    let replies =
        json!([exec("echo x > b"), write, exec("echo y > b; echo three > a"), says("Done.")]);
    let builder = TestAgent::builder().file("a", "one\n").model(replies);
    let mut agent = builder.permission("allow_once").start();
    cards::turn(&mut agent);
    let expected = [
        r#"a: "one\n" → "two\n""#,
        r#"a: "two\n" → "three\n""#,
        r#"b: "x\n" → "y\n""#,
        r#"b: absent → "x\n""#,
    ];
    assert_eq!(changes(&agent), expected);
}

#[test]
fn what_cannot_be_brought_back_is_said_at_once() {
    let command = "echo x >> big; echo y > small";
    let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
    let builder = TestAgent::builder().file("big", &"x".repeat(12 << 20)).file("small", "x");
    let mut agent = builder.model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    let expected = ["big: unknown 12 MB → lost 12582914", r#"small: "x" → "y\n""#];
    assert_eq!(changes(&agent), expected);
    let text = cards::card_text(&cards::card(&agent, 0));
    assert!(text.contains("Not restorable by /undo: big (12 MB). Files that"), "{text}");
}

#[test]
fn a_file_that_is_too_large_to_be_kept_is_known_by_its_hash() {
    let replies = json!([calls("delete_path", &json!({ "path": "big" })), says("Done.")]);
    let builder = TestAgent::builder().file("big", &"x".repeat(12 << 20));
    let mut agent = builder.model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    assert_eq!(changes(&agent), ["big: lost 12582912 → absent"]);
    let text = cards::card_text(&cards::card(&agent, 0));
    assert!(text.contains("Not restorable by /undo: big (12 MB)"), "{text}");
}

#[test]
fn what_git_has_checked_out_over_is_known() {
    let replies =
        json!([calls("exec", &json!({ "command": "git checkout -q old" })), says("Done.")]);
    let builder = TestAgent::builder().file("a", "one\n").model(replies);
    let mut agent = builder.permission("allow_once").start();
    let git = "git init -q . && git add . && git -c user.name=n -c user.email=e commit -qm 1 && \
               git branch old && echo two > a && echo b > b && git add . && \
               git -c user.name=n -c user.email=e commit -qm 2";
    let mut shell = std::process::Command::new("sh");
    let made = ended::status(shell.args(["-c", git]).current_dir(agent.workspace()));
    assert!(made.unwrap().success());
    let result = cards::turn(&mut agent);
    let expected = [r#"a: "two\n" → "one\n""#, r#"b: "b\n" → absent"#];
    assert_eq!(changes(&agent), expected, "{result}");
}

#[test]
fn a_command_that_goes_on_counts_until_its_turn_ends() {
    let command =
        "echo 1 > a; while [ ! -e go ]; do sleep 0.01; done; echo 2 > b; echo 3 > c; sleep 60";
    let exec = calls("exec", &json!({ "command": command, "background": true }));
    let wait = calls("exec", &json!({ "command": "cat a" }));
    let write = calls("write_file", &json!({ "path": "go", "content": "" }));
    let look = calls("exec_output", &json!({ "id": "p1", "wait": 1 }));
    let replies = json!([exec, wait, write, look, says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    let id = agent.prompt("go");
    agent.stop_reason(&id);
    let expected = [
        r#"a: absent → "1\n""#,
        r#"b: absent → "2\n""#,
        r#"c: absent → "3\n""#,
        r#"go: absent → """#,
    ];
    assert_eq!(changes(&agent), expected);
}

#[test]
fn the_intent_says_what_was_there_and_what_is_going_to_be() {
    let fs = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let write = calls("write_file", &json!({ "path": "a", "content": "two\n" }));
    let builder = TestAgent::builder().file("a", "saved\n").capabilities(fs);
    let builder = builder.model(json!([write, says("Done.")])).permission("allow_once");
    let mut agent = builder.start();
    let id = agent.prompt("go");
    let shown = json!({ "content": "not saved\n" });
    let mut written = false;
    while !written {
        let request = agent.wait_for("a request about a file", |it| {
            it["method"].as_str().is_some_and(|it| it.starts_with("fs/"))
        });
        written = request["method"] == "fs/write_text_file";
        if written {
            // The user's unsaved words, and not what is on the disk.
            assert_eq!(changes(&agent), [r#"a: "not saved\n" → lost 4"#]);
            agent.respond(&request, &json!(null));
        } else {
            agent.respond(&request, &shown);
        }
    }
    let request = agent.wait_for_request("fs/read_text_file");
    agent.respond(&request, &json!({ "content": "two\n" }));
    agent.stop_reason(&id);
    assert_eq!(agent.read("a"), "saved\n");
    assert_eq!(changes(&agent), [r#"a: "not saved\n" → "two\n""#]);
}

#[test]
fn what_a_cancelled_command_has_done_is_found_too() {
    let exec = calls("exec", &json!({ "command": "echo x > a; sleep 60" }));
    let builder = TestAgent::builder().file("b", "").model(json!([exec]));
    let mut agent = builder.permission("allow_once").start();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    eventually("the command has begun", || agent.path("a").exists());
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    eventually("it is written down", || changes(&agent) == [r#"a: absent → "x\n""#]);
}
