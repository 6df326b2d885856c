//! Prompts that the user may want to send next (R-SUGG-1 to R-SUGG-3): a client with the capability is told after each
//! turn, and no other client is told anything.

use serde_json::{Value, json};
use turnwright_testing::session_requests::result;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

const UPDATE: &str = "prompt_suggestions_update";

fn plan(steps: &[(&str, &str)]) -> Value {
    let entries: Vec<_> = steps
        .iter()
        .map(|(content, status)| json!({ "content": content, "status": status }))
        .collect();
    calls("plan", &json!({ "entries": entries }))
}

/// A turn that leaves a check and steps of its plan open, and one that does not.
fn two_turns() -> TestAgentBuilder {
    let open = plan(&[("look", "completed"), ("act\nnow", "in_progress"), ("tell", "pending")]);
    // The command fails, even where `make` is installed.
    let check = calls("exec", &json!({ "command": "make nothing-of-this" }));
    let done = plan(&[("look", "completed")]);
    let replies = json!([open, check, says("Stopped."), done, says("Done.")]);
    TestAgent::builder().permission("allow_once").model(replies)
}

fn suggesting() -> Value {
    json!({ "session": { "promptSuggestions": {} } })
}

const WORDS: [&str; 3] =
    ["Fix what fails: make nothing-of-this", "Continue with: act now", "Continue with: tell"];

/// The update with these suggestions.
fn update(words: &[&str]) -> Value {
    let prompts: Vec<_> =
        words.iter().map(|text| json!({ "prompt": [{ "type": "text", "text": text }] })).collect();
    json!({ "sessionUpdate": UPDATE, "suggestions": prompts })
}

#[test]
fn r_sugg_1_what_is_open_is_suggested_and_withdrawn_with_the_next_prompt() {
    let mut agent = two_turns().capabilities(suggesting()).start();
    let id = agent.prompt("go");
    let answer = agent.answer_to(&id);
    assert_eq!(answer["result"]["_meta"], json!({ "promptSuggestions": WORDS }));
    assert_eq!(agent.updates_of(UPDATE), [update(&WORDS)]);
    let id = agent.prompt("and now?");
    let answer = agent.answer_to(&id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert!(answer["result"].get("_meta").is_none(), "{answer}");
    assert_eq!(agent.updates_of(UPDATE), [update(&WORDS), update(&[])]);
    assert_eq!(agent.model().requests().len(), 5, "suggestions cost no request");
}

#[test]
fn r_sugg_1_in_version_2_too_and_not_in_a_replay() {
    let mut agent = two_turns().v2().capabilities(suggesting()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.updates_of(UPDATE), [update(&WORDS)]);
    let kinds: Vec<_> = agent.updates().iter().map(|it| it["sessionUpdate"].clone()).collect();
    let at = kinds.iter().position(|kind| kind == UPDATE);
    assert!(at < kinds.iter().rposition(|kind| kind == "state_update"), "{kinds:?}");
    agent.restart();
    let params = json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    assert_eq!(agent.turn("and now?"), "end_turn");
    assert!(agent.updates_of(UPDATE).is_empty(), "a session begins without suggestions");
}

#[test]
fn r_sugg_2_a_client_that_does_not_say_so_in_the_right_place_is_told_nothing() {
    for capabilities in [
        json!({}),
        json!({ "promptSuggestions": {} }),
        json!({ "session": { "promptSuggestions": null } }),
        json!({ "session": { "promptSuggestions": 5, "notices": {} } }),
        json!({ "session": { "commands": { "promptSuggestions": {} } } }),
    ] {
        for builder in [two_turns(), two_turns().v2()] {
            let mut agent = builder.capabilities(capabilities.clone()).start();
            let id = agent.prompt("go");
            let answer = agent.answer_to(&id);
            assert!(answer["result"].get("_meta").is_none(), "{capabilities}: {answer}");
            agent.stop_reason(&id);
            assert!(agent.updates_of(UPDATE).is_empty(), "{capabilities}");
        }
    }
}

#[test]
fn r_sugg_3_a_cancelled_turn_suggests_nothing() {
    let open = plan(&[("act", "pending")]);
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let model = json!([open, hangs]);
    let mut agent = TestAgent::builder().v2().capabilities(suggesting()).model(model).start();
    let id = agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert!(agent.updates_of(UPDATE).is_empty());
}
