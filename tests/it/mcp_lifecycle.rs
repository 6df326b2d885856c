//! MCP servers that run as child processes: how they start, which protocol revisions they speak, how they
//! die and restart, what their sandbox allows, and that no process of theirs remains.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, eventually, says};
#[cfg(unix)]
use crate::agent::{assert_gone, is_alive};

/// A name that is on the command line of no other process.
fn unique(name: &str) -> String {
    format!("tool-{}-{name}", std::process::id())
}

/// A server that is started by this command line.
fn started_by(name: &str, command: &str, arguments: &[&str]) -> Value {
    json!({ "name": name, "command": command, "args": arguments, "env": [] })
}

/// A scripted server that is started by a line of shell, in which its command is `"$0" "$1"`.
#[cfg(unix)]
fn behind(name: &str, line: &str, scenario: &Value) -> Value {
    let program = turnwright_testing::example_program("scripted_server");
    let program = program.to_str().unwrap();
    started_by(name, "/bin/sh", &["-c", line, program, &scenario.to_string()])
}

/// An agent whose model makes these calls, one in each reply, and whose client allows them.
fn calling(tools: &[(&str, Value)], scenario: &Value) -> TestAgent {
    let mut replies: Vec<_> = tools.iter().map(|(name, it)| calls(name, it)).collect();
    replies.push(says("done"));
    TestAgent::builder()
        .model(replies.into())
        .permission("allow_once")
        .server("notes", scenario)
        .start()
}

/// The result of a call, as the model gets it. Calls are numbered from 0.
fn call_result(agent: &TestAgent, number: usize) -> String {
    agent.model_transcript(number + 1).pop().unwrap()
}

/// Checks that the updates to the client contain each of `words`.
fn assert_updates_contain(agent: &TestAgent, words: &[&str]) {
    let all = format!("{:?}", agent.updates());
    for word in words {
        assert!(all.contains(word), "{word}: {all}");
    }
}

#[test]
fn m_2_all_protocol_revisions_are_supported() {
    let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
    for revision in revisions {
        let mut scenario = json!({ "tools": [{ "name": "echo" }], "revision": revision });
        scenario["modern"] = (revision == "2026-07-28").into();
        let mut agent = calling(&[("mcp__notes__echo", json!({ "text": "hi" }))], &scenario);
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(
            call_result(&agent, 0).contains(r#"{"text":"hi"}"#),
            "{revision}: {}",
            call_result(&agent, 0)
        );
    }
}

#[test]
fn m_2_a_server_without_a_common_revision_is_reported() {
    let refuses = json!({ "code": -32000, "message": "the licence is over" });
    for (scenario, words) in [
        (json!({ "revision": "2031-01-01" }), "uses protocol version 2031-01-01"),
        (json!({ "refuses": refuses }), "the licence is over"),
    ] {
        let mut agent = calling(&[], &scenario);
        assert_eq!(agent.turn("go"), "end_turn");
        assert_updates_contain(&agent, &["notes is unavailable", words]);
    }
}

#[test]
fn m_12_new_tools_are_offered_in_the_next_request_in_old_and_new_revisions() {
    for modern in [false, true] {
        let scenario = json!({
            "modern": modern,
            "tools": [{ "name": "grow" }],
            "answers": { "grow": [{ "tools": [{ "name": "grow" }, { "name": "late" }] }] },
        });
        let mut agent = TestAgent::builder()
            .model(json!([calls("mcp__notes__grow", &json!({}))]))
            .permission("allow_once")
            .server("notes", &scenario)
            .start();
        // The turn goes on until the list is known. Each answer waits for the next one to be there.
        let mut last = 1;
        let held = |step: Value| json!([{ "hold": true }, step]);
        let step = |it: usize| cards::call("exec", &json!({ "command": format!("echo {it}") }));
        agent.model().push(held(step(1))).unwrap();
        let turn = agent.prompt("go");
        eventually("the new tool is offered", || {
            // The client answers questions while it reads.
            agent.sync();
            if agent.model().requests().len() <= last {
                return false;
            }
            let is_offered = agent.server_tools(last).len() == 2;
            let next = if is_offered { json!({ "text": "done" }) } else { step(last + 1) };
            agent.model().push(held(next)).unwrap();
            agent.model().release();
            last += usize::from(!is_offered);
            is_offered
        });
        agent.model().release();
        assert_eq!(agent.stop_reason(&turn), "end_turn");
        assert_eq!(agent.server_tools(0), ["mcp__notes__grow"]);
        assert_eq!(agent.server_tools(last), ["mcp__notes__grow", "mcp__notes__late"], "{modern}");
    }
}

#[test]
fn a7_the_first_prompt_has_the_working_server_and_reports_the_others() {
    let mut agent = TestAgent::builder()
        .model(json!([says("one")]))
        .server("good", &json!({ "tools": [{ "name": "echo" }] }))
        .server("dead", &json!({ "exit": 3 }))
        .server("slow", &json!({ "start_ms": 60_000, "tools": [{ "name": "late" }] }))
        .initialize();
    agent.servers.push(started_by("gone", "no-such-program-2391", &[]));
    // `session/new` is answered before any server has failed or connected.
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.server_tools(0), ["mcp__good__echo"]);
    let all = format!("{:?}", agent.updates());
    for words in
        ["dead", "exit 3", "cannot go on", "slow", "no-such-program-2391 was not found in PATH"]
    {
        assert!(all.contains(words), "{words}: {all}");
    }
}

