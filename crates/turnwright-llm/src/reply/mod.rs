//! Turns the bytes of a response into a reply, however the server frames it and the network cuts it, with a
//! timeout for its end. The modules below look for what models write into their text, and bound what is kept.
//!
//! Parsed JSON may take a hundred times the memory of its text. A hostile server must not be able to exceed the
//! limits for raw bytes in this way, so values are counted, too.

pub(crate) mod leaked_calls;
pub(crate) mod repetition;
pub(crate) mod text_pipeline;

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::exchange::{ReplyContext, cost_in_headers};
use crate::http::ReplyBody;
use crate::{DeltaBatch, LlmError, Reply, ReplyStream, sse};
use turnwright_types::text::repair_surrogates;

/// The limit for a response that is not streamed.
const MAX_DOCUMENT_BYTES: usize = 32 * 1024 * 1024;

const TOO_MANY_VALUES: &str = "it returned JSON with too many values";

/// Assembles a reply from what one protocol sends.
pub(super) trait ReplyAssembler: Debug + Send {
    /// Processes one event of the stream.
    fn push_event(
        &mut self,
        event: &sse::Event<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError>;
    /// Processes a complete response that is not streamed.
    fn push_document(&mut self, document: &str, batch: &mut DeltaBatch) -> Result<(), LlmError>;
    /// True if the server has marked the end of the stream.
    fn is_done(&self) -> bool;
    /// True if the reply is complete even if the connection breaks now.
    fn is_complete(&self) -> bool;
    /// Ends the reply and emits what was held back.
    fn finish(&mut self, batch: &mut DeltaBatch) -> Result<Reply, LlmError>;
    /// Emits what was held back of a failed reply.
    fn flush(&mut self, _: &mut DeltaBatch) {}
    /// The bytes of content so far, also of what is held back or never shown. Empty deltas add
    /// nothing.
    fn content_size(&self) -> usize;
    fn context(&self) -> &ReplyContext;
}

/// Reads one reply.
#[derive(Debug)]
pub(super) struct ReplyReader<A> {
    framing: Framing,
    assembler: A,
    /// The half of a character with which the text of an event has ended.
    half: Option<String>,
}

/// How the response is framed. Its first byte is a more reliable sign than its headers.
#[derive(Debug)]
enum Framing {
    /// Only white space so far.
    Unknown,
    /// Server-sent events.
    Events(sse::Decoder),
    /// One JSON document: the server ignored `stream: true`.
    Document(Vec<u8>),
}

impl<A: ReplyAssembler> ReplyReader<A> {
    pub(super) fn new(assembler: A) -> ReplyReader<A> {
        ReplyReader { framing: Framing::Unknown, assembler, half: Some(String::new()) }
    }

    /// Processes bytes; returns the reply if they complete it.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        batch: &mut DeltaBatch,
    ) -> Result<Option<Reply>, LlmError> {
        if matches!(self.framing, Framing::Unknown) {
            // A byte order mark is as insignificant as white space.
            let start = bytes
                .iter()
                .position(|byte| !byte.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(byte));
            let Some(start) = start else { return Ok(None) };
            bytes = &bytes[start..];
            self.framing = match bytes[0] {
                b'{' | b'[' => Framing::Document(Vec::new()),
                b'<' => return Err(self.malformed_error("it returned an HTML page")),
                _ => Framing::Events(sse::Decoder::default()),
            };
        }
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Document(document) if document.len() + bytes.len() <= MAX_DOCUMENT_BYTES => {
                document.extend_from_slice(bytes);
                batch.has_content |= bytes.iter().any(|byte| !byte.is_ascii_whitespace());
            }
            Framing::Document(_) => {
                return Err(self.malformed_error("it returned more than 32 MiB of JSON"));
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                let size = self.assembler.content_size();
                let pushed = decoder.push(bytes, |event| {
                    if result.is_ok() {
                        result = push_event(&mut self.assembler, &mut self.half, &event, batch);
                    }
                });
                batch.has_content |= self.assembler.content_size() > size;
                result?;
                if !self.assembler.is_done() {
                    pushed.map_err(|error| self.malformed_error(&error.to_string()))?;
                }
            }
        }
        if self.assembler.is_done() { self.assembler.finish(batch).map(Some) } else { Ok(None) }
    }

    fn malformed_error(&self, what: &str) -> LlmError {
        self.assembler.context().malformed_error(what)
    }

    /// Ends the reply, because the body has ended or the connection broke.
    pub(super) fn finish(&mut self, batch: &mut DeltaBatch) -> Result<Reply, LlmError> {
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Document(document) => {
                let document = std::mem::take(document);
                let lossy = String::from_utf8_lossy(&document);
                let text = repair_surrogates(&lossy, &mut None);
                if has_too_many_values(&text) {
                    return Err(self.malformed_error(TOO_MANY_VALUES));
                }
                self.assembler.push_document(text.trim(), batch)?;
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                decoder.finish(|event| {
                    if result.is_ok() {
                        result = push_event(&mut self.assembler, &mut self.half, &event, batch);
                    }
                });
                result?;
            }
        }
        self.assembler.finish(batch)
    }
}

