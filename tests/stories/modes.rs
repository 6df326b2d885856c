//! Modes: what each mode permits, how the mode is changed, and how plan mode ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::session_requests::known_mode;

use crate::agent::{TestAgent, calls, says};

fn plan_mode(replies: Value) -> crate::agent::TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_MODE", "plan").model(replies)
}

/// Returns every path below a folder, with the content of each file.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            all.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
    all
}

#[test]
fn every_mode_can_be_the_initial_one() {
    for mode in ["plan", "ask", "auto-edit", "auto", "full"] {
        let mut agent = TestAgent::builder().variable("TURNWRIGHT_MODE", mode).initialize();
        let answer = agent.call_new_session();
        assert_eq!(answer["result"]["modes"]["currentModeId"], mode);
        let options = answer["result"]["configOptions"].as_array().unwrap();
        let option = options.iter().find(|it| it["id"] == "mode").unwrap();
        assert_eq!(option["currentValue"], mode);
        // Both ways to choose a mode have the same descriptions.
        let modes = answer["result"]["modes"]["availableModes"].as_array().unwrap();
        for (one, other) in modes.iter().zip(option["options"].as_array().unwrap()) {
            assert_eq!(one["description"], other["description"]);
        }
        let auto = modes.iter().find(|it| it["id"] == "auto").unwrap();
        let promises = auto["description"].as_str().unwrap().contains("in the sandbox");
        assert_eq!(promises, turnwright_sandbox::can_confine());
    }
}

#[test]
fn a_client_may_call_the_mode_in_which_sessions_begin_default() {
    let mut agent = TestAgent::builder().variable("TURNWRIGHT_MODE", "auto-edit").start();
    for (id, expected) in [("plan", "plan"), ("default", "auto-edit")] {
        let params = json!({ "sessionId": agent.session, "modeId": id });
        assert!(agent.call("session/set_mode", &params)["result"].is_object(), "{id}");
        assert_eq!(known_mode(&agent), (expected.to_owned(), expected.to_owned()));
    }
}

#[test]
fn without_a_sandbox_the_user_is_told_once() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("go");
    agent.turn("on");
    assert_eq!(agent.told_of_no_sandbox, usize::from(!turnwright_sandbox::can_confine()));
}

#[test]
fn no_call_changes_anything_in_plan_mode() {
    let temp = turnwright_testing::temporary_folder();
    let inside_temp = format!("echo x > {}/x", temp.path().display());
    let exec = |command: &str| calls("exec", &json!({ "command": command }));
    let tries = vec![
        calls("write_file", &json!({ "path": "b.txt", "content": "x" })),
        calls("write_file", &json!({ "path": ".git/hooks/pre-commit", "content": "x" })),
        calls("edit_file", &json!({ "path": "a.txt", "old_text": "readable", "new_text": "x" })),
        calls("delete_path", &json!({ "path": "a.txt" })),
        calls("move_path", &json!({ "from": "a.txt", "to": "c.txt" })),
        exec("touch c.txt"),
        exec("cat a.txt > c.txt"),
        exec("cat a.txt | tee c.txt"),
        exec("$(echo touch) c.txt"),
        exec("git -c alias.st='!touch c.txt' st"),
        exec(&inside_temp),
        calls("exec", &json!({ "command": "touch c.txt", "escalate": "full" })),
        calls("exec", &json!({ "command": "touch c.txt", "escalate": "network" })),
        calls("exec", &json!({ "command": "touch c.txt", "escalate": "." })),
        calls("exec", &json!({ "command": "touch c.txt", "background": true })),
    ];
    let count = tries.len();
    let mut replies = tries;
    replies.push(says("I give up."));
    let mut agent = plan_mode(json!(replies))
        .file("a.txt", "readable\n")
        .file(".git/config", "[core]\n")
        .permission("allow_once")
        .start();
    let before = snapshot(agent.workspace());
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(snapshot(agent.workspace()), before);
    assert!(snapshot(temp.path()).is_empty());
    assert_eq!(cards::questions(&agent), 0, "a denied call must not request permission");
    assert_eq!(agent.model().requests().len(), count + 1, "the model must have made all calls");
    cards::check(&agent);
}

