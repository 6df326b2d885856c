//! MiniMax: thinking is in the words between tags, or beside them if asked to, and comes back the
//! way it was sent; every chunk has a usage and no chunk says anything in it.

use serde_json::{Value, json};

use super::rules::{answers, any_id, is_text, no_two_users, text};
use super::speech::{chunk, event, pieces, reason, usage, whole_call};
use super::{Answer, Provider, Rules, Speech, Wrong, schema};

pub static PROVIDER: Provider = Provider {
    name: "minimax",
    model: "MiniMax-M2",
    rules: Rules {
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
        follows: no_two_users,
        schema: schema::any,
    },
    also,
    harms,
    refuse,
    mint: |count, _| format!("call_function_{count:012}_1"),
    stumble: |_| None,
    speak,
};

fn also(body: &Value, _: &[Answer]) -> Result<(), Wrong> {
    let functions = body["tools"].as_array().into_iter().flatten().map(|it| &it["function"]);
    match functions.into_iter().find(|it| !it["parameters"].is_object()) {
        Some(function) => {
            Err(Wrong::Tool { name: text(&function["name"]), why: "function parameters is empty" })
        }
        None => Ok(()),
    }
}

/// What it thought has to come back whole, in either form.
fn harms(body: &Value, past: &[Answer]) -> Vec<String> {
    let own = answers(body).filter_map(|(_, message)| {
        let answer = past.iter().find(|it| it.is(message))?;
        let tags = format!("<think>\n{}\n</think>", answer.thought);
        let content = message["content"].as_str().unwrap_or_default();
        let details = message["reasoning_details"].to_string();
        let is_lost = !content.contains(&tags) && !details.contains(&answer.thought);
        is_lost.then(|| format!("minimax: what it thought has not come back: {}", answer.thought))
    });
    own.collect()
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let what = match wrong {
        Wrong::Model(name) => format!("unknown model '{name}'"),
        Wrong::Role { role, .. } => format!("chat content has invalid message role: {role}"),
        Wrong::Unanswered { .. } => "tool call and result not match".to_owned(),
        Wrong::Orphan { id } => format!("tool result's tool id({id}) not found"),
        Wrong::Arguments { id } => {
            format!("invalid function arguments json string, tool_call_id: {id}")
        }
        Wrong::Tool { why, .. } => (*why).to_owned(),
        Wrong::Empty { .. } => "chat content is empty".to_owned(),
        Wrong::Key(key) => format!("unknown parameter {key}"),
        _ => wrong.plain(),
    };
    let message = format!("invalid params, {what} (2013)");
    let error = json!({ "type": "bad_request_error", "message": message, "http_code": "400" });
    (400, json!({ "type": "error", "error": error, "request_id": "0660b098aa1e9dd5a6773a48" }))
}

fn speak(body: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    if body["reasoning_split"] == true {
        for piece in pieces(&answer.thought) {
            let detail = json!({ "type": "reasoning.text", "id": "reasoning-text-1", "index": 0,
                "format": "MiniMax-response-v1", "text": piece });
            say(&mut speech, &json!({ "role": "assistant", "reasoning_details": [detail] }));
        }
    } else {
        // The tags come in pieces, and the end of one with the first word.
        say(&mut speech, &json!({ "role": "assistant", "content": "<thi" }));
        say(&mut speech, &json!({ "content": "nk>\n" }));
        for piece in pieces(&answer.thought) {
            say(&mut speech, &json!({ "content": piece }));
        }
        say(&mut speech, &json!({ "content": "\n</th" }));
        say(&mut speech, &json!({ "content": "ink>\n\n" }));
    }
    for piece in pieces(&answer.words) {
        say(&mut speech, &json!({ "content": piece }));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        say(&mut speech, &json!({ "tool_calls": [whole_call(index, call)] }));
    }
    let mut last = chunk(&json!({ "role": "assistant", "content": "" }), &json!(reason(answer)));
    last["usage"] = usage();
    last["base_resp"] = json!({ "status_code": 0, "status_msg": "" });
    speech.end(&last);
    speech
}

fn say(speech: &mut Speech, delta: &Value) {
    let mut chunk = chunk(delta, &Value::Null);
    chunk["usage"] = if speech.said.is_empty() { json!({}) } else { Value::Null };
    speech.raw(&event(&chunk));
}
