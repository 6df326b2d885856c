//! Classifies one line of a server before it is parsed. A response that cannot be read is replaced with an
//! error response, so that its request does not wait for ever.

use std::borrow::Cow;
use std::fmt;

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::schema::model_schema::bounded_text;
use turnwright_rpc::{LongLine, RequestId, RpcError, some_even_if_null};

/// Maximum nesting of a response. `serde_json` allows 128.
const MAX_DEPTH: usize = 100;
/// Maximum number of JSON values in one response. A value of two bytes may take many times that in
/// memory.
const MAX_VALUES: usize = 1_000_000;
/// How many bytes at each end of a broken line are searched for its id.
pub(crate) const SCAN_BYTES: usize = 256;
/// The most braces of a line that are tried as the beginning of a response.
const MAX_STARTS: usize = 8;
/// Maximum length of a malformed error object that is used as a message.
const MAX_ERROR_CHARS: usize = 500;

/// The outermost fields of a message.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    error: Option<&'a RawValue>,
}

/// The error for a response that would take too much memory.
pub(crate) const TOO_COMPLEX: &str =
    "The response has too many values or nests too deeply, and was dropped";

/// The response that a line holds: the line itself, or what is used in its place if the response is malformed. `None` if
/// the line is something else, such as a request or a notification.
pub(crate) fn response(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Ok(head) = serde_json::from_slice::<Envelope<'_>>(line) else {
        // A file in another encoding, copied as it is.
        if let Cow::Owned(text) = String::from_utf8_lossy(line) {
            return Some(Cow::Owned(response(text.as_bytes())?.into_owned()));
        }
        let error = error_in_place_of(line, "The response is not valid JSON and was dropped");
        return error.map(Cow::Owned);
    };
    let (None, Some(id)) = (&head.method, head.id) else { return None };
    if !is_within_limits(line) {
        return Some(Cow::Owned(error_response(id, TOO_COMPLEX)));
    }
    let replacement = match (head.error.map(RawValue::get), head.result.map(RawValue::get)) {
        (None, Some(_)) => return Some(Cow::Borrowed(line)),
        // Some servers send both fields, one of them null.
        (Some("null"), Some(result)) if result != "null" => {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            (answer + "\n").into_bytes()
        }
        (None | Some("null"), _) => {
            error_response(id, "The response has neither a result nor an error")
        }
        (Some(object), _) if serde_json::from_str::<RpcError>(object).is_ok() => {
            return Some(Cow::Borrowed(line));
        }
        (Some(object), _) => error_response(id, &bounded_text(object, MAX_ERROR_CHARS)),
    };
    Some(Cow::Owned(replacement))
}

/// Reads an error object. A malformed one becomes the message of an internal error.
pub(crate) fn error_object(object: &RawValue) -> RpcError {
    serde_json::from_str(object.get())
        .unwrap_or_else(|_| RpcError::internal_error(bounded_text(object.get(), MAX_ERROR_CHARS)))
}

/// Removes a byte order mark, which some runtimes write before their first output.
pub(crate) fn without_mark(message: &[u8]) -> &[u8] {
    message.strip_prefix(b"\xef\xbb\xbf").unwrap_or(message)
}

/// The messages of a batch, which revision 2025-03-26 of the protocol has. `None` if the message is not a batch.
pub(crate) fn batch(message: &[u8]) -> Option<Vec<&RawValue>> {
    if !message.trim_ascii_start().starts_with(b"[") || !is_within_limits(message) {
        return None;
    }
    let mut messages: Vec<&RawValue> = serde_json::from_slice(message).ok()?;
    messages.retain(|message| message.get().starts_with('{'));
    Some(messages)
}

/// Where a message begins in a line of a program: after a byte order mark, and a response also after what was
/// printed without the end of a line.
pub(crate) fn message_start(line: &[u8]) -> usize {
    let marked = line.len() - without_mark(line).len();
    if line[marked..].trim_ascii_start().starts_with(b"{") {
        return marked;
    }
    let end = memmem::find(line, b"\"jsonrpc\"").unwrap_or_default();
    let starts = memchr::memchr_iter(b'{', &line[..end]).take(MAX_STARTS);
    let mut responses =
        starts.filter(|start| matches!(response(&line[*start..]), Some(Cow::Borrowed(_))));
    responses.next().unwrap_or(marked)
}

fn error_response(id: impl fmt::Display, message: &str) -> Vec<u8> {
    let error = json!({ "code": -32603, "message": message });
    let response = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    (response + "\n").into_bytes()
}

