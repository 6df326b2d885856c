//! A recorded reply as text.
//!
//! Adjacent deltas of one kind make one line, so the text does not depend on how the stream was cut.
//! The end of the reply follows:
//!
//! ```text
//! thought "Where is it?"
//! text "I will look."
//! call 0 read_file
//! args 0 {"path":"src/main.rs"}
//! complete 812+34 cached 768
//!   0 "call_1" "read_file" {"path":"src/main.rs"}
//! ```

use turnwright_llm::internals::read_reply;
use turnwright_llm::{Delta, EndReason, LlmError, Protocol, Reply, ReplyCall};
use turnwright_types::message::{Arguments, ProviderState, TokenUsage};

/// Reads a reply of a model that was offered these tools from its pieces, and describes it.
pub(crate) fn transcribe<'a>(
    protocol: Protocol,
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let (deltas, outcome) = read_reply(protocol, model, tools, pieces);
    let mut lines: Vec<String> = deltas.iter().map(delta_line).collect();
    match outcome {
        Ok(reply) => lines.extend(reply_lines(&reply)),
        Err(error) => lines.push(error_line(&error)),
    }
    lines.join("\n") + "\n"
}

fn delta_line(delta: &Delta) -> String {
    match delta {
        Delta::Text(text) => format!("text {text:?}"),
        Delta::Thought(text) => format!("thought {text:?}"),
        Delta::CallNamed { slot, name } => format!("call {slot} {name}"),
        Delta::CallArguments { slot, text } => format!("args {slot} {text}"),
    }
}

/// The end of a reply: the reason, the token counts, the calls, the provider's data.
fn reply_lines(reply: &Reply) -> Vec<String> {
    let end_label = match &reply.end {
        EndReason::Complete => "complete".to_owned(),
        EndReason::Length => "length".to_owned(),
        EndReason::Refused(reason) => format!("refused {reason:?}"),
    };
    let mut lines = vec![end_label + &reply.usage.map(usage_text).unwrap_or_default()];
    lines.extend(reply.calls.iter().map(call_line));
    lines.extend(reply.has_lost_calls.then(|| "  calls are lost".to_owned()));
    lines.extend(provider_state_line(&reply.provider_state));
    lines
}

fn usage_text(usage: TokenUsage) -> String {
    let cached = match usage.cached {
        0 => String::new(),
        cached => format!(" cached {cached}"),
    };
    format!(" {}+{}{cached}", usage.input, usage.output)
}

fn call_line(call: &ReplyCall) -> String {
    let slot = call.slot;
    let id = &call.provider_id;
    let name = &call.name;
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { reason, .. } => format!("unusable: {reason}"),
    };
    let extra = call.extra.as_ref().map(|extra| format!(" extra={extra}")).unwrap_or_default();
    format!("  {slot} {id:?} {name:?} {arguments}{extra}")
}

/// The data that the provider requires back.
fn provider_state_line(provider_state: &ProviderState) -> Option<String> {
    let mut line = String::new();
    if let Some(field) = &provider_state.field {
        line.push_str(&format!(" field={field}"));
    }
    if !provider_state.blobs.is_empty() {
        let blobs: Vec<String> = provider_state.blobs.iter().map(ToString::to_string).collect();
        line.push_str(&format!(" blobs=[{}]", blobs.join(",")));
    }
    if line.is_empty() { None } else { Some(format!("provider-state{line}")) }
}

/// The variant of an error, its status, kind and retry delay, and its message.
fn error_line(error: &LlmError) -> String {
    let variant = match error {
        LlmError::Connect { .. } => "connect",
        LlmError::Status { .. } => "status",
        LlmError::InStream { .. } => "in-stream",
        LlmError::Truncated { .. } => "truncated",
        LlmError::TimedOut { .. } => "timed-out",
        LlmError::Silent { .. } => "silent",
        LlmError::Malformed { .. } => "malformed",
        LlmError::EndlessRepetition { .. } => "repetition",
        LlmError::EmptyReply { .. } => "empty",
        LlmError::Config(_) => "config",
    };
    let status = error.status().map(|status| format!(" {status}")).unwrap_or_default();
    let kind = match error {
        LlmError::Status { kind, .. } | LlmError::InStream { kind, .. } => {
            format!(" {}", kind.name())
        }
        _ => String::new(),
    };
    let window =
        error.context_window().map(|window| format!(" window={window}")).unwrap_or_default();
    let transient = if error.is_transient() { ", transient" } else { "" };
    let wait = error.retry_after().map(|wait| format!(" after {wait:?}")).unwrap_or_default();
    format!("{variant}{status}{kind}{window}{transient}{wait}: {error}")
}
