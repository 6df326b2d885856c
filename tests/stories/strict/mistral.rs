//! Mistral: accepts only known keys, ids of nine characters and no prompt directly after a result; errors
//! have no wrapper, content comes in parts.

use serde_json::{Value, json};

use super::rules::no_consecutive_users;
use super::speech::{chunk, finish_reason, usage, whole_call, words};
use super::{ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream, schema};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "mistral",
    model: "magistral-medium-2509",
    rules: RequestRules {
        keys: &[
            "model",
            "messages",
            "tools",
            "tool_choice",
            "stream",
            "max_tokens",
            "temperature",
            "top_p",
            "n",
            "stop",
            "random_seed",
            "frequency_penalty",
            "presence_penalty",
            "response_format",
            "parallel_tool_calls",
            "prediction",
            "prompt_mode",
            "safe_prompt",
            "metadata",
            "reasoning_effort",
        ],
        answer_keys: &["prefix"],
        call_keys: &[],
        content,
        id: |id| id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric()),
        may_follow: |role, after| {
            no_consecutive_users(role, after) && (role, after) != ("user", "tool")
        },
        schema: schema::any,
    },
    extra_check: |_, _| Ok(()),
    harms: |_, _| Vec::new(),
    error_response,
    call_id: |count, _| format!("mI5{count:06}"),
    transient_failure: |_| None,
    stream_answer,
};

/// Accepts a string, or parts of text or thinking.
fn content(content: &Value) -> bool {
    let is_part = |it: &Value| it["type"] == "text" || it["type"] == "thinking";
    content.is_string() || content.as_array().is_some_and(|parts| parts.iter().all(is_part))
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let extra = "Extra inputs are not permitted";
    match wrong {
        RequestFault::Key(key) => invalid("extra_forbidden", &json!(["body", key]), extra),
        RequestFault::MessageKey { at, role, key } => {
            let place: Vec<Value> = [json!("body"), json!("messages"), json!(at), json!(role)]
                .into_iter()
                .chain(key.split('.').map(|it| json!(it)))
                .collect();
            invalid("extra_forbidden", &json!(place), extra)
        }
        RequestFault::Content { at, role } => {
            let place = json!(["body", "messages", at, role, "content", "str"]);
            invalid("string_type", &place, "Input should be a valid string")
        }
        RequestFault::Role { at, role } => {
            let text = format!(
                "Input tag '{role}' found using 'role' does not match any of the expected tags: \
                 'assistant', 'system', 'tool', 'user'"
            );
            invalid("union_tag_invalid", &json!(["body", "messages", at]), &text)
        }
        RequestFault::NoTools => {
            let text = "List should have at least 1 item after validation, not 0";
            invalid("too_short", &json!(["body", "tools"]), text)
        }
        RequestFault::Id { id } => error(
            "invalid_function_call",
            "3280",
            &format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."),
        ),
        RequestFault::Order { role, after, .. } => {
            error(ORDER, "3230", &format!("Unexpected role '{role}' after role '{after}'"))
        }
        RequestFault::Last { role } => error(
            ORDER,
            "3230",
            &format!(
                "Expected last role User or Tool (or Assistant with prefix True) for serving but got \
             {role}"
            ),
        ),
        RequestFault::Unanswered { .. } => {
            error(ORDER, "3230", "Not the same number of function calls and responses")
        }
        RequestFault::Orphan { .. } => {
            error(ORDER, "3230", "Unexpected tool call id in tool results")
        }
        RequestFault::Empty { .. } => error(
            "invalid_request_assistant_message",
            "3240",
            "Assistant message must have either content or tool_calls, but not none.",
        ),
        _ => error("invalid_request_error", "3051", &wrong.openai_message()),
    }
}

const ORDER: &str = "invalid_request_message_order";

fn invalid(kind: &str, place: &Value, text: &str) -> (u16, Value) {
    (422, json!({ "detail": [{ "type": kind, "loc": place, "msg": text }] }))
}

fn error(kind: &str, code: &str, message: &str) -> (u16, Value) {
    let object = "error";
    (
        400,
        json!({ "object": object, "message": message, "type": kind, "param": null, "code": code }),
    )
}

fn stream_answer(_: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    for piece in words(&answer.thought) {
        let thinking = json!([{ "type": "text", "text": piece }]);
        speech.delta(&json!({ "content": [{ "type": "thinking", "thinking": thinking }] }));
    }
    // The first word comes as a part, the others as strings.
    for (number, piece) in words(&answer.words).enumerate() {
        let text = json!([{ "type": "text", "text": piece }]);
        speech.delta(&json!({ "content": if number == 0 { text } else { json!(piece) } }));
    }
    let whole = answer.calls.iter().enumerate().map(|(index, it)| whole_call(index, it));
    let calls: Vec<Value> = whole.collect();
    let delta = if calls.is_empty() {
        json!({ "content": "" })
    } else {
        json!({ "content": "", "tool_calls": calls })
    };
    let mut last = chunk(&delta, &json!(finish_reason(answer)));
    last["usage"] = usage();
    speech.end(&last);
    speech
}
