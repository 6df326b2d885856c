//! The limit on model requests per turn (R-TURN-6): a turn that reaches it runs no more commands.

use serde_json::json;
use turnwright_testing::{cards, command_lines};

use crate::agent::{TestAgent, calls, says};

#[test]
fn r_turn_6_the_request_cap_ends_the_turn_and_runs_no_more_tools() {
    let touch = |name: &str| calls("exec", &json!({ "command": command_lines::touch(name) }));
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MAX_TURN_REQUESTS", "2")
        .model(json!([
            touch("one"),
            touch("two"),
            says("One is done. "),
            touch("three"),
            says("Done."),
        ]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("for ever"), "max_turn_requests");
    cards::check(&agent);
    assert_eq!(agent.model().requests().len(), 3);
    assert!(agent.text().starts_with("One is done. The limit of 2 requests"), "{}", agent.text());
    assert!(agent.path("one").exists() && !agent.path("two").exists());
    // The next turn starts with a new limit, and the skipped call has a result in the history.
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(agent.path("three").exists());
    let results = cards::results(&agent, 4);
    assert!(results[1].starts_with("Not executed"), "{results:?}");
}