/// True if the line can be parsed without much memory. Counts separators instead of parsing.
pub(crate) fn is_within_limits(line: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut values = 0_usize;
    let mut place = 0;
    while let Some(byte) = line.get(place) {
        match byte {
            b'"' => place = end_of_string(line, place),
            b'[' | b'{' => {
                depth += 1;
                values += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > MAX_DEPTH || values > MAX_VALUES {
            return false;
        }
        place += 1;
    }
    true
}

/// The index of the quote that ends a string.
fn end_of_string(line: &[u8], begin: usize) -> usize {
    let mut place = begin + 1;
    while let Some(next) = line.get(place..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        place += next;
        if line[place] == b'"' {
            return place;
        }
        place += 2;
    }
    line.len()
}

/// Makes the error response for a response that cannot be parsed. `None` if the line is not a response.
pub(crate) fn error_in_place_of(line: &[u8], why: &str) -> Option<Vec<u8>> {
    // The ids of the server's own requests are unrelated to ours.
    let beginning = &line[..SCAN_BYTES.min(line.len())];
    let end = &line[line.len().saturating_sub(SCAN_BYTES)..];
    let is_request = memmem::find(beginning, b"\"method\"").is_some();
    let id =
        LongLine::of(beginning, end).id.filter(|id| !is_request && *id != RequestId::null())?;
    Some(error_response(&id, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_malformed_response_becomes_an_error_response() {
        let deep = |depth| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        let many = format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{}0]}}"#, "0,".repeat(MAX_VALUES));
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"[\"{,"}}"#.to_owned(), None),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#.to_owned(), None),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m","data":[]}}"#
                    .to_owned(),
                None,
            ),
            (deep(90), None),
            (
                deep(10_000)
                    .replace("\"result\":", "\"error\":{\"code\":1,\"message\":\"m\",\"data\":")
                    + "}",
                Some("nests too deeply"),
            ),
            (deep(10_000), Some("nests too deeply")),
            (many, Some("too many values")),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"\x"}}"#.to_owned(), Some("not valid JSON")),
            (r#"{"jsonrpc":"2.0","result":{,"id":7}"#.to_owned(), Some("not valid JSON")),
            (r#"{"jsonrpc":"2.0","id":7}"#.to_owned(), Some("neither a result nor an error")),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":null}"#.to_owned(),
                Some("neither a result nor an error"),
            ),
            (r#"{"jsonrpc":"2.0","id":7,"error":"no paper"}"#.to_owned(), Some("no paper")),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":"E7","message":"ink"}}"#.to_owned(),
                Some("ink"),
            ),
        ];
        for (line, expected) in table {
            let short = &line[..line.len().min(80)];
            match (response(line.as_bytes()), expected) {
                (Some(Cow::Borrowed(_)), None) => {}
                (Some(Cow::Owned(replacement)), Some(words)) => {
                    let answer: Value = serde_json::from_slice(&replacement).unwrap();
                    let message = answer["error"]["message"].as_str().unwrap();
                    assert!(answer["id"] == 7 && message.contains(words), "{short}: {answer}");
                }
                (other, _) => panic!("{short}: {other:?}"),
            }
        }
        let both = br#"{"jsonrpc":"2.0","id":7,"result":{"a":1},"error":null}"#;
        let one = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1}}\n";
        assert_eq!(response(both).as_deref(), Some(one.as_slice()));
    }

    /// Programs of .NET begin with a byte order mark, and a log may lack the end of its line.
    #[test]
    fn a_message_is_found_behind_a_mark_and_a_response_behind_a_log() {
        let response = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let last = r#"{"result":{},"id":7,"jsonrpc":"2.0"}"#;
        let request = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        for (line, message) in [
            (response.to_owned(), response),
            (format!("\u{feff}{response}"), response),
            (format!("\u{feff}{request}"), request),
            (format!("starting {{x}} ... {response}"), response),
            (format!("starting ... {last}"), last),
        ] {
            let start = message_start(line.as_bytes());
            assert_eq!(&line[start..], message, "{line}");
        }
        let logged = format!("received: {request}");
        assert_eq!(message_start(logged.as_bytes()), 0, "what it was sent is not its own");
    }

    #[test]
    fn a_response_that_is_not_utf_8_is_read() {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"caf\xe9\"}}";
        let read = "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"caf\u{fffd}\"}}";
        assert_eq!(response(line).as_deref(), Some(read.as_bytes()));
    }

    #[test]
    fn a_batch_is_taken_apart() {
        let messages = |line: &'static str| {
            batch(line.as_bytes()).map(|all| all.into_iter().map(RawValue::get).collect::<Vec<_>>())
        };
        assert_eq!(
            messages(r#" [{"id":1}, 7, [{}], {"id":2}]"#),
            Some(vec![r#"{"id":1}"#, r#"{"id":2}"#])
        );
        assert_eq!(messages(r#"{"id":1}"#), None);
        assert_eq!(messages("[info] started"), None);
    }

    #[test]
    fn requests_and_notifications_are_never_taken_for_responses() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#""jsonrpc""#,
        ] {
            assert_eq!(response(line.as_bytes()), None, "{line}");
        }
    }
}
