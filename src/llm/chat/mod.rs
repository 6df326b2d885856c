//! Chat completions, as OpenAI's API and its many relatives speak them.

mod assemble;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use futures_util::future::BoxFuture;

use super::http::{Body, Endpoint};
use super::{Batch, LlmError, Model, Reply, ReplyStream, Request};
use crate::sse;
use assemble::Assembler;

pub(super) use wire::error_text;

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    model: String,
    window: Option<u64>,
}

impl Chat {
    /// A model by its name at an endpoint.
    pub fn new(endpoint: Endpoint, model: String, window: Option<u64>) -> Chat {
        Chat { endpoint, model, window }
    }
}

impl Model for Chat {
    fn name(&self) -> &str {
        &self.model
    }

    fn window(&self) -> Option<u64> {
        self.window
    }

    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Err(error) = self.endpoint.client().await {
                // The first request meets the same trouble and reports it.
                tracing::debug!(%error, "no HTTP client yet");
            }
        })
    }

    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async {
            let body = request::render(&self.model, request);
            let body = self.endpoint.post("/chat/completions", body).await?;
            let host = self.endpoint.host();
            Ok(Box::new(Stream {
                body,
                framing: Framing::Unknown(Vec::new()),
                assembler: Assembler::new(host),
                ended: VecDeque::new(),
            }) as Box<dyn ReplyStream>)
        })
    }
}

/// How the server frames its answer, which its first byte tells better than its headers.
enum Framing {
    /// Nothing but white space so far.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Events(sse::Decoder),
    /// One JSON document: the server ignored `stream: true`.
    Document(Vec<u8>),
}

struct Stream {
    body: Body,
    framing: Framing,
    assembler: Assembler,
    /// The outcome, once the server has said all.
    ended: VecDeque<Result<Reply, LlmError>>,
}

/// The largest document that is read from a server which does not stream.
const LARGEST_DOCUMENT: usize = 32 * 1024 * 1024;

impl ReplyStream for Stream {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if let Some(outcome) = self.ended.pop_front() {
                return outcome.map(Some);
            }
            let chunk = match self.body.chunk().await {
                Ok(chunk) => chunk,
                // A server may cut the connection right after saying that it is done.
                Err(_) if self.assembler.is_complete() => None,
                Err(error) => return Err(error),
            };
            match chunk {
                Some(bytes) => {
                    self.feed(&bytes, batch)?;
                    if !self.assembler.is_done() {
                        return Ok(None);
                    }
                }
                None => self.end_of_body(batch)?,
            }
            let outcome = self.assembler.finish();
            if batch.deltas.is_empty() {
                return outcome.map(Some);
            }
            // What came with the end is shown first.
            self.ended.push_back(outcome);
            Ok(None)
        })
    }
}

impl Stream {
    fn feed(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError> {
        let Framing::Unknown(start) = &mut self.framing else {
            return self.feed_known(bytes, batch);
        };
        start.extend_from_slice(bytes);
        let start = std::mem::take(start);
        let first = start.iter().find(|it| !it.is_ascii_whitespace());
        self.framing = match first {
            None => Framing::Unknown(start.clone()),
            Some(b'{' | b'[') => Framing::Document(Vec::new()),
            Some(b'<') => return Err(self.assembler.got_html()),
            Some(_) => Framing::Events(sse::Decoder::default()),
        };
        if first.is_some() { self.feed_known(&start, batch) } else { Ok(()) }
    }

    fn feed_known(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError> {
        match &mut self.framing {
            Framing::Unknown(_) => Ok(()),
            Framing::Document(document) if document.len() + bytes.len() <= LARGEST_DOCUMENT => {
                document.extend_from_slice(bytes);
                Ok(())
            }
            Framing::Document(_) => Err(self.assembler.malformed("more than 32 MiB of JSON")),
            Framing::Events(decoder) => {
                let assembler = &mut self.assembler;
                let mut result = Ok(());
                let pushed = decoder.push(bytes, |event| {
                    if result.is_ok() {
                        result = assembler.event(&event, batch);
                    }
                });
                result.and(pushed.map_err(|error| self.assembler.malformed(&error.to_string())))
            }
        }
    }

    fn end_of_body(&mut self, batch: &mut Batch) -> Result<(), LlmError> {
        match &mut self.framing {
            Framing::Unknown(_) => Ok(()),
            Framing::Document(document) => {
                let document = std::mem::take(document);
                self.assembler.document(&document, batch)
            }
            Framing::Events(decoder) => {
                let assembler = &mut self.assembler;
                let mut result = Ok(());
                decoder.finish(|event| {
                    if result.is_ok() {
                        result = assembler.event(&event, batch);
                    }
                });
                result
            }
        }
    }
}
