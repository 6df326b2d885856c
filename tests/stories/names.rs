//! Paths as models write them: with blanks, quotes and lines around them, in another Unicode form than the disk
//! has, or as they were shown. One file never gets a twin without a word.

use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Runs one more turn with one call, and returns the result of the call.
fn again(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

fn names(agent: &TestAgent) -> Vec<String> {
    let entries = fs::read_dir(agent.workspace()).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The texts of the last permission request.
#[cfg(unix)]
fn last_question(agent: &TestAgent) -> String {
    let is_request = |it: &&Value| it["method"] == "session/request_permission";
    agent.log.iter().rfind(is_request).unwrap()["params"]["toolCall"]["content"].to_string()
}

#[test]
fn a_text_with_a_nul_is_not_written() {
    let mut agent =
        TestAgent::builder().file("a.txt", "one\ntwo\n").permission("allow_once").start();
    let patch = "*** Begin Patch\n*** Update File: a.txt\n-one\n+o\0ne\n*** End Patch\n";
    let add = "*** Begin Patch\n*** Add File: b.txt\n+o\0ne\n*** End Patch\n";
    for (tool, arguments) in [
        ("write_file", json!({ "path": "a.txt", "content": "x\0y" })),
        ("write_file", json!({ "path": "a.txt", "content": "\0", "mode": "append" })),
        ("write_file", json!({ "path": "b\0.txt", "content": "x" })),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old_text": "one", "new_text": "\0" }] }),
        ),
        ("edit_file", json!({ "path": "a.txt", "old_text": "one", "new_text": "\0" })),
        ("apply_patch", json!({ "patch": patch })),
        ("apply_patch", json!({ "patch": add })),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.starts_with("The text contains a NUL character"), "{arguments}: {result}");
        assert!(result.contains(r"such as \0 or \u0000"), "{result}");
    }
    let note = json!({ "action": "write", "name": "a-note", "content": "x\0y" });
    assert!(again(&mut agent, "memory", &note).contains("a NUL character"));
    assert_eq!(agent.read("a.txt"), "one\ntwo\n");
    assert_eq!((names(&agent), cards::questions(&agent)), (vec!["a.txt".to_owned()], 0));
    // The escape itself is plain text.
    let escape = json!({ "path": "a.txt", "old_text": "one", "new_text": "'\\0'" });
    again(&mut agent, "edit_file", &escape);
    assert_eq!(agent.read("a.txt"), "'\\0'\ntwo\n");
}

#[test]
fn white_space_and_quotes_around_a_path_make_no_second_file() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .file("src/x", "x\n")
        .permission("allow_once")
        .start();
    for (path, name) in [
        ("a.txt\n", "a.txt"),
        ("\r\na.txt", "a.txt"),
        (" a.txt ", "a.txt"),
        ("`a.txt`", "a.txt"),
        ("@a.txt", "a.txt"),
        ("'src/x'", "src/x"),
        ("\"@src/x\"\n", "src/x"),
        (" src/new", "src/new"),
        ("src/newer\n", "src/newer"),
    ] {
        let content = format!("by {path}\n");
        let result = again(&mut agent, "write_file", &json!({ "path": path, "content": content }));
        assert!(result.contains(&format!(" {name}: ")), "{path:?}: {result}");
        assert_eq!(agent.read(name), content, "{path:?}");
    }
    let edit = json!({ "path": "a.txt\n", "old_text": "by", "new_text": "for" });
    assert!(again(&mut agent, "edit_file", &edit).contains("to a.txt (+1 −1)"));
    let patch = "*** Begin Patch\n*** Update File: 'src/x'\n@@\n-by \"@src/x\"\n+patched\n*** Add \
                 File: `src/added`\n+y\n*** End Patch\n";
    let result = again(&mut agent, "apply_patch", &json!({ "patch": patch }));
    assert!(result.contains("Updated src/x") && result.contains("Added src/added"), "{result}");
    let moving = json!({ "from": " a.txt\n", "to": "b.txt\n" });
    assert_eq!(again(&mut agent, "move_path", &moving), "Moved a.txt to b.txt.");
    for (tool, arguments, expected) in [
        ("read_file", json!({ "path": "`b.txt`" }), "[File: b.txt"),
        ("read_file", json!({ "paths": ["b.txt\n", "'src/x'"] }), "[File: src/x"),
        ("list_dir", json!({ "path": "\"src/\"\n" }), "x ("),
        ("find_files", json!({ "path": "@src", "glob": "added" }), "src/added"),
        ("grep", json!({ "path": " src\n", "pattern": "y" }), "src/added:1: y"),
        ("exec", json!({ "command": "echo $PWD", "workdir": "'src'\n" }), "src\n"),
        ("delete_path", json!({ "path": "src/added\n" }), "Deleted src/added."),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.contains(expected), "{tool} {arguments}: {result}");
    }
    assert_eq!(names(&agent), ["b.txt", "src"]);
}

