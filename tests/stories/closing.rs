//! The closing check of a turn: a model that says it is done without a proof is asked for one, once. Nothing else
//! costs a request.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, prompt, runs, says, writes};

const ALWAYS: &str = "mode = 'auto-edit'\nverify = 'always'\n";
const AUTO: &str = "mode = 'auto-edit'\n";

fn agent(settings: &str, replies: &Value) -> TestAgentBuilder {
    TestAgent::builder()
        .file("check.sh", "exit 0\n")
        .file("fails.sh", "exit 3\n")
        .own_file("config/config.toml", settings)
        .permission("allow_once")
        .model(replies.clone())
}

fn plan(status: &str) -> Value {
    calls("plan", &json!({ "entries": [{ "content": "write the test", "status": status }] }))
}

/// Runs a turn. Returns the agent and the number of requests to the model.
fn turn(settings: &str, replies: &Value) -> (TestAgent, usize) {
    let mut agent = agent(settings, replies).start();
    assert_eq!(agent.turn("Add the file."), "end_turn");
    cards::check(&agent);
    let count = agent.model().requests().len();
    (agent, count)
}

/// The last user message of the n-th request to the model.
fn last_prompt(agent: &TestAgent, number: usize) -> String {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    last["content"].as_str().unwrap().to_owned()
}

fn has_notice(agent: &TestAgent, words: &str) -> bool {
    agent.updates().iter().any(|update| update.to_string().contains(words))
}

const NOTICE: &str = "Not proven yet: the model is asked once to check its work.";

