//! A session store may be locked, damaged or written by a newer program. The agent tells the user,
//! and goes on.

use std::io::{Seek, SeekFrom, Write};
#[cfg(unix)]
use std::process::Command;

use rusqlite::{Connection, Row};
use serde_json::json;
use turnwright_testing::eventually;
#[cfg(unix)]
use turnwright_testing::process_waits;
use turnwright_testing::session_requests::{open, replayed_prompts};

use crate::agent::{TestAgent, TestAgentBuilder, says};

fn agent() -> TestAgentBuilder {
    TestAgent::builder().model(json!([says("one"), says("two"), says("three")]))
}

/// Writes everything from the write-ahead log into the database.
fn truncate_log(connection: &Connection) {
    eventually("no other writes", || {
        let is_busy = |row: &Row<'_>| row.get::<_, bool>(0);
        !connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_busy).unwrap()
    });
}

#[test]
fn a_locked_store_is_reported_and_waiting_entries_are_stored_later() {
    let mut agent = agent().start();
    assert_eq!(agent.turn("first"), "end_turn");
    let other = Connection::open(agent.home().join("state/sessions.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(agent.turn("second"), "end_turn");
    assert!(agent.thoughts().contains("Close the other program"), "{}", agent.thoughts());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(agent.turn("third"), "end_turn");
    let session = agent.session.clone();
    open(&mut agent, "session/load", &session);
    assert_eq!(replayed_prompts(&agent), ["first", "second", "third"]);
}

#[test]
fn a_damaged_store_is_moved_aside_and_reported_with_its_path() {
    for garbage in [&*"this is no database\n".repeat(1000), "short"] {
        let mut agent = agent().own_file("state/sessions.db", garbage).start();
        assert_eq!(agent.turn("hello"), "end_turn");
        assert!(agent.thoughts().contains("sessions.db.damaged-"), "{}", agent.thoughts());
        let session = agent.session.clone();
        open(&mut agent, "session/load", &session);
        assert_eq!(replayed_prompts(&agent), ["hello"]);
        let files = std::fs::read_dir(agent.home().join("state")).unwrap();
        let kept = files.map(|it| it.unwrap().path());
        let kept = kept.filter(|it| it.to_string_lossy().contains("damaged-"));
        let kept: Vec<_> = kept.map(|it| std::fs::read_to_string(it).unwrap()).collect();
        assert_eq!(kept, [garbage]);
        #[cfg(unix)]
        nobody_else_can_read_state(&agent);
    }
}

/// Windows has no mode bits: the folder of a user is closed to others as a whole.
#[cfg(unix)]
fn nobody_else_can_read_state(agent: &TestAgent) {
    let list =
        process_waits::output(Command::new("find").arg(agent.home()).args(["-perm", "/077"]))
            .unwrap();
    let open = String::from_utf8(list.stdout).unwrap();
    let exposed = open.lines().filter(|it| it.contains("/state/"));
    assert_eq!(exposed.count(), 0, "other users can read some of these files: {open}");
}

#[test]
fn a_session_is_loaded_whole_although_an_index_is_damaged() {
    let mut agent = agent().start();
    assert_eq!(agent.turn("hello"), "end_turn");
    let path = agent.home().join("state/sessions.db");
    let other = Connection::open(&path).unwrap();
    truncate_log(&other);
    let query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_entries_1'";
    let page: u64 = other.query_row(query, [], |it| it.get(0)).unwrap();
    drop(other);
    // Only this page, because the agent may tidy up the others at the same time.
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start((page - 1) * 4096)).unwrap();
    file.write_all(&[0xA5; 4096]).unwrap();
    let session = agent.session.clone();
    open(&mut agent, "session/load", &session);
    assert_eq!(replayed_prompts(&agent), ["hello"]);
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(agent.thoughts().contains("sessions.db.damaged-"), "{}", agent.thoughts());
    assert!(!agent.thoughts().contains("Incomplete"), "{}", agent.thoughts());
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
    assert!(
        agent.thoughts().contains("made by another version of turnwright"),
        "{}",
        agent.thoughts()
    );
    let session = agent.session.clone();
    open(&mut agent, "session/load", &session);
    assert_eq!(replayed_prompts(&agent), ["hello"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
