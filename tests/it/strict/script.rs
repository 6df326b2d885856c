//! What a mock says, whoever's it is: it reads a file or two when the user speaks, and tells what
//! it has read when the results are there. The words of the prompt decide what happens on the way.

use serde_json::{Value, json};

use super::{Provider, rules};

/// Reads `a.txt` and `b.txt` side by side instead of `a.txt` alone.
pub const BOTH: &str = "both";
/// Says `WAITING` once the results are there, and never comes to its end.
pub const WAIT: &str = "wait";
/// Thinks without end once the results are there.
pub const PONDER: &str = "ponder";
/// Is filtered by the provider, if it has words for that.
pub const FORBIDDEN: &str = "forbidden";
/// One word, so that it comes in one piece.
pub const WAITING: &str = "Waiting.";

/// What the model says, before it is put in the provider's dialect.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Counted from 1.
    pub number: usize,
    /// Whose it is and which one: part of all that it says.
    pub mark: String,
    pub thought: String,
    pub words: String,
    pub calls: Vec<Call>,
    pub hangs: bool,
    pub is_filtered: bool,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub name: &'static str,
    pub arguments: Value,
}

impl Answer {
    /// Whether this message of a request is the answer, whole, coming back.
    pub fn is(&self, message: &Value) -> bool {
        let ids = message["tool_calls"].as_array().into_iter().flatten().map(|it| &it["id"]);
        let has_call = ids.into_iter().any(|id| self.calls.iter().any(|call| *id == call.id));
        has_call || (!self.hangs && message["content"].to_string().contains(&self.mark))
    }
}

/// The answer to a request that has been found good.
pub fn answer(provider: &Provider, body: &Value, before: &[Answer]) -> Answer {
    let number = before.len() + 1;
    let mark = format!("({} {number})", provider.name);
    let messages = body["messages"].as_array().unwrap();
    let asked = messages.iter().rfind(|it| it["role"] == "user").map(words).unwrap_or_default();
    let is_result = messages.last().is_some_and(|it| it["role"] == "tool");
    let mut answer = Answer {
        thought: format!("Let me think. {mark}"),
        words: String::new(),
        calls: Vec::new(),
        hangs: false,
        is_filtered: asked.contains(FORBIDDEN),
        number,
        mark,
    };
    if answer.is_filtered {
        return answer;
    }
    if !is_result {
        // Some calls come with words and some without.
        if number % 4 == 1 {
            answer.words = format!("I look at it. {}", answer.mark);
        }
        let own = before.iter().map(|it| it.calls.len()).sum::<usize>();
        let all = rules::answers(body).flat_map(|(_, it)| rules::calls(it)).count();
        let files = if asked.contains(BOTH) { &["a.txt", "b.txt"][..] } else { &["a.txt"] };
        let call = |(at, path): (usize, &&str)| Call {
            id: (provider.mint)(own + at, all + at),
            name: "read_file",
            arguments: json!({ "path": path }),
        };
        answer.calls = files.iter().enumerate().map(call).collect();
    } else if asked.contains(WAIT) {
        answer.words = WAITING.into();
        answer.hangs = true;
    } else if asked.contains(PONDER) {
        answer.hangs = true;
    } else {
        answer.words = format!("It says {}. {}", results(messages), answer.mark);
    }
    answer
}

/// What the tools have just found.
fn results(messages: &[Value]) -> String {
    let results = messages.iter().rev().take_while(|it| it["role"] == "tool");
    let text: String = results.map(words).collect();
    ["alpha", "beta"].into_iter().filter(|it| text.contains(it)).collect::<Vec<_>>().join(" and ")
}

/// The last that this message says, without what the agent adds for the model. When a prompt was
/// cancelled the one before may stand in the same message.
fn words(message: &Value) -> String {
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        _ => String::new(),
    };
    let last = text.rsplit("Turn ").next().unwrap_or_default();
    last.split("\n\n<context>").next().unwrap_or_default().to_owned()
}
