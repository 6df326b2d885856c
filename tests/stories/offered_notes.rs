//! Notes that are offered after a turn: a variant of a command that worked, and a repeated correction. `/remember`
//! writes them, and nothing else does.

use serde_json::{Value, json};
use turnwright_testing::session_requests::result;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

const COMMANDS: &str = ".turnwright/memory/commands.md";
const CORRECTIONS: &str = ".turnwright/memory/corrections.md";
/// Succeeds with the argument `all`.
const SCRIPT: &str = "[ \"$1\" = all ]\n";

fn exec(line: &str) -> Value {
    // Small models give every argument.
    calls("exec", &json!({ "command": line, "workdir": "." }))
}

/// An agent whose first turn runs a test that fails, and then a variant that succeeds.
fn variant() -> TestAgentBuilder {
    let turn = [exec("sh test.sh"), exec("sh test.sh all"), says("It passes.")];
    let more = [exec("sh test.sh all"), says("It fails."), says("More."), says("More.")];
    let replies: Vec<Value> = turn.into_iter().chain(more).collect();
    TestAgent::builder().file("test.sh", SCRIPT).permission("allow_once").model(json!(replies))
}

#[test]
fn a_variant_that_worked_is_offered_and_not_written() {
    let mut agent = variant().start();
    assert_eq!(agent.turn("test it"), "end_turn");
    let offer = "Worked after a failure: `sh test.sh all`. `/remember` keeps it as a note.";
    assert_eq!(agent.thoughts().matches(offer).count(), 1, "{}", agent.thoughts());
    assert!(!agent.path(".turnwright").exists());
    assert_eq!(agent.turn("and again"), "end_turn");
    assert_eq!(agent.thoughts().matches("/remember").count(), 1, "it is offered once");
    assert!(!agent.path(".turnwright").exists());
}

#[test]
fn remember_writes_the_offer_with_its_evidence_and_once() {
    let mut agent = variant().start();
    assert_eq!(agent.turn("test it"), "end_turn");
    let answer = agent.turn_text("/remember");
    assert!(answer.contains("commands.md") && answer.contains("take it back"), "{answer}");
    let note = agent.read(COMMANDS);
    let line = "\n- `sh test.sh all` (evidence: exit 0 after `sh test.sh` failed, 2";
    assert!(note.starts_with("# Commands that worked here\n") && note.ends_with(")\n"), "{note}");
    assert_eq!((note.lines().count(), note.contains(line)), (3, true), "{note}");
    let answer = agent.turn_text("/remember");
    assert!(answer.starts_with("Nothing was written: no note is offered now."), "{answer}");
    assert_eq!(agent.read(COMMANDS), note);
    let index = agent.turn_text("/memory");
    assert!(index.contains("`commands` (project) – Commands that worked here"), "{index}");
}

#[test]
fn a_correction_that_is_made_twice_is_offered_once() {
    let replies = json!([says("One."), says("Two."), says("Three."), says("Four.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    for prompt in ["add a parser", "please don't indent with tabs here"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    assert!(!agent.thoughts().contains("/remember"), "{}", agent.thoughts());
    for prompt in ["I said not to indent with tabs", "never indent with tabs!"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    let offer =
        "You have said this before: \"I said not to indent with tabs\". `/remember` keeps it";
    assert!(agent.thoughts().contains(offer), "{}", agent.thoughts());
    assert_eq!(agent.thoughts().matches("/remember").count(), 1);
    assert!(!agent.path(".turnwright").exists());
    agent.turn_text("/remember");
    let note = agent.read(CORRECTIONS);
    let line = "\n- I said not to indent with tabs (evidence: said more than once, 2";
    assert!(note.contains(line), "{note}");
}

#[test]
fn a_kept_line_controls_no_terminal() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let answer = agent.turn_text("/remember red\u{1b}[31m \u{202e}and\nback");
    assert!(answer.contains("Noted"), "{answer}");
    let note = agent.read(CORRECTIONS);
    assert!(note.contains("\n- red\\u{1b}[31m \\u{202e}and back (evidence: "), "{note}");
}

#[test]
fn nothing_is_offered_when_nobody_watches_or_the_user_does_not_want_it() {
    for settings in ["alone = true\n", "[agent]\noffer_notes = false\n"] {
        let mut agent = variant().own_file("config/config.toml", settings).start();
        assert_eq!(agent.turn("test it"), "end_turn");
        assert!(!agent.thoughts().contains("/remember"), "{settings}: {}", agent.thoughts());
    }
}

#[test]
fn a_client_with_suggestions_gets_the_command() {
    let capabilities = json!({ "session": { "promptSuggestions": {} } });
    let mut agent = variant().capabilities(capabilities).start();
    let id = agent.prompt("test it");
    let answer = result(agent.answer_to(&id));
    let suggestions = agent.updates_of("prompt_suggestions_update")[0]["suggestions"].clone();
    assert_eq!(suggestions[0]["prompt"][0]["text"], "/remember", "{answer}");
}

#[test]
fn own_words_are_kept_and_secrets_are_not() {
    let mut agent = TestAgent::builder().start();
    let answer = agent.turn_text("/remember  Answer in   German. ");
    assert!(answer.contains("- Answer in German. (evidence: the user's words, "), "{answer}");
    let note = agent.read(CORRECTIONS);
    assert!(note.starts_with("# What the user has corrected\n\n- Answer in German."), "{note}");
    let answer = agent.turn_text("/remember password=correct-horse-1");
    assert!(answer.starts_with("Nothing was written. The text holds what looks like"), "{answer}");
    assert_eq!(agent.read(CORRECTIONS), note);
    agent.turn_text("/remember Use tabs.");
    let lines = agent.read(CORRECTIONS);
    assert!(lines.starts_with(&note) && lines.lines().count() == 4, "{lines}");
    let answer = agent.turn_text("/remember Use  tabs.");
    assert!(answer.starts_with("Nothing was written. The note says this already."), "{answer}");
    assert_eq!(agent.read(CORRECTIONS), lines);
}
