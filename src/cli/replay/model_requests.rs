//! Compares the results of tool calls that the model got in the recording with those of the replay.

use std::collections::HashMap;

use serde_json::Value;

use super::difference::around_difference;
use super::run_normalizer::RunNormalizer;
use crate::recording::SentMessages;

/// The requests that the agent has made.
#[derive(Default)]
pub(super) struct ModelRequestLog {
    sent: SentMessages,
    /// The new messages of each request, by the number of the recorded request.
    asked: HashMap<u64, Vec<Value>>,
}

impl ModelRequestLog {
    pub(super) fn on_asked(&mut self, request: u64, body: &[u8]) {
        let mut described = self.sent.describe(body);
        let messages = match described["messages"].take() {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        };
        self.asked.insert(request, messages);
    }

    /// The new messages of a request, if it was made.
    pub(super) fn asked(&self, request: u64) -> Option<&[Value]> {
        self.asked.get(&request).map(Vec::as_slice)
    }
}

/// Finds the first result of a call that differs between the requests to the model. Prompts are not compared,
/// because the text around them contains the date and a listing of the folder. Project instructions at the end
/// of a result are not compared either, because a replay reads no files.
pub(super) fn first_result_difference(
    recorded: &[Value],
    now: &[Value],
) -> Option<(String, String)> {
    let recorded = results(recorded);
    let now = results(now);
    let count = recorded.len().max(now.len());
    (0..count).find_map(|index| match (recorded.get(index), now.get(index)) {
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) if !other.is_empty() && one.starts_with(other.as_str()) => None,
        (Some(one), Some(other)) => Some(around_difference(one, other)),
        (one, other) => Some((shown_result(one), shown_result(other))),
    })
}

fn shown_result(result: Option<&String>) -> String {
    result.map_or("nothing".to_owned(), |text| format!("{text:?}"))
}

fn results(messages: &[Value]) -> Vec<String> {
    let of_calls = messages
        .iter()
        .filter(|message| message["role"] == "tool" || message["type"] == "function_call_output");
    of_calls.map(result_text).collect()
}

fn result_text(message: &Value) -> String {
    let mut content =
        message.get("content").or_else(|| message.get("output")).cloned().unwrap_or_default();
    RunNormalizer::default().normalize(&mut content);
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_results_are_compared_and_what_a_project_adds_is_not() {
        let told = |result: &str| {
            [
                json!({ "role": "user", "content": result }),
                json!({ "role": "tool", "content": result }),
            ]
        };
        assert_eq!(first_result_difference(&told("a"), &told("a")), None);
        assert_eq!(first_result_difference(&told("a\nInstructions"), &told("a")), None);
        assert!(first_result_difference(&told("a"), &told("b")).is_some());
        assert!(first_result_difference(&told("a"), &told("a")[..1]).is_some());
        let output = [json!({ "type": "function_call_output", "output": "a" })];
        assert_eq!(first_result_difference(&output, &told("a")), None);
    }
}
