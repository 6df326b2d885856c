//! Asks one question and observes how the reply arrives.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::{Delta, DeltaBatch, ErrorKind, LlmError, Model, Reply, Request};

/// The timeout for one reply.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);
/// A model that writes more than this has ignored the request to be brief.
const MAX_TEXT_BYTES: usize = 1000;
/// The same limit for reasoning.
const MAX_THOUGHT_BYTES: usize = 16_000;

/// How much of the reply is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadUntil {
    /// Up to the first delta.
    FirstDelta,
    /// Up to the end.
    Complete,
}

/// A reply and how it arrived.
#[derive(Debug, Default)]
pub(super) struct ObservedReply {
    /// The time until the head of the response was received.
    pub(super) first_byte: Duration,
    /// The time until the first text or reasoning was received.
    pub(super) first_delta: Option<Duration>,
    /// The number of reads that brought deltas.
    pub(super) pieces: usize,
    /// The number of reads that brought arguments.
    pub(super) argument_pieces: usize,
    pub(super) text: String,
    pub(super) thought: String,
    /// The end of the reply; `None` if it was not read up to the end.
    pub(super) reply: Option<Reply>,
}

/// Why there is no complete reply.
#[derive(Debug)]
pub(super) enum ProbeError {
    Model(LlmError),
    /// There was no complete reply within this time.
    TimedOut(Duration),
}

impl ProbeError {
    /// True if the server understood the request and rejected it.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            ProbeError::Model(error) => error.kind() == ErrorKind::BadRequest,
            ProbeError::TimedOut(_) => false,
        }
    }
}

/// Sends the request and reads the reply as far as `until`, but not beyond `end`.
pub(super) async fn ask(
    model: &dyn Model,
    request: &Request,
    until: ReadUntil,
    end: Instant,
) -> Result<ObservedReply, ProbeError> {
    let started = Instant::now();
    let limit = ASK_TIMEOUT.min(end.saturating_duration_since(started));
    let reading = async {
        match read_reply(model, request, until).await {
            // The server rejected something within the stream, and the quirks have been adapted.
            Err(error) if error.retry_after() == Some(Duration::ZERO) => {
                read_reply(model, request, until).await
            }
            outcome => outcome,
        }
    };
    match timeout_at(started + limit, reading).await {
        Ok(outcome) => outcome.map_err(ProbeError::Model),
        Err(_) => Err(ProbeError::TimedOut(limit)),
    }
}

async fn read_reply(
    model: &dyn Model,
    request: &Request,
    until: ReadUntil,
) -> Result<ObservedReply, LlmError> {
    let started = Instant::now();
    let mut stream = model.open_stream(request).await?;
    let mut observed = ObservedReply { first_byte: started.elapsed(), ..ObservedReply::default() };
    let mut batch = DeltaBatch::default();
    loop {
        observed.reply = stream.next(&mut batch).await?;
        if !batch.deltas.is_empty() {
            observed.first_delta.get_or_insert(started.elapsed());
            observed.take(&mut batch);
        }
        let is_enough = match until {
            ReadUntil::FirstDelta => observed.pieces > 0,
            ReadUntil::Complete => {
                observed.text.len() > MAX_TEXT_BYTES || observed.thought.len() > MAX_THOUGHT_BYTES
            }
        };
        if is_enough || observed.reply.is_some() {
            return Ok(observed);
        }
    }
}

impl ObservedReply {
    fn take(&mut self, batch: &mut DeltaBatch) {
        self.pieces += 1;
        let has_arguments =
            batch.deltas.iter().any(|delta| matches!(delta, Delta::CallArguments { .. }));
        self.argument_pieces += usize::from(has_arguments);
        for delta in batch.deltas.drain(..) {
            match delta {
                Delta::Text(text) => self.text.push_str(&text),
                Delta::Thought(text) => self.thought.push_str(&text),
                Delta::CallNamed { .. } | Delta::CallArguments { .. } => {}
            }
        }
    }
}
