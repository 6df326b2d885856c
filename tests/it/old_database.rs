//! Compatibility of the store: this build reads a database of version 5, as badf78d6 left it, without
//! losing anything. Its rows were written at commit 937d324. The database has an edit, a command, a
//! cancelled and a killed turn, an undo, a rewind, a fork, a picture and an archived session.

use std::io::Read;
use std::process::Stdio;

use flate2::read::GzDecoder;
use serde_json::Value;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, subcommand};

const DATABASE: &[u8] = include_bytes!("../data/database-badf78d6/sessions.db.gz");
/// The output of `sessions list --all --archived --json` at 937d324, but for slash commands, which
/// do not count as turns any more.
const SESSIONS: &str = include_str!("../data/database-badf78d6/sessions.jsonl");
/// The output of `sessions export --json` at 937d324, by session.
const EXPORTS: &str = include_str!("../data/database-badf78d6/exports.json");
/// The session with the edit, the command, the cancelled turn and the undo.
const EDITED: &str = "93d93d45-1752-40bd-8820-0c2232feee82";

fn agent() -> TestAgent {
    let mut database = Vec::new();
    GzDecoder::new(DATABASE).read_to_end(&mut database).unwrap();
    TestAgent::builder()
        .own_bytes("state/sessions.db", database)
        // Without this setting the agent would delete the old sessions.
        .own_file("config/config.toml", "[sessions]\nkeep_days = 0\n")
        .start()
}

fn output_of(agent: &TestAgent, arguments: &[&str]) -> String {
    let mut command = subcommand(agent.home(), arguments);
    command.stdin(Stdio::null()).current_dir(agent.workspace());
    let output = process_waits::output(&mut command).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_session_of_an_old_database_is_listed_and_exported_as_it_was() {
    let mut agent = agent();
    let expected = lines(SESSIONS);
    let listed = lines(&output_of(&agent, &["sessions", "list", "--all", "--archived", "--json"]));
    for session in &expected {
        assert!(listed.contains(session), "{session} is not in {listed:?}");
    }
    let exports: Value = serde_json::from_str(EXPORTS).unwrap();
    let exports = exports.as_object().unwrap();
    assert_eq!(exports.len(), expected.len());
    for (session, expected) in exports {
        let text = output_of(&agent, &["sessions", "export", "--json", session]);
        let exported: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(&exported, expected, "session {session}");
    }
    agent.load(EDITED);
    assert!(agent.text().contains("Done. The sum is right now."), "{}", agent.text());
}
