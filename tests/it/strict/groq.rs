//! Groq: strings only, nothing it does not know, and once a call that it could not read itself.
//! The model's name says nothing about it: a client learns from the refusals.

use serde_json::{Value, json};

use super::rules::{any_id, is_text, no_two_users, openai_error};
use super::speech::{chunk, pieces, reason, usage, whole_call};
use super::{Answer, Provider, Response, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "groq",
    model: "openai/gpt-oss-120b",
    rules: Rules {
        keys: &[
            "model",
            "messages",
            "tools",
            "tool_choice",
            "stream",
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "n",
            "stop",
            "seed",
            "user",
            "frequency_penalty",
            "presence_penalty",
            "response_format",
            "parallel_tool_calls",
            "reasoning_effort",
            "reasoning_format",
            "include_reasoning",
            "service_tier",
            "logit_bias",
            "logprobs",
            "top_logprobs",
        ],
        answer_keys: &["reasoning"],
        call_keys: &[],
        content: is_text,
        id: any_id,
        follows: no_two_users,
        schema: schema::narrow,
    },
    also: |_, _| Ok(()),
    harms: |_, _| Vec::new(),
    refuse,
    mint: |count, _| format!("fc_7d1c3d2e-0000-4000-8000-{count:012}"),
    stumble,
    speak,
};

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let message = match wrong {
        Wrong::Key(key) => format!("property '{key}' is unsupported"),
        Wrong::MessageKey { at, role, key } => {
            let (place, key) = match key.rsplit_once('.') {
                Some((place, key)) => (format!("messages.{at}.{place}.0"), key),
                None => (format!("messages.{at}"), key.as_str()),
            };
            unsatisfied(*at, role, &format!("'{place}' : property '{key}' is unsupported"))
        }
        Wrong::Content { at, role } => {
            unsatisfied(*at, role, &format!("'messages.{at}.content' : value must be a string"))
        }
        Wrong::Role { at, .. } => {
            format!("'messages.{at}' : discriminator property 'role' has invalid value")
        }
        Wrong::Empty { at } => {
            let what = format!("'messages.{at}' : one of 'content' or 'tool_calls' is required");
            unsatisfied(*at, "assistant", &what)
        }
        Wrong::NoTools => "'tools' : minimum number of items is 1".to_owned(),
        _ => wrong.plain(),
    };
    (400, openai_error(&message))
}

fn unsatisfied(at: usize, role: &str, what: &str) -> String {
    format!("'messages.{at}' : for 'role:{role}' the following must be satisfied[({what})]")
}

/// The model has written its call as text.
fn stumble(answer: &Answer) -> Option<Response> {
    let [call] = answer.calls.as_slice() else { return None };
    if answer.number < 4 {
        return None;
    }
    let generation = format!("<function={}>{}</function>", call.name, call.arguments);
    let message = "Failed to call a function. Please adjust your prompt. See 'failed_generation' \
                   for more details.";
    let mut error = openai_error(message);
    error["error"]["code"] = json!("tool_use_failed");
    error["error"]["failed_generation"] = json!(generation);
    Some(Response::Plain(400, error))
}

fn speak(_: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": null }));
    for piece in pieces(&answer.thought) {
        speech.delta(&json!({ "reasoning": piece, "channel": "analysis" }));
    }
    for piece in pieces(&answer.words) {
        speech.delta(&json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.delta(&json!({ "tool_calls": [whole_call(index, call)] }));
    }
    let mut last = chunk(&json!({}), &json!(reason(answer)));
    last["usage"] = usage();
    last["x_groq"] = json!({ "id": "req_1", "usage": usage() });
    speech.end(&last);
    speech
}
