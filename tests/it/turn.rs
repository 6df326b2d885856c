//! The prompt turn (R-TURN, R-CONT): what goes to the model, what comes back, how it ends.

use serde_json::json;

use crate::agent::{TestAgent, calls, says};

#[test]
fn r_turn_1_a_simple_prompt_ends_with_end_turn() {
    let mut agent = TestAgent::builder().model(json!([says("Hello there.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), "Hello there.");
    assert_eq!(agent.model_transcript(0), ["user hi"]);
}

#[test]
fn r_turn_4_tools_run_and_their_results_go_back_in_order() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "first\nsecond\n")
        .model(json!([calls("read_file", &json!({ "path": "a.txt" })), says("Two lines.")]))
        .start();
    assert_eq!(agent.turn("how many lines?"), "end_turn");
    assert_eq!(
        agent.model_transcript(1),
        [
            "user how many lines?",
            "assistant [read_file {\"path\":\"a.txt\"}]",
            "tool [File: a.txt | Lines: 2]\n    1| first\n    2| second",
        ]
    );
}
