//! An editor with unsaved changes, played by the harness: it shows its buffers and writes them, and
//! what it cannot hold never goes through it.

use std::fs;

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::unsaved_buffers::{self, SaveBehavior};

use crate::agent::{AgentTransport, TestAgent};

type BufferEditor = unsaved_buffers::BufferEditor<AgentTransport>;

#[test]
fn an_unsaved_buffer_is_read_and_written_once_and_the_disk_is_not_touched() {
    let mut editor = BufferEditor::new(SaveBehavior::Keeps).file(b"disk\n").unsaved("unsaved\n");
    assert!(editor.read().ends_with("1| unsaved\n"));
    assert_eq!(editor.asked.len(), 1);
    let told = editor.write("new\n");
    assert_eq!(told, "Replaced f: 1 lines, 4 bytes.");
    assert_eq!(editor.writes(), ["new\n"]);
    assert_eq!(editor.bytes(), b"disk\n");
    assert!(editor.read().ends_with("1| new\n"));
}

#[test]
fn an_unsaved_buffer_is_edited_once_and_the_disk_is_not_touched() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Keeps).file(b"disk\n").unsaved("one\nunsaved\nthree\n");
    let written = || fs::metadata(editor.agent.path("f")).unwrap().modified().unwrap();
    let before = written();
    assert!(editor.read().ends_with("    2| unsaved\n    3| three\n"));
    let told = editor.edit("unsaved", "edited");
    assert!(told.starts_with("Applied 1 edit to f (+1 −1). Match: exact."), "{told}");
    assert_eq!(editor.writes(), ["one\nedited\nthree\n"]);
    assert_eq!(editor.asked.last().unwrap().0, "fs/read_text_file", "it is read back");
    // What is only on the disk is not there.
    assert!(editor.edit("disk", "x").contains("old_text not found in f."));
    assert!(editor.writes().is_empty(), "{:?}", editor.asked);
    assert!(editor.read().ends_with("    2| edited\n    3| three\n"));
    assert_eq!(editor.bytes(), b"disk\n");
    let after = fs::metadata(editor.agent.path("f")).unwrap().modified().unwrap();
    assert_eq!(before, after);
}

#[test]
fn an_edit_that_the_editor_formats_is_shown_as_it_was_saved() {
    let mut editor = BufferEditor::new(SaveBehavior::Formats).file(b"one\ntwo\nthree\n");
    let told = editor.edit("two\n", "zwei   \nmore\t\n");
    assert_eq!(editor.writes(), ["one\nzwei   \nmore\t\nthree\n"]);
    assert_eq!(editor.bytes(), b"one\nzwei\nmore\nthree\n");
    assert!(told.contains("The editor changed more when it saved the file"), "{told}");
    assert!(told.contains("    2| zwei\n    3| more\n"), "{told}");
    let diff = cards::card(&editor.agent, 0)["content"][0].clone();
    assert_eq!(diff["newText"], "one\nzwei\nmore\nthree\n");
    // What it was saved as is what is known of it.
    let told = editor.edit("more", "less");
    assert!(told.contains("Match: exact.") && !told.contains("changed since"), "{told}");
}

#[test]
fn an_edit_beside_an_editor_loses_no_byte_and_no_unsaved_change() {
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
            let told = editor.edit("old", "new");
            assert!(told.starts_with("Applied 1 edit to f"), "{told}");
            assert_eq!(editor.bytes(), after, "{told}");
            assert!(editor.writes().is_empty(), "{:?}", editor.asked);
        }
        let mut editor =
            BufferEditor::new(SaveBehavior::Keeps).file(before).unsaved("one\nold\nunsaved\n");
        let told = editor.edit("old", "new");
        assert!(told.contains("unsaved changes in the editor"), "{told}");
        assert_eq!((editor.bytes().as_slice(), editor.writes().len()), (before, 0));
    }
}

#[test]
fn what_the_editor_has_not_opened_is_read_and_written_on_the_disk() {
    let mut editor = BufferEditor::new(SaveBehavior::Unaware).file(b"one\r\ntwo\n");
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
fn what_the_editor_makes_of_a_text_is_what_is_shown_and_known() {
    let mut editor = BufferEditor::new(SaveBehavior::Formats).file(b"old\n");
    let told = editor.write("new   \nlines\n");
    assert!(told.contains("The editor changed the text when it saved it"), "{told}");
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["content"][0]["newText"], "new\nlines\n");
    // It is no change by somebody else.
    assert!(editor.write("again\n").starts_with("Replaced f"));
}

