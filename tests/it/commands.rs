//! `exec` (S4-6): how commands run and end, which part of their output the model gets, and which
//! variables and file descriptors they inherit.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::command_lines::{in_background, line_for};

use crate::agent::{TestAgent, TestAgentBuilder, assert_gone, calls, says};

fn run(builder: TestAgentBuilder, command: &str) -> (TestAgent, String) {
    cards::run(builder, "exec", &json!({ "command": command }))
}

fn raw(agent: &TestAgent) -> Value {
    cards::card(agent, 0)["rawOutput"].clone()
}

/// The result without its first line, which says how the command ended.
fn output(result: &str) -> String {
    result.split_once('\n').unwrap_or_default().1.replace("\r\n", "\n")
}

#[test]
fn s4_6_a_command_gives_its_output_and_its_exit_code() {
    let (agent, result) = run(
        TestAgent::builder(),
        line_for("echo out; echo err >&2; echo out again", "echo out& echo err>&2& echo out again"),
    );
    assert!(result.starts_with("[exit 0 · "), "{result}");
    assert_eq!(output(&result), "out\nerr\nout again\n");
    assert_eq!(raw(&agent)["exitCode"], 0);
    let card = cards::card(&agent, 0);
    assert_eq!(card["status"], "completed");
    let text = cards::card_text(&card).replace("\r\n", "\n");
    assert!(text.contains("out\nerr\nout again\n"), "{card}");
}

