//! Changes while a permission request is open (R-PERM-3): the answer applies to what was shown, so
//! a call whose file has changed is not executed.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn write(path: &str, mode: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "new\n", "mode": mode }))
}

/// Runs a turn with a write, calls `change` while the permission request is open, and then allows
/// the write. Returns the result that the model received.
fn run_with_change(agent: &mut TestAgent, reply: Value, change: impl FnOnce(&TestAgent)) -> String {
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
        let result = run_with_change(&mut agent, write("a.txt", mode), change);
        assert!(result.contains("changed while permission was asked"), "{result}");
        assert_eq!(status(&agent), "failed");
        assert_eq!(agent.read("a.txt"), "the user's own\n");
    }
}

#[test]
fn a_file_that_was_deleted_is_not_written() {
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    let change = |it: &TestAgent| fs::remove_file(it.path("a.txt")).unwrap();
    run_with_change(&mut agent, write("a.txt", "overwrite"), change);
    assert_eq!(status(&agent), "failed");
    assert!(!agent.path("a.txt").exists());
}

#[test]
fn a_file_that_was_created_is_not_replaced() {
    let mut agent = TestAgent::builder().start();
    let change = |it: &TestAgent| fs::write(it.path("a.txt"), "the user's own\n").unwrap();
    run_with_change(&mut agent, write("a.txt", "overwrite"), change);
    assert_eq!(status(&agent), "failed");
    assert_eq!(agent.read("a.txt"), "the user's own\n");
}

// Windows does not move a folder in which a process runs.
#[cfg(unix)]
#[test]
fn a_project_that_was_moved_while_a_question_waited_is_not_made_anew() {
    let mut agent = TestAgent::builder().start();
    let project = agent.path("project");
    fs::create_dir(&project).unwrap();
    let answer = agent.call("session/new", &json!({ "cwd": project, "mcpServers": [] }));
    answer["result"]["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    let change = |it: &TestAgent| fs::rename(&project, it.path("moved")).unwrap();
    let result = run_with_change(&mut agent, write("sub/a.txt", "overwrite"), change);
    assert!(result.contains("is gone: it was moved or deleted"), "{result}");
    assert_eq!(status(&agent), "failed");
    assert!(!project.exists());
}

#[test]
fn a_file_that_did_not_change_is_written() {
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    run_with_change(&mut agent, write("a.txt", "append"), |_| {});
    assert_eq!(status(&agent), "completed");
    assert_eq!(agent.read("a.txt"), "shown\nnew\n");
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_folder_that_was_replaced_by_a_link_is_not_followed() {
    let elsewhere = turnwright_testing::temporary_folder();
    for name in ["a.txt", "b.txt"] {
        let mut agent = TestAgent::builder().file("sub/a.txt", "shown\n").start();
        fs::write(elsewhere.path().join("a.txt"), "shown\n").unwrap();
        let change = |agent: &TestAgent| {
            fs::rename(agent.path("sub"), agent.path("old")).unwrap();
            symlink(elsewhere.path(), agent.path("sub")).unwrap();
        };
        let result =
            run_with_change(&mut agent, write(&format!("sub/{name}"), "overwrite"), change);
        assert!(result.contains("moved"), "{result}");
        assert_eq!(status(&agent), "failed");
        let outside = fs::read_dir(elsewhere.path()).unwrap().count();
        assert_eq!(outside, 1, "something was written outside");
        assert_eq!(fs::read_to_string(elsewhere.path().join("a.txt")).unwrap(), "shown\n");
        assert_eq!(agent.read("old/a.txt"), "shown\n");
    }
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_link_whose_target_was_changed_is_not_followed() {
    let elsewhere = turnwright_testing::temporary_folder();
    let outside = elsewhere.path().join("b.txt");
    fs::write(&outside, "shown\n").unwrap();
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    symlink("a.txt", agent.path("link")).unwrap();
    let change = |agent: &TestAgent| {
        fs::remove_file(agent.path("link")).unwrap();
        symlink(&outside, agent.path("link")).unwrap();
    };
    let result = run_with_change(&mut agent, write("link", "overwrite"), change);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "shown\n", "written outside");
    assert_eq!(
        agent.read("a.txt"),
        "shown\n",
        "the file of the permission request must not change"
    );
    assert!(result.contains("moved"), "{result}");
    assert_eq!(status(&agent), "failed");
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_file_that_was_replaced_by_a_link_is_not_followed() {
    let elsewhere = turnwright_testing::temporary_folder();
    let outside = elsewhere.path().join("b.txt");
    fs::write(&outside, "shown\n").unwrap();
    let mut agent = TestAgent::builder().file("a.txt", "shown\n").start();
    let change = |agent: &TestAgent| {
        fs::remove_file(agent.path("a.txt")).unwrap();
        symlink(&outside, agent.path("a.txt")).unwrap();
    };
    let result = run_with_change(&mut agent, write("a.txt", "overwrite"), change);
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
