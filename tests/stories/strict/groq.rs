//! Groq: accepts only strings as content and only known keys, and once fails to parse a call of the model.
//! The model's name does not identify the provider, so a client has to learn from refusals.

use serde_json::{Value, json};

use super::rules::{any_id, is_text, no_consecutive_users, openai_error};
use super::speech::{chunk, finish_reason, usage, whole_call, words};
use super::{
    MockResponse, ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream,
    schema,
};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "groq",
    model: "openai/gpt-oss-120b",
    rules: RequestRules {
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
        may_follow: no_consecutive_users,
        schema: schema::narrow,
    },
    extra_check: |_, _| Ok(()),
    harms: |_, _| Vec::new(),
    error_response,
    call_id: |count, _| format!("fc_7d1c3d2e-0000-4000-8000-{count:012}"),
    transient_failure,
    stream_answer,
};

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let message = match wrong {
        RequestFault::Key(key) => format!("property '{key}' is unsupported"),
        RequestFault::MessageKey { at, role, key } => {
            let (place, key) = match key.rsplit_once('.') {
                Some((place, key)) => (format!("messages.{at}.{place}.0"), key),
                None => (format!("messages.{at}"), key.as_str()),
            };
            unsatisfied(*at, role, &format!("'{place}' : property '{key}' is unsupported"))
        }
        RequestFault::Content { at, role } => {
            unsatisfied(*at, role, &format!("'messages.{at}.content' : value must be a string"))
        }
        RequestFault::Role { at, .. } => {
            format!("'messages.{at}' : discriminator property 'role' has invalid value")
        }
        RequestFault::Empty { at } => {
            let what = format!("'messages.{at}' : one of 'content' or 'tool_calls' is required");
            unsatisfied(*at, "assistant", &what)
        }
        RequestFault::NoTools => "'tools' : minimum number of items is 1".to_owned(),
        _ => wrong.openai_message(),
    };
    (400, openai_error(&message))
}

fn unsatisfied(at: usize, role: &str, what: &str) -> String {
    format!("'messages.{at}' : for 'role:{role}' the following must be satisfied[({what})]")
}

/// Fails because the model wrote its call as text.
fn transient_failure(answer: &ScriptedAnswer) -> Option<MockResponse> {
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
    Some(MockResponse::Plain(400, error))
}

fn stream_answer(_: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    speech.delta(&json!({ "role": "assistant", "content": null }));
    for piece in words(&answer.thought) {
        speech.delta(&json!({ "reasoning": piece, "channel": "analysis" }));
    }
    for piece in words(&answer.words) {
        speech.delta(&json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        speech.delta(&json!({ "tool_calls": [whole_call(index, call)] }));
    }
    let mut last = chunk(&json!({}), &json!(finish_reason(answer)));
    last["usage"] = usage();
    last["x_groq"] = json!({ "id": "req_1", "usage": usage() });
    speech.end(&last);
    speech
}
