//! Checks what must hold when a prompt fails because of the model's server (R-TURN-12).

use std::time::Duration;

use serde_json::{Value, json};

use crate::{TestAgent, Transport};

/// The key that the test client gives the agent.
pub const KEY: &str = "sk-test-0123456789";

/// Sends a prompt that must fail, checks the shape of the error and returns it.
pub fn failure<T: Transport>(agent: &mut TestAgent<T>, kind: &str, status: Option<u16>) -> Value {
    let id = agent.prompt("one");
    let answer = agent.answer_to(&id);
    let error = answer["error"].clone();
    assert!(error.is_object(), "the answer is not an error: {answer}");
    let code = if kind == "auth" { -32000 } else { -32603 };
    assert_eq!(error["code"], code, "{error}");
    assert_eq!(error["data"]["kind"], kind, "{error}");
    assert_eq!(error["data"]["status"], json!(status), "{error}");
    assert!(error["data"]["provider"].as_str().unwrap().starts_with("127.0.0.1:"), "{error}");
    let text = error["message"].as_str().unwrap();
    assert!(text.contains("127.0.0.1:"), "the text does not name the server: {text}");
    assert!(!text.contains(char::is_control), "the text has more than one line: {text:?}");
    agent.settle(Duration::from_millis(50));
    assert_eq!(agent.log.last(), Some(&answer), "the answer must be the last message");
    assert_no_key(agent);
    error
}

/// Panics if a message to the client contains the key.
pub fn assert_no_key<T: Transport>(agent: &TestAgent<T>) {
    let leak = agent.log.iter().find(|it| it.to_string().contains(KEY));
    assert!(leak.is_none(), "the key is in {leak:?}");
}
