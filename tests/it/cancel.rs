//! Cancelling a turn (R-CANCEL): what holds after every cancel, and what a cancel must not do.
//! The moments in which it can come are in `cancel_phases`, `$/cancel_request` in
//! `cancel_request`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{LIMIT, TestAgent, calls, prompt, says};

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
pub fn cancel_and_go_on(agent: &mut TestAgent, id: &Value) {
    agent.cancel();
    expect_cancelled(agent, id);
    go_on(agent);
}

/// The prompt has been cancelled just now: it is answered so, in time, after the last word.
pub fn expect_cancelled(agent: &mut TestAgent, id: &Value) {
    let begun = Instant::now();
    assert_eq!(agent.stop_reason(id), "cancelled");
    let took = begun.elapsed();
    assert!(took < PROMPTLY, "the answer came only after {took:?}");
    agent.settle(Duration::from_millis(300));
    assert_cards_are_finished(agent, id);
    assert_silence_after(agent, id);
}

/// The session still works, and what the model gets is in order.
pub fn go_on(agent: &mut TestAgent) {
    let before = agent.model().requests().len();
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert!(agent.text().ends_with("All is well."), "{}", agent.text());
    assert_valid(&agent.model_request(before));
}

/// No card is left spinning when the prompt is answered, and no card is finished twice.
pub fn assert_cards_are_finished(agent: &TestAgent, id: &Value) {
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
pub fn assert_silence_after(agent: &TestAgent, id: &Value) {
    let end = position_of_answer(agent, id);
    let late =
        agent.log[end..].iter().find(|it| it["params"]["sessionId"] == agent.session.as_str());
    assert!(late.is_none(), "after the answer: {late:?}");
}

fn position_of_answer(agent: &TestAgent, id: &Value) -> usize {
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

/// The text of the last message of the user, with what the agent adds to it.
fn last_words(body: &Value) -> String {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "user");
    last["content"].as_str().unwrap().to_owned()
}

#[test]
fn r_cancel_2_prompts_that_wait_behind_the_running_one_are_cancelled_too() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let ids = [agent.prompt("one"), agent.prompt("two"), agent.prompt("three")];
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    for id in &ids {
        expect_cancelled(&mut agent, id);
    }
    assert_eq!(agent.model().requests().len(), 1);
    go_on(&mut agent);
    // What was never begun has never been said.
    assert_eq!(agent.model_transcript(1), ["user one", "assistant I think", "user and now?"]);
}

#[test]
fn r_cancel_2_a_cancel_in_the_same_write_as_its_prompt_is_for_that_prompt() {
    let mut agent = TestAgent::builder().model(json!([hangs(), hangs(), next_reply()])).start();
    let params = prompt(&agent.session, "one");
    let (id, mut lines) = agent.request_line("session/prompt", &params);
    let cancel = json!({ "sessionId": agent.session });
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel });
    lines.push_str(&format!("{cancel}\n"));
    agent.send_bytes(lines.as_bytes());
    expect_cancelled(&mut agent, &id);
    assert_eq!(agent.turn(NEXT), "end_turn");
}

#[test]
fn r_cancel_6_a_cancel_before_a_prompt_is_not_remembered() {
    let mut agent = TestAgent::builder().model(json!([says("Not cancelled.")])).start();
    let cancel = json!({ "sessionId": agent.session });
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel });
    let params = prompt(&agent.session, "hello");
    let (id, line) = agent.request_line("session/prompt", &params);
    agent.send_bytes(format!("{cancel}\n{line}").as_bytes());
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.text(), "Not cancelled.");
}

#[test]
fn r_cancel_6_a_prompt_right_behind_a_cancel_waits_and_then_runs() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let first = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    let second = agent.prompt(NEXT);
    assert_eq!(agent.stop_reason(&first), "cancelled");
    assert_eq!(agent.stop_reason(&second), "end_turn");
    assert!(agent.text().ends_with("All is well."));
}

#[test]
fn r_cancel_6_a_second_cancel_and_one_in_idleness_change_nothing() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    agent.cancel();
    agent.sync();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    agent.cancel();
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    agent.cancel();
    agent.sync();
    go_on(&mut agent);
}

#[test]
fn r_cancel_6_cancels_that_make_no_sense_are_ignored_in_silence() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    let before = agent.log.len();
    for params in [
        json!({ "sessionId": "no-such-session" }),
        json!({ "sessionId": 7 }),
        json!({}),
        Value::Null,
    ] {
        agent.notify("session/cancel", &params);
    }
    agent.send_line(r#"{"jsonrpc":"2.0","method":"session/cancel"}"#);
    agent.sync();
    agent.settle(Duration::from_millis(300));
    // The one answer is that to `sync`: nobody was cancelled and nothing was complained about.
    assert_eq!(agent.log.len(), before + 1, "{:?}", agent.transcript());
    cancel_and_go_on(&mut agent, &id);
}

