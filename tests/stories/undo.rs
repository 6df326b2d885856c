//! `/undo`, `/redo`, `/diff` and `/rewind` over the wire, with real files and what tools have really
//! done to them.

use std::collections::HashMap;
use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// What the agent answers to a command.
fn answer(agent: &mut TestAgent, command: &str) -> String {
    let before = agent.text().len();
    assert_eq!(agent.turn(command), "end_turn", "{command}");
    agent.text()[before..].to_owned()
}

fn write(path: &str, content: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": content }))
}

#[test]
fn commands_about_what_was_say_so_when_there_is_nothing() {
    let mut agent = TestAgent::builder().start();
    for (command, expected) in [
        ("/undo", "Nothing to undo"),
        ("/undo two", "number of turns"),
        ("/undo 0", "number of turns"),
        ("/redo", "Nothing to redo"),
        ("/diff", "No files were changed"),
        ("/diff all", "No files were changed"),
        ("/rewind", "no prompts to go back to"),
        ("/rewind 1", "There is no such prompt"),
    ] {
        let said = answer(&mut agent, command);
        assert!(said.contains(expected), "{command}: {said}");
    }
    assert_eq!(agent.model().requests().len(), 0);
}

#[test]
fn s4_16_rewind_takes_the_conversation_back_and_the_model_knows_nothing_of_it() {
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), says("Two."), says("Three."), says("Four.")]))
        .start();
    for prompt in ["the first", "the second", "the third"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    let listed = answer(&mut agent, "/rewind");
    assert!(listed.contains("1. the third\n2. the second\n3. the first"), "{listed}");
    let said = answer(&mut agent, "/rewind 2");
    assert!(
        said.contains("before “the second”") && said.contains("Files were not changed"),
        "{said}"
    );
    assert_eq!(agent.turn("and now"), "end_turn");
    let known = agent.model_transcript(3).join("\n");
    assert!(known.contains("the first") && known.contains("One."), "{known}");
    assert!(!known.contains("the second") && !known.contains("Three."), "{known}");
    let listed = answer(&mut agent, "/rewind");
    assert!(listed.contains("1. and now\n2. the first"), "{listed}");
}

/// The ones below need what calls have done to files to be written down.
#[test]
fn undo_puts_files_back_shows_a_card_and_tells_the_model() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .file("gone.txt", "here\n")
        .permission("allow_once")
        .model(json!([
            calls(
                "edit_file",
                &json!({ "path": "a.txt", "edits": [{ "old_text": "old", "new_text": "new" }] })
            ),
            write("made/b.txt", "made\n"),
            calls("delete_path", &json!({ "path": "gone.txt" })),
            says("Done."),
            says("I see."),
        ]))
        .start();
    assert_eq!(agent.turn("change things"), "end_turn");
    assert_eq!(agent.read("a.txt"), "new\n");
    let diff = answer(&mut agent, "/diff");
    assert!(diff.contains("-old\n+new\n") && diff.contains("+made\n"), "{diff}");
    let said = answer(&mut agent, "/undo");
    assert!(said.contains("Undone: turn 1 (change things)"), "{said}");
    assert!(said.contains("`a.txt`") && said.contains("`gone.txt`"), "{said}");
    assert_eq!((agent.read("a.txt"), agent.read("gone.txt")), ("old\n".into(), "here\n".into()));
    assert!(!agent.path("made/b.txt").exists());
    let card = |it: &&Value| it["sessionUpdate"] == "tool_call" && it["name"] == "undo";
    assert_eq!(agent.updates().iter().filter(card).count(), 1);
    assert_eq!(agent.turn("what now?"), "end_turn");
    let told = agent.model_request(4).to_string();
    assert!(told.contains("The user undid turn 1 (change things)"), "{told}");
    assert!(answer(&mut agent, "/redo").contains("Redone"));
    assert_eq!(agent.read("a.txt"), "new\n");
    assert!(agent.path("made/b.txt").exists() && !agent.path("gone.txt").exists());
    cards::check(&agent);
}

#[test]
fn a_change_of_the_users_own_is_a_conflict_and_stays() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "1\n")
        .file("b.txt", "1\n")
        .permission("allow_once")
        .model(json!([write("a.txt", "2\n"), write("b.txt", "2\n"), says("Done.")]))
        .start();
    assert_eq!(agent.turn("change both"), "end_turn");
    fs::write(agent.path("a.txt"), "the user's\n").unwrap();
    let said = answer(&mut agent, "/undo");
    assert!(said.contains("* `a.txt` – it was changed since"), "{said}");
    assert_eq!((agent.read("a.txt"), agent.read("b.txt")), ("the user's\n".into(), "1\n".into()));
}

#[test]
fn rewind_with_files_takes_both_back() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "0\n")
        .permission("allow_once")
        .model(json!([write("a.txt", "1\n"), says("One."), write("a.txt", "2\n"), says("Two."),]))
        .start();
    assert_eq!(agent.turn("first"), "end_turn");
    assert_eq!(agent.turn("second"), "end_turn");
    let said = answer(&mut agent, "/rewind 2 files");
    assert!(said.contains("before “first”") && said.contains("Restored (1)"), "{said}");
    assert_eq!(agent.read("a.txt"), "0\n");
}

/// Prompts, and answers what is asked about files like an editor; it saves if it is said so.
fn with_editor(
    agent: &mut TestAgent,
    prompt: &str,
    buffers: &mut HashMap<String, String>,
    saves: bool,
) -> String {
    let before = agent.text().len();
    let id = agent.prompt(prompt);
    loop {
        let asks = |it: &Value| it["method"].as_str().is_some_and(|it| it.starts_with("fs/"));
        let is_end = |it: &Value| it.get("method").is_none() && it["id"] == id;
        let message = agent.wait_for("a question or the end", |it| asks(it) || is_end(it));
        if is_end(&message) {
            return agent.text()[before..].to_owned();
        }
        let path = message["params"]["path"].as_str().unwrap().to_owned();
        let Some(text) = message["params"]["content"].as_str() else {
            let text = buffers.get(&path).cloned().or_else(|| fs::read_to_string(&path).ok());
            agent.respond(&message, &json!({ "content": text.unwrap_or_default() }));
            continue;
        };
        if saves {
            fs::write(&path, text).unwrap();
        }
        buffers.insert(path, text.to_owned());
        agent.respond(&message, &json!(null));
    }
}

#[test]
fn undo_goes_through_the_editor_and_leaves_what_is_not_saved() {
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
        let said = with_editor(&mut agent, "/undo", &mut buffers, saves);
        if !saves {
            assert!(said.contains("* `a` – it has unsaved changes in the editor"), "{said}");
            assert_eq!((&*buffers[&path], &*agent.read("a")), ("new\n", "old\n"));
            continue;
        }
        assert!(said.contains("Restored (1)"), "{said}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("old\n", "old\n"));
        buffers.insert(path.clone(), "typed\n".to_owned());
        let said = with_editor(&mut agent, "/redo", &mut buffers, saves);
        assert!(said.contains("* `a` – it has unsaved changes in the editor"), "{said}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("typed\n", "old\n"));
        buffers.insert(path.clone(), "old\n".to_owned());
        let said = with_editor(&mut agent, "/redo", &mut buffers, saves);
        assert!(said.contains("Redone") && said.contains("Restored (1)"), "{said}");
        assert_eq!((&*buffers[&path], &*agent.read("a")), ("new\n", "new\n"));
    }
}
