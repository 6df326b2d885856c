//! Shutdown (R-TR-12): when stdin ends or a signal comes, the agent exits soon with status 0 and leaves
//! no process running. Windows has no signals and no limit on the size of files.

use std::process::Command;

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use turnwright_testing::command_lines::{in_background, run_on, then, touch};
use turnwright_testing::process_waits;

use crate::agent::{LIMIT, TestAgent, assert_gone, calls, eventually, is_alive};

/// An argument for `sleep` that is on the command line of no other process.
fn unique(name: u32) -> String {
    format!("600.{}{name}", std::process::id())
}

/// Starts an agent and a command in a turn, and waits until the command runs.
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

/// How many commands [`stubborn`] returns.
const STUBBORN: usize = if cfg!(windows) { 2 } else { 5 };

/// Commands whose processes are hard to end. [`is_alive`] finds each process by `word`.
fn stubborn(word: &str) -> Vec<String> {
    if cfg!(windows) {
        let started = then(&touch("started"), &run_on(word));
        return vec![started.clone(), in_background(word, &started)];
    }
    vec![
        format!("touch started; exec sleep {word}"),
        format!("touch started; sleep {word}; true"),
        format!("(sleep {word} &) ; sleep {word} & touch started; wait"),
        format!("trap '' TERM HUP INT; touch started; sleep {word}; sleep {word}"),
        format!("setsid sleep {word} & touch started; wait"),
    ]
}

#[cfg(unix)]
fn is_over(agent: &TestAgent) -> bool {
    // The process is a zombie: it has exited, and the test client has not waited for it yet.
    let status = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid())).unwrap();
    status.rsplit_once(") ").unwrap().1.starts_with('Z')
}

#[cfg(unix)]
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
        let (status, stderr) = agent.close();
        assert!(status.success(), "{status}");
        assert_eq!(stderr, "");
    }
}

#[test]
fn r_tr_12_requests_before_the_end_of_stdin_are_answered() {
    let mut agent = TestAgent::builder().spawn();
    let id = agent.request("initialize", &json!({ "protocolVersion": 1 }));
    let other = agent.request("foo/bar", &json!({}));
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
    assert_eq!(agent.answer_to(&id)["result"]["protocolVersion"], 1);
    assert_eq!(agent.answer_to(&other)["error"]["code"], -32601);
}

#[test]
fn r_tr_12_an_incomplete_last_line_does_not_keep_the_agent_running() {
    let mut agent = TestAgent::builder().initialize();
    agent.send_bytes(br#"{"jsonrpc":"2.0","id":77,"method":"sess"#);
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
}

#[test]
fn r_tr_12_the_end_of_stdin_during_a_reply_closes_the_connection_to_the_model() {
    let reply = json!([[{ "text": "Well" }, { "hang": true }]]);
    let mut agent = TestAgent::builder().model(reply).start();
    let id = agent.prompt("hi");
    agent.wait_for_update("agent_message_chunk");
    let (status, stderr) = agent.close();
    assert!(status.success(), "{status}");
    assert_eq!(stderr, "");
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    assert_eq!(agent.stop_reason(&id), "cancelled", "the prompt was not answered");
}

#[test]
fn r_tr_12_the_end_of_stdin_rejects_an_open_permission_request() {
    let mut agent = TestAgent::builder()
        .model(json!([calls("write_file", &json!({ "path": "a", "content": "x" }))]))
        .start();
    agent.prompt("write");
    agent.wait_for_request("session/request_permission");
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
    assert!(!agent.path("a").exists());
}

#[test]
fn r_tr_12_the_end_of_stdin_ends_every_process_of_a_command() {
    for (number, name) in (0..STUBBORN).zip(100..) {
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[number], &word);
        let (status, _) = agent.close();
        assert!(status.success(), "{status}");
        assert_gone(&word);
    }
}

#[cfg(unix)]
#[test]
fn p0_11_a_signal_ends_the_agent_and_every_process_of_a_command() {
    for (sent_signal, name) in [(Signal::TERM, 200), (Signal::INT, 201), (Signal::HUP, 202)] {
        if sent_signal == Signal::HUP && turnwright_rpc::is_hangup_ignored() {
            continue; // The tests run under `nohup`.
        }
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[2], &word);
        signal(&agent, sent_signal);
        // The agent's stdin is still open.
        eventually("the agent ends", || is_over(&agent));
        let (status, stderr) = agent.close();
        assert!(status.success(), "{sent_signal:?}: {status}");
        assert_eq!(stderr, "");
        assert_gone(&word);
    }
}

#[cfg(unix)]
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
    for (number, name) in (0..STUBBORN).zip(300..) {
        let word = unique(name);
        let mut agent = in_a_command(&stubborn(&word)[number], &word);
        agent.kill();
        assert_gone(&word);
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

#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_does_not_end_the_agent() {
    use serde_json::Value;
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let (home, folder) =
        (turnwright_testing::temporary_folder(), turnwright_testing::temporary_folder());
    let mut process = Command::new("/bin/sh")
        // In blocks of 512 bytes: less than the database needs.
        .args(["-c", "ulimit -f 8 && exec \"$0\"", env!("CARGO_BIN_EXE_turnwright")])
        .env_clear()
        .env("TURNWRIGHT_HOME", home.path())
        .env("TURNWRIGHT_MODEL", "offline")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut call = |id: u32, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{request}").unwrap();
        let messages =
            output.by_ref().map(|it| serde_json::from_str::<Value>(&it.unwrap()).unwrap());
        let mut answers = messages.filter(|it| it["id"] == id && it.get("method").is_none());
        answers.next().expect("the agent has ended")
    };
    call(1, "initialize", json!({ "protocolVersion": 1 }));
    let opened = call(2, "session/new", json!({ "cwd": folder.path(), "mcpServers": [] }));
    let session = &opened["result"]["sessionId"];
    let text = json!([{ "type": "text", "text": "x".repeat(10_000) }]);
    let answer = call(3, "session/prompt", json!({ "sessionId": session, "prompt": text }));
    assert!(answer.get("result").or(answer.get("error")).is_some(), "{answer}");
    drop(input);
    assert_eq!(process_waits::wait(&mut process).code(), Some(0));
}
