//! Builds the parameters of prompts, and replies of the scripted model.

use serde_json::{Value, json};

/// Returns the parameters of a text prompt.
pub fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// Returns a reply of the model with text.
pub fn says(text: &str) -> Value {
    json!([{ "text": text }])
}

/// Returns a reply of the model with one tool call.
pub fn calls(name: &str, arguments: &Value) -> Value {
    json!([{ "call": { "name": name, "arguments": arguments } }])
}

/// Returns a reply of the model that runs a command.
pub fn runs(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

/// Returns a reply of the model that writes a file.
pub fn writes(path: &str, content: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": content }))
}
