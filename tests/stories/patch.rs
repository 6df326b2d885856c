//! `apply_patch`: it changes several files at once, all or none. Only models that are trained on it
//! are offered it.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn patch(body: &str) -> serde_json::Value {
    json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch\n") })
}

#[test]
fn a_patch_adds_changes_moves_and_deletes() {
    let builder = TestAgent::builder()
        .file("a.txt", "one\ntwo\n")
        .file("b.txt", "gone\n")
        .file("c.txt", "three\n");
    let body = "*** Update File: a.txt\n one\n-two\n+2\n*** Delete File: b.txt\n*** Update File: \
                c.txt\n*** Move to: d/c.txt\n@@\n-three\n+3\n*** Add File: e.txt\n+new\n";
    let (agent, result) = cards::run(builder, "apply_patch", &patch(body));
    assert_eq!((agent.read("a.txt").as_str(), agent.read("d/c.txt").as_str()), ("one\n2\n", "3\n"));
    assert_eq!(agent.read("e.txt"), "new\n");
    assert!(!agent.path("b.txt").exists() && !agent.path("c.txt").exists());
    assert!(
        result.starts_with("Applied the patch to 4 files (+3 −2).\nUpdated a.txt (+1 −1)."),
        "{result}"
    );
    assert!(result.contains("Deleted b.txt.\nMoved c.txt to d/c.txt (+1 −1)."), "{result}");
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "Patch 4 files (+3 −2)");
    let diffs = card["content"].as_array().unwrap();
    assert_eq!(diffs.len(), 4);
    assert!(diffs.iter().all(|it| it["type"] == "diff"), "{diffs:?}");
    assert_eq!(cards::questions(&agent), 1);
}

#[test]
fn a_file_may_come_twice_in_a_patch() {
    let builder = TestAgent::builder()
        .file("a", "one\ntwo\n")
        .file("b", "old\r\nunterminated")
        .file("c", "x\n");
    let body = "*** Update File: a\n-one\n+1\n*** Delete File: b\n*** Add File: b\n+new\n\
                *** Delete File: c\n*** Add File: c\n*** Update File: a\n-two\n+2\n";
    let (agent, result) = cards::run(builder, "apply_patch", &patch(body));
    assert!(result.starts_with("Applied the patch to 3 files (+3 −5).\n"), "{result}");
    assert_eq!(["a", "b", "c"].map(|name| agent.read(name)), ["1\n2\n", "new\r\n", ""]);
}

#[test]
fn a_file_that_was_not_read_is_not_replaced_by_a_patch() {
    let long = "old\n".repeat(2000);
    for (name, before) in [(".env", "KEY=1\n"), ("long", &long)] {
        let body = format!("*** Delete File: {name}\n*** Add File: {name}\n+KEY=2\n");
        let builder = TestAgent::builder().file(name, before);
        let (agent, result) = cards::run(builder, "apply_patch", &patch(&body));
        assert!(result.contains("has text that you have not read"), "{result}");
        assert_eq!(agent.read(name), before);
    }
}

#[test]
fn one_wrong_hunk_prevents_all_changes() {
    let builder = TestAgent::builder().file("a", "one\n").file("b", "x\ny\nx\n");
    let body = "*** Update File: a\n-one\n+1\n*** Update File: b\n-x\n+z\n";
    let (agent, result) = cards::run(builder, "apply_patch", &patch(body));
    assert!(
        result.contains("The hunk at line 6 of the patch matches 2 places: lines 1, 3."),
        "{result}"
    );
    assert_eq!((agent.read("a").as_str(), agent.read("b").as_str()), ("one\n", "x\ny\nx\n"));
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_file_that_cannot_be_written_reverts_the_files_before_it() {
    // The last part needs a folder `new`, but the first part creates a file of that name.
    let body = "*** Add File: new\n+x\n*** Update File: a\n-one\n+1\n*** Add File: new/below\n+y\n";
    let builder = TestAgent::builder().file("a", "one\n");
    let (agent, result) = cards::run(builder, "apply_patch", &patch(body));
    assert!(result.contains("No file was changed."), "{result}");
    assert_eq!(agent.read("a"), "one\n");
    assert_eq!(fs::read_dir(agent.workspace()).unwrap().count(), 1);
}

#[test]
fn a_reverted_deletion_restores_the_same_file() {
    let body = "*** Delete File: a\n*** Add File: new\n+x\n*** Add File: new/below\n+y\n";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([calls("apply_patch", &patch(body)), says("Done.")]))
        .start();
    let bytes = b"\xff\xfeo\0n\0e\0";
    fs::write(agent.path("a"), bytes).unwrap();
    #[cfg(unix)]
    fs::set_permissions(agent.path("a"), fs::Permissions::from_mode(0o751)).unwrap();
    #[cfg(unix)]
    let before = fs::metadata(agent.path("a")).unwrap();
    let result = cards::turn(&mut agent);
    assert!(result.contains("No file was changed."), "{result}");
    assert_eq!(fs::read(agent.path("a")).unwrap(), bytes);
    #[cfg(unix)]
    {
        let after = fs::metadata(agent.path("a")).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    }
    assert_eq!(fs::read_dir(agent.workspace()).unwrap().count(), 1);
}

