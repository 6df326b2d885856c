//! The content blocks of a prompt (R-CONT, R-TURN-11): what the model receives, and which blocks
//! are refused.

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};

/// Sends a prompt with these blocks, and returns its answer.
fn send(agent: &mut TestAgent, blocks: &Value) -> Value {
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    agent.call("session/prompt", &params)
}

/// Runs a turn with these blocks, and returns what the model receives.
fn read_by_model(blocks: &Value) -> String {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    let answer = send(&mut agent, blocks);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    agent.model_transcript(0).remove(0)
}

#[test]
fn r_cont_1_text_blocks_are_sent_in_order() {
    let blocks = json!([
        { "type": "text", "text": "one " },
        { "type": "text", "text": "zwei äöü 🦀" },
    ]);
    assert_eq!(read_by_model(&blocks), "user one zwei äöü 🦀");
}

#[test]
fn r_cont_2_the_model_can_read_a_linked_file() {
    let mut agent = TestAgent::builder().file("src/lib.rs", "fn main() {}\n").start();
    let path = agent.path("src/lib.rs").display().to_string();
    let link =
        json!({ "type": "resource_link", "name": "lib.rs", "uri": format!("file://{path}") });
    agent.model().push(calls("read_file", &json!({ "path": path }))).unwrap();
    agent.model().push(says("Empty.")).unwrap();
    let answer = send(&mut agent, &json!([{ "type": "text", "text": "See " }, link]));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let transcript = agent.model_transcript(1);
    assert!(transcript[0].contains(&path), "the path is missing: {transcript:?}");
    assert!(transcript[2].ends_with("    1| fn main() {}"), "{transcript:?}");
}

#[test]
fn embedded_text_is_sent_with_its_path() {
    let blocks = json!([
        { "type": "text", "text": "Explain" },
        { "type": "resource", "resource": {
            "uri": "file:///p/a.rs", "mimeType": "text/x-rust", "text": "fn a() {}" } },
    ]);
    let read = read_by_model(&blocks);
    assert!(read.starts_with("user Explain"), "{read}");
    assert!(read.contains("/p/a.rs") && read.contains("fn a() {}"), "{read}");
}

#[test]
fn r_cont_4_annotations_do_not_break_parsing() {
    let annotations = json!({ "priority": 0.5, "audience": ["user", "somebody"], "new": [1] });
    let blocks = json!([
        { "type": "text", "text": "hi", "annotations": annotations, "_meta": { "a": 1 } },
        { "type": "resource_link", "name": "n", "uri": "file:///n", "annotations": annotations },
    ]);
    assert!(read_by_model(&blocks).starts_with("user hi"));
}

#[test]
fn r_turn_11_unsupported_and_malformed_blocks_are_refused_and_the_session_goes_on() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).start();
    for block in [
        json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }),
        json!({ "type": "text" }),
        json!({ "type": "text", "text": 5 }),
        json!({ "type": "smell", "data": "AAAA" }),
        json!({ "text": "no type" }),
        json!("a string"),
        json!(null),
    ] {
        let answer = send(&mut agent, &json!([{ "type": "text", "text": "Look" }, block]));
        assert_eq!(answer["error"]["code"], -32602, "{block}: {answer}");
    }
    let params = json!({ "sessionId": agent.session, "prompt": "a string" });
    assert_eq!(agent.call("session/prompt", &params)["error"]["code"], -32602);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(
        agent.model_transcript(0),
        ["user hi"],
        "a refused prompt must not be in the history"
    );
}
