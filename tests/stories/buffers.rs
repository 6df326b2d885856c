//! An editor with unsaved changes, played by the test harness. The agent reads and writes the
//! buffers of the editor, but a text that the editor cannot hold is written to the disk.

use std::fs;

use serde_json::json;
use turnwright_testing::unsaved_buffers::{self, SaveBehavior};
use turnwright_testing::{cards, command_lines};

use crate::agent::{AgentTransport, TestAgent};

type BufferEditor = unsaved_buffers::BufferEditor<AgentTransport>;

#[test]
fn an_unsaved_buffer_is_read_and_written_once_without_touching_the_disk() {
    let mut editor = BufferEditor::new(SaveBehavior::Keeps).file(b"disk\n").unsaved("unsaved\n");
    assert!(editor.read().ends_with("1| unsaved\n"));
    assert_eq!(editor.file_requests.len(), 1);
    let result = editor.write("new\n");
    assert_eq!(result, "Replaced f: 1 lines, 4 bytes.");
    assert_eq!(editor.writes(), ["new\n"]);
    assert_eq!(editor.bytes(), b"disk\n");
    assert!(editor.read().ends_with("1| new\n"));
}

#[test]
fn an_unsaved_buffer_is_edited_once_without_touching_the_disk() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Keeps).file(b"disk\n").unsaved("one\nunsaved\nthree\n");
    let modified = || fs::metadata(editor.agent.path("f")).unwrap().modified().unwrap();
    let before = modified();
    assert!(editor.read().ends_with("    2| unsaved\n    3| three\n"));
    let result = editor.edit("unsaved", "edited");
    assert!(result.starts_with("Applied 1 edit to f (+1 −1). Match: exact."), "{result}");
    assert_eq!(editor.writes(), ["one\nedited\nthree\n"]);
    assert_eq!(
        editor.file_requests.last().unwrap().0,
        "fs/read_text_file",
        "the agent must read the text back"
    );
    // The text on the disk is not part of the buffer.
    assert!(editor.edit("disk", "x").contains("old_string not found in f."));
    assert!(editor.writes().is_empty(), "{:?}", editor.file_requests);
    assert!(editor.read().ends_with("    2| edited\n    3| three\n"));
    assert_eq!(editor.bytes(), b"disk\n");
    let after = fs::metadata(editor.agent.path("f")).unwrap().modified().unwrap();
    assert_eq!(before, after);
}

#[test]
fn an_edit_that_the_editor_formats_is_shown_as_saved() {
    let mut editor = BufferEditor::new(SaveBehavior::Formats).file(b"one\ntwo\nthree\n");
    let result = editor.edit("two\n", "zwei   \nmore\t\n");
    assert_eq!(editor.writes(), ["one\nzwei   \nmore\t\nthree\n"]);
    assert_eq!(editor.bytes(), b"one\nzwei\nmore\nthree\n");
    assert!(result.contains("The editor changed more when it saved the file"), "{result}");
    assert!(result.contains("    2| zwei\n    3| more\n"), "{result}");
    let diff = cards::card(&editor.agent, 0)["content"][0].clone();
    assert_eq!(diff["newText"], "one\nzwei\nmore\nthree\n");
    // The agent knows the text as the editor has saved it.
    let result = editor.edit("more", "less");
    assert!(result.contains("Match: exact.") && !result.contains("changed since"), "{result}");
}

#[test]
fn an_edit_loses_no_byte_and_no_unsaved_change() {
    let table: [(&[u8], &[u8]); 5] = [
        (b"\xef\xbb\xbfone\r\nold\r\n", b"\xef\xbb\xbfone\r\nnew\r\n"),
        (b"\xff\xfeo\0l\0d\0\r\0\n\0", b"\xff\xfen\0e\0w\0\r\0\n\0"),
        (b"\xfe\xff\0o\0l\0d\0\n", b"\xfe\xff\0n\0e\0w\0\n"),
        (b"caf\xe9 ferm\xe9\nold", b"caf\xe9 ferm\xe9\nnew"),
        (b"a\r\nold\nb\r\n", b"a\r\nnew\nb\r\n"),
    ];
    for (before, after) in table {
        for behavior in [SaveBehavior::Keeps, SaveBehavior::Saves, SaveBehavior::SavesRaw] {
            let mut editor = BufferEditor::new(behavior).file(before);
            let result = editor.edit("old", "new");
            assert!(result.starts_with("Applied 1 edit to f"), "{result}");
            assert_eq!(editor.bytes(), after, "{result}");
            assert!(editor.writes().is_empty(), "{:?}", editor.file_requests);
        }
        let mut editor =
            BufferEditor::new(SaveBehavior::Keeps).file(before).unsaved("one\nold\nunsaved\n");
        let result = editor.edit("old", "new");
        assert!(result.contains("unsaved changes in the editor"), "{result}");
        assert_eq!((editor.bytes().as_slice(), editor.writes().len()), (before, 0));
    }
}

