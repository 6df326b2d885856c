//! Tests of the Responses API with every known quirk of a server.
#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod ends;
mod properties;
mod requests;

use expect_test::Expect;

use super::assembler::ResponsesAssembler;
use crate::chat;
use crate::internals::assemble;
use crate::{Delta, DeltaBatch, EndReason, LlmError, Reply};
use turnwright_types::message::Arguments;

/// Checks what a body results in, regardless of its line endings, of how it is cut and of whether
/// its events are named.
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
    let nameless: String =
        body.split_inclusive('\n').filter(|line| !line.starts_with("event: response.")).collect();
    assert_eq!(read([nameless.as_bytes()]), whole, "without names");
    expected.assert_eq(&whole);
}

/// Expands a stream in shorthand: `output_text.delta …` is the event of that name with these
/// fields; `added N …` and `whole N …` are the start and the end of an item with that index;
/// `completed …` and its like contain a response; any other line is literal.
fn expand(script: &str) -> String {
    let mut body = String::new();
    for line in script.lines().map(str::trim_start) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let item = || rest.split_once(' ').unwrap();
        match word {
            "added" | "whole" => {
                let (index, item) = item();
                let word = if word == "added" { "added" } else { "done" };
                let fields = format!("\"output_index\":{index},\"item\":{item}");
                body.push_str(&event(&format!("output_item.{word}"), &fields));
            }
            "completed" | "incomplete" | "failed" | "created" | "in_progress" => {
                body.push_str(&event(word, &format!("\"response\":{rest}")));
            }
            _ if word.contains('.') && rest.starts_with('{') => {
                body.push_str(&event(word, &rest[1..rest.len() - 1]));
            }
            "done" => body.push_str("data: [DONE]\n\n"),
            _ => body.push_str(&format!("{line}\n")),
        }
    }
    body
}

fn event(name: &str, fields: &str) -> String {
    format!("event: response.{name}\ndata: {{\"type\":\"response.{name}\",{fields}}}\n\n")
}

fn assembler() -> ResponsesAssembler {
    ResponsesAssembler::new(chat::recorded_context("m", &[]))
}

fn receive<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (DeltaBatch, Result<Reply, LlmError>) {
    assemble(assembler(), chunks)
}

/// A reply as text: its deltas, one per line, and its end.
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
        EndReason::Complete => "complete".to_owned(),
        EndReason::Length => "length".to_owned(),
        EndReason::Refused(why) => format!("refused {why:?}"),
    };
    if let Some(usage) = reply.usage {
        text.push_str(&format!(" {}+{} cached {}", usage.input, usage.output, usage.cached));
    }
    for call in &reply.calls {
        let id = &call.provider_id;
        let name = &call.name;
        let arguments = match &call.arguments {
            Arguments::Object(value) => value.to_string(),
            Arguments::Unusable { reason, .. } => format!("unusable: {reason}"),
        };
        text.push_str(&format!("\n  {} {id:?} {name:?} {arguments}", call.slot));
    }
    for blob in &reply.provider_state.blobs {
        text.push_str(&format!("\n  echo {blob}"));
    }
    text + "\n"
}

fn kind(error: &LlmError) -> String {
    let kind = match error {
        LlmError::InStream { .. } => "in-stream",
        LlmError::Truncated { .. } => "truncated",
        LlmError::Malformed { .. } => "malformed",
        LlmError::EmptyReply { .. } => "empty",
        _ => "other",
    };
    let status = error.status().map(|status| format!(" {status}")).unwrap_or_default();
    let transient = if error.is_transient() { ", transient" } else { "" };
    format!("{kind}{status}{transient}")
}
