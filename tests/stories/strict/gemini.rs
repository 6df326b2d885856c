//! Gemini's compatible endpoint: requires the signature of each call, returns errors as a list, and
//! has the finish reason `stop` even for an answer with calls.

use serde_json::{Value, json};

use super::rules::{
    any_id, assistant_messages, calls, is_text_or_null, no_consecutive_users, text,
};
use super::speech::{chunk, usage, whole_call};
use super::{ProviderDialect, RequestFault, RequestRules, ScriptedAnswer, ScriptedStream, schema};

/// The placeholder for the signature of a call by another model.
pub const SENTINEL: &str = "skip_thought_signature_validator";

pub static PROVIDER: ProviderDialect = ProviderDialect {
    name: "gemini",
    model: "gemini-3-pro-preview",
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
            "reasoning_effort",
            "response_format",
            "extra_body",
        ],
        answer_keys: &["extra_content"],
        call_keys: &["extra_content"],
        content: is_text_or_null,
        id: any_id,
        may_follow: no_consecutive_users,
        schema: schema::narrow,
    },
    extra_check,
    harms: |_, _| Vec::new(),
    error_response,
    call_id: |count, _| format!("function-call-{count:020}"),
    transient_failure: |_| None,
    stream_answer,
};

/// Returns the signature of an answer, which its first call carries.
fn signature(answer: &ScriptedAnswer) -> String {
    format!("c2lnbmVkIGJ5IGdlbWluaQ{:06}==", answer.number)
}

fn extra_check(body: &Value, past: &[ScriptedAnswer]) -> Result<(), RequestFault> {
    for (at, message) in assistant_messages(body) {
        let Some(first) = calls(message).next() else { continue };
        let given = text(&first["extra_content"]["google"]["thought_signature"]);
        if given.is_empty() {
            return Err(RequestFault::NoSignature { at, call: text(&first["function"]["name"]) });
        }
        if given != SENTINEL && !past.iter().any(|it| signature(it) == given) {
            return Err(RequestFault::BadSignature { at });
        }
    }
    Ok(())
}

fn error_response(wrong: &RequestFault) -> (u16, Value) {
    let unknown = |key: &str, place: &str| {
        format!("Invalid JSON payload received. Unknown name \"{key}\"{place}: Cannot find field.")
    };
    let message = match wrong {
        RequestFault::Key(key) => unknown(key, ""),
        RequestFault::MessageKey { at, key, .. } => unknown(key, &format!(" at 'messages[{at}]'")),
        RequestFault::NoSignature { at, call } => format!(
            "Function call is missing a thought_signature in functionCall parts. This is required \
             for tools to work correctly, and missing thought_signature may lead to degraded model \
             performance. Additional data, function call `default_api:{call}` , position {at}. \
             Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more \
             details."
        ),
        RequestFault::BadSignature { .. } => "Thought signature is not valid.".to_owned(),
        RequestFault::Unanswered { .. } | RequestFault::Orphan { .. } => {
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn."
                .to_owned()
        }
        RequestFault::Schema { path, why, .. } => {
            format!("Invalid JSON payload received. {why} at 'tools[0].function.parameters.{path}'")
        }
        _ => wrong.openai_message(),
    };
    (400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }]))
}

fn stream_answer(_: &Value, answer: &ScriptedAnswer) -> ScriptedStream {
    let mut speech = ScriptedStream::new(answer);
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
