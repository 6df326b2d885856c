//! Checks what must hold after every cancelled turn (R-CANCEL), and provides model replies for
//! tests of it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{TestAgent, Transport};

/// The longest time that the answer to a cancelled prompt may take (R-CANCEL-1). On an idle machine
/// the answer comes within 300 ms, which the benches measure. Here the bound only tells a turn that
/// stops from one that goes on waiting, so it leaves room for a slow machine: what the turns in these
/// tests wait for takes far longer, or shows in the results.
pub const PROMPTLY: Duration = Duration::from_secs(15);
/// The prompt that is sent after each cancel.
pub const NEXT: &str = "and now?";

/// Returns the reply to [`NEXT`]. The model gives it whenever that prompt comes.
pub fn next_reply() -> Value {
    json!({ "when": NEXT, "steps": [{ "text": "All is well." }] })
}

/// Returns a reply whose stream never ends.
pub fn hangs() -> Value {
    json!([{ "text": "I think" }, { "hang": true }])
}

/// Cancels the running turn and checks everything that must hold afterwards, up to the end of the
/// next prompt.
pub fn cancel_and_go_on<T: Transport>(agent: &mut TestAgent<T>, id: &Value) {
    agent.cancel();
    expect_cancelled(agent, id);
    go_on(agent);
}

/// Checks that the prompt, whose turn was cancelled just before, is answered with `cancelled` in
/// time, and that no further message of the session follows.
pub fn expect_cancelled<T: Transport>(agent: &mut TestAgent<T>, id: &Value) {
    let started = Instant::now();
    assert_eq!(agent.stop_reason(id), "cancelled");
    let elapsed = started.elapsed();
    assert!(elapsed < PROMPTLY, "the answer to the cancelled prompt took {elapsed:?}");
    agent.settle(Duration::from_millis(300));
    assert_cards_are_finished(agent, id);
    assert_silence_after(agent, id);
}

/// Checks that the session accepts another prompt and that the request to the model is valid.
pub fn go_on<T: Transport>(agent: &mut TestAgent<T>) {
    let before = agent.model().requests().len();
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert!(agent.text().ends_with("All is well."), "{}", agent.text());
    assert_valid(&agent.model_request(before));
}

/// Checks that every tool call has its final status when the prompt is answered, and that no tool
/// call is updated after its final status.
pub fn assert_cards_are_finished<T: Transport>(agent: &TestAgent<T>, id: &Value) {
    let end = position_of_answer(agent, id);
    let mut states: HashMap<(&str, &str), &str> = HashMap::new();
    for message in &agent.log[..end] {
        let update = &message["params"]["update"];
        let Some(card) = update["toolCallId"].as_str() else { continue };
        // The sessions of helpers have calls of the same names.
        let session = message["params"]["sessionId"].as_str().unwrap_or_default();
        let state = states.entry((session, card)).or_insert("pending");
        assert!(
            !matches!(*state, "completed" | "failed"),
            "an update after the final status: {update}"
        );
        *state = update["status"].as_str().unwrap_or(state);
    }
    let unfinished: Vec<_> =
        states.iter().filter(|it| !matches!(*it.1, "completed" | "failed")).collect();
    assert!(
        unfinished.is_empty(),
        "these tool calls have no final status: {unfinished:?}\n{}",
        agent.transcript().join("\n")
    );
}

/// Checks that no message of the session follows the answer to the prompt.
pub fn assert_silence_after<T: Transport>(agent: &TestAgent<T>, id: &Value) {
    let end = position_of_answer(agent, id);
    let late =
        agent.log[end..].iter().find(|it| it["params"]["sessionId"] == agent.session.as_str());
    assert!(late.is_none(), "a message follows the answer: {late:?}");
}

fn position_of_answer<T: Transport>(agent: &TestAgent<T>, id: &Value) -> usize {
    let is_answer = |it: &Value| it.get("method").is_none() && it["id"] == *id;
    agent.log.iter().position(is_answer).unwrap()
}

/// Checks what strict servers check: each tool call has exactly one result, directly after its
/// message and in order, each result belongs to a call, no message is empty, and arguments are
/// objects.
pub fn assert_valid(body: &Value) {
    let mut unanswered: Vec<&Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            assert!(!unanswered.is_empty(), "this result belongs to no call: {body:#}");
            assert_eq!(unanswered.remove(0), &message["tool_call_id"], "{body:#}");
            continue;
        }
        assert!(unanswered.is_empty(), "no result for {unanswered:?}: {body:#}");
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        let has_text = message["content"].as_str().is_some_and(|it| !it.is_empty());
        assert!(has_text || !calls.is_empty(), "an empty message: {body:#}");
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{call}");
            unanswered.push(&call["id"]);
        }
    }
    assert!(unanswered.is_empty(), "no result for {unanswered:?}: {body:#}");
}
