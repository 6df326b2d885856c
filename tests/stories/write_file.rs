//! `write_file` (S4-5, R-TOOL-9): the files after a call, and the card.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::attempt;

use crate::agent::{TestAgent, calls, says};

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

#[test]
fn r_tool_9_a_new_file_is_a_diff_without_old_text() {
    let (agent, result) = cards::run(TestAgent::builder(), "write_file", &write("a.txt", "x\ny\n"));
    assert_eq!(agent.read("a.txt"), "x\ny\n");
    assert_eq!(result, "Created a.txt: 2 lines, 4 bytes.");
    let card = cards::card(&agent, 0);
    let diff = &card["content"][0];
    assert_eq!((&diff["type"], &diff["newText"]), (&json!("diff"), &json!("x\ny\n")));
    assert_eq!(diff["path"], json!(agent.path("a.txt")));
    assert!(diff["oldText"].is_null(), "{diff}");
    assert_eq!(card["title"], "Create a.txt");
}

#[test]
fn r_tool_9_a_changed_file_is_a_diff_of_the_whole_text() {
    let builder = TestAgent::builder().file("a.txt", "old\n");
    let (agent, result) = cards::run(builder, "write_file", &write("a.txt", "new\n"));
    assert_eq!(agent.read("a.txt"), "new\n");
    assert!(result.starts_with("Replaced a.txt"), "{result}");
    let diff = cards::card(&agent, 0)["content"][0].clone();
    assert_eq!((&diff["oldText"], &diff["newText"]), (&json!("old\n"), &json!("new\n")));
    assert_eq!(fs::read_dir(agent.workspace()).unwrap().count(), 1);
}

#[test]
fn s4_5_append_adds_to_the_end_and_creates_what_is_missing() {
    let joined = "Appended to the last line, which had no line break, of a.txt: 1 lines";
    for (before, added, after, told) in [
        (Some("one\n"), "two\n", "one\ntwo\n", "Appended to a.txt: 2 lines"),
        (Some("one"), "two\n", "onetwo\n", joined),
        (Some("one"), "\ntwo\n", "one\ntwo\n", "Appended to a.txt: 2 lines"),
        (Some(""), "two\n", "two\n", "Appended to a.txt: 1 lines"),
        (None, "two\n", "two\n", "Created a.txt: 1 lines"),
    ] {
        let builder = TestAgent::builder();
        let builder = before.map_or(TestAgent::builder(), |it| builder.file("a.txt", it));
        let arguments = json!({ "path": "a.txt", "content": added, "mode": "append" });
        let (agent, result) = cards::run(builder, "write_file", &arguments);
        assert_eq!(agent.read("a.txt"), after);
        assert!(result.starts_with(told), "{result}");
        let diff = cards::card(&agent, 0)["content"][0].clone();
        assert_eq!((&diff["oldText"], &diff["newText"]), (&json!(before), &json!(after)));
    }
}

#[test]
fn a_text_with_the_end_of_the_call_is_not_written() {
    let arguments = write("a.rs", "fn a() {}\n</content>\n</invoke>\n");
    let (agent, result) = cards::run(TestAgent::builder(), "write_file", &arguments);
    assert!(result.contains("Line 2 of `content`, `</content>`, stands for"), "{result}");
    assert!(!agent.path("a.rs").exists(), "{result}");
}

#[test]
fn s4_5_overwrite_is_the_default_and_may_be_given() {
    let arguments = json!({ "path": "a.txt", "content": "", "mode": "overwrite" });
    let (agent, _) = cards::run(TestAgent::builder().file("a.txt", "x"), "write_file", &arguments);
    assert_eq!(agent.read("a.txt"), "");
}

#[test]
fn a_file_with_secrets_is_not_replaced_unread() {
    let mut agent = TestAgent::builder()
        .file(".env", "KEY=the-secret-0\n")
        .file("empty.pem", "")
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .permission("allow_once")
        .start();
    let (questions, result) = attempt(&mut agent, "write_file", &write(".env", "KEY=\n"));
    assert!(questions == 0 && result.contains("and that would be lost"), "{result}");
    let more = json!({ "path": ".env", "content": "B=2\n", "mode": "append" });
    let (questions, result) = attempt(&mut agent, "write_file", &more);
    assert!(questions == 0 && result.contains("Appended to .env"), "{result}");
    let (_, result) = attempt(&mut agent, "write_file", &write(".env", "KEY=\n"));
    assert!(result.contains("and that would be lost"), "{result}");
    assert_eq!(agent.read(".env"), "KEY=the-secret-0\nB=2\n");
    let (_, result) = attempt(&mut agent, "write_file", &write("empty.pem", "x\n"));
    assert!(result.contains("Replaced empty.pem"), "{result}");
    let (questions, _) = attempt(&mut agent, "read_file", &json!({ "path": ".env" }));
    assert_eq!(questions, 1);
    let (_, result) = attempt(&mut agent, "write_file", &write(".env", "KEY=\n"));
    assert!(result.contains("Replaced .env"), "{result}");
}

