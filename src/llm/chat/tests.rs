//! Chat completions against every oddity of a server that is known. The numbers are those of the
//! project's list of provider quirks: C.1 transport and errors, C.2 tool calls, C.3 reasoning.
#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod calls;
mod errors;
mod manners;
mod properties;
mod requests;
mod streams;

use expect_test::Expect;

use super::assemble::Assembler;
use crate::llm::http::Secret;
use crate::llm::reader::Reader;
use crate::llm::{Batch, Delta, End, LlmError, Reply};
use crate::message::Arguments;

/// Checks what comes out of a stream that is written in short:
/// `delta …` is a chunk with that delta, `calls …` one with these tool calls, `finish …` one with
/// that reason, `done` the end mark; any other line stands for itself.
#[track_caller]
fn check(script: &str, expected: &Expect) {
    check_body(&expand(script), expected);
}

/// Checks what comes out of a body, and that neither its line endings nor the way it is cut make
/// a difference.
#[track_caller]
fn check_body(body: &str, expected: &Expect) {
    let whole = read([body.as_bytes()]);
    for ending in ["\n", "\r\n", "\r"] {
        let body = body.replace('\n', ending);
        for size in [1, 7, body.len().max(1)] {
            assert_eq!(read(body.as_bytes().chunks(size)), whole, "{ending:?}, {size} bytes each");
        }
    }
    for cut in 0..body.len().min(600) {
        let (start, end) = body.as_bytes().split_at(cut);
        assert_eq!(read([start, end]), whole, "cut after {cut} bytes");
    }
    expected.assert_eq(&whole);
}

fn expand(script: &str) -> String {
    let mut body = String::new();
    for line in script.lines().map(str::trim_start) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "delta" => body.push_str(&format!("data: {{\"choices\":[{{\"delta\":{rest}}}]}}\n\n")),
            "calls" => body.push_str(&format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{rest}]}}}}]}}\n\n"
            )),
            "finish" => body.push_str(&format!(
                "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{rest}\"}}]}}\n\n"
            )),
            "done" => body.push_str("data: [DONE]\n\n"),
            _ => body.push_str(&format!("{line}\n")),
        }
    }
    body
}

fn receive<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Batch, Result<Reply, LlmError>) {
    let mut reader = Reader::new(Assembler::new(
        "host".to_owned(),
        Secret::default(),
        std::sync::Arc::default(),
    ));
    let mut batch = Batch::default();
    for chunk in chunks {
        match reader.feed(chunk, &mut batch) {
            Ok(None) => {}
            Ok(Some(reply)) => return (batch, Ok(reply)),
            Err(error) => return (batch, Err(error)),
        }
    }
    let outcome = reader.end(&mut batch);
    (batch, outcome)
}

/// An answer as text: what is shown, a line each, and how it ends.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    let (batch, outcome) = receive(chunks);
    let mut text = String::new();
    for delta in &batch.deltas {
        text.push_str(&match delta {
            Delta::Text(words) => format!("text {words:?}\n"),
            Delta::Thought(words) => format!("thought {words:?}\n"),
            Delta::CallNamed { slot, name } => format!("call {slot} {name}\n"),
            Delta::CallArguments { slot, text } => format!("args {slot} {text}\n"),
        });
    }
    match outcome {
        Ok(reply) => text.push_str(&render(&reply)),
        Err(error) => text.push_str(&format!("{}: {error}\n", kind(&error))),
    }
    text
}

fn render(reply: &Reply) -> String {
    let mut text = match &reply.end {
        End::Complete => "complete".to_owned(),
        End::Length => "length".to_owned(),
        End::Refused(why) => format!("refused {why:?}"),
    };
    if let Some(usage) = reply.usage {
        text.push_str(&format!(" {}+{}", usage.input, usage.output));
    }
    for call in &reply.calls {
        let (id, name) = (&call.provider_id, &call.name);
        let arguments = match &call.arguments {
            Arguments::Object(value) => value.to_string(),
            Arguments::Unusable { reason, .. } => format!("unusable: {reason}"),
        };
        text.push_str(&format!("\n  {} {id:?} {name:?} {arguments}", call.slot));
    }
    text + "\n"
}

fn kind(error: &LlmError) -> String {
    let kind = match error {
        LlmError::Connect { .. } => "connect",
        LlmError::Status { .. } => "status",
        LlmError::InStream { .. } => "in-stream",
        LlmError::Truncated { .. } => "truncated",
        LlmError::Silent { .. } => "silent",
        LlmError::Malformed { .. } => "malformed",
        LlmError::Empty { .. } => "empty",
        LlmError::Settings(_) => "settings",
    };
    let status = error.status().map(|it| format!(" {it}")).unwrap_or_default();
    let again = if error.is_transient() { ", may pass" } else { "" };
    format!("{kind}{status}{again}")
}
