//! What a question shows and what is left of its answer (R-PERM-2, R-PERM-5): every answer names
//! what it covers, and what was kept for a project holds there tomorrow and nowhere else.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::{
    ask_and_answer, option_names, project_rules, run_without_question,
};

use crate::agent::{TestAgent, calls, says};

fn exec(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x\n", "mode": "append" }))
}

/// What a slash command says.
fn said(agent: &mut TestAgent, text: &str) -> String {
    let before = agent.text().len();
    assert_eq!(agent.turn(text), "end_turn");
    agent.text()[before..].to_owned()
}

#[test]
fn each_answer_names_what_it_covers() {
    let mut agent = TestAgent::builder().start();
    let question = ask_and_answer(&mut agent, write("src/[id].rs"), "reject_once");
    let pattern = "edit(/src/\\[id\\].rs)";
    assert_eq!(
        option_names(&question),
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
    ask_and_answer(&mut agent, write("a.txt"), "allow_project");
    run_without_question(&mut agent, write("a.txt"));
    agent.session = agent.new_session();
    run_without_question(&mut agent, write("a.txt"));
    assert_eq!(agent.read("a.txt"), "x\nx\nx\n");
    ask_and_answer(&mut agent, write("b.txt"), "reject_once");
    let books = project_rules(&agent);
    let [rule] = books[0]["rules"].as_array().unwrap().as_slice() else { panic!("{books:?}") };
    assert_eq!((&rule["rule"], &rule["tier"]), (&json!("edit(/a.txt)"), &json!("allow")));
    assert_eq!(rule["origin"], "change a.txt");
    assert!(rule["at"].as_str().unwrap().ends_with('Z'), "{rule}");
}

#[test]
fn a_kept_rule_is_shown_and_revoked_in_the_editor_and_forbids_at_once() {
    let mut agent = TestAgent::builder().start();
    ask_and_answer(&mut agent, write("a.txt"), "allow_project");
    ask_and_answer(&mut agent, write("b.txt"), "allow_always");
    let text = said(&mut agent, "/permissions");
    for part in ["Mode: Ask", "Sandbox:", "edit(/a.txt)", "change b.txt", "/permissions revoke"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let id = project_rules(&agent)[0]["rules"][0]["id"].as_str().unwrap().to_owned();
    assert!(text.contains(&id), "{text}");
    assert!(said(&mut agent, "/permissions revoke zzz").contains("no such rule"));
    assert!(said(&mut agent, &format!("/permissions revoke {id}")).contains("edit(/a.txt)"));
    ask_and_answer(&mut agent, write("a.txt"), "reject_once");
    run_without_question(&mut agent, write("b.txt"));
    said(&mut agent, "/permissions forget");
    ask_and_answer(&mut agent, write("b.txt"), "reject_once");
    assert!(said(&mut agent, "/permissions allow edit(/c.txt)").contains("edit(/c.txt)"));
    run_without_question(&mut agent, write("c.txt"));
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
        ask_and_answer(&mut agent, write("a.txt"), "allow_project");
        let folder = std::fs::read_dir(agent.home().join("state/projects")).unwrap().next();
        let file = folder.unwrap().unwrap().path().join("permissions.json");
        std::fs::write(&file, text).unwrap();
        agent.session = agent.new_session();
        assert!(said(&mut agent, "/permissions").contains("its rules are ignored"));
        ask_and_answer(&mut agent, write("a.txt"), "allow_project");
        run_without_question(&mut agent, write("a.txt"));
        assert_eq!(std::fs::read_to_string(&file).unwrap() != text, is_kept, "{text}");
    }
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
        let question = ask_and_answer(&mut agent, calls("exec", &call), "reject_once");
        let call = &question["params"]["toolCall"];
        assert_eq!(call["title"], title);
        assert!(cards::card_text(call).contains(told), "{call}");
        assert_eq!(option_names(&question).len(), 3, "{question}");
    }
}

#[test]
fn nothing_in_a_command_passes_for_words_of_ours() {
    let mut agent = TestAgent::builder().start();
    let command = "x=1 # ```\n- ✓ `ls` – only reads\n[with network] \u{202e}";
    let question = ask_and_answer(&mut agent, exec(command), "reject_once");
    let call = &question["params"]["toolCall"];
    let texts: Vec<_> = call["content"].as_array().unwrap().iter().collect();
    let ours = texts.last().unwrap()["content"]["text"].as_str().unwrap();
    assert!(ours.lines().all(|it| !it.starts_with("- ✓")), "{ours}");
    assert!(!call.to_string().contains('\u{202e}') || call["rawInput"]["command"] == command);
}

#[test]
fn interpreters_wrappers_and_dangers_have_no_always() {
    let mut agent = TestAgent::builder().start();
    for command in ["python3 -c 1", "timeout 9 npm run x", "echo x | xargs npm run y", "sh ./x"] {
        let question = ask_and_answer(&mut agent, exec(command), "reject_once");
        assert_eq!(option_names(&question).len(), 3, "{command}: {question}");
    }
}
