//! Bytes → an answer, however the server frames it and however the network cuts it. Pure.

use std::fmt::Debug;

use super::{Batch, LlmError, Reply, bulk};
use crate::sse;

/// The largest document that is read from a server which does not stream.
const LARGEST_DOCUMENT: usize = 32 * 1024 * 1024;

/// What is wrong with JSON of too many values.
const ENDLESS: &str = "endless JSON came";

/// Puts an answer together from what one protocol sends.
pub(super) trait Assemble: Debug + Send {
    /// Takes one event of the stream.
    fn event(&mut self, event: &sse::Event<'_>, batch: &mut Batch) -> Result<(), LlmError>;
    /// Takes a whole answer from a server that does not stream.
    fn document(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError>;
    /// Whether the server has said that nothing more will come.
    fn is_done(&self) -> bool;
    /// Whether the answer is whole even if the connection breaks now.
    fn is_complete(&self) -> bool;
    /// The end of the answer; what was held back comes out now.
    fn finish(&mut self, batch: &mut Batch) -> Result<Reply, LlmError>;
    /// The answer has failed: what was held back of it comes out.
    fn flush(&mut self, _: &mut Batch) {}
    /// The error that says what came instead of an answer.
    fn malformed(&self, what: &str) -> LlmError;
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Reader<A> {
    framing: Framing,
    assembler: A,
    /// How many events and pieces of a document have come.
    heard: u64,
}

/// How the server frames its answer, which its first byte tells better than its headers.
#[derive(Debug)]
enum Framing {
    /// Nothing but white space so far.
    Unknown,
    /// Server-sent events.
    Events(sse::Decoder),
    /// One JSON document: the server ignored `stream: true`.
    Document(Vec<u8>),
}

impl<A: Assemble> Reader<A> {
    pub(super) fn new(assembler: A) -> Reader<A> {
        Reader { framing: Framing::Unknown, assembler, heard: 0 }
    }

    /// Whether the answer is whole even if the connection breaks now.
    pub(super) fn is_complete(&self) -> bool {
        self.assembler.is_complete()
    }

    /// Takes the next bytes; returns the end of the answer if they hold it.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        batch: &mut Batch,
    ) -> Result<Option<Reply>, LlmError> {
        if matches!(self.framing, Framing::Unknown) {
            // The byte order mark says as little as white space.
            let is_blank = |it: &u8| it.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(it);
            let Some(start) = bytes.iter().position(|it| !is_blank(it)) else { return Ok(None) };
            bytes = &bytes[start..];
            self.framing = match bytes[0] {
                b'{' | b'[' => Framing::Document(Vec::new()),
                b'<' => return Err(self.assembler.malformed("an HTML page came")),
                _ => Framing::Events(sse::Decoder::default()),
            };
        }
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Document(document) if document.len() + bytes.len() <= LARGEST_DOCUMENT => {
                document.extend_from_slice(bytes);
                self.heard += 1;
            }
            Framing::Document(_) => {
                return Err(self.assembler.malformed("more than 32 MiB of JSON came"));
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                let pushed = decoder.push(bytes, |event| {
                    self.heard += 1;
                    if result.is_ok() {
                        result = take(&mut self.assembler, &event, batch);
                    }
                });
                result?;
                if !self.assembler.is_done() {
                    pushed.map_err(|error| self.assembler.malformed(&error.to_string()))?;
                }
            }
        }
        if self.assembler.is_done() { self.assembler.finish(batch).map(Some) } else { Ok(None) }
    }

    /// How much has come that is more than a sign of life.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// The answer has failed.
    pub(super) fn flush(&mut self, batch: &mut Batch) {
        self.assembler.flush(batch);
    }

    /// The body has ended, by itself or because the connection broke.
    pub(super) fn end(&mut self, batch: &mut Batch) -> Result<Reply, LlmError> {
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Document(document) => {
                let document = std::mem::take(document);
                if bulk::is_endless(&String::from_utf8_lossy(&document)) {
                    return Err(self.assembler.malformed(ENDLESS));
                }
                self.assembler.document(&document, batch)?;
            }
            Framing::Events(decoder) => {
                let mut result = Ok(());
                decoder.finish(|event| {
                    if result.is_ok() {
                        result = take(&mut self.assembler, &event, batch);
                    }
                });
                result?;
            }
        }
        self.assembler.finish(batch)
    }
}

fn take<A: Assemble>(
    assembler: &mut A,
    event: &sse::Event<'_>,
    batch: &mut Batch,
) -> Result<(), LlmError> {
    if !assembler.is_done() && bulk::is_endless(event.data) {
        return Err(assembler.malformed(ENDLESS));
    }
    assembler.event(event, batch)
}