#[test]
fn a_file_that_the_editor_has_not_opened_is_read_and_written_on_the_disk() {
    let mut editor = BufferEditor::new(SaveBehavior::FileNotOpen).file(b"one\r\ntwo\n");
    assert!(editor.read().ends_with("    1| one\n    2| two\n"));
    assert!(editor.edit("two", "2").starts_with("Applied 1 edit to f"));
    assert_eq!(editor.bytes(), b"one\r\n2\n");
    let mut editor = editor.file(b"plain\n");
    editor.read();
    assert!(editor.edit("plain", "simple").starts_with("Applied 1 edit to f"));
    assert_eq!(editor.bytes(), b"simple\n");
    assert!(editor.write("new\n").starts_with("Replaced f"));
    assert_eq!(editor.bytes(), b"new\n");
}

#[test]
fn a_text_that_the_editor_formats_is_shown_and_known_as_saved() {
    let mut editor = BufferEditor::new(SaveBehavior::Formats).file(b"old\n");
    let result = editor.write("new   \nlines\n");
    assert!(result.contains("The editor changed the text when it saved it"), "{result}");
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["content"][0]["newText"], "new\nlines\n");
    // The formatting by the editor does not count as a change by somebody else.
    assert!(editor.write("again\n").starts_with("Replaced f"));
}

#[test]
fn line_ends_of_a_file_survive_in_every_kind_of_editor() {
    for behavior in [SaveBehavior::Keeps, SaveBehavior::Saves, SaveBehavior::SavesRaw] {
        let mut editor = BufferEditor::new(behavior).file(b"one\r\ntwo\r\n");
        let result = editor.write("one\nthree\n");
        assert!(result.starts_with("Replaced f: 2 lines, 12 bytes."), "{result}");
        if behavior != SaveBehavior::Keeps {
            assert_eq!(editor.bytes(), b"one\r\nthree\r\n");
        }
        // The text is written with line feeds, as the editor has shown it. Only an editor that
        // saves the bytes unchanged gets a second write, with the line ends of the file.
        assert_eq!(editor.writes()[0], "one\nthree\n");
        assert_eq!(editor.writes().len(), if behavior == SaveBehavior::SavesRaw { 2 } else { 1 });
    }
}

#[test]
fn a_text_that_an_editor_cannot_hold_is_written_to_the_disk() {
    let table: [(&[u8], &str, &[u8]); 4] = [
        (b"\xef\xbb\xbfold\r\n", "new\n", b"\xef\xbb\xbfnew\r\n"),
        (b"\xff\xfeo\0l\0d\0", "\u{1f600}", b"\xff\xfe\x3d\xd8\x00\xde"),
        (b"caf\xe9 ferm\xe9\n", "th\u{e9}\n", b"th\xe9\n"),
        (b"a\r\nb\n", "a\r\nc\n", b"a\r\nc\n"),
    ];
    for (before, content, after) in table {
        let mut editor = BufferEditor::new(SaveBehavior::SavesRaw).file(before);
        let result = editor.write(content);
        assert!(result.starts_with("Replaced f"), "{result}");
        assert_eq!(editor.bytes(), after, "{content:?}");
        assert!(editor.writes().is_empty(), "{:?}", editor.file_requests);
    }
}

#[test]
fn a_file_that_the_editor_cannot_hold_is_not_written_under_unsaved_changes() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Keeps).file(b"a\r\nb\n").unsaved("a\nb\nand more\n");
    let result = editor.write("new\n");
    assert!(result.contains("unsaved changes in the editor"), "{result}");
    assert_eq!(editor.bytes(), b"a\r\nb\n");
    // The result is the same if the editor cannot write files.
    let other = BufferEditor::with_capability(SaveBehavior::Keeps, false);
    let mut other = other.file(b"a\r\nb\n").unsaved("a\nb\nand more\n");
    let result = other.write("new\n");
    assert!(result.contains("unsaved changes in the editor"), "{result}");
    assert_eq!(other.bytes(), b"a\r\nb\n");
    // A buffer without unsaved changes is no obstacle.
    let mut editor = editor.file(b"a\r\nb\n").unsaved("a\nb\n");
    assert!(editor.write("new\n").starts_with("Replaced f"));
}