#[test]
fn r_cancel_7_what_was_said_before_the_cancel_stays_in_the_history() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .model(json!([calls("read_file", &json!({ "path": "a.txt" })), hangs(), next_reply()]))
        .start();
    let id = agent.prompt("look");
    agent.wait_for_update("agent_message_chunk");
    cancel_and_go_on(&mut agent, &id);
    assert_eq!(
        agent.model_transcript(2),
        [
            "user look",
            "assistant [read_file {\"path\":\"a.txt\"}]",
            "tool [File: a.txt | Lines: 1]\n    1| alpha",
            "assistant I think",
            "user and now?",
        ]
    );
}

#[test]
fn r_cancel_7_a_prompt_that_was_cancelled_before_any_word_is_followed_by_the_next() {
    let mut agent = TestAgent::builder().model(json!([[{ "hang": true }], next_reply()])).start();
    let id = agent.prompt("one");
    agent.model_request(0);
    cancel_and_go_on(&mut agent, &id);
    let words = last_words(&agent.model_request(1));
    let (one, next) = (words.find("one").unwrap(), words.find(NEXT).unwrap());
    assert!(one < next, "{words}");
}

#[test]
fn r_cancel_8_only_the_named_session_is_cancelled() {
    let mut agent = TestAgent::builder()
        .model(json!([
            { "when": "stay", "steps": [{ "text": "still here ", "chunks": 2 }, { "delay_ms": 700 },
                { "text": "to the end" }] },
            { "when": "go away", "steps": hangs() },
            next_reply(),
        ]))
        .start();
    let other = agent.new_session();
    let stays = agent.request("session/prompt", &prompt(&other, "stay"));
    let goes = agent.prompt("go away");
    agent.model().wait_for_requests(2, LIMIT).unwrap();
    // Words of this session and not of the other: without an answer in between, the next prompt
    // would be joined to this one, and the model would hear "go away" again.
    let session = agent.session.clone();
    agent.wait_for("words", |it| {
        it["params"]["sessionId"] == session.as_str()
            && it["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
    });
    agent.cancel();
    expect_cancelled(&mut agent, &goes);
    assert_eq!(agent.stop_reason(&stays), "end_turn");
    go_on(&mut agent);
    agent.session = other;
    assert_eq!(agent.text(), "still here to the end");
}

#[test]
fn r_cancel_7_thirty_cancels_at_odd_moments_leave_everything_in_order() {
    // No two runs are alike, so the delays need not be random to hit odd moments.
    const DELAYS: [u64; 30] = [
        0, 1, 2, 3, 5, 7, 9, 12, 15, 18, 21, 25, 29, 34, 39, 45, 51, 58, 66, 74, 83, 93, 104, 116,
        129, 143, 158, 174, 191, 209,
    ];
    let work = json!({ "when": "work", "steps": [
        { "thought": "Hm. ", "chunks": 2, "every_ms": 2 },
        { "text": "I look at the file. ", "chunks": 10, "every_ms": 2 },
        { "call": { "name": "read_file", "arguments": { "path": "a.txt" }, "pieces": 3, "every_ms": 2 } },
        { "call": { "name": "read_file", "arguments": { "path": "b.txt" } } },
        { "call": { "name": "exec", "arguments": { "command": "echo begun; sleep 0.03" } } },
    ] });
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .model(json!([next_reply(), work]))
        .permission("allow_once")
        .start();
    for (round, delay) in DELAYS.into_iter().enumerate() {
        // The model calls its tools again and again: this turn has no end of its own.
        let id = agent.prompt(&format!("work {round}"));
        let moment = Instant::now() + Duration::from_millis(delay);
        if delay > 0 {
            agent.wait_for("the moment", |_| Instant::now() >= moment);
        }
        agent.cancel();
        let begun = Instant::now();
        assert_eq!(agent.stop_reason(&id), "cancelled", "round {round}");
        assert!(begun.elapsed() < PROMPTLY, "round {round}: {:?}", begun.elapsed());
        agent.settle(Duration::from_millis(30));
        assert_cards_are_finished(&agent, &id);
        assert_silence_after(&agent, &id);
        assert_eq!(agent.turn(NEXT), "end_turn", "round {round}");
        assert_valid(&agent.model().requests().last().unwrap().body);
    }
    let reached = |kind: &str| agent.updates().iter().any(|it| it["kind"] == kind);
    assert!(reached("read") && reached("execute"), "the cancels all came too early");
}
