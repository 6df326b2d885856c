//! `edit_file`: the file after an edit, the card, and the result that the model receives.

use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old_string": old, "new_string": new })
}

/// Runs one more turn with one call, and returns the result of the call.
fn again(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

#[test]
fn edits_are_applied_and_reported_with_the_new_lines() {
    let builder = TestAgent::builder().file("a.rs", "one\ntwo\nthree\nfour\n");
    let edits = json!([
        { "old_text": "two\n", "new_text": "2\n2b\n" },
        { "old_text": "four", "new_text": "4" },
    ]);
    let (agent, result) =
        cards::run(builder, "edit_file", &json!({ "path": "a.rs", "edits": edits }));
    assert_eq!(agent.read("a.rs"), "one\n2\n2b\nthree\n4\n");
    let expected = "Applied 2 edits to a.rs (+3 −2). Match: exact.\n    1| one\n    2| 2\n    3| \
                    2b\n    4| three\n    5| 4\n";
    assert_eq!(result, expected);
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Edit a.rs (+3 −2)"), &json!("edit")));
    assert_eq!(card["locations"], json!([{ "path": agent.path("a.rs"), "line": 2 }]));
    let diff = json!({ "type": "diff", "path": agent.path("a.rs"),
        "oldText": "one\ntwo\nthree\nfour\n", "newText": "one\n2\n2b\nthree\n4\n" });
    assert_eq!(card["content"], json!([diff]));
    assert_eq!(card["rawOutput"]["added"], 3);
}

#[test]
fn argument_names_of_other_agents_are_accepted() {
    for arguments in [
        json!({ "path": "a", "old_string": "x", "new_string": "y" }),
        json!({ "file_path": "a", "old_string": "x", "new_string": "y", "replace_all": false }),
        json!({ "filePath": "a", "oldString": "x", "newString": "y" }),
        json!({ "path": "a", "old_text": "x", "new_text": "y" }),
        json!({ "path": "a", "search": "x", "replace": "y" }),
        json!({ "path": "a", "edits": { "old_string": "x", "new_string": "y" } }),
        json!({ "path": "a", "edits": [{ "old_str": "x", "new_str": "y" }] }),
        json!({ "path": "a", "edits": [{ "oldText": "x", "newText": "y", "replaceAll": null }] }),
        json!({ "path": "a", "edits": "[{\"old_text\": \"x\", \"new_text\": \"y\"}]" }),
    ] {
        let (agent, _) = cards::run(TestAgent::builder().file("a", "x\n"), "edit_file", &arguments);
        assert_eq!(agent.read("a"), "y\n", "{arguments}");
    }
}

#[test]
fn an_edit_that_fails_shows_nothing_of_a_file_that_is_asked_about() {
    let rules = "[permissions]\nask = ['read(/notes)']\n";
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", rules)
        .file("notes/n.txt", "one\ntwo\n")
        .start();
    let result = again(&mut agent, "edit_file", &edit("notes/n.txt", "three", "x"));
    assert!(result.contains("use read_file") && !result.contains("two"), "{result}");
}

#[test]
fn an_edit_that_fails_hides_what_reading_the_file_hides() {
    let url = "url = https://me:glpat-Ab3dEf6hIj@host/x.git\n";
    let mut agent = TestAgent::builder().file("a.txt", url).start();
    let result = again(&mut agent, "edit_file", &edit("a.txt", "something else", "x"));
    assert!(result.contains("The file is now") && !result.contains("Ab3dEf6hIj"), "{result}");
}

#[test]
fn an_invalid_edit_writes_nothing_and_requests_no_permission() {
    let mut agent =
        TestAgent::builder().file("a.txt", "one\ntwo\none\n").permission("allow_once").start();
    let both = json!({ "path": "a.txt", "edits": [
        { "old_text": "two", "new_text": "2" }, { "old_text": "three", "new_text": "3" } ] });
    for (arguments, expected) in [
        (both, "Edit 2 of 2: old_string not found in a.txt."),
        (edit("a.txt", "one", "x"), "old_string matches 2 places: lines 1, 3. Add surrounding"),
        (edit("a.txt", "", "x"), "old_string is empty. To create, replace or append"),
        (edit("a.txt", "two", "two"), "old_string and new_string are the same"),
        (edit("a.txt", "two", "# ... rest of file unchanged"), "stands for lines that were left"),
        (
            edit("a.txt", "two", "2\n</new_string>\n</invoke>"),
            "`</new_string>` stands for lines that",
        ),
        (edit("a.txt", "two", "o…[+2 characters]"), "`o…[+2 characters]` stands for lines that"),
        (edit("b.txt", "two", "x"), "exist. Nothing was written. Similar names: a.txt."),
        (json!({ "path": "a.txt", "edits": [] }), "give both old_string and new_string"),
        (json!({ "path": "a.txt", "old_string": "one" }), "give both old_string and new_string"),
    ] {
        let result = again(&mut agent, "edit_file", &arguments);
        assert!(result.contains(expected), "{arguments}: {result}");
        assert!(result.contains("Nothing was written"), "{result}");
    }
    assert_eq!(agent.read("a.txt"), "one\ntwo\none\n");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn replace_all_reports_the_number_of_places() {
    let arguments = json!({ "path": "a", "edits": [
        { "old_text": "x", "new_text": "y", "replace_all": true } ] });
    let (agent, result) =
        cards::run(TestAgent::builder().file("a", "x x\nb\nx\n"), "edit_file", &arguments);
    assert_eq!(agent.read("a"), "y y\nb\ny\n");
    assert!(
        result.starts_with("Applied 1 edit to a (+2 −2). Match: exact, in 3 places."),
        "{result}"
    );
}

#[test]
fn a_file_that_changed_since_it_was_read_is_edited_only_where_old_text_matches_exactly() {
    let mut agent =
        TestAgent::builder().file("a", "one\ntwo\nthree\n").permission("allow_once").start();
    again(&mut agent, "read_file", &json!({ "path": "a" }));
    fs::write(agent.path("a"), "zero\none\n2\nthree\n").unwrap();
    let result = again(&mut agent, "edit_file", &edit("a", "two", "x"));
    assert!(result.starts_with("a changed on disk since you read it"), "{result}");
    assert!(result.contains("old_string not found in a."), "{result}");
    // After a change by somebody else, an approximate match is not accepted.
    let result = again(&mut agent, "edit_file", &edit("a", "three  \n", "3\n"));
    assert!(result.starts_with("a changed on disk since you read it"), "{result}");
    let result = again(&mut agent, "edit_file", &edit("a", "three", "3"));
    assert!(
        result.contains("The file changed since you read it; the edit still matched."),
        "{result}"
    );
    assert_eq!(agent.read("a"), "zero\none\n2\n3\n");
    // The edit has not shown all of the other change.
    let result = again(&mut agent, "edit_file", &edit("a", "3  \n", "4\n"));
    assert!(
        result.contains("(changed lines: 1–4). Nothing was written. Read it again"),
        "{result}"
    );
    again(&mut agent, "read_file", &json!({ "path": "a" }));
    let result = again(&mut agent, "edit_file", &edit("a", "3  \n", "4\n"));
    assert!(result.contains("Match: but for white space at line ends."), "{result}");
}

#[test]
fn an_edit_that_fails_after_a_formatter_shows_what_is_there() {
    let builder = TestAgent::builder().file("a.js", "first = call(1, 2)\nlast = call(3, 4)\n");
    let mut agent = builder.permission("allow_once").start();
    again(&mut agent, "read_file", &json!({ "path": "a.js" }));
    fs::write(agent.path("a.js"), "first = call( 1, 2 );\nlast = call( 3, 4 );\n").unwrap();
    let body = "*** Begin Patch\n*** Update File: a.js\n-last = call(3, 4)\n+x\n*** End Patch\n";
    for (tool, arguments) in [
        ("edit_file", edit("a.js", "last = call(3, 4)", "x")),
        ("apply_patch", json!({ "patch": body })),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.starts_with("a.js changed on disk since you read it"), "{tool}: {result}");
        assert!(result.contains("call( 3, 4 )"), "{tool}: {result}");
    }
    let result = again(&mut agent, "edit_file", &edit("a.js", "last = call( 3, 4 );", "x"));
    assert!(result.starts_with("Applied 1 edit to a.js"), "{result}");
}

#[test]
fn the_card_of_a_large_file_shows_only_the_changed_lines() {
    let text = "some line of a long file\n".repeat(50_000) + "last\n";
    let builder = TestAgent::builder().file("a", &text);
    let (agent, _) = cards::run(builder, "edit_file", &edit("a", "last\n", "end\n"));
    let shown = cards::card_text(&cards::card(&agent, 0));
    assert!(shown.contains("-last\n+end\n") && shown.len() < 1_000, "{shown}");
}

#[test]
fn an_edit_that_does_not_match_reveals_no_secret() {
    let mut agent = TestAgent::builder().file(".env", "KEY=the-secret-0\n").start();
    let elsewhere = turnwright_testing::temporary_folder();
    let outside = elsewhere.path().join("notes.txt");
    fs::write(&outside, "KEY=the-secret-0\n").unwrap();
    for path in [".env", outside.to_str().unwrap()] {
        for nothing in [edit(path, "x", "x"), json!({ "path": path })] {
            let told = again(&mut agent, "edit_file", &nothing);
            assert!(!told.contains("secret-0"), "{told}");
        }
        let result = again(&mut agent, "edit_file", &edit(path, "KEY=the-secret-1", "x"));
        assert!(result.contains("use read_file, which asks the user"), "{result}");
        let body = format!(
            "*** Begin Patch\n*** Update File: {path}\n-KEY=the-secret-1\n+x\n\
                            *** End Patch\n"
        );
        let patched = again(&mut agent, "apply_patch", &json!({ "patch": body }));
        assert!(!format!("{result}{patched}").contains("secret-0"), "{result}\n{patched}");
    }
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn an_edit_shows_no_secret_that_was_not_read() {
    let builder = TestAgent::builder().file(".env", "KEY=the-secret-0\n");
    let mut agent = builder.variable("TURNWRIGHT_MODE", "auto-edit").start();
    let edited = again(&mut agent, "edit_file", &edit(".env", "KEY", "NAME"));
    assert!(edited.starts_with("Applied 1 edit to .env"), "{edited}");
    let body = "*** Begin Patch\n*** Update File: .env\n@@\n+MORE=1\n*** End Patch\n";
    let patched = again(&mut agent, "apply_patch", &json!({ "patch": body }));
    assert!(patched.starts_with("Applied the patch"), "{patched}");
    let more = json!({ "path": ".env", "content": "LAST=2\n", "mode": "append" });
    let appended = again(&mut agent, "write_file", &more);
    assert_eq!(agent.read(".env"), "NAME=the-secret-0\nMORE=1\nLAST=2\n");
    let failed = again(&mut agent, "edit_file", &edit(".env", "NONE", "x"));
    assert!(failed.contains("use read_file, which asks the user"), "{failed}");
    let told = format!("{edited}{patched}{appended}{failed}");
    assert!(!told.contains("secret-0"), "{told}");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_change_that_breaks_json_says_so() {
    let builder = TestAgent::builder().variable("TURNWRIGHT_MODE", "auto-edit");
    let builder = builder.file("n.ipynb", "{\"cells\": [{\"source\": [\"x = 1\"]}]}\n");
    let builder = builder.file("a.json", "{}\n").file("b.json", "{}\n");
    let mut agent = builder.file("with-comment.json", "{} // one\n").start();
    let broken = again(&mut agent, "edit_file", &edit("n.ipynb", "1", "\"1\""));
    assert!(broken.contains("[n.ipynb was valid JSON before and is not now: expected"), "{broken}");
    let body = "*** Begin Patch\n*** Update File: a.json\n@@\n-{}\n+{\n*** End Patch\n";
    let patched = again(&mut agent, "apply_patch", &json!({ "patch": body }));
    assert!(patched.contains("[a.json was valid JSON before and is not now: EOF"), "{patched}");
    let content = json!({ "path": "b.json", "content": "{\n" });
    let written = again(&mut agent, "write_file", &content);
    assert!(written.contains("[b.json was valid JSON before and is not now: EOF"), "{written}");
    for (name, old, new) in [("n.ipynb", "\"1\"", "\\\"1\\\""), ("with-comment.json", "one", "two")]
    {
        let result = again(&mut agent, "edit_file", &edit(name, old, new));
        assert!(result.starts_with("Applied 1 edit") && !result.contains("JSON"), "{result}");
    }
}

#[test]
fn a_failed_edit_of_a_short_file_shows_it() {
    let builder = TestAgent::builder().file("a.py", "x = 1\ny = 2\n");
    let mut agent = builder.file("long.py", &"z = 3\n".repeat(61)).start();
    let shown = "\nThe file is now:\n    1| x = 1\n    2| y = 2\nCopy old_string from these lines, without their \
                 numbers, or send the whole new text with write_file.";
    for (old, new) in [("x = 7", "x = 8"), ("x = 1", "x = 1")] {
        let result = again(&mut agent, "edit_file", &edit("a.py", old, new));
        assert!(result.contains("Nothing was written.") && result.ends_with(shown), "{result}");
    }
    let result = again(&mut agent, "edit_file", &edit("long.py", "x = 7", "x = 8"));
    assert!(!result.contains("The file is now:"), "{result}");
}
