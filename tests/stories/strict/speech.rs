//! Builds the stream of an answer, with the parts that the dialects have in common.

use serde_json::{Value, json};

use super::{ScriptedAnswer, ScriptedCall};

/// The stream of an answer.
#[derive(Default)]
pub struct ScriptedStream {
    /// Everything before the final events. Each item is an event or a comment.
    pub events: Vec<String>,
    /// The final events.
    pub end: Vec<String>,
    /// Whether the final events are never sent.
    pub hangs: bool,
}

impl ScriptedStream {
    pub fn new(answer: &ScriptedAnswer) -> ScriptedStream {
        ScriptedStream { hangs: answer.hangs, ..ScriptedStream::default() }
    }

    /// Adds raw text, such as a comment.
    pub fn raw(&mut self, text: &str) {
        self.events.push(text.to_owned());
    }

    /// Adds a chunk with this delta.
    pub fn delta(&mut self, delta: &Value) {
        self.events.push(event(&chunk(delta, &Value::Null)));
    }

    /// Adds a call in three deltas: its name, and its arguments in two halves.
    pub fn call(&mut self, index: usize, call: &ScriptedCall) {
        let arguments = call.arguments.to_string();
        let (first, second) = arguments.split_at(arguments.len() / 2);
        let mut head = whole_call(index, call);
        head["function"]["arguments"] = json!("");
        self.delta(&json!({ "tool_calls": [head] }));
        for text in [first, second] {
            let rest = json!({ "index": index, "function": { "arguments": text } });
            self.delta(&json!({ "tool_calls": [rest] }));
        }
    }

    /// Sets the last event, followed by `[DONE]`.
    pub fn end(&mut self, last: &Value) {
        self.end = vec![event(last), "data: [DONE]\n\n".to_owned()];
    }
}

pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

pub fn chunk(delta: &Value, finish: &Value) -> Value {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    json!({ "id": "x", "object": "chat.completion.chunk", "created": 0, "choices": [choice] })
}

/// Returns the text, split after each space.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// Returns the finish reason, as OpenAI names it.
pub fn finish_reason(answer: &ScriptedAnswer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub fn usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 })
}

/// Returns a complete call in one delta.
pub fn whole_call(index: usize, call: &ScriptedCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
    json!({ "index": index, "id": call.id, "type": "function", "function": function })
}