#[test]
fn what_has_the_literal_name_is_meant() {
    let odd = [" lead.md", "'q'", "@m", "@scope/x"];
    let builder = odd.iter().fold(TestAgent::builder(), |it, name| it.file(name, "odd\n"));
    let builder = builder.file("lead.md", "plain\n").file("q", "plain\n").file("m", "plain\n");
    let mut agent = builder.permission("allow_once").start();
    for name in odd {
        let content = json!({ "path": name, "content": "new\n" });
        again(&mut agent, "write_file", &content);
        assert_eq!(agent.read(name), "new\n", "{name}");
    }
    again(&mut agent, "write_file", &json!({ "path": "@scope/y", "content": "new\n" }));
    assert_eq!(agent.read("@scope/y"), "new\n");
    assert_eq!(agent.read("lead.md"), "plain\n");
}

#[cfg(unix)]
#[test]
fn a_name_in_another_unicode_form_is_the_file_on_the_disk() {
    let (nfd, nfc) = ("U\u{308}bersicht.md", "\u{dc}bersicht.md");
    let folder = "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}";
    let mut agent = TestAgent::builder()
        .file(nfd, "alt\n")
        .file(&format!("{folder}/a.md"), "text\n")
        .permission("allow_once")
        .start();
    let result = again(&mut agent, "read_file", &json!({ "path": nfc }));
    assert!(result.contains("1| alt\n"), "{result}");
    let note = r"[\u{dc}bersicht.md was taken for U\u{308}bersicht.md, which looks the same.]";
    assert!(result.ends_with(note), "{result}");
    let edit = json!({ "path": nfc, "old_text": "alt", "new_text": "neu" });
    again(&mut agent, "edit_file", &edit);
    assert!(last_question(&agent).contains("was taken for"), "{}", last_question(&agent));
    assert_eq!(agent.read(nfd), "neu\n");
    again(&mut agent, "write_file", &json!({ "path": nfc, "content": "ganz neu\n" }));
    assert_eq!(agent.read(nfd), "ganz neu\n");
    again(&mut agent, "write_file", &json!({ "path": "한글/b.md", "content": "b\n" }));
    assert_eq!(agent.read(&format!("{folder}/b.md")), "b\n");
    for (tool, arguments, expected) in [
        ("list_dir", json!({ "path": "한글" }), "a.md ("),
        ("find_files", json!({ "glob": nfc }), nfd),
        ("find_files", json!({ "glob": "한글/*.md" }), "a.md"),
        ("find_files", json!({ "glob": "!한글/*" }), nfd),
        ("grep", json!({ "pattern": "ganz", "glob": "\u{dc}*.md" }), "ganz neu"),
        ("grep", json!({ "pattern": "b", "path": "한글" }), "b.md:1: b"),
        ("move_path", json!({ "from": nfc, "to": "c.md" }), "Moved"),
        ("delete_path", json!({ "path": "한글/b.md" }), "Deleted"),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.contains(expected), "{tool} {arguments}: {result}");
    }
    assert_eq!(names(&agent), ["c.md", folder]);
}

