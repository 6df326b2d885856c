//! A call with an invalid part writes nothing at all, whichever tool it is for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, calls, says};

/// All entries below a folder, with their contents and modification times.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let written = fs::symlink_metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            entries.extend(tree(&path));
            entries.insert(path, (Vec::new(), written));
        } else {
            entries.insert(path.clone(), (fs::read(&path).unwrap(), written));
        }
    }
    entries
}

fn edits(path: &str, edits: &[(&str, &str)]) -> Value {
    let edit = |it: &(&str, &str)| json!({ "old_text": it.0, "new_text": it.1 });
    json!({ "path": path, "edits": edits.iter().map(edit).collect::<Vec<_>>() })
}

fn patch(body: &str) -> Value {
    json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") })
}

/// Calls that must not change anything. Each has one error, and would otherwise be valid.
fn invalid_calls() -> Vec<(&'static str, Value)> {
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    vec![
        ("write_file", json!({ "path": "new" })),
        ("write_file", json!({ "content": "x" })),
        ("write_file", json!({ "path": "", "content": "x" })),
        ("write_file", json!({ "path": "new", "content": "x", "mode": "prepend" })),
        ("write_file", json!({ "path": "new", "content": ["x", "y"] })),
        ("write_file", json!({ "path": ["new", "other"], "content": "x" })),
        ("write_file", json!({ "path": "a", "content": "// ... existing code ...\n" })),
        ("write_file", json!({ "path": "folder", "content": "x" })),
        ("write_file", json!({ "path": "a/below", "content": "x" })),
        ("write_file", json!({ "path": "nul\0", "content": "x" })),
        ("write_file", json!("{\"path\": \"new\", \"content\": \"half")),
        ("write_file", json!("{\"path\": \"new\", \"content\": \"x\"} and so on")),
        ("write_file", json!(format!("{{\"path\":\"new\",\"content\":{deep}}}"))),
        ("edit_file", edits("a", &[])),
        ("edit_file", edits("a", &[("one", "1"), ("missing", "x")])),
        ("edit_file", edits("a", &[("missing", "x"), ("one", "1")])),
        ("edit_file", edits("a", &[("one", "1"), ("one", "1")])),
        ("edit_file", edits("a", &[("one", "1"), ("", "x")])),
        ("edit_file", edits("a", &[("one", "1"), ("two", "two")])),
        ("edit_file", edits("a", &[("one", "1"), ("two", "# ... rest of code unchanged")])),
        ("edit_file", edits("none", &[("one", "1")])),
        ("edit_file", edits("folder", &[("one", "1")])),
        ("edit_file", edits("binary", &[("one", "1")])),
        ("edit_file", json!({ "path": "a", "edits": [{ "old_text": "one", "new_text": 5.5 }, 7] })),
        ("edit_file", json!({ "path": "a", "edits": [{ "new_text": "x" }] })),
        (
            "edit_file",
            json!("{\"path\":\"a\",\"edits\":[{\"old_text\":\"one\",\"new_text\":\"1\"}"),
        ),
        ("apply_patch", patch("*** Update File: a\n-one\n+1\n*** Update File: none\n-x\n+y\n")),
        ("apply_patch", patch("*** Add File: new\n+x\n*** Add File: a\n+x\n")),
        ("apply_patch", patch("*** Add File: new\n+x\n*** Delete File: none\n")),
        ("apply_patch", patch("*** Update File: a\n-one\n+1\n-missing\n+x\n")),
        ("apply_patch", json!({ "patch": "*** Begin Patch\n*** Add File: new\n+x\n" })),
        ("apply_patch", json!({ "patch": "+x" })),
        ("move_path", json!({ "from": "a" })),
        ("move_path", json!({ "from": "none", "to": "x" })),
        ("move_path", json!({ "from": "a", "to": "b" })),
        ("move_path", json!({ "from": "folder", "to": "folder/sub/x" })),
        ("delete_path", json!({ "path": "none" })),
        ("delete_path", json!({ "path": "folder" })),
        ("delete_path", json!({ "path": "a", "recursive": "perhaps" })),
        ("delete_path", json!({ "path": "." , "recursive": true })),
        ("memory", json!({ "action": "write", "name": "x" })),
        ("memory", json!({ "action": "write", "name": "../../a", "content": "x" })),
        ("memory", json!({ "action": "forget", "name": "x", "content": "x" })),
        ("memory", json!({ "action": "write", "scope": "world", "name": "x", "content": "x" })),
        ("exec", json!({ "command": "touch new", "timeout": "soon" })),
        ("exec", json!({ "command": "touch new", "background": "perhaps" })),
        ("exec", json!({ "command": "touch new", "workdir": "none" })),
        ("exec", json!("{\"command\": \"touch new")),
        ("exec", json!({ "command": "touch new\0" })),
        ("functions.exec.more", json!({ "command": "touch new" })),
    ]
}

