//! `$/cancel_request` (R-CXL), in both directions: it does for a single request what
//! `session/cancel` does for a session.

use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::cancellation::{expect_cancelled, go_on, hangs, next_reply};

use crate::agent::{LIMIT, TestAgent, calls, prompt, says};

fn withdraw(agent: &mut TestAgent, id: &Value) {
    agent.notify("$/cancel_request", &json!({ "requestId": id }));
}

fn withdrawals(agent: &TestAgent) -> Vec<Value> {
    let sent = agent.log.iter().filter(|it| it["method"] == "$/cancel_request");
    sent.map(|it| it["params"]["requestId"].clone()).collect()
}

#[test]
fn r_cxl_2_a_running_prompt_is_answered_once_as_cancelled() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    withdraw(&mut agent, &id);
    withdraw(&mut agent, &id);
    expect_cancelled(&mut agent, &id);
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    let answers = agent.log.iter().filter(|it| it.get("method").is_none() && it["id"] == id);
    assert_eq!(answers.count(), 1);
    go_on(&mut agent);
}

#[test]
fn r_cxl_2_a_prompt_whose_id_is_a_string_is_cancelled() {
    let mut agent = TestAgent::builder().model(json!([hangs(), next_reply()])).start();
    let id = json!("prompt-\u{e4}\"1");
    let params = prompt(&agent.session, "one");
    agent.send_request(&id, "session/prompt", &params);
    agent.wait_for_update("agent_message_chunk");
    withdraw(&mut agent, &id);
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
}

#[test]
fn r_cxl_2_only_the_named_one_of_several_waiting_prompts_is_cancelled() {
    let first = json!([{ "text": "one" }, { "hold": true }, { "text": " done." }]);
    let mut agent = TestAgent::builder().model(json!([first, says(" Three done.")])).start();
    let one = agent.prompt("1");
    let two = agent.prompt("2");
    let three = agent.prompt("3");
    agent.wait_for_update("agent_message_chunk");
    withdraw(&mut agent, &two);
    assert_eq!(agent.stop_reason(&two), "cancelled");
    let is_open = !agent.log.iter().any(|it| it.get("method").is_none() && it["id"] == one);
    assert!(is_open, "the running prompt was answered before the waiting one");
    agent.model().release();
    assert_eq!(agent.stop_reason(&one), "end_turn");
    assert_eq!(agent.stop_reason(&three), "end_turn");
    assert_eq!(agent.text(), "one done. Three done.");
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn r_cxl_3_requests_that_are_finished_or_unknown_are_ignored() {
    let mut agent =
        TestAgent::builder().model(json!([says("Done."), hangs(), next_reply()])).start();
    let finished = agent.prompt("zero");
    assert_eq!(agent.stop_reason(&finished), "end_turn");
    let running = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    let before = agent.log.len();
    // The types of ids matter: the number 7 is not the string "7". No request has the id null.
    let as_string = json!(running.to_string());
    for id in [&finished, &as_string, &json!(4711), &json!("x"), &Value::Null, &json!([1])] {
        withdraw(&mut agent, id);
    }
    agent.notify("$/cancel_request", &json!({}));
    agent.notify("$/cancel_request", &Value::Null);
    agent.sync();
    agent.settle(Duration::from_millis(300));
    assert_eq!(agent.log.len(), before + 1, "{:?}", agent.transcript());
    withdraw(&mut agent, &running);
    expect_cancelled(&mut agent, &running);
    go_on(&mut agent);
}

#[test]
fn r_cxl_3_an_id_that_is_used_again_refers_to_the_new_request() {
    let mut agent =
        TestAgent::builder().model(json!([says("Done."), hangs(), next_reply()])).start();
    let id = json!("again");
    let params = prompt(&agent.session, "one");
    agent.send_request(&id, "session/prompt", &params);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.send_request(&id, "session/prompt", &params);
    agent.wait_for("a text chunk", |it| it["params"]["update"]["content"]["text"] == "I think");
    withdraw(&mut agent, &id);
    let answer = agent.wait_for("the second answer", |it| it["id"] == id);
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    go_on(&mut agent);
}

#[test]
fn r_cxl_6_a_cancelled_prompt_withdraws_its_open_permission_request() {
    let run = calls("exec", &json!({ "command": "touch ran" }));
    let mut agent = TestAgent::builder().model(json!([run, next_reply()])).start();
    let id = agent.prompt("one");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(withdrawals(&agent), [Value::Null; 0]);
    withdraw(&mut agent, &id);
    expect_cancelled(&mut agent, &id);
    assert_eq!(withdrawals(&agent), [question["id"].clone()]);
    go_on(&mut agent);
    assert!(!agent.path("ran").exists());
}
