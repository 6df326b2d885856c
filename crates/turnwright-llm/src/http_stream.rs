//! Reads the body of a response into deltas and a reply, with a timeout for its end.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::http::ReplyBody;
use super::reply_reader::{ReplyAssembler, ReplyReader};
use super::{DeltaBatch, LlmError, Reply, ReplyStream, reported_cost};

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

/// How long to wait for the token count and the end marker once the reply is complete. Some servers
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
            cost: reported_cost::in_headers(body.headers()),
            body: Some(body),
            reader: ReplyReader::new(assembler),
            trailer_deadline: None,
            outcome: None,
        }
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
            let outcome = match self.chunk().await {
                Ok(Some(bytes)) => match self.reader.feed(&bytes, batch) {
                    Ok(None) => return Ok(None),
                    Ok(Some(reply)) => Ok(reply),
                    Err(error) => Err(error),
                },
                Ok(None) => self.reader.finish(batch),
                Err(error) => Err(error),
            };
            let outcome = match outcome {
                Ok(reply) => Ok(Reply { cost: reply.cost.or(self.cost), ..reply }),
                Err(error) => {
                    self.reader.flush(batch);
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

impl<A: ReplyAssembler> HttpReplyStream<A> {
    /// The next bytes; `None` if there are no more.
    async fn chunk(&mut self) -> Result<Option<Bytes>, LlmError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        if !self.reader.is_complete() {
            return body.chunk().await;
        }
        // Some servers close the connection right after the end marker, which must not fail the
        // reply.
        let end = *self.trailer_deadline.get_or_insert_with(|| Instant::now() + TRAILER_TIMEOUT);
        Ok(timeout_at(end, body.chunk()).await.ok().and_then(Result::ok).flatten())
    }
}