#[test]
fn m_17_a_call_fails_when_its_server_dies_and_the_next_one_restarts_it() {
    let scenario = json!({
        "tools": [{ "name": "die" }, { "name": "echo" }],
        "answers": { "die": [{ "shout": "out of paper" }, { "die": 7 }] },
    });
    let tools =
        [("mcp__notes__die", json!({})), ("mcp__notes__echo", json!({ "text": "still there" }))];
    let mut agent = calling(&tools, &scenario);
    assert_eq!(agent.turn("go"), "end_turn");
    let lost = call_result(&agent, 0);
    for words in ["notes was lost during the call", "exit 7", "out of paper", "partly executed"] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
    assert!(call_result(&agent, 1).contains("still there"), "{}", call_result(&agent, 1));
}

/// The server waits with what takes the memory until it is called, and is not the process that takes it.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_holds_too_much_memory_is_stopped() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("SKIPPED: there is no sandbox");
        return;
    }
    let scenario = json!({
        "tools": [{ "name": "grow" }],
        "answers": { "grow": [{ "write": ["grow", ""] }, { "never": true }] },
    });
    let child = "import os, time\nwhile not os.path.exists('grow'): time.sleep(0.01)\n\
                 x = bytearray(600 << 20); time.sleep(600)";
    let line = format!("python3 -c \"{child}\" > /dev/null & exec \"$0\" \"$1\"");
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", "[sandbox]\nmemory_mb = 300")
        .model(json!([calls("mcp__big__grow", &json!({})), says("done")]))
        .permission("allow_once")
        .server_as(behind("big", &line, &scenario))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let lost = call_result(&agent, 0);
    for words in ["big was lost during the call", "MiB of memory, more than it may", "memory_mb"] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
}

#[test]
fn m_17_a_server_that_always_dies_is_not_restarted_any_more() {
    let scenario = json!({
        "tools": [{ "name": "die" }],
        "answers": { "die": [{ "die": 7 }] },
    });
    let calls: Vec<_> = (0..5).map(|_| ("mcp__notes__die", json!({}))).collect();
    let mut agent = calling(&calls, &scenario);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent, 3).contains("was lost"), "{}", call_result(&agent, 3));
    assert!(
        call_result(&agent, 4).contains("is not available: it ended (exit 7)"),
        "{}",
        call_result(&agent, 4)
    );
}

