//! Commands that have blocked or misled agents: background processes, prompts for input, split characters and a
//! job that ignores signals.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, assert_gone, calls, says};

fn agent() -> TestAgent {
    TestAgent::builder().permission("allow_once").start()
}

/// Runs a command in a turn of its own and returns the result that the model gets.
fn run(agent: &mut TestAgent, command: &str) -> String {
    let arguments = json!({ "command": command, "timeout": 60 });
    agent.model().push(calls("exec", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

/// Whether the program is installed. Prints a note if the test has to skip it.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|it| it.join(program).exists());
    if !found {
        eprintln!("NOT TESTED: {program} is not installed");
    }
    found
}

/// The note in the result of a command whose background processes were stopped.
const STOPPED_NOTE: &str =
    "[left running in the background and stopped; use background=true without &]";

#[test]
fn background_processes_that_hold_the_pipe_do_not_block_a_command() {
    let daemon = "python3 -c '\nimport os, sys, time\nif os.fork(): sys.exit()\nos.setsid()\n\
                  if os.fork(): sys.exit()\nopen(\"up\", \"w\").close()\nname = \"641.25\"\n\
                  time.sleep(300)' 641.25; until [ -e up ]; do sleep 0.01; done; echo ok";
    let mut agent = agent();
    for (program, word, command) in [
        ("sleep", "642.25", "sleep 642.25 & echo ok"),
        ("sleep", "643.25", "(trap '' TERM INT HUP; sleep 643.25; sleep 643.25) & echo ok"),
        ("sleep", "647.75", "set -m; sleep 647.75 & echo ok"),
        ("nohup", "644.25", "nohup sleep 644.25 2> /dev/null & echo ok"),
        ("setsid", "645.25", "setsid sleep 645.25 & echo ok"),
        ("sleep", "646.25", "sleep 646.25 > /dev/null 2>&1 < /dev/null & disown; echo ok"),
        ("python3", "641.25", daemon),
    ] {
        if !has(program) {
            continue;
        }
        let result = run(&mut agent, command);
        assert!(result.starts_with("[exit 0 · "), "{command}: {result}");
        assert!(result.ends_with(&format!("]\nok\n{STOPPED_NOTE}")), "{command}: {result}");
        assert_gone(word);
    }
}

#[test]
fn programs_that_wait_for_input_get_the_end_of_input() {
    let mut agent = agent();
    for (program, command, expected) in [
        ("python3", "python3 -c 'input()'", "EOFError"),
        ("python3", "python3 -W ignore -c 'import getpass; getpass.getpass()'", "EOFError"),
        ("bash", "select x in a b; do echo \"$x\"; done; echo over", "over"),
        ("cat", "cat; echo over", "over"),
        ("bash", "bash -i -c 'read -p \"Sure? \" x; echo \"got $?\"'", "got 1"),
        ("less", "less README; echo over", "over"),
        ("less", "seq 3 | less", "1\n2\n3\n"),
        ("man", "man sh > /dev/null; echo over", "over"),
        ("npm", "npm init < /dev/null > /dev/null 2>&1; echo over", "over"),
        ("crontab", "EDITOR=true crontab -e; echo over", "over"),
        ("passwd", "passwd nobody-like-this; echo over", "over"),
        ("ssh", "ssh -o ConnectTimeout=2 -p 9 user@127.0.0.1; echo over", "over"),
        ("sudo", "sudo -K; sudo id < /dev/null; echo over", "over"),
        ("vi", "vi a.txt", "waits for keyboard input"),
        ("git", "git ls-remote https://user@127.0.0.1:9/x", "unable to access"),
        (
            "git",
            "printf 'protocol=https\\nhost=example.com\\n\\n' | git credential fill",
            "exit 128",
        ),
        (
            "git",
            "git init -q .; git -c user.name=A -c user.email=a@x.y commit --allow-empty; echo over",
            "over",
        ),
    ] {
        if has(program) {
            let result = run(&mut agent, command);
            assert!(result.contains(expected) && !result.contains("still running"), "{result}");
        }
    }
}

#[test]
fn characters_that_are_split_between_reads_stay_whole() {
    for meta in [json!({}), json!({ "_meta": { "terminal_output": true } })] {
        let mut agent = TestAgent::builder().capabilities(meta).permission("allow_once").start();
        let slowly = "printf '\\303'; sleep 0.3; printf '\\251 \\360\\237'; sleep 0.3; \
                      printf '\\230\\200\\n'";
        assert!(run(&mut agent, slowly).ends_with("]\né 😀\n"));
        for offset in ["", "a", "ab", "abc"] {
            let command = format!("printf '{offset}'; yes 😀é語 | head -n 6000 | tr -d '\\n'");
            let result = run(&mut agent, &command);
            assert!(result.contains("😀é語😀é語"), "{result}");
        }
        let broken = agent.log.iter().find(|it| it.to_string().contains('\u{fffd}'));
        assert!(broken.is_none(), "{broken:?}");
        // Invalid bytes are replaced, and nothing around them is lost.
        let result =
            run(&mut agent, "printf 'a\\377b\\303(\\355\\240\\200c\\000d\\360\\n'; echo over");
        assert!(result.contains("a\u{fffd}b\u{fffd}("), "{result:?}");
        assert!(result.ends_with("over\n"), "{result:?}");
    }
}

#[test]
fn a_job_that_ignores_sigterm_can_be_killed() {
    let mut agent = agent();
    let server = "trap 'echo no thanks' TERM INT; exec 3<&0; \
                  (while read -r line; do echo \"got $line\"; done) <&3 & echo listening; \
                  while :; do sleep 0.05; done; # 647.25";
    let mut call = |name: &str, arguments: &Value| {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent)
    };
    let mut output = call("exec", &json!({ "command": server, "background": true }));
    let mut until = |word: &str, arguments: Value| {
        let mut next = Some(arguments);
        for _ in 0..10 {
            if output.contains(word) {
                return std::mem::take(&mut output);
            }
            let arguments = next.take().unwrap_or(json!({ "id": "p1", "wait": 5 }));
            output = call("exec_output", &arguments);
        }
        panic!("{word} is not in the output: {output}");
    };
    until("listening", json!({ "id": "p1", "wait": 5 }));
    until("got ping", json!({ "id": "p1", "input": "ping", "wait": 5 }));
    let running = until("no thanks", json!({ "id": "p1", "signal": "term", "wait": 5 }));
    assert!(running.starts_with("[p1 running for "), "{running}");
    let end = until("killed", json!({ "id": "p1", "signal": "kill", "wait": 20 }));
    assert!(end.starts_with("[killed by SIGKILL · "), "{end}");
    assert_gone("647.25");
}
