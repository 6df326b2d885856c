//! `history`: what the tools have done before.

use serde_json::json;

use crate::agent::TestAgent;
use crate::cards;

#[test]
fn the_own_session_is_free_and_the_others_are_asked_about() {
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
