//! Kimi: reasoning comes back with every call, identifiers are a counter with a name, tool
//! schemas are "moonshot flavored".

use serde_json::{Value, json};

use super::rules::{answers, any_id, calls, is_text_or_null, no_two_users, openai_error, text};
use super::speech::{chunk, pieces, reason, usage};
use super::{Answer, Provider, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "kimi",
    model: "kimi-k2-thinking",
    rules: Rules {
        keys: &[
            "model",
            "messages",
            "tools",
            "tool_choice",
            "stream",
            "stream_options",
            "max_tokens",
            "temperature",
            "top_p",
            "n",
            "stop",
            "frequency_penalty",
            "presence_penalty",
            "response_format",
            "thinking",
            "prompt_cache_key",
            "safety_identifier",
        ],
        answer_keys: &["reasoning_content", "partial"],
        call_keys: &[],
        content: is_text_or_null,
        id: any_id,
        follows: no_two_users,
        schema: schema::moonshot,
    },
    also,
    harms,
    refuse,
    // It counts the calls of the whole conversation, whoever made them.
    mint: |_, count| format!("functions.read_file:{count}"),
    stumble: |_| None,
    speak,
};

fn also(body: &Value, _: &[Answer]) -> Result<(), Wrong> {
    for (key, only) in [("temperature", 1.0), ("top_p", 0.95), ("n", 1.0)] {
        let given = &body[key];
        if given.as_f64().is_some_and(|it| (it - only).abs() > 1e-6) {
            return Err(Wrong::Value { key, given: given.clone() });
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    if let Some(tool) = tools.map(|it| &it["function"]).find(|it| it.get("strict").is_some()) {
        return Err(Wrong::Tool { name: text(&tool["name"]), why: "strict is not supported" });
    }
    let key = "reasoning_content";
    let is_bare = |it: &Value| it.get("tool_calls").is_some() && !it[key].is_string();
    let is_off = body["thinking"]["type"] == "disabled";
    match answers(body).find(|(_, it)| is_bare(it)).filter(|_| !is_off) {
        Some((at, _)) => Err(Wrong::Missing { at, key }),
        None => Ok(()),
    }
}

/// The model falls back to raw markers when identifiers look otherwise than its own.
fn harms(body: &Value, _: &[Answer]) -> Vec<String> {
    let is_own = |id: &str| {
        let parts = id.strip_prefix("functions.").and_then(|it| it.rsplit_once(':'));
        parts.is_some_and(|(_, count)| count.parse::<usize>().is_ok())
    };
    let ids = answers(body).flat_map(|(_, it)| calls(it)).map(|it| text(&it["id"]));
    let odd = ids.filter(|it| !is_own(it));
    odd.map(|it| format!("kimi: the identifier {it} is not like functions.NAME:N")).collect()
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let message = match wrong {
        Wrong::Missing { at, key } => format!(
            "thinking is enabled but {key} is missing in assistant tool call message at index {at}"
        ),
        Wrong::Value { key, .. } => {
            let only = if *key == "top_p" { "0.95" } else { "1" };
            format!("invalid {key}: only {only} is allowed for this model")
        }
        Wrong::Schema { path, why, .. } => format!(
            "Invalid request: tools.function.parameters is not a valid moonshot flavored json \
             schema, details: <At path '{path}': {why}>"
        ),
        Wrong::Unanswered { ids } => format!(
            "Invalid request: an assistant message with 'tool_calls' must be followed by tool \
             messages responding to each 'tool_call_id'. The following tool_call_ids did not have \
             response messages: {}",
            ids.join(", ")
        ),
        Wrong::Orphan { id } => format!("Invalid request: tool_call_id {id} is not found"),
        Wrong::Repeated { id } => format!("Invalid request: tool_call_id {id} is duplicated"),
        Wrong::Empty { at } => format!(
            "Invalid request: the message at position {at} with role 'assistant' must not be empty"
        ),
        _ => format!("Invalid request: {}", wrong.plain()),
    };
    (400, openai_error(&message))
}

fn speak(_: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    for piece in pieces(&answer.thought) {
        speech.delta(&json!({ "reasoning_content": piece }));
    }
    for piece in pieces(&answer.words) {
        speech.delta(&json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.call(index, call);
    }
    let mut last = chunk(&json!({}), &json!(reason(answer)));
    last["choices"][0]["usage"] = usage();
    last["choices"][0]["usage"]["cached_tokens"] = json!(64);
    speech.end(&last);
    speech
}