#[test]
fn apply_patch_is_offered_only_to_models_that_are_trained_on_it() {
    for (model, expected) in [("gpt-5.1-codex", true), ("some-model", false)] {
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_MODEL", model)
            .model(json!([says("Hello.")]))
            .start();
        agent.turn("go");
        let body = agent.model_request(0);
        let tools = body["tools"].as_array().unwrap();
        let has = tools.iter().any(|it| it["function"]["name"] == "apply_patch");
        assert_eq!(has, expected, "{model}");
    }
}

#[test]
fn a_patch_in_a_command_line_runs_as_the_tool() {
    let text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+it's $1\n*** End Patch";
    let document = format!("apply_patch <<'EOF'\n{text}\nEOF\n");
    for (name, arguments, path, rest) in [
        ("exec", json!({ "command": document }), "a.txt", ""),
        ("shell", json!({ "command": ["apply_patch", text] }), "a.txt", ""),
        ("exec", json!({ "arguments": { "cmd": document, "cwd": "sub" } }), "sub/a.txt", ""),
        ("bash", json!({ "command": ["bash", "-lc", document] }), "a.txt", ""),
        ("exec", json!({ "command": format!("cd sub && {document}") }), "sub/a.txt", ""),
        ("exec", json!({ "command": document, "workdir": "sub\n" }), "sub/a.txt", ""),
        ("exec", json!({ "command": format!("{document}ls -la") }), "a.txt", "[Not run: ls -la."),
    ] {
        let builder = TestAgent::builder().file("a.txt", "one\n").file("sub/a.txt", "one\n");
        let (agent, result) = cards::run(builder, name, &arguments);
        let expected = format!("Applied the patch to 1 file (+1 −1).\nUpdated {path} (+1 −1).");
        assert!(result.starts_with(&expected) && result.contains(rest), "{arguments}: {result}");
        assert_eq!(agent.read(path), "it's $1\n", "{arguments}");
        let card = cards::card(&agent, 0);
        assert_eq!((&card["name"], &card["kind"]), (&json!("apply_patch"), &json!("edit")));
        let question = agent.log.iter().find(|it| it["method"] == "session/request_permission");
        let diff = &question.unwrap()["params"]["toolCall"]["content"][0];
        let expected = json!({ "type": "diff", "path": agent.path(path), "oldText": "one\n",
            "newText": "it's $1\n" });
        assert_eq!(*diff, expected, "{arguments}");
    }
}

#[test]
fn a_patch_in_a_command_line_is_judged_as_the_edits_that_it_makes() {
    let text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+1\n*** End Patch";
    let arguments = json!({ "command": format!("apply_patch <<'EOF'\n{text}\nEOF\n") });
    let denied = "[permissions]\ndeny = [\"edit(/a.txt)\"]\nallow = [\"exec\"]\n";
    for (config, mode, questions, written) in [
        (denied, "full", 0, "one\n"),
        ("", "plan", 0, "one\n"),
        ("", "auto-edit", 0, "1\n"),
        ("", "ask", 1, "1\n"),
    ] {
        let builder = TestAgent::builder()
            .file("a.txt", "one\n")
            .own_file("config/config.toml", config)
            .variable("TURNWRIGHT_MODE", mode);
        let (agent, result) = cards::run(builder, "exec", &arguments);
        assert_eq!(agent.read("a.txt"), written, "{mode}: {result}");
        assert_eq!(cards::questions(&agent), questions, "{mode}: {result}");
    }
}

#[test]
fn a_patch_in_a_command_line_can_be_undone() {
    let text = "*** Begin Patch\n*** Add File: new/a.txt\n+x\n*** End Patch";
    let line = format!("mkdir -p new && apply_patch <<'EOF'\n{text}\nEOF\n");
    let (mut agent, result) = cards::run(TestAgent::builder(), "exec", &json!({ "command": line }));
    assert!(result.contains("Added new/a.txt") && !result.contains("Not run"), "{result}");
    assert_eq!(agent.read("new/a.txt"), "x\n");
    agent.turn("/undo");
    assert!(!agent.path("new/a.txt").exists());
}
