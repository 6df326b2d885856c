//! What a permission request shows, and what is kept of its answer (R-PERM-2, R-PERM-5). Each
//! option names what it covers. A rule that is kept for a project applies in later sessions of that
//! project, and nowhere else.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::{
    ask_and_answer, ask_and_keep, option_names, project_rules, run_without_question,
};

use crate::agent::{TestAgent, calls, says};

fn exec(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

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
    assert_eq!(agent.read("a.txt"), "x\nx\nx\n");
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
fn a_rule_file_that_is_broken_or_newer_is_ignored() {
    for (text, is_kept) in [("{", true), ("{ \"version\": 99 }", false)] {
        let mut agent = TestAgent::builder().start();
        ask_and_keep(&mut agent, write("a.txt"));
        let folder = std::fs::read_dir(agent.home().join("state/projects")).unwrap().next();
        let file = folder.unwrap().unwrap().path().join("permissions.json");
        std::fs::write(&file, text).unwrap();
        agent.session = agent.new_session();
        assert!(agent.turn_text("/permissions").contains("its rules are ignored"));
        ask_and_keep(&mut agent, write("a.txt"));
        run_without_question(&mut agent, write("a.txt"));
        assert_eq!(std::fs::read_to_string(&file).unwrap() != text, is_kept, "{text}");
    }
}

#[test]
fn an_escalation_is_named_in_the_title_and_can_only_be_allowed_once() {
    let mut agent = TestAgent::builder().start();
    let place = if cfg!(windows) { r"C:\opt\x" } else { "/opt/x" };
    let (title, outside) =
        (format!("[may write {place}] touch x"), format!("Outside the project: `{place}`"));
    for (wanted, title, explanation) in [
        ("network", "[with network] touch x", "asks for network access"),
        ("full", "[without the sandbox] touch x", "without the sandbox"),
        (place, title.as_str(), outside.as_str()),
    ] {
        let call = json!({ "command": "touch x", "escalate": wanted });
        let question = ask_and_answer(&mut agent, calls("exec", &call), "reject_once");
        let call = &question["params"]["toolCall"];
        assert_eq!(call["title"], title);
        assert!(cards::card_text(call).contains(explanation), "{call}");
        assert_eq!(option_names(&question).len(), 3, "{question}");
    }
}

#[test]
fn text_in_a_command_cannot_imitate_the_explanation_of_the_agent() {
    let mut agent = TestAgent::builder().start();
    let command = "x=1 # ```\n- ✓ `ls` – only reads\n[with network] \u{202e}";
    let question = ask_and_answer(&mut agent, exec(command), "reject_once");
    let call = &question["params"]["toolCall"];
    let texts: Vec<_> = call["content"].as_array().unwrap().iter().collect();
    let explanation = texts.last().unwrap()["content"]["text"].as_str().unwrap();
    assert!(explanation.lines().all(|it| !it.starts_with("- ✓")), "{explanation}");
    assert!(!call.to_string().contains('\u{202e}') || call["rawInput"]["command"] == command);
}

#[test]
fn interpreters_and_wrappers_can_only_be_allowed_once() {
    let mut agent = TestAgent::builder().start();
    for command in ["python3 -c 1", "timeout 9 npm run x", "echo x | xargs npm run y", "sh ./x"] {
        let question = ask_and_answer(&mut agent, exec(command), "reject_once");
        assert_eq!(option_names(&question).len(), 3, "{command}: {question}");
    }
}
