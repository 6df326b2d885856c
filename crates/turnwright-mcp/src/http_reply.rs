//! Reads the responses to HTTP requests, bounded.

use reqwest::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};

use super::event_stream::EventStream;
use super::http::{HttpError, SESSION_HEADER};
use super::line;

/// Maximum size of a response that is not a stream.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of the body of an error that is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The longest text that says that a session is lost.
const MAX_REFUSAL_BYTES: usize = 2 * 1024;
const LOST_SESSION_CODE: i32 = -32001;
/// One of these phrases beside the word says that a session is lost.
const LOST_SESSION_PHRASES: &str = "not found|no valid|no active|no longer|not exist|not initialized|\
                                    invalid|unknown|expired|terminated|missing|required";
pub(super) const EVENT_STREAM: &str = "text/event-stream";
pub(super) const JSON: &str = "application/json";

/// How a message is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It needs no response.
    Message,
    Request,
    /// A request for which the session was opened anew, so words about a session mean something else.
    Retry,
}

/// A server's answer to a message.
pub(super) struct PostReply {
    pub(super) body: ReplyBody,
    /// The session that it has opened.
    pub(super) session: Option<HeaderValue>,
}

pub(super) enum ReplyBody {
    /// There will be no answer in this response.
    Accepted,
    Json(Vec<u8>),
    Events(Box<EventStream>),
}

/// True for the statuses with which a server says that the trouble is on its side.
pub(super) fn is_trouble(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// The content type, in lower case.
pub(super) fn content_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase())
}

/// The error of a response with another content type.
pub(super) fn unexpected_type(content_type: Option<String>) -> HttpError {
    let content_type = content_type.unwrap_or_else(|| "no content type".to_owned());
    HttpError::Unexpected(format!("it sent {content_type} and not JSON or events"))
}

/// Reads what a server answers to a message. With a session, a `404` means that the server does not know it any
/// more, and so does any other refusal that says so: many servers send `400`, and some `401`.
pub(super) async fn read_reply(
    response: Response,
    has_session: bool,
    attempt: Attempt,
) -> Result<PostReply, HttpError> {
    let status = response.status();
    let session = response.headers().get(SESSION_HEADER).cloned();
    let reply = |body| Ok(PostReply { body, session });
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return reply(ReplyBody::Accepted);
    }
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) && has_session {
        return Err(HttpError::SessionExpired);
    }
    let may_be_lost = has_session && attempt != Attempt::Retry;
    let content_type = content_type(&response);
    let is_json = content_type.as_deref().is_some_and(|kind| kind.starts_with(JSON));
    let is_page = content_type.as_deref().is_some_and(|kind| kind.starts_with("text/html"));
    if !status.is_success() {
        let is_refusal = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        // With any other status, the server may have begun with the call.
        let may_be_lost = may_be_lost
            && status.is_client_error()
            && !matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        return match status_error(response).await {
            HttpError::Status { body, .. } if may_be_lost && says_session_is_lost(&body) => {
                Err(HttpError::SessionExpired)
            }
            // An error of the protocol says more than the status.
            HttpError::Status { body, .. }
                if is_json && !is_refusal && is_error_response(&body) =>
            {
                reply(ReplyBody::Json(body.into_bytes()))
            }
            error => Err(error),
        };
    }
    match content_type {
        Some(kind) if kind.starts_with(EVENT_STREAM) => {
            reply(ReplyBody::Events(Box::new(EventStream::new(response))))
        }
        // Some servers answer messages that need no answer, for example with `OK`.
        _ if attempt == Attempt::Message && !is_page => reply(ReplyBody::Accepted),
        content_type if !is_page => {
            let body = read_body(response, MAX_BODY_BYTES).await?.ok_or_else(|| {
                HttpError::Unexpected("its response is longer than 16 MiB".to_owned())
            })?;
            // Some servers send JSON as plain text or without a content type.
            if !is_json && !line::without_mark(&body).starts_with(b"{") {
                return Err(unexpected_type(content_type));
            }
            if may_be_lost && is_lost_session_error(&body) {
                return Err(HttpError::SessionExpired);
            }
            reply(ReplyBody::Json(body))
        }
        content_type => Err(unexpected_type(content_type)),
    }
}

/// The error of an unsuccessful response, with the server's explanation.
pub(super) async fn status_error(response: Response) -> HttpError {
    let status = response.status();
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let scope = challenge.and_then(required_scope);
    let is_json = content_type(&response).is_some_and(|kind| kind.starts_with(JSON));
    let body = if is_trouble(status) && !is_json || status == StatusCode::TOO_MANY_REQUESTS {
        Vec::new()
    } else {
        read_body(response, MAX_ERROR_BYTES).await.ok().flatten().unwrap_or_default()
    };
    HttpError::Status { status, scope, body: String::from_utf8_lossy(&body).into_owned() }
}

fn required_scope(challenge: &str) -> Option<String> {
    let start = challenge.to_ascii_lowercase().find("scope=")? + "scope=".len();
    let value = &challenge[start..];
    let scope = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?.0,
        None => value.split([',', ';', ' ']).next()?,
    };
    (!scope.is_empty()).then(|| scope.to_owned())
}

fn is_error_response(body: &str) -> bool {
    let body: Result<serde_json::Value, _> = serde_json::from_str(body);
    body.is_ok_and(|body| body["jsonrpc"] == "2.0" && body["error"].is_object())
}

/// Returns true if a refusal is about the session, in the words of one of the many servers: "Bad Request: No
/// valid session ID provided", "Unauthorized: Session not found", "Bad Request: Server not initialized".
fn says_session_is_lost(refusal: &str) -> bool {
    let words = refusal.to_ascii_lowercase();
    let is_lost = words.contains("session")
        && LOST_SESSION_PHRASES.split('|').any(|phrase| words.contains(phrase));
    words.len() <= MAX_REFUSAL_BYTES && (is_lost || words.contains("server not initialized"))
}

/// Returns true for a response with the error that some servers send with the status 200 when they do not know
/// the session. The same code means a timeout elsewhere.
pub(super) fn is_lost_session_error(response: &[u8]) -> bool {
    if response.len() > MAX_REFUSAL_BYTES {
        return false;
    }
    let response: serde_json::Value = serde_json::from_slice(response).unwrap_or_default();
    let error = &response["error"];
    error["code"] == LOST_SESSION_CODE
        && error["message"].as_str().is_some_and(says_session_is_lost)
}

/// Reads a body; `None` if it is longer than the limit.
async fn read_body(mut response: Response, limit: usize) -> Result<Option<Vec<u8>>, HttpError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(HttpError::Request)? {
        if body.len() + piece.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}
