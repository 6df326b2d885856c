//! Parses the error bodies of servers in all known shapes. Does no I/O.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::error_kind::classify;
use super::retry_after;
use crate::ErrorKind;
use turnwright_types::text;

/// Fields that may hold the message, most specific first. `error` occurs twice: an object holds the
/// message, a string may be nothing but the name of the status.
const MESSAGE_FIELDS: [&str; 8] =
    ["error", "message", "error", "errors", "detail", "msg", "status_msg", "base_resp"];

/// Fields that may hold an error code.
const CODE_FIELDS: [&str; 7] =
    ["code", "type", "status", "reason", "error_type", "status_code", "quotaId"];

/// Fields whose values may hold further codes.
const CODE_CONTAINERS: [&str; 8] =
    ["error", "errors", "details", "detail", "violations", "metadata", "innererror", "choices"];

/// A parsed error.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    /// One line, for people.
    pub(crate) message: String,
    /// The HTTP status; inside a stream, the status that the error would have had.
    pub(crate) status: Option<u16>,
    pub(crate) kind: ErrorKind,
    /// The delay that the server asks for.
    pub(crate) retry_after: Option<Duration>,
    /// The model's output that the server failed to parse (C.1 #23).
    pub(crate) failed_generation: Option<String>,
}

/// Parses an error body. The HTTP status, which an error in a stream does not have, and the delay from the
/// headers take precedence over the body's. Dates in the body are compared with `now`.
pub(crate) fn parse(
    body: &str,
    http_status: Option<u16>,
    header_delay: Option<Duration>,
    now: SystemTime,
) -> ErrorReport {
    // Xiaomi answers a request for a stream so, whatever the status.
    let value = serde_json::from_str::<Value>(body.trim_start_matches("data:")).unwrap_or_default();
    let choice_error = value.pointer("/choices/0/error");
    let message = find_message(&value)
        .or_else(|| find_message(choice_error?))
        .unwrap_or_else(|| plain_text(body));
    let status = http_status.or_else(|| find_status(&value));
    let mut codes = Vec::new();
    collect_codes(&value, &mut codes);
    let wait = header_delay.or_else(|| retry_after::from_body(&value, &message, now));
    let is_in_stream = http_status.is_none();
    let kind = classify(&value, &codes, &message, status, is_in_stream, wait.is_some());
    let may_ask_to_wait = matches!(status, Some(429 | 503 | 529)) || kind == ErrorKind::RateLimit;
    let mut message = shorten(&message);
    // The categories for which Azure refused the request (C.1 #14).
    let filtered = value.pointer("/error/innererror/content_filter_result");
    if let Some(categories) = filtered.and_then(filter_categories) {
        message = format!("{message} ({categories})");
    }
    let failed_generation =
        value.pointer("/error/failed_generation").and_then(Value::as_str).map(str::to_owned);
    ErrorReport {
        message,
        status,
        kind,
        retry_after: wait.filter(|_| may_ask_to_wait),
        failed_generation,
    }
}

/// The message of a body without a message field: the text itself, or the title of an HTML page.
fn plain_text(body: &str) -> String {
    let body = body.trim();
    if body.starts_with('<') {
        return format!("an HTML page instead of JSON ({})", html_title(body));
    }
    body.to_owned()
}

/// The text as one line of at most 500 characters.
pub(crate) fn shorten(text: &str) -> String {
    let line = text::one_line(text);
    if line.is_empty() { "no explanation".to_owned() } else { text::clip(line, 500) }
}

fn html_title(page: &str) -> &str {
    let rest = page.split_once("<title>").map(|(_, rest)| rest);
    let title = rest.map(|rest| rest.split('<').next().unwrap_or_default().trim());
    title.filter(|title| !title.is_empty()).unwrap_or("no title")
}

/// The message of an error document.
pub(crate) fn find_message(value: &Value) -> Option<String> {
    match value {
        // Gateways embed the provider's whole document in their own message.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let inner = serde_json::from_str::<Value>(text).ok();
            inner.and_then(|document| find_message(&document)).or_else(|| Some(text.clone()))
        }
        Value::String(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Value::Array(items) => items.iter().find_map(find_message),
        Value::Object(fields) => {
            let found = MESSAGE_FIELDS.iter().enumerate().find_map(|(position, place)| {
                let inner = fields.get(*place)?;
                if position == 0 && inner.is_string() { None } else { find_message(inner) }
            });
            // OpenRouter's own message only says that a provider failed; the raw message says why.
            let metadata = fields.get("metadata");
            let raw = metadata.and_then(|metadata| metadata.get("raw")).and_then(find_message);
            let Some(mut message) = found else { return raw };
            if let Some(provider) = metadata.and_then(|data| data.get("provider_name")?.as_str()) {
                message = format!("{message} ({provider})");
            }
            Some(match (raw, field_location(fields)) {
                (Some(raw), _) => format!("{message}: {raw}"),
                (None, Some(place)) => format!("{message} ({place})"),
                (None, None) => message,
            })
        }
        _ => None,
    }
}

/// The request field that Mistral and others complain about (C.1 #22), or Xiaomi's words about it.
fn field_location(fields: &Map<String, Value>) -> Option<String> {
    let Some(location) = fields.get("loc").and_then(Value::as_array) else {
        let param = fields.get("param")?.as_str()?;
        return param.contains(' ').then(|| param.to_owned());
    };
    let steps = location.iter().filter(|step| **step != "body");
    let names = steps.map(|step| step.as_str().map_or_else(|| step.to_string(), str::to_owned));
    let place = names.collect::<Vec<_>>().join(".");
    if place.is_empty() { None } else { Some(place) }
}

/// Only reads known fields, because some servers echo the whole request.
fn collect_codes(value: &Value, codes: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().take(16).for_each(|item| collect_codes(item, codes)),
        Value::Object(fields) => {
            for code in CODE_FIELDS.iter().filter_map(|field| fields.get(*field)) {
                match code {
                    Value::String(text) => codes.push(text.to_lowercase()),
                    Value::Number(number) => codes.push(number.to_string()),
                    _ => {}
                }
            }
            CODE_CONTAINERS
                .iter()
                .filter_map(|container| fields.get(*container))
                .for_each(|inner| collect_codes(inner, codes));
        }
        _ => {}
    }
}

/// The categories that a content filter flagged, with their severity.
pub(crate) fn filter_categories(result: &Value) -> Option<String> {
    let hits: Vec<_> = result
        .as_object()?
        .iter()
        .filter(|(_, found)| found.get("filtered") == Some(&Value::Bool(true)))
        .map(|(name, found)| {
            let severity = found.get("severity").and_then(Value::as_str);
            severity.map_or_else(|| name.clone(), |severity| format!("{name}: {severity}"))
        })
        .collect();
    if hits.is_empty() { None } else { Some(hits.join(", ")) }
}

/// A number, or a string that contains one.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    }
}

/// The HTTP status that the error would have had outside of a stream.
fn find_status(value: &Value) -> Option<u16> {
    match value {
        Value::Array(items) => items.iter().find_map(find_status),
        Value::Object(fields) => {
            let inner =
                ["error", "base_resp", "choices"].iter().filter_map(|field| fields.get(*field));
            let own = ["code", "status_code", "status", "type"]
                .iter()
                .filter_map(|field| fields.get(*field))
                .find_map(status_of_code);
            inner.clone().find_map(find_status).or(own)
        }
        _ => None,
    }
}

fn status_of_code(code: &Value) -> Option<u16> {
    if let Some(number) = number(code) {
        return u16::try_from(number).ok().filter(|status| (400..600).contains(status));
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
