//! Permission requests (R-PERM): which calls need one, which answers allow a call, and which
//! answers are remembered.

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::questions::{ask, last_result};

use crate::agent::{TestAgent, calls, runs, says};

#[test]
fn r_perm_1_and_2_a_permission_request_shows_the_call_and_offers_all_options() {
    let mut agent = TestAgent::builder().file("a.txt", "old\n").start();
    let write = calls("write_file", &json!({ "path": "a.txt", "content": "new\n" }));
    let (id, question) = ask(&mut agent, write);
    let call = &question["params"]["toolCall"];
    assert_eq!(question["params"]["sessionId"], agent.session.as_str());
    assert_eq!(call["toolCallId"], cards::ids(&agent)[0].as_str());
    assert_eq!(call["title"], "Edit a.txt");
    assert_eq!(call["kind"], "edit");
    let diff = json!({ "type": "diff", "path": agent.path("a.txt"),
        "oldText": "old\n", "newText": "new\n" });
    assert_eq!(call["content"], json!([diff]), "the user must see the real change");
    let options: Vec<_> = question["params"]["options"].as_array().unwrap().clone();
    let ids: Vec<_> = options.iter().map(|it| it["optionId"].as_str().unwrap()).collect();
    let kinds: Vec<_> = options.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once", "reject_always"]);
    assert_eq!(ids, ["allow_once", "allow_always", "reject_once", "reject_always"]);
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
}

#[test]
fn r_perm_2_a_permission_request_shows_the_whole_command() {
    let mut agent = TestAgent::builder().start();
    let command = "echo one\necho two \u{202e}# hidden\u{1b}[2K";
    let (id, question) = ask(&mut agent, runs(command));
    let call = &question["params"]["toolCall"];
    let expected = "echo one\necho two \\u{202e}# hidden\\u{1b}[2K";
    assert_eq!(call["title"], expected);
    assert!(cards::card_text(call).contains(expected), "{call}");
    assert_eq!(
        call["rawInput"]["command"], command,
        "the raw input must be the command that would run"
    );
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
}

