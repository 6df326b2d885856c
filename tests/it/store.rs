//! The store of sessions may be full, locked, damaged or somebody else's: the user is told, and the
//! agent goes on.

use std::process::Command;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, says};
use crate::ended;

fn agent() -> TestAgentBuilder {
    TestAgent::builder().model(json!([says("one"), says("two"), says("three")]))
}

/// Whether file systems can be mounted here. A test that needs it says so and does nothing.
pub fn can_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    let status = ended::status(Command::new("unshare").args(["--mount", "sh", "-c", script]));
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
    assert!(ended::status(&mut command).unwrap().success());
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
fn a_program_that_locks_the_store_is_told_and_what_waited_is_kept_afterwards() {
    let mut agent = agent().start();
    assert_eq!(agent.turn("first"), "end_turn");
    let other = Connection::open(agent.home().join("state/sessions.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(agent.turn("second"), "end_turn");
    assert!(agent.thoughts().contains("Close the other program"), "{}", agent.thoughts());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(agent.turn("third"), "end_turn");
    let session = agent.session.clone();
    load(&mut agent, &session);
    assert_eq!(replayed(&agent), ["first", "second", "third"]);
}

#[test]
fn a_damaged_store_is_moved_aside_and_told_with_its_place() {
    let garbage = "this is no database\n".repeat(1000);
    let mut agent = agent().own_file("state/sessions.db", &garbage).start();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert!(agent.thoughts().contains("sessions.db.damaged-"), "{}", agent.thoughts());
    let session = agent.session.clone();
    load(&mut agent, &session);
    assert_eq!(replayed(&agent), ["hello"]);
    let files = std::fs::read_dir(agent.home().join("state")).unwrap().map(|it| it.unwrap().path());
    let kept = files.filter(|it| it.to_string_lossy().contains("damaged-"));
    let kept: Vec<_> = kept.map(|it| std::fs::read_to_string(it).unwrap()).collect();
    assert_eq!(kept, [garbage]);
    let list =
        ended::output(Command::new("find").arg(agent.home()).args(["-perm", "/077"])).unwrap();
    let open = String::from_utf8(list.stdout).unwrap();
    let ours = open.lines().filter(|it| it.contains("/state/"));
    assert_eq!(ours.count(), 0, "others can look into {open}");
}

#[test]
fn pages_that_are_overwritten_under_the_agent_stop_nobody() {
    let mut agent = agent().start();
    assert_eq!(agent.turn("hello"), "end_turn");
    let path = agent.home().join("state/sessions.db");
    let other = Connection::open(&path).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::write(&path, vec![0xA5; usize::try_from(length).unwrap()]).unwrap();
    let session = agent.session.clone();
    // Whether it is an error or has lost its past depends on who finds it first.
    load(&mut agent, &session);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(agent.thoughts().contains("sessions.db.damaged-"), "{}", agent.thoughts());
}

#[test]
fn a_store_of_a_newer_program_is_left_alone() {
    let mut agent = agent().spawn();
    let path = agent.home().join("state/sessions.db");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 999").unwrap();
    let before = std::fs::read(&path).unwrap();
    agent.call("initialize", &json!({ "protocolVersion": 1 }));
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert!(agent.thoughts().contains("made by a newer turnwright"), "{}", agent.thoughts());
    let session = agent.session.clone();
    load(&mut agent, &session);
    assert_eq!(replayed(&agent), ["hello"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
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
