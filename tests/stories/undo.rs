//! `/undo`, `/redo`, `/diff` and `/rewind` in a whole session, with real files that tools have
//! changed.

use std::collections::HashMap;
use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says, writes};

#[test]
fn commands_about_earlier_turns_say_when_there_are_none() {
    let mut agent = TestAgent::builder().start();
    for (command, expected) in [
        ("/undo", "Nothing to undo"),
        ("/undo two", "number of turns"),
        ("/undo 0", "number of turns"),
        ("/redo", "Nothing to redo"),
        ("/redo nonsense", "Nothing was redone. Usage: `/redo`"),
        ("/diff", "No files were changed"),
        ("/diff all", "No files were changed"),
        ("/rewind", "no prompts to go back to"),
        ("/rewind 1", "There is no such prompt"),
    ] {
        let output = agent.turn_text(command);
        assert!(output.contains(expected), "{command}: {output}");
    }
    assert_eq!(agent.model().requests().len(), 0);
}

#[test]
fn s4_16_rewind_removes_prompts_from_the_history_of_the_model() {
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), says("Two."), says("Three."), says("Four.")]))
        .start();
    for prompt in ["the first", "the second", "the third"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    let listed = agent.turn_text("/rewind");
    assert!(listed.contains("1. the third\n2. the second\n3. the first"), "{listed}");
    let output = agent.turn_text("/rewind 2");
    assert!(
        output.contains("before “the second”") && output.contains("Files were not changed"),
        "{output}"
    );
    assert_eq!(agent.turn("and now"), "end_turn");
    let history = agent.model_transcript(3).join("\n");
    assert!(history.contains("the first") && history.contains("One."), "{history}");
    assert!(!history.contains("the second") && !history.contains("Three."), "{history}");
    let listed = agent.turn_text("/rewind");
    assert!(listed.contains("1. and now\n2. the first"), "{listed}");
}

#[test]
fn redo_brings_back_what_rewind_has_removed_until_the_next_prompt() {
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), says("Two."), says("Three."), says("Four.")]))
        .start();
    assert_eq!(agent.turn("the first"), "end_turn");
    assert_eq!(agent.turn("the second"), "end_turn");
    agent.turn_text("/rewind 1");
    agent.turn_text("/rewind 1");
    for expected in ["as it was before `/rewind`", "Files were not changed"] {
        let output = agent.turn_text("/redo");
        assert!(output.contains(expected), "{output}");
    }
    assert!(agent.turn_text("/redo").contains("Nothing to redo"));
    assert_eq!(agent.turn("the third"), "end_turn");
    let history = agent.model_transcript(2);
    let expected = ["the first", "One.", "the second", "Two.", "the third"];
    for (message, words) in history.iter().zip(expected) {
        assert!(message.contains(words), "{history:?}");
    }
    agent.turn_text("/rewind 1");
    assert_eq!(agent.turn("the fourth"), "end_turn");
    assert!(agent.turn_text("/redo").contains("Nothing to redo"));
    let listed = agent.turn_text("/rewind");
    assert!(listed.contains("1. the fourth\n2. the second"), "{listed}");
}

#[test]
fn rewind_with_files_takes_back_what_was_undone_and_redone() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "0\n")
        .permission("allow_once")
        .model(json!([writes("a.txt", "1\n"), says("One."), writes("a.txt", "2\n"), says("Two.")]))
        .start();
    assert_eq!(agent.turn("first"), "end_turn");
    assert_eq!(agent.turn("second"), "end_turn");
    agent.turn_text("/undo");
    agent.turn_text("/redo");
    let output = agent.turn_text("/rewind 2 files");
    assert!(output.contains("Restored (1)"), "{output}");
    assert_eq!(agent.read("a.txt"), "0\n");
}

