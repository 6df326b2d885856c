//! Permission requests for commands (R-PERM-2, R-PERM-5): what they show, which later commands an answer
//! covers, and what the audit log keeps. `tests/stories/asking.rs` has the tests that run no command.

use std::path::Path;

use serde_json::{Value, json};
use turnwright_testing::command_lines::{line_for, touch};
use turnwright_testing::questions::{
    ask_and_answer, ask_and_keep, option_names, project_rules, run_without_question,
};
use turnwright_testing::{cards, process_waits};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, runs, says, subcommand};

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x\n", "mode": "append" }))
}

fn audit(agent: &TestAgent) -> Vec<Value> {
    let text = std::fs::read_to_string(agent.home().join("state/permissions.jsonl"));
    let text = text.unwrap_or_default();
    text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
}

#[test]
fn a_command_that_cannot_be_analysed_is_allowed_once_or_as_it_is() {
    let mut agent = TestAgent::builder().start();
    // Where commands can change protected files, no answer for all commands is offered.
    let is_complete =
        turnwright_sandbox::can_confine() && turnwright_sandbox::namespace_support().mounts;
    for _ in 0..2 {
        let question = ask_and_answer(
            &mut agent,
            runs(line_for("x=1; touch \"$x\"", "type nul > 1")),
            "allow_once",
        );
        let offered = option_names(&question);
        assert_eq!(offered.len(), if is_complete { 5 } else { 3 }, "{offered:?}");
        assert_eq!(offered.last().unwrap(), "Reject this exact command in this session");
        let text = cards::card_text(&question["params"]["toolCall"]);
        assert!(text.contains("cannot be fully analysed"), "{text}");
        assert!(text.contains("sandbox"), "{text}");
    }
    // An answer that was not offered does not run the command.
    let destroys = "git clean -fdx; touch 2";
    ask_and_answer(&mut agent, runs(line_for(destroys, "type nul > 2")), "allow_always");
    assert!(agent.path("1").exists() && !agent.path("2").exists());
}

#[test]
fn the_audit_log_has_all_decisions_and_no_key() {
    let key = "sk-test-0123456789";
    let mut agent = TestAgent::builder().start();
    ask_and_answer(&mut agent, runs(&touch("one")), "allow_once");
    ask_and_answer(&mut agent, runs(&format!("echo {key} > /dev/null; touch $X")), "reject_always");
    agent.model().push(runs(&format!("echo {key} > /dev/null; touch $X"))).unwrap();
    agent.model().push(says("All right.")).unwrap();
    assert_eq!(agent.turn("again"), "end_turn");
    eventually("the audit log is written", || audit(&agent).len() >= 4);
    let lines = audit(&agent);
    let events: Vec<_> = lines.iter().map(|it| (&it["event"], &it["answer"])).collect();
    let (asked, yes) = (json!("asked"), json!("allow once"));
    let (never, none) = (json!("reject in this session"), Value::Null);
    assert_eq!(
        events,
        [(&asked, &yes), (&json!("ran"), &none), (&asked, &never), (&json!("denied"), &none)]
    );
    if cfg!(unix) {
        assert_eq!(lines[0]["effects"], json!(["run touch one"]));
    }
    assert_eq!(lines[0]["mode"], "ask");
    assert!(lines[0]["project"].is_string() && lines[0]["session"].is_string());
    let text = std::fs::read_to_string(agent.home().join("state/permissions.jsonl")).unwrap();
    assert!(!text.contains(key) && text.contains("[hidden:"), "{text}");
    assert!(!agent.path("X").exists());
}

#[test]
fn the_user_is_told_once_that_the_audit_is_incomplete() {
    let mut agent = TestAgent::builder().start();
    std::fs::create_dir_all(agent.home().join("state/permissions.jsonl")).unwrap();
    for name in ["one", "two", "three"] {
        ask_and_answer(&mut agent, runs(&touch(name)), "allow_once");
    }
    let count = agent.thoughts().matches("log of permission decisions is incomplete").count();
    assert_eq!(count, 1, "{}", agent.thoughts());
}

#[test]
fn input_to_a_job_with_more_access_is_asked_about_after_an_answer_for_all_commands() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or commands can change protected files");
        return;
    }
    let mut agent = TestAgent::builder().start();
    let start = |escalate: Option<&str>| {
        let call = json!({ "command": "tee log", "background": true, "escalate": escalate });
        calls("exec", &call)
    };
    let input =
        |job: &str| calls("exec_output", &json!({ "id": job, "input": "words", "wait": 0 }));
    ask_and_answer(&mut agent, start(None), "allow_always_all_commands");
    run_without_question(&mut agent, input("p1"));
    ask_and_answer(&mut agent, start(Some("network")), "allow_once");
    let question = ask_and_answer(&mut agent, input("p2"), "reject_once");
    assert_eq!(option_names(&question)[1], "Allow input to p2 in this session");
}

