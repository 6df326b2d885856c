//! A script deletes the history of the project's repository: it is there again when the script has ended.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, runs, says};

/// Runs a script in the workspace outside of the agent, as the user would, and returns its output.
fn by_hand(folder: &Path, script: &str) -> String {
    let script = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com \
         GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com; {script}"
    );
    let mut shell = Command::new("sh");
    let output = process_waits::output(shell.args(["-c", &script]).current_dir(folder)).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An agent in a repository with a packed commit, and one that is not packed.
fn agent(script: &str, replies: Value) -> TestAgent {
    let agent = TestAgent::builder()
        .file("src/main.rs", "fn main() {}\n")
        .file("clean.sh", script)
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("allow_once")
        .model(replies)
        .initialize();
    by_hand(
        agent.workspace(),
        "git init -q -b main; git add .; git commit -qm one; git branch old; git gc -q; \
         echo more > more; git add more; git commit -qm two; git branch new",
    );
    agent
}

const LOG: &str = "git fsck --full 2>&1 && git log --oneline --all --format=%s";

#[test]
fn a_script_that_deletes_the_history_loses_nothing() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    for script in [
        "rm -rf .git/objects src",
        "rm -rf .git/refs .git/packed-refs .git/logs .git/HEAD .git/objects src",
        "chmod -R u+w .git/objects; find .git/objects -type f -delete; rm -r src",
        "rm -rf .git/objects/pack src",
        "rm -rf .git/objects/[0-9a-f][0-9a-f] src",
        "rm -rf .git src",
    ] {
        let mut agent = agent(script, json!([runs("sh clean.sh"), says("Ok.")]));
        agent.session = agent.new_session();
        let before = by_hand(agent.workspace(), LOG);
        assert!(before.contains("two"), "{before}");
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(!agent.path("src").exists(), "{script}");
        assert_eq!(by_hand(agent.workspace(), LOG), before, "{script}");
        let answer = agent.turn_text("/undo");
        assert_eq!(agent.read("src/main.rs"), "fn main() {}\n", "{script}: {answer}");
        assert_eq!(by_hand(agent.workspace(), "git status --porcelain"), "", "{script}");
    }
}

#[test]
fn git_in_the_same_line_does_not_give_the_history_up() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    for line in ["git status -s; sh clean.sh", "git gc -q; sh clean.sh"] {
        let replies = json!([runs(line), says("Ok.")]);
        let mut agent = agent("rm -rf .git/objects/pack", replies);
        agent.session = agent.new_session();
        let before = by_hand(agent.workspace(), LOG);
        assert_eq!(agent.turn("go"), "end_turn");
        assert_eq!(by_hand(agent.workspace(), LOG), before, "{line}");
        let result = agent.model_request(1)["messages"].to_string();
        assert!(result.contains("It is there again"), "{result}");
    }
}

#[test]
fn a_script_that_deletes_the_repository_of_a_nested_clone_loses_nothing() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    let replies = json!([runs("sh clean.sh"), says("Ok.")]);
    let mut agent = agent("rm -rf sub/.git gone", replies);
    by_hand(agent.workspace(), "git clone -q . sub; git clone -q . gone");
    agent.session = agent.new_session();
    let nested = agent.path("sub");
    let before = by_hand(&nested, LOG);
    assert!(before.contains("two"), "{before}");
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(by_hand(&nested, LOG), before);
    assert!(!agent.path("gone").exists());
}

#[test]
fn what_was_committed_between_two_scripts_is_kept_and_what_git_deletes_stays_deleted() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    let script = "if [ -e third ]; then rm -rf .git/objects; else git branch -q -D old; fi";
    let replies = json!([runs("sh clean.sh"), says("Ok."), runs("sh clean.sh"), says("Ok.")]);
    let mut agent = agent(script, replies);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(by_hand(agent.workspace(), "git branch --format='%(refname:short)'"), "main\nnew\n");
    by_hand(agent.workspace(), "echo 3 > third; git add third; git commit -qm three");
    assert_eq!(agent.turn("go on"), "end_turn");
    let log = by_hand(agent.workspace(), LOG);
    assert!(log.contains("three\ntwo\none\n"), "{log}");
}

#[test]
fn nothing_is_put_back_behind_a_link() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    let outside = turnwright_testing::temporary_folder();
    let outside_path = outside.path().display();
    let script = format!(
        "rm -rf .git/objects .git/refs .git/HEAD; ln -s {outside_path} .git/objects; ln -s {outside_path} .git/refs"
    );
    let mut agent = agent(&script, json!([runs("sh clean.sh"), says("Ok.")]));
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let result = agent.model_request(1)["messages"].to_string();
    assert!(result.contains("[history: "), "{result}");
}

#[test]
fn a_repository_without_branches_and_submodules_without_objects_are_no_loss() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    let mut agent = TestAgent::builder()
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/config", "[core]\n")
        .file(".git/modules/sub/HEAD", "ref: refs/heads/main\n")
        .file(".git/modules/sub/config", "[core]\n")
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("allow_once")
        .model(json!([runs("touch a; sh -c 'touch b'"), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_request(1)["messages"].to_string();
    assert!(agent.path("b").exists() && !result.contains("[history"), "{result}");
}
