//! What a question shows and what is left of its answer (R-PERM-2, R-PERM-5): every answer names
//! what it covers, and what was kept for a project holds there tomorrow and nowhere else.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, says};
use crate::cards;
use crate::ended;

fn exec(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x\n", "mode": "append" }))
}

/// One call that is asked about and answered like this; returns the question.
fn answered(agent: &mut TestAgent, reply: Value, option: &str) -> Value {
    agent.model().push(reply).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, option);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(agent);
    question
}

/// One call about which nobody is asked.
fn free(agent: &mut TestAgent, reply: Value) {
    let before = cards::questions(agent);
    agent.model().push(reply).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(agent), before, "it asks again");
    cards::check(agent);
}

fn names(question: &Value) -> Vec<String> {
    cards::options(question).into_iter().map(|it| it.1).collect()
}

/// What a slash command says.
fn said(agent: &mut TestAgent, text: &str) -> String {
    let before = agent.text().len();
    assert_eq!(agent.turn(text), "end_turn");
    agent.text()[before..].to_owned()
}

/// The files that hold the rules of projects.
fn books(agent: &TestAgent) -> Vec<Value> {
    let projects = agent.home().join("state/projects");
    let folders = std::fs::read_dir(projects).into_iter().flatten().flatten();
    let text = |it: std::fs::DirEntry| std::fs::read_to_string(it.path().join("permissions.json"));
    folders.filter_map(|it| serde_json::from_str(&text(it).ok()?).ok()).collect()
}

fn audit(agent: &TestAgent) -> Vec<Value> {
    let text = std::fs::read_to_string(agent.home().join("state/permissions.jsonl"));
    let text = text.unwrap_or_default();
    text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
}

#[test]
fn each_answer_names_what_it_covers() {
    let mut agent = TestAgent::builder().start();
    let question = answered(&mut agent, write("src/[id].rs"), "reject_once");
    let pattern = "edit(/src/\\[id\\].rs)";
    assert_eq!(
        names(&question),
        [
            "Allow once".to_owned(),
            format!("Allow {pattern} in this session"),
            format!("Always allow {pattern} in this project"),
            "Reject".to_owned(),
            "Reject changes to this file in this session".to_owned(),
        ]
    );
}

#[test]
fn what_is_kept_for_a_project_holds_in_its_next_session_and_says_where_it_comes_from() {
    let mut agent = TestAgent::builder().start();
    answered(&mut agent, write("a.txt"), "allow_project");
    free(&mut agent, write("a.txt"));
    agent.session = agent.new_session();
    free(&mut agent, write("a.txt"));
    assert_eq!(agent.read("a.txt"), "x\nx\nx\n");
    answered(&mut agent, write("b.txt"), "reject_once");
    let books = books(&agent);
    let [rule] = books[0]["rules"].as_array().unwrap().as_slice() else { panic!("{books:?}") };
    assert_eq!((&rule["rule"], &rule["tier"]), (&json!("edit(/a.txt)"), &json!("allow")));
    assert_eq!(rule["origin"], "change a.txt");
    assert!(rule["at"].as_str().unwrap().ends_with('Z'), "{rule}");
}

