//! Summarises messages in one line each, for assertions about a whole conversation and for failure
//! messages.

use serde_json::Value;

/// Summarises all messages, one line each, with consecutive text chunks joined.
pub(crate) fn summarize_all(messages: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for message in messages {
        let line = summarize(message);
        match lines.last_mut() {
            Some(last) if line.starts_with("text ") && last.starts_with("text ") => {
                last.push_str(&line["text ".len()..]);
            }
            _ => lines.push(line),
        }
    }
    lines
}

/// Summarises a message of the agent in one line.
fn summarize(message: &Value) -> String {
    let update = &message["params"]["update"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message["method"] == "session/update" {
        return match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => format!("text {}", word(&update["content"]["text"])),
            kind @ ("tool_call" | "tool_call_update") => {
                let mut line = format!("{kind} {}", word(&update["toolCallId"]));
                for key in ["status", "kind", "title"] {
                    if let Some(value) = update[key].as_str() {
                        line.push_str(&format!(" {value}"));
                    }
                }
                line
            }
            kind => kind.to_owned(),
        };
    }
    if let Some(method) = message["method"].as_str() {
        let title = word(&message["params"]["toolCall"]["title"]);
        return format!("{method} {title}").trim_end().to_owned();
    }
    match message.get("error") {
        Some(error) => format!("error {}: {}", error["code"], word(&error["message"])),
        None => match message["result"]["stopReason"].as_str() {
            Some(reason) => format!("stop {reason}"),
            None => "result".to_owned(),
        },
    }
}

/// Summarises a message to the model in one line.
pub(crate) fn summarize_model_message(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let content = message["content"].as_str().unwrap_or_default();
    // The agent adds context about the project and the date to the user's prompt.
    let content = content.split("\n\n<context>").next().unwrap_or_default();
    let mut line = format!("{role} {content}").trim_end().to_owned();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let arguments = function["arguments"].as_str().unwrap_or_default();
        line.push_str(&format!(" [{name} {arguments}]"));
    }
    line
}
