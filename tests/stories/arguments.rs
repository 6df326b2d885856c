//! The arguments of tool calls: the names and values that models write, and the previews that a
//! card shows while arguments stream.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, says};

#[test]
fn unknown_arguments_are_ignored_and_named_in_the_result() {
    let builder = || TestAgent::builder().file("a", "1\n");
    let arguments = json!({ "path": "a", "colour": 5, "encoding": "utf-8", "offset": null });
    let (_, result) = cards::run(builder(), "read_file", &arguments);
    assert_eq!(result, "[File: a | Lines: 1]\n    1| 1\n[ignored: colour, encoding]");
    let arguments = json!({ "path": "b", "foo": 1 });
    let (_, result) = cards::run(builder(), "read_file", &arguments);
    assert!(result.ends_with("\n[ignored: foo]"), "{result}");
}

#[test]
fn tool_names_of_other_agents_are_accepted() {
    for (name, arguments, expected) in [
        ("Read", json!({ "file_path": "a" }), "    1| 1\n"),
        ("functions.readFile:0", json!({ "filePath": "a" }), "    1| 1\n"),
        ("LS", json!({ "directory": "." }), "a (2 B)\n"),
        ("Write", json!({ "file_path": "b", "contents": "x" }), "Created b: 1 lines, 1 bytes."),
        ("Bash", json!({ "cmd": "echo hi" }), "hi\n"),
    ] {
        let builder = TestAgent::builder().file("a", "1\n");
        let (agent, result) = cards::run(builder, name, &arguments);
        assert!(result.contains(expected), "{name}: {result}");
        // Without a sandbox, each command is asked about.
        let needs_permission = name == "Write" || name == "Bash" && cfg!(windows);
        assert_eq!(cards::questions(&agent), usize::from(needs_permission), "{name}");
        let card = cards::card(&agent, 0);
        assert_eq!(card["status"], "completed");
        assert_ne!(card["name"], name, "the card must have our name of the tool");
    }
}

