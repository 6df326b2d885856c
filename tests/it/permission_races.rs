//! A permission request that the client answers twice (R-PERM-3): the command runs once.

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

#[test]
fn a_permission_request_that_is_answered_twice_runs_its_command_once() {
    let mut agent = TestAgent::builder()
        .model(json!([calls("exec", &json!({ "command": "echo x>> log" })), says("Done.")]))
        .start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "allow_once");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.sync();
    cards::check(&agent);
    assert_eq!(agent.read("log").replace('\r', ""), "x\n");
}
