//! DeepSeek, thinking: reasoning comes back on every answer, and no role but the four.

use serde_json::{Value, json};

use super::rules::{answers, any_id, is_text};
use super::speech::{chunk, pieces, reason, usage};
use super::{Answer, Provider, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "deepseek",
    model: "deepseek-reasoner",
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
            "stop",
            "frequency_penalty",
            "presence_penalty",
            "logprobs",
            "top_logprobs",
            "response_format",
            "thinking",
            "reasoning_effort",
            "user_id",
        ],
        answer_keys: &["reasoning_content", "prefix"],
        call_keys: &[],
        content: is_text,
        id: any_id,
        follows: |role, after| role == "tool" || role != after,
        schema: schema::any,
    },
    also,
    harms: |_, _| Vec::new(),
    refuse,
    mint: |count, _| format!("call_00_{count:024}"),
    stumble: |_| None,
    speak,
};

fn also(body: &Value, _: &[Answer]) -> Result<(), Wrong> {
    let key = "tool_choice";
    match &body[key] {
        Value::Null => {}
        choice if *choice == "auto" || *choice == "none" => {}
        choice => return Err(Wrong::Value { key, given: choice.clone() }),
    }
    let is_off = body["thinking"]["type"] == "disabled";
    if is_off || body.get("tools").is_none() {
        return Ok(());
    }
    let key = "reasoning_content";
    match answers(body).find(|(_, it)| !it[key].is_string()) {
        Some((at, _)) => Err(Wrong::Missing { at, key }),
        None => Ok(()),
    }
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    const BAD_JSON: &str = "Failed to deserialize the JSON body into the target type";
    let message = match wrong {
        Wrong::Key(key) => format!("{BAD_JSON}: unknown field `{key}` at line 1 column 2"),
        Wrong::Role { at, role } => format!(
            "{BAD_JSON}: messages[{at}].role: unknown variant `{role}`, expected one of `system`, \
             `user`, `assistant`, `tool` at line 1 column 64"
        ),
        Wrong::MessageKey { at, key, .. } => {
            format!("{BAD_JSON}: messages[{at}]: unknown field `{key}` at line 1 column 64")
        }
        Wrong::Content { at, .. } => format!(
            "{BAD_JSON}: messages[{at}].content: invalid type, expected a string at line 1 column 64"
        ),
        Wrong::Missing { .. } => {
            "The `reasoning_content` in the thinking mode must be passed back to the API."
                .to_owned()
        }
        Wrong::Value { key: "tool_choice", .. } => {
            "deepseek-reasoner does not support this tool_choice".to_owned()
        }
        Wrong::Order { at, .. } => format!(
            "deepseek-reasoner does not support successive user or assistant messages \
             (messages[{}] and messages[{at}] in your input). You should interleave the \
             user/assistant messages in the message sequence.",
            at - 1
        ),
        Wrong::Empty { .. } => {
            "Invalid assistant message: content or tool_calls must be set".to_owned()
        }
        Wrong::Unanswered { .. } => "An assistant message with 'tool_calls' must be followed by \
             tool messages responding to each 'tool_call_id'. (insufficient tool messages \
             following tool_calls message)"
            .to_owned(),
        _ => wrong.plain(),
    };
    let code = "invalid_request_error";
    (400, json!({ "error": { "message": message, "type": code, "param": null, "code": code } }))
}

fn speak(_: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    speech.raw(": keep-alive\n\n");
    speech.raw(": keep-alive\n\n");
    speech.delta(&json!({ "role": "assistant", "content": null, "reasoning_content": "" }));
    for piece in pieces(&answer.thought) {
        speech.delta(&json!({ "content": null, "reasoning_content": piece }));
    }
    speech.raw(": keep-alive\n\n");
    for piece in pieces(&answer.words) {
        speech.delta(&json!({ "content": piece, "reasoning_content": null }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.call(index, call);
    }
    let mut last =
        chunk(&json!({ "content": "", "reasoning_content": null }), &json!(reason(answer)));
    last["usage"] = usage();
    last["usage"]["prompt_cache_hit_tokens"] = json!(64);
    speech.end(&last);
    speech
}
