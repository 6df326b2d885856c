//! What a recorded answer means, in words: for the wire corpus, the fuzzers and bug reports. Pure.
//!
//! One line for each thing that is shown, in order, then how the answer ends. Neighbours of the
//! same sort are one line, so the text does not depend on how the answer was cut:
//!
//! ```text
//! thought "Where is it?"
//! text "I will look."
//! call 0 read_file
//! args 0 {"path":"src/main.rs"}
//! complete 812+34 cached 768
//!   0 "call_1" "read_file" {"path":"src/main.rs"}
//! ```

use super::reader::{Assemble, Reader};
use super::{Batch, Delta, End, LlmError, Reply, ReplyCall};
use turnwright_types::message::{Arguments, Echo, Usage};

/// Reads an answer from its pieces and says what it means.
pub(super) fn transcribe<'a, A: Assemble>(
    assembler: A,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let (batch, outcome) = receive(assembler, pieces);
    let mut lines: Vec<String> = batch.deltas.iter().map(shown).collect();
    match outcome {
        Ok(reply) => lines.extend(ended(&reply)),
        Err(error) => lines.push(failed(&error)),
    }
    lines.join("\n") + "\n"
}

/// Reads an answer from its pieces, as far as its end or the first error.
pub(super) fn receive<'a, A: Assemble>(
    assembler: A,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Batch, Result<Reply, LlmError>) {
    let mut reader = Reader::new(assembler);
    let mut batch = Batch::default();
    for piece in pieces {
        match reader.feed(piece, &mut batch) {
            Ok(None) => {}
            Ok(Some(reply)) => return (batch, Ok(reply)),
            Err(error) => return (batch, Err(error)),
        }
    }
    let outcome = reader.end(&mut batch);
    (batch, outcome)
}

fn shown(delta: &Delta) -> String {
    match delta {
        Delta::Text(words) => format!("text {words:?}"),
        Delta::Thought(words) => format!("thought {words:?}"),
        Delta::CallNamed { slot, name } => format!("call {slot} {name}"),
        Delta::CallArguments { slot, text } => format!("args {slot} {text}"),
    }
}

/// The end of a whole answer: why, what was counted, the calls, what goes back.
fn ended(reply: &Reply) -> Vec<String> {
    let why = match &reply.end {
        End::Complete => "complete".to_owned(),
        End::Length => "length".to_owned(),
        End::Refused(why) => format!("refused {why:?}"),
    };
    let mut lines = vec![why + &reply.usage.map(counted).unwrap_or_default()];
    lines.extend(reply.calls.iter().map(called));
    lines.extend(echoed(&reply.echo));
    lines
}

fn counted(usage: Usage) -> String {
    let cached = match usage.cached {
        0 => String::new(),
        cached => format!(" cached {cached}"),
    };
    format!(" {}+{}{cached}", usage.input, usage.output)
}

fn called(call: &ReplyCall) -> String {
    let (slot, id, name) = (call.slot, &call.provider_id, &call.name);
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { reason, .. } => format!("unusable: {reason}"),
    };
    let extra = call.extra.as_ref().map(|it| format!(" extra={it}")).unwrap_or_default();
    format!("  {slot} {id:?} {name:?} {arguments}{extra}")
}

/// What the provider wants to have back, if anything.
fn echoed(echo: &Echo) -> Option<String> {
    let mut line = String::new();
    if let Some(field) = &echo.field {
        line.push_str(&format!(" field={field}"));
    }
    if !echo.blobs.is_empty() {
        let blobs: Vec<String> = echo.blobs.iter().map(ToString::to_string).collect();
        line.push_str(&format!(" blobs=[{}]", blobs.join(",")));
    }
    if line.is_empty() { None } else { Some(format!("echo{line}")) }
}

/// Which kind of error, its status, whether it may pass and when, and its message.
fn failed(error: &LlmError) -> String {
    let variant = match error {
        LlmError::Connect { .. } => "connect",
        LlmError::Status { .. } => "status",
        LlmError::InStream { .. } => "in-stream",
        LlmError::Truncated { .. } => "truncated",
        LlmError::Silent { .. } => "silent",
        LlmError::Malformed { .. } => "malformed",
        LlmError::Stuck { .. } => "stuck",
        LlmError::Empty { .. } => "empty",
        LlmError::Settings(_) => "settings",
    };
    let status = error.status().map(|it| format!(" {it}")).unwrap_or_default();
    let kind = match error {
        LlmError::Status { kind, .. } | LlmError::InStream { kind, .. } => {
            format!(" {}", kind.name())
        }
        _ => String::new(),
    };
    let window = error.window().map(|it| format!(" window={it}")).unwrap_or_default();
    let again = if error.is_transient() { ", may pass" } else { "" };
    let wait = error.retry_after().map(|it| format!(" after {it:?}")).unwrap_or_default();
    format!("{variant}{status}{kind}{window}{again}{wait}: {error}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_provider_wants_back_is_shown() {
        let call = ReplyCall {
            slot: 0,
            provider_id: "a".to_owned(),
            name: "f".to_owned(),
            arguments: Arguments::Object(json!({})),
            extra: Some(json!({ "signature": "s" })),
        };
        let usage = Some(Usage { input: 7, output: 2, cached: 5 });
        let mut reply =
            Reply { end: End::Complete, calls: vec![call], usage, echo: Echo::default() };
        let lines = ["complete 7+2 cached 5", r#"  0 "a" "f" {} extra={"signature":"s"}"#];
        assert_eq!(ended(&reply), lines);
        reply.echo.blobs = vec![json!({ "data": "x" }), json!("y")];
        assert_eq!(ended(&reply)[2], r#"echo blobs=[{"data":"x"},"y"]"#);
        reply.echo.field = Some("reasoning".to_owned());
        assert_eq!(ended(&reply)[2], r#"echo field=reasoning blobs=[{"data":"x"},"y"]"#);
    }
}
