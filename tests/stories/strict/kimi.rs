//! Kimi: requires the reasoning on every message with calls, numbers calls by tool name, and requires
//! "moonshot flavored" tool schemas.

use serde_json::{Value, json};

use super::rules::{
    any_id, assistant_messages, calls, is_text_or_null, no_consecutive_users, openai_error, text,
};
use super::speech::{chunk, finish_reason, usage, words};
use super::{ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream, schema};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "kimi",
    model: "kimi-k2-thinking",
    rules: RequestRules {
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
        may_follow: no_consecutive_users,
        schema: schema::moonshot,
    },
    extra_check,
    harms,
    error_response,
    // The counter covers all calls of the conversation, those of other models included.
    call_id: |_, count| format!("functions.read_file:{count}"),
    transient_failure: |_| None,
    stream_answer,
};

fn extra_check(body: &Value, _: &[ScriptedAnswer]) -> Result<(), RequestFault> {
    for (key, only) in [("temperature", 1.0), ("top_p", 0.95), ("n", 1.0)] {
        let given = &body[key];
        if given.as_f64().is_some_and(|it| (it - only).abs() > 1e-6) {
            return Err(RequestFault::Value { key, given: given.clone() });
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    if let Some(tool) = tools.map(|it| &it["function"]).find(|it| it.get("strict").is_some()) {
        return Err(RequestFault::Tool {
            name: text(&tool["name"]),
            why: "strict is not supported",
        });
    }
    let key = "reasoning_content";
    let is_bare = |it: &Value| it.get("tool_calls").is_some() && !it[key].is_string();
    let is_off = body["thinking"]["type"] == "disabled";
    match assistant_messages(body).find(|(_, it)| is_bare(it)).filter(|_| !is_off) {
        Some((at, _)) => Err(RequestFault::Missing { at, key }),
        None => Ok(()),
    }
}

/// Reports ids that do not look like those of the model, because the model then falls back to raw
/// markers.
fn harms(body: &Value, _: &[ScriptedAnswer]) -> Vec<String> {
    let is_own = |id: &str| {
        let parts = id.strip_prefix("functions.").and_then(|it| it.rsplit_once(':'));
        parts.is_some_and(|(_, count)| count.parse::<usize>().is_ok())
    };
    let ids = assistant_messages(body).flat_map(|(_, it)| calls(it)).map(|it| text(&it["id"]));
    let odd = ids.filter(|it| !is_own(it));
    odd.map(|it| format!("kimi: the id {it} is not like functions.NAME:N")).collect()
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let message = match wrong {
        RequestFault::Missing { at, key } => format!(
            "thinking is enabled but {key} is missing in assistant tool call message at index {at}"
        ),
        RequestFault::Value { key, .. } => {
            let only = if *key == "top_p" { "0.95" } else { "1" };
            format!("invalid {key}: only {only} is allowed for this model")
        }
        RequestFault::Schema { path, why, .. } => format!(
            "Invalid request: tools.function.parameters is not a valid moonshot flavored json \
             schema, details: <At path '{path}': {why}>"
        ),
        RequestFault::Unanswered { ids } => format!(
            "Invalid request: an assistant message with 'tool_calls' must be followed by tool \
             messages responding to each 'tool_call_id'. The following tool_call_ids did not have \
             response messages: {}",
            ids.join(", ")
        ),
        RequestFault::Orphan { id } => format!("Invalid request: tool_call_id {id} is not found"),
        RequestFault::Repeated { id } => {
            format!("Invalid request: tool_call_id {id} is duplicated")
        }
        RequestFault::Empty { at } => format!(
            "Invalid request: the message at position {at} with role 'assistant' must not be empty"
        ),
        _ => format!("Invalid request: {}", wrong.openai_message()),
    };
    (400, openai_error(&message))
}

fn stream_answer(_: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    for piece in words(&answer.thought) {
        speech.delta(&json!({ "reasoning_content": piece }));
    }
    for piece in words(&answer.words) {
        speech.delta(&json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.call(index, call);
    }
    let mut last = chunk(&json!({}), &json!(finish_reason(answer)));
    last["choices"][0]["usage"] = usage();
    last["choices"][0]["usage"]["cached_tokens"] = json!(64);
    speech.end(&last);
    speech
}
