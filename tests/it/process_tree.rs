//! Processes that flee: each starts the next in a session of its own and ends, faster than a search can
//! follow. They share a locked file, so the lock tells whether one is left.

use std::fs::File;

use rustix::fs::FlockOperation;
use serde_json::json;

use crate::agent::{TestAgent, calls, eventually, says};

/// Locks a file and flees. The first process goes on with `then`.
fn fleeing(then: &str) -> String {
    format!(
        "python3 -c '
import fcntl, os, time
lock = open(\"lock\", \"w\")
fcntl.flock(lock, fcntl.LOCK_EX)
if os.fork() == 0:
    open(\"fled\", \"w\").close()
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
'; {then}"
    )
}

/// Whether a process holds the lock.
fn one_is_left(agent: &TestAgent) -> bool {
    let file = File::open(agent.path("lock")).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// A system without PID namespaces has to search, and may lose.
fn can_test() -> bool {
    let has_python = turnwright_testing::process_waits::output(
        std::process::Command::new("python3").arg("--version"),
    );
    let can = turnwright_sandbox::namespace_support().processes && has_python.is_ok();
    if !can {
        eprintln!("NOT TESTED: there are no PID namespaces, or no python3");
    }
    can
}

fn agent_that_runs(command: &str) -> TestAgent {
    let call = calls("exec", &json!({ "command": command }));
    TestAgent::builder().permission("allow_once").model(json!([call, says("Done.")])).start()
}

#[test]
fn none_is_left_when_the_command_has_ended() {
    if !can_test() {
        return;
    }
    let mut agent = agent_that_runs(&fleeing("echo over"));
    assert_eq!(agent.turn("run it"), "end_turn");
    assert!(!one_is_left(&agent));
    let result = agent.model_request(1)["messages"].to_string();
    // Whether the model is told that something was left running depends on a look at processes of
    // which each lives for an instant; `sandboxed` has one that stays.
    assert!(result.contains("over"), "{result}");
}

#[test]
fn none_is_left_after_a_cancel() {
    if !can_test() {
        return;
    }
    let mut agent = agent_that_runs(&fleeing("sleep 600"));
    let id = agent.prompt("run it");
    agent.wait_for_status("in_progress");
    eventually("it flees", || agent.path("fled").exists());
    assert!(one_is_left(&agent));
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    eventually("none is left", || !one_is_left(&agent));
}

#[test]
fn none_is_left_when_the_agent_is_killed() {
    if !can_test() {
        return;
    }
    let mut agent = agent_that_runs(&fleeing("sleep 600"));
    agent.prompt("run it");
    agent.wait_for_status("in_progress");
    eventually("it flees", || agent.path("fled").exists());
    assert!(one_is_left(&agent));
    agent.kill();
    eventually("none is left", || !one_is_left(&agent));
}