#[cfg(unix)]
#[test]
fn a_file_that_looks_like_another_one_is_not_made_without_a_word() {
    let (one, other) = ("t\u{a0}w.md", "t\u{202f}w.md");
    let mut agent = TestAgent::builder()
        .file(one, "1\n")
        .file(other, "2\n")
        .file("（一）.md", "3\n")
        .permission("allow_once")
        .start();
    let result = again(&mut agent, "read_file", &json!({ "path": "t w.md" }));
    assert!(result.contains(r"t w.md looks like t\u{a0}w.md, t\u{202f}w.md"), "{result}");
    // A name can be given as it is shown there.
    let result = again(&mut agent, "read_file", &json!({ "path": r"t\u{202f}w.md" }));
    assert!(result.contains("1| 2\n"), "{result}");
    for (path, twin) in [("t w.md", r"t\u{a0}w.md"), ("(一).md", r"\u{ff08}\u{4e00}\u{ff09}.md")] {
        let result = again(&mut agent, "write_file", &json!({ "path": path, "content": "new\n" }));
        let question = last_question(&agent).replace("\\\\", "\\");
        assert!(question.contains("⚠") && question.contains(twin), "{question}");
        assert!(result.contains("⚠"), "{result}");
        assert_eq!(agent.read(path), "new\n");
    }
    assert_eq!(agent.read("（一）.md"), "3\n");
    // A file that the model has read is the one that it means.
    fs::remove_file(agent.path("(一).md")).unwrap();
    again(&mut agent, "read_file", &json!({ "path": "(一).md" }));
    again(&mut agent, "write_file", &json!({ "path": "(一).md", "content": "known\n" }));
    assert_eq!(agent.read("（一）.md"), "known\n");
}

#[cfg(unix)]
#[test]
fn a_name_is_accepted_as_it_was_shown() {
    let family = "👨\u{200d}👩.md";
    let mut agent = TestAgent::builder()
        .file(family, "x\n")
        .file("می\u{200c}خواهم/a.md", "y\n")
        .file("soft\u{ad}hyphen.md", "z\n")
        .permission("allow_once")
        .start();
    let listed = again(&mut agent, "list_dir", &json!({}));
    let shown: Vec<_> = listed.lines().filter_map(|it| it.split_once(" (")).collect();
    for (name, _) in shown {
        let result = again(&mut agent, "read_file", &json!({ "path": name }));
        assert!(result.contains("    1| "), "{name}: {result}");
    }
    for (tool, arguments, expected) in [
        ("find_files", json!({ "glob": r"👨\u{200d}*.md" }), r"👨\u{200d}👩.md"),
        ("grep", json!({ "pattern": "z", "glob": r"soft\u{ad}hyphen.md" }), "hyphen.md:1: z"),
        ("list_dir", json!({ "path": r"می\u{200c}خواهم" }), "a.md"),
        ("exec", json!({ "command": "ls", "workdir": r"می\u{200c}خواهم/" }), "a.md"),
        ("write_file", json!({ "path": r"👨\u{200d}👦.md", "content": "new\n" }), "Created"),
        ("move_path", json!({ "from": r"👨\u{200d}👩.md", "to": r"👩\u{200d}👩.md" }), "Moved"),
        ("delete_path", json!({ "path": r"soft\u{ad}hyphen.md" }), "Deleted"),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.contains(expected), "{tool} {arguments}: {result}");
    }
    assert_eq!(names(&agent), ["می\u{200c}خواهم", "👨\u{200d}👦.md", "👩\u{200d}👩.md"]);
}

