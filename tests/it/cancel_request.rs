//! `$/cancel_request` (R-CXL): the agent does not withdraw a permission request that was answered.

use serde_json::{Value, json};
use turnwright_testing::cancellation::{NEXT, expect_cancelled, hangs, next_reply};

use crate::agent::{TestAgent, calls};

/// The identifiers of the requests that the agent has withdrawn.
fn withdrawals(agent: &TestAgent) -> Vec<Value> {
    let sent = agent.log.iter().filter(|it| it["method"] == "$/cancel_request");
    sent.map(|it| it["params"]["requestId"].clone()).collect()
}

#[test]
fn r_cxl_6_an_answered_permission_request_is_not_withdrawn() {
    let run = calls("exec", &json!({ "command": "echo hello" }));
    let mut agent = TestAgent::builder()
        .model(json!([run, hangs(), next_reply()]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    expect_cancelled(&mut agent, &id);
    assert_eq!(withdrawals(&agent), [Value::Null; 0]);
    assert_eq!(agent.turn(NEXT), "end_turn");
}
