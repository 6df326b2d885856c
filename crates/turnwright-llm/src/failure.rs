//! What servers say when something is wrong, in each of the shapes they say it in. Pure.

use std::time::Duration;

use serde_json::{Map, Value};

use super::kind::{Clues, classify};
use super::{Kind, LlmError, wait};

/// Where a message may stand, the most telling first. `error` stands twice: as an object it
/// holds the message, as a string it may be no more than the name of the status.
const PLACES: [&str; 8] =
    ["error", "message", "error", "errors", "detail", "msg", "status_msg", "base_resp"];

/// Where a code may stand.
const CODES: [&str; 7] =
    ["code", "type", "status", "reason", "error_type", "status_code", "quotaId"];

/// What holds codes of its own.
const HOLDERS: [&str; 8] =
    ["error", "errors", "details", "detail", "violations", "metadata", "innererror", "choices"];

/// What an error comes to.
#[derive(Debug)]
pub(super) struct Report {
    /// One line for people.
    pub(super) message: String,
    /// The HTTP status, or what would have been it, had the server known in time.
    pub(super) status: Option<u16>,
    /// The sort of trouble.
    pub(super) kind: Kind,
    /// How long the server wants us to wait.
    pub(super) retry_after: Option<Duration>,
    /// The call that the model has made and the server could not read (C.1 #23).
    pub(super) leaked: Option<String>,
}

/// Reads an error's body. What came with it as status and headers counts more.
pub(super) fn read(body: &str, status: Option<u16>, told: Option<Duration>) -> Report {
    let value = serde_json::from_str::<Value>(body.trim()).unwrap_or_default();
    let in_choice = value.pointer("/choices/0/error");
    let message = find_message(&value).or_else(|| find_message(in_choice?));
    let message = message.unwrap_or_else(|| text_of(body));
    let status = status.or_else(|| find_status(&value));
    let wait = told.or_else(|| wait::in_body(&value, &message));
    let mut codes = Vec::new();
    collect_codes(&value, &mut codes);
    let says_when = wait.is_some();
    let clues = Clues { status, body: &value, codes: &codes, message: &message, says_when };
    let kind = classify(clues);
    let may_ask_to_wait = matches!(status, Some(429 | 503 | 529)) || kind == Kind::RateLimit;
    let mut message = shorten(&message);
    if let Some(categories) = filtered(&value) {
        message = format!("{message} ({categories})");
    }
    let leaked = value.pointer("/error/failed_generation").and_then(Value::as_str);
    let leaked = leaked.map(str::to_owned);
    Report { message, status, kind, retry_after: wait.filter(|_| may_ask_to_wait), leaked }
}

/// An error that came within an answer, as JSON or as plain text.
pub(super) fn in_stream(host: &str, body: &str) -> LlmError {
    let Report { message, status, kind, retry_after, .. } = read(body, None, None);
    LlmError::InStream { host: host.to_owned(), message, status, kind, retry_after }
}

/// The text of a body that has no message: itself, or the title of a page.
fn text_of(body: &str) -> String {
    let body = body.trim();
    if body.starts_with('<') {
        return format!("an HTML page instead of JSON ({})", title(body));
    }
    body.to_owned()
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
        // Gateways put the provider's whole document into their own message.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let inner = serde_json::from_str::<Value>(text).ok();
            inner.and_then(|it| find_message(&it)).or_else(|| Some(text.clone()))
        }
        Value::String(text) => Some(text.clone()).filter(|it| !it.trim().is_empty()),
        Value::Array(items) => items.iter().find_map(find_message),
        Value::Object(fields) => {
            let found = PLACES.iter().enumerate().find_map(|(position, place)| {
                let inner = fields.get(*place)?;
                if position == 0 && inner.is_string() { None } else { find_message(inner) }
            });
            // OpenRouter's own message says only that a provider failed; this is what it said.
            let metadata = fields.get("metadata");
            let raw = metadata.and_then(|it| it.get("raw")).and_then(find_message);
            let provider = metadata.and_then(|it| it.get("provider_name")).and_then(Value::as_str);
            let found = match provider {
                Some(provider) => found.map(|it| format!("{it} ({provider})")),
                None => found,
            };
            match (found, raw) {
                (Some(message), Some(raw)) => Some(format!("{message}: {raw}")),
                (Some(message), None) => Some(match place(fields) {
                    Some(place) => format!("{message} ({place})"),
                    None => message,
                }),
                (None, raw) => raw,
            }
        }
        _ => None,
    }
}

/// The field of the request that Mistral and others complain of (C.1 #22).
fn place(fields: &Map<String, Value>) -> Option<String> {
    let steps = fields.get("loc")?.as_array()?.iter().filter(|it| **it != "body");
    let step = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
    let place = steps.map(step).collect::<Vec<_>>().join(".");
    if place.is_empty() { None } else { Some(place) }
}

/// Only from where codes stand: some servers send the whole request back.
fn collect_codes(value: &Value, codes: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().take(16).for_each(|it| collect_codes(it, codes)),
        Value::Object(fields) => {
            for code in CODES.iter().filter_map(|it| fields.get(*it)) {
                match code {
                    Value::String(text) => codes.push(text.to_lowercase()),
                    Value::Number(number) => codes.push(number.to_string()),
                    _ => {}
                }
            }
            HOLDERS.iter().filter_map(|it| fields.get(*it)).for_each(|it| collect_codes(it, codes));
        }
        _ => {}
    }
}

/// Why Azure has refused: the categories that were too much (C.1 #14).
fn filtered(value: &Value) -> Option<String> {
    categories(value.get("error")?.pointer("/innererror/content_filter_result")?)
}

/// The categories of a content filter that were hit, with how much.
pub(super) fn categories(result: &Value) -> Option<String> {
    let hit = |(name, found): (&String, &Value)| {
        let severity = found.get("severity").and_then(Value::as_str);
        let text = severity.map_or_else(|| name.clone(), |it| format!("{name}: {it}"));
        (found.get("filtered") == Some(&Value::Bool(true))).then_some(text)
    };
    let hits: Vec<_> = result.as_object()?.iter().filter_map(hit).collect();
    if hits.is_empty() { None } else { Some(hits.join(", ")) }
}

/// A number, also in a string.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
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