#[test]
fn redo_after_undo_and_rewind_redoes_the_later_one_first() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "0\n")
        .permission("allow_once")
        .model(json!([writes("a.txt", "1\n"), says("One."), writes("a.txt", "2\n"), says("Two.")]))
        .start();
    assert_eq!(agent.turn("first"), "end_turn");
    assert_eq!(agent.turn("second"), "end_turn");
    agent.turn_text("/undo");
    agent.turn_text("/rewind 1");
    agent.turn_text("/undo");
    assert_eq!(agent.read("a.txt"), "0\n");
    assert!(agent.turn_text("/redo").starts_with("Redone"));
    assert_eq!(agent.read("a.txt"), "1\n");
    assert!(agent.turn_text("/redo").contains("as it was before `/rewind`. Files were not"));
    assert_eq!(agent.read("a.txt"), "1\n");
    assert!(agent.turn_text("/redo").starts_with("Redone"));
    assert_eq!(agent.read("a.txt"), "2\n");
}

/// The commands use the file changes that the store has recorded for each call.
#[test]
fn undo_restores_files_shows_a_card_and_tells_the_model() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .file("gone.txt", "here\n")
        .permission("allow_once")
        .model(json!([
            calls(
                "edit_file",
                &json!({ "path": "a.txt", "edits": [{ "old_text": "old", "new_text": "new" }] })
            ),
            writes("made/b.txt", "made\n"),
            calls("delete_path", &json!({ "path": "gone.txt" })),
            says("Done."),
            says("I see."),
        ]))
        .start();
    assert_eq!(agent.turn("change things"), "end_turn");
    assert_eq!(agent.read("a.txt"), "new\n");
    let diff = agent.turn_text("/diff");
    assert!(diff.contains("-old\n+new\n") && diff.contains("+made\n"), "{diff}");
    let output = agent.turn_text("/undo");
    assert!(output.contains("Undone: turn 1 (change things)"), "{output}");
    let restored = output.contains("Restored (2):\n\n* `a.txt`\n* `gone.txt`\n\nRemoved (2):\n");
    assert!(restored && output.contains("* `made/b.txt`"), "{output}");
    assert_eq!((agent.read("a.txt"), agent.read("gone.txt")), ("old\n".into(), "here\n".into()));
    assert!(!agent.path("made/b.txt").exists());
    let is_undo_card = |it: &&Value| it["sessionUpdate"] == "tool_call" && it["name"] == "undo";
    assert_eq!(agent.updates().iter().filter(is_undo_card).count(), 1);
    assert_eq!(agent.turn("what now?"), "end_turn");
    let request = agent.model_request(4).to_string();
    assert!(request.contains("The user undid turn 1 (change things)"), "{request}");
    assert!(agent.turn_text("/redo").contains("Redone"));
    assert_eq!(agent.read("a.txt"), "new\n");
    assert!(agent.path("made/b.txt").exists() && !agent.path("gone.txt").exists());
    cards::check(&agent);
}

#[test]
fn rewind_with_files_restores_the_files_and_the_conversation() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "0\n")
        .permission("allow_once")
        .model(json!([writes("a.txt", "1\n"), says("One."), writes("a.txt", "2\n"), says("Two."),]))
        .start();
    assert_eq!(agent.turn("first"), "end_turn");
    assert_eq!(agent.turn("second"), "end_turn");
    let output = agent.turn_text("/rewind 2 files");
    assert!(output.contains("before “first”") && output.contains("Restored (1)"), "{output}");
    assert_eq!(agent.read("a.txt"), "0\n");
    let output = agent.turn_text("/redo");
    assert!(output.contains("as it was before `/rewind`. Redone"), "{output}");
    assert_eq!(agent.read("a.txt"), "2\n");
    assert!(agent.turn_text("/rewind").contains("1. second\n2. first"));
}

