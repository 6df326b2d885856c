//! Gemini's compatible endpoint: a call comes back with its signature, an error is a list, an
//! answer with calls ends as if there were none.

use serde_json::{Value, json};

use super::rules::{answers, any_id, calls, is_text_or_null, no_two_users, text};
use super::speech::{chunk, usage, whole_call};
use super::{Answer, Provider, Rules, Speech, Wrong, schema};

/// What stands for the signature of a call that another model made.
pub const SENTINEL: &str = "skip_thought_signature_validator";

pub static PROVIDER: Provider = Provider {
    name: "gemini",
    model: "gemini-3-pro-preview",
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
            "reasoning_effort",
            "response_format",
            "extra_body",
        ],
        answer_keys: &["extra_content"],
        call_keys: &["extra_content"],
        content: is_text_or_null,
        id: any_id,
        follows: no_two_users,
        schema: schema::narrow,
    },
    also,
    harms: |_, _| Vec::new(),
    refuse,
    mint: |count, _| format!("function-call-{count:020}"),
    stumble: |_| None,
    speak,
};

/// The signature of an answer. It is on the first of its calls.
fn signature(answer: &Answer) -> String {
    format!("c2lnbmVkIGJ5IGdlbWluaQ{:06}==", answer.number)
}

fn also(body: &Value, past: &[Answer]) -> Result<(), Wrong> {
    for (at, message) in answers(body) {
        let Some(first) = calls(message).next() else { continue };
        let given = text(&first["extra_content"]["google"]["thought_signature"]);
        if given.is_empty() {
            return Err(Wrong::NoSignature { at, call: text(&first["function"]["name"]) });
        }
        if given != SENTINEL && !past.iter().any(|it| signature(it) == given) {
            return Err(Wrong::BadSignature { at });
        }
    }
    Ok(())
}

fn refuse(wrong: &Wrong) -> (u16, Value) {
    let unknown = |key: &str, place: &str| {
        format!("Invalid JSON payload received. Unknown name \"{key}\"{place}: Cannot find field.")
    };
    let message = match wrong {
        Wrong::Key(key) => unknown(key, ""),
        Wrong::MessageKey { at, key, .. } => unknown(key, &format!(" at 'messages[{at}]'")),
        Wrong::NoSignature { at, call } => format!(
            "Function call is missing a thought_signature in functionCall parts. This is required \
             for tools to work correctly, and missing thought_signature may lead to degraded model \
             performance. Additional data, function call `default_api:{call}` , position {at}. \
             Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more \
             details."
        ),
        Wrong::BadSignature { .. } => "Thought signature is not valid.".to_owned(),
        Wrong::Unanswered { .. } | Wrong::Orphan { .. } => {
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn."
                .to_owned()
        }
        Wrong::Schema { path, why, .. } => {
            format!("Invalid JSON payload received. {why} at 'tools[0].function.parameters.{path}'")
        }
        _ => wrong.plain(),
    };
    (400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }]))
}

fn speak(_: &Value, answer: &Answer) -> Speech {
    let mut speech = Speech::new(answer);
    if !answer.words.is_empty() {
        speech.delta(&json!({ "role": "assistant", "content": answer.words }));
    }
    for (number, call) in answer.calls.iter().enumerate() {
        let mut call = whole_call(0, call);
        if let Some(fields) = call.as_object_mut() {
            fields.remove("index");
        }
        if number == 0 {
            call["extra_content"] = json!({ "google": { "thought_signature": signature(answer) } });
        }
        speech.delta(&json!({ "role": "assistant", "tool_calls": [call] }));
    }
    let mut last = chunk(&json!({ "role": "assistant" }), &json!("stop"));
    last["usage"] = usage();
    speech.end(&last);
    speech
}