#[test]
fn line_ends_of_a_file_survive_every_sort_of_editor() {
    for behavior in [SaveBehavior::Keeps, SaveBehavior::Saves, SaveBehavior::SavesRaw] {
        let mut editor = BufferEditor::new(behavior).file(b"one\r\ntwo\r\n");
        let told = editor.write("one\nthree\n");
        assert!(told.starts_with("Replaced f: 2 lines, 12 bytes."), "{told}");
        if behavior != SaveBehavior::Keeps {
            assert_eq!(editor.bytes(), b"one\r\nthree\r\n");
        }
        // Given as it was shown; with line ends only to who writes what it is given.
        assert_eq!(editor.writes()[0], "one\nthree\n");
        assert_eq!(editor.writes().len(), if behavior == SaveBehavior::SavesRaw { 2 } else { 1 });
    }
}

#[test]
fn bytes_that_an_editor_would_lose_are_kept_on_the_disk() {
    let table: [(&[u8], &str, &[u8]); 4] = [
        (b"\xef\xbb\xbfold\r\n", "new\n", b"\xef\xbb\xbfnew\r\n"),
        (b"\xff\xfeo\0l\0d\0", "\u{1f600}", b"\xff\xfe\x3d\xd8\x00\xde"),
        (b"caf\xe9 ferm\xe9\n", "th\u{e9}\n", b"th\xe9\n"),
        (b"a\r\nb\n", "a\r\nc\n", b"a\r\nc\n"),
    ];
    for (before, content, after) in table {
        let mut editor = BufferEditor::new(SaveBehavior::SavesRaw).file(before);
        let told = editor.write(content);
        assert!(told.starts_with("Replaced f"), "{told}");
        assert_eq!(editor.bytes(), after, "{content:?}");
        assert!(editor.writes().is_empty(), "{:?}", editor.asked);
    }
}

#[test]
fn such_a_file_is_not_written_under_unsaved_changes() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Keeps).file(b"a\r\nb\n").unsaved("a\nb\nand more\n");
    let told = editor.write("new\n");
    assert!(told.contains("unsaved changes in the editor"), "{told}");
    assert_eq!(editor.bytes(), b"a\r\nb\n");
    // Whether the editor would write itself makes no difference.
    let other = BufferEditor::with_capability(SaveBehavior::Keeps, false);
    let mut other = other.file(b"a\r\nb\n").unsaved("a\nb\nand more\n");
    let told = other.write("new\n");
    assert!(told.contains("unsaved changes in the editor"), "{told}");
    assert_eq!(other.bytes(), b"a\r\nb\n");
    // Saved, it is no obstacle.
    let mut editor = editor.file(b"a\r\nb\n").unsaved("a\nb\n");
    assert!(editor.write("new\n").starts_with("Replaced f"));
}

#[test]
fn a_character_that_a_file_cannot_hold_is_refused_by_name() {
    let mut editor = BufferEditor::new(SaveBehavior::Keeps).file(b"caf\xe9 ferm\xe9\n");
    let told = editor.write("語\n");
    assert!(told.contains("windows-1252") && told.contains("'語'"), "{told}");
    assert_eq!(editor.bytes(), b"caf\xe9 ferm\xe9\n");
}

#[test]
fn a_file_that_somebody_else_has_changed_is_not_overwritten() {
    let mut editor = BufferEditor::new(SaveBehavior::Keeps).file(b"one\ntwo\nthree\n");
    // Never read: the user sees the change and decides.
    assert!(editor.write("one\ntwo\nthree\nfour\n").starts_with("Replaced f"));
    editor = editor.file(b"one\ntwo\nthree\n");
    editor.read();
    editor = editor.unsaved("one\nzwei\nthree\n");
    let told = editor.write("new\n");
    let expected = "f changed in the editor since you read it (changed lines: 2). Nothing was written. Read it again.";
    assert_eq!(told, expected);
    assert_eq!(cards::card(&editor.agent, 2)["status"], "failed");
    editor.read();
    assert!(editor.write("new\n").starts_with("Replaced f"));
    // More at the end loses nothing of anybody's.
    editor = editor.unsaved("other\n");
    let more = json!({ "path": "f", "content": "more\n", "mode": "append" });
    assert!(editor.call("write_file", &more).starts_with("Appended to f"));
    assert_eq!(editor.writes(), ["other\nmore\n"]);
}

#[test]
fn a_silent_editor_costs_a_batch_one_wait_and_is_asked_four_things_at_most() {
    let names: Vec<_> = (0..12).map(|it| format!("f{it}")).collect();
    let fs = json!({ "readTextFile": true });
    let builder = TestAgent::builder().capabilities(json!({ "fs": fs }));
    let builder = names.iter().fold(builder, |it, name| it.file(name, "disk\n"));
    let (agent, result) = cards::run(builder, "read_file", &json!({ "paths": names }));
    assert_eq!(result.matches("1| disk\n").count(), 12, "{result}");
    let asked = cards::requests(&agent);
    let asked = asked.iter().filter(|it| *it == "fs/read_text_file").count();
    assert_eq!(asked, 4);
}