fn push_event<A: ReplyAssembler>(
    assembler: &mut A,
    half: &mut Option<String>,
    event: &sse::Event<'_>,
    batch: &mut DeltaBatch,
) -> Result<(), LlmError> {
    if !assembler.is_done() && has_too_many_values(event.data) {
        return Err(assembler.context().malformed_error(TOO_MANY_VALUES));
    }
    // Parsing a `RawValue` only finds its end, so half a character in it would be noticed too late.
    let data = &*repair_surrogates(event.data, half);
    assembler.push_event(&sse::Event { name: event.name, data }, batch)
}

/// A reply that is already complete.
pub(super) struct ReadyReply {
    batch: DeltaBatch,
    reply: Option<Reply>,
}

impl ReadyReply {
    pub(super) fn new(batch: DeltaBatch, reply: Reply) -> ReadyReply {
        ReadyReply { batch, reply: Some(reply) }
    }
}

impl ReplyStream for ReadyReply {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        if self.batch.deltas.is_empty() {
            return Box::pin(std::future::ready(Ok(self.reply.take())));
        }
        batch.deltas.append(&mut self.batch.deltas);
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// The wait for the token count and the end marker once the reply is complete. Some servers
/// send neither and keep the connection open.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(2);

/// A reply over HTTP, in either protocol.
pub(super) struct HttpReplyStream<A> {
    /// `None` once the body has ended.
    body: Option<ReplyBody>,
    reader: ReplyReader<A>,
    /// The cost in the head of the response.
    cost: Option<f64>,
    /// The deadline for the rest of the stream once the reply is complete. It is set once:
    /// keep-alive comments must not prolong the turn.
    trailer_deadline: Option<Instant>,
    /// The outcome, while deltas that precede it are being delivered.
    outcome: Option<Result<Reply, LlmError>>,
}

impl<A: ReplyAssembler> HttpReplyStream<A> {
    pub(super) fn new(body: ReplyBody, assembler: A) -> HttpReplyStream<A> {
        HttpReplyStream {
            cost: cost_in_headers(body.headers()),
            body: Some(body),
            reader: ReplyReader::new(assembler),
            trailer_deadline: None,
            outcome: None,
        }
    }

    /// The next bytes; `None` if there are no more.
    async fn chunk(&mut self) -> Result<Option<Bytes>, LlmError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        if !self.reader.assembler.is_complete() {
            return body.chunk().await;
        }
        // Some servers close the connection right after the end marker, which must not fail the
        // reply.
        let end = *self.trailer_deadline.get_or_insert_with(|| Instant::now() + TRAILER_TIMEOUT);
        Ok(timeout_at(end, body.chunk()).await.ok().and_then(Result::ok).flatten())
    }
}

impl<A: ReplyAssembler> ReplyStream for HttpReplyStream<A> {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if let Some(outcome) = self.outcome.take() {
                return outcome.map(Some);
            }
            let read = match self.chunk().await {
                Ok(Some(bytes)) => self.reader.feed(&bytes, batch),
                Ok(None) => self.reader.finish(batch).map(Some),
                Err(error) => Err(error),
            };
            let outcome = match read {
                Ok(None) => return Ok(None),
                Ok(Some(reply)) => Ok(Reply { cost: reply.cost.or(self.cost), ..reply }),
                Err(error) => {
                    self.reader.assembler.flush(batch);
                    Err(error)
                }
            };
            if let Some(body) = self.body.take().filter(|_| outcome.is_ok()) {
                body.drain();
            }
            if batch.deltas.is_empty() {
                return outcome.map(Some);
            }
            // Deltas that came with the end are delivered first, even if it is an error.
            self.outcome = Some(outcome);
            Ok(None)
        })
    }
}

/// Shorter JSON is cheap whatever it contains.
const UNCHECKED_BYTES: usize = 64 * 1024;
/// No legitimate reply has more values in one JSON text.
const MAX_VALUES: usize = 200_000;

/// The approximate memory cost in bytes of an object, of each of its fields and of any value,
/// besides their text.
const OBJECT_COST: usize = 512;
const FIELD_COST: usize = 64;
const VALUE_COST: usize = 32;

