//! The traps of running commands: each has wedged, flooded or fooled an agent before.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, eventually, is_alive, says};

fn agent() -> TestAgent {
    TestAgent::builder().permission("allow_once").start()
}

/// One more command; returns what the model was told.
fn run(agent: &mut TestAgent, command: &str) -> String {
    let arguments = json!({ "command": command, "timeout": 60 });
    agent.model().push(calls("exec", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

fn last_card(agent: &TestAgent) -> Value {
    cards::card(agent, cards::ids(agent).len() - 1)
}

/// Whether there is such a program here. What is not tested is told.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|it| it.join(program).exists());
    if !found {
        eprintln!("NOT TESTED: there is no {program} here");
    }
    found
}

const LEFT: &str = "[left running in the background and stopped; use background=true for servers]";

#[test]
fn nothing_that_holds_the_pipe_wedges_a_command() {
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
        assert!(result.ends_with(&format!("]\nok\n{LEFT}")), "{command}: {result}");
        eventually("it is gone", || !is_alive(word));
    }
}

#[test]
fn what_waits_for_a_person_gets_an_end_of_input() {
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
fn seven_megabytes_are_cut_in_the_middle_and_kept_whole_in_a_file() {
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
        let (_, path) = result.split_once("full output: ").expect("a file with all of it");
        let path = path.split(". Use grep").next().unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().len(), size);
        assert_eq!(last_card(&agent)["rawOutput"]["bytes"], size);
        assert_eq!(last_card(&agent)["rawOutput"]["truncated"], true);
    }
}

#[test]
fn a_flood_costs_neither_memory_nor_the_wire_nor_the_disk() {
    let mut agent = agent();
    run(&mut agent, "true");
    let (before, said) = (peak(&agent), agent.log.len());
    let result = run(&mut agent, "yes \"$(printf %0999d 7)\" | head -c 64000000; echo the end");
    assert!(result.ends_with("\nthe end\n") && result.len() < 40 * 1024, "{}", result.len());
    let more = peak(&agent) - before;
    assert!(more < 16 * 1024, "{more} KiB more memory");
    let bytes: usize = agent.log[said..].iter().map(|it| it.to_string().len() + 1).sum();
    assert!(bytes < 256 * 1024, "{bytes} bytes");
    assert_eq!(last_card(&agent)["rawOutput"]["bytes"], 64_000_008);
    if let Some((_, path)) = result.split_once("full output: ") {
        let path = path.split(['.', ';', ']']).next().unwrap();
        let size = std::fs::metadata(path).map_or(0, |it| it.len());
        assert!(size <= 51 << 20, "{size} bytes on the disk");
    }
}

/// The most memory that the agent has had, in KiB; where nobody says, none.
fn peak(agent: &TestAgent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn no_character_is_broken_wherever_the_output_is_cut_into_pieces() {
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
        // What never was a character is replaced, and nothing around it is lost.
        let result =
            run(&mut agent, "printf 'a\\377b\\303(\\355\\240\\200c\\000d\\360\\n'; echo over");
        assert!(result.contains("a\u{fffd}b\u{fffd}("), "{result:?}");
        assert!(result.ends_with("over\n"), "{result:?}");
    }
}

#[test]
fn the_last_state_of_a_progress_bar_is_what_counts() {
    let mut agent = agent();
    let bar = "for i in $(seq 1 1000); do printf '\\rDownloading %d%%' $i; done; echo; echo done";
    assert!(run(&mut agent, bar).ends_with("]\nDownloading 1000%\ndone\n"));
    let crlf = "printf 'one\\r\\ntwo\\r\\n'";
    assert!(run(&mut agent, crlf).ends_with("]\none\ntwo\n"));
    let erased = "printf 'counting 1...\\r\\033[Kcounting 2...\\r\\033[K\\033[32mok\\033[0m\\n'";
    assert!(run(&mut agent, erased).ends_with("]\nok\n"));
}

#[test]
fn the_end_by_a_signal_is_no_success() {
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
    // A shell tells of its child's death in its own way.
    let result = run(&mut agent, "sh -c 'kill -9 $$'; exit $?");
    assert!(result.starts_with("[exit 137 · "), "{result}");
}

#[test]
fn a_job_that_does_not_listen_to_a_request_is_killed() {
    let mut agent = agent();
    let server = "trap 'echo no thanks' TERM INT; exec 3<&0; \
                  (while read -r line; do echo \"got $line\"; done) <&3 & echo listening; \
                  while :; do sleep 0.05; done; # 647.25";
    let mut call = |name: &str, arguments: &Value| {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent)
    };
    let mut told = call("exec", &json!({ "command": server, "background": true }));
    let mut until = |word: &str, arguments: Value| {
        let mut next = Some(arguments);
        for _ in 0..10 {
            if told.contains(word) {
                return std::mem::take(&mut told);
            }
            let arguments = next.take().unwrap_or(json!({ "id": "p1", "wait": 5 }));
            told = call("exec_output", &arguments);
        }
        panic!("waited for {word} in vain: {told}");
    };
    until("listening", json!({ "id": "p1", "wait": 5 }));
    until("got ping", json!({ "id": "p1", "input": "ping", "wait": 5 }));
    let refused = until("no thanks", json!({ "id": "p1", "signal": "term", "wait": 5 }));
    assert!(refused.starts_with("[p1 running for "), "{refused}");
    let end = until("killed", json!({ "id": "p1", "signal": "kill", "wait": 20 }));
    assert!(end.starts_with("[killed by SIGKILL · "), "{end}");
    eventually("it is gone", || !is_alive("647.25"));
}

#[test]
fn no_process_of_any_kind_outlives_the_agent() {
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
    eventually("they run", || is_alive("648.25"));
    let (status, _) = agent.close();
    assert!(status.success());
    eventually("they are gone", || !is_alive("648.25"));
}
