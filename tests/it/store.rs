//! Failures of the session store: if the disk is full or read-only, or another process has the session
//! open, the user is told and the agent goes on.

use std::process::Command;

use serde_json::json;
use turnwright_testing::process_waits;
use turnwright_testing::session_requests::{open, replayed_prompts};

use crate::agent::{TestAgent, TestAgentBuilder, eventually, says};

fn agent() -> TestAgentBuilder {
    TestAgent::builder().model(json!([says("one"), says("two"), says("three")]))
}

/// Whether this process may mount file systems. Prints a note if the test has to skip.
pub fn can_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    let status =
        process_waits::status(Command::new("unshare").args(["--mount", "sh", "-c", script]));
    let can = status.is_ok_and(|it| it.success());
    if !can {
        eprintln!("SKIPPED: file systems cannot be mounted here");
    }
    can
}

/// A text that hardly compresses.
fn noise(length: usize) -> String {
    let mut number = 1_u64;
    let char = |_| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + u8::try_from((number >> 33) % 90).unwrap())
    };
    (0..length).map(char).collect()
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost_once_there_is_space() {
    if !can_mount() {
        return;
    }
    let mut agent = agent()
        .inside(
            "mkdir -p $TURNWRIGHT_HOME/state && mount -t tmpfs -o size=600k none \
             $TURNWRIGHT_HOME/state",
        )
        .start();
    assert_eq!(agent.turn(&noise(1_000_000)), "end_turn");
    // On a busy machine the turn may end before the fault is found.
    eventually("the user is told of the full disk", || {
        if agent.thoughts().contains("Free some space on that disk") {
            return true;
        }
        agent.model().push(says("More.")).unwrap();
        assert_eq!(agent.turn("more"), "end_turn");
        false
    });
    let state = agent.home().join("state").to_string_lossy().into_owned();
    let remount = ["-o", "remount,size=32m", &state];
    let pid = agent.pid().to_string();
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid, "--mount", "mount"]).args(remount);
    assert!(process_waits::status(&mut command).unwrap().success());
    assert_eq!(agent.turn("short"), "end_turn");
    // On a busy machine the delayed writes may take longer than the turn.
    eventually("the user is told that it is saved again", || {
        if agent.thoughts().contains("being saved again") {
            return true;
        }
        agent.model().push(says("More.")).unwrap();
        assert_eq!(agent.turn("more"), "end_turn");
        false
    });
    let session = agent.session.clone();
    let answer = open(&mut agent, "session/load", &session);
    assert!(answer["result"].is_object(), "{answer}");
    let shown = replayed_prompts(&agent);
    assert!(shown[0] == noise(20) && shown.contains(&"short".to_owned()), "{shown:?}");
}

#[test]
fn a_read_only_store_is_reported_once_and_a_load_is_a_clear_error() {
    if !can_mount() {
        return;
    }
    let mut agent = agent()
        .inside(
            "mkdir -p $TURNWRIGHT_HOME/state && mount -t tmpfs -o ro none $TURNWRIGHT_HOME/state",
        )
        .start();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(agent.text(), "onetwo");
    assert_eq!(
        agent.thoughts().matches("state folder and its files writable").count(),
        1,
        "{}",
        agent.thoughts()
    );
    let session = agent.session.clone();
    let answer = open(&mut agent, "session/load", &session);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("state folder and its files writable"), "{answer}");
}

#[test]
fn the_second_process_to_open_a_session_is_told_who_has_it_and_can_fork_it() {
    let mut first = agent().spawn();
    let info = json!({ "name": "editor", "title": "An Editor", "version": "1" });
    first.call("initialize", &json!({ "protocolVersion": 1, "clientInfo": info }));
    first.session = first.new_session();
    assert_eq!(first.turn("hello"), "end_turn");
    let session = first.session.clone();
    let home = first.home().to_string_lossy().into_owned();
    let mut second = agent().variable("TURNWRIGHT_HOME", &home).initialize();
    let answer = open(&mut second, "session/load", &session);
    let message = answer["error"]["message"].as_str().unwrap();
    let holder = format!("the session is open in An Editor (process {}, for ", first.pid());
    assert!(message.starts_with(&holder) && message.contains("fork it"), "{answer}");
    let params = json!({ "sessionId": session, "cwd": second.workspace(), "mcpServers": [] });
    let fork = second.call("session/fork", &params);
    second.session = fork["result"]["sessionId"].as_str().expect("a fork").to_owned();
    assert_eq!(second.turn("more"), "end_turn");
    assert_eq!(second.model_transcript(0), ["user hello", "assistant one", "user more"]);
    // The first process can load its own session again.
    assert!(open(&mut first, "session/load", &session)["result"].is_object());
    first.call("session/close", &json!({ "sessionId": session }));
    second.session = session.clone();
    assert!(open(&mut second, "session/load", &session)["result"].is_object());
    assert_eq!(replayed_prompts(&second), ["hello"]);
}