#[test]
fn a_server_that_fails_once_is_restarted() {
    // The server's sandbox lets it create the file `tried` only in the workspace.
    let scenario = json!({ "tools": [{ "name": "echo" }], "exit": 3, "once": "tried" });
    let mut agent = TestAgent::builder()
        .model(json!([]))
        .permission("allow_once")
        .server("notes", &scenario)
        .start();
    eventually("its tool is offered", || {
        agent.model().push(says("Hello.")).unwrap();
        assert_eq!(agent.turn("hello"), "end_turn");
        agent.server_tools(agent.model().requests().len() - 1) == ["mcp__notes__echo"]
    });
    for reply in [calls("mcp__notes__echo", &json!({ "text": "second try" })), says("done")] {
        agent.model().push(reply).unwrap();
    }
    let result = cards::turn(&mut agent);
    assert!(result.contains("second try"), "{result}");
}

#[test]
fn m_18_other_output_of_a_server_is_ignored() {
    let scenario = json!({
        "tools": [{ "name": "noise" }],
        "first": ["Welcome!", "", "{\"level\":\"info\"}", "[1, 2]", "{\"jsonrpc\": broken"],
        "shouts": 1_000_000,
        "answers": { "noise": [{ "say": "thinking..." }, { "shout": "hm" }, { "text": "clear" }] },
    });
    let mut agent = calling(&[("mcp__notes__noise", json!({}))], &scenario);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent, 0).ends_with("clear"), "{}", call_result(&agent, 0));
}

#[test]
fn an_answer_that_is_far_too_long_fails_at_once() {
    let scenario = json!({
        "tools": [{ "name": "huge" }],
        "answers": { "huge": [{ "text": "0123456789abcdef", "repeat": 2_200_000 }] },
    });
    let mut agent = calling(&[("mcp__notes__huge", json!({}))], &scenario);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent, 0).contains("longer than 32 MiB"), "{}", call_result(&agent, 0));
}

/// Servers that are hard to end. All their processes have `word` on the command line.
#[cfg(unix)]
fn stubborn(word: &str) -> Vec<Value> {
    let scenario = json!({ "tools": [{ "name": word }], "stays": true });
    let slow = json!({ "tools": [{ "name": word }], "start_ms": 600_000 });
    vec![
        behind("stays", "exec \"$0\" \"$1\"", &scenario),
        behind("deaf", "trap '' TERM HUP INT; \"$0\" \"$1\"; sleep 600", &scenario),
        behind("parent", &format!("sh -c 'sleep 600; : {word}' & exec \"$0\" \"$1\""), &scenario),
        behind(
            "fled",
            &format!("setsid sh -c 'sleep 600; : {word}' & exec \"$0\" \"$1\""),
            &scenario,
        ),
        behind("slow", "exec \"$0\" \"$1\"", &slow),
    ]
}

/// An agent with all of these servers, whose processes are running.
#[cfg(unix)]
fn with_stubborn(word: &str) -> TestAgent {
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", "[mcp]\nwait_seconds = 1\n")
        .model(json!([says("one")]))
        .noisy()
        .initialize();
    agent.servers = stubborn(word);
    agent.session = agent.new_session();
    eventually("the servers run", || is_alive(word));
    agent
}

#[cfg(unix)]
#[test]
fn m_16_all_processes_of_servers_end_with_the_session_and_the_agent() {
    use rustix::process::{Pid, Signal, kill_process};
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let word = unique("close");
    let mut agent = with_stubborn(&word);
    assert_eq!(agent.turn("go"), "end_turn");
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    assert_gone(&word);
    // This session is closed while its servers are starting.
    let session = agent.new_session();
    agent.call("session/close", &json!({ "sessionId": session }));
    assert_gone(&word);

    agent.session = agent.new_session();
    eventually("the servers run", || is_alive(&word));
    let (status, _) = agent.close();
    assert!(status.success(), "{status}");
    assert_gone(&word);

    let word = unique("term");
    let mut agent = with_stubborn(&word);
    let pid = Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    agent.close();
    assert_gone(&word);

    let word = unique("kill");
    let mut agent = with_stubborn(&word);
    assert_eq!(agent.turn("go"), "end_turn");
    agent.kill();
    assert_gone(&word);
}

