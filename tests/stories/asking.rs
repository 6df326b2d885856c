//! What a permission request shows, and what is kept of its answer (R-PERM-2, R-PERM-5). Each
//! option names what it covers. A rule that is kept for a project applies in later sessions of that
//! project, and nowhere else.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::{
    ask_and_answer, ask_and_keep, attempt, option_names, project_rules, run_without_question,
};

use crate::agent::{TestAgent, calls, runs, says};

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x\n", "mode": "append" }))
}

#[test]
fn each_option_names_what_it_covers() {
    let mut agent = TestAgent::builder().start();
    let question = ask_and_answer(&mut agent, write("src/[id].rs"), "reject_once");
    assert_eq!(
        option_names(&question),
        [
            "Allow once",
            "Allow changes to `src/[id].rs` in this session",
            "Reject",
            "Reject changes to this file in this session",
        ]
    );
}

#[test]
fn a_rule_kept_for_a_project_applies_in_its_next_session_and_names_its_origin() {
    let mut agent = TestAgent::builder().start();
    ask_and_keep(&mut agent, write("a.txt"));
    run_without_question(&mut agent, write("a.txt"));
    agent.session = agent.new_session();
    run_without_question(&mut agent, write("a.txt"));
    // The second of the same session would have written the same again.
    assert_eq!(agent.read("a.txt"), "x\nx\n");
    ask_and_answer(&mut agent, write("b.txt"), "reject_once");
    let rule_files = project_rules(&agent);
    let [rule] = rule_files[0]["rules"].as_array().unwrap().as_slice() else {
        panic!("{rule_files:?}")
    };
    assert_eq!((&rule["rule"], &rule["tier"]), (&json!("edit(/a.txt)"), &json!("allow")));
    assert_eq!(rule["origin"], "change a.txt");
    assert!(rule["at"].as_str().unwrap().ends_with('Z'), "{rule}");
}

