//! Describes a recorded reply as text: for the corpus of recorded streams, the fuzz targets and bug
//! reports. Does no I/O.
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

use super::{Delta, DeltaBatch, EndReason, LlmError, Reply, ReplyCall};
use crate::reply::{ReplyAssembler, ReplyReader};
use turnwright_types::message::{Arguments, ProviderState, TokenUsage};

/// Reads a reply from its pieces and describes it.
pub(super) fn transcribe<'a, A: ReplyAssembler>(
    assembler: A,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let (batch, outcome) = read_reply(assembler, pieces);
    let mut lines: Vec<String> = batch.deltas.iter().map(delta_line).collect();
    match outcome {
        Ok(reply) => lines.extend(reply_lines(&reply)),
        Err(error) => lines.push(error_line(&error)),
    }
    lines.join("\n") + "\n"
}

/// Reads a reply from its pieces, up to its end or the first error.
pub(super) fn read_reply<'a, A: ReplyAssembler>(
    assembler: A,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (DeltaBatch, Result<Reply, LlmError>) {
    let mut reader = ReplyReader::new(assembler);
    let mut batch = DeltaBatch::default();
    for piece in pieces {
        match reader.feed(piece, &mut batch) {
            Ok(None) => {}
            Ok(Some(reply)) => return (batch, Ok(reply)),
            Err(error) => return (batch, Err(error)),
        }
    }
    let outcome = reader.finish(&mut batch);
    (batch, outcome)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_state_is_shown() {
        let call = ReplyCall {
            slot: 0,
            provider_id: "a".to_owned(),
            name: "f".to_owned(),
            arguments: Arguments::Object(json!({})),
            extra: Some(json!({ "signature": "s" })),
        };
        let usage = Some(TokenUsage { input: 7, output: 2, cached: 5, thought: 0 });
        let mut reply = Reply {
            end: EndReason::Complete,
            calls: vec![call],
            usage,
            cost: None,
            provider_state: ProviderState::default(),
        };
        let lines = ["complete 7+2 cached 5", r#"  0 "a" "f" {} extra={"signature":"s"}"#];
        assert_eq!(reply_lines(&reply), lines);
        reply.provider_state.blobs = vec![json!({ "data": "x" }), json!("y")];
        assert_eq!(reply_lines(&reply)[2], r#"provider-state blobs=[{"data":"x"},"y"]"#);
        reply.provider_state.field = Some("reasoning".to_owned());
        assert_eq!(
            reply_lines(&reply)[2],
            r#"provider-state field=reasoning blobs=[{"data":"x"},"y"]"#
        );
    }
}
