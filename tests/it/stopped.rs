//! A process that was stopped looks at what has come meanwhile before it says that a time is over.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// The time-outs of these tests, in seconds. Within them a busy machine comes so far that the agent is stopped.
const LIMIT: u64 = 6;
/// How long the agent is stopped: well beyond the time-out.
const STOPPED: Duration = Duration::from_secs(LIMIT + 4);

fn signal(agent: &TestAgent, name: &str) {
    let status = Command::new("kill").args([name, &agent.pid().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Stops the agent, lets something happen, and lets it go on after its time-out.
fn while_stopped(agent: &TestAgent, happens: impl FnOnce()) {
    signal(agent, "-STOP");
    happens();
    std::thread::sleep(STOPPED);
    signal(agent, "-CONT");
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn an_answer_that_came_while_the_process_was_stopped_is_read() {
    let held = json!([{ "hold": true }, { "text": "Here I am." }]);
    let mut agent = TestAgent::builder()
        .model(json!([held]))
        .own_file("config/config.toml", &format!("silence_seconds = {LIMIT}\n"))
        .start();
    let prompt = agent.prompt("go");
    agent.model_request(0);
    while_stopped(&agent, || agent.model().release());
    assert_eq!(agent.stop_reason(&prompt), "end_turn");
    assert_eq!(agent.text(), "Here I am.");
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn a_command_that_ended_while_the_process_was_stopped_is_not_called_running() {
    let command = "while [ ! -e go ]; do sleep 0.1; done; echo over";
    let exec = calls("exec", &json!({ "command": command, "timeout": LIMIT }));
    let mut agent =
        TestAgent::builder().model(json!([exec, says("Done.")])).permission("allow_once").start();
    let prompt = agent.prompt("go");
    agent.wait_for_status("in_progress");
    let go = agent.path("go");
    while_stopped(&agent, || std::fs::write(go, "").unwrap());
    assert_eq!(agent.stop_reason(&prompt), "end_turn");
    let result = cards::results(&agent, 1).remove(0);
    assert!(result.starts_with("[exit 0 ") && result.contains("over"), "{result}");
}
