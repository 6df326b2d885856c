//! `exec` (S4-6): real commands, what the model is told of them, and what they cannot see.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{Builder, TestAgent, eventually, is_alive};
use crate::cards;

fn run(builder: Builder, command: &str) -> (TestAgent, String) {
    cards::run(builder, "exec", &json!({ "command": command }))
}

fn raw(agent: &TestAgent) -> Value {
    cards::card(agent, 0)["rawOutput"].clone()
}

/// The output without the line that says how the command ended.
fn output(result: &str) -> &str {
    result.split_once('\n').unwrap_or_default().1
}

#[test]
fn s4_6_a_command_gives_its_output_and_its_exit_code() {
    let (agent, result) = run(TestAgent::builder(), "echo out; echo err >&2; echo out again");
    assert!(result.starts_with("[exit 0 · "), "{result}");
    assert_eq!(output(&result), "out\nerr\nout again\n");
    assert_eq!(raw(&agent)["exitCode"], 0);
    let card = cards::card(&agent, 0);
    assert_eq!(card["status"], "completed");
    assert!(cards::card_text(&card).contains("out\nerr\nout again\n"), "{card}");
}

#[test]
fn a_failing_command_is_a_failed_card_and_the_turn_goes_on() {
    for (command, how, code) in [
        ("echo half; exit 3", "exit 3", json!(3)),
        ("no-such-program-here", "exit 127", json!(127)),
        ("kill -9 $$", "killed by signal 9", Value::Null),
        ("if", "exit 2", json!(2)),
    ] {
        let (agent, result) = run(TestAgent::builder(), command);
        assert!(result.starts_with(&format!("[{how} · ")), "{command}: {result}");
        assert_eq!(raw(&agent)["exitCode"], code, "{command}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed", "{command}");
    }
}