#[test]
fn a_model_that_ends_without_a_proof_is_asked_once() {
    let replies =
        json!([writes("a.txt", "one\ntwo\n"), says("Done."), says("Nothing can be run.")]);
    let (agent, requests) = turn(ALWAYS, &replies);
    assert_eq!(requests, 3, "a second `done` ends the turn");
    let told = last_prompt(&agent, 2);
    for part in [
        "You say that you are done. The user asked:\nAdd the file.\n",
        "You changed 1 file (+2 −0): a.txt. Nothing that you ran since then proves it.",
        "Run what proves it",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(told.len() < 700, "{told}");
    assert!(has_notice(&agent, NOTICE));
}

#[test]
#[cfg_attr(windows, ignore = "the proof is a script of sh")]
fn a_proof_ends_the_turn_and_a_thin_one_or_a_failure_does_not() {
    for (line, is_proof, told) in [
        ("sh check.sh", true, ""),
        ("ls", false, "`ls` proves little."),
        ("sh check.sh; true", false, "`sh check.sh; true` proves little."),
        ("sh fails.sh", false, "The last run failed: `sh fails.sh`."),
    ] {
        let replies =
            json!([writes("a.txt", "x\n"), runs(line), says("Done."), says("That is all.")]);
        let (agent, requests) = turn(ALWAYS, &replies);
        assert_eq!(requests, if is_proof { 3 } else { 4 }, "{line}");
        if !is_proof {
            assert!(last_prompt(&agent, 3).contains(told), "{line}: {}", last_prompt(&agent, 3));
        }
    }
    // Another agent's name for the tool and its argument.
    let run = calls("bash", &json!({ "cmd": "sh check.sh" }));
    let replies = json!([writes("a.txt", "x\n"), run, says("Done."), says("Too much.")]);
    assert_eq!(turn(ALWAYS, &replies).1, 3);
}

#[test]
#[cfg_attr(windows, ignore = "the proof is a script of sh")]
fn an_edit_after_a_green_test_needs_a_new_one() {
    let replies = json!([
        writes("a.txt", "x\n"),
        runs("sh check.sh"),
        writes("a.txt", "y\n"),
        says("Done."),
        runs("sh check.sh"),
        says("It is right.")
    ]);
    let (agent, requests) = turn(ALWAYS, &replies);
    assert_eq!(requests, 6);
    assert!(last_prompt(&agent, 4).contains("Nothing that you ran since then proves it."));
}

#[test]
fn a_question_an_answer_and_plan_mode_cost_nothing() {
    let edit = writes("a.txt", "x\n");
    let list = calls("list_dir", &json!({}));
    let off = "mode = 'auto-edit'\nverify = 'off'\n";
    let planning = "mode = 'plan'\nverify = 'always'\n";
    let table = [
        (ALWAYS, json!([edit, says("Written. Shall I test it?"), says("Too much.")]), 2),
        (ALWAYS, json!([says("It is a folder."), says("Too much.")]), 1),
        (ALWAYS, json!([list, says("Two files."), says("Too much.")]), 2),
        (off, json!([edit, says("Done."), says("Too much.")]), 2),
        (planning, json!([plan("pending"), says("So."), says("Too much.")]), 2),
    ];
    for (settings, replies, expected) in table {
        let (agent, requests) = turn(settings, &replies);
        assert_eq!(requests, expected, "{replies}");
        assert!(!has_notice(&agent, NOTICE), "{replies}");
    }
}

#[test]
fn an_editor_is_asked_only_with_open_steps_or_a_check_that_was_not_run() {
    let edit = writes("a.txt", "x\n");
    let (_, requests) = turn(AUTO, &json!([edit, says("Done."), says("Too much.")]));
    assert_eq!(requests, 2);
    let replies = json!([plan("in_progress"), edit, says("Done."), says("It stays open.")]);
    let (agent, requests) = turn(AUTO, &replies);
    assert_eq!(requests, 4);
    assert!(last_prompt(&agent, 3).contains("Open steps of your plan: write the test."));
    let replies = json!([plan("completed"), edit, says("Done."), says("Too much.")]);
    assert_eq!(turn(AUTO, &replies).1, 3);
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn an_editor_is_asked_if_a_command_has_changed_files_and_no_check_has_run() {
    let settings = format!("{AUTO}[checks]\nmarks = 'sh check.sh'\n");
    let replies = json!([runs("echo x > a.txt"), says("Done."), says("Nothing to run.")]);
    let (agent, requests) = turn(&settings, &replies);
    assert_eq!(requests, 3);
    assert!(has_notice(&agent, NOTICE));
    // The check of the settings is a proof if it has run.
    let replies = json!([writes("a.txt", "x\n"), says("Done."), says("Too much.")]);
    assert_eq!(turn(&settings, &replies).1, 2);
}

#[test]
fn open_steps_are_shown_once_and_stay_open() {
    let replies = json!([plan("pending"), says("Planned."), plan("pending"), says("Again.")]);
    let (mut agent, requests) = turn(AUTO, &replies);
    assert_eq!(requests, 2);
    assert!(has_notice(&agent, "The plan has 1 open step: write the test."));
    agent.clear_log();
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(!has_notice(&agent, "The plan has 1 open step"));
    let shown = agent.updates_of("plan");
    assert!(!json!(shown).to_string().contains("completed"), "{shown:?}");
}

#[test]
fn the_plan_of_a_conversation_that_was_cleared_has_no_open_steps() {
    let edit = writes("a.txt", "x\n");
    let replies =
        json!([plan("pending"), says("Planned."), edit, says("Done."), says("Too much.")]);
    let (mut agent, _) = turn(AUTO, &replies);
    assert_eq!(agent.turn("/clear"), "end_turn");
    assert_eq!(agent.turn("Write a.txt."), "end_turn");
    assert_eq!(agent.model().requests().len(), 4);
}

#[test]
fn a_turn_that_has_only_planned_is_told_to_begin_if_nobody_watches() {
    let replies = json!([plan("pending"), says("Planned."), says("Too little.")]);
    let mut alone = agent(AUTO, &replies).variable("TURNWRIGHT_ALONE", "1").start();
    assert_eq!(alone.turn("Add the file."), "end_turn");
    assert_eq!(alone.model().requests().len(), 3);
    let told = last_prompt(&alone, 2);
    assert!(told.contains("Carry it out now, beginning with: write the test"), "{told}");
    assert!(has_notice(&alone, "Only planned so far: the model is asked once to begin."));
}

#[test]
fn alone_a_question_at_the_end_is_met_with_the_request_too() {
    let edit = writes("a.txt", "x\n");
    let replies = json!([edit, says("Written. Shall I test it?"), says("Nothing can be run.")]);
    let mut alone = agent(AUTO, &replies).variable("TURNWRIGHT_ALONE", "1").start();
    assert_eq!(alone.turn("Add the file."), "end_turn");
    assert_eq!(alone.model().requests().len(), 3);
    assert!(last_prompt(&alone, 2).contains("Run what proves it"));
}

#[test]
fn the_same_facts_are_told_once_in_a_session() {
    let edit = |text: &str| writes("a.txt", text);
    let replies = json!([
        edit("x\n"),
        says("Done."),
        says("Nothing can be run."),
        edit("y\n"),
        says("Done again."),
        writes("b.txt", "z\n"),
        says("Done with another file."),
        says("Nothing can be run."),
    ]);
    let mut agent = agent(ALWAYS, &replies).start();
    for expected in [3, 5, 8] {
        assert_eq!(agent.turn("Add the file."), "end_turn");
        assert_eq!(agent.model().requests().len(), expected);
    }
}

#[test]
fn the_words_of_the_user_come_first() {
    let held = json!([{ "text": "Done " }, { "hold": true }]);
    let replies = json!([
        writes("a.txt", "x\n"),
        held,
        says("It is in English."),
        says("Nothing can be run.")
    ]);
    let mut agent = agent(ALWAYS, &replies).start();
    let id = agent.prompt("Add the file.");
    agent.wait_for_update("agent_message_chunk");
    let params = prompt(&agent.session, "in English");
    let outcome = agent.call("_session/steering", &params);
    assert_eq!(outcome["result"], json!({ "outcome": "injected" }));
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(last_prompt(&agent, 2).contains("in English"));
    assert!(last_prompt(&agent, 3).contains("You say that you are done."));
    assert_eq!(agent.model().requests().len(), 4);
}
