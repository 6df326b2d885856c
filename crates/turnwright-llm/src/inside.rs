//! What the benches and the fuzzers call of the things that are private otherwise. Nothing of
//! the program uses it.

use std::time::{Duration, UNIX_EPOCH};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::leaked::Gate;
use super::reader::{Assemble, Reader};
use super::think::{Mode, Piece, Splitter};
use super::{
    Batch, Delta, LlmError, Protocol, Remote, Request, chat, leaked, responses, schema, wait,
};

/// Reads an answer of a model that was offered these tools, each piece as if it had come alone.
/// Returns how many bytes of it are shown.
///
/// # Errors
/// Those of the answer.
pub fn assemble<'a>(
    protocol: Protocol,
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<usize, LlmError> {
    let speaker = chat::recorded(model, tools);
    match protocol {
        Protocol::Chat => read(chat::Assembler::new(speaker), pieces),
        Protocol::Responses => read(responses::Assembler::new(speaker), pieces),
    }
}

fn read<'a, A: Assemble>(
    assembler: A,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<usize, LlmError> {
    let mut reader = Reader::new(assembler);
    let mut shown = 0;
    for piece in pieces {
        let mut batch = Batch::default();
        let reply = reader.feed(piece, &mut batch)?;
        shown += size(&batch);
        if reply.is_some() {
            return Ok(shown);
        }
    }
    let mut batch = Batch::default();
    reader.end(&mut batch)?;
    Ok(shown + size(&batch))
}

fn size(batch: &Batch) -> usize {
    let bytes = |it: &Delta| match it {
        Delta::Text(text) | Delta::Thought(text) | Delta::CallArguments { text, .. } => text.len(),
        Delta::CallNamed { name, .. } => name.len(),
    };
    batch.deltas.iter().map(bytes).sum()
}

/// The body that a model would send.
pub fn body(model: &Remote, request: &Request) -> Vec<u8> {
    model.body(request)
}

/// A schema as it goes out.
pub fn portable(schema: &Value) -> Value {
    schema::portable(schema)
}

/// The calls at the end of a text: where they begin, and the name and arguments of each.
pub fn find_leaked(text: &str, tools: &[(&str, &Value)]) -> Option<(usize, Vec<(String, Value)>)> {
    let (start, calls) = leaked::find(text, tools)?;
    Some((start, calls.into_iter().map(|it| (it.name, it.arguments)).collect()))
}

/// What is shown of words that may hold calls, and how many calls there were.
pub fn gate<'a>(
    tools: &[(&str, &Value)],
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, usize) {
    let mut gate = Gate::new(tools.iter().map(|(name, _)| (*name).to_owned()).collect());
    let mut shown = String::new();
    for piece in pieces {
        shown.push_str(gate.push(piece));
    }
    let (rest, calls) = gate.finish(tools);
    shown.push_str(rest);
    (shown, calls.len())
}

/// The thoughts and the words of an answer that has both in one.
pub fn split<'a>(
    begins_in_thought: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, String) {
    let mut splitter = Splitter::new(if begins_in_thought { Mode::Implicit } else { Mode::Plain });
    let (mut thoughts, mut words) = (String::new(), String::new());
    let mut out = |piece: Piece<'_>| match piece {
        Piece::Thought(text) => thoughts.push_str(text),
        Piece::Text(text) => words.push_str(text),
    };
    for piece in pieces {
        splitter.push(piece, &mut out);
    }
    splitter.finish(&mut out);
    (thoughts, words)
}

/// How long a server wants us to wait, by its headers, then by the body of its error. It is the
/// beginning of 2026.
pub fn wait_of(headers: &[(&str, &str)], body: &str) -> Option<Duration> {
    let now = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let pair = |it: &(&str, &str)| {
        Some((HeaderName::try_from(it.0).ok()?, HeaderValue::from_str(it.1).ok()?))
    };
    let headers: HeaderMap = headers.iter().filter_map(pair).collect();
    let value = serde_json::from_str(body).unwrap_or_default();
    wait::in_headers(&headers, now).or_else(|| wait::in_body(&value, body))
}
