//! Who shows what we say may be a terminal: nothing in it is a command to one, and nothing in a title
//! hides or turns round a part of it.

use serde_json::json;

use crate::agent::{TestAgent, calls, says};

#[test]
fn lines_and_letters_stay_as_they_are() {
    let text = "One\r\n\ttwo é 👩\u{200d}💻\n";
    let mut agent = TestAgent::builder().model(json!([says(text), calls("x", &json!({}))])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), text.replace('\r', ""));
}
