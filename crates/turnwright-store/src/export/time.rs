//! Where the time of a turn went, from the moments that are kept. Pure.

use std::time::{Duration, SystemTime};

use crate::{CallRow, Stored, TurnRow};

/// Where it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// A tool ran.
    pub tools: Duration,
    /// No tool ran, and one waited: for the user's permission, or for another one.
    pub waiting: Duration,
    /// The rest: the model answered.
    pub model: Duration,
}

impl Spent {
    /// All of it.
    pub fn whole(self) -> Duration {
        self.tools + self.waiting + self.model
    }
}

/// From and to.
type Span = (SystemTime, SystemTime);

/// What is known of the turn that is looked at.
#[derive(Debug, Default)]
pub(super) struct Clock {
    ran: Vec<Span>,
    /// From the moment that a call was asked for to its end.
    open: Vec<Span>,
    last: Option<SystemTime>,
}

impl Clock {
    /// One more entry of the turn.
    pub(super) fn note(&mut self, stored: &Stored) {
        self.last = self.last.max(Some(stored.at));
        for call in &stored.calls {
            let Some(ended) = call.ended else { continue };
            self.last = self.last.max(Some(ended));
            self.open.push((call.asked, ended));
            self.ran.extend(began(call).map(|it| (it, ended)));
        }
    }

    /// What it comes to.
    pub(super) fn spent(self, turn: &TurnRow) -> Spent {
        let end = turn.ended.or(self.last).unwrap_or(turn.begun);
        let bounds = (turn.begun, end);
        let tools = covered(self.ran, bounds);
        let open = covered(self.open, bounds);
        let whole = end.duration_since(turn.begun).unwrap_or_default();
        Spent {
            tools,
            waiting: open.saturating_sub(tools),
            model: whole.saturating_sub(open.max(tools)),
        }
    }
}

/// When a call began to run, if it did.
pub(super) fn began(call: &CallRow) -> Option<SystemTime> {
    let ended = call.ended?;
    match call.settled.took {
        Some(took) => ended.checked_sub(took).map(|it| it.max(call.asked)),
        None => call.begun,
    }
}

/// How much of a time at least one of these covers.
fn covered(mut spans: Vec<Span>, (first, last): Span) -> Duration {
    spans.sort_unstable();
    let (mut sum, mut until) = (Duration::ZERO, first);
    for (from, to) in spans {
        let (from, to) = (from.max(until), to.min(last));
        if let Ok(more) = to.duration_since(from) {
            sum += more;
            until = to;
        }
    }
    sum
}

/// A length of time in a few characters.
pub(super) fn short(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis @ 1_000..60_000 => format!("{}.{} s", millis / 1000, millis / 100 % 10),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}