#[test]
fn a_file_that_somebody_else_has_changed_is_not_overwritten() {
    let mut editor = BufferEditor::new(SaveBehavior::Keeps).file(b"one\ntwo\nthree\n");
    // The file was never read, so the user sees the change and decides.
    assert!(editor.write("one\ntwo\nthree\nfour\n").starts_with("Replaced f"));
    editor = editor.file(b"one\ntwo\nthree\n");
    editor.read();
    editor = editor.unsaved("one\nzwei\nthree\n");
    let result = editor.write("new\n");
    let expected = "f changed in the editor since you read it (changed lines: 2). Nothing was written. Read it again.";
    assert_eq!(result, expected);
    assert_eq!(cards::card(&editor.agent, 2)["status"], "failed");
    editor.read();
    assert!(editor.write("new\n").starts_with("Replaced f"));
    // Appending overwrites no text.
    editor = editor.unsaved("other\n");
    let more = json!({ "path": "f", "content": "more\n", "mode": "append" });
    assert!(editor.call("write_file", &more).starts_with("Appended to f"));
    assert_eq!(editor.writes(), ["other\nmore\n"]);
}

#[test]
fn a_batch_waits_once_for_a_silent_editor_and_sends_it_four_requests() {
    let names: Vec<_> = (0..12).map(|it| format!("f{it}")).collect();
    let fs = json!({ "readTextFile": true });
    let builder = TestAgent::builder().capabilities(json!({ "fs": fs }));
    let builder = names.iter().fold(builder, |it, name| it.file(name, "disk\n"));
    let (agent, result) = cards::run(builder, "read_file", &json!({ "paths": names }));
    assert_eq!(result.matches("1| disk\n").count(), 12, "{result}");
    let sent = cards::requests(&agent);
    let sent = sent.iter().filter(|it| *it == "fs/read_text_file").count();
    assert_eq!(sent, 4);
    let told = agent.thoughts();
    assert_eq!(told.matches("The editor does not answer when it").count(), 1, "{told}");
}

#[test]
fn a_text_in_an_editor_that_cannot_be_read_is_not_replaced() {
    let fs = json!({ "readTextFile": true, "writeTextFile": true });
    let builder = TestAgent::builder().capabilities(json!({ "fs": fs })).file("f", "disk\n");
    let change = json!({ "path": "f", "content": "new\n" });
    let (agent, result) = cards::run(builder, "write_file", &change);
    assert!(result.starts_with("Replaced f"), "{result}");
    assert!(!cards::requests(&agent).contains(&"fs/write_text_file".to_owned()));
    assert_eq!(agent.read("f"), "new\n");
}

#[test]
fn the_last_line_end_survives_in_every_kind_of_editor() {
    let append = json!({ "path": "f", "content": "three\n", "mode": "append" });
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-two\n+2\n*** End Patch\n";
    for behavior in [SaveBehavior::Joins, SaveBehavior::EndsLines, SaveBehavior::Saves] {
        for end in ["\n", "\r\n"] {
            let lines = |all: &str| all.replace('\n', end).into_bytes();
            let editor = BufferEditor::new(behavior).file(&lines("one\ntwo\n"));
            let mut editor = editor;
            assert!(editor.read().ends_with("| Lines: 2]\n    1| one\n    2| two\n"));
            let steps = [
                (
                    "edit_file",
                    json!({ "path": "f", "old_text": "one", "new_text": "1" }),
                    "1\ntwo\n",
                ),
                ("write_file", append.clone(), "1\ntwo\nthree\n"),
                ("apply_patch", json!({ "patch": patch }), "1\n2\nthree\n"),
                (
                    "edit_file",
                    json!({ "path": "f", "old_text": "three", "new_text": "3" }),
                    "1\n2\n3\n",
                ),
                ("write_file", json!({ "path": "f", "content": "x\n" }), "x\n"),
                ("write_file", json!({ "path": "f", "content": "x\n\n" }), "x\n\n"),
                ("write_file", append.clone(), "x\n\nthree\n"),
            ];
            for (tool, arguments, expected) in steps {
                let result = editor.call(tool, &arguments);
                assert!(!result.contains("The editor"), "{arguments}: {result}");
                assert!(!result.contains("changed since"), "{arguments}: {result}");
                assert_eq!(editor.bytes(), lines(expected), "{arguments}: {result}");
            }
            editor.prompt("/undo");
            assert_eq!(editor.bytes(), lines("x\n\n"));
        }
    }
    // A file that ends without one is not given one.
    let mut editor = BufferEditor::new(SaveBehavior::Joins).file(b"one\ntwo");
    editor.edit("one", "1");
    assert_eq!(editor.bytes(), b"1\ntwo");
}

