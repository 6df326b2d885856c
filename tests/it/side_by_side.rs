//! Several tool calls in one reply (R-TOOL): conflicting calls run one after the other.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};
use turnwright_testing::command_lines::cat;

use crate::agent::{TestAgent, says};

fn write(path: &str) -> Value {
    call("write_file", &json!({ "path": path, "content": format!("new {path}") }))
}

fn read(path: &str) -> Value {
    call("read_file", &json!({ "path": path }))
}

#[test]
fn a_command_waits_for_the_change_before_it_and_a_read_for_the_command() {
    let reply = json!([
        write("a"),
        call("exec", &json!({ "command": format!("{} > b", cat("a")) })),
        read("b"),
        call("plan", &json!({ "entries": [{ "content": "one" }] })),
    ]);
    // The step of the plan is open, so the model is asked once more.
    let replies = json!([reply, says("Done."), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    // The plan update may have come before the permission request.
    if !agent.updates().iter().any(|it| it["sessionUpdate"] == "plan") {
        agent.wait_for_update("plan");
    }
    agent.sync();
    let is_running = |it: &Value| it["status"] == "in_progress";
    assert!(!agent.updates().iter().any(is_running), "a call did not wait for the permission");
    agent.choose(&question, "allow_once");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(agent.read("a"), "new a");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert!(cards::results(&agent, 1)[2].ends_with("1| new a\n"));
}
