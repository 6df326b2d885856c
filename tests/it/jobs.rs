//! Jobs: commands that `exec` runs in the background or that exceed its timeout, and `exec_output`, which
//! reads and controls them. All jobs end with their session.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::command_lines::{in_background, line_for, run_on, then, wait_for_file};

use crate::agent::{TestAgent, assert_gone, calls, eventually, is_alive, says};

/// Runs one call in a turn of its own and returns the result that the model gets.
fn call(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

fn agent() -> TestAgent {
    TestAgent::builder().permission("allow_once").start()
}

fn background(agent: &mut TestAgent, command: &str) -> String {
    call(agent, "exec", &json!({ "command": command, "background": true }))
}

/// Reads the output of p1 on until it has this word, since a command prints when it comes to it. `output` is
/// what was read before.
fn read_until(agent: &mut TestAgent, word: &str, mut output: String) -> String {
    eventually(word, || {
        let is_there = output.contains(word);
        if !is_there {
            output = call(agent, "exec_output", &json!({ "id": "p1", "wait": 20 }));
        }
        is_there
    });
    output
}

/// Runs until it is ended, in the background and in the foreground.
fn twice(word: &str) -> String {
    in_background(word, &then(&run_on(word), "echo over"))
}

fn last_card(agent: &TestAgent) -> Value {
    cards::card(agent, cards::ids(agent).len() - 1)
}

#[test]
fn a_command_that_takes_too_long_goes_on_as_a_job() {
    let mut agent = agent();
    let command = then(&then("echo begun", &wait_for_file("go")), &then("echo over", "exit 3"));
    // Within this time the command has begun on a slow machine, too.
    let result = call(&mut agent, "exec", &json!({ "command": command, "timeout": 5 }));
    assert_eq!(
        result,
        "[still running as p1 after 5 s]\nbegun\nStill running after 5 s as p1 (partial output \
         above), for at most 30 min; longer only with background=true. Use exec_output id=p1, or \
         signal=\"term\"."
    );
    let card = last_card(&agent);
    assert_eq!((&card["status"], &card["rawOutput"]["job"]), (&json!("completed"), &json!("p1")));
    let quiet = call(&mut agent, "exec_output", &json!({ "id": "p1", "wait": 0 }));
    assert!(quiet.starts_with("[p1 running for ") && quiet.ends_with("(no new output)"), "{quiet}");
    assert_eq!(last_card(&agent)["title"], "Output of p1");
    std::fs::write(agent.path("go"), "").unwrap();
    let end = call(&mut agent, "exec_output", &json!({ "id": "p1", "wait": 20 }));
    assert!(end.ends_with("]\nover\n"), "{end}");
    read_until(&mut agent, "[exit 3 · ", end);
    assert_eq!(last_card(&agent)["status"], "failed");
    assert_eq!(last_card(&agent)["rawOutput"]["exitCode"], 3);
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn a_signal_ends_a_job_with_all_its_processes() {
    let mut agent = agent();
    let command = "echo begun; sleep 631.25 & sleep 631.25; true";
    call(&mut agent, "exec", &json!({ "command": command, "timeout": 1 }));
    let end = call(&mut agent, "exec_output", &json!({ "id": "p1", "signal": "term", "wait": 20 }));
    assert!(end.starts_with("[killed by SIGTERM · "), "{end}");
    let card = last_card(&agent);
    assert_eq!((&card["title"], &card["status"]), (&json!("Stop p1"), &json!("completed")));
    assert_eq!(cards::questions(&agent), 1, "the agent asked before ending its own job");
    assert_gone("631.25");
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn control_c_as_input_interrupts_a_job() {
    let mut agent = agent();
    for (number, input) in ["\u{3}", "^C\n"].into_iter().enumerate() {
        background(&mut agent, "sleep 632.25");
        let id = format!("p{}", number + 1);
        let arguments = json!({ "id": id, "input": input, "wait": 20 });
        let end = call(&mut agent, "exec_output", &arguments);
        assert!(end.starts_with("[killed by SIGINT · "), "{end}");
    }
    assert_eq!(cards::questions(&agent), 2, "the agent asked before ending its own job");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn for_a_job_that_has_printed_nothing_the_model_is_told_how_to_end_its_stdin() {
    let mut agent = agent();
    background(&mut agent, "cat; echo over");
    let quiet = call(&mut agent, "exec_output", &json!({ "id": "p1", "wait": 0 }));
    assert!(quiet.contains("\"\\u0004\"") && quiet.ends_with("(no new output)"), "{quiet}");
    let arguments = json!({ "id": "p1", "input": "\u{4}", "wait": 20 });
    let end = call(&mut agent, "exec_output", &arguments);
    assert!(end.ends_with("]\nover\n"), "{end}");
    let later = call(&mut agent, "exec_output", &json!({ "id": "p1", "wait": 0 }));
    assert!(!later.contains("stdin"), "{later}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_job_gets_input_after_a_permission_request() {
    let mut agent = agent();
    let command = "echo ready; while read -r line; do echo \"got $line\"; done; echo over";
    let result = background(&mut agent, command);
    assert!(result.starts_with("[running in the background as p1]\n"), "{result}");
    let how = "Use exec_output id=p1 for its output, input and signals.";
    assert!(result.ends_with(how), "{result}");
    read_until(&mut agent, "\nready\n", result);
    let echo = call(&mut agent, "exec_output", &json!({ "id": "p1", "input": "one", "wait": 20 }));
    assert!(echo.starts_with("[p1 running for ") && echo.ends_with("]\ngot one\n"), "{echo}");
    assert_eq!(last_card(&agent)["title"], "Input to p1");
    assert_eq!(cards::questions(&agent), 2);
    let end = json!({ "id": "1", "input": "two\n\u{4}", "wait": 20 });
    let end = call(&mut agent, "exec_output", &end);
    assert!(end.contains("]\ngot two\n"), "{end}");
    let end = read_until(&mut agent, "over\n", end);
    read_until(&mut agent, "[exit 0 · ", end);
    let late = call(&mut agent, "exec_output", &json!({ "id": "p1", "input": "three" }));
    assert!(late.contains("p1 did not take the input: it has ended"), "{late}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn input_that_a_rule_is_about_or_that_destroys_something_is_judged_as_a_line() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or commands can change protected files");
        return;
    }
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", "[permissions]\ndeny = ['exec(git push)']")
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("reject_once")
        .start();
    background(&mut agent, "sh");
    for (input, questions, told) in [
        ("echo one", 0, "\none\n"),
        ("cd . && git push origin", 0, "exec(git push)"),
        ("git reset --hard", 1, "rejected"),
        ("rm -rf ~", 1, "never"),
    ] {
        let input = json!({ "id": "p1", "input": input, "wait": 20 });
        let result = call(&mut agent, "exec_output", &input);
        assert_eq!(cards::questions(&agent), questions, "{input}: {result}");
        assert!(result.contains(told), "{input}: {result}");
    }
    background(&mut agent, "psql() { cat; }; psql db");
    for (input, questions) in [("select 1;", 1), ("/*\nend of input\n*/ drop table x;", 2)] {
        call(&mut agent, "exec_output", &json!({ "id": "p2", "input": input, "wait": 20 }));
        assert_eq!(cards::questions(&agent), questions, "{input}");
    }
    let mode = json!({ "sessionId": agent.session, "modeId": "full" });
    assert!(agent.call("session/set_mode", &mode)["error"].is_null());
    let denied = call(&mut agent, "exec_output", &json!({ "id": "p1", "input": "git push" }));
    assert!(denied.contains("exec(git push)"), "{denied}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn input_to_a_command_that_destroys_is_not_asked_about_once_more() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or commands can change protected files");
        return;
    }
    let builder = TestAgent::builder().variable("TURNWRIGHT_MODE", "auto");
    let mut agent = builder.permission("allow_once").start();
    background(&mut agent, "cat; git reset --hard");
    assert_eq!(cards::questions(&agent), 1);
    for input in ["y", "npm publish", "select 1;"] {
        let input = json!({ "id": "p1", "input": input, "wait": 20 });
        let result = call(&mut agent, "exec_output", &input);
        assert!(result.starts_with("[p1 running for "), "{result}");
    }
    assert_eq!(cards::questions(&agent), 1);
}

#[test]
fn input_that_is_refused_is_not_sent() {
    let mut agent = TestAgent::builder().start();
    let line = if cfg!(windows) { run_on("639.25") } else { "cat".to_owned() };
    agent.model().push(calls("exec", &json!({ "command": line, "background": true }))).unwrap();
    agent.model().push(calls("exec_output", &json!({ "id": "p1", "input": "rm -rf x" }))).unwrap();
    agent.model().push(calls("exec_output", &json!({ "id": "p1", "wait": 0 }))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let id = agent.prompt("go");
    if cfg!(windows) {
        // Each command is asked about there.
        let start = agent.wait_for_request("session/request_permission");
        agent.choose(&start, "allow_once");
    }
    let question = agent.wait_for_request("session/request_permission");
    let shown = question["params"]["toolCall"]["content"].to_string();
    assert!(
        shown.contains("rm -rf x") && shown.contains(if cfg!(windows) { "639.25" } else { "cat" }),
        "{shown}"
    );
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let results = cards::results(&agent, 3);
    assert!(results[1].starts_with("The user rejected this call"), "{results:?}");
    assert!(results[2].ends_with("(no new output)"), "{results:?}");
}

#[test]
fn a_background_command_that_fails_at_once_reports_its_exit_code() {
    let mut agent = agent();
    let result = background(
        &mut agent,
        line_for("echo address in use >&2; exit 1", "echo address in use>&2& exit 1"),
    );
    let result = read_until(&mut agent, "address in use", result);
    read_until(&mut agent, "[exit 1 · ", result);
    assert_eq!(last_card(&agent)["status"], "failed");
}

#[test]
fn the_error_for_an_unknown_job_lists_the_known_jobs() {
    let mut agent = agent();
    let none = call(&mut agent, "exec_output", &json!({ "id": "p7" }));
    assert_eq!(none, "There is no job \"p7\". There are no jobs. `exec` runs commands.");
    background(&mut agent, &run_on("632.25"));
    let other = call(&mut agent, "exec_output", &json!({ "id": "p7", "input": "x" }));
    let known = format!("There is no job \"p7\". Jobs: p1 `{}` (running for ", run_on("632.25"));
    if cfg!(windows) {
        // This line is too long to be shown whole.
        assert!(other.starts_with(&known[..60]) && other.contains("` (running for "), "{other}");
    } else {
        assert!(other.starts_with(&known), "{other}");
    }
    assert_eq!(cards::questions(&agent), 1, "the agent asked about an unknown job");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are those of sh")]
fn a_command_that_looks_for_the_process_of_a_job_is_told_how_to_stop_it() {
    let mut agent = agent();
    let killed = json!({ "command": "pkill -x none-of-this-name; kill -TERM $$" });
    let shell = call(&mut agent, "exec", &killed);
    assert!(shell.ends_with("finds the line's own shell. There are no jobs.]"), "{shell}");
    background(&mut agent, &run_on("632.75"));
    for (command, is_told) in [
        ("lsof -ti:3000 | cat", true),
        ("echo 'OSError: Address already in use'; exit 1", true),
        ("echo 'Address already in use'", false),
        ("echo done; exit 1", false),
    ] {
        let result = call(&mut agent, "exec", &json!({ "command": command }));
        let is_there = result.contains("[exec_output with signal stops a job; ");
        assert_eq!(is_there && result.contains("Jobs: p2 `"), is_told, "{command}: {result}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn jobs_that_have_ended_leave_no_zombies() {
    let mut agent = agent();
    let job = |number: usize| {
        let command = format!("while [ ! -e go ]; do sleep 0.1; done; echo {number}");
        cards::call("exec", &json!({ "command": command, "background": true }))
    };
    agent.model().push((1..=16).map(job).collect()).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let last = cards::turn(&mut agent);
    assert!(last.contains("p16"), "{last}");
    let children = format!("/proc/{0}/task/{0}/children", agent.pid());
    assert_ne!(std::fs::read_to_string(&children).unwrap(), "");
    std::fs::write(agent.path("go"), "").unwrap();
    // Without PID namespaces a watchdog has been started with the first command.
    let kept = usize::from(!turnwright_sandbox::namespace_support().processes);
    eventually("the end of all children", || {
        std::fs::read_to_string(&children).unwrap().split_whitespace().count() <= kept
    });
}

#[test]
fn a_cancel_ends_the_command_of_the_turn_but_no_job() {
    let mut agent = agent();
    background(&mut agent, &then("echo ready", &run_on("634.25")));
    agent.model().push(calls("exec", &json!({ "command": run_on("635.25") }))).unwrap();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    eventually("the command runs", || is_alive("635.25"));
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    assert_gone("635.25");
    assert!(is_alive("634.25"), "the cancel ended the job");
    let (status, _) = agent.close();
    assert!(status.success());
    // On a slow machine the watcher process ends the job after the agent has exited.
    assert_gone("634.25");
}

#[test]
fn the_end_of_stdin_ends_the_jobs_of_all_sessions() {
    let mut agent = agent();
    let both = twice("636.25");
    let stubborn = "(trap '' TERM; sleep 636.25; sleep 636.25) & sleep 636.25";
    background(&mut agent, if cfg!(windows) { &both } else { stubborn });
    agent.session = agent.new_session();
    background(&mut agent, &run_on("637.25"));
    let (status, _) = agent.close();
    assert!(status.success());
    assert_gone("636.25");
    assert_gone("637.25");
}

#[test]
fn no_job_survives_a_killed_agent() {
    let mut agent = agent();
    background(&mut agent, &twice("638.25"));
    eventually("the job runs", || is_alive("638.25"));
    agent.kill();
    assert_gone("638.25");
}

#[test]
fn plan_mode_sends_no_input_to_a_job() {
    let mut agent = agent();
    let line = if cfg!(windows) { run_on("640.25") } else { "cat".to_owned() };
    background(&mut agent, &line);
    let mode = json!({ "sessionId": agent.session, "modeId": "plan" });
    assert!(agent.call("session/set_mode", &mode)["error"].is_null());
    let denied = call(&mut agent, "exec_output", &json!({ "id": "p1", "input": "x" }));
    assert!(denied.starts_with("Plan mode: "), "{denied}");
    let output = call(&mut agent, "exec_output", &json!({ "id": "p1", "wait": 0 }));
    assert!(output.ends_with("(no new output)"), "{output}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn the_model_is_told_once_that_a_job_has_ended() {
    let mut agent = agent();
    background(&mut agent, "read -r line; exit 1");
    for number in 2..=3 {
        let command = format!("until [ -e go{number} ]; do sleep 0.02; done; exit {number}");
        background(&mut agent, &command);
    }
    // The model sees the end of p1 through `exec_output`, which makes it end. p2 ends between turns, p3
    // during a turn.
    let seen = call(&mut agent, "exec_output", &json!({ "id": "p1", "input": "\n", "wait": 20 }));
    assert!(seen.starts_with("[exit 1 · "), "{seen}");
    std::fs::write(agent.path("go2"), "").unwrap();
    let mentions = |agent: &TestAgent, what: &str| {
        let last = agent.model().requests().len() - 1;
        agent.model_request(last)["messages"].to_string().matches(what).count()
    };
    eventually("the model is told about p2", || {
        agent.model().push(says("Well.")).unwrap();
        assert_eq!(agent.turn("and?"), "end_turn");
        mentions(&agent, "p2 ended: exit 2") > 0
    });
    let command = "touch go3; sleep 0.05";
    eventually("the model is told about p3", || {
        call(&mut agent, "exec", &json!({ "command": command })).contains("p3 ended: exit 3")
    });
    call(&mut agent, "exec", &json!({ "command": "true" }));
    for (what, count) in [("p1 ended", 0), ("p2 ended", 1), ("p3 ended", 1)] {
        assert_eq!(mentions(&agent, what), count, "{what}");
    }
}

#[test]
fn polling_a_silent_job_is_no_loop_however_often() {
    let start = json!({ "command": run_on("631.75"), "background": true });
    let poll = json!({ "id": "p1", "wait": 0 });
    // A server that is waited for: its log is read, and then it is asked.
    let look = calls("list_dir", &json!({}));
    let mut replies = vec![calls("exec", &start)];
    replies.extend((0..8).flat_map(|_| [calls("exec_output", &poll), look.clone()]));
    replies.push(says("It runs."));
    let mut agent = TestAgent::builder().model(json!(replies)).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), "It runs.");
    let results = cards::results(&agent, 17).join("\n");
    assert!(!results.contains("times"), "{results}");
}

#[test]
#[cfg_attr(windows, ignore = "cmd has no sleep")]
fn a_command_that_sleeps_before_it_looks_is_no_loop() {
    let look = calls("exec", &json!({ "command": "sleep 0.1; echo pending" }));
    let mut replies = vec![look; 8];
    replies.push(says("Still pending."));
    let mut agent = TestAgent::builder().model(json!(replies)).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), "Still pending.");
}

#[test]
fn a_failing_test_between_changes_by_commands_is_no_loop() {
    let mut replies = Vec::new();
    for number in 0..8 {
        replies.push(calls("exec", &json!({ "command": format!("echo n{number}>a.txt") })));
        replies.push(calls("exec", &json!({ "command": then("echo one failed", "exit 1") })));
    }
    replies.push(says("I give up."));
    let mut agent = TestAgent::builder().model(json!(replies)).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), "I give up.");
}

/// The lines of a request that say that something ended with the agent.
fn told_ends(agent: &TestAgent) -> Vec<String> {
    let request = agent.model().requests().pop().unwrap().body["messages"].to_string();
    let lines = request.split(r"\n").filter(|it| it.contains("ended with the session"));
    lines.map(str::to_owned).collect()
}

#[test]
fn after_a_restart_the_model_is_told_once_which_jobs_have_ended() {
    let mut agent = agent();
    background(&mut agent, &run_on("632.25"));
    let over = background(&mut agent, "echo over");
    if !over.contains("exit 0") {
        let wait = json!({ "id": "p2", "wait": 20 });
        eventually("its end", || call(&mut agent, "exec_output", &wait).contains("exit 0"));
    }
    background(&mut agent, &run_on("632.5"));
    agent.model().push(says("They run.")).unwrap();
    assert_eq!(agent.turn("and?"), "end_turn");
    assert!(told_ends(&agent).is_empty());
    let session = agent.session.clone();
    for killed in [true, false] {
        if killed {
            agent.kill();
        }
        agent.restart();
        agent.load(&session);
        for turn in ["one", "two"] {
            agent.model().push(says("I see.")).unwrap();
            assert_eq!(agent.turn(turn), "end_turn");
            let told = told_ends(&agent);
            assert_eq!(told.len(), 1, "{killed} {turn}: {told:?}");
            assert!(told[0].starts_with("[p1, p3 ended with the session"), "{told:?}");
        }
    }
}