#[test]
fn exit_plan_is_offered_only_in_plan_mode_and_the_user_decides() {
    let names = |agent: &TestAgent, request: usize| {
        let body = agent.model_request(request);
        let tools = body["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|it| it["function"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for (chosen, expected) in [
        ("Go on, ask me each time", "ask"),
        ("Go on, edit freely", "auto-edit"),
        ("Keep planning", "plan"),
    ] {
        let mut agent = plan_mode(json!([
            calls("exit_plan", &json!({ "plan": "# Plan\n\n1. Write b.txt" })),
            calls("write_file", &json!({ "path": "b.txt", "content": "x" })),
            says("Done."),
        ]))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .permission("allow_once")
        .start();
        let id = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        assert!(cards::card_text(&cards::card(&agent, 0)).contains("1. Write b.txt"));
        let answer = json!({ "action": "accept", "content": { "answer": chosen } });
        agent.respond(&request, &answer);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        cards::check(&agent);
        assert!(names(&agent, 0).contains(&"exit_plan".to_owned()));
        assert_eq!(names(&agent, 1).contains(&"exit_plan".to_owned()), expected == "plan");
        assert_eq!(agent.path("b.txt").exists(), expected != "plan", "{chosen}");
        assert_eq!(cards::questions(&agent), usize::from(expected == "ask"), "{chosen}");
        if expected != "plan" {
            assert_eq!(known_mode(&agent), (expected.to_owned(), expected.to_owned()));
        }
    }
}

#[test]
fn after_planning_the_work_may_go_on_in_the_mode_from_before() {
    for (before, is_offered) in [("auto", true), ("full", true), ("auto-edit", false)] {
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_MODE", before)
            .model(json!([calls("exit_plan", &json!({ "plan": "Write b.txt" })), says("Done.")]))
            .capabilities(json!({ "elicitation": { "form": {} } }))
            .start();
        let plan = json!({ "sessionId": agent.session, "modeId": "plan" });
        agent.call("session/set_mode", &plan);
        let id = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        let answer = format!("Go on as before, in mode {before}");
        assert_eq!(request.to_string().contains(&answer), is_offered, "{request}");
        agent.respond(&request, &json!({ "action": "accept", "content": { "answer": answer } }));
        assert_eq!(agent.stop_reason(&id), "end_turn");
        let mode = if is_offered { before } else { "plan" };
        assert_eq!(known_mode(&agent), (mode.to_owned(), mode.to_owned()));
    }
}

#[test]
fn a_session_that_is_reopened_in_plan_mode_is_offered_no_mode_from_before() {
    let exit = calls("exit_plan", &json!({ "plan": "Write b.txt" }));
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "auto")
        .model(json!([says("Hello."), exit, says("Fine.")]))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .start();
    assert_eq!(agent.turn("hello"), "end_turn");
    let session = agent.session.clone();
    for mode in ["ask", "plan"] {
        agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": mode }));
    }
    agent.restart();
    agent.load(&session);
    let id = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    let options = request.to_string();
    assert!(options.contains("edit freely") && !options.contains("as before"), "{options}");
    agent.respond(&request, &json!({ "action": "decline" }));
    assert_eq!(agent.stop_reason(&id), "end_turn");
}

#[test]
fn an_answer_that_is_not_an_offered_choice_keeps_plan_mode() {
    let exit = || calls("exit_plan", &json!({ "plan": "Write b.txt" }));
    let write = || calls("write_file", &json!({ "path": "b.txt", "content": "x" }));
    for answer in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "answer": "full" } }),
        json!({}),
    ] {
        let mut agent = plan_mode(json!([exit(), write(), says("Ok.")]))
            .capabilities(json!({ "elicitation": { "form": {} } }))
            .start();
        let id = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        agent.respond(&request, &answer);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(!agent.path("b.txt").exists(), "{answer}");
    }
}

#[test]
fn without_forms_the_plan_is_shown_in_the_conversation_and_the_user_switches_the_mode() {
    let exit = calls("exit_plan", &json!({ "plan": "Write b.txt" }));
    let write = calls("write_file", &json!({ "path": "b.txt", "content": "x" }));
    let mut agent = plan_mode(json!([exit, write, says("Done.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.text().starts_with("Write b.txt\n\nTo carry this out"), "{}", agent.text());
    assert_eq!(cards::requests(&agent), [""; 0]);
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(!agent.path("b.txt").exists(), "the mode is still plan");
}

#[test]
fn exit_plan_fails_outside_of_plan_mode() {
    let plan = json!({ "plan": "x" });
    let (_, result) = cards::run(TestAgent::builder(), "exit_plan", &plan);
    assert!(result.contains("not plan mode"), "{result}");
}

#[test]
fn wrong_settings_are_told_in_the_session() {
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "careful")
        .own_file("config/config.toml", "mode = \"Plan\"\neffort = \"huge\"\n[permission]\n")
        .model(json!([says("One."), says("Two.")]))
        .start();
    agent.turn("go");
    agent.turn("on");
    let told = agent.thoughts();
    let mode = "TURNWRIGHT_MODE is `careful`, expected one of ask, plan, auto-edit, auto, full. \
                Sessions begin in `plan`";
    assert_eq!(told.matches(mode).count(), 1, "{told}");
    assert_eq!(told.matches("config.toml: `effort` is `huge`").count(), 1, "{told}");
    assert_eq!(told.matches("config.toml: Unknown setting `permission`").count(), 1, "{told}");
}
