//! Private functions for benchmarks, fuzz targets and the corpus of recorded streams. The program itself does not
//! use them.

use std::time::{Duration, UNIX_EPOCH};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::{
    Delta, DeltaBatch, LlmError, Protocol, RemoteModel, Reply, Request, chat, responses, schema,
};
use crate::errors::retry_after;
use crate::reply::leaked_calls::{self, LeakFilter};
use crate::reply::text_pipeline::{ReplyPiece, ThinkSplitter};
use crate::reply::{ReplyAssembler, ReplyReader};

/// Reads a reply of a model that was offered these tools, feeding each piece separately, up to its end or the first
/// error.
pub fn read_reply<'a>(
    protocol: Protocol,
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Delta>, Result<Reply, LlmError>) {
    let context = chat::recorded_context(model, tools);
    let (batch, outcome) = match protocol {
        Protocol::Chat => assemble(chat::ChatAssembler::new(context), pieces),
        Protocol::Responses => assemble(responses::ResponsesAssembler::new(context), pieces),
    };
    (batch.deltas, outcome)
}

pub(super) fn assemble<'a, A: ReplyAssembler>(
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

/// Assembles a reply like [`read_reply`]. Returns the number of bytes in its deltas.
pub fn assemble_reply<'a>(
    protocol: Protocol,
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<usize, LlmError> {
    let (deltas, outcome) = read_reply(protocol, model, tools, pieces);
    outcome?;
    let bytes = deltas.iter().map(|delta| match delta {
        Delta::Text(text) | Delta::Thought(text) | Delta::CallArguments { text, .. } => text.len(),
        Delta::CallNamed { name, .. } => name.len(),
    });
    Ok(bytes.sum())
}

pub fn render_body(model: &RemoteModel, request: &Request) -> Vec<u8> {
    model.render_body(request)
}

pub fn provider_safe_schema(schema: &Value) -> Value {
    schema::provider_safe_schema(schema)
}

/// Finds leaked calls at the end of a text: their position, and the name and arguments of each.
pub fn find_leaked(text: &str, tools: &[(&str, &Value)]) -> Option<(usize, Vec<(String, Value)>)> {
    leaked_calls::find_leaked_calls(text, tools)
}

/// The visible text of a reply that may contain leaked calls, and the number of calls.
pub fn filter_leaked_calls<'a>(
    tools: &[(&str, &Value)],
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, usize) {
    let mut filter = LeakFilter::new(tools.iter().map(|(name, _)| (*name).to_owned()).collect());
    let mut shown = String::new();
    for piece in pieces {
        shown.push_str(filter.push(piece));
    }
    let (rest, calls) = filter.finish(tools);
    shown.push_str(rest);
    (shown, calls.len())
}

/// The reasoning and the text of a reply that contains both in one.
pub fn split_thinking<'a>(
    is_implicit: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, String) {
    let mut splitter = ThinkSplitter::new(is_implicit);
    let mut reasoning = String::new();
    let mut plain_text = String::new();
    let mut out = |piece: ReplyPiece<'_>| match piece {
        ReplyPiece::Thought(text) => reasoning.push_str(text),
        ReplyPiece::Text(text) => plain_text.push_str(text),
    };
    for piece in pieces {
        splitter.push(piece, &mut out);
    }
    splitter.finish(&mut out);
    (reasoning, plain_text)
}

/// The delay that a server asks for, by its headers or by the body of its error, at the start of
/// 2026.
pub fn retry_delay(headers: &[(&str, &str)], body: &str) -> Option<Duration> {
    let now = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let headers: HeaderMap = headers
        .iter()
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(*name).ok()?, HeaderValue::from_str(value).ok()?))
        })
        .collect();
    let value = serde_json::from_str(body).unwrap_or_default();
    retry_after::from_headers(&headers, now).or_else(|| retry_after::from_body(&value, body, now))
}
