//! The store of sessions may be full, read-only, or in use by another process: the user is told, and the
//! agent goes on.

use std::process::Command;

use serde_json::{Value, json};
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, TestAgentBuilder, says};

fn agent() -> TestAgentBuilder {
    TestAgent::builder().model(json!([says("one"), says("two"), says("three")]))
}

/// Whether file systems can be mounted here. A test that needs it says so and does nothing.
pub fn can_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    let status =
        process_waits::status(Command::new("unshare").args(["--mount", "sh", "-c", script]));
    let can = status.is_ok_and(|it| it.success());
    if !can {
        eprintln!("SKIPPED: nothing can be mounted here");
    }
    can
}

fn load(agent: &mut TestAgent, session: &str) -> Value {
    let params = json!({ "sessionId": session, "cwd": agent.workspace(), "mcpServers": [] });
    agent.call("session/load", &params)
}

/// What the user has said, of a conversation that was loaded.
fn replayed(agent: &TestAgent) -> Vec<String> {
    let updates = agent.updates();
    let users = updates.iter().filter(|it| it["sessionUpdate"] == "user_message_chunk");
    users
        .filter_map(|it| Some(it["content"]["text"].as_str()?.chars().take(20).collect()))
        .collect()
}

/// A text that cannot be made much smaller.
fn noise(length: usize) -> String {
    let mut number = 1_u64;
    let char = |_| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + u8::try_from((number >> 33) % 90).unwrap())
    };
    (0..length).map(char).collect()
}

#[test]
fn a_full_disk_is_told_and_nothing_is_lost_when_there_is_room_again() {
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
    assert!(agent.thoughts().contains("Free some space on that disk"), "{}", agent.thoughts());
    let home = agent.home().join("state").to_string_lossy().into_owned();
    let remount = ["-o", "remount,size=32m", &home];
    let pid = agent.pid().to_string();
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid, "--mount", "mount"]).args(remount);
    assert!(process_waits::status(&mut command).unwrap().success());
    assert_eq!(agent.turn("short"), "end_turn");
    // A busy machine may need longer than the turn to write what was held back.
    let mut more = 0;
    while !agent.thoughts().contains("being saved again") && more < 5 {
        agent.model().push(says("More.")).unwrap();
        assert_eq!(agent.turn("more"), "end_turn");
        more += 1;
    }
    assert!(agent.thoughts().contains("being saved again"), "{}", agent.thoughts());
    let session = agent.session.clone();
    let answer = load(&mut agent, &session);
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(replayed(&agent)[..2], [&noise(20), "short"]);
}

#[test]
fn a_store_that_cannot_be_written_is_told_and_a_load_is_a_clear_error() {
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
    let answer = load(&mut agent, &session);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("state folder and its files writable"), "{answer}");
}

#[test]
fn a_session_has_one_writer_and_the_second_is_told_which_process_that_is() {
    let mut first = agent().start();
    assert_eq!(first.turn("hello"), "end_turn");
    let session = first.session.clone();
    let home = first.home().to_string_lossy().into_owned();
    let mut second = agent().variable("TURNWRIGHT_HOME", &home).initialize();
    let answer = load(&mut second, &session);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("open in another process ({})", first.pid())), "{answer}");
    // It does not get in its own way.
    assert!(load(&mut first, &session)["result"].is_object());
    first.call("session/close", &json!({ "sessionId": session }));
    second.session = session.clone();
    assert!(load(&mut second, &session)["result"].is_object());
    assert_eq!(replayed(&second), ["hello"]);
}