#[test]
fn everything_that_looks_at_a_call_sees_the_arguments_that_its_tool_understands() {
    let meant = json!({ "command": "echo hi" });
    for sent in [json!({ "cmd": "echo hi" }), json!({ "name": "exec", "arguments": meant })] {
        let (agent, result) = cards::run(TestAgent::builder(), "exec", &sent);
        assert!(result.contains("hi\n"), "{sent}: {result}");
        assert_eq!(cards::card(&agent, 0)["rawInput"], meant, "{sent}");
        let request = agent.model_request(1);
        let mut messages = request["messages"].as_array().unwrap().iter();
        let answer = messages.find(|message| message["tool_calls"].is_array()).unwrap();
        let kept = answer["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(kept).unwrap(), meant, "{sent}");
    }
}

#[test]
fn an_error_names_the_wrong_argument_and_lists_the_valid_ones() {
    let arguments = json!({ "command": "true", "timeout": "soon" });
    let (agent, result) = cards::run(TestAgent::builder(), "exec", &arguments);
    let expected = "Invalid arguments for exec: `timeout` must be a whole number, not \"soon\". \
                    Nothing was executed. It takes: command (required), timeout";
    assert!(result.starts_with(expected), "{result}");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_long_content_is_previewed_while_it_streams_and_shown_whole_at_the_end() {
    let lines: Vec<_> = (0..400).map(|it| format!("line {it} \"é😀\"\n")).collect();
    let content = lines.concat();
    let step = json!({ "call": { "name": "write_file",
        "arguments": { "path": "src/a.txt", "content": content }, "pieces": 60, "every_ms": 40 } });
    let mut agent =
        TestAgent::builder().model(json!([[step], says("Done.")])).permission("allow_once").start();
    cards::turn(&mut agent);
    let is_progress = |update: &Value| {
        let title = update["title"].as_str().unwrap_or_default();
        update["status"] == "pending"
            && title.starts_with("Write src/a.txt · ")
            && title.ends_with(" lines…")
    };
    let progress: Vec<_> = agent.updates().into_iter().filter(is_progress).collect();
    assert!(!progress.is_empty(), "no update has shown the progress");
    let mut previews = 0;
    for diff in progress.iter().filter_map(|it| it["content"][0].as_object()) {
        previews += 1;
        assert_eq!(
            (&diff["type"], &diff["path"]),
            (&json!("diff"), &json!(agent.path("src/a.txt")))
        );
        assert!(content.starts_with(diff["newText"].as_str().unwrap()));
    }
    assert!(previews > 0, "no update has shown a preview");
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "Create src/a.txt");
    assert_eq!(
        (&card["content"][0]["newText"], agent.read("src/a.txt")),
        (&json!(content), content)
    );
}

#[test]
fn an_edit_is_previewed_while_it_streams_with_the_text_that_it_replaces() {
    let new: Vec<_> = (0..200).map(|it| format!("line {it}\n")).collect();
    let arguments = json!({ "path": "a.txt",
        "edits": [{ "old_text": "one\n", "new_text": new.concat() }] });
    let step = json!({ "call": { "name": "edit_file", "arguments": arguments,
        "pieces": 60, "every_ms": 40 } });
    let mut agent = TestAgent::builder()
        .file("a.txt", "one\ntwo\n")
        .model(json!([[step], says("Done.")]))
        .permission("allow_once")
        .start();
    cards::turn(&mut agent);
    let updates = agent.updates();
    let preview = updates.iter().find(|update| {
        let is_progress = update["title"]
            .as_str()
            .is_some_and(|it| it.starts_with("Edit a.txt · ") && it.ends_with(" lines…"));
        is_progress && update["content"].is_array()
    });
    let diff = &preview.expect("no update has shown a preview")["content"][0];
    assert_eq!((&diff["oldText"], &diff["path"]), (&json!("one\n"), &json!(agent.path("a.txt"))));
    assert!(new.concat().starts_with(diff["newText"].as_str().unwrap()), "{diff}");
    let expected = new.concat() + "two\n";
    assert_eq!(cards::card(&agent, 0)["content"][0]["newText"], expected.as_str());
    assert_eq!(agent.read("a.txt"), expected);
}

#[test]
fn long_arguments_are_shown_as_their_length_on_the_card() {
    let arguments = json!({ "path": "a.txt", "content": "x".repeat(100_000) });
    let (agent, _) = cards::run(TestAgent::builder(), "write_file", &arguments);
    let shown = json!({ "path": "a.txt", "content": "[100000 bytes]" });
    assert_eq!(cards::card(&agent, 0)["rawInput"], shown);
    assert_eq!(agent.read("a.txt").len(), 100_000);
}

#[test]
fn content_that_was_read_as_json_is_written_as_text() {
    let blocks = json!([{ "type": "text", "text": "one\n" }, { "type": "text", "text": "two\n" }]);
    let mut agent = TestAgent::builder().permission("allow_once").start();
    for (path, content, expected) in [
        (
            "a.json",
            json!({ "b": [1, "x"], "a": null }),
            "{\n  \"b\": [\n    1,\n    \"x\"\n  ],\n  \"a\": null\n}\n",
        ),
        ("b.json", json!(["x"]), "[\n  \"x\"\n]\n"),
        ("c.json", json!([1]), "[\n  1\n]\n"),
        ("d", json!({}), "{}\n"),
        ("e", json!(5), "5"),
        ("f", json!(true), "true"),
        ("g.txt", blocks, "one\ntwo\n"),
    ] {
        let arguments = json!({ "path": path, "content": content });
        let result = cards::run_each(&mut agent, "write_file", &[arguments]).remove(0);
        assert!(result.starts_with("Created"), "{content}: {result}");
        assert_eq!(agent.read(path), expected, "{content}");
    }
    for content in [json!(["a line", "another"]), json!(null)] {
        let arguments = json!({ "path": "h.txt", "content": content });
        let result = cards::run_each(&mut agent, "write_file", &[arguments]).remove(0);
        assert!(result.contains("`content` must be text"), "{content}: {result}");
    }
    let note = json!({ "action": "write", "name": "a-note", "content": { "a": 1 } });
    let result = cards::run_each(&mut agent, "memory", &[note]).remove(0);
    assert!(result.starts_with("Noted: a-note"), "{result}");
}

#[cfg(unix)]
#[test]
fn a_command_that_is_a_list_of_words_is_a_command_line() {
    for (command, expected) in [
        (json!(["bash", "-lc", "echo a; echo b"]), "a\nb\n"),
        (json!(["echo", "a  b", "it's", "$HOME"]), "a  b it's $HOME\n"),
        (json!(["pwd"]), "/"),
        (json!(["echo c && echo d"]), "c\nd\n"),
    ] {
        let arguments = json!({ "command": command });
        let (_, result) = cards::run(TestAgent::builder(), "shell", &arguments);
        assert!(result.contains(expected), "{command}: {result}");
    }
}
