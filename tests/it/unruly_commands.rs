//! Commands that have blocked, flooded or misled agents: background processes, prompts for input, huge
//! outputs, split characters, progress bars and signals.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, assert_gone, calls, eventually, is_alive, says};

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

fn last_card(agent: &TestAgent) -> Value {
    cards::card(agent, cards::ids(agent).len() - 1)
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
    "[left running in the background and stopped; use background=true for servers]";

#[test]
fn background_processes_that_hold_the_pipe_do_not_block_a_command() {
    let daemon = "python3 -c '\nimport os, sys, time\nif os.fork(): sys.exit()\nos.setsid()\n\
                  if os.fork(): sys.exit()\nopen(\"up\", \"w\").close()\nname = \"641.25\"\n\
                  time.sleep(300)' 641.25; until [ -e up ]; do sleep 0.01; done; echo ok";
    let mut agent = agent();
    for (program, word, command) in [
        ("sleep", "642.25", "sleep 642.25 & echo ok"),
        ("sleep", "643.25", "(trap '' TERM INT HUP; sleep 643.25; sleep 643.25) & echo ok"),
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
        ("ssh", "ssh -o ConnectTimeout=2 -p 9 user@127.0.0.1; echo over", "over"),
        ("sudo", "sudo -K; sudo id < /dev/null; echo over", "over"),
        ("vi", "vi a.txt", "waits for keyboard input"),
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
fn seven_megabytes_are_shortened_in_the_middle_and_kept_in_a_file() {
    let mut agent = agent();
    for (command, size) in [
        (
            "i=0; while [ $i -lt 70 ]; do head -c 99999 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done",
            7_000_000,
        ),
        ("echo begin; head -c 7000000 /dev/zero | tr '\\0' x; echo; echo end", 7_000_011),
    ] {
        let result = run(&mut agent, command);
        assert!(result.starts_with("[exit 0 · ") && result.len() < 40 * 1024, "{}", result.len());
        let (_, path) = result
            .split_once("full output: ")
            .expect("the result names no file with the full output");
        let path = path.split(". Use grep").next().unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().len(), size);
        assert_eq!(last_card(&agent)["rawOutput"]["bytes"], size);
        assert_eq!(last_card(&agent)["rawOutput"]["truncated"], true);
    }
}

#[test]
fn a_huge_output_needs_little_memory_few_messages_and_limited_disk_space() {
    let mut agent = agent();
    run(&mut agent, "true");
    let (before, messages_before) = (peak(&agent), agent.log.len());
    let result = run(&mut agent, "yes \"$(printf %0999d 7)\" | head -c 64000000; echo the end");
    assert!(result.ends_with("\nthe end\n") && result.len() < 40 * 1024, "{}", result.len());
    let growth = peak(&agent) - before;
    assert!(growth < 16 * 1024, "{growth} KiB more memory");
    let bytes: usize = agent.log[messages_before..].iter().map(|it| it.to_string().len() + 1).sum();
    assert!(bytes < 256 * 1024, "{bytes} bytes");
    assert_eq!(last_card(&agent)["rawOutput"]["bytes"], 64_000_008);
    if let Some((_, path)) = result.split_once("full output: ") {
        let path = path.split(['.', ';', ']']).next().unwrap();
        let size = std::fs::metadata(path).map_or(0, |it| it.len());
        assert!(size <= 51 << 20, "{size} bytes on the disk");
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
fn a_progress_bar_is_reduced_to_its_last_state() {
    let mut agent = agent();
    let bar = "for i in $(seq 1 1000); do printf '\\rDownloading %d%%' $i; done; echo; echo done";
    assert!(run(&mut agent, bar).ends_with("]\nDownloading 1000%\ndone\n"));
    let crlf = "printf 'one\\r\\ntwo\\r\\n'";
    assert!(run(&mut agent, crlf).ends_with("]\none\ntwo\n"));
    let erased = "printf 'counting 1...\\r\\033[Kcounting 2...\\r\\033[K\\033[32mok\\033[0m\\n'";
    assert!(run(&mut agent, erased).ends_with("]\nok\n"));
}

#[test]
fn a_command_that_a_signal_ends_has_failed() {
    let mut agent = agent();
    for (signal, number) in [("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("TERM", 15), ("PIPE", 13)] {
        let result = run(&mut agent, &format!("echo before; kill -{signal} $$"));
        assert!(result.starts_with(&format!("[killed by SIG{signal} · ")), "{number}: {result}");
        let card = last_card(&agent);
        assert_eq!(
            (&card["status"], &card["rawOutput"]["exitCode"]),
            (&json!("failed"), &Value::Null)
        );
    }
    // A shell reports a child that a signal has ended by its exit code.
    let result = run(&mut agent, "sh -c 'kill -9 $$'; exit $?");
    assert!(result.starts_with("[exit 137 · "), "{result}");
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

#[test]
fn no_process_of_a_job_survives_the_agent() {
    let mut agent = agent();
    for command in [
        "trap '' TERM INT HUP; sleep 648.25; sleep 648.25; true",
        "setsid sh -c 'trap \"\" TERM; sleep 648.25; sleep 648.25' & sleep 648.25",
        "(sleep 648.25 &) ; exec sleep 648.25",
    ] {
        let arguments = json!({ "command": command, "background": true });
        agent.model().push(calls("exec", &arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent);
    }
    eventually("the jobs run", || is_alive("648.25"));
    let (status, _) = agent.close();
    assert!(status.success());
    assert_gone("648.25");
}
