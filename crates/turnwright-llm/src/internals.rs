//! Makes internal functions available to benchmarks, fuzz targets and the tests with recorded streams. The program
//! itself does not use these wrappers.

use std::time::{Duration, UNIX_EPOCH};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::{Delta, DeltaBatch, LlmError, Protocol, RemoteModel, Reply, Request, chat, responses};
use crate::errors::retry_after;
use crate::reply::leaked_calls::LeakFilter;
use crate::reply::text_pipeline::{ReplyPiece, ThinkSplitter};
use crate::reply::{ReplyAssembler, ReplyReader};

pub use crate::reply::leaked_calls::find_leaked_calls as find_leaked;
pub use crate::schema::provider_safe_schema;

/// Reads the reply of a model that was offered these tools. Feeds the pieces one by one until the reply ends or there
/// is an error.
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

/// Feeds the pieces to an assembler, like [`read_reply`].
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

/// Reads a reply like [`read_reply`], but returns only the number of bytes in its deltas.
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

/// Removes leaked calls from a reply. Returns the text that is shown, and the number of calls.
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

/// Splits a reply whose text contains the reasoning, in tags. Returns the reasoning and the text. `is_implicit` means
/// that the opening tag is missing, because the chat template has already emitted it.
pub fn split_thinking<'a>(
    is_implicit: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, String) {
    let mut splitter = ThinkSplitter::new(is_implicit);
    let mut reasoning = String::new();
    let mut plain_text = String::new();
    let mut append = |piece: ReplyPiece<'_>| match piece {
        ReplyPiece::Thought(text) => reasoning.push_str(text),
        ReplyPiece::Text(text) => plain_text.push_str(text),
    };
    for piece in pieces {
        splitter.push(piece, &mut append);
    }
    splitter.finish(&mut append);
    (reasoning, plain_text)
}

/// Returns the delay that a server asks for in its headers or in the body of its error. A date is
/// compared with the start of 2026 instead of the current time, so that the result is always the same.
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
