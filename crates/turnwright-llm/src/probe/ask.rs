//! One question to the model: its answer, with what there is to say about how it came.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::{Batch, Delta, Kind, LlmError, Model, Reply, Request};

/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Who says more than this, in bytes, has not understood that it was to be brief.
const ENOUGH_WORDS: usize = 1000;
/// And who thinks more than this.
const ENOUGH_THOUGHTS: usize = 16_000;

/// How much of the answer is of interest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Whether there is one.
    Beginning,
    /// All of it.
    End,
}

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// When the head of the answer was there.
    pub(super) first_byte: Duration,
    /// When its first word or thought was there.
    pub(super) first_word: Option<Duration>,
    /// How many reads have brought something.
    pub(super) pieces: usize,
    /// How many reads have brought arguments.
    pub(super) argument_pieces: usize,
    pub(super) text: String,
    pub(super) thought: String,
    /// How it ended; nothing if it was not listened to the end.
    pub(super) reply: Option<Reply>,
}

/// Why nothing, or not all, was heard.
#[derive(Debug)]
pub(super) enum Trouble {
    Model(LlmError),
    /// Nothing whole came in this time.
    TimeUp(Duration),
}

impl Trouble {
    /// Whether the server has understood and does not want it so.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Trouble::Model(error) => error.kind() == Kind::BadRequest,
            Trouble::TimeUp(_) => false,
        }
    }
}

/// Asks, and goes away as soon as enough was heard, but not later than at `end`.
pub(super) async fn ask(
    model: &dyn Model,
    request: &Request,
    until: Until,
    end: Instant,
) -> Result<Heard, Trouble> {
    let begun = Instant::now();
    let limit = LIMIT.min(end.saturating_duration_since(begun));
    let listening = async {
        match listen(model, request, until).await {
            // It has refused something within the stream, and we know better now.
            Err(error) if error.retry_after() == Some(Duration::ZERO) => {
                listen(model, request, until).await
            }
            outcome => outcome,
        }
    };
    match timeout_at(begun + limit, listening).await {
        Ok(outcome) => outcome.map_err(Trouble::Model),
        Err(_) => Err(Trouble::TimeUp(limit)),
    }
}

async fn listen(model: &dyn Model, request: &Request, until: Until) -> Result<Heard, LlmError> {
    let begun = Instant::now();
    let mut stream = model.open(request).await?;
    let mut heard = Heard { first_byte: begun.elapsed(), ..Heard::default() };
    let mut batch = Batch::default();
    loop {
        heard.reply = stream.next(&mut batch).await?;
        if !batch.deltas.is_empty() {
            heard.first_word.get_or_insert(begun.elapsed());
            heard.take(&mut batch);
        }
        let is_enough = match until {
            Until::Beginning => heard.pieces > 0,
            Until::End => heard.text.len() > ENOUGH_WORDS || heard.thought.len() > ENOUGH_THOUGHTS,
        };
        if is_enough || heard.reply.is_some() {
            return Ok(heard);
        }
    }
}

impl Heard {
    fn take(&mut self, batch: &mut Batch) {
        self.pieces += 1;
        let is_arguments = |it: &Delta| matches!(it, Delta::CallArguments { .. });
        self.argument_pieces += usize::from(batch.deltas.iter().any(is_arguments));
        for delta in batch.deltas.drain(..) {
            match delta {
                Delta::Text(text) => self.text.push_str(&text),
                Delta::Thought(text) => self.thought.push_str(&text),
                Delta::CallNamed { .. } | Delta::CallArguments { .. } => {}
            }
        }
    }
}
