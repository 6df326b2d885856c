//! The `history` tool, which searches the tool calls of this session or of all sessions.

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::TestAgent;

#[test]
fn searching_all_sessions_requires_permission() {
    let arguments = json!({ "query": "migration" });
    let (agent, result) = cards::run(TestAgent::builder(), "history", &arguments);
    assert!(result.starts_with("Nothing found."), "{result}");
    assert_eq!(cards::questions(&agent), 0);
    let card = cards::card(&agent, 0);
    assert_eq!(
        (&card["title"], &card["kind"]),
        (&json!("History: \"migration\""), &json!("search"))
    );

    let arguments = json!({ "query": "migration", "session": "all" });
    let (agent, _) = cards::run(TestAgent::builder(), "history", &arguments);
    assert_eq!(cards::questions(&agent), 1);
    assert_eq!(cards::card(&agent, 0)["title"], "History: \"migration\" in all sessions");
    let (agent, result) =
        cards::run(TestAgent::builder(), "history", &json!({ "status": "great" }));
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
    assert!(result.contains("ok or failed"), "{result}");
}

#[test]
fn calls_of_an_earlier_process_are_found_with_permission() {
    let first = TestAgent::builder().file("a.txt", "migration-9\n");
    let (mut agent, _) = cards::run(first, "read_file", &json!({ "path": "a.txt" }));
    let state = agent.home().join("state");
    agent.close();
    let mut second = TestAgent::builder().permission("allow_once");
    for name in ["sessions.db", "sessions.db-wal"] {
        if let Ok(bytes) = std::fs::read(state.join(name)) {
            second = second.own_bytes(&format!("state/{name}"), bytes);
        }
    }
    let arguments = json!({ "query": "MIGRATION-9", "session": "all" });
    let (agent, result) = cards::run(second, "history", &arguments);
    assert!(result.contains("read_file ok") && result.contains("a.txt"), "{result}");
    assert_eq!(cards::questions(&agent), 1);
}
