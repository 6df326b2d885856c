//! Words for a running turn: they reach the model with its next request, cancel nothing, keep their
//! order, and are never lost.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::session_requests::conversation;

use crate::agent::{TestAgent, calls, prompt, says};

fn steering(session: &str, text: &str) -> Value {
    prompt(session, text)
}

/// Gives words to the running turn and returns the outcome.
fn steer(agent: &mut TestAgent, text: &str) -> Value {
    let params = steering(&agent.session, text);
    agent.call("_session/steering", &params)["result"].clone()
}

fn injected() -> Value {
    json!({ "outcome": "injected" })
}

/// The last messages of a request, without what the agent adds to them.
fn last(agent: &TestAgent, request: usize, count: usize) -> Vec<String> {
    let mut transcript = agent.model_transcript(request);
    transcript.split_off(transcript.len() - count)
}

/// The last message of a request as the model gets it.
fn last_message(agent: &TestAgent, request: usize) -> String {
    let body = agent.model_request(request);
    body["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

/// A text that goes on when the test has released the model.
fn held() -> Value {
    json!([{ "text": "Working " }, { "hold": true }])
}

#[test]
fn words_during_a_text_are_answered_in_the_same_turn() {
    let mut agent = TestAgent::builder().model(json!([held(), says("With tabs.")])).start();
    let id = agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    assert_eq!(steer(&mut agent, "use tabs"), injected());
    assert_eq!(steer(&mut agent, "and no spaces"), injected());
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(agent.text().ends_with("With tabs."), "{}", agent.text());
    assert_eq!(agent.model().requests().len(), 2);
    let said = last_message(&agent, 1);
    let (tabs, spaces) = (said.find("use tabs"), said.find("and no spaces"));
    assert!(tabs.is_some() && tabs < spaces, "{said}");
    assert!(said.contains("while you were working"), "{said}");
}

#[test]
fn words_during_a_question_wait_for_it_and_follow_the_result() {
    let write = calls("write_file", &json!({ "path": "x", "content": "x" }));
    let mut agent = TestAgent::builder().model(json!([write, says("Done.")])).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(steer(&mut agent, "then stop"), injected());
    assert_eq!(agent.model().requests().len(), 1, "nothing was cancelled");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("x"), "x");
    let [result, said] = &last(&agent, 1, 2)[..] else { panic!("{:?}", agent.model_transcript(1)) };
    assert!(result.starts_with("tool ") && said.starts_with("user then stop"), "{result} {said}");
}

#[test]
fn the_typed_command_does_the_same_and_is_answered_at_once() {
    let write = calls("write_file", &json!({ "path": "x", "content": "x" }));
    let mut agent =
        TestAgent::builder().model(json!([write, says("Done."), says("Next.")])).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let queued = agent.prompt("a prompt of its own");
    let typed = agent.prompt("/steer then stop");
    assert_eq!(agent.stop_reason(&typed), "end_turn");
    assert_eq!(agent.model().requests().len(), 1);
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.stop_reason(&queued), "end_turn");
    assert!(last(&agent, 1, 1)[0].starts_with("user then stop"));
    assert_eq!(last(&agent, 2, 1), ["user a prompt of its own"]);
}

#[test]
fn without_a_running_turn_words_are_a_prompt() {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    let refused = json!({ "outcome": "promptRequired", "reason": "noRunningTurn" });
    assert_eq!(steer(&mut agent, "hello"), refused);
    assert_eq!(agent.model().requests().len(), 0);
    assert_eq!(agent.turn("/steer hello"), "end_turn");
    assert_eq!(last(&agent, 0, 1), ["user hello"]);
    assert_eq!(agent.turn("/steer"), "end_turn");
    assert!(agent.text().ends_with("the model reads it with its next request."));
    let unknown = steering("nobody", "hello");
    assert_eq!(agent.call("_session/steering", &unknown)["error"]["code"], -32002);
}

