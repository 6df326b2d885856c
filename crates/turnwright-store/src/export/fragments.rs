//! Texts about calls and media that all document formats share. They still have to be escaped.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::timing::short_duration;
use crate::{CallRow, CallStatus, SessionRow, TurnRow};
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
    let took = call
        .outcome
        .duration
        .map(|duration| format!(", {}", short_duration(duration)))
        .unwrap_or_default();
    let word = match call.status {
        CallStatus::Pending => "never run",
        CallStatus::Running => "end unknown",
        CallStatus::Success => "done",
        CallStatus::Error => "failed",
    };
    format!("{word}{took}")
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
