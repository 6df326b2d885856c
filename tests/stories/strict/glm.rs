//! GLM at z.ai: few parameters, numbered errors, finish reasons of its own.

use serde_json::{Value, json};

use super::rules::{any_id, assistant_messages, is_text_or_null, no_consecutive_users};
use super::speech::{chunk, finish_reason, usage, whole_call, words};
use super::{
    MockResponse, ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream,
    schema,
};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "glm",
    model: "glm-4.6",
    rules: RequestRules {
        // GLM does not document `stream_options`, but accepts it.
        keys: &[
            "model",
            "messages",
            "tools",
            "tool_choice",
            "tool_stream",
            "stream",
            "stream_options",
            "max_tokens",
            "temperature",
            "top_p",
            "do_sample",
            "stop",
            "response_format",
            "thinking",
            "request_id",
            "user_id",
        ],
        answer_keys: &["reasoning_content"],
        call_keys: &[],
        content: is_text_or_null,
        id: any_id,
        may_follow: no_consecutive_users,
        schema: schema::any,
    },
    extra_check,
    harms,
    error_response,
    call_id: |count, _| format!("call_-84690155946{count:08}"),
    transient_failure,
    stream_answer,
};

fn extra_check(body: &Value, _: &[ScriptedAnswer]) -> Result<(), RequestFault> {
    let stops = body["stop"].as_array().map_or(0, Vec::len);
    if stops > 1 || body["stop"].is_string() {
        return Err(RequestFault::Value { key: "stop", given: body["stop"].clone() });
    }
    match &body["tool_choice"] {
        Value::Null => Ok(()),
        choice if *choice == "auto" => Ok(()),
        choice => Err(RequestFault::Value { key: "tool_choice", given: choice.clone() }),
    }
}

/// Reports reasoning that was not sent back, because the model keeps its reasoning across calls
/// only if it is sent back.
fn harms(body: &Value, past: &[ScriptedAnswer]) -> Vec<String> {
    let own = assistant_messages(body).filter_map(|(_, message)| {
        let answer = past.iter().find(|it| it.is(message))?;
        let is_lost = !message["reasoning_content"].to_string().contains(&answer.thought);
        is_lost.then(|| format!("glm: its reasoning was not sent back: {}", answer.thought))
    });
    own.collect()
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let (code, message) = match wrong {
        RequestFault::Model(_) => ("1211", "Unknown Model, please check the model code."),
        RequestFault::Key(_)
        | RequestFault::Value { .. }
        | RequestFault::NoTools
        | RequestFault::Tool { .. }
        | RequestFault::Schema { .. }
        | RequestFault::Name { .. } => {
            ("1210", "Invalid API parameter, please check the documentation.")
        }
        _ => ("1214", "The messages parameter is illegal. Please check the documentation."),
    };
    (400, json!({ "error": { "code": code, "message": message } }))
}

/// Reports a network error before the first word.
fn transient_failure(answer: &ScriptedAnswer) -> Option<MockResponse> {
    if answer.number != 4 {
        return None;
    }
    let mut speech = ScriptedStream::default();
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    speech.end(&chunk(&json!({ "role": "assistant", "content": "" }), &json!("network_error")));
    Some(MockResponse::Stream(speech))
}

fn stream_answer(body: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    for piece in words(&answer.thought) {
        speech.delta(&json!({ "role": "assistant", "reasoning_content": piece }));
    }
    for piece in words(&answer.words) {
        speech.delta(&json!({ "role": "assistant", "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        if body["tool_stream"] == true {
            speech.call(index, call);
        } else {
            speech.delta(&json!({ "role": "assistant", "tool_calls": [whole_call(index, call)] }));
        }
    }
    let finish = if answer.is_filtered { "sensitive" } else { finish_reason(answer) };
    let mut last = chunk(&json!({ "role": "assistant", "content": "" }), &json!(finish));
    last["usage"] = usage();
    speech.end(&last);
    speech
}