#[test]
fn a_long_file_is_not_replaced_unread_by_a_much_shorter_text() {
    let long = "a line of the user\n".repeat(300);
    let mut agent = TestAgent::builder()
        .file("long.md", &long)
        .file("short.md", "a line\n")
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .permission("allow_once")
        .start();
    let (_, result) = attempt(&mut agent, "write_file", &write("long.md", "# New\n"));
    assert!(result.contains("that you have not read and that would be lost"), "{result}");
    assert_eq!(agent.read("long.md"), long);
    let (_, result) = attempt(&mut agent, "write_file", &write("short.md", "# New\n"));
    assert!(result.contains("Replaced short.md"), "{result}");
    attempt(&mut agent, "read_file", &json!({ "path": "long.md", "end_line": 5 }));
    let (_, result) = attempt(&mut agent, "write_file", &write("long.md", "# New\n"));
    assert!(result.contains("Replaced long.md: 1 lines"), "{result}");
}

#[test]
fn what_the_user_has_changed_is_not_replaced_after_an_edit_of_another_place() {
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-three\n+3\n*** End Patch\n";
    for (tool, arguments) in [
        ("edit_file", json!({ "path": "a", "old_string": "three", "new_string": "3" })),
        ("write_file", json!({ "path": "a", "content": "four\n", "mode": "append" })),
        ("apply_patch", json!({ "patch": patch })),
    ] {
        let builder = TestAgent::builder().file("a", "one\ntwo\nthree\n");
        let mut agent = builder.variable("TURNWRIGHT_MODE", "auto-edit").start();
        attempt(&mut agent, "read_file", &json!({ "path": "a" }));
        fs::write(agent.path("a"), "one\nof the user\ntwo\nthree\n").unwrap();
        attempt(&mut agent, tool, &arguments);
        let edited = agent.read("a");
        let whole = write("a", "one\ntwo\n3\nfour\n");
        let (_, result) = attempt(&mut agent, "write_file", &whole);
        assert!(
            result.contains("a changed on disk since you read it (changed lines:"),
            "{tool}: {result}"
        );
        assert!(edited.contains("of the user") && agent.read("a") == edited, "{tool}: {edited}");
        attempt(&mut agent, "read_file", &json!({ "path": "a" }));
        let (_, result) = attempt(&mut agent, "write_file", &whole);
        assert!(result.contains("Replaced a: 4 lines"), "{tool}: {result}");
    }
}

#[test]
fn what_the_user_has_changed_is_not_replaced_after_a_patch_that_moves_the_file() {
    let patch =
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-two\n+2\n*** End Patch\n";
    let builder = TestAgent::builder().file("a", "one\ntwo\n").permission("allow_once");
    let mut agent = builder.start();
    attempt(&mut agent, "read_file", &json!({ "path": "a" }));
    fs::write(agent.path("a"), "of the user\none\ntwo\n").unwrap();
    attempt(&mut agent, "apply_patch", &json!({ "patch": patch }));
    let (_, result) = attempt(&mut agent, "write_file", &write("b", "one\n2\nthree\n"));
    assert!(result.contains("b changed on disk since you read it"), "{result}");
    assert_eq!(agent.read("b"), "of the user\none\n2\n");
}

#[test]
fn the_model_is_told_that_a_file_that_it_knows_was_gone() {
    let mut agent = TestAgent::builder().file("src/a", "old\n").permission("allow_once").start();
    attempt(&mut agent, "read_file", &json!({ "path": "src/a" }));
    fs::rename(agent.path("src"), agent.path("lib")).unwrap();
    let (_, result) = attempt(&mut agent, "write_file", &write("src/a", "new\n"));
    assert!(result.contains("moved since you knew it. Created anew: src/a: 1 lines"), "{result}");
    let (_, result) = attempt(&mut agent, "write_file", &write("src/a", "newer\n"));
    assert!(result.contains("Replaced src/a"), "{result}");
    let (_, result) = attempt(&mut agent, "write_file", &write("src/b", "new\n"));
    assert!(result.contains("Created src/b"), "{result}");
}

