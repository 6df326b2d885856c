//! Computes where the time of a turn went from the stored timestamps. Pure.

use std::time::{Duration, SystemTime};

use crate::{CallRow, StoredEntry, TurnRow};

/// The times that a turn has spent, by what it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// At least one tool was running.
    pub tools: Duration,
    /// No tool was running, but a call was waiting for permission, for an answer of the user, or for
    /// another call.
    pub waiting: Duration,
    /// The rest, in which the model was answering.
    pub model: Duration,
}

/// The tools that do nothing but wait for an answer of the user.
const ASKING_TOOLS: [&str; 2] = ["ask_user", "exit_plan"];

impl TimeSpent {
    pub fn total(self) -> Duration {
        self.tools + self.waiting + self.model
    }
}

/// Start and end.
type TimeSpan = (SystemTime, SystemTime);

/// The timestamps of the current turn.
#[derive(Debug, Default)]
pub(super) struct TurnClock {
    tool_spans: Vec<TimeSpan>,
    /// For each call, from the model's request to its end.
    call_spans: Vec<TimeSpan>,
    last: Option<SystemTime>,
}

impl TurnClock {
    /// Adds the next entry of the turn.
    pub(super) fn note(&mut self, entry_row: &StoredEntry) {
        self.last = self.last.max(Some(entry_row.at));
        for call in &entry_row.calls {
            let Some(ended) = call.ended_at else { continue };
            self.last = self.last.max(Some(ended));
            self.call_spans.push((call.requested_at, ended));
            if !ASKING_TOOLS.contains(&call.tool.as_str()) {
                self.tool_spans.extend(started_at(call).map(|started| (started, ended)));
            }
        }
    }

    /// Divides the turn's time.
    pub(super) fn time_spent(self, turn: &TurnRow) -> TimeSpent {
        let end = turn.ended_at.or(self.last).unwrap_or(turn.started_at);
        let bounds = (turn.started_at, end);
        let tools = covered_time(self.tool_spans, bounds);
        let call_spans = covered_time(self.call_spans, bounds);
        let whole = end.duration_since(turn.started_at).unwrap_or_default();
        TimeSpent {
            tools,
            waiting: call_spans.saturating_sub(tools),
            model: whole.saturating_sub(call_spans.max(tools)),
        }
    }
}

/// When a call began to run, if it did.
pub(super) fn started_at(call: &CallRow) -> Option<SystemTime> {
    let ended = call.ended_at?;
    match call.outcome.duration {
        Some(took) => ended.checked_sub(took).map(|start| start.max(call.requested_at)),
        None => call.started_at,
    }
}

/// How much of the interval is covered by at least one span.
fn covered_time(mut spans: Vec<TimeSpan>, (first, last): TimeSpan) -> Duration {
    spans.sort_by(TimeSpan::cmp);
    let mut sum = Duration::ZERO;
    let mut until = first;
    for (from, to) in spans {
        let from = from.max(until);
        let to = to.min(last);
        if let Ok(more) = to.duration_since(from) {
            sum += more;
            until = to;
        }
    }
    sum
}

/// Formats a duration in a few characters.
pub(super) fn short_duration(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis @ 1_000..60_000 => format!("{}.{} s", millis / 1000, millis / 100 % 10),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}
