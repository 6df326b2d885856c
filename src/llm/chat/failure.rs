//! What servers say when something is wrong, in each of the shapes they say it in.

use serde_json::Value;

use super::wire::number;
use crate::llm::LlmError;
use crate::llm::error::is_exhausted;

/// Where a message may stand, the most telling first. `error` stands twice: as an object it
/// holds the message, as a string it may be no more than the name of the status.
const PLACES: [&str; 8] =
    ["error", "message", "error", "errors", "detail", "msg", "status_msg", "base_resp"];

/// The sentence in an error's body, whatever its shape: `error.message`, `error` as a string,
/// `message`, `detail[].msg`, a list with one of these, plain text, or an HTML page.
pub(in crate::llm) fn error_text(body: &str) -> String {
    let body = body.trim();
    if body.starts_with('<') {
        return shorten(&format!("an HTML page instead of JSON ({})", title(body)));
    }
    match serde_json::from_str::<Value>(body).ok().and_then(|it| find_message(&it)) {
        Some(message) => shorten(&message),
        None => shorten(body),
    }
}

/// An error that came within an answer, as JSON or as plain text.
pub(super) fn in_stream(host: &str, body: &str) -> LlmError {
    let value = serde_json::from_str::<Value>(body).unwrap_or_default();
    let in_choice = value.pointer("/choices/0/error").map(Value::to_string);
    let message = match (find_message(&value), in_choice) {
        (None, Some(error)) => error_text(&error),
        _ => error_text(body),
    };
    LlmError::InStream {
        host: host.to_owned(),
        message,
        status: find_status(&value),
        exhausted: is_exhausted(body),
    }
}

/// One line of at most 500 characters.
pub(super) fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(500) {
        _ if line.is_empty() => "no explanation".to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn title(page: &str) -> &str {
    let start = page.find("<title>").map(|it| it + "<title>".len());
    let title = start.map(|it| page[it..].split('<').next().unwrap_or_default().trim());
    title.filter(|it| !it.is_empty()).unwrap_or("no title")
}

/// The message in an error document, if it has one.
pub(super) fn find_message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|it| !it.trim().is_empty()),
        Value::Array(items) => items.iter().find_map(find_message),
        Value::Object(fields) => {
            let found = PLACES.iter().enumerate().find_map(|(position, place)| {
                let inner = fields.get(*place)?;
                if position == 0 && inner.is_string() { None } else { find_message(inner) }
            });
            // OpenRouter's own message says only that a provider failed; this is what it said.
            let raw = fields.get("metadata").and_then(|it| it.get("raw")).and_then(find_message);
            match (found, raw) {
                (Some(message), Some(raw)) => Some(format!("{message}: {raw}")),
                (found, raw) => found.or(raw),
            }
        }
        _ => None,
    }
}

/// What would have been the HTTP status, had the server known in time.
fn find_status(value: &Value) -> Option<u16> {
    match value {
        Value::Array(items) => items.iter().find_map(find_status),
        Value::Object(fields) => {
            let inner = ["error", "base_resp", "choices"].iter().filter_map(|it| fields.get(*it));
            let own = ["code", "status_code", "status", "type"].iter();
            let own = own.filter_map(|it| fields.get(*it)).find_map(status);
            inner.clone().find_map(find_status).or(own)
        }
        _ => None,
    }
}

fn status(code: &Value) -> Option<u16> {
    if let Some(number) = number(code) {
        return u16::try_from(number).ok().filter(|it| (400..600).contains(it));
    }
    let code = code.as_str()?.to_ascii_lowercase();
    let table = [
        ("rate_limit", 429),
        ("resource_exhausted", 429),
        ("overloaded", 529),
        ("server_error", 500),
        ("internal", 500),
        ("unavailable", 503),
        ("timeout", 504),
    ];
    table.iter().find(|(word, _)| code.contains(word)).map(|(_, status)| *status)
}