/// Sends a prompt and answers file requests like an editor, which saves the files if `saves` is
/// true. Returns the text of the turn.
fn with_editor(
    agent: &mut TestAgent,
    prompt: &str,
    buffers: &mut HashMap<String, String>,
    saves: bool,
) -> String {
    let write = |path: &str, text: &str| {
        if saves {
            fs::write(path, text).unwrap();
        }
        Some(text.to_owned())
    };
    with_writing_editor(agent, prompt, buffers, &write)
}

/// The same with an editor that writes a file with `write`, which returns the text of the buffer; `None` if it
/// refuses.
fn with_writing_editor(
    agent: &mut TestAgent,
    prompt: &str,
    buffers: &mut HashMap<String, String>,
    write: &dyn Fn(&str, &str) -> Option<String>,
) -> String {
    let before = agent.text().len();
    let id = agent.prompt(prompt);
    loop {
        let is_file_request =
            |it: &Value| it["method"].as_str().is_some_and(|it| it.starts_with("fs/"));
        let is_end = |it: &Value| it.get("method").is_none() && it["id"] == id;
        let message = agent.wait_for("a file request or the answer to the prompt", |message| {
            is_file_request(message) || is_end(message)
        });
        if is_end(&message) {
            return agent.text()[before..].to_owned();
        }
        let path = message["params"]["path"].as_str().unwrap().to_owned();
        let Some(text) = message["params"]["content"].as_str() else {
            let text = buffers.get(&path).cloned().or_else(|| fs::read_to_string(&path).ok());
            agent.respond(&message, &json!({ "content": text.unwrap_or_default() }));
            continue;
        };
        match write(&path, text) {
            Some(shown) => {
                buffers.insert(path, shown);
                agent.respond(&message, &json!(null));
            }
            None => agent.refuse(&message, -32_603, "the disk is full"),
        }
    }
}

const FILES_OF_EDITOR: &str = r#"{ "fs": { "readTextFile": true, "writeTextFile": true } }"#;

fn edit(path: &str) -> Value {
    let edits = json!([{ "old_text": "old", "new_text": "new" }]);
    calls("edit_file", &json!({ "path": path, "edits": edits }))
}

#[test]
fn undo_restores_the_very_bytes_through_an_editor_that_changes_what_it_saves() {
    type Save = fn(&str) -> String;
    let trim: Save = |text| text.replace(" \n", "\n").replace(" \n", "\n");
    let add_line: Save = |text| format!("{text}\n");
    let add_carriage_returns: Save = |text| text.replace('\n', "\r\n");
    // The last line end that an editor adds is taken back at once.
    for (save, shows_it, edited) in [
        (trim, true, "new\nmore\n"),
        (trim, false, "new\nmore\n"),
        (add_line, true, "new  \nmore\n"),
        (add_line, false, "new  \nmore\n"),
        (add_carriage_returns, false, "new  \r\nmore\r\n"),
    ] {
        let write = |path: &str, text: &str| {
            fs::write(path, save(text)).unwrap();
            Some(if shows_it { save(text) } else { text.to_owned() })
        };
        let mut agent = TestAgent::builder()
            .capabilities(serde_json::from_str(FILES_OF_EDITOR).unwrap())
            .file("a", "old  \nmore\n")
            .permission("allow_once")
            .model(json!([edit("a"), says("Done."), says("I see.")]))
            .start();
        let mut buffers = HashMap::new();
        with_writing_editor(&mut agent, "go", &mut buffers, &write);
        let saved = agent.read("a");
        assert_eq!(saved, edited);
        let output = with_writing_editor(&mut agent, "/undo", &mut buffers, &write);
        assert!(output.contains("Restored (1)"), "{output}");
        assert_eq!(agent.read("a"), "old  \nmore\n");
        buffers.clear();
        let output = with_writing_editor(&mut agent, "/redo", &mut buffers, &write);
        assert!(output.contains("Restored (1)"), "{output}");
        assert_eq!(agent.read("a"), saved);
        buffers.clear();
        with_writing_editor(&mut agent, "/undo", &mut buffers, &write);
        assert_eq!(agent.read("a"), "old  \nmore\n");
        with_writing_editor(&mut agent, "and now?", &mut buffers, &write);
        let request = agent.model_request(2).to_string();
        assert!(request.contains("The user undid turn 1 (go)"), "{request}");
    }
}