#[test]
fn a_text_that_was_escaped_twice_is_written_in_lines() {
    let escaped = "class A:\\n\\tdef add(self, x):\\n\\t\\treturn x\\n";
    let (agent, result) = cards::run(TestAgent::builder(), "write_file", &write("a.py", escaped));
    assert_eq!(agent.read("a.py"), "class A:\n\tdef add(self, x):\n\t\treturn x\n");
    assert_eq!(result, "Created a.py: 3 lines, 39 bytes.");
}

#[test]
fn lines_that_are_copied_with_their_numbers_are_written_without_them() {
    let builder = TestAgent::builder().file("a.py", "import os\nx = 1\n");
    let numbered = write("a.py", "    1| import os\n    2| x = 2\n");
    let (agent, result) = cards::run(builder, "write_file", &numbered);
    assert_eq!(agent.read("a.py"), "import os\nx = 2\n");
    let told = "Replaced a.py: 2 lines, 16 bytes. The line numbers in `content` were left out.";
    assert_eq!(result, told);
}

#[test]
fn code_in_a_fence_is_written_without_it_but_not_in_markdown() {
    let fenced = "```python\nx = 1\n```";
    let (agent, result) = cards::run(TestAgent::builder(), "write_file", &write("a.py", fenced));
    assert_eq!(agent.read("a.py"), "x = 1\n");
    let told = "Created a.py: 1 lines, 6 bytes. The fence around `content` was left out.";
    assert_eq!(result, told);
    let two = "```\na\n```\n```\nb\n```\n";
    let kept = [("a.md", fenced), ("a.prompt", fenced), ("README", fenced), ("two.py", two)];
    for (path, content) in kept {
        let (agent, _) = cards::run(TestAgent::builder(), "write_file", &write(path, content));
        assert_eq!(agent.read(path), content);
    }
}

#[test]
fn missing_folders_are_created() {
    let (agent, _) = cards::run(TestAgent::builder(), "write_file", &write("x/y/z.txt", "z"));
    assert_eq!(agent.read("x/y/z.txt"), "z");
}

