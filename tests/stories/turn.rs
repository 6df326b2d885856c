//! The prompt turn (R-TURN): what the agent sends to the model, what the client receives, and how
//! the turn ends.

use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{LIMIT, TestAgent, calls, says};

/// Returns a step that sends an event with this delta.
fn delta(delta: &Value) -> Value {
    json!({ "data": { "choices": [{ "index": 0, "delta": delta }] } })
}

fn message_ids(agent: &TestAgent) -> Vec<String> {
    let chunks = agent.updates_of("agent_message_chunk");
    let id = |it: &Value| it["messageId"].as_str().expect("a messageId").to_owned();
    let mut ids: Vec<String> = chunks.iter().map(id).collect();
    ids.dedup();
    ids
}

#[test]
fn r_turn_1_a_simple_prompt_ends_with_end_turn() {
    let mut agent = TestAgent::builder().model(json!([says("Hello there.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), "Hello there.");
    assert_eq!(agent.model_transcript(0), ["user hi"]);
}

#[test]
fn r_turn_2_text_and_thoughts_are_sent_while_the_model_still_streams() {
    let replies = json!([[{ "thought": "Hm." }, { "text": "One" }, { "hang": true }]]);
    let mut agent = TestAgent::builder().model(replies).start();
    let id = agent.prompt("count");
    // The model never ends its answer, so these updates come before its end.
    assert_eq!(agent.wait_for_update("agent_thought_chunk")["content"]["text"], "Hm.");
    assert_eq!(agent.wait_for_update("agent_message_chunk")["content"]["text"], "One");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
}

#[test]
fn r_turn_2_reasoning_is_a_thought_under_either_field_name() {
    for name in ["reasoning_content", "reasoning"] {
        let reply = json!([delta(&json!({ name: "Let me " })), delta(&json!({ name: "see." })),
            { "text": "Yes." }]);
        let mut agent = TestAgent::builder().model(json!([reply])).start();
        assert_eq!(agent.turn("is it?"), "end_turn");
        assert_eq!(agent.thoughts(), "Let me see.", "{name}");
        assert_eq!(agent.text(), "Yes.", "{name}");
    }
}

#[test]
fn r_turn_2_many_fast_chunks_arrive_complete_and_in_order() {
    let reply = json!([{ "text": "0123456789", "chunks": 10, "repeat": 200 }]);
    let mut agent = TestAgent::builder().model(json!([reply])).start();
    assert_eq!(agent.turn("count"), "end_turn");
    assert_eq!(agent.text(), "0123456789".repeat(200));
}

#[test]
fn r_turn_3_and_14_nothing_follows_the_answer() {
    let replies = json!([
        [{ "text": "abc", "repeat": 50 }, { "call": { "name": "list_dir", "arguments": {} } }],
        [{ "text": "abc", "repeat": 50 }, { "usage": { "prompt_tokens": 1 } }],
    ]);
    let mut agent =
        TestAgent::builder().variable("TURNWRIGHT_CONTEXT_WINDOW", "1000").model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    agent.settle(Duration::from_millis(300));
    let last = agent.log.last().unwrap();
    assert_eq!(
        last["result"]["stopReason"], "end_turn",
        "this message came after the answer: {last}"
    );
    cards::check(&agent);
}

#[test]
fn r_turn_4_tools_run_and_their_results_go_back_in_order() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "first\nsecond\n")
        .model(json!([calls("read_file", &json!({ "path": "a.txt" })), says("Two lines.")]))
        .start();
    assert_eq!(agent.turn("how many lines?"), "end_turn");
    assert_eq!(
        agent.model_transcript(1),
        [
            "user how many lines?",
            "assistant [read_file {\"path\":\"a.txt\"}]",
            "tool [File: a.txt | Lines: 2]\n    1| first\n    2| second",
        ]
    );
}

#[test]
fn r_turn_4_each_result_names_the_call_it_answers() {
    let reply = json!([
        { "text": "Looking." },
        { "call": { "name": "list_dir", "arguments": {}, "id": "x1" } },
        { "call": { "name": "read_file", "arguments": { "path": "none" }, "id": "x2" } },
    ]);
    let mut agent = TestAgent::builder().model(json!([reply, says("Done.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let body = agent.model_request(1);
    let messages = &body["messages"].as_array().unwrap()[2..];
    assert_eq!(messages[0]["content"], "Looking.");
    let id = |it: &Value| it["id"].as_str().unwrap_or_default().to_owned();
    let requested: Vec<_> = messages[0]["tool_calls"].as_array().unwrap().iter().map(id).collect();
    assert_eq!(requested, ["x1", "x2"]);
    let answered: Vec<_> = messages[1..].iter().map(|it| &it["tool_call_id"]).collect();
    assert_eq!(answered, ["x1", "x2"]);
}

#[test]
fn r_turn_6_an_answer_cut_at_its_limit_ends_with_max_tokens() {
    let replies = json!([[{ "text": "Half an ans" }, { "finish": "length" }]]);
    let mut agent = TestAgent::builder().model(replies).start();
    assert_eq!(agent.turn("tell me all"), "max_tokens");
    assert_eq!(agent.text(), "Half an ans");
}

#[test]
fn r_turn_6_a_filtered_answer_and_a_refusal_end_with_refusal_and_show_their_text() {
    let refusal = "I cannot help with that.";
    for reply in [
        json!([{ "text": refusal }, { "finish": "content_filter" }]),
        json!([delta(&json!({ "refusal": refusal })), { "finish": "stop" }]),
        json!([delta(&json!({ "refusal": refusal })), { "finish": "content_filter" }]),
    ] {
        let mut agent = TestAgent::builder().model(json!([reply])).start();
        assert_eq!(agent.turn("something bad"), "refusal", "{reply}");
        assert!(agent.text().contains(refusal), "{reply}: {}", agent.text());
    }
}

#[test]
fn r_turn_6_a_refusal_runs_no_tools() {
    let reply = json!([cards::call("exec", &json!({ "command": "touch one" })),
        { "finish": "content_filter" }]);
    let mut agent = TestAgent::builder().model(json!([reply])).permission("allow_once").start();
    assert_eq!(agent.turn("something bad"), "refusal");
    cards::check(&agent);
    assert!(!agent.path("one").exists());
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn r_turn_7_a_refused_prompt_and_its_messages_are_left_out_of_the_next_request() {
    let replies = json!([
        says("Hello."),
        calls("list_dir", &json!({})),
        [{ "text": "No." }, { "finish": "content_filter" }],
        says("Fine."),
    ]);
    let mut agent = TestAgent::builder().model(replies).start();
    agent.turn("hi");
    assert_eq!(agent.turn("something bad"), "refusal");
    assert_eq!(agent.turn("something good"), "end_turn");
    assert_eq!(agent.model_transcript(3), ["user hi", "assistant Hello.", "user something good"]);
}

#[test]
fn r_turn_7_context_that_was_sent_with_a_refused_prompt_is_sent_again() {
    let replies = json!([says("Hello."), [{ "finish": "content_filter" }], says("Fine.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    agent.turn("hi");
    let mode = json!({ "sessionId": agent.session, "modeId": "plan" });
    agent.call("session/set_mode", &mode);
    assert_eq!(agent.turn("something bad"), "refusal");
    assert_eq!(agent.turn("something good"), "end_turn");
    let body = agent.model_request(2).to_string();
    assert!(body.contains("Mode: plan"), "the model does not know the mode: {body}");
}

#[test]
fn r_turn_8_each_message_has_an_id_of_its_own() {
    let replies = json!([
        [{ "text": "Before", "chunks": 3, "every_ms": 30 }, cards::call("list_dir", &json!({}))],
        says("After."),
        says("Later."),
    ]);
    let mut agent = TestAgent::builder().model(replies).start();
    agent.turn("one");
    agent.turn("two");
    let ids = message_ids(&agent);
    assert_eq!(ids.len(), 3, "each message must have one id: {ids:?}");
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
}

#[test]
fn r_turn_9_usage_is_shown_when_the_window_is_known_and_never_exceeds_it() {
    for (counted, used) in [(100, 120), (5000, 3000)] {
        let usage = json!({ "prompt_tokens": counted, "completion_tokens": 20 });
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_CONTEXT_WINDOW", "3000")
            .model(json!([[{ "text": "Hi." }, { "usage": usage }]]))
            .start();
        assert_eq!(agent.turn("hi"), "end_turn");
        let shown = &agent.updates_of("usage_update")[0];
        assert_eq!((&shown["used"], &shown["size"]), (&json!(used), &json!(3000)));
    }
}

#[test]
fn r_turn_9_usage_is_shown_also_where_the_window_or_the_count_is_not_known() {
    let usage = json!([{ "text": "Hi." }, { "usage": { "prompt_tokens": 9 } }]);
    let known = TestAgent::builder().variable("TURNWRIGHT_CONTEXT_WINDOW", "20000");
    let without_window = TestAgent::builder().model(json!([usage]));
    for (builder, size) in [(known.model(json!([says("Hi.")])), 20_000), (without_window, 128_000)]
    {
        let mut agent = builder.start();
        assert_eq!(agent.turn("hi"), "end_turn");
        let shown = &agent.updates_of("usage_update")[0];
        assert_eq!(shown["size"], size);
        let used = shown["used"].as_u64().unwrap();
        assert!(if size == 128_000 { used == 9 } else { used > 1_000 && used < 3_000 }, "{shown}");
    }
}

#[test]
fn r_turn_10_later_prompts_build_on_earlier_ones() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    agent.turn("second");
    assert_eq!(agent.model_transcript(1), ["user first", "assistant One.", "user second"]);
}

#[test]
fn a_long_conversation_reaches_the_model_whole_and_with_its_length() {
    let answers: Vec<_> = (0..6).map(|it| says(&format!("Answer {it}."))).collect();
    let mut agent = TestAgent::builder()
        .model(json!(answers))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "1000000")
        .start();
    let long = |it: usize| format!("{it}{}", "ä\"\n".repeat(20_000));
    for number in 0..6 {
        assert_eq!(agent.turn(&long(number)), "end_turn");
    }
    let last = agent.model().requests().pop().unwrap();
    let size = last.headers.iter().find(|it| it.0.eq_ignore_ascii_case("content-length"));
    assert!(size.is_some_and(|it| it.1.parse::<usize>().unwrap() > 600_000), "{:?}", last.headers);
    let texts = last.body["messages"].as_array().unwrap()[1..].iter().map(|it| &it["content"]);
    let expected: Vec<_> =
        (0..6).flat_map(|it| [long(it), format!("Answer {it}.")]).take(11).collect();
    assert_eq!(texts.len(), expected.len());
    for (text, expected) in texts.zip(expected) {
        assert!(text.as_str().unwrap().contains(expected.trim_end()));
    }
}
