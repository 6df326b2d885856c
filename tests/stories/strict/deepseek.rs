//! DeepSeek's reasoner: requires the reasoning on every assistant message, and accepts only four roles.

use serde_json::{Value, json};

use super::rules::{any_id, assistant_messages, is_text};
use super::speech::{chunk, finish_reason, usage, words};
use super::{ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream, schema};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "deepseek",
    model: "deepseek-reasoner",
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
        may_follow: |role, after| role == "tool" || role != after,
        schema: schema::any,
    },
    extra_check,
    harms: |_, _| Vec::new(),
    error_response,
    call_id: |count, _| format!("call_00_{count:024}"),
    transient_failure: |_| None,
    stream_answer,
};

fn extra_check(body: &Value, _: &[ScriptedAnswer]) -> Result<(), RequestFault> {
    let key = "tool_choice";
    match &body[key] {
        Value::Null => {}
        choice if *choice == "auto" || *choice == "none" => {}
        choice => return Err(RequestFault::Value { key, given: choice.clone() }),
    }
    let is_off = body["thinking"]["type"] == "disabled";
    if is_off || body.get("tools").is_none() {
        return Ok(());
    }
    let key = "reasoning_content";
    match assistant_messages(body).find(|(_, it)| !it[key].is_string()) {
        Some((at, _)) => Err(RequestFault::Missing { at, key }),
        None => Ok(()),
    }
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    const BAD_JSON: &str = "Failed to deserialize the JSON body into the target type";
    let message = match wrong {
        RequestFault::Key(key) => format!("{BAD_JSON}: unknown field `{key}` at line 1 column 2"),
        RequestFault::Role { at, role } => format!(
            "{BAD_JSON}: messages[{at}].role: unknown variant `{role}`, expected one of `system`, \
             `user`, `assistant`, `tool` at line 1 column 64"
        ),
        RequestFault::MessageKey { at, key, .. } => {
            format!("{BAD_JSON}: messages[{at}]: unknown field `{key}` at line 1 column 64")
        }
        RequestFault::Content { at, .. } => format!(
            "{BAD_JSON}: messages[{at}].content: invalid type, expected a string at line 1 column 64"
        ),
        RequestFault::Missing { .. } => {
            "The `reasoning_content` in the thinking mode must be passed back to the API."
                .to_owned()
        }
        RequestFault::Value { key: "tool_choice", .. } => {
            "deepseek-reasoner does not support this tool_choice".to_owned()
        }
        RequestFault::Order { at, .. } => format!(
            "deepseek-reasoner does not support successive user or assistant messages \
             (messages[{}] and messages[{at}] in your input). You should interleave the \
             user/assistant messages in the message sequence.",
            at - 1
        ),
        RequestFault::Empty { .. } => {
            "Invalid assistant message: content or tool_calls must be set".to_owned()
        }
        RequestFault::Unanswered { .. } => {
            "An assistant message with 'tool_calls' must be followed by \
             tool messages responding to each 'tool_call_id'. (insufficient tool messages \
             following tool_calls message)"
                .to_owned()
        }
        _ => wrong.openai_message(),
    };
    let code = "invalid_request_error";
    (400, json!({ "error": { "message": message, "type": code, "param": null, "code": code } }))
}

fn stream_answer(_: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    speech.raw(": keep-alive\n\n");
    speech.raw(": keep-alive\n\n");
    speech.delta(&json!({ "role": "assistant", "content": null, "reasoning_content": "" }));
    for piece in words(&answer.thought) {
        speech.delta(&json!({ "content": null, "reasoning_content": piece }));
    }
    speech.raw(": keep-alive\n\n");
    for piece in words(&answer.words) {
        speech.delta(&json!({ "content": piece, "reasoning_content": null }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.call(index, call);
    }
    let mut last =
        chunk(&json!({ "content": "", "reasoning_content": null }), &json!(finish_reason(answer)));
    last["usage"] = usage();
    last["usage"]["prompt_cache_hit_tokens"] = json!(64);
    speech.end(&last);
    speech
}
