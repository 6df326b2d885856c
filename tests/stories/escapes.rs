//! The text that the agent sends may be shown on a terminal. Control sequences are removed from it,
//! and ordinary text is not changed.

use serde_json::json;

use crate::agent::{TestAgent, calls, says};

#[test]
fn line_feeds_tabs_and_unicode_characters_are_kept() {
    let text = "One\r\n\ttwo é 👩\u{200d}💻\n";
    let mut agent = TestAgent::builder().model(json!([says(text), calls("x", &json!({}))])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), text.replace('\r', ""));
}
