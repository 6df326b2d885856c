//! GLM at z.ai: few parameters, errors with a number, finish reasons of its own.

use serde_json::{Value, json};

use super::rules::{answers, any_id, is_text_or_null, no_two_users};
use super::speech::{chunk, pieces, reason, usage, whole_call};
use super::{Answer, Provider, Response, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "glm",
    model: "glm-4.6",
    rules: Rules {
        // `stream_options` is not documented, but it is taken.
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
        follows: no_two_users,
        schema: schema::any,
    },
    also,
    harms,
    refuse,
    mint: |count, _| format!("call_-84690155946{count:08}"),
    stumble,
    speak,
};

fn also(body: &Value, _: &[Answer]) -> Result<(), Wrong> {
    let stops = body["stop"].as_array().map_or(0, Vec::len);
    if stops > 1 || body["stop"].is_string() {
        return Err(Wrong::Value { key: "stop", given: body["stop"].clone() });
    }
    match &body["tool_choice"] {
        Value::Null => Ok(()),
        choice if *choice == "auto" => Ok(()),
        choice => Err(Wrong::Value { key: "tool_choice", given: choice.clone() }),
    }
}

/// Its thinking is kept over calls only if the reasoning comes back.
fn harms(body: &Value, past: &[Answer]) -> Vec<String> {
    let own = answers(body).filter_map(|(_, message)| {
        let answer = past.iter().find(|it| it.is(message))?;
        let is_lost = !message["reasoning_content"].to_string().contains(&answer.thought);
        is_lost.then(|| format!("glm: what it thought has not come back: {}", answer.thought))
    });
    own.collect()
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let (code, message) = match wrong {
        Wrong::Model(_) => ("1211", "Unknown Model, please check the model code."),
        Wrong::Key(_)
        | Wrong::Value { .. }
        | Wrong::NoTools
        | Wrong::Tool { .. }
        | Wrong::Schema { .. }
        | Wrong::Name { .. } => ("1210", "Invalid API parameter, please check the documentation."),
        _ => ("1214", "The messages parameter is illegal. Please check the documentation."),
    };
    (400, json!({ "error": { "code": code, "message": message } }))
}

/// Its network fails before the first word.
fn stumble(answer: &Answer) -> Option<Response> {
    if answer.number != 4 {
        return None;
    }
    let mut speech = Speech::default();
    speech.delta(&json!({ "role": "assistant", "content": "" }));
    speech.end(&chunk(&json!({ "role": "assistant", "content": "" }), &json!("network_error")));
    Some(Response::Stream(speech))
}

fn speak(body: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    for piece in pieces(&answer.thought) {
        speech.delta(&json!({ "role": "assistant", "reasoning_content": piece }));
    }
    for piece in pieces(&answer.words) {
        speech.delta(&json!({ "role": "assistant", "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        if body["tool_stream"] == true {
            speech.call(index, call);
        } else {
            speech.delta(&json!({ "role": "assistant", "tool_calls": [whole_call(index, call)] }));
        }
    }
    let finish = if answer.is_filtered { "sensitive" } else { reason(answer) };
    let mut last = chunk(&json!({ "role": "assistant", "content": "" }), &json!(finish));
    last["usage"] = usage();
    speech.end(&last);
    speech
}