#[cfg(unix)]
#[test]
fn a_command_does_not_run_if_its_folder_is_replaced_during_the_permission_request() {
    let elsewhere = turnwright_testing::temporary_folder();
    let mut agent = TestAgent::builder().file("sub/x", "").start();
    let call = json!({ "command": "touch mark", "workdir": "sub" });
    agent.model().push(calls("exec", &call)).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    std::fs::rename(agent.path("sub"), agent.path("old")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), agent.path("sub")).unwrap();
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert!(
        !elsewhere.path().join("mark").exists(),
        "the command ran in a folder that the permission request did not show"
    );
}

#[test]
fn two_agents_can_store_rules_for_the_same_project() {
    let shared = turnwright_testing::temporary_folder();
    let mut agents: Vec<_> = (0..2)
        .map(|_| {
            let home = shared.path().display().to_string();
            let mut agent = builder_in(&home).initialize();
            let params = json!({ "cwd": shared.path(), "mcpServers": [] });
            let answer = agent.call("session/new", &params);
            agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
            agent
        })
        .collect();
    let mut requests = Vec::new();
    for (number, agent) in agents.iter_mut().enumerate() {
        agent.model().push(write(&format!("f{number}"))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let id = agent.prompt("go");
        requests.push((id, agent.wait_for_request("session/request_permission")));
    }
    for (agent, (_, question)) in agents.iter_mut().zip(&requests) {
        agent.choose(question, "allow_always");
    }
    for (agent, (id, _)) in agents.iter_mut().zip(&requests) {
        assert_eq!(agent.stop_reason(id), "end_turn");
    }
    let keeping: Vec<_> = agents.iter_mut().map(|it| it.prompt("/permissions keep")).collect();
    for (agent, id) in agents.iter_mut().zip(&keeping) {
        assert_eq!(agent.stop_reason(id), "end_turn");
    }
    let listed = policy(shared.path(), shared.path(), &["list", "--json"]);
    assert_eq!(listed["rules"].as_array().unwrap().len(), 2, "{listed}");
}

/// An agent whose configuration and state are in `home`.
fn builder_in(home: &str) -> TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_HOME", home)
}

fn policy(home: &Path, project: &Path, arguments: &[&str]) -> Value {
    let mut command = subcommand(home, &["policy"]);
    let output = process_waits::output(command.args(arguments).current_dir(project)).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no pattern covers it")]
fn a_session_pattern_covers_the_command_with_more_arguments_but_no_other_command() {
    let mut agent = TestAgent::builder().start();
    let question = ask_and_answer(&mut agent, runs("npm run build"), "allow_always");
    assert!(option_names(&question)[1].contains("`npm run build …`"), "{question}");
    run_without_question(&mut agent, runs("npm run build --flag"));
    for other in ["npm run deploy", "npm run build && npm run deploy", "npm run build > \"$X\""] {
        ask_and_answer(&mut agent, runs(other), "reject_once");
    }
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no pattern covers it")]
fn a_lasting_answer_to_a_pipeline_covers_each_of_its_commands() {
    let mut agent = TestAgent::builder().start();
    let question = ask_and_keep(&mut agent, runs("npm run a | npm run b"));
    let offered = option_names(&question);
    assert_eq!(offered[1], "Allow `npm run a …` and `npm run b …` in this session");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("? `npm run a` – no rule allows it"), "{text}");
    run_without_question(&mut agent, runs("npm run b"));
    let question = ask_and_answer(&mut agent, runs("npm run a; npm run c"), "reject_once");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("✓ `npm run a` – allowed by exec(npm run a)"), "{text}");
    assert!(text.contains("? `npm run c`"), "{text}");
    assert_eq!(project_rules(&agent)[0]["rules"][0]["origin"], "run npm run a | npm run b");
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no pattern covers it")]
fn an_answer_covers_only_the_redirect_targets_that_the_request_shows() {
    let mut agent = TestAgent::builder().start();
    let question = ask_and_answer(&mut agent, runs("npm run a > log"), "allow_always");
    assert_eq!(
        option_names(&question)[1],
        "Allow `npm run a …` and changes to `log` in this session"
    );
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("- writes ? `log`"), "{text}");
    run_without_question(&mut agent, runs("npm run a > log"));
    ask_and_answer(&mut agent, runs("npm run a > other"), "reject_once");
}
