//! What must hold after every cancelled turn (R-CANCEL), and the replies for tests about it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{TestAgent, Transport};

/// How long the answer to a cancelled prompt may take (R-CANCEL-1). On an idle machine it comes
/// within 300 ms; whatever is being waited for in these tests takes several seconds.
pub const PROMPTLY: Duration = Duration::from_secs(1);
/// What is said after each cancel.
pub const NEXT: &str = "and now?";

/// The reply to the prompt after a cancel, whenever it comes.
pub fn next_reply() -> Value {
    json!({ "when": NEXT, "steps": [{ "text": "All is well." }] })
}

/// A reply that never comes to its end.
pub fn hangs() -> Value {
    json!([{ "text": "I think" }, { "hang": true }])
}

/// Cancels the running turn and checks all that has to hold then, up to the next prompt.
pub fn cancel_and_go_on<T: Transport>(agent: &mut TestAgent<T>, id: &Value) {
    agent.cancel();
    expect_cancelled(agent, id);
    go_on(agent);
}

/// The prompt has been cancelled just now: it is answered so, in time, after the last word.
pub fn expect_cancelled<T: Transport>(agent: &mut TestAgent<T>, id: &Value) {
    let begun = Instant::now();
    assert_eq!(agent.stop_reason(id), "cancelled");
    let took = begun.elapsed();
    assert!(took < PROMPTLY, "the answer came only after {took:?}");
    agent.settle(Duration::from_millis(300));
    assert_cards_are_finished(agent, id);
    assert_silence_after(agent, id);
}

/// The session still works, and what the model gets is in order.
pub fn go_on<T: Transport>(agent: &mut TestAgent<T>) {
    let before = agent.model().requests().len();
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert!(agent.text().ends_with("All is well."), "{}", agent.text());
    assert_valid(&agent.model_request(before));
}

/// No card is left spinning when the prompt is answered, and no card is finished twice.
pub fn assert_cards_are_finished<T: Transport>(agent: &TestAgent<T>, id: &Value) {
    let end = position_of_answer(agent, id);
    let mut states: HashMap<&str, &str> = HashMap::new();
    for message in &agent.log[..end] {
        let update = &message["params"]["update"];
        let Some(card) = update["toolCallId"].as_str() else { continue };
        let state = states.entry(card).or_insert("pending");
        assert!(!matches!(*state, "completed" | "failed"), "after its end: {update}");
        *state = update["status"].as_str().unwrap_or(state);
    }
    let open: Vec<_> =
        states.iter().filter(|it| !matches!(*it.1, "completed" | "failed")).collect();
    assert!(open.is_empty(), "unfinished: {open:?}\n{}", agent.transcript().join("\n"));
}

/// Of the session nothing has come after the answer.
pub fn assert_silence_after<T: Transport>(agent: &TestAgent<T>, id: &Value) {
    let end = position_of_answer(agent, id);
    let late =
        agent.log[end..].iter().find(|it| it["params"]["sessionId"] == agent.session.as_str());
    assert!(late.is_none(), "after the answer: {late:?}");
}

fn position_of_answer<T: Transport>(agent: &TestAgent<T>, id: &Value) -> usize {
    let is_answer = |it: &Value| it.get("method").is_none() && it["id"] == *id;
    agent.log.iter().position(is_answer).unwrap()
}

/// What strict servers check: each call has its one result right behind it, nothing else is a
/// result, no message is empty and arguments are objects.
pub fn assert_valid(body: &Value) {
    let mut owed: Vec<&Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            assert!(!owed.is_empty(), "a result without a call: {body:#}");
            assert_eq!(owed.remove(0), &message["tool_call_id"], "{body:#}");
            continue;
        }
        assert!(owed.is_empty(), "no result for {owed:?}: {body:#}");
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        let says_something = message["content"].as_str().is_some_and(|it| !it.is_empty());
        assert!(says_something || !calls.is_empty(), "an empty message: {body:#}");
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{call}");
            owed.push(&call["id"]);
        }
    }
    assert!(owed.is_empty(), "no result for {owed:?}: {body:#}");
}
