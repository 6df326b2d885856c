//! Parses and writes single JSON-RPC 2.0 messages, and decides which error a malformed line gets
//! (R-TR-6…R-TR-10). No I/O.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use turnwright_types::text::repair_surrogates;

/// A request id. The original JSON text is kept, so that the id is echoed byte for byte (R-TR-9).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The id to answer with when the message's own id is missing or unreadable.
    pub fn null() -> RequestId {
        RequestId("null".into())
    }

    /// Accepts a string, an integer or null. Some languages have no integers and write `1.0`. Also used for the id
    /// inside `$/cancel_request`.
    pub fn parse(raw: &RawValue) -> Option<RequestId> {
        let text = raw.get();
        let whole = text.strip_suffix(".0").unwrap_or(text);
        let is_valid = text == "null"
            || text.starts_with('"')
            || whole.parse::<i64>().is_ok()
            || whole.parse::<u64>().is_ok();
        is_valid.then(|| RequestId(text.into()))
    }

    /// The id as an integer: the form that our own requests use. Some peers send it back as a string or as `1.0`.
    pub fn as_u64(&self) -> Option<u64> {
        let text = self.0.trim_matches('"');
        text.strip_suffix(".0").unwrap_or(text).parse().ok()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// JSON-RPC defines −32700…−32600; all other codes are the application's.
    pub code: i32,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    pub(crate) fn parse_error(why: impl fmt::Display) -> RpcError {
        RpcError { code: -32700, message: format!("The line is not JSON: {why}"), data: None }
    }

    /// The line is JSON, but not a JSON-RPC message.
    pub fn invalid_request(why: &str) -> RpcError {
        RpcError { code: -32600, message: format!("Invalid request: {why}"), data: None }
    }

    /// The parameters do not fit the method. The message says why.
    pub fn invalid_params(message: &str) -> RpcError {
        RpcError { code: -32602, message: message.to_owned(), data: None }
    }

    /// The request was valid, but there is no result. The message says why.
    pub fn internal_error(message: String) -> RpcError {
        RpcError { code: -32603, message, data: None }
    }

    /// An error with a code of the application.
    pub fn application(code: i32, message: String, data: Value) -> RpcError {
        RpcError { code, message, data: Some(data) }
    }

    pub fn method_not_found(method: &str) -> RpcError {
        // The peer chose the name: it may be long or contain line breaks, but an error message
        // must be one short line (R-ERR-8).
        let name: String = method.chars().take(100).collect::<String>().escape_debug().collect();
        RpcError { code: -32601, message: format!("Method not found: {name}"), data: None }
    }
}

/// The parameters of a message, not yet deserialised.
#[derive(Debug)]
pub struct Params(Option<Box<RawValue>>);

impl Params {
    /// Deserialises the parameters. Absent parameters are read as an empty object.
    ///
    /// # Errors
    /// If the parameters do not fit `T`; to be answered with −32602.
    pub fn read<T: for<'de> Deserialize<'de>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// The JSON text of the parameters. Missing ones are an empty object.
    pub fn text(&self) -> &str {
        self.0.as_deref().map_or("{}", RawValue::get)
    }

    /// Returns a field of the parameters. Nothing in it or in the others is read.
    pub fn field(&self, name: &str) -> Option<&RawValue> {
        let fields: HashMap<String, &RawValue> = serde_json::from_str(self.text()).ok()?;
        fields.get(name).copied()
    }

    /// The request that a notification withdraws.
    pub fn withdrawn_request(&self) -> Option<RequestId> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Withdrawal {
            // Kept raw, because ids are compared byte for byte.
            request_id: Box<RawValue>,
        }
        RequestId::parse(&self.read::<Withdrawal>().ok()?.request_id)
    }
}

/// The answer to a request.
pub type RpcResponse = Result<Box<RawValue>, RpcError>;

/// A well-formed incoming message.
#[derive(Debug)]
pub enum RpcMessage {
    /// Must be answered, exactly once.
    Request { id: RequestId, method: Box<str>, params: Params },
    /// Must not be answered.
    Notification { method: Box<str>, params: Params },
    /// The peer's answer to a request that we sent.
    Response { id: RequestId, result: RpcResponse },
}

/// The result of parsing one line of input.
#[derive(Debug)]
pub enum ParsedLine {
    Message(RpcMessage),
    /// Malformed; must be answered with this error.
    Rejected {
        /// [`RequestId::null`] if the line's own id could not be read.
        id: RequestId,
        error: RpcError,
    },
    /// Malformed, but must not be answered: a blank line, or a broken response or notification.
    Ignored,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    error: Option<&'a RawValue>,
}