#[test]
fn d7_a_server_gets_its_declared_variables_and_no_key_of_the_agent() {
    let scenario = json!({
        "tools": [{ "name": "look" }],
        "answers": { "look": [
            { "env": "OPENAI_API_KEY" }, { "env": "SOME_TOKEN" }, { "env": "NOTES_KEY" },
            { "env": "PLAIN" }, { "env": "TMPDIR" },
        ] },
    });
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__notes__look", &json!({})), says("done")]))
        .permission("allow_once")
        .variable("SOME_TOKEN", "canary-2391-outside")
        .server("notes", &scenario)
        .initialize();
    agent.servers[0]["env"] = json!([
        { "name": "NOTES_KEY", "value": "Declared-2391-key" },
        { "name": "PLAIN", "value": "declared" },
    ]);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    let text = call_result(&agent, 0);
    assert!(!text.contains("sk-test") && !text.contains("canary"), "{text}");
    assert!(text.contains("[hidden:") && text.contains("declared"), "{text}");
    if turnwright_sandbox::can_confine() {
        assert!(text.contains("turnwright-"), "{text}");
    }
    let all = format!("{:?}", agent.log);
    assert!(!all.contains("Declared-2391-key"), "{all}");
    let state_files = std::fs::read_dir(agent.home().join("state")).into_iter().flatten().flatten();
    for file in state_files.filter(|it| it.path().is_file()) {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("Declared-2391-key"), "{file:?}");
    }
}

#[test]
fn a_server_can_write_only_in_the_project() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("SKIPPED: this machine has no sandbox");
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    let file = outside.path().join("out");
    let scenario = json!({
        "tools": [{ "name": "write" }],
        "answers": { "write": [{ "write": ["inside", "x"] }, { "write": [file, "x"] }] },
    });
    let mut agent = calling(&[("mcp__notes__write", json!({}))], &scenario);
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.read("inside"), "x");
    assert!(!file.exists(), "{}", call_result(&agent, 0));
    assert!(call_result(&agent, 0).contains("written\n"), "{}", call_result(&agent, 0));
}

#[test]
fn a_server_does_not_read_secrets_of_the_project() {
    if !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no mount namespaces");
        return;
    }
    let scenario = json!({
        "tools": [{ "name": "look" }],
        "answers": { "look": [{ "read": "src/main.rs" }, { "read": ".env" }] },
    });
    let mut agent = TestAgent::builder()
        .file("src/main.rs", "fn main() {}")
        .file(".env", "PASSWORD=canary-5512")
        .model(json!([calls("mcp__notes__look", &json!({})), says("done")]))
        .permission("allow_once")
        .server("notes", &scenario)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let text = call_result(&agent, 0);
    assert!(text.contains("fn main") && !text.contains("canary"), "{text}");
}

#[test]
#[cfg_attr(windows, ignore = "the processes are counted in /proc")]
fn a8_sessions_share_a_server_which_ends_with_the_last_of_them() {
    let dir = turnwright_testing::temporary_folder();
    let word = unique("shared");
    let scenario = json!({ "tools": [{ "name": word }] });
    let mut agent = TestAgent::builder()
        .model(json!([says("1"), says("2")]))
        .server("notes", &scenario)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let first = agent.session.clone();
    let count = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        lines.filter(|it| String::from_utf8_lossy(it).contains(&word)).count()
    };
    if cfg!(not(target_os = "linux")) {
        return;
    }
    eventually("the server runs", || count() == 1);
    let second = agent.new_session();
    agent.session = second.clone();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!((count(), agent.server_tools(1).len()), (1, 1));
    // A session with another folder or environment needs a process of its own.
    let params = json!({ "cwd": dir.path(), "mcpServers": agent.servers });
    let elsewhere = agent.call("session/new", &params)["result"]["sessionId"].clone();
    eventually("a second process runs", || count() == 2);
    agent.servers[0]["env"] = json!([{ "name": "A", "value": "b" }]);
    let other = agent.new_session();
    eventually("a third process runs", || count() == 3);
    for (session, remaining) in
        [(json!(first), 3), (json!(second), 2), (elsewhere, 1), (json!(other), 0)]
    {
        agent.call("session/close", &json!({ "sessionId": session }));
        eventually(&format!("{remaining} remain after {session}"), || count() == remaining);
    }
}