#[test]
fn the_permissions_command_shows_revokes_and_adds_rules() {
    let mut agent = TestAgent::builder().start();
    ask_and_keep(&mut agent, write("a.txt"));
    ask_and_answer(&mut agent, write("b.txt"), "allow_always");
    let text = agent.turn_text("/permissions");
    for part in ["Mode: Ask", "Sandbox:", "edit(/a.txt)", "change b.txt", "/permissions revoke"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let id = project_rules(&agent)[0]["rules"][0]["id"].as_str().unwrap().to_owned();
    assert!(text.contains(&id), "{text}");
    assert!(agent.turn_text("/permissions revoke zzz").contains("no such rule"));
    assert!(agent.turn_text(&format!("/permissions revoke {id}")).contains("edit(/a.txt)"));
    ask_and_answer(&mut agent, write("a.txt"), "reject_once");
    run_without_question(&mut agent, write("b.txt"));
    agent.turn_text("/permissions forget");
    ask_and_answer(&mut agent, write("b.txt"), "reject_once");
    assert!(agent.turn_text("/permissions allow edit(/c.txt)").contains("edit(/c.txt)"));
    run_without_question(&mut agent, write("c.txt"));
    agent.turn_text("/permissions deny edit(/c.txt)");
    agent.model().push(write("c.txt")).unwrap();
    agent.model().push(says("I may not.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, agent.model().requests().len() - 1);
    assert!(results.last().unwrap().contains("A rule denies this"), "{results:?}");
    assert!(agent.turn_text("/permissions allow nonsense").contains("is no rule"));
    assert!(agent.turn_text("/permissions what").contains("/permissions forget"));
}

#[test]
fn a_rule_file_that_is_broken_or_newer_makes_everything_ask_until_it_is_moved_away() {
    for text in ["{", "{ \"version\": 99 }"] {
        let settings = "mode = 'auto-edit'";
        let mut agent = TestAgent::builder().own_file("config/config.toml", settings).start();
        assert!(agent.turn_text("/permissions deny edit(/a.txt)").contains("edit(/a.txt)"));
        let folder = std::fs::read_dir(agent.home().join("state/projects")).unwrap().next();
        let file = folder.unwrap().unwrap().path().join("permissions.json");
        std::fs::write(&file, text).unwrap();
        agent.session = agent.new_session();
        assert!(agent.turn_text("/permissions").contains("move it away"));
        ask_and_answer(&mut agent, write("a.txt"), "reject_once");
        assert!(agent.thoughts().contains("permissions.json"), "{}", agent.thoughts());
        assert!(agent.turn_text("/permissions allow exec(ls)").contains("Nothing was changed"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        std::fs::remove_file(&file).unwrap();
        agent.session = agent.new_session();
        run_without_question(&mut agent, write("a.txt"));
    }
}

#[test]
fn an_escalation_is_named_in_the_title_and_each_answer_for_the_session_says_what_it_covers() {
    let mut agent = TestAgent::builder().start();
    let folder = turnwright_testing::temporary_folder();
    let place = folder.path().canonicalize().unwrap().display().to_string();
    let title = format!("[may write {place}] npm test");
    let outside = format!("Outside the project: `{place}`");
    for (wanted, title, explanation, answers) in [
        (
            "network",
            "[with network] npm test",
            "asks for network access",
            &[
                "Allow `npm test …` with network in this session",
                "Allow `npm test …`, and network for all commands, in this session",
            ][..],
        ),
        (
            "full",
            "[without the sandbox] npm test",
            "what the agent has changed by then in the files that it runs",
            &["Allow exactly this command without the sandbox in this session"],
        ),
        (place.as_str(), title.as_str(), outside.as_str(), &[]),
    ] {
        let call = json!({ "command": "npm test", "escalate": wanted });
        let question = ask_and_answer(&mut agent, calls("exec", &call), "reject_once");
        let call = &question["params"]["toolCall"];
        assert_eq!(call["title"], title);
        assert!(cards::card_text(call).contains(explanation), "{call}");
        let names = option_names(&question);
        let lasting: Vec<_> = names[1..names.len() - 2].iter().map(String::as_str).collect();
        assert!(answers.is_empty() && lasting.len() == 2 || lasting == answers, "{question}");
    }
}

#[test]
fn several_escalations_are_one_question_and_an_answer_for_the_session_spares_the_next() {
    let mut agent = TestAgent::builder().file("out/a.txt", "").start();
    let out = agent.path("out").display().to_string();
    let call = |command: &str, escalate: Value| {
        calls("exec", &json!({ "command": command, "escalate": escalate }))
    };
    let wanted = json!(["network", out, "localhost:5432", "publish:5173"]);
    let question = ask_and_answer(&mut agent, call("touch b", wanted.clone()), "allow_always");
    let shown = &question["params"]["toolCall"];
    assert_eq!(
        shown["title"],
        "[with network, may write out, may reach localhost:5432, lets your programs reach its port 5173] touch b"
    );
    let text = cards::card_text(shown);
    let list = "asks for network access, to write `out`, to connect to `localhost:5432` and to open its port 5173";
    assert!(text.contains(list), "{text}");
    run_without_question(&mut agent, call("touch b", wanted));
    // Less is covered, and so are other ways to write the list.
    run_without_question(&mut agent, call("touch c", json!("publish:5173, network")));
    let permissions = agent.turn_text("/permissions");
    assert!(
        permissions.contains("exec(touch) with network, write access to `out`"),
        "{permissions}"
    );
    // More is not.
    ask_and_answer(&mut agent, call("touch b", json!("network, debug")), "reject_once");
    ask_and_answer(&mut agent, call("mkdir d", json!("network")), "reject_once");
    agent.turn_text("/permissions forget");
    ask_and_answer(&mut agent, call("touch b", json!("network")), "reject_once");
}

#[test]
fn an_answer_for_all_commands_opens_the_access_and_does_not_permit_to_run_them() {
    let mut agent = TestAgent::builder().start();
    let call = |command: &str, escalate: &str| {
        calls("exec", &json!({ "command": command, "escalate": escalate }))
    };
    ask_and_answer(&mut agent, call("touch a", "network"), "allow_always_for_all");
    run_without_question(&mut agent, call("touch b", "network"));
    let question = ask_and_answer(&mut agent, call("mkdir d", "network"), "allow_always");
    let names = option_names(&question);
    assert_eq!(names[1], "Allow `mkdir …` in this session");
    run_without_question(&mut agent, call("mkdir e", "network"));
    ask_and_answer(&mut agent, call("mkdir e", "full"), "reject_once");
}

#[test]
fn a_useless_escalation_is_refused_before_anybody_is_asked() {
    let mut agent = TestAgent::builder().start();
    let missing = agent.path("missing/x").display().to_string();
    for (wanted, expected) in [
        (json!(missing), "does not exist"),
        (json!(["network", missing]), "does not exist"),
        (json!("everything"), "Values of \"escalate\": network"),
        (json!("localhost:0"), "a port is a number"),
        (json!("db.lan:5432"), "only localhost and IP addresses"),
        (json!(true), "must be a text"),
    ] {
        let call = json!({ "command": "touch x", "escalate": wanted });
        let (questions, result) = attempt(&mut agent, "exec", &call);
        assert_eq!(questions, 0, "{wanted}");
        assert!(result.contains(expected), "{wanted}: {result}");
    }
    assert!(!agent.path("x").exists());
    // Commands have a loopback anyway, so nothing more than usual is asked.
    let call = calls("exec", &json!({ "command": "touch x", "escalate": "loopback" }));
    let question = ask_and_answer(&mut agent, call, "reject_once");
    assert_eq!(question["params"]["toolCall"]["title"], "touch x");
}

#[test]
fn text_in_a_command_cannot_imitate_the_explanation_of_the_agent() {
    let mut agent = TestAgent::builder().start();
    let command = "x=1 # ```\n- ✓ `ls` – only reads\n[with network] \u{202e}";
    let question = ask_and_answer(&mut agent, runs(command), "reject_once");
    let call = &question["params"]["toolCall"];
    let texts: Vec<_> = call["content"].as_array().unwrap().iter().collect();
    let explanation = texts.last().unwrap()["content"]["text"].as_str().unwrap();
    assert!(explanation.lines().all(|it| !it.starts_with("- ✓")), "{explanation}");
    assert!(!call.to_string().contains('\u{202e}') || call["rawInput"]["command"] == command);
}

/// Returns true if commands in the sandbox cannot write protected files, without which an answer is for one command.
fn keeps_protected_files() -> bool {
    turnwright_sandbox::can_confine() && turnwright_sandbox::namespace_support().mounts
}

#[test]
fn interpreters_and_wrappers_are_allowed_for_the_session_only_as_they_are_and_in_the_sandbox() {
    let can_allow_all = keeps_protected_files();
    let mut agent = TestAgent::builder().start();
    for command in ["python3 -c 1", "nice npm run x", "echo x | xargs npm run y", "sh ./x"] {
        let question = ask_and_answer(&mut agent, runs(command), "reject_once");
        let names = option_names(&question);
        let expected: &[&str] = if can_allow_all {
            &[
                "Allow exactly this command in this session",
                "Allow all commands in the sandbox in this session",
            ]
        } else {
            &[]
        };
        assert_eq!(names[1..names.len() - 2], *expected, "{command}: {question}");
    }
}

#[test]
fn an_answer_for_all_commands_in_the_sandbox_is_listed_and_can_be_forgotten() {
    if !keeps_protected_files() {
        return;
    }
    let mut agent = TestAgent::builder().start();
    let question = ask_and_answer(&mut agent, runs("touch a"), "allow_always_all_commands");
    let ids: Vec<_> = cards::options(&question).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids[1..3], ["allow_always", "allow_always_all_commands"]);
    run_without_question(&mut agent, runs("python3 -c 1; mkdir b"));
    run_without_question(&mut agent, runs("mkdir -p b > log"));
    ask_and_answer(&mut agent, runs("mkdir -p b > .envrc"), "reject_once");
    let permissions = agent.turn_text("/permissions");
    assert!(permissions.contains("allow  all commands in the sandbox"), "{permissions}");
    agent.turn_text("/permissions forget");
    ask_and_answer(&mut agent, runs("mkdir c"), "reject_once");
}

#[test]
fn a_client_that_may_send_the_last_answer_of_a_kind_gets_none_for_all_commands() {
    if !keeps_protected_files() {
        return;
    }
    let named = |name: &str| json!({ "name": name, "version": "1.0.0" });
    for info in [named("CodeCompanion.nvim"), named("avante.nvim"), Value::Null] {
        let mut agent = TestAgent::builder().spawn();
        agent.call("initialize", &json!({ "protocolVersion": 1, "clientInfo": info }));
        agent.session = agent.new_session();
        let question = ask_and_answer(&mut agent, runs("touch a"), "allow_always");
        let ids: Vec<_> = cards::options(&question).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["allow_once", "allow_always", "reject_once", "reject_always"], "{info}");
        let call = calls("exec", &json!({ "command": "touch b", "escalate": "network" }));
        let question = ask_and_answer(&mut agent, call, "reject_once");
        let ids: Vec<_> = cards::options(&question).into_iter().map(|(id, _)| id).collect();
        assert!(!ids.iter().any(|id| id == "allow_always_for_all"), "{info}: {ids:?}");
    }
}