// Windows has no mode bits.
#[cfg(unix)]
#[test]
fn the_mode_bits_are_kept_and_a_new_file_is_not_executable() {
    let mut agent = TestAgent::builder().file("run.sh", "old").permission("allow_once").start();
    fs::set_permissions(agent.path("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    for path in ["run.sh", "new.sh"] {
        agent.model().push(calls("write_file", &write(path, "new"))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent);
    }
    let mode = |path: &str| fs::metadata(agent.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run.sh"), agent.read("run.sh").as_str()), (0o751, "new"));
    assert_eq!(mode("new.sh") & 0o111, 0);
    assert_eq!(mode("new.sh") & 0o400, 0o400);
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_link_inside_the_project_stays_a_link() {
    let agent = TestAgent::builder().file("real.txt", "old").permission("allow_once").start();
    symlink("real.txt", agent.path("link.txt")).unwrap();
    let mut agent = agent;
    agent.model().push(calls("write_file", &write("link.txt", "new"))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(&mut agent);
    assert_eq!(fs::read_link(agent.path("link.txt")).unwrap().to_str(), Some("real.txt"));
    assert_eq!(agent.read("real.txt"), "new");
    // The card shows the file that is really changed.
    let path = &cards::card(&agent, 0)["content"][0]["path"];
    assert_eq!(*path, json!(agent.path("real.txt")));
}

#[test]
fn an_absolute_path_inside_the_project_works_like_a_relative_one() {
    let agent = TestAgent::builder().permission("allow_once").start();
    let path = agent.path("a.txt").display().to_string();
    let mut agent = agent;
    agent.model().push(calls("write_file", &write(&path, "new"))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(&mut agent);
    assert_eq!(agent.read("a.txt"), "new");
    assert_eq!(cards::card(&agent, 0)["title"], "Create a.txt");
}

#[test]
fn a_write_outside_the_project_requires_permission() {
    let elsewhere = turnwright_testing::temporary_folder();
    let path = elsewhere.path().join("a.txt").display().to_string();
    let replies = json!([calls("write_file", &write(&path, "new")), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("Outside the project"), "{text}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_write_through_a_link_requires_permission_for_its_target() {
    let elsewhere = turnwright_testing::temporary_folder();
    let mut agent = TestAgent::builder().start();
    symlink(elsewhere.path().join("new.txt"), agent.path("dangling")).unwrap();
    symlink(elsewhere.path(), agent.path("folder")).unwrap();
    for path in ["dangling", "folder/new.txt"] {
        agent.model().push(calls("write_file", &write(path, "new"))).unwrap();
        agent.model().push(says("Fine.")).unwrap();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        let shown = question["params"]["toolCall"].to_string();
        let real = elsewhere.path().canonicalize().unwrap().join("new.txt").display().to_string();
        assert!(shown.contains(&real) && shown.contains("Outside the project"), "{shown}");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    cards::check(&agent);
}

#[test]
fn a_file_that_is_not_text_is_not_overwritten_and_requests_no_permission() {
    let mut agent = TestAgent::builder().file("f", "").permission("allow_once").start();
    fs::write(agent.path("image"), b"\x89PNG\0").unwrap();
    fs::create_dir(agent.path("folder")).unwrap();
    for (path, reason) in
        [("image", "is binary"), ("folder", "is a folder"), ("f/x", "not a folder")]
    {
        agent.model().push(calls("write_file", &write(path, "new"))).unwrap();
        agent.model().push(says("Oh.")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains(reason) && result.contains("Nothing was written"), "{result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!(fs::read(agent.path("image")).unwrap(), b"\x89PNG\0");
}

// The paths are of Linux, where nobody can write them. Windows would make them in the root of the drive.
#[cfg(unix)]
#[test]
fn an_error_names_the_path_that_was_given() {
    let mut agent = TestAgent::builder().file("a", "x\n").permission("allow_once").start();
    let long = "x".repeat(300);
    let edits = json!([{ "old_text": "x", "new_text": "y" }]);
    let table = [
        ("write_file", write("/sys/new", "x"), "/sys/new could not be accessed: "),
        ("write_file", write(&long, "x"), "could not be accessed: File name too long"),
        ("move_path", json!({ "from": "a", "to": "/sys/new" }), "a → /sys/new: could not be "),
        ("move_path", json!({ "from": "a", "to": long }), "xxx could not be accessed: File name"),
        ("delete_path", json!({ "path": "/proc/version" }), "/proc/version could not be "),
        ("edit_file", json!({ "path": "/sys/kernel", "edits": edits }), "/sys/kernel is a folder"),
    ];
    for (tool, arguments, expected) in table {
        agent.model().push(calls(tool, &arguments)).unwrap();
        agent.model().push(says("Oh.")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains(expected) && !result.contains("/fd/"), "{tool}: {result}");
    }
    assert_eq!(agent.read("a"), "x\n");
}

#[test]
fn the_home_folder_is_not_a_folder_named_tilde() {
    let mut agent = TestAgent::builder().file("a", "x\n").permission("allow_once").start();
    let edits = json!([{ "old_text": "x", "new_text": "y" }]);
    let patch = "*** Begin Patch\n*** Add File: ~/new\n+x\n*** End Patch";
    for (tool, arguments) in [
        ("write_file", write("~/new", "x")),
        ("write_file", write("~", "x")),
        ("edit_file", json!({ "path": "~/a", "edits": edits })),
        ("apply_patch", json!({ "patch": patch })),
        ("move_path", json!({ "from": "a", "to": "~/a" })),
        ("delete_path", json!({ "path": "~/a" })),
        ("read_file", json!({ "path": "~/a" })),
        ("list_dir", json!({ "path": "~" })),
    ] {
        agent.model().push(calls(tool, &arguments)).unwrap();
        agent.model().push(says("Oh.")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains("only a shell replaces ~"), "{tool}: {result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    let names = fs::read_dir(agent.workspace()).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["a"]);
}

#[test]
fn the_same_append_twice_is_written_once_and_told_what_is_there() {
    let append = json!({ "path": "a.txt", "content": "two\nthree\n", "mode": "append" });
    let other = json!({ "path": "a.txt", "content": "four\n", "mode": "append" });
    let mut agent = TestAgent::builder().file("a.txt", "one\n").permission("allow_once").start();
    let mut results = Vec::new();
    for arguments in [&append, &append, &other, &append] {
        agent.model().push(calls("write_file", arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        results.push(cards::turn(&mut agent));
    }
    let told = "[a.txt has this already; nothing was written. It has 3 lines and ends with: three. \
                Do the next step.]";
    assert_eq!(results[1], told);
    assert_eq!(agent.read("a.txt"), "one\ntwo\nthree\nfour\ntwo\nthree\n");
    for _ in 0..2 {
        agent.model().push(calls("write_file", &write("b.txt", "x\n"))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        results.push(cards::turn(&mut agent));
    }
    assert!(results[5].starts_with("[b.txt has this already; nothing was"), "{}", results[5]);
}
