//! One line ⇄ one message, with the errors that JSON-RPC 2.0 prescribes for lines that are
//! none (R-TR-6…R-TR-10). Pure.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A request's identifier, kept as the bytes it came in so that it is echoed exactly (R-TR-9).
#[derive(Clone, Debug)]
pub struct RequestId(Box<RawValue>);

impl RequestId {
    /// The identifier of a message that has none we could read.
    pub fn null() -> RequestId {
        RequestId(RawValue::NULL.to_owned())
    }

    /// Reads an identifier, also where `$/cancel_request` carries one.
    pub fn parse(raw: &RawValue) -> Option<RequestId> {
        let text = raw.get();
        let known = text == "null"
            || text.starts_with('"')
            || text.parse::<i64>().is_ok()
            || text.parse::<u64>().is_ok();
        known.then(|| RequestId(raw.to_owned()))
    }

    /// The identifier as a number, as our own requests have it.
    pub(super) fn as_u64(&self) -> Option<u64> {
        self.0.get().parse().ok()
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.get().hash(state);
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.get())
    }
}

impl Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// −32700…−32600 are JSON-RPC's; the others belong to who uses this module.
    pub code: i32,
    /// One sentence.
    pub message: String,
    /// Details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// The line is not JSON.
    pub fn parse_error(why: impl fmt::Display) -> RpcError {
        RpcError { code: -32700, message: format!("The line is not JSON: {why}"), data: None }
    }

    /// It is JSON, but no JSON-RPC message.
    pub fn invalid_request(why: &str) -> RpcError {
        RpcError { code: -32600, message: format!("Invalid request: {why}"), data: None }
    }

    /// Nobody knows the method.
    pub fn method_not_found(method: &str) -> RpcError {
        // The name is the peer's and may be anything; the message is one short line (R-ERR-8).
        let name: String = method.chars().take(100).collect::<String>().escape_debug().collect();
        RpcError { code: -32601, message: format!("Method not found: {name}"), data: None }
    }
}

/// The parameters of a message, unread.
#[derive(Debug)]
pub struct Params(Option<Box<RawValue>>);

impl Params {
    /// Reads them; absent parameters are an empty object.
    ///
    /// # Errors
    /// What is wrong with them, for −32602.
    pub fn read<T: for<'de> Deserialize<'de>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.as_deref().map_or("{}", RawValue::get))
    }
}

/// A message.
#[derive(Debug)]
pub enum Frame {
    /// Must be answered, exactly once.
    Request {
        /// To be echoed.
        id: RequestId,
        /// The method's name.
        method: Box<str>,
        /// Its parameters.
        params: Params,
    },
    /// Must not be answered.
    Notification {
        /// The method's name.
        method: Box<str>,
        /// Its parameters.
        params: Params,
    },
    /// The answer to a request of ours.
    Response {
        /// The identifier we gave it.
        id: RequestId,
        /// What came back.
        result: Result<Box<RawValue>, RpcError>,
    },
}

/// What a line turned out to be.
#[derive(Debug)]
pub enum Line {
    /// A message.
    Message(Frame),
    /// To be answered with this error.
    Refused {
        /// As far as it could be read.
        id: RequestId,
        /// Why.
        error: RpcError,
    },
    /// Neither a message nor a call: blank, or a broken response or notification.
    Ignored,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Unlike `Option`'s own way, keeps `"id": null` apart from no id at all.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Line {
    let Ok(text) = std::str::from_utf8(line) else {
        return refused(None, RpcError::parse_error("it is not UTF-8"));
    };
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    match text.as_bytes().first() {
        None => Line::Ignored,
        Some(b'{') => match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(envelope) => classify(&envelope),
            Err(error) if is_json(text) => {
                refused(None, RpcError::invalid_request(&error.to_string()))
            }
            Err(error) => refused(None, RpcError::parse_error(error)),
        },
        // ACP has no batches: one answer for the whole array, none of it is executed (R-TR-6).
        Some(b'[') if is_json(text) => {
            refused(None, RpcError::invalid_request("batches are not supported"))
        }
        Some(_) => match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => refused(None, RpcError::invalid_request("a message is a JSON object")),
            Err(error) => refused(None, RpcError::parse_error(error)),
        },
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn refused(id: Option<RequestId>, error: RpcError) -> Line {
    Line::Refused { id: id.unwrap_or_else(RequestId::null), error }
}

