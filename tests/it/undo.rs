//! `/undo`, `/redo`, `/diff` and `/rewind` over the wire, with real files and what tools have really
//! done to them.

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};
use crate::cards;

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
        ("/undo", "nothing to undo"),
        ("/undo two", "Say how many turns"),
        ("/undo 0", "Say how many turns"),
        ("/redo", "nothing to redo"),
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
        said.contains("before “the second”") && said.contains("Files are as they are"),
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
    std::fs::write(agent.path("a.txt"), "the user's\n").unwrap();
    let said = answer(&mut agent, "/undo");
    assert!(said.contains("* `a.txt` – it was changed since"), "{said}");
    assert_eq!((agent.read("a.txt"), agent.read("b.txt")), ("the user's\n".into(), "1\n".into()));
}

#[test]
fn what_a_command_has_done_is_undone_too() {
    let line = "sed -i s/1/2/ a.txt; rm b.txt; chmod 755 c.sh; echo new > d.txt";
    let mut agent = TestAgent::builder()
        .file("a.txt", "1\n")
        .file("b.txt", "1\n")
        .file("c.sh", "1\n")
        .permission("allow_once")
        .model(json!([calls("exec", &json!({ "command": line })), says("Done.")]))
        .start();
    let mode = |agent: &TestAgent| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(agent.path("c.sh")).unwrap().permissions().mode() & 0o777
    };
    let was = mode(&agent);
    assert_eq!(agent.turn("run it"), "end_turn");
    assert_eq!(mode(&agent), 0o755);
    let said = answer(&mut agent, "/undo");
    assert!(said.contains("Restored (4)"), "{said}");
    assert_eq!((agent.read("a.txt"), agent.read("b.txt")), ("1\n".into(), "1\n".into()));
    assert_eq!(mode(&agent), was);
    assert!(!agent.path("d.txt").exists());
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
