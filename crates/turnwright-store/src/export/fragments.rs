//! Texts about calls and media that all document formats share, and where the time of a turn went, from the
//! stored timestamps. Pure. The texts still have to be escaped.

use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::{CallRow, CallStatus, SessionRow, StoredEntry, TurnRow};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::line_diff;
use turnwright_types::message::{Arguments, Media};

/// Says that the conversation was compacted.
pub(super) const COMPACTED: &str =
    "The conversation was compacted: from here on, the model had a summary of what is above.";

/// The title of a call's card, in one line.
pub(super) fn call_title(call: &CallRow) -> String {
    escape_hidden_line(call.outcome.view.as_ref().map_or("", |view| &view.title))
}

/// How a call ended and how long it took.
pub(super) fn outcome(call: &CallRow) -> String {
    let took = call.outcome.duration.map(|took| format!(", {}", short_duration(took)));
    let word = match call.status {
        CallStatus::Pending => "never run",
        CallStatus::Running => "end unknown",
        CallStatus::Success => "done",
        CallStatus::Error => "failed",
    };
    format!("{word}{}", took.unwrap_or_default())
}

/// The arguments of a call, formatted for people.
pub(super) fn arguments(call: &CallRow) -> String {
    match &call.arguments {
        Arguments::Object(Value::Object(fields)) if fields.is_empty() => String::new(),
        Arguments::Object(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
        Arguments::Unusable { text, .. } => text.clone(),
    }
}

/// The title of a session, or a substitute.
pub(super) fn session_title(session: &SessionRow) -> String {
    let title = session.title.as_deref().filter(|title| !title.trim().is_empty());
    title.map_or_else(|| format!("Session {}", session.id.as_str()), escape_hidden_line)
}

/// How a turn ended.
pub(super) fn stop_reason(turn: &TurnRow) -> &str {
    match turn.stop.as_deref() {
        Some("end_turn") => "done",
        Some("max_tokens") => "stopped: the answer was too long",
        Some("max_turn_requests") => "stopped: too many requests",
        Some("refusal") => "refused",
        Some("cancelled") => "cancelled",
        Some(other) => other,
        None => "end unknown",
    }
}

/// An image as a `data:` URI. Only for formats that cannot contain scripts, so not for SVG.
pub(super) fn image_data_uri(media: &Media) -> Option<String> {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
    let mime = known.into_iter().find(|kind| media.mime.eq_ignore_ascii_case(kind))?;
    let data = media.data.as_str();
    let is_base64 = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    is_base64.then(|| format!("data:{mime};base64,{data}"))
}

/// A unified diff with three lines of context.
pub(super) fn unified_diff(old: Option<&str>, new: &str) -> String {
    let deadline = Instant::now() + Duration::from_millis(200);
    line_diff::unified_diff(old.unwrap_or_default(), new, 3, Some(deadline))
}

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

    /// The time that each part took, for people.
    pub fn parts(self) -> String {
        let [model, tools, waiting] = [self.model, self.tools, self.waiting].map(short_duration);
        format!("model {model}, tools {tools}, waiting {waiting}")
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
