//! Scripts the answers of every mock: the mock calls `read_file` after a prompt, and reports the
//! content after the results. Keywords in the prompt select variations.

use serde_json::{Value, json};

use super::{ProviderDialect, rules};

/// The mock reads `a.txt` and `b.txt` in parallel instead of `a.txt` alone.
pub const BOTH: &str = "both";
/// The mock asks the user instead of reading.
pub const ASK: &str = "ask";
/// After the results, the mock says `WAITING` and never ends its answer.
pub const WAIT: &str = "wait";
/// After the results, the mock reasons and never ends its answer.
pub const PONDER: &str = "ponder";
/// The provider filters the answer, if it has a finish reason for that.
pub const FORBIDDEN: &str = "forbidden";
/// Words of the request for a summary.
pub const SUMMARISE: &str = "Write a summary that lets you go on";
/// A single word, so that it arrives in one chunk.
pub const WAITING: &str = "Waiting.";

/// An answer of the model, independent of the provider's dialect.
#[derive(Clone, Debug)]
pub struct ScriptedAnswer {
    /// Counted from 1.
    pub number: usize,
    /// The provider and the number of the answer: part of all of its text.
    pub marker: String,
    pub thought: String,
    pub words: String,
    pub calls: Vec<ScriptedCall>,
    pub hangs: bool,
    pub is_filtered: bool,
}

#[derive(Clone, Debug)]
pub struct ScriptedCall {
    pub id: String,
    pub name: &'static str,
    pub arguments: Value,
}

impl ScriptedAnswer {
    /// Returns whether this message of a request is the answer, sent back as a whole.
    pub fn is(&self, message: &Value) -> bool {
        let ids = message["tool_calls"].as_array().into_iter().flatten().map(|it| &it["id"]);
        let has_call = ids.into_iter().any(|id| self.calls.iter().any(|call| *id == call.id));
        has_call || (!self.hangs && message["content"].to_string().contains(&self.marker))
    }
}

/// Returns the answer to a valid request.
pub fn answer(
    provider: &ProviderDialect,
    body: &Value,
    before: &[ScriptedAnswer],
) -> ScriptedAnswer {
    let number = before.len() + 1;
    let marker = format!("({} {number})", provider.name);
    let messages = body["messages"].as_array().unwrap();
    let prompt =
        messages.iter().rfind(|it| it["role"] == "user").map(latest_text).unwrap_or_default();
    let is_result = messages.last().is_some_and(|it| it["role"] == "tool");
    let mut answer = ScriptedAnswer {
        thought: format!("Let me think. {marker}"),
        words: String::new(),
        calls: Vec::new(),
        hangs: false,
        is_filtered: prompt.contains(FORBIDDEN),
        number,
        marker,
    };
    if answer.is_filtered {
        return answer;
    }
    if messages.last().is_some_and(|it| it.to_string().contains(SUMMARISE)) {
        answer.words = format!("All was read. {}", answer.marker);
        return answer;
    }
    if !is_result {
        // Some calls come with text and some without.
        if number % 4 == 1 {
            answer.words = format!("I look at it. {}", answer.marker);
        }
        let own = before.iter().map(|it| it.calls.len()).sum::<usize>();
        let all = rules::assistant_messages(body).flat_map(|(_, it)| rules::calls(it)).count();
        let files = if prompt.contains(BOTH) { &["a.txt", "b.txt"][..] } else { &["a.txt"] };
        let call = |at, name, arguments| ScriptedCall {
            id: (provider.call_id)(own + at, all + at),
            name,
            arguments,
        };
        answer.calls = if prompt.contains(ASK) {
            vec![call(0, "ask_user", json!({ "question": "Which?", "options": ["This", "That"] }))]
        } else {
            let paths = files.iter().enumerate();
            paths.map(|(at, path)| call(at, "read_file", json!({ "path": path }))).collect()
        };
    } else if prompt.contains(WAIT) {
        answer.words = WAITING.into();
        answer.hangs = true;
    } else if prompt.contains(PONDER) {
        answer.hangs = true;
    } else {
        answer.words = format!("It says {}. {}", results(messages), answer.marker);
    }
    answer
}

/// Returns the known words in the latest results.
fn results(messages: &[Value]) -> String {
    let results = messages.iter().rev().take_while(|it| it["role"] == "tool");
    let text: String = results.map(latest_text).collect();
    ["alpha", "beta"].into_iter().filter(|it| text.contains(it)).collect::<Vec<_>>().join(" and ")
}

/// Returns the latest prompt in a message, without the context that the agent adds. After a
/// cancelled prompt, the message may contain the earlier one too.
fn latest_text(message: &Value) -> String {
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        _ => String::new(),
    };
    let last = text.rsplit("Turn ").next().unwrap_or_default();
    last.split("\n\n<context>").next().unwrap_or_default().to_owned()
}