#[test]
fn r_perm_3_nothing_happens_before_the_answer() {
    let mut agent = TestAgent::builder().file("a.txt", "old").start();
    let replies = [
        runs("touch mark"),
        calls("write_file", &json!({ "path": "a.txt", "content": "new" })),
        calls("write_file", &json!({ "path": "deep/folder/b.txt", "content": "new" })),
    ];
    for reply in replies {
        let (id, question) = ask(&mut agent, reply);
        let open = agent.log.len();
        agent.settle(std::time::Duration::from_millis(300));
        assert_eq!(agent.log.len(), open, "the agent must wait for the answer");
        let names: Vec<_> = std::fs::read_dir(agent.workspace()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(agent.read("a.txt"), "old");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
    let names: Vec<_> = std::fs::read_dir(agent.workspace()).unwrap().collect();
    assert_eq!(names.len(), 1, "a rejected call has created a file: {names:?}");
    cards::check(&agent);
}

#[test]
fn r_perm_4_a_rejection_fails_the_call_and_the_turn_goes_on() {
    for option in ["reject_once", "reject_always"] {
        let mut agent = TestAgent::builder().start();
        let (id, question) = ask(&mut agent, runs("touch mark"));
        agent.choose(&question, option);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        cards::check(&agent);
        assert_eq!(cards::card(&agent, 0)["status"], "failed");
        assert!(last_result(&agent).contains("rejected"), "{}", last_result(&agent));
        assert!(agent.text().contains("Understood."));
        assert!(!agent.path("mark").exists());
    }
}

#[test]
fn r_perm_5_allow_always_covers_exactly_one_file_in_every_spelling() {
    let mut agent = TestAgent::builder().file("sub/x", "").start();
    let write = |path: &str| calls("write_file", &json!({ "path": path, "content": path }));
    let (id, question) = ask(&mut agent, write("a.txt"));
    agent.choose(&question, "allow_always");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let absolute = agent.path("a.txt").display().to_string();
    for same in ["a.txt", "./a.txt", "sub/../a.txt", &absolute] {
        agent.model().push(write(same)).unwrap();
        agent.model().push(says("Again.")).unwrap();
        assert_eq!(agent.turn("again"), "end_turn");
        assert_eq!(agent.read("a.txt"), *same);
    }
    assert_eq!(cards::questions(&agent), 1);
    let (id, question) = ask(&mut agent, write("b.txt"));
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
}

#[test]
fn r_perm_5_allow_always_ends_with_the_session() {
    let mut agent = TestAgent::builder().start();
    for option in ["allow_always", "reject_once"] {
        let write = json!({ "path": "log", "content": "x\n", "mode": "append" });
        let (id, question) = ask(&mut agent, calls("write_file", &write));
        agent.choose(&question, option);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        agent.session = agent.new_session();
    }
    assert_eq!(agent.read("log"), "x\n");
    cards::check(&agent);
}

#[test]
fn r_perm_6_only_a_selected_allow_option_allows_the_call() {
    let answers = [
        json!({}),
        json!(null),
        json!("allow_once"),
        json!({ "outcome": {} }),
        json!({ "outcome": "allow_once" }),
        json!({ "outcome": { "outcome": "selected" } }),
        json!({ "outcome": { "outcome": "selected", "optionId": "zzz" } }),
        json!({ "outcome": { "outcome": "selected", "optionId": "" } }),
        json!({ "outcome": { "outcome": "selected", "optionId": "ALLOW_ONCE" } }),
        json!({ "outcome": { "outcome": "selected", "optionId": 0 } }),
        json!({ "outcome": { "outcome": "approved", "optionId": "allow_once" } }),
        json!({ "optionId": "allow_once" }),
    ];
    let mut agent = TestAgent::builder().start();
    for answer in answers {
        let (id, question) = ask(&mut agent, runs("touch mark"));
        agent.respond(&question, &answer);
        assert_eq!(agent.stop_reason(&id), "end_turn", "{answer}");
        assert!(!agent.path("mark").exists(), "{answer} has allowed the call");
        assert!(last_result(&agent).contains("not executed"), "{}", last_result(&agent));
    }
    let (id, question) = ask(&mut agent, runs("touch mark"));
    agent.refuse(&question, -32603, "the dialog crashed");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(!agent.path("mark").exists(), "an error has allowed the call");
    assert!(last_result(&agent).contains("not executed"), "{}", last_result(&agent));
    cards::check(&agent);
}

#[test]
fn only_reading_outside_the_project_requires_permission() {
    let elsewhere = turnwright_testing::temporary_folder();
    std::fs::write(elsewhere.path().join("secret"), "hunter2").unwrap();
    let mut agent = TestAgent::builder().file("a.txt", "here").start();
    #[cfg(unix)]
    std::os::unix::fs::symlink(elsewhere.path(), agent.path("link")).unwrap();
    let outside = elsewhere.path().join("secret").display().to_string();
    let dots = format!("{}{outside}", "../".repeat(20));
    // What leads out of the project on Windows has a drive, and there is no link.
    let others = if cfg!(unix) { &["link/secret", dots.as_str()][..] } else { &[] };
    for path in [outside.as_str()].iter().chain(others) {
        let (id, question) = ask(&mut agent, calls("read_file", &json!({ "path": path })));
        let text = cards::card_text(&question["params"]["toolCall"]);
        assert!(text.contains("Outside the project") && text.contains("secret"), "{path}: {text}");
        assert!(!text.contains("hunter2"), "the content must not be shown before the answer");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(!last_result(&agent).contains("hunter2"), "{path}");
    }
    // The folder above a project in `/tmp` is the session's own, so this goes up to the root.
    let up = "../".repeat(20);
    let folders = if cfg!(unix) { &[up.as_str(), "link", "/"][..] } else { &["..", "C:\\"] };
    for folder in folders {
        let (id, question) = ask(&mut agent, calls("list_dir", &json!({ "path": folder })));
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
    // One file outside of the project is enough to require permission for all of them.
    let both = json!({ "paths": ["a.txt", outside] });
    let (id, question) = ask(&mut agent, calls("read_file", &both));
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(last_result(&agent).contains("here") && last_result(&agent).contains("hunter2"));
    cards::check(&agent);
}
