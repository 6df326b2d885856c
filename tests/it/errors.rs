//! The spelling of keys and values in the agent's messages (R-ERR-11), in a turn with an approved
//! command. `tests/stories` covers the other tools.

use serde_json::json;
use turnwright_testing::schema::walk;

use crate::agent::{TestAgent, says};

#[test]
fn r_err_11_keys_are_camel_case_and_discriminators_snake_case() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "a\n")
        .permission("allow_once")
        .model(json!([
            [
                { "thought": "Hm." },
                { "call": { "name": "read_file", "arguments": { "path": "a.txt" } } },
                { "call": { "name": "exec", "arguments": { "command": "echo 1" } } },
                { "usage": { "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10 } }
            ],
            says("Done.")
        ]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    agent.call("foo/bar", &json!({}));
    for message in &agent.log {
        walk(message, &mut |key, value| {
            let camel = !key.contains(['_', '-']) && !key.starts_with(char::is_uppercase);
            assert!(camel || key == "_meta", "{key} in {message}");
            if ["sessionUpdate", "kind", "status", "stopReason", "outcome", "type"].contains(&key)
                && let Some(word) = value.as_str()
            {
                let snake = word.chars().all(|it| it.is_ascii_lowercase() || it == '_');
                assert!(snake, "{key}: {word} in {message}");
            }
        });
    }
}