fn project() -> TestAgent {
    let agent = TestAgent::builder()
        .file("a", "one\ntwo\n")
        .file("b", "other\n")
        .file("folder/sub/c", "deep\n")
        .permission("allow_once")
        .start();
    fs::write(agent.path("binary"), b"one\0").unwrap();
    agent
}

#[test]
fn an_invalid_call_fails_and_changes_nothing() {
    let mut agent = project();
    let before = tree(agent.workspace());
    for (number, (name, arguments)) in invalid_calls().iter().enumerate() {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Sorry.")).unwrap();
        let result = cards::turn(&mut agent);
        let case: String = format!("{name} {arguments}: {result}").chars().take(2_000).collect();
        assert_eq!(cards::card(&agent, number)["status"], "failed", "{case}");
        assert!(!result.trim().is_empty() && result.len() < 4_000, "{case}");
        assert!(tree(agent.workspace()) == before, "{case}");
    }
    let requests = agent.log.iter().filter(|it| it["method"] == "session/request_permission");
    let requests: Vec<_> =
        requests.map(|it| it["params"]["toolCall"]["rawInput"].to_string()).collect();
    assert!(requests.is_empty(), "{requests:?}");
}

#[test]
fn invalid_calls_do_not_keep_a_valid_call_from_running() {
    let mut agent = project();
    let mut before = tree(agent.workspace());
    let mut reply: Vec<_> =
        invalid_calls().iter().map(|(name, arguments)| call(name, arguments)).collect();
    reply.truncate(30);
    reply.push(call("write_file", &json!({ "path": "b", "content": "good\n" })));
    agent.model().push(json!(reply)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(&mut agent);
    let results = cards::results(&agent, 1);
    assert_eq!(results.len(), reply.len());
    assert!(results[30].starts_with("Replaced b"), "{}", results[30]);
    assert_eq!(agent.read("b"), "good\n");
    let mut after = tree(agent.workspace());
    for tree in [&mut before, &mut after] {
        tree.remove(&agent.path("b"));
    }
    assert!(before == after, "{:?}", after.keys());
}

#[test]
fn in_plan_mode_a_tool_of_a_server_writes_nothing() {
    let scenario = json!({
        "tools": [{ "name": "save" }],
        "answers": { "save": [{ "write": ["new", "x"] }, { "text": "saved" }] },
    });
    let mut agent = TestAgent::builder()
        .file("a", "one\n")
        .server("notes", &scenario)
        .permission("allow_once")
        .model(json!([calls("mcp__notes__save", &json!({})), says("Done.")]))
        .start();
    let params = json!({ "sessionId": agent.session, "modeId": "plan" });
    agent.call("session/set_mode", &params);
    let before = tree(agent.workspace());
    let result = cards::turn(&mut agent);
    assert!(result.contains("Plan mode"), "{result}");
    assert_eq!(cards::questions(&agent), 0);
    assert!(tree(agent.workspace()) == before);
}