#[test]
fn commands_run_even_when_the_watcher_was_killed() {
    let kill = "for it in /proc/[0-9]*/stat; do \
                read -r pid name state parent rest < $it && [ \"$parent\" = $PPID ] && \
                [ $pid != $$ ] && kill -9 $pid; done 2> /dev/null; true";
    let reply = |command: &str| json!([cards::call("exec", &json!({ "command": command }))]);
    let replies = json!([reply(kill), reply("echo alive"), crate::agent::says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    let result = cards::results(&agent, 2).last().unwrap().clone();
    assert!(result.contains("exit 0") && result.contains("alive"), "{result}");
}

#[test]
fn s4_6_a_command_that_takes_too_long_is_stopped_with_all_it_started() {
    let arguments = json!({ "command": "echo begun; sleep 604.3 & (sleep 604.3; echo x) ; wait", "timeout": 1 });
    let begun = Instant::now();
    let (agent, result) = cards::run(TestAgent::builder(), "exec", &arguments);
    assert!(result.starts_with("[timed out after 1 s"), "{result}");
    assert_eq!(output(&result), "begun\n");
    assert!(begun.elapsed() >= Duration::from_secs(1), "stopped before its time");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
    eventually("all of it is gone", || !is_alive("604.3"));
}

#[test]
fn a_command_that_ignores_the_polite_signal_is_ended_all_the_same() {
    let command = "trap '' TERM; echo begun; while :; do sleep 605.1; done";
    let arguments = json!({ "command": command, "timeout": 1 });
    let (_, result) = cards::run(TestAgent::builder(), "exec", &arguments);
    assert_eq!(output(&result), "begun\n");
    eventually("it is gone", || !is_alive("605.1"));
}

#[test]
fn what_a_command_leaves_running_is_ended_with_it() {
    let begun = Instant::now();
    let (_, result) = run(TestAgent::builder(), "sleep 606.2 & echo started");
    assert_eq!(output(&result), "started\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    eventually("it is gone", || !is_alive("606.2"));
}

#[test]
fn long_output_keeps_its_beginning_and_its_end() {
    let (agent, result) = run(TestAgent::builder(), "seq 1 200000; echo the last line >&2");
    assert!(result.len() < 40 * 1024, "{} bytes", result.len());
    assert!(output(&result).starts_with("1\n2\n3\n"));
    assert!(result.ends_with("\n200000\nthe last line\n"));
    assert!(result.contains("left out"), "the model does not know that something is missing");
    assert!(agent.log.iter().all(|it| it.to_string().len() < 200 * 1024), "a huge message");
    assert!(raw(&agent)["bytes"].as_u64().is_some_and(|it| it > 1_000_000));
}

#[test]
fn output_that_is_no_text_does_no_harm() {
    let (_, result) = run(TestAgent::builder(), "printf 'a\\377b\\000c\\033[1m'");
    assert!(output(&result).starts_with('a') && result.contains('b'), "{result:?}");
}

#[test]
fn a_command_has_no_input_and_no_terminal_and_not_our_pipes() {
    let command = "cat; read x; echo \"read: $?\"; \
                   (: < /dev/tty) 2>/dev/null && echo terminal; \
                   for fd in /proc/self/fd/*; do readlink $fd; done | grep -c socket:; ls /proc/$$/fd";
    let (_, result) = run(TestAgent::builder(), command);
    assert!(output(&result).starts_with("read: 1\n"), "{result}");
    assert!(!result.contains("terminal"), "{result}");
    assert!(output(&result).contains("\n0\n"), "a socket was inherited: {result}");
}

#[test]
fn what_looks_like_protocol_in_the_output_stays_output() {
    let line = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let (agent, result) = run(TestAgent::builder(), &format!("echo '{line}'"));
    assert_eq!(output(&result), format!("{line}\n"));
    assert!(agent.log.iter().filter(|it| it["id"] == 1).count() <= 1);
}

#[test]
fn a_command_runs_in_the_project_or_where_it_is_told() {
    let builder = TestAgent::builder().file("sub/x", "");
    let replies = |arguments: &Value| crate::agent::calls("exec", arguments);
    let mut agent = builder.permission("allow_once").start();
    let mut pwd = |workdir: Option<&str>| {
        agent.model().push(replies(&json!({ "command": "pwd -P", "workdir": workdir }))).unwrap();
        agent.model().push(crate::agent::says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        let real = std::fs::canonicalize(agent.workspace()).unwrap().display().to_string();
        result.replace(&real, "$WS")
    };
    assert_eq!(output(&pwd(None)), "$WS\n");
    assert_eq!(output(&pwd(Some(""))), "$WS\n");
    assert_eq!(output(&pwd(Some("sub"))), "$WS/sub\n");
    assert_eq!(output(&pwd(Some("/usr"))), "/usr\n");
    let missing = pwd(Some("none"));
    assert!(missing.contains("could not be started") && missing.contains("none"), "{missing}");
}

#[test]
fn a_command_sees_no_secrets() {
    let secrets = [
        ("GITHUB_TOKEN", "value-1-of-a-secret"),
        ("AWS_SECRET_ACCESS_KEY", "value-2-of-a-secret"),
        ("my_password", "value-3-of-a-secret"),
        ("ANTHROPIC_API_KEY", "value-4-of-a-secret"),
        ("DB_PASS", "value-5-of-a-secret"),
        ("MYSQL_PWD", "value-6-of-a-secret"),
        // The agent's own key under an innocent name.
        ("INNOCENT", "Bearer sk-test-0123456789"),
    ];
    let builder =
        secrets.iter().fold(TestAgent::builder(), |it, (name, value)| it.variable(name, value));
    let builder = builder.variable("HARMLESS", "kept").variable("LANG", "C.UTF-8");
    let command = "env; tr '\\0' '\\n' < /proc/self/environ; export -p; set";
    let (_, result) = run(builder, command);
    for expected in ["HARMLESS=kept", "LANG=C.UTF-8", "PATH=", "TERM=dumb", "PAGER=cat"] {
        assert!(result.contains(expected), "{expected} is gone: {result}");
    }
    for (name, value) in secrets {
        assert!(!result.contains(value), "{name} is visible: {result}");
    }
    assert!(!result.contains("OPENAI"), "{result}");
    assert!(!result.contains("sk-test"), "{result}");
    assert!(!result.contains("TURNWRIGHT_HOME"), "{result}");
}

#[test]
fn a_command_cannot_read_the_key_from_the_agent_that_started_it() {
    let command = "tr '\\0' '\\n' < /proc/$PPID/environ; echo over";
    let (_, result) = run(TestAgent::builder(), command);
    assert!(result.contains("over"), "{result}");
    assert!(!result.contains("sk-test"), "the agent's first environment is there for all to read");
}
