//! Prompts that arrive while a turn runs (R-TURN-13): they wait in order, and two turns of a
//! session are never mixed.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Returns an agent whose first turn waits for permission, the id of that prompt, and the
/// permission request.
fn busy(replies: &[Value]) -> (TestAgent, Value, Value) {
    let mut all = vec![calls("write_file", &json!({ "path": "x", "content": "" })), says("First.")];
    all.extend_from_slice(replies);
    let mut agent = TestAgent::builder().model(json!(all)).start();
    let id = agent.prompt("first");
    let question = agent.wait_for_request("session/request_permission");
    (agent, id, question)
}

#[test]
fn r_turn_13_prompts_wait_in_order_and_are_never_mixed() {
    let (mut agent, first, question) = busy(&[says("Second."), says("Third.")]);
    let second = agent.prompt("second");
    let third = agent.prompt("third");
    agent.sync();
    assert_eq!(agent.model().requests().len(), 1, "a waiting prompt must not start");
    agent.choose(&question, "allow_once");
    for id in [&first, &second, &third] {
        assert_eq!(agent.stop_reason(id), "end_turn");
    }
    cards::check(&agent);
    let transcript = agent.transcript();
    let output: Vec<_> =
        transcript.iter().filter(|it| it.starts_with("text") || it.starts_with("stop")).collect();
    assert_eq!(
        output,
        [
            "text First.",
            "stop end_turn",
            "text Second.",
            "stop end_turn",
            "text Third.",
            "stop end_turn"
        ]
    );
    let history = agent.model_transcript(3);
    assert_eq!(
        history[3..],
        ["assistant First.", "user second", "assistant Second.", "user third"]
    );
}

#[test]
fn r_turn_13_answers_come_in_the_order_of_the_prompts() {
    let (mut agent, first, question) = busy(&[]);
    let ids: Vec<_> = (0..5).map(|number| agent.prompt(&format!("prompt {number}"))).collect();
    agent.choose(&question, "allow_once");
    agent.stop_reason(ids.last().unwrap());
    let answers: Vec<_> =
        agent.log.iter().filter(|it| it["result"]["stopReason"].is_string()).collect();
    let answered: Vec<_> = answers.iter().map(|it| it["id"].clone()).collect();
    assert_eq!(answered, [vec![first], ids].concat());
}

#[test]
fn r_turn_13_a_prompt_beyond_the_limit_is_refused_at_once_and_the_others_run() {
    let (mut agent, first, question) = busy(&[]);
    let waiting: Vec<_> = (0..32).map(|number| agent.prompt(&format!("{number}"))).collect();
    let one_more = agent.prompt("one too many");
    let answer = agent.answer_to(&one_more);
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&first), "end_turn");
    for id in &waiting {
        assert_eq!(agent.stop_reason(id), "end_turn");
    }
    let all = agent.model().requests();
    assert!(all.iter().all(|it| !it.body.to_string().contains("one too many")));
    assert_eq!(agent.turn("and now?"), "end_turn");
}

#[test]
fn a_turn_that_fails_does_not_fail_the_waiting_prompts() {
    let error = json!({ "error": { "message": "no", "code": 400 } });
    let failure = json!([{ "text": "Half" }, { "delay_ms": 200 }, error]);
    let mut agent = TestAgent::builder().model(json!([failure, says("Second.")])).start();
    let first = agent.prompt("first");
    let second = agent.prompt("second");
    assert!(agent.answer_to(&first)["error"]["code"].is_i64());
    assert_eq!(agent.stop_reason(&second), "end_turn");
    assert_eq!(agent.text(), "HalfSecond.");
}

#[test]
fn sessions_do_not_wait_for_each_other() {
    let (mut agent, first, question) = busy(&[]);
    let busy_session = agent.session.clone();
    agent.model().push(json!({ "when": "other", "steps": [{ "text": "Free." }] })).unwrap();
    agent.session = agent.new_session();
    assert_eq!(agent.turn("other"), "end_turn");
    assert_eq!(agent.text(), "Free.");
    agent.session = busy_session;
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&first), "end_turn");
}
