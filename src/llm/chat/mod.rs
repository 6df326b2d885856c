//! Chat completions, as OpenAI's API and its many relatives speak them.

mod arguments;
mod assemble;
mod failure;
mod prefix;
mod reader;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

#[cfg(any(test, fuzzing))]
use super::http::Secret;
use super::http::{Body, Endpoint};
use super::{Batch, LlmError, Model, Reply, ReplyStream, Request};
use prefix::Prefixes;
use reader::Reader;

pub(super) use failure::error_text;

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    model: String,
    window: Option<u64>,
    prefixes: Prefixes,
}

impl Chat {
    /// A model by its name at an endpoint.
    pub fn new(endpoint: Endpoint, model: String, window: Option<u64>) -> Chat {
        Chat { endpoint, model, window, prefixes: Prefixes::default() }
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
            let body = request::render(&self.prefixes, &self.model, request);
            let body = self.endpoint.post("/chat/completions", body).await?;
            let reader = Reader::new(self.endpoint.host(), self.endpoint.secret());
            Ok(Box::new(Stream { body: Some(body), reader, afterword: None, ended: None })
                as Box<dyn ReplyStream>)
        })
    }
}

/// How long more may take to come once the answer is whole: the count of tokens, the last mark.
/// Some servers leave the connection open and send neither.
const AFTERWORD: Duration = Duration::from_secs(2);

struct Stream {
    /// `None` when the server has said all.
    body: Option<Body>,
    reader: Reader,
    /// How long it may still speak once the answer is whole. Set once: comments that keep the
    /// connection alive must not keep the turn alive.
    afterword: Option<Instant>,
    /// The outcome, while what came before it has not been taken.
    ended: Option<Result<Reply, LlmError>>,
}

impl ReplyStream for Stream {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if let Some(outcome) = self.ended.take() {
                return outcome.map(Some);
            }
            let outcome = match self.chunk().await? {
                Some(bytes) => match self.reader.feed(&bytes, batch) {
                    Ok(None) => return Ok(None),
                    Ok(Some(reply)) => Ok(reply),
                    Err(error) => Err(error),
                },
                None => self.reader.end(batch),
            };
            if let Some(body) = self.body.take().filter(|_| outcome.is_ok()) {
                body.finish();
            }
            if batch.deltas.is_empty() {
                return outcome.map(Some);
            }
            // What came with the end is shown first, also when the end is an error.
            self.ended = Some(outcome);
            Ok(None)
        })
    }
}

impl Stream {
    /// The next bytes; `None` when there will be none.
    async fn chunk(&mut self) -> Result<Option<Bytes>, LlmError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        if !self.reader.is_complete() {
            return body.chunk().await;
        }
        // A server may also cut the connection right after saying that it is done.
        let end = *self.afterword.get_or_insert_with(|| Instant::now() + AFTERWORD);
        Ok(timeout_at(end, body.chunk()).await.ok().and_then(Result::ok).flatten())
    }
}

/// Reads an answer from any bytes in pieces of `size`, for the fuzzer. What comes out does not
/// depend on that.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub fn fuzz_stream(bytes: &[u8], size: usize) -> String {
    let mut reader = Reader::new("host".to_owned(), Secret::default());
    let mut batch = Batch::default();
    let mut outcome = Ok(None);
    for chunk in bytes.chunks(size.max(1)) {
        outcome = reader.feed(chunk, &mut batch);
        if !matches!(outcome, Ok(None)) {
            break;
        }
    }
    if matches!(outcome, Ok(None)) {
        outcome = reader.end(&mut batch).map(Some);
    }
    format!("{batch:?} {outcome:?}")
}