fn classify(envelope: &Envelope<'_>) -> Line {
    let version_is_right = envelope.jsonrpc.is_some_and(|it| it.get() == "\"2.0\"");
    match envelope.method {
        Some(method) => call(envelope, method, version_is_right),
        None => response(envelope, version_is_right),
    }
}

fn call(envelope: &Envelope<'_>, method: &RawValue, version_is_right: bool) -> Line {
    let id = envelope.id.map(RequestId::parse);
    let wrong = if !version_is_right {
        Some("`jsonrpc` must be \"2.0\"")
    } else if !method.get().starts_with('"') {
        Some("`method` must be a string")
    } else if !params_are_structured(envelope.params) {
        Some("`params` must be an object or an array")
    } else if matches!(id, Some(None)) {
        Some("`id` must be a string, an integer or null")
    } else {
        None
    };
    if let Some(why) = wrong {
        return match id {
            // A notification is never answered, not even a broken one (R-ERR-2).
            None => Line::Ignored,
            Some(id) => refused(id, RpcError::invalid_request(why)),
        };
    }
    let Ok(method) = serde_json::from_str::<String>(method.get()) else {
        return refused(id.flatten(), RpcError::invalid_request("`method` must be a string"));
    };
    let method = method.into_boxed_str();
    let params = Params(envelope.params.filter(|it| it.get() != "null").map(ToOwned::to_owned));
    match id.flatten() {
        Some(id) => Line::Message(Frame::Request { id, method, params }),
        None => Line::Message(Frame::Notification { method, params }),
    }
}

fn params_are_structured(params: Option<&RawValue>) -> bool {
    params.is_none_or(|it| {
        it.get() == "null" || it.get().starts_with('{') || it.get().starts_with('[')
    })
}

fn response(envelope: &Envelope<'_>, version_is_right: bool) -> Line {
    let Some(id) = envelope.id else { return Line::Ignored };
    let id = RequestId::parse(id);
    match (envelope.result, envelope.error) {
        (Some(result), None) => match id {
            Some(id) => Line::Message(Frame::Response { id, result: Ok(result.to_owned()) }),
            None => Line::Ignored,
        },
        (None, Some(error)) => match id {
            Some(id) => Line::Message(Frame::Response { id, result: Err(read_error(error)) }),
            None => Line::Ignored,
        },
        // An id and nothing else is a call whose method was forgotten (R-TR-8).
        (None, None) if version_is_right => {
            refused(id, RpcError::invalid_request("`method` is missing"))
        }
        _ => Line::Ignored,
    }
}

/// A peer's error, however badly it is made, is an error and not a reason to wait on.
fn read_error(raw: &RawValue) -> RpcError {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| RpcError {
        code: -32603,
        message: raw.get().chars().take(200).collect(),
        data: None,
    })
}

#[derive(Serialize)]
struct Notification<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Success<'a, R> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: &'a R,
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    error: &'a RpcError,
}

const VERSION: &str = "2.0";

/// Appends a notification, without the line feed.
pub(super) fn write_notification(
    buffer: &mut Vec<u8>,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    serde_json::to_writer(buffer, &Notification { jsonrpc: VERSION, method, params })
}

/// Appends a request, without the line feed.
pub(super) fn write_request(
    buffer: &mut Vec<u8>,
    id: u64,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    serde_json::to_writer(buffer, &Request { jsonrpc: VERSION, id, method, params })
}

/// Appends a successful response, without the line feed.
pub(super) fn write_success(
    buffer: &mut Vec<u8>,
    id: &RequestId,
    result: &impl Serialize,
) -> serde_json::Result<()> {
    serde_json::to_writer(buffer, &Success { jsonrpc: VERSION, id, result })
}

/// Appends an error response, without the line feed.
pub(super) fn write_failure(
    buffer: &mut Vec<u8>,
    id: &RequestId,
    error: &RpcError,
) -> serde_json::Result<()> {
    serde_json::to_writer(buffer, &Failure { jsonrpc: VERSION, id, error })
}
