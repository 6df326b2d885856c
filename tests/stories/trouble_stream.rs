//! Errors within an answer that began well (R-TURN-12, providers C.0): no text is shown twice, no
//! incomplete call runs, and an empty answer does not end the turn.

use serde_json::{Value, json};
use turnwright_testing::cancellation::{go_on, next_reply};
use turnwright_testing::model_failures::failure;

use crate::agent::{TestAgent, says};

fn start(replies: Value) -> TestAgent {
    TestAgent::builder().model(replies).permission("allow_once").start()
}

fn count(agent: &TestAgent) -> usize {
    agent.model().requests().len()
}

/// Returns a reply with a call of `write_file` that breaks off within its arguments, followed by
/// the steps in `rest`.
fn half_a_call(rest: &Value) -> Value {
    let call = json!({ "name": "write_file", "arguments": "{\"path\":\"a.txt\",\"content\":\"x" });
    let mut steps = vec![json!({ "call": call })];
    steps.extend(rest.as_array().unwrap().iter().cloned());
    json!(steps)
}

fn last_status(agent: &TestAgent) -> String {
    let updates = agent.updates();
    let status = updates.iter().rev().find_map(|it| it["status"].as_str());
    status.unwrap_or("no card").to_owned()
}

#[test]
fn r_turn_12_an_answer_that_is_cut_before_any_text_is_requested_again_silently() {
    for cut in [json!([{ "raw": ": ping\n\n" }, { "cut": true }]), json!([{ "end": "eof" }])] {
        let mut agent = start(json!([cut, says("Now."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn");
        assert_eq!(agent.text(), "Now.");
        assert_eq!(agent.thoughts(), "", "the user must not get a notice");
        assert_eq!(count(&agent), 2);
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_an_answer_that_is_cut_four_times_is_an_error() {
    let cut = json!([{ "end": "eof" }]);
    let mut agent = start(json!([cut, cut, cut, cut, next_reply()]));
    let error = failure(&mut agent, "network", None);
    assert!(error["message"].as_str().unwrap().contains("broke off"), "{error}");
    assert_eq!(count(&agent), 4);
    let told = agent.thoughts();
    assert_eq!(told.matches("Trying again in").count(), 2, "the first attempt is silent: {told}");
    go_on(&mut agent);
}

#[test]
fn r_turn_12_an_answer_that_is_cut_within_its_text_is_continued_and_the_user_is_told() {
    for end in [json!({ "cut": true }), json!({ "end": "eof" })] {
        let half = json!([{ "text": "Half a sen", "chunks": 3 }, end]);
        let mut agent = start(json!([half, says("tence."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn");
        assert_eq!(agent.text(), "Half a sentence.");
        let notice = agent.thoughts();
        assert!(notice.contains("broke off. Continuing from there."), "{notice}");
        assert_eq!(count(&agent), 2);
        let transcript = agent.model_transcript(1);
        assert_eq!(transcript, ["user one", "assistant Half a sen", "user"]);
        let messages = agent.model_request(1)["messages"].to_string();
        assert!(messages.contains("Go on exactly where it stopped"), "{messages}");
        go_on(&mut agent);
        assert_eq!(agent.model_transcript(2)[3..], ["assistant tence.", "user and now?"]);
    }
}

#[test]
fn r_turn_12_an_answer_that_is_cut_again_and_again_is_an_error_and_keeps_its_text() {
    let cut = |text: &str| json!([{ "text": text }, { "cut": true }]);
    let cuts = ["Half ", "a ", "s", "en"].map(cut);
    let mut replies = cuts.to_vec();
    replies.push(next_reply());
    let mut agent = start(json!(replies));
    let error = failure(&mut agent, "network", None);
    assert!(error["message"].as_str().unwrap().contains("broke off"), "{error}");
    assert_eq!(agent.text(), "Half a sen");
    assert_eq!(count(&agent), 4);
    assert_eq!(agent.thoughts().matches("Continuing from there").count(), 3);
    go_on(&mut agent);
    let transcript = agent.model_transcript(4);
    assert_eq!(transcript.last().unwrap(), "user and now?");
    let told = agent.model_request(4).to_string();
    assert!(
        told.contains("[Your last answer is incomplete: it was cut off by an error.]"),
        "{told}"
    );
}

#[test]
fn r_turn_12_an_instruction_to_continue_that_was_refused_is_removed() {
    let cut = json!([{ "text": "Half a sen" }, { "cut": true }]);
    let no = json!([{ "status": 400, "body": { "error": { "message": "No." } } }]);
    let mut agent = start(json!([cut, no, next_reply()]));
    failure(&mut agent, "bad_request", Some(400));
    go_on(&mut agent);
    let transcript = agent.model_transcript(2);
    assert_eq!(transcript, ["user one", "assistant Half a sen", "user and now?"]);
}

/// Qwen at vLLM without a parser for its reasoning, whose opening tag the template has emitted (vllm#17144, #31045).
#[test]
fn reasoning_that_ends_with_a_lone_tag_is_told_from_the_second_answer_on_and_never_sent_back() {
    let replies = ["I think.\n</think>\n\nOne.", "I think again.\n</think>\n\nTwo."].map(says);
    let mut agent = start(json!(replies));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.model_transcript(1), ["user one", "assistant One.", "user two"]);
    assert!(agent.text().ends_with("Two.") && !agent.text().contains("again"), "{}", agent.text());
    assert!(agent.thoughts().contains("I think again."), "{}", agent.thoughts());
}

/// The answer was about the tag, or the model has stopped to think: its text need not wait for a tag any more.
#[test]
fn after_an_answer_without_reasoning_a_lone_tag_is_not_expected_any_more() {
    let replies = ["It ends so:\n</think>\n\nOne.", "Two.", "It is `</think>`."].map(says);
    let mut agent = start(json!(replies));
    for _ in 0..3 {
        assert_eq!(agent.turn("go on"), "end_turn");
    }
    assert!(agent.text().ends_with("It is `</think>`."), "{}", agent.text());
    assert_eq!(agent.thoughts(), "");
}

#[test]
fn r_turn_12_after_reasoning_without_an_answer_the_model_is_asked_for_one_once() {
    let nudge = "was only reasoning";
    let thinks = json!([{ "thought": "Hm." }, { "finish": "stop" }]);
    let mut agent = start(json!([thinks, says("Now."), next_reply()]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.text(), "Now.");
    let notice = agent.thoughts();
    assert!(
        notice.contains("reasoning but no answer") && notice.contains("Trying again"),
        "{notice}"
    );
    assert!(agent.model_request(1).to_string().contains(nudge));
    go_on(&mut agent);
    let mut agent = start(json!([thinks, thinks, next_reply()]));
    failure(&mut agent, "empty", None);
    assert_eq!(count(&agent), 2);
    go_on(&mut agent);
    assert!(!agent.model_request(2).to_string().contains(nudge), "it is left out afterwards");
}

/// Copilot and vLLM do so (hermes-agent#75926, vllm#44326).
#[test]
fn r_turn_12_a_call_that_was_announced_and_never_came_is_asked_for_once() {
    let lost = json!([{ "text": "I read the brief first." }, { "finish": "tool_calls" }]);
    let mut agent = start(json!([lost, lost, next_reply()]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(count(&agent), 2);
    assert!(agent.model_request(1).to_string().contains("as a real tool call"));
    go_on(&mut agent);
}

#[test]
fn a_call_that_is_only_announced_at_the_end_of_an_answer_is_asked_for_once() {
    let announced = says("The cause is clear. Let me fix it now.");
    let mut agent = start(json!([announced, announced, next_reply()]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(count(&agent), 2);
    assert!(agent.model_request(1).to_string().contains("as a real tool call"));
    go_on(&mut agent);
}

#[test]
fn r_turn_12_a_call_that_is_cut_within_its_arguments_never_runs() {
    for rest in [json!([{ "cut": true }]), json!([{ "end": "eof" }])] {
        let mut agent = start(json!([half_a_call(&rest), says("Let me see."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn");
        assert_eq!(agent.text(), "Let me see.");
        assert!(agent.thoughts().contains("broke off. Trying again."), "{}", agent.thoughts());
        assert_eq!(last_status(&agent), "failed");
        assert!(!agent.path("a.txt").exists());
        assert_eq!(agent.model_transcript(1), ["user one"]);
        go_on(&mut agent);
        assert!(!agent.model_request(2)["messages"].to_string().contains("write_file"));
    }
}

#[test]
fn r_turn_12_a_call_with_incomplete_arguments_never_runs_even_in_a_complete_answer() {
    for rest in [json!([]), json!([{ "finish": "stop" }]), json!([{ "finish": "length" }])] {
        let mut agent = start(json!([half_a_call(&rest), says("I see."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn");
        assert_eq!(last_status(&agent), "failed");
        assert!(!agent.path("a.txt").exists());
        go_on(&mut agent);
        // The model is told that the call was not executed.
        let transcript = agent.model_transcript(1);
        assert!(transcript.last().unwrap().contains("Nothing was executed"), "{transcript:#?}");
    }
}

#[test]
fn r_turn_12_an_error_in_place_of_an_answer_is_an_error() {
    let errors = [
        json!([{ "error": { "message": "Quota exceeded", "code": "no_number" } }]),
        json!([{ "raw": "event: error\ndata: Quota exceeded\n\n" }]),
        json!([{ "status": 200, "body": { "object": "error", "message": "Quota exceeded" } }]),
    ];
    for reply in errors {
        let mut agent = start(json!([reply, next_reply()]));
        let error = failure(&mut agent, "quota", None);
        assert!(error["message"].as_str().unwrap().contains("Quota exceeded"), "{reply}: {error}");
        assert_eq!(count(&agent), 1, "{reply}");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_temporary_error_in_place_of_an_answer_is_retried() {
    let error = json!({ "message": "Upstream is busy", "code": "503" });
    for reply in [
        json!([{ "error": error }]),
        json!([{ "raw": format!("event: error\ndata: {}\n\n", json!({ "error": error })) }]),
        json!([{ "raw": format!("error: {error}\n\n") }]),
    ] {
        let mut agent = start(json!([reply, says("Now."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn", "{reply}");
        assert_eq!(agent.text(), "Now.");
        assert!(agent.thoughts().contains("Upstream is busy"), "{}", agent.thoughts());
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_an_answer_is_continued_after_a_temporary_error() {
    let error = json!({ "error": { "message": "Upstream is busy", "code": 503 } });
    let mut agent = start(json!([[{ "text": "As I was say" }, error], says("ing."), next_reply()]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.text(), "As I was saying.");
    assert!(agent.thoughts().contains("Upstream is busy. Continuing"), "{}", agent.thoughts());
    assert_eq!(count(&agent), 2);
    go_on(&mut agent);
}

#[test]
fn r_turn_12_a_permanent_error_within_an_answer_is_an_error() {
    let error = json!({ "error": { "message": "No such tool", "code": 400 } });
    let mut agent = start(json!([[{ "text": "As I was say" }, error], next_reply()]));
    failure(&mut agent, "bad_request", Some(400));
    assert_eq!(agent.text(), "As I was say");
    assert_eq!(count(&agent), 1);
    go_on(&mut agent);
    assert_eq!(agent.model_transcript(1)[1], "assistant As I was say");
}

#[test]
fn r_turn_12_an_empty_answer_is_requested_once_more_silently() {
    let nothings = [
        json!([]),
        json!([{ "raw": "data: [DONE]\n\n" }, { "end": "eof" }]),
        json!([{ "finish": "stop" }]),
        json!([{ "text": "" }, { "finish": "stop" }]),
    ];
    for nothing in nothings {
        let mut agent = start(json!([nothing, says("Now."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn");
        assert_eq!(agent.text(), "Now.");
        assert_eq!(agent.thoughts(), "", "the user must not get a notice");
        assert_eq!(count(&agent), 2, "{nothing}");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_model_whose_answer_is_empty_or_unreadable_twice_is_told_so_once() {
    let nothing = json!([{ "raw": "data: [DONE]\n\n" }, { "end": "eof" }]);
    let dropped = json!([{ "finish": "MALFORMED_FUNCTION_CALL" }]);
    let unreadable = json!([{ "status": 500, "body": { "error": { "message":
        "error parsing tool call: raw='{\"path\"', err=unexpected end of JSON input" } } }]);
    let unmatched = json!([{ "status": 500, "body": { "error": { "message":
        "The model produced output that does not match the expected peg-native format" } } }]);
    for (wrong, kind, status) in [
        (nothing, "empty", None),
        (dropped, "unavailable", Some(503)),
        (unreadable, "unavailable", Some(500)),
        (unmatched, "unavailable", Some(500)),
    ] {
        let nudge = "could not be read";
        let mut agent = start(json!([wrong, wrong, says("Now.")]));
        assert_eq!(agent.turn("one"), "end_turn", "{wrong}");
        assert_eq!(agent.thoughts().matches("Trying again").count(), 1, "{}", agent.thoughts());
        assert!(!agent.model_request(1).to_string().contains(nudge));
        assert!(agent.model_request(2).to_string().contains(nudge));

        let mut agent = start(json!([wrong, wrong, wrong, next_reply()]));
        failure(&mut agent, kind, status);
        assert_eq!(count(&agent), 3);
        go_on(&mut agent);
        assert!(!agent.model_request(3).to_string().contains(nudge), "it is left out afterwards");
    }
}

#[test]
fn r_turn_12_an_end_mark_alone_is_a_cut_after_the_server_has_sent_a_finish_reason() {
    let bare = json!([{ "text": "Half a sen" }, { "raw": "data: [DONE]\n\n" }, { "end": "eof" }]);
    let mut agent = start(json!([says("One."), bare, says("tence."), next_reply()]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.text(), "One.Half a sentence.");
    assert!(agent.thoughts().contains("broke off. Continuing from there."), "{}", agent.thoughts());
    assert_eq!(count(&agent), 3);
}

#[test]
fn r_turn_12_an_error_without_a_type_in_mid_stream_is_tried_again() {
    for error in [
        json!({ "error": "Internal server error" }),
        json!({ "error": { "message": "Overloaded" } }),
        json!({ "error": "unexpected EOF" }),
    ] {
        let first = json!([{ "data": error }, { "end": "eof" }]);
        let half = json!([{ "text": "Half a sen" }, { "data": error }, { "end": "eof" }]);
        let mut agent = start(json!([first, half, says("tence."), next_reply()]));
        assert_eq!(agent.turn("one"), "end_turn", "{error}");
        assert_eq!(agent.text(), "Half a sentence.", "{error}");
        assert!(agent.thoughts().contains("Trying again in"), "{}", agent.thoughts());
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_wrong_key_that_is_called_a_failure_of_the_server_is_not_tried_again() {
    let error = json!({ "error": { "type": "server_error", "code": "server_error",
        "message": "Error code: 401 - {'error': 'Incorrect API key provided'}" } });
    let mut agent = start(json!([[{ "data": error }, { "end": "eof" }], next_reply()]));
    let error = failure(&mut agent, "auth", Some(500));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("has for its provider"), "{message}");
    assert!(!message.contains("OPENAI_API_KEY"), "{message}");
    assert_eq!(count(&agent), 1);
    go_on(&mut agent);
}

#[test]
fn r_turn_12_an_html_page_instead_of_an_answer_is_an_error_that_says_what_to_check() {
    let page = "\r\n<!doctype html><title>Welcome</title><p>Hello";
    let reply = json!([{ "status": 200, "content_type": "text/html", "body": page }]);
    let mut agent = start(json!([reply, next_reply()]));
    let error = failure(&mut agent, "malformed", None);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("HTML") && message.contains("base URL"), "{message}");
    assert_eq!(count(&agent), 1);
    go_on(&mut agent);
}

#[test]
fn r_turn_12_a_whole_document_instead_of_a_stream_is_an_answer() {
    let call = json!({ "id": "c1", "type": "function",
        "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } });
    let calls = json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls",
        "message": { "role": "assistant", "content": null, "tool_calls": [call] } }] });
    let text = json!({ "choices": [{ "index": 0, "finish_reason": "stop",
        "message": { "role": "assistant", "content": "One line." } }] });
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .model(json!([
            [{ "status": 200, "body": calls }], [{ "status": 200, "body": text }], next_reply()
        ]))
        .start();
    assert_eq!(agent.turn("how long is it?"), "end_turn");
    assert_eq!(agent.text(), "One line.");
    assert!(agent.model_transcript(1)[2].contains("alpha"));
    go_on(&mut agent);
}