/// True if a JSON text has more values than any legitimate reply. Brackets and commas inside
/// strings do not count, because a string may hold code.
pub(crate) fn has_too_many_values(json: &str) -> bool {
    if json.len() < UNCHECKED_BYTES {
        return false;
    }
    let mut values = 0_usize;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' | b',' => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// The approximate memory size of a value in bytes.
pub(crate) fn memory_size(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_size).sum(),
        Value::Object(fields) => {
            let sizes =
                fields.iter().map(|(name, value)| FIELD_COST + name.len() + memory_size(value));
            OBJECT_COST + sizes.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_COST + inside
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{ChatAssembler, recorded_context};
    use crate::responses::ResponsesAssembler;

    /// Reads the pieces one after the other; true for each one that brings content.
    fn progress<A: ReplyAssembler>(assembler: A, pieces: &[&str]) -> Vec<bool> {
        let mut reader = ReplyReader::new(assembler);
        let progress = pieces.iter().map(|piece| {
            let mut batch = DeltaBatch::default();
            reader.feed(piece.as_bytes(), &mut batch).unwrap();
            let progress = batch.take_progress();
            batch.deltas.clear();
            assert!(!batch.take_progress(), "{piece} counts twice");
            progress
        });
        progress.collect()
    }

    #[test]
    fn whatever_carries_content_is_progress_and_what_only_keeps_alive_is_not() {
        let delta = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        let arguments = |text: &str| {
            delta(&format!(
                r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{text:?}}}}}]}}"#
            ))
        };
        let table = [
            ("\n".to_owned(), false),
            (": keep-alive\n\n".to_owned(), false),
            ("event: ping\ndata: {}\n\n".to_owned(), false),
            (delta(r#"{"role":"assistant","content":""}"#), false),
            (delta(r#"{"content":null,"reasoning_content":"","tool_calls":[]}"#), false),
            ("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n".to_owned(), false),
            (delta(r#"{"reasoning_content":"Hm"}"#), true),
            (delta(r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#), true),
            (delta(r#"{"content":"Well"}"#), true),
            // Held back, because it may become a call.
            (delta(r#"{"content":"<tool_call>"}"#), true),
            (delta(r#"{"refusal":"No"}"#), true),
            (delta(r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#), true),
            (arguments("{"), true),
            (arguments(""), false),
            (arguments("}"), true),
        ];
        let pieces: Vec<_> = table.iter().map(|row| row.0.as_str()).collect();
        let expected: Vec<_> = table.iter().map(|row| row.1).collect();
        let assembler = ChatAssembler::new(recorded_context("qwen3", &["f".to_owned()]));
        assert_eq!(progress(assembler, &pieces), expected);
    }

    #[test]
    fn events_of_the_responses_api_without_content_are_no_progress() {
        let event = |kind: &str, fields: &str| {
            format!("data: {{\"type\":\"response.{kind}\",\"output_index\":0{fields}}}\n\n")
        };
        let table = [
            (event("created", r#","response":{"status":"in_progress"}"#), false),
            (event("in_progress", r#","response":{"status":"in_progress"}"#), false),
            (event("reasoning_summary_text.delta", r#","delta":"Hm""#), true),
            (event("reasoning_summary_text.delta", r#","delta":"""#), false),
            (event("keepalive", ""), false),
        ];
        let pieces: Vec<_> = table.iter().map(|row| row.0.as_str()).collect();
        let expected: Vec<_> = table.iter().map(|row| row.1).collect();
        let assembler = ResponsesAssembler::new(recorded_context("gpt-5", &[]));
        assert_eq!(progress(assembler, &pieces), expected);
    }

    #[test]
    fn the_bytes_of_a_document_are_progress_and_the_space_before_them_is_not() {
        let assembler = ChatAssembler::new(recorded_context("m", &[]));
        let pieces = ["\n\n", "{", "  \n", "\"choices\""];
        assert_eq!(progress(assembler, &pieces), [false, true, false, true]);
    }

    #[test]
    fn values_count_and_string_contents_do_not() {
        let values = "{\"\":0},".repeat(MAX_VALUES);
        let text = json!({ "content": values }).to_string();
        for (name, json, expected) in [
            ("nothing", "", false),
            ("objects", &*format!("[{values}0]"), true),
            ("cut off", &format!("{{\"a\":[{values}"), true),
            ("a few", &format!("[{}0]", "{\"\":0},".repeat(20_000)), false),
            ("code in a string", &text, false),
            ("a string that does not end", &text[..text.len() - 2], false),
        ] {
            assert_eq!(has_too_many_values(json), expected, "{name}");
        }
    }

    #[test]
    fn small_values_take_more_memory_than_their_text() {
        let nested = json!([{ "": 0 }, { "": 0 }]);
        assert!(memory_size(&nested) > 20 * nested.to_string().len());
        let text = json!("x".repeat(1000));
        assert_eq!(memory_size(&text), 1000 + VALUE_COST);
    }
}
