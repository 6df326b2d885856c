//! The end (R-TR-12): whichever way it comes, the agent is gone soon, says so with status 0, and
//! leaves nothing behind.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use turnwright_testing::process_waits;

use crate::agent::{LIMIT, TestAgent, calls, eventually, is_alive};

/// How long an end may take.
const SOON: Duration = Duration::from_secs(2);

/// A number of seconds that is on the command line of no other process.
fn unique(name: u32) -> String {
    format!("600.{}{name}", std::process::id())
}

/// An agent in the middle of a command, which waits until it is running.
fn in_a_command(command: &str, word: &str) -> TestAgent {
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([calls("exec", &json!({ "command": command }))]))
        .start();
    agent.prompt("run it");
    agent.wait_for_status("in_progress");
    eventually("the command runs", || is_alive(word) && agent.path("started").exists());
    agent
}

/// Commands that leave something running as well as they can: the last word of each is `word`.
fn stubborn(word: &str) -> [String; 5] {
    [
        format!("touch started; exec sleep {word}"),
        format!("touch started; sleep {word}; true"),
        format!("(sleep {word} &) ; sleep {word} & touch started; wait"),
        format!("trap '' TERM HUP INT; touch started; sleep {word}; sleep {word}"),
        format!("setsid sleep {word} & touch started; wait"),
    ]
}

fn is_over(agent: &TestAgent) -> bool {
    // Dead and not yet waited for.
    let status = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid())).unwrap();
    status.rsplit_once(") ").unwrap().1.starts_with('Z')
}

fn signal(agent: &TestAgent, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn p0_11_the_end_of_stdin_ends_an_idle_agent() {
    let agents = [
        TestAgent::builder().spawn(),
        TestAgent::builder().initialize(),
        TestAgent::builder().start(),
    ];
    for mut agent in agents {
        let begun = Instant::now();
        let (status, stderr) = agent.close();
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(stderr, "");
    }
}

#[test]
fn r_tr_12_what_was_asked_before_the_end_is_answered() {
    let mut agent = TestAgent::builder().spawn();
    let id = agent.request("initialize", &json!({ "protocolVersion": 1 }));
    let other = agent.request("foo/bar", &json!({}));
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
    assert_eq!(agent.answer_to(&id)["result"]["protocolVersion"], 1);
    assert_eq!(agent.answer_to(&other)["error"]["code"], -32601);
}

#[test]
fn r_tr_12_half_a_line_at_the_end_is_no_reason_to_stay() {
    let mut agent = TestAgent::builder().initialize();
    agent.send_bytes(br#"{"jsonrpc":"2.0","id":77,"method":"sess"#);
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
}

#[test]
fn r_tr_12_the_end_of_stdin_in_the_middle_of_an_answer_hangs_up_on_the_model() {
    let reply = json!([[{ "text": "Well" }, { "hang": true }]]);
    let mut agent = TestAgent::builder().model(reply).start();
    let id = agent.prompt("hi");
    agent.wait_for_update("agent_message_chunk");
    let begun = Instant::now();
    let (status, stderr) = agent.close();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(stderr, "");
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    assert_eq!(agent.stop_reason(&id), "cancelled", "who still listens is told");
}

#[test]
fn r_tr_12_the_end_of_stdin_while_a_question_is_open_means_no() {
    let mut agent = TestAgent::builder()
        .model(json!([calls("write_file", &json!({ "path": "a", "content": "x" }))]))
        .start();
    agent.prompt("write");
    agent.wait_for_request("session/request_permission");
    let begun = Instant::now();
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(!agent.path("a").exists());
}

#[test]
fn r_tr_12_the_end_of_stdin_ends_every_process_of_a_command() {
    for (number, name) in (0..5).zip(100..) {
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[number], &word);
        let begun = Instant::now();
        let (status, _) = agent.close();
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        eventually("the command is gone", || !is_alive(&word));
    }
}

#[test]
fn p0_11_a_signal_ends_the_agent_and_every_process_of_a_command() {
    for (wanted, name) in [(Signal::TERM, 200), (Signal::INT, 201), (Signal::HUP, 202)] {
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[2], &word);
        let begun = Instant::now();
        signal(&agent, wanted);
        // Its stdin is still open.
        eventually("the agent ends", || is_over(&agent));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let (status, stderr) = agent.close();
        assert!(status.success(), "{wanted:?}: {status}");
        assert_eq!(stderr, "");
        eventually("the command is gone", || !is_alive(&word));
    }
}

#[test]
fn p0_11_a_signal_ends_an_idle_agent() {
    let mut agent = TestAgent::builder().start();
    agent.sync();
    signal(&agent, Signal::TERM);
    eventually("the agent ends", || is_over(&agent));
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
}

#[test]
fn p0_11_a_killed_agent_leaves_no_process_of_a_command() {
    for (number, name) in (0..5).zip(300..) {
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[number], &word);
        agent.kill();
        eventually(&format!("the end of {}", stubborn("…")[number]), || !is_alive(&word));
    }
}

#[test]
fn r_tr_3_the_help_and_the_version_go_to_stdout() {
    for (argument, word) in [("--help", "Usage"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output =
            process_waits::output(Command::new(env!("CARGO_BIN_EXE_turnwright")).arg(argument))
                .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(word), "{argument}");
    }
}