#[test]
fn a_card_says_that_a_command_has_no_output_and_how_it_failed() {
    let silent = line_for("true", "rem");
    for (command, shown) in [(silent, "No output"), ("exit 3", "No output\nFailed: exit 3")] {
        let (agent, _) = run(TestAgent::builder(), command);
        assert_eq!(cards::card_text(&cards::card(&agent, 0)), shown, "{command}");
        assert_eq!(raw(&agent)["message"], "No output", "{command}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals, and cmd has other exit codes")]
fn a_failing_command_is_a_failed_card_and_the_turn_goes_on() {
    for (command, how, code) in [
        ("echo half; exit 3", "exit 3", json!(3)),
        ("no-such-program-here", "exit 127", json!(127)),
        ("kill -9 $$", "killed by SIGKILL", Value::Null),
        ("kill -SEGV $$", "killed by SIGSEGV", Value::Null),
        // A shell reports a child that a signal has ended by its exit code.
        ("sh -c 'kill -9 $$'; exit $?", "exit 137", json!(137)),
        ("if", "exit 2", json!(2)),
    ] {
        let (agent, result) = run(TestAgent::builder(), command);
        assert!(result.starts_with(&format!("[{how} · ")), "{command}: {result}");
        assert_eq!(raw(&agent)["exitCode"], code, "{command}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed", "{command}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "there is no watcher process")]
fn commands_run_after_the_watcher_process_was_killed() {
    let kill = "for it in /proc/[0-9]*/stat; do \
                read -r pid name state parent rest < $it && [ \"$parent\" = $PPID ] && \
                [ $pid != $$ ] && kill -9 $pid; done 2> /dev/null; true";
    let reply = |command: &str| json!([cards::call("exec", &json!({ "command": command }))]);
    let replies = json!([reply(kill), reply("echo alive"), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    let result = cards::results(&agent, 2).last().unwrap().clone();
    assert!(result.contains("exit 0") && result.contains("alive"), "{result}");
}

/// The note in the result of a command whose background processes were stopped.
const STOPPED_NOTE: &str =
    "[left running in the background and stopped; use background=true without &]";

#[test]
fn background_processes_of_a_command_are_stopped_when_it_ends() {
    let (_, result) = run(TestAgent::builder(), &in_background("606.2", "echo started"));
    assert_eq!(output(&result), format!("started\n{STOPPED_NOTE}"));
    assert_gone("606.2");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn the_file_with_the_full_output_can_be_read_without_a_permission_request() {
    let script = "for i in $(seq 1 300000); do echo \"line number $i\"; done";
    let replies = json!([[cards::call("exec", &json!({ "command": script }))], says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    let result = cards::turn(&mut agent);
    let (_, path) = result.split_once("full output: ").expect(&result);
    let (path, _) = path.split_once(". Use grep or read_file on it.]").expect(&result);
    assert!(result.contains(" of 300 000 lines omitted"), "{result}");
    let whole = std::fs::read_to_string(path).unwrap();
    assert_eq!(whole.lines().count(), 300_000);
    assert!(whole.ends_with("line number 300000\n"));
    assert_eq!(raw(&agent)["bytes"], whole.len());

    let arguments = json!({ "path": path, "start_line": 150_000, "end_line": 150_000 });
    agent.model().push(calls("read_file", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let part = cards::turn(&mut agent);
    assert!(part.contains("line number 150000"), "{part}");
    assert_eq!(cards::questions(&agent), 0, "the agent asked before reading the output file");

    let arguments = json!({ "path": path, "content": "forged" });
    agent.model().push(calls("write_file", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 1, "the agent did not ask before writing the output file");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_large_output_needs_little_memory_and_few_bytes_on_the_wire() {
    let call = |command: &str| calls("exec", &json!({ "command": command }));
    let replies = json!([call("true"), says("Done."), call("seq 1 1000000"), says("Done.")]);
    for display in [json!({}), json!({ "_meta": { "terminal_output": true } })] {
        let builder = TestAgent::builder().capabilities(display).permission("allow_once");
        let mut agent = builder.model(replies.clone()).start();
        cards::turn(&mut agent);
        let before = peak(&agent);
        let result = cards::turn(&mut agent);
        assert!(result.starts_with("[exit 0 · ") && result.contains("\n1000000\n["), "{result}");
        let growth = peak(&agent) - before;
        assert!(growth <= 8 * 1024, "{growth} KiB more memory");
        let bytes: usize = agent.log.iter().map(|it| it.to_string().len() + 1).sum();
        assert!(bytes < 256 * 1024, "{bytes} bytes");
        assert_eq!(cards::card(&agent, 1)["rawOutput"]["truncated"], true);
    }
}

/// The peak memory of the agent in KiB, or 0 if the system does not report it.
fn peak(agent: &TestAgent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn progress_lines_keep_their_last_state_and_repeated_lines_their_count() {
    let command = "for i in 1 2 3; do printf \"$i%%\\r\"; done; echo done; yes | head -n 9000; \
                   printf '\\033[1;32mgreen\\033[0m\\n'";
    let (_, result) = run(TestAgent::builder(), command);
    assert_eq!(output(&result), "done\ny [× 9000]\ngreen\n");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_command_in_a_fence_or_with_carriage_returns_runs_as_it_is_meant() {
    for command in ["```bash\necho hi\n```", "true\r\necho hi\r\n"] {
        let (_, result) = run(TestAgent::builder(), command);
        assert_eq!(output(&result), "hi\n", "{command:?}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn of_output_that_is_no_text_only_the_beginning_is_shown() {
    let (_, result) = run(TestAgent::builder(), "head -c 20000 /dev/urandom");
    assert!(result.len() < 2_000 && result.contains("it is no text"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_command_has_no_input_no_terminal_and_no_sockets_of_the_agent() {
    let command = "cat; read x; echo \"read: $?\"; \
                   (: < /dev/tty) 2>/dev/null && echo terminal; \
                   for fd in /proc/self/fd/*; do readlink $fd; done | grep -c socket:; ls /proc/$$/fd";
    let (_, result) = run(TestAgent::builder(), command);
    assert!(output(&result).starts_with("read: 1\n"), "{result}");
    assert!(!result.contains("terminal"), "{result}");
    assert!(output(&result).contains("\n0\n"), "a socket was inherited: {result}");
}

#[test]
fn a_json_rpc_message_in_the_output_stays_output() {
    let line = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let (agent, result) = run(
        TestAgent::builder(),
        &if cfg!(windows) { format!("echo {line}") } else { format!("echo '{line}'") },
    );
    assert_eq!(output(&result), format!("{line}\n"));
    assert!(agent.log.iter().filter(|it| it["id"] == 1).count() <= 1);
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_command_runs_in_the_project_or_in_workdir() {
    let builder = TestAgent::builder().file("sub/x", "");
    let replies = |arguments: &Value| calls("exec", arguments);
    let mut agent = builder.permission("allow_once").start();
    let mut pwd = |workdir: Option<&str>| {
        agent.model().push(replies(&json!({ "command": "pwd -P", "workdir": workdir }))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        let real = std::fs::canonicalize(agent.workspace()).unwrap().display().to_string();
        result.replace(&real, "$WS")
    };
    assert_eq!(output(&pwd(None)), "$WS\n");
    assert_eq!(output(&pwd(Some(""))), "$WS\n");
    assert_eq!(output(&pwd(Some("sub"))), "$WS/sub\n");
    assert_eq!(output(&pwd(Some("/usr"))), "/usr\n");
    let missing = pwd(Some("none"));
    assert_eq!(missing, "`workdir` none does not exist. Nothing was run.");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are those of sh")]
fn a_line_that_changes_only_its_own_shell_is_said_to_be_forgotten() {
    for (command, is_told) in [
        ("cd sub", true),
        ("ls; export A=1", true),
        (". ./sub/settings", true),
        ("cd sub && ls", false),
        ("cd none", false),
    ] {
        let builder = TestAgent::builder().file("sub/settings", "A=1\n");
        let (_, result) = run(builder, command);
        assert_eq!(result.contains("has a shell of its own"), is_told, "{command}: {result}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_text_whose_quotes_break_a_line_is_to_be_passed_in_another_way() {
    // The bash of macOS fails in the same way if the text has an apostrophe.
    let (_, result) = run(TestAgent::builder(), "echo \"$(cat <<'EOF'\nit's done\nEOF\n)");
    assert!(result.ends_with("use git commit -F - <<'EOF', or a file.]"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are those of sh")]
fn the_model_is_told_what_only_the_user_can_change() {
    for (output, advice) in [
        ("OSError: [Errno 24] Too many open files: 'a'", "--ulimit nofile of docker.]"),
        ("fatal: detected dubious ownership in repository at '/w'", "outside of the sandbox.]"),
    ] {
        for (status, is_told) in [(1, true), (0, false)] {
            let (_, result) =
                run(TestAgent::builder(), &format!("echo \"{output}\"; exit {status}"));
            assert_eq!(result.ends_with(advice), is_told, "{result}");
        }
    }
}

/// As on macOS.
#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn where_there_is_no_timeout_the_model_is_pointed_to_that_of_the_tool() {
    let line = "echo 'bash: line 1: timeout: command not found'; : timeout 9 make; exit 1";
    let (_, result) = run(TestAgent::builder(), line);
    assert!(result.ends_with("[Give this tool a timeout instead, in seconds.]"), "{result}");
}

#[test]
fn a_command_does_not_inherit_secrets() {
    let secrets = [
        ("GITHUB_TOKEN", "value-1-of-a-secret"),
        ("AWS_SECRET_ACCESS_KEY", "value-2-of-a-secret"),
        ("my_password", "value-3-of-a-secret"),
        ("ANTHROPIC_API_KEY", "value-4-of-a-secret"),
        ("DB_PASS", "value-5-of-a-secret"),
        ("MYSQL_PWD", "value-6-of-a-secret"),
        // The agent's own key is removed whatever the name of the variable is.
        ("INNOCENT", "Bearer sk-test-0123456789"),
    ];
    let builder =
        secrets.iter().fold(TestAgent::builder(), |it, (name, value)| it.variable(name, value));
    let builder = builder.variable("HARMLESS", "kept").variable("LANG", "C.UTF-8");
    let command =
        line_for("env; tr '\\0' '\\n' < /proc/self/environ; export -p; set", "set & echo over");
    let (_, result) = run(builder, command);
    for expected in ["HARMLESS=kept", "LANG=C.UTF-8", "PATH=", "TERM=dumb", "PAGER=cat"] {
        assert!(result.contains(expected), "{expected} is missing: {result}");
    }
    for (name, value) in secrets {
        assert!(!result.contains(value), "{name} is visible: {result}");
    }
    assert!(!result.contains("OPENAI"), "{result}");
    assert!(!result.contains("sk-test"), "{result}");
    assert!(!result.contains("TURNWRIGHT_HOME"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "there is no /proc")]
fn a_command_cannot_read_the_key_from_the_agent_that_started_it() {
    let command = "tr '\\0' '\\n' < /proc/$PPID/environ; echo over";
    let (_, result) = run(TestAgent::builder(), command);
    assert!(result.contains("over"), "{result}");
    assert!(!result.contains("sk-test"), "the agent's initial environment can be read from /proc");
}
