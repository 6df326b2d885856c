//! What the documents have in common: facts about calls and media, as text that still has to be
//! escaped.

use serde_json::Value;

use super::time::short;
use turnwright_types::effect::visible_line;
use turnwright_types::message::{Arguments, Media};
use crate::{CallRow, CallStatus, SessionRow, TurnRow};

/// What a call is, in one line.
pub(super) fn title(call: &CallRow) -> String {
    visible_line(call.settled.view.as_ref().map_or("", |it| &it.title))
}

/// How it ended, and after how long.
pub(super) fn outcome(call: &CallRow) -> String {
    let took = call.settled.took.map(|it| format!(", {}", short(it))).unwrap_or_default();
    let word = match call.status {
        CallStatus::Pending => "never run",
        CallStatus::Running => "no end is known",
        CallStatus::Success => "done",
        CallStatus::Error => "failed",
    };
    format!("{word}{took}")
}

/// What it was called with, as people read it.
pub(super) fn arguments(call: &CallRow) -> String {
    match &call.arguments {
        Arguments::Object(Value::Object(fields)) if fields.is_empty() => String::new(),
        Arguments::Object(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
        Arguments::Unusable { text, .. } => text.clone(),
    }
}

/// The title of a session.
pub(super) fn name(session: &SessionRow) -> String {
    let title = session.title.as_deref().filter(|it| !it.trim().is_empty());
    title.map_or_else(|| format!("Session {}", session.id.as_str()), visible_line)
}

/// How a turn ended.
pub(super) fn stop(turn: &TurnRow) -> &str {
    match turn.stop.as_deref() {
        Some("end_turn") => "done",
        Some("max_tokens") => "stopped: the answer was too long",
        Some("max_turn_requests") => "stopped: too many requests",
        Some("refusal") => "refused",
        Some("cancelled") => "cancelled",
        Some(other) => other,
        None => "no end is known",
    }
}

/// A picture as a link that holds it. Only of sorts that are nothing but pictures.
pub(super) fn picture(media: &Media) -> Option<String> {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
    let mime = known.into_iter().find(|it| media.mime.eq_ignore_ascii_case(it))?;
    let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/=".contains(&it);
    let data = media.data.as_str();
    data.bytes().all(is_base64).then(|| format!("data:{mime};base64,{data}"))
}

/// The lines of a change with a sign each; of a long file only those around what has changed.
pub(super) fn change(old: Option<&str>, new: &str) -> String {
    let mut config = similar::TextDiff::configure();
    config.timeout(std::time::Duration::from_millis(200));
    let diff = config.diff_lines(old.unwrap_or_default(), new);
    diff.unified_diff().context_radius(3).to_string()
}
