//! An answer as a stream of events, with what the dialects have in common.

use serde_json::{Value, json};

use super::{Answer, Call};

/// The stream of an answer.
#[derive(Default)]
pub struct Speech {
    /// Up to the last word, an event or a comment each.
    pub said: Vec<String>,
    /// What comes when all has been said.
    pub end: Vec<String>,
    /// Whether the end never comes.
    pub hangs: bool,
}

impl Speech {
    pub fn new(answer: &Answer) -> Speech {
        Speech { hangs: answer.hangs, ..Speech::default() }
    }

    /// Something that is no event.
    pub fn raw(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }

    /// A chunk with this delta.
    pub fn delta(&mut self, delta: &Value) {
        self.said.push(event(&chunk(delta, &Value::Null)));
    }

    /// A call in three deltas: its name, and its arguments in two halves.
    pub fn call(&mut self, index: usize, call: &Call) {
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

    /// The last event and `[DONE]`.
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

/// The text word by word.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// Why the answer ends, in OpenAI's words.
pub fn reason(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub fn usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 })
}

/// A whole call in one delta.
pub fn whole_call(index: usize, call: &Call) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
    json!({ "index": index, "id": call.id, "type": "function", "function": function })
}