/// Tells a field that is `null` apart from an absent one, which `Option`'s own implementation does not.
pub fn some_even_if_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub fn parse_line(line: &[u8]) -> ParsedLine {
    // Half a character or a wrong byte in one of its texts would spoil the whole message: nobody could be answered.
    let json = str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
    let repaired = repair_surrogates(&json, &mut None);
    // Some runtimes write a byte order mark before their first output.
    let text = repaired.trim_start_matches('\u{feff}').trim_matches([' ', '\t', '\r', '\n']);
    let error = match text.as_bytes().first() {
        None => return ParsedLine::Ignored,
        Some(b'{') => match serde_json::from_str::<RawMessage<'_>>(text) {
            Ok(raw) => return classify(&raw),
            Err(error) if is_json(text) => RpcError::invalid_request(&error.to_string()),
            Err(error) => not_json(&error),
        },
        Some(first) => match serde_json::from_str::<IgnoredAny>(text) {
            // ACP has no batches. The whole array gets one error, and none of it is executed (R-TR-6).
            Ok(_) if *first == b'[' => RpcError::invalid_request("batches are not supported"),
            Ok(_) => RpcError::invalid_request("a message is a JSON object"),
            Err(error) => not_json(&error),
        },
    };
    rejected_line(None, error)
}

fn not_json(error: &serde_json::Error) -> RpcError {
    RpcError::parse_error(format_args!("it is wrong at column {}", error.column()))
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

pub(super) fn rejected_line(id: Option<RequestId>, error: RpcError) -> ParsedLine {
    ParsedLine::Rejected { id: id.unwrap_or_else(RequestId::null), error }
}

fn classify(raw: &RawMessage<'_>) -> ParsedLine {
    match raw.method {
        Some(method) => classify_call(raw, method),
        None => classify_response(raw),
    }
}

fn classify_call(raw: &RawMessage<'_>, method: &RawValue) -> ParsedLine {
    let id = raw.id.map(RequestId::parse);
    let problem = if raw.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        Some("`jsonrpc` must be \"2.0\"")
    } else if !method.get().starts_with('"') {
        Some("`method` must be a string")
    } else if !params_are_structured(raw.params) {
        Some("`params` must be an object or an array")
    } else if matches!(id, Some(None)) {
        Some("`id` must be a string, an integer or null")
    } else {
        None
    };
    if let Some(why) = problem {
        return match id {
            // A notification is never answered, not even a broken one (R-ERR-2).
            None => ParsedLine::Ignored,
            Some(id) => rejected_line(id, RpcError::invalid_request(why)),
        };
    }
    let Ok(method) = serde_json::from_str::<String>(method.get()) else {
        return rejected_line(id.flatten(), RpcError::invalid_request("`method` must be a string"));
    };
    let method = method.into_boxed_str();
    let params = Params(raw.params.filter(|params| params.get() != "null").map(ToOwned::to_owned));
    match id.flatten() {
        Some(id) => ParsedLine::Message(RpcMessage::Request { id, method, params }),
        None => ParsedLine::Message(RpcMessage::Notification { method, params }),
    }
}

fn params_are_structured(params: Option<&RawValue>) -> bool {
    params.is_none_or(|params| params.get() == "null" || params.get().starts_with(['{', '[']))
}

fn classify_response(raw: &RawMessage<'_>) -> ParsedLine {
    let id = raw.id.and_then(RequestId::parse);
    // Some peers write both fields, one of them null.
    let error = raw.error.filter(|error| error.get() != "null" || raw.result.is_none());
    let value = raw.result.filter(|result| result.get() != "null" || error.is_none());
    let result = match (value, error) {
        (_, Some(error)) => Err(read_error(error)),
        (Some(result), None) => Ok(result.to_owned()),
        // Some peers leave out a result that is null. The request would wait for ever.
        (None, None) if id.is_some() && raw.params.is_none() => Ok(RawValue::NULL.to_owned()),
        // Otherwise it is a request that lacks its method (R-TR-8).
        (None, None) => return rejected_line(id, RpcError::invalid_request("`method` is missing")),
    };
    match id {
        Some(id) => ParsedLine::Message(RpcMessage::Response { id, result }),
        None => ParsedLine::Ignored,
    }
}

/// Reads the peer's error object. A malformed one still fails the request: waiting for a better
/// one would be waiting for ever.
fn read_error(raw: &RawValue) -> RpcError {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| RpcError {
        code: -32603,
        message: raw.get().chars().take(200).collect(),
        data: None,
    })
}

/// A request, or a notification, which has no id.
#[derive(Serialize)]
struct OutgoingCall<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

/// A response, with a result or an error.
#[derive(Serialize)]
struct OutgoingResponse<'a, R> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

const JSONRPC_VERSION: &str = "2.0";

/// Appends a request, or a notification, which has no id, without the line feed.
pub fn write_call(
    buffer: &mut Vec<u8>,
    id: Option<u64>,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    serde_json::to_writer(buffer, &OutgoingCall { jsonrpc: JSONRPC_VERSION, id, method, params })
}

/// Appends a response, without the line feed.
pub fn write_response<R: Serialize>(
    buffer: &mut Vec<u8>,
    id: &RequestId,
    result: Result<&R, &RpcError>,
) -> serde_json::Result<()> {
    let response =
        OutgoingResponse { jsonrpc: JSONRPC_VERSION, id, result: result.ok(), error: result.err() };
    serde_json::to_writer(buffer, &response)
}
