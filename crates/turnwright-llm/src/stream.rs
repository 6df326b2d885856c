//! The body of an answer → its deltas and its end, under the clocks of the connection.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::http::Body;
use super::reader::{Assemble, Reader};
use super::{Batch, LlmError, Reply, ReplyStream};

/// An answer that is there already.
pub(super) struct Said {
    batch: Batch,
    reply: Option<Reply>,
}

impl Said {
    pub(super) fn new(batch: Batch, reply: Reply) -> Said {
        Said { batch, reply: Some(reply) }
    }
}

impl ReplyStream for Said {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        if self.batch.deltas.is_empty() {
            return Box::pin(std::future::ready(Ok(self.reply.take())));
        }
        batch.deltas.append(&mut self.batch.deltas);
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// How long a server may send nothing but comments: some keep a request in a queue for half an
/// hour (quirk C.1 #1).
const PRODUCING: Duration = Duration::from_secs(35 * 60);
/// How long more may take to come once the answer is whole: the count of tokens, the last mark.
/// Some servers leave the connection open and send neither.
const AFTERWORD: Duration = Duration::from_secs(2);

/// An answer over HTTP, in any protocol.
pub(super) struct Stream<A> {
    /// `None` when the server has said all.
    body: Option<Body>,
    reader: Reader<A>,
    /// How long it may still speak once the answer is whole. Set once: comments that keep the
    /// connection alive must not keep the turn alive.
    afterword: Option<Instant>,
    /// How much had been heard, and when that was last more than before.
    heard: (u64, Instant),
    /// The outcome, while what came before it has not been taken.
    ended: Option<Result<Reply, LlmError>>,
}

impl<A: Assemble> Stream<A> {
    pub(super) fn new(body: Body, assembler: A) -> Stream<A> {
        let (reader, heard) = (Reader::new(assembler), (0, Instant::now()));
        Stream { body: Some(body), reader, afterword: None, heard, ended: None }
    }
}

impl<A: Assemble> ReplyStream for Stream<A> {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if let Some(outcome) = self.ended.take() {
                return outcome.map(Some);
            }
            let outcome = match self.chunk().await {
                Ok(Some(bytes)) => match self.reader.feed(&bytes, batch) {
                    Ok(None) if self.is_alive() => return Ok(None),
                    Ok(None) => Err(self.silent()),
                    Ok(Some(reply)) => Ok(reply),
                    Err(error) => Err(error),
                },
                Ok(None) => self.reader.end(batch),
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                self.reader.flush(batch);
            }
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

impl<A: Assemble> Stream<A> {
    /// Whether the model has said something lately. Comments show that the connection lives, and
    /// say nothing about the model.
    fn is_alive(&mut self) -> bool {
        let heard = self.reader.heard();
        if heard != self.heard.0 {
            self.heard = (heard, Instant::now());
        }
        self.heard.1.elapsed() < PRODUCING
    }

    fn silent(&self) -> LlmError {
        let host = self.body.as_ref().map(|it| it.host().to_owned()).unwrap_or_default();
        LlmError::Silent { host, limit: PRODUCING }
    }

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