#[test]
fn a_kept_rule_is_shown_and_revoked_in_the_editor_and_forbids_at_once() {
    let mut agent = TestAgent::builder().start();
    answered(&mut agent, write("a.txt"), "allow_project");
    answered(&mut agent, write("b.txt"), "allow_always");
    let text = said(&mut agent, "/permissions");
    for part in ["Mode: Ask", "Sandbox:", "edit(/a.txt)", "change b.txt", "/permissions revoke"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let id = books(&agent)[0]["rules"][0]["id"].as_str().unwrap().to_owned();
    assert!(text.contains(&id), "{text}");
    assert!(said(&mut agent, "/permissions revoke zzz").contains("no such rule"));
    assert!(said(&mut agent, &format!("/permissions revoke {id}")).contains("edit(/a.txt)"));
    answered(&mut agent, write("a.txt"), "reject_once");
    free(&mut agent, write("b.txt"));
    said(&mut agent, "/permissions forget");
    answered(&mut agent, write("b.txt"), "reject_once");
    assert!(said(&mut agent, "/permissions allow edit(/c.txt)").contains("edit(/c.txt)"));
    free(&mut agent, write("c.txt"));
    said(&mut agent, "/permissions deny edit(/c.txt)");
    agent.model().push(write("c.txt")).unwrap();
    agent.model().push(says("I may not.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, agent.model().requests().len() - 1);
    assert!(results.last().unwrap().contains("A rule denies this"), "{results:?}");
    assert!(said(&mut agent, "/permissions allow nonsense").contains("is no rule"));
    assert!(said(&mut agent, "/permissions what").contains("/permissions forget"));
}

#[test]
fn a_book_that_is_broken_or_from_tomorrow_stops_nobody() {
    for (text, is_kept) in [("{", true), ("{ \"version\": 99 }", false)] {
        let mut agent = TestAgent::builder().start();
        answered(&mut agent, write("a.txt"), "allow_project");
        let folder = std::fs::read_dir(agent.home().join("state/projects")).unwrap().next();
        let file = folder.unwrap().unwrap().path().join("permissions.json");
        std::fs::write(&file, text).unwrap();
        agent.session = agent.new_session();
        assert!(said(&mut agent, "/permissions").contains("its rules are ignored"));
        answered(&mut agent, write("a.txt"), "allow_project");
        free(&mut agent, write("a.txt"));
        assert_eq!(std::fs::read_to_string(&file).unwrap() != text, is_kept, "{text}");
    }
}

#[test]
fn a_command_that_is_not_understood_is_asked_about_once_at_a_time() {
    let mut agent = TestAgent::builder().start();
    for _ in 0..2 {
        let question = answered(&mut agent, exec("x=1; touch \"$x\""), "allow_once");
        let offered = names(&question);
        assert_eq!(offered, ["Allow once", "Reject", "Reject this exact command in this session"]);
        let text = cards::card_text(&question["params"]["toolCall"]);
        assert!(text.contains("cannot be fully analysed"), "{text}");
        assert!(text.contains("sandbox"), "{text}");
    }
    // What was not offered is no answer.
    for option in ["allow_always", "allow_project"] {
        answered(&mut agent, exec("x=2; touch \"$x\""), option);
    }
    assert!(agent.path("1").exists() && !agent.path("2").exists());
}

#[test]
fn more_than_the_sandbox_leaves_is_in_the_title_and_never_for_longer() {
    let mut agent = TestAgent::builder().start();
    for (wanted, title, told) in [
        ("network", "[with network] touch x", "asks for network access"),
        ("full", "[without the sandbox] touch x", "without the sandbox"),
        ("/opt/x", "[may write /opt/x] touch x", "Outside the project: `/opt/x`"),
    ] {
        let call = json!({ "command": "touch x", "escalate": wanted });
        let question = answered(&mut agent, calls("exec", &call), "reject_once");
        let call = &question["params"]["toolCall"];
        assert_eq!(call["title"], title);
        assert!(cards::card_text(call).contains(told), "{call}");
        assert_eq!(names(&question).len(), 3, "{question}");
    }
}

#[test]
fn nothing_in_a_command_passes_for_words_of_ours() {
    let mut agent = TestAgent::builder().start();
    let command = "x=1 # ```\n- ✓ `ls` – only reads\n[with network] \u{202e}";
    let question = answered(&mut agent, exec(command), "reject_once");
    let call = &question["params"]["toolCall"];
    let texts: Vec<_> = call["content"].as_array().unwrap().iter().collect();
    let ours = texts.last().unwrap()["content"]["text"].as_str().unwrap();
    assert!(ours.lines().all(|it| !it.starts_with("- ✓")), "{ours}");
    assert!(!call.to_string().contains('\u{202e}') || call["rawInput"]["command"] == command);
}

#[test]
fn what_was_decided_is_noted_and_no_key_is_in_it() {
    let key = "sk-test-0123456789";
    let mut agent = TestAgent::builder().start();
    answered(&mut agent, exec("touch one"), "allow_once");
    answered(&mut agent, exec(&format!("echo {key} > /dev/null; touch $X")), "reject_always");
    agent.model().push(exec(&format!("echo {key} > /dev/null; touch $X"))).unwrap();
    agent.model().push(says("All right.")).unwrap();
    assert_eq!(agent.turn("again"), "end_turn");
    eventually("the audit", || audit(&agent).len() >= 4);
    let lines = audit(&agent);
    let told: Vec<_> = lines.iter().map(|it| (&it["event"], &it["answer"])).collect();
    let (asked, yes) = (json!("asked"), json!("allow once"));
    let (never, none) = (json!("reject in this session"), Value::Null);
    assert_eq!(
        told,
        [(&asked, &yes), (&json!("ran"), &none), (&asked, &never), (&json!("denied"), &none)]
    );
    assert_eq!(lines[0]["effects"], json!(["run touch one"]));
    assert_eq!(lines[0]["mode"], "ask");
    assert!(lines[0]["project"].is_string() && lines[0]["session"].is_string());
    let text = std::fs::read_to_string(agent.home().join("state/permissions.jsonl")).unwrap();
    assert!(!text.contains(key) && text.contains("[key]"), "{text}");
    assert!(!agent.path("X").exists());
}

#[test]
fn the_user_is_told_once_that_the_audit_is_incomplete() {
    let mut agent = TestAgent::builder().start();
    std::fs::create_dir_all(agent.home().join("state/permissions.jsonl")).unwrap();
    for command in ["touch one", "touch two", "touch three"] {
        answered(&mut agent, exec(command), "allow_once");
    }
    let told = agent.thoughts().matches("log of permission decisions is incomplete").count();
    assert_eq!(told, 1, "{}", agent.thoughts());
}

#[test]
fn a_folder_that_is_swapped_while_the_question_is_open_is_not_run_in() {
    let elsewhere = tempfile::tempdir().unwrap();
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
    assert!(!elsewhere.path().join("mark").exists(), "it ran where nobody was asked about");
}

#[test]
fn two_agents_that_keep_rules_for_one_project_lose_none() {
    let shared = tempfile::tempdir().unwrap();
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
    let mut open = Vec::new();
    for (number, agent) in agents.iter_mut().enumerate() {
        agent.model().push(write(&format!("f{number}"))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let id = agent.prompt("go");
        open.push((id, agent.wait_for_request("session/request_permission")));
    }
    for (agent, (_, question)) in agents.iter_mut().zip(&open) {
        agent.choose(question, "allow_project");
    }
    for (agent, (id, _)) in agents.iter_mut().zip(&open) {
        assert_eq!(agent.stop_reason(id), "end_turn");
    }
    let listed = policy(shared.path(), shared.path(), &["list", "--json"]);
    assert_eq!(listed["rules"].as_array().unwrap().len(), 2, "{listed}");
}

/// An agent whose own folders are below that one.
fn builder_in(home: &str) -> TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_HOME", home)
}

fn policy(home: &Path, project: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.arg("policy").args(arguments).current_dir(project);
    command.env_clear().env("TURNWRIGHT_HOME", home);
    let output = ended::output(&mut command).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

// The rest needs commands to be understood.

#[test]
fn a_pattern_for_the_session_covers_the_command_with_other_arguments_and_no_other_command() {
    let mut agent = TestAgent::builder().start();
    let question = answered(&mut agent, exec("npm run build"), "allow_always");
    assert!(names(&question)[1].contains("`npm run build …`"), "{question}");
    free(&mut agent, exec("npm run build --flag"));
    for other in ["npm run deploy", "npm run build && npm run deploy", "npm run build > \"$X\""] {
        answered(&mut agent, exec(other), "reject_once");
    }
}

#[test]
fn a_pipeline_is_allowed_for_longer_with_all_its_commands() {
    let mut agent = TestAgent::builder().start();
    let question = answered(&mut agent, exec("npm run a | npm run b"), "allow_project");
    let offered = names(&question);
    assert_eq!(offered[2], "Always allow `npm run a …` and `npm run b …` in this project");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("? `npm run a` – no rule allows it"), "{text}");
    free(&mut agent, exec("npm run b"));
    let question = answered(&mut agent, exec("npm run a; npm run c"), "reject_once");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("✓ `npm run a` – allowed by exec(npm run a)"), "{text}");
    assert!(text.contains("? `npm run c`"), "{text}");
    assert_eq!(books(&agent)[0]["rules"][0]["origin"], "run npm run a | npm run b");
}

#[test]
fn interpreters_wrappers_and_dangers_have_no_always() {
    let mut agent = TestAgent::builder().start();
    for command in ["python3 -c 1", "timeout 9 npm run x", "echo x | xargs npm run y", "sh ./x"] {
        let question = answered(&mut agent, exec(command), "reject_once");
        assert_eq!(names(&question).len(), 3, "{command}: {question}");
    }
}

#[test]
fn what_a_command_writes_is_shown_and_part_of_the_answer() {
    let mut agent = TestAgent::builder().start();
    let question = answered(&mut agent, exec("npm run a > log"), "allow_always");
    assert_eq!(names(&question)[1], "Allow `npm run a …` and edit(/log) in this session");
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("- writes ? `log`"), "{text}");
    free(&mut agent, exec("npm run a > log"));
    answered(&mut agent, exec("npm run a > other"), "reject_once");
}
