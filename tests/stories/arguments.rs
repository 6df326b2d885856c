//! The arguments of calls: names and values as models write them, and cards that show what is on
//! its way.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, says};

#[test]
fn arguments_that_mean_nothing_are_mentioned() {
    let builder = || TestAgent::builder().file("a", "1\n");
    let arguments = json!({ "path": "a", "colour": 5, "encoding": "utf-8", "offset": null });
    let (_, result) = cards::run(builder(), "read_file", &arguments);
    assert_eq!(result, "[File: a | Lines: 1]\n    1| 1\n[ignored: colour, encoding]");
    let arguments = json!({ "path": "b", "foo": 1 });
    let (_, result) = cards::run(builder(), "read_file", &arguments);
    assert!(result.ends_with("\n[ignored: foo]"), "{result}");
}

#[test]
fn tools_are_found_under_the_names_of_other_agents() {
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
        let asks = name == "Write";
        assert_eq!(cards::questions(&agent), usize::from(asks), "{name}");
        let card = cards::card(&agent, 0);
        assert_eq!(card["status"], "completed");
        assert_ne!(card["name"], name, "the card has the name that there is");
    }
}

#[test]
fn an_error_says_which_argument_is_wrong_and_what_there_is() {
    let arguments = json!({ "command": "true", "timeout": "soon" });
    let (agent, result) = cards::run(TestAgent::builder(), "exec", &arguments);
    let expected = "Invalid arguments for exec: `timeout` must be a whole number, not \"soon\". \
                    Nothing was executed. It takes: command (required), timeout";
    assert!(result.starts_with(expected), "{result}");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_long_content_is_shown_as_it_comes_and_in_the_end_whole() {
    let lines: Vec<_> = (0..400).map(|it| format!("line {it} \"é😀\"\n")).collect();
    let content = lines.concat();
    let step = json!({ "call": { "name": "write_file",
        "arguments": { "path": "src/a.txt", "content": content }, "pieces": 60, "every_ms": 40 } });
    let mut agent =
        TestAgent::builder().model(json!([[step], says("Done.")])).permission("allow_once").start();
    cards::turn(&mut agent);
    let counts = |it: &Value| {
        let title = it["title"].as_str().unwrap_or_default();
        it["status"] == "pending"
            && title.starts_with("Write src/a.txt · ")
            && title.ends_with(" lines…")
    };
    let on_the_way: Vec<_> = agent.updates().into_iter().filter(counts).collect();
    assert!(!on_the_way.is_empty(), "nobody sees how far it has come");
    let mut previews = 0;
    for diff in on_the_way.iter().filter_map(|it| it["content"][0].as_object()) {
        previews += 1;
        assert_eq!(
            (&diff["type"], &diff["path"]),
            (&json!("diff"), &json!(agent.path("src/a.txt")))
        );
        assert!(content.starts_with(diff["newText"].as_str().unwrap()));
    }
    assert!(previews > 0, "nobody sees what has come");
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "Create src/a.txt");
    assert_eq!(
        (&card["content"][0]["newText"], agent.read("src/a.txt")),
        (&json!(content), content)
    );
}

#[test]
fn an_edit_is_shown_as_it_comes_with_what_it_replaces() {
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
    let preview = updates.iter().find(|it| {
        let is_counting = it["title"]
            .as_str()
            .is_some_and(|it| it.starts_with("Edit a.txt · ") && it.ends_with(" lines…"));
        is_counting && it["content"].is_array()
    });
    let diff = &preview.expect("nobody sees what has come")["content"][0];
    assert_eq!((&diff["oldText"], &diff["path"]), (&json!("one\n"), &json!(agent.path("a.txt"))));
    assert!(new.concat().starts_with(diff["newText"].as_str().unwrap()), "{diff}");
    let expected = new.concat() + "two\n";
    assert_eq!(cards::card(&agent, 0)["content"][0]["newText"], expected.as_str());
    assert_eq!(agent.read("a.txt"), expected);
}

#[test]
fn the_progress_of_a_long_content_costs_no_more_than_a_few_times_its_length() {
    let content = "a line of a long file\n".repeat(5_000);
    let step = json!({ "call": { "name": "write_file",
        "arguments": { "path": "a.txt", "content": content }, "pieces": 300, "every_ms": 10 } });
    let mut agent =
        TestAgent::builder().model(json!([[step], says("Done.")])).permission("allow_once").start();
    let begun = std::time::Instant::now();
    cards::turn(&mut agent);
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let updates = agent.updates();
    let pending: Vec<_> = updates
        .iter()
        .filter(|it| it["sessionUpdate"] == "tool_call_update" && it["status"] == "pending")
        .filter(|it| it["title"].as_str().is_some_and(|it| it.ends_with(" lines…")))
        .collect();
    let previews = pending.iter().filter(|it| it["content"].is_array()).count();
    assert!(previews <= seconds + 1, "{previews} previews in {seconds} s");
    assert!(pending.len() <= 2 * (seconds + 1), "{} updates in {seconds} s", pending.len());
    let bytes: usize = pending.iter().map(|it| it.to_string().len()).sum();
    assert!(bytes <= 10 * content.len(), "{bytes} bytes for {}", content.len());
    assert_eq!(agent.read("a.txt"), content);
}

#[test]
fn long_arguments_are_on_the_card_by_their_length() {
    let arguments = json!({ "path": "a.txt", "content": "x".repeat(100_000) });
    let (agent, _) = cards::run(TestAgent::builder(), "write_file", &arguments);
    let shown = json!({ "path": "a.txt", "content": "[100000 bytes]" });
    assert_eq!(cards::card(&agent, 0)["rawInput"], shown);
    assert_eq!(agent.read("a.txt").len(), 100_000);
}