#[test]
fn words_are_replayed_where_the_model_has_read_them() {
    let read = |path: &str| calls("read_file", &json!({ "path": path }));
    let write = calls("write_file", &json!({ "path": "x", "content": "x" }));
    let replies = json!([write, read("x"), says("Done."), says("Later.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    steer(&mut agent, "one");
    steer(&mut agent, "two");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let before = agent.model_transcript(2);
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    let shown = conversation(&agent);
    let of = |words: &str| shown.iter().position(|it| it.contains(words));
    assert!(of("one").is_some() && of("one") < of("two"), "{shown:?}");
    assert!(of("go") < of("one") && of("two") < of("Done."), "{shown:?}");
    assert!(!shown.concat().contains("while you were working"), "{shown:?}");
    agent.turn("and now?");
    let after = agent.model_transcript(3);
    assert_eq!(after[..before.len()], before, "the model has the same conversation");
}

#[test]
fn words_that_no_request_takes_any_more_reach_the_model_with_the_next_prompt() {
    let write = calls("write_file", &json!({ "path": "x", "content": "x" }));
    let mut agent = TestAgent::builder().model(json!([write, says("Yes."), says("More.")])).start();
    let id = agent.prompt("go");
    agent.wait_for_request("session/request_permission");
    assert_eq!(steer(&mut agent, "use tabs"), injected());
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert!(conversation(&agent).iter().any(|it| it.contains("use tabs")));
    assert_eq!(agent.turn("go on"), "end_turn");
    let said = last(&agent, 1, 1).remove(0);
    assert!(said.starts_with("user use tabs") && said.contains("go on"), "{said}");
}

#[test]
fn words_of_a_refused_turn_stay() {
    let refusal = json!([{ "text": "No" }, { "hold": true }, { "finish": "content_filter" }]);
    let mut agent = TestAgent::builder().model(json!([refusal, says("Fine.")])).start();
    let id = agent.prompt("something bad");
    agent.wait_for_update("agent_message_chunk");
    steer(&mut agent, "something good");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "refusal");
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("well?"), "end_turn");
    let transcript = agent.model_transcript(1);
    assert_eq!(transcript.len(), 1, "{transcript:?}");
    assert!(transcript[0].starts_with("user something good"), "{transcript:?}");
}

#[test]
fn at_the_limit_of_requests_the_words_are_part_of_the_last_one() {
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MAX_TURN_REQUESTS", "1")
        .model(json!([held(), says("Half done. ")]))
        .start();
    let id = agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    steer(&mut agent, "use tabs");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "max_turn_requests");
    assert!(last_message(&agent, 1).contains("use tabs"));
    assert!(agent.text().contains("Half done. The limit of 1 request "), "{}", agent.text());
}

#[test]
fn steering_is_advertised_as_other_agents_do() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    assert_eq!(answer["result"]["_meta"]["steering"]["supported"], true);
}

#[test]
fn words_at_the_very_end_are_either_read_or_asked_for_as_a_prompt() {
    let mut agent = TestAgent::builder().model(json!([])).start();
    let mut injected_words = Vec::new();
    for number in 0..20 {
        let answer = json!({ "text": format!("Answer {number}."), "chunks": 3, "every_ms": 2 });
        agent.model().push(json!([answer])).unwrap();
        let id = agent.prompt("go");
        if number % 2 == 0 {
            agent.wait_for_update("agent_message_chunk");
        }
        let words = format!("words number {number}!");
        let params = steering(&agent.session, &words);
        let steered = agent.request("_session/steering", &params);
        agent.stop_reason(&id);
        if agent.answer_to(&steered)["result"] == injected() {
            injected_words.push(words);
        }
    }
    agent.turn("the last one");
    let last = agent.model().requests().len() - 1;
    let body = agent.model_request(last).to_string();
    for words in injected_words {
        assert_eq!(body.matches(&words).count(), 1, "{words}");
    }
}
