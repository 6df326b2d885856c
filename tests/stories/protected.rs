//! Protected files, which other programs execute or obey: changing them requires permission in
//! every mode, and they can only be allowed once.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "x" }))
}

#[test]
fn a_protected_file_requires_permission_in_every_mode_that_allows_changes() {
    for mode in ["ask", "auto-edit", "auto", "full"] {
        let usual = [".git/hooks/pre-commit", ".vscode/tasks.json", ".GIT/config", ".envrc"];
        for path in usual.into_iter().chain(["deploy/run"]) {
            let mut agent = TestAgent::builder()
                .own_file("config/config.toml", "[sandbox]\nprotect = ['deploy']")
                .variable("TURNWRIGHT_MODE", mode)
                .model(json!([write(path), says("Ok.")]))
                .start();
            let id = agent.prompt("go");
            let question = agent.wait_for_request("session/request_permission");
            agent.choose(&question, "reject_once");
            assert_eq!(agent.stop_reason(&id), "end_turn");
            assert!(!agent.path(path).exists(), "{mode} {path}");
        }
    }
}

#[test]
fn a_protected_file_can_only_be_allowed_once() {
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "full")
        .model(json!([write(".envrc"), write(".envrc"), write("a.txt"), says("Ok.")]))
        .permission("allow_always")
        .start();
    // The permission requests do not offer `allow_always`, so this answer does not allow the
    // writes.
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(&agent), 2);
    assert!(agent.path("a.txt").exists());
}

#[test]
fn what_is_written_to_one_name_of_a_file_does_not_change_the_others() {
    let hook = ".git/hooks/pre-commit";
    let outside = turnwright_testing::temporary_folder();
    let store = outside.path().join("store");
    std::fs::write(&store, "old").unwrap();
    let edit = json!({ "path": "package", "edits": [{ "old_text": "old", "new_text": "new" }] });
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "auto")
        .file(hook, "old")
        .model(json!([write("link"), calls("edit_file", &edit), says("Ok.")]))
        .start();
    std::fs::hard_link(agent.path(hook), agent.path("link")).unwrap();
    std::fs::hard_link(&store, agent.path("package")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!((agent.read("link"), agent.read(hook)), ("x".to_owned(), "old".to_owned()));
    assert_eq!(agent.read("package"), "new");
    assert_eq!(std::fs::read_to_string(&store).unwrap(), "old");
}

#[test]
fn the_result_says_how_many_other_names_have_the_old_content() {
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "auto")
        .file("a", "old")
        .model(json!([write("a"), says("Ok.")]))
        .start();
    for name in ["b", "c"] {
        std::fs::hard_link(agent.path("a"), agent.path(name)).unwrap();
    }
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!((agent.read("a"), agent.read("c")), ("x".to_owned(), "old".to_owned()));
    let result = cards::results(&agent, 1).pop().unwrap();
    let expected = "a has 2 other names (hard links), which keep the old content.";
    assert!(result.contains(expected), "{result}");
}