#[test]
fn lines_behind_a_path_are_read() {
    let mut agent = TestAgent::builder()
        .file("a.py", "1\n2\n3\n4\n")
        .file("b.py", "1\n2\n")
        .permission("allow_once")
        .start();
    for (path, shown) in [
        ("a.py:2-3", "    2| 2\n    3| 3\n"),
        ("a.py:2", "    2| 2\n"),
        ("a.py:2:5", "    2| 2\n"),
        ("a.py#L2-L3", "    2| 2\n    3| 3\n"),
        ("a.py(3,1)", "    3| 3\n"),
        ("`a.py:4`", "    4| 4\n"),
    ] {
        let result = again(&mut agent, "read_file", &json!({ "path": path }));
        assert_eq!(result, format!("[File: a.py | Lines: 4]\n{shown}"), "{path}");
    }
    let own = json!({ "path": "a.py:2-3", "start_line": 4 });
    assert!(again(&mut agent, "read_file", &own).ends_with("]\n    4| 4\n"));
    let batch = json!({ "paths": ["a.py:2-3", "b.py", "b.py#L2"] });
    let result = again(&mut agent, "read_file", &batch);
    assert_eq!(
        result.matches("[File: b.py | Lines: 2]\n    1| 1\n    2| 2\n").count(),
        2,
        "{result}"
    );
    assert!(result.starts_with("[File: a.py | Lines: 4]\n    1| 1\n"), "{result}");
    let missing = again(&mut agent, "read_file", &json!({ "path": "none.py:2" }));
    assert!(missing.contains("none.py:2 | Error: does not exist"), "{missing}");
    let edit = json!({ "path": "a.py:2", "old_text": "2\n", "new_text": "two\n" });
    again(&mut agent, "edit_file", &edit);
    assert_eq!(agent.read("a.py"), "1\ntwo\n3\n4\n");
    // Whoever names lines does not mean the whole file.
    for (tool, arguments) in [
        ("write_file", json!({ "path": "a.py:2", "content": "x\n" })),
        ("write_file", json!({ "path": "a.py#L2", "content": "x\n" })),
        ("delete_path", json!({ "path": "a.py:2" })),
        ("move_path", json!({ "from": "a.py:2", "to": "c.py" })),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.contains(" names lines, and "), "{arguments}: {result}");
    }
    assert_eq!(agent.read("a.py"), "1\ntwo\n3\n4\n");
    assert_eq!(names(&agent), ["a.py", "b.py"]);
    #[cfg(unix)]
    {
        fs::write(agent.path("b.py:2"), "odd\n").unwrap();
        let result = again(&mut agent, "read_file", &json!({ "path": "b.py:2" }));
        assert_eq!(result, "[File: b.py:2 | Lines: 1]\n    1| odd\n");
    }
}

// Windows does not move a folder in which a process runs.
#[cfg(unix)]
#[test]
fn a_project_that_was_moved_is_not_made_anew() {
    let patch = "*** Begin Patch\n*** Add File: sub/p.txt\n+x\n*** End Patch\n";
    let mut agent = TestAgent::builder().permission("allow_once").start();
    fs::create_dir(agent.path("project")).unwrap();
    fs::write(agent.path("project/a.txt"), "a\n").unwrap();
    let (old, new) = (agent.path("project"), agent.path("moved"));
    let answer = agent.call("session/new", &json!({ "cwd": old, "mcpServers": [] }));
    answer["result"]["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    again(&mut agent, "write_file", &json!({ "path": "a.txt", "content": "b\n" }));
    again(&mut agent, "write_file", &json!({ "path": "sub/c.txt", "content": "c\n" }));
    again(&mut agent, "delete_path", &json!({ "path": "sub", "recursive": true }));
    fs::rename(&old, &new).unwrap();
    for (tool, arguments) in [
        ("write_file", json!({ "path": "sub/b.txt", "content": "x\n" })),
        ("write_file", json!({ "path": old.join("b.txt"), "content": "x\n" })),
        ("edit_file", json!({ "path": "a.txt", "old_text": "b", "new_text": "c" })),
        ("apply_patch", json!({ "patch": patch })),
        ("move_path", json!({ "from": new.join("a.txt"), "to": "a.txt" })),
        ("delete_path", json!({ "path": "a.txt" })),
        ("read_file", json!({ "path": "a.txt" })),
        ("list_dir", json!({})),
        ("find_files", json!({ "glob": "*" })),
        ("grep", json!({ "pattern": "b" })),
        ("exec", json!({ "command": "touch b.txt" })),
    ] {
        let result = again(&mut agent, tool, &arguments);
        assert!(result.contains("is gone: it was moved or deleted"), "{tool}: {result}");
    }
    agent.turn("/undo");
    assert!(!old.exists());
    assert_eq!(fs::read_to_string(new.join("a.txt")).unwrap(), "b\n");
    // It works again as soon as the folder is back.
    fs::rename(&new, &old).unwrap();
    again(&mut agent, "write_file", &json!({ "path": "sub/b.txt", "content": "x\n" }));
    assert_eq!(fs::read_to_string(old.join("sub/b.txt")).unwrap(), "x\n");
}
