//! Where the parts of long work meet: compactions, helpers, steering, limits, commands and rewinds.

use serde_json::{Value, json};
use turnwright_testing::cards::call;

use crate::agent::{TestAgent, TestAgentBuilder, prompt, says};

/// The window of the model, in tokens.
const WINDOW: &str = "32000";

/// A prompt of about 18 000 tokens.
fn long_prompt(start: &str) -> String {
    format!("{start} {}", "word ".repeat(18_000 * 4 / 5))
}

/// An answer after which the window is nearly full.
fn nearly_full(text: &str) -> Value {
    json!([{ "text": text }, { "usage": { "prompt_tokens": 22_000, "completion_tokens": 9 } }])
}

/// A text that is still streamed when the test goes on.
fn slow(text: &str) -> Value {
    json!([{ "text": text, "chunks": 40, "every_ms": 20, "repeat": 4 }])
}

/// An answer that the server has counted.
fn counted(text: &str, tokens: u64) -> Value {
    json!([{ "text": text }, { "usage": { "prompt_tokens": tokens, "completion_tokens": 0 } }])
}

fn helper_call(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "type": "explore" }))
}

/// A reply to a request whose last prompt is this task.
fn when(task: &str, reply: Value) -> Value {
    let mut conditional = json!({ "when": task });
    conditional["steps"] = reply;
    conditional
}

fn agent(script: Value) -> TestAgentBuilder {
    let shown = json!({ "session": { "compaction": {}, "notices": {} } });
    TestAgent::builder()
        .model(script)
        .capabilities(shown)
        .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
}

fn limited(limits: &str, script: Value) -> TestAgent {
    agent(script).own_file("config/config.toml", &format!("[limits]\n{limits}\n")).start()
}

fn steer(agent: &mut TestAgent, text: &str) {
    let params = prompt(&agent.session, text);
    let outcome = agent.call("_session/steering", &params)["result"]["outcome"].clone();
    assert_eq!(outcome, "injected", "{text}");
}

/// Restarts the agent, opens the session again and has one more turn. The request of that turn must begin
/// with the messages of the last request before.
fn assert_same_after_load(agent: &mut TestAgent) {
    let before = agent.model().requests().pop().unwrap().body;
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    agent.turn("after the load");
    let after = agent.model().requests().pop().unwrap().body;
    let before = before["messages"].as_array().unwrap();
    let after = after["messages"].as_array().unwrap();
    for (number, (one, other)) in before.iter().zip(after).enumerate() {
        assert_eq!(one, other, "message {number}");
    }
    assert!(after.len() > before.len());
}

#[test]
fn words_during_a_compaction_are_in_the_request_after_it() {
    let script = json!([nearly_full("One."), slow("# Goal "), says("Two."), says("Three.")]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn(&long_prompt("first words")), "end_turn");
    let id = agent.prompt("second words");
    agent.wait_for_update("compaction_summary_chunk");
    steer(&mut agent, "use tabs");
    steer(&mut agent, "and no spaces");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.model().requests().len(), 3);
    let body = agent.model_request(2).to_string();
    let at = |words: &str| body.find(words).unwrap_or_else(|| panic!("{words}: {body}"));
    assert!(at("second words") < at("use tabs") && at("use tabs") < at("and no spaces"));
    assert_same_after_load(&mut agent);
}

#[test]
fn a_turn_of_a_command_takes_words() {
    let mut agent = agent(json!([slow("Looking "), says("With tabs.")])).start();
    let id = agent.prompt("/review");
    agent.wait_for_update("agent_message_chunk");
    steer(&mut agent, "use tabs");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(agent.model_request(1).to_string().contains("use tabs"));
}

#[test]
fn a_rewind_gives_back_no_spending() {
    let script = json!([says("One."), says("Two."), says("Three.")]);
    let mut agent = limited("session_requests = 2", script);
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.turn("/rewind 1"), "end_turn");
    assert_eq!(agent.turn("three"), "max_turn_requests");
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn the_gauge_of_a_loaded_session_knows_of_its_compaction() {
    let script = json!([nearly_full("One."), says("The summary.")]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn(&long_prompt("first words")), "end_turn");
    assert_eq!(agent.turn("/compact"), "end_turn");
    let used = |agent: &TestAgent| {
        let updates = agent.updates();
        let gauge = updates.iter().rfind(|it| it["sessionUpdate"] == "usage_update").unwrap();
        gauge["used"].as_u64().unwrap()
    };
    assert!(used(&agent) < 12_000, "{}", used(&agent));
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert!(used(&agent) < 12_000, "{}", used(&agent));
}

#[test]
fn what_helpers_use_counts_for_the_limits_of_their_session() {
    let script = json!([
        [helper_call("the task"), { "usage": { "prompt_tokens": 100 } }],
        counted("The end.", 50),
        when("the task", counted("Found.", 900)),
    ]);
    let mut agent = limited("session_tokens = 1000", script);
    assert_eq!(agent.turn("go"), "max_tokens");
    assert!(agent.text().contains("The end."), "{}", agent.text());
    assert_eq!(agent.model().requests().len(), 3);
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("more"), "max_tokens");
    assert_eq!(agent.model().requests().len(), 3);
}

#[test]
fn a_helper_stops_at_the_limits_of_its_session() {
    let list = || json!([call("list_dir", &json!({})), { "usage": { "prompt_tokens": 300 } }]);
    let script = json!([
        [helper_call("the task"), { "usage": { "prompt_tokens": 500 } }],
        counted("The end.", 50),
        when("the task", list()),
        when("the task", list()),
        when("the task", list()),
        when("Answer now with what", counted("I have listed it.", 10)),
    ]);
    let mut agent = limited("session_tokens = 1000", script);
    assert_eq!(agent.turn("go"), "max_tokens");
    assert!(agent.text().contains("The end."), "{}", agent.text());
    let requests = agent.model().requests();
    assert_eq!(requests.len(), 5, "two of the session, two and the answer of the helper");
    assert!(requests[4].body.to_string().contains("I have listed it."));
}

#[test]
fn a_helper_that_goes_round_in_circles_is_asked_for_its_answer() {
    let script = json!([
        [helper_call("the task")],
        says("Done."),
        when("the task", json!([call("list_dir", &json!({}))])),
        when("Answer now with what", says("I have listed it.")),
    ]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let requests = agent.model().requests();
    assert_eq!(requests.len(), 2 + 5 + 1);
    let last = requests[7].body.to_string();
    assert!(last.contains("I have listed it.") && !last.contains("Stopped here"), "{last}");
}
