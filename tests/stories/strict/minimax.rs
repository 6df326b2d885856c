//! MiniMax: streams reasoning in tags within the text, or in a separate field on request, and needs it
//! sent back in the same form. Every chunk has a `usage` key, without numbers until the last.

use serde_json::{Value, json};

use super::rules::{any_id, assistant_messages, is_text, no_consecutive_users, text};
use super::speech::{chunk, event, finish_reason, usage, whole_call, words};
use super::{ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream, schema};

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "minimax",
    model: "MiniMax-M2",
    rules: RequestRules {
        keys: &[
            "model",
            "messages",
            "tools",
            "stream",
            "stream_options",
            "max_completion_tokens",
            "max_tokens",
            "temperature",
            "top_p",
            "thinking",
            "reasoning_split",
            "response_format",
        ],
        answer_keys: &["reasoning_details"],
        call_keys: &[],
        content: is_text,
        id: any_id,
        may_follow: no_consecutive_users,
        schema: schema::any,
    },
    extra_check,
    harms,
    error_response,
    call_id: |count, _| format!("call_function_{count:012}_1"),
    transient_failure: |_| None,
    stream_answer,
};

fn extra_check(body: &Value, _: &[ScriptedAnswer]) -> Result<(), RequestFault> {
    let functions = body["tools"].as_array().into_iter().flatten().map(|it| &it["function"]);
    match functions.into_iter().find(|it| !it["parameters"].is_object()) {
        Some(function) => Err(RequestFault::Tool {
            name: text(&function["name"]),
            why: "function parameters is empty",
        }),
        None => Ok(()),
    }
}

/// Reports reasoning that was not sent back completely, in either form.
fn harms(body: &Value, past: &[ScriptedAnswer]) -> Vec<String> {
    let own = assistant_messages(body).filter_map(|(_, message)| {
        let answer = past.iter().find(|it| it.is(message))?;
        let tags = format!("<think>\n{}\n</think>", answer.thought);
        let content = message["content"].as_str().unwrap_or_default();
        let details = message["reasoning_details"].to_string();
        let is_lost = !content.contains(&tags) && !details.contains(&answer.thought);
        is_lost.then(|| format!("minimax: its reasoning was not sent back: {}", answer.thought))
    });
    own.collect()
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let what = match wrong {
        RequestFault::Model(name) => format!("unknown model '{name}'"),
        RequestFault::Role { role, .. } => format!("chat content has invalid message role: {role}"),
        RequestFault::Unanswered { .. } => "tool call and result not match".to_owned(),
        RequestFault::Orphan { id } => format!("tool result's tool id({id}) not found"),
        RequestFault::Arguments { id } => {
            format!("invalid function arguments json string, tool_call_id: {id}")
        }
        RequestFault::Tool { why, .. } => (*why).to_owned(),
        RequestFault::Empty { .. } => "chat content is empty".to_owned(),
        RequestFault::Key(key) => format!("unknown parameter {key}"),
        _ => wrong.openai_message(),
    };
    let message = format!("invalid params, {what} (2013)");
    let error = json!({ "type": "bad_request_error", "message": message, "http_code": "400" });
    (400, json!({ "type": "error", "error": error, "request_id": "0660b098aa1e9dd5a6773a48" }))
}

fn stream_answer(body: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
    if body["reasoning_split"] == true {
        for piece in words(&answer.thought) {
            let detail = json!({ "type": "reasoning.text", "id": "reasoning-text-1", "index": 0,
                "format": "MiniMax-response-v1", "text": piece });
            say(&mut speech, &json!({ "role": "assistant", "reasoning_details": [detail] }));
        }
    } else {
        // The tags are split across chunks.
        say(&mut speech, &json!({ "role": "assistant", "content": "<thi" }));
        say(&mut speech, &json!({ "content": "nk>\n" }));
        for piece in words(&answer.thought) {
            say(&mut speech, &json!({ "content": piece }));
        }
        say(&mut speech, &json!({ "content": "\n</th" }));
        say(&mut speech, &json!({ "content": "ink>\n\n" }));
    }
    for piece in words(&answer.words) {
        say(&mut speech, &json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        say(&mut speech, &json!({ "tool_calls": [whole_call(index, call)] }));
    }
    let mut last =
        chunk(&json!({ "role": "assistant", "content": "" }), &json!(finish_reason(answer)));
    last["usage"] = usage();
    last["base_resp"] = json!({ "status_code": 0, "status_msg": "" });
    speech.end(&last);
    speech
}

fn say(speech: &mut ScriptedStream, delta: &Value) {
    let mut chunk = chunk(delta, &Value::Null);
    chunk["usage"] = if speech.events.is_empty() { json!({}) } else { Value::Null };
    speech.raw(&event(&chunk));
}
