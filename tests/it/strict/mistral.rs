//! Mistral: nothing it does not know, identifiers of nine characters, no prompt right behind a
//! result, errors without a wrapper, content in parts.

use serde_json::{Value, json};

use super::rules::no_two_users;
use super::speech::{chunk, pieces, reason, usage, whole_call};
use super::{Answer, Provider, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "mistral",
    model: "magistral-medium-2509",
    rules: Rules {
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
        follows: |role, after| no_two_users(role, after) && (role, after) != ("user", "tool"),
        schema: schema::any,
    },
    also: |_, _| Ok(()),
    harms: |_, _| Vec::new(),
    refuse,
    mint: |count, _| format!("mI5{count:06}"),
    stumble: |_| None,
    speak,
};

/// A string, or parts that are text or thinking.
fn content(content: &Value) -> bool {
    let is_part = |it: &Value| it["type"] == "text" || it["type"] == "thinking";
    content.is_string() || content.as_array().is_some_and(|parts| parts.iter().all(is_part))
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let extra = "Extra inputs are not permitted";
    match wrong {
        Wrong::Key(key) => invalid("extra_forbidden", &json!(["body", key]), extra),
        Wrong::MessageKey { at, role, key } => {
            let place: Vec<Value> = [json!("body"), json!("messages"), json!(at), json!(role)]
                .into_iter()
                .chain(key.split('.').map(|it| json!(it)))
                .collect();
            invalid("extra_forbidden", &json!(place), extra)
        }
        Wrong::Content { at, role } => {
            let place = json!(["body", "messages", at, role, "content", "str"]);
            invalid("string_type", &place, "Input should be a valid string")
        }
        Wrong::Role { at, role } => {
            let text = format!(
                "Input tag '{role}' found using 'role' does not match any of the expected tags: \
                 'assistant', 'system', 'tool', 'user'"
            );
            invalid("union_tag_invalid", &json!(["body", "messages", at]), &text)
        }
        Wrong::NoTools => {
            let text = "List should have at least 1 item after validation, not 0";
            invalid("too_short", &json!(["body", "tools"]), text)
        }
        Wrong::Id { id } => error(
            "invalid_function_call",
            "3280",
            &format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."),
        ),
        Wrong::Order { role, after, .. } => {
            error(ORDER, "3230", &format!("Unexpected role '{role}' after role '{after}'"))
        }
        Wrong::Last { role } => error(
            ORDER,
            "3230",
            &format!(
                "Expected last role User or Tool (or Assistant with prefix True) for serving but got \
             {role}"
            ),
        ),
        Wrong::Unanswered { .. } => {
            error(ORDER, "3230", "Not the same number of function calls and responses")
        }
        Wrong::Orphan { .. } => error(ORDER, "3230", "Unexpected tool call id in tool results"),
        Wrong::Empty { .. } => error(
            "invalid_request_assistant_message",
            "3240",
            "Assistant message must have either content or tool_calls, but not none.",
        ),
        _ => error("invalid_request_error", "3051", &wrong.plain()),
    }
}

const ORDER: &str = "invalid_request_message_order";

fn invalid(sort: &str, place: &Value, text: &str) -> (u16, Value) {
    (422, json!({ "detail": [{ "type": sort, "loc": place, "msg": text }] }))
}

fn error(sort: &str, code: &str, message: &str) -> (u16, Value) {
    let object = "error";
    (
        400,
        json!({ "object": object, "message": message, "type": sort, "param": null, "code": code }),
    )
}

fn speak(_: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    for piece in pieces(&answer.thought) {
        let thinking = json!([{ "type": "text", "text": piece }]);
        speech.delta(&json!({ "content": [{ "type": "thinking", "thinking": thinking }] }));
    }
    // The first words come as a part and the others as a string.
    for (number, piece) in pieces(&answer.words).enumerate() {
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
    let mut last = chunk(&delta, &json!(reason(answer)));
    last["usage"] = usage();
    speech.end(&last);
    speech
}
