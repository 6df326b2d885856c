//! Turns the bytes of a response into a reply, however the server frames it and the network cuts
//! it. Does no I/O.

use std::fmt::Debug;

use super::exchange::ReplyContext;
use super::{DeltaBatch, LlmError, Reply, json_limits};
use crate::sse;

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
    fn push_document(&mut self, bytes: &[u8], batch: &mut DeltaBatch) -> Result<(), LlmError>;
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
        ReplyReader { framing: Framing::Unknown, assembler }
    }

    /// True if the reply is complete even if the connection breaks now.
    pub(super) fn is_complete(&self) -> bool {
        self.assembler.is_complete()
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
                b'<' => {
                    return Err(self
                        .assembler
                        .context()
                        .malformed_error("it returned an HTML page"));
                }
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
                return Err(self
                    .assembler
                    .context()
                    .malformed_error("it returned more than 32 MiB of JSON"));
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                let size = self.assembler.content_size();
                let pushed = decoder.push(bytes, |event| {
                    if result.is_ok() {
                        result = push_event(&mut self.assembler, &event, batch);
                    }
                });
                batch.has_content |= self.assembler.content_size() > size;
                result?;
                if !self.assembler.is_done() {
                    pushed.map_err(|error| {
                        self.assembler.context().malformed_error(&error.to_string())
                    })?;
                }
            }
        }
        if self.assembler.is_done() { self.assembler.finish(batch).map(Some) } else { Ok(None) }
    }

    /// Emits what was held back of a failed reply.
    pub(super) fn flush(&mut self, batch: &mut DeltaBatch) {
        self.assembler.flush(batch);
    }

    /// Ends the reply, because the body has ended or the connection broke.
    pub(super) fn finish(&mut self, batch: &mut DeltaBatch) -> Result<Reply, LlmError> {
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Document(document) => {
                let document = std::mem::take(document);
                if json_limits::has_too_many_values(&String::from_utf8_lossy(&document)) {
                    return Err(self.assembler.context().malformed_error(TOO_MANY_VALUES));
                }
                self.assembler.push_document(&document, batch)?;
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                decoder.finish(|event| {
                    if result.is_ok() {
                        result = push_event(&mut self.assembler, &event, batch);
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
    event: &sse::Event<'_>,
    batch: &mut DeltaBatch,
) -> Result<(), LlmError> {
    if !assembler.is_done() && json_limits::has_too_many_values(event.data) {
        return Err(assembler.context().malformed_error(TOO_MANY_VALUES));
    }
    assembler.push_event(event, batch)
}

#[cfg(test)]
mod tests {
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
}