#[test]
fn an_undo_that_has_failed_for_some_files_can_be_repeated_and_taken_back() {
    for (next, expected) in [("/undo", ["old", "old"]), ("/redo", ["new", "new"])] {
        let mut agent = TestAgent::builder()
            .capabilities(serde_json::from_str(FILES_OF_EDITOR).unwrap())
            .file("a", "old\n")
            .file("b", "old\n")
            .permission("allow_once")
            .model(json!([edit("a"), edit("b"), says("Done."), says("I see.")]))
            .start();
        let mut buffers = HashMap::new();
        with_editor(&mut agent, "go", &mut buffers, true);
        let is_full = |path: &str, text: &str| {
            if path.ends_with('b') {
                return None;
            }
            fs::write(path, text).unwrap();
            Some(text.to_owned())
        };
        let output = with_writing_editor(&mut agent, "/undo", &mut buffers, &is_full);
        assert!(output.contains("Restored (1):\n\n* `a`"), "{output}");
        assert!(output.contains("Not restored (1):\n\n* `b` – "), "{output}");
        assert!(output.contains("Repeat `/undo` for the files that were not restored"), "{output}");
        assert_eq!((agent.read("a"), agent.read("b")), ("old\n".into(), "new\n".into()));
        // Also after a restart, and for the command line.
        agent.restart();
        let session = agent.session.clone();
        agent.load(&session);
        let output = with_editor(&mut agent, next, &mut buffers, true);
        assert!(output.contains("Restored (1)"), "{output}");
        assert_eq!([agent.read("a"), agent.read("b")], expected.map(|it| format!("{it}\n")));
        let back = if next == "/undo" { "/redo" } else { "/undo" };
        let output = with_editor(&mut agent, back, &mut buffers, true);
        assert!(output.contains("Restored (2)"), "{output}");
        assert!(!output.contains("Repeat"), "{output}");
    }
}

#[test]
fn undo_writes_through_the_editor_and_keeps_unsaved_changes() {
    let edit = json!({ "path": "a", "edits": [{ "old_text": "old", "new_text": "new" }] });
    for saves in [true, false] {
        let fs = json!({ "readTextFile": true, "writeTextFile": true });
        let mut agent = TestAgent::builder()
            .capabilities(json!({ "fs": fs }))
            .file("a", "old\n")
            .permission("allow_once")
            .model(json!([calls("edit_file", &edit), says("Done.")]))
            .start();
        let path = agent.path("a").to_str().unwrap().to_owned();
        let mut buffers = HashMap::from([(path.clone(), "old\n".to_owned())]);
        with_editor(&mut agent, "go", &mut buffers, saves);
        assert_eq!(buffers[&path], "new\n");
        let output = with_editor(&mut agent, "/undo", &mut buffers, saves);
        if !saves {
            assert!(output.contains("* `a` – it has unsaved changes in the editor"), "{output}");
            assert_eq!((&*buffers[&path], &*agent.read("a")), ("new\n", "old\n"));
            continue;
        }
        assert!(output.contains("Restored (1)"), "{output}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("old\n", "old\n"));
        buffers.insert(path.clone(), "typed\n".to_owned());
        let output = with_editor(&mut agent, "/redo", &mut buffers, saves);
        assert!(output.contains("* `a` – it has unsaved changes in the editor"), "{output}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("typed\n", "old\n"));
        buffers.insert(path.clone(), "old\n".to_owned());
        let output = with_editor(&mut agent, "/redo", &mut buffers, saves);
        assert!(output.contains("Redone") && output.contains("Restored (1)"), "{output}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("new\n", "new\n"));
    }
}