#[test]
fn an_unsaved_buffer_without_its_last_line_end_gets_it_back() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Joins).file(b"one\ntwo\n").unsaved("one\nzwei");
    let append = json!({ "path": "f", "content": "three\n", "mode": "append" });
    editor.call("write_file", &append);
    assert_eq!(editor.bytes(), b"one\nzwei\nthree\n");
}

/// A command that gives the file `f` another second line.
fn command() -> serde_json::Value {
    let line = command_lines::line_for("printf 'one\\n2\\n' > f", "(echo one&echo 2)> f");
    json!({ "command": line })
}

#[test]
fn a_buffer_that_the_editor_has_not_reloaded_after_a_command_does_not_count() {
    for text in ["one\ntwo\n", "one\ntwo"] {
        let editor = BufferEditor::new(SaveBehavior::Saves).file(b"one\ntwo\n");
        let mut editor = editor.unsaved(text);
        editor.read();
        let result = editor.call("exec", &command());
        assert!(!result.contains("unsaved"), "{result}");
        let result = editor.read();
        assert!(result.ends_with("    2| 2\n"), "{result}");
        let result = editor.edit("one", "1");
        assert!(
            result.starts_with("Applied 1 edit to f") && !result.contains("changed"),
            "{result}"
        );
        assert_eq!(String::from_utf8_lossy(&editor.bytes()).replace('\r', ""), "1\n2\n");
        // The editor shows what was written, and from then on its text counts again.
        let mut editor = editor.unsaved("1\n2\nmine\n");
        assert!(editor.read().ends_with("    3| mine\n"));
    }
}

#[test]
fn what_the_user_and_a_command_have_both_changed_is_left_alone_and_said() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Saves).file(b"one\ntwo\n").unsaved("one\ntwo\nmine\n");
    editor.call("exec", &command());
    let disk = editor.bytes();
    let result = editor.read();
    assert!(result.contains("    3| mine\n"), "{result}");
    let told = "has unsaved changes in the editor, and was changed on the disk since";
    assert!(result.contains(told), "{result}");
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-one\n+1\n*** End Patch\n";
    for (tool, arguments) in [
        ("edit_file", json!({ "path": "f", "old_text": "one", "new_text": "1" })),
        ("write_file", json!({ "path": "f", "content": "x\n" })),
        ("write_file", json!({ "path": "f", "content": "x\n", "mode": "append" })),
        ("apply_patch", json!({ "patch": patch })),
    ] {
        let result = editor.call(tool, &arguments);
        assert!(result.contains(told) && result.contains("Ask the user"), "{result}");
        assert_eq!((editor.writes().len(), editor.bytes()), (0, disk.clone()));
    }
    // The user saves.
    let mut editor = editor.file(b"one\ntwo\nmine\n").unsaved("one\ntwo\nmine\n");
    editor.read();
    assert!(editor.edit("one", "1").starts_with("Applied 1 edit to f"));
    assert_eq!(editor.bytes(), b"1\ntwo\nmine\n");
}

#[test]
fn an_editor_that_shows_files_and_does_not_write_them_may_show_an_old_text() {
    let editor = BufferEditor::with_capability(SaveBehavior::Saves, false);
    let mut editor = editor.file(b"one\ntwo\n").unsaved("one\ntwo\n");
    editor.edit("one", "1");
    let result = editor.edit("two", "2");
    assert!(result.starts_with("Applied 1 edit to f") && !result.contains("changed"), "{result}");
    assert_eq!(editor.bytes(), b"1\n2\n");
    assert!(editor.read().ends_with("    1| 1\n    2| 2\n"));
}
