//! Cancels before, during and after a command (R-CANCEL-1, R-CANCEL-2): all processes of the command end
//! before the prompt is answered.

use std::time::Instant;

use serde_json::{Value, json};
use turnwright_testing::cancellation::{
    PROMPTLY, cancel_and_go_on, expect_cancelled, go_on, hangs, next_reply,
};
use turnwright_testing::command_lines::{run_on, then, touch};

use crate::agent::{LIMIT, TestAgent, assert_gone, eventually, is_alive, runs};

/// Cancels the turn during a reply stream, and checks that the agent closes the stream, which it would
/// otherwise keep for minutes.
fn cancel_the_stream(agent: &mut TestAgent, id: &Value) {
    agent.cancel();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    expect_cancelled(agent, id);
    go_on(agent);
}

/// An argument for `sleep` that is on the command line of no other process.
fn long_time(number: u32) -> String {
    format!("7{:07}{number:02}", std::process::id())
}

#[test]
fn r_cancel_2_after_complete_calls_while_the_reply_goes_on() {
    let reads = json!([{ "call": { "name": "read_file", "arguments": { "path": "a.txt" } } },
        { "call": { "name": "exec", "arguments": { "command": touch("ran") } } }, { "hang": true }]);
    let mut agent =
        TestAgent::builder().model(json!([reads, next_reply()])).permission("allow_once").start();
    let id = agent.prompt("one");
    agent.wait_for_update("tool_call");
    agent.wait_for_update("tool_call");
    cancel_the_stream(&mut agent, &id);
    assert!(!agent.path("ran").exists());
}

/// Waits until the command has created the file `begun`.
fn wait_for_start(agent: &mut TestAgent) {
    agent.wait_for_status("in_progress");
    eventually("the command starts", || agent.path("begun").exists());
}

/// Runs a command, cancels it once `begun` exists, and checks that all processes with `marker` on their
/// command line have ended.
fn cancel_a_command(command: &str, marker: &str) {
    let mut agent = TestAgent::builder()
        .model(json!([runs(command), next_reply()]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    wait_for_start(&mut agent);
    eventually("a process has the marker", || is_alive(marker));
    let start = Instant::now();
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert!(start.elapsed() < PROMPTLY, "{:?}", start.elapsed());
    assert_gone(marker);
    expect_cancelled(&mut agent, &id);
    go_on(&mut agent);
    let messages = agent.model_request(1)["messages"].to_string();
    assert!(messages.contains("cancelled by the user"), "{messages}");
}

#[test]
fn r_cancel_1_while_a_command_runs() {
    let time = long_time(1);
    cancel_a_command(&then(&touch("begun"), &run_on(&time)), &time);
}

#[test]
fn r_cancel_1_while_a_command_with_children_runs() {
    let time = long_time(2);
    let command = if cfg!(windows) {
        let (begin, child) = (touch("begun"), run_on(&time));
        format!("start /b \"\" {child} & {begin} & cmd /d /c {child}")
    } else {
        format!("sleep {time} & (sleep {time} | sleep {time}) & touch begun; wait")
    };
    cancel_a_command(&command, &time);
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn r_cancel_1_while_a_command_runs_that_ignores_sigterm() {
    let time = long_time(3);
    let command = format!(
        "trap '' TERM; (trap '' TERM; while true; do sleep {time}; done) & touch begun; \
         while true; do sleep {time}; done"
    );
    cancel_a_command(&command, &time);
}

#[test]
fn r_cancel_1_while_a_command_prints_without_end() {
    let time = long_time(4);
    let begin = touch("begun");
    let line = if cfg!(windows) {
        let child = run_on(&time);
        format!("start /b \"\" {child} & {begin} & for /l %i in (1,0,2) do @echo y")
    } else {
        format!("sleep {time} & {begin}; yes")
    };
    cancel_a_command(&line, &time);
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn r_cancel_1_a_command_may_clean_up_after_sigterm() {
    let mut agent = TestAgent::builder()
        .model(json!([
            runs("trap ': > cleaned; exit' TERM; touch begun; while true; do sleep 0.02; done"),
            next_reply()
        ]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    wait_for_start(&mut agent);
    cancel_and_go_on(&mut agent, &id);
    assert!(agent.path("cleaned").exists());
}

#[test]
fn r_cancel_2_in_the_second_request_of_a_turn() {
    let run = runs("echo hello");
    let mut agent = TestAgent::builder()
        .model(json!([run, hangs(), next_reply()]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    cancel_the_stream(&mut agent, &id);
}
