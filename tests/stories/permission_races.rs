//! What changes while a question is open (R-PERM-3): the answer was about what was shown, so
//! nothing else may be done with it.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn write(path: &str, mode: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "new\n", "mode": mode }))
}

/// Prompts for a write, changes the world while the question is open, then says yes. Returns
/// what the model was told.
fn meanwhile(agent: &mut TestAgent, reply: Value, change: impl FnOnce(&TestAgent)) -> String {
    agent.model().push(reply).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    change(agent);
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(agent);
    cards::results(agent, agent.model().requests().len() - 1).pop().unwrap()
}

fn status(agent: &TestAgent) -> Value {
    let last = cards::ids(agent).len() - 1;
    cards::card(agent, last)["status"].clone()
}

#[test]
fn a_file_that_changed_on_disk_is_not_written() {
    for mode in ["overwrite", "append"] {
        let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
        let change = |it: &TestAgent| fs::write(it.path("a.txt"), "the user's own\n").unwrap();
        let result = meanwhile(&mut agent, write("a.txt", mode), change);
        assert!(result.contains("changed while permission was asked"), "{result}");
        assert_eq!(status(&agent), "failed");
        assert_eq!(agent.read("a.txt"), "the user's own\n");
    }
}

#[test]
fn a_file_that_was_deleted_is_not_written() {
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    let change = |it: &TestAgent| fs::remove_file(it.path("a.txt")).unwrap();
    meanwhile(&mut agent, write("a.txt", "overwrite"), change);
    assert_eq!(status(&agent), "failed");
    assert!(!agent.path("a.txt").exists());
}

#[test]
fn a_file_that_came_into_being_is_not_replaced() {
    let mut agent = TestAgent::builder().start();
    let change = |it: &TestAgent| fs::write(it.path("a.txt"), "the user's own\n").unwrap();
    meanwhile(&mut agent, write("a.txt", "overwrite"), change);
    assert_eq!(status(&agent), "failed");
    assert_eq!(agent.read("a.txt"), "the user's own\n");
}

#[test]
fn a_file_that_did_not_change_is_written() {
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    meanwhile(&mut agent, write("a.txt", "append"), |_| {});
    assert_eq!(status(&agent), "completed");
    assert_eq!(agent.read("a.txt"), "shown\nnew\n");
}

#[test]
fn a_folder_swapped_for_a_link_leads_nowhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt"] {
        let mut agent = TestAgent::builder().file("sub/a.txt", "shown\n").start();
        fs::write(elsewhere.path().join("a.txt"), "shown\n").unwrap();
        let change = |it: &TestAgent| {
            fs::rename(it.path("sub"), it.path("old")).unwrap();
            symlink(elsewhere.path(), it.path("sub")).unwrap();
        };
        let result = meanwhile(&mut agent, write(&format!("sub/{name}"), "overwrite"), change);
        assert!(result.contains("moved"), "{result}");
        assert_eq!(status(&agent), "failed");
        let outside = fs::read_dir(elsewhere.path()).unwrap().count();
        assert_eq!(outside, 1, "something was written outside");
        assert_eq!(fs::read_to_string(elsewhere.path().join("a.txt")).unwrap(), "shown\n");
        assert_eq!(agent.read("old/a.txt"), "shown\n");
    }
}

#[test]
fn a_link_that_was_pointed_elsewhere_is_not_written_through() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("b.txt");
    fs::write(&outside, "shown\n").unwrap();
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    symlink("a.txt", agent.path("link")).unwrap();
    let change = |it: &TestAgent| {
        fs::remove_file(it.path("link")).unwrap();
        symlink(&outside, it.path("link")).unwrap();
    };
    let result = meanwhile(&mut agent, write("link", "overwrite"), change);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "shown\n", "written outside");
    assert_eq!(agent.read("a.txt"), "shown\n", "the model and the user think of another file");
    assert!(result.contains("moved"), "{result}");
    assert_eq!(status(&agent), "failed");
}

#[test]
fn a_file_swapped_for_a_link_leads_nowhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("b.txt");
    fs::write(&outside, "shown\n").unwrap();
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    let change = |it: &TestAgent| {
        fs::remove_file(it.path("a.txt")).unwrap();
        symlink(&outside, it.path("a.txt")).unwrap();
    };
    let result = meanwhile(&mut agent, write("a.txt", "overwrite"), change);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "shown\n", "written outside");
    assert!(result.contains("moved"), "{result}");
    assert_eq!(status(&agent), "failed");
}

#[test]
fn a_buffer_that_changed_in_the_editor_is_not_written() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "disk\n")
        .capabilities(json!({ "fs": { "readTextFile": true, "writeTextFile": true } }))
        .model(json!([write("a.txt", "overwrite"), says("Understood.")]))
        .start();
    let id = agent.prompt("go");
    let first = agent.wait_for_request("fs/read_text_file");
    agent.respond(&first, &json!({ "content": "shown\n" }));
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "allow_once");
    let second = agent.wait_for_request("fs/read_text_file");
    agent.respond(&second, &json!({ "content": "typed meanwhile\n" }));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!(status(&agent), "failed");
    assert!(!cards::requests(&agent).contains(&"fs/write_text_file".to_owned()));
    assert_eq!(agent.read("a.txt"), "disk\n");
}

#[test]
fn a_yes_after_the_cancel_runs_nothing() {
    let mut agent = TestAgent::builder().start();
    for reply in [calls("exec", &json!({ "command": "touch mark" })), write("mark", "overwrite")] {
        agent.model().push(reply).unwrap();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        agent.cancel();
        assert_eq!(agent.stop_reason(&id), "cancelled");
        agent.choose(&question, "allow_once");
        agent.sync();
        agent.model().push(says("Fine.")).unwrap();
        assert_eq!(agent.turn("anything else?"), "end_turn");
        assert!(!agent.path("mark").exists());
    }
    cards::check(&agent);
}
