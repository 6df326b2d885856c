//! Cancelling a turn (R-CANCEL): what holds after every cancel, and what a cancel must not do. The
//! phases of a turn in which a cancel can arrive are tested in `cancel_phases`, and
//! `$/cancel_request` is tested in `cancel_request`.

use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::cancellation::{
    NEXT, cancel_and_go_on, expect_cancelled, go_on, hangs, next_reply,
};

use crate::agent::{LIMIT, TestAgent, calls, prompt, says};

/// Returns the text of the last user message, including the context that the agent adds.
fn last_user_text(body: &Value) -> String {
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
    // The model does not see the prompts whose turns have not started.
    assert_eq!(agent.model_transcript(1), ["user one", "assistant I think", "user and now?"]);
}

#[test]
fn r_cancel_2_a_cancel_in_the_same_write_as_its_prompt_cancels_that_prompt() {
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
fn a_cancel_that_a_client_sends_as_a_request_is_answered_and_ends_the_turn() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    let params = json!({ "sessionId": agent.session });
    let cancelling = agent.request("session/cancel", &params);
    assert_eq!(agent.answer_to(&cancelling)["result"], json!({}));
    assert_eq!(agent.stop_reason(&id), "cancelled");
    go_on(&mut agent);
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
fn r_cancel_6_a_prompt_right_after_a_cancel_waits_and_then_runs() {
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
fn r_cancel_6_a_second_cancel_and_a_cancel_without_a_turn_change_nothing() {
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
fn r_cancel_6_invalid_cancels_are_ignored_silently() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    // The session's title may come after the first words.
    let is_title = |it: &Value| it["params"]["update"]["sessionUpdate"] == "session_info_update";
    if !agent.log.iter().any(is_title) {
        agent.wait_for("the title", is_title);
    }
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
    // The only new message is the answer to `sync`: no turn was cancelled, and no error was
    // reported.
    assert_eq!(agent.log.len(), before + 1, "{:?}", agent.transcript());
    cancel_and_go_on(&mut agent, &id);
}

#[test]
fn r_cancel_7_messages_before_the_cancel_stay_in_the_history() {
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
fn r_cancel_7_a_prompt_cancelled_before_any_reply_is_not_joined_to_the_next_prompt() {
    let mut agent = TestAgent::builder()
        .model(json!([[{ "hang": true }], next_reply(), says("Yes."), says("Sure.")]))
        .start();
    let id = agent.prompt("one");
    agent.model_request(0);
    cancel_and_go_on(&mut agent, &id);
    let told = [
        "user one",
        "assistant [Stopped here: the user cancelled the turn.]",
        "user and now?",
        "assistant All is well.",
        "user really?",
    ];
    assert_eq!(agent.model_transcript(1), told[..3]);
    assert_eq!(agent.turn("really?"), "end_turn");
    assert_eq!(agent.model_transcript(2), told);
    let session = agent.session.clone();
    agent.load(&session);
    assert!(!agent.text().contains("Stopped here"), "{}", agent.text());
    assert_eq!(agent.turn("sure?"), "end_turn");
    assert_eq!(agent.model_transcript(3)[..5], told);
}

#[test]
fn r_cancel_7_the_model_is_told_once_that_its_answer_was_cancelled() {
    for is_loaded in [false, true] {
        let mut agent =
            TestAgent::builder().model(json!([hangs(), next_reply(), says("Yes.")])).start();
        let id = agent.prompt("one");
        agent.wait_for_update("agent_message_chunk");
        agent.cancel();
        expect_cancelled(&mut agent, &id);
        if is_loaded {
            let session = agent.session.clone();
            agent.load(&session);
        }
        go_on(&mut agent);
        assert_eq!(agent.turn("more"), "end_turn");
        for request in [1, 2] {
            let body = agent.model_request(request).to_string();
            let told = "[Your last answer is incomplete: the user cancelled it.]";
            assert_eq!(body.matches(told).count(), 1, "{is_loaded} {request}: {body}");
        }
        assert!(last_user_text(&agent.model_request(1)).contains("the user cancelled it"));
    }
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
    let uncancelled = agent.request("session/prompt", &prompt(&other, "stay"));
    let cancelled = agent.prompt("go away");
    agent.model().wait_for_requests(2, LIMIT).unwrap();
    // The text must be of this session, not of the other one.
    let session = agent.session.clone();
    agent.wait_for("a text chunk", |message| {
        message["params"]["sessionId"] == session.as_str()
            && message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
    });
    agent.cancel();
    expect_cancelled(&mut agent, &cancelled);
    assert_eq!(agent.stop_reason(&uncancelled), "end_turn");
    go_on(&mut agent);
    agent.session = other;
    assert_eq!(agent.text(), "still here to the end");
}
