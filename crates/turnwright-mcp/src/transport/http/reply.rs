//! Reads the responses to HTTP requests, and the events of those that are streams. Both are bounded.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};

use super::{HttpError, SESSION_HEADER};
use crate::transport::line;
use turnwright_http::sse::Decoder;

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
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
pub(crate) const JSON: &str = "application/json";
/// Maximum size of an event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The shortest delay before a stream is opened again, even if the server asks for less.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// The wait for the end of a response that has nothing more to say, so that its connection can be used
/// again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// How a message is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It needs no response.
    Message,
    Request,
    /// A request for which the session was opened anew, so words about a session mean something else.
    Retry,
}

/// A server's answer to a message.
pub(crate) enum ReplyBody {
    /// There will be no answer in this response.
    Accepted,
    Json(Vec<u8>),
    Events(Box<EventStream>),
}

/// A server's answer, with the id of a session that it has opened.
pub(crate) type Reply = Result<(ReplyBody, Option<HeaderValue>), HttpError>;

/// True for the statuses with which a server says that the trouble is on its side.
pub(crate) fn is_trouble(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// The content type, in lower case.
pub(crate) fn content_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase())
}

/// The error of a response with another content type.
pub(crate) fn unexpected_type(content_type: Option<String>) -> HttpError {
    let content_type = content_type.unwrap_or_else(|| "no content type".to_owned());
    HttpError::Unexpected(format!("it sent {content_type} and not JSON or events"))
}

/// Reads what a server answers to a message. With a session, a `404` means that the server does not know it any
/// more, and so does any other refusal that says so: many servers send `400`, and some `401`. Returns the id of a
/// session that the server has opened, too.
pub(crate) async fn read_reply(response: Response, has_session: bool, attempt: Attempt) -> Reply {
    let status = response.status();
    let session = response.headers().get(SESSION_HEADER).cloned();
    let reply = |body| Ok((body, session));
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
        // Some servers answer messages that need no answer, for example with `OK`.
        _ if attempt == Attempt::Message => reply(ReplyBody::Accepted),
        Some(kind) if kind.starts_with(EVENT_STREAM) => {
            reply(ReplyBody::Events(Box::new(EventStream::new(response))))
        }
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
pub(crate) async fn status_error(response: Response) -> HttpError {
    let status = response.status();
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let scope = challenge.and_then(required_scope);
    let location = response.headers().get(LOCATION).filter(|_| status.is_redirection());
    let is_json = content_type(&response).is_some_and(|kind| kind.starts_with(JSON));
    // Behind a proxy, some servers believe that they are reached without encryption.
    let target = location
        .and_then(|value| response.url().join(value.to_str().ok()?).ok())
        .filter(|target| target.scheme() == response.url().scheme() || target.scheme() == "https");
    let body = if let Some(target) = target {
        format!("it redirects to {target}. If you trust that, set it as the server's address")
    } else if is_trouble(status) && !is_json || status == StatusCode::TOO_MANY_REQUESTS {
        String::new()
    } else {
        let body = read_body(response, MAX_ERROR_BYTES).await.ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&body).into_owned()
    };
    HttpError::Status { status, scope, body }
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
pub(crate) fn is_lost_session_error(response: &[u8]) -> bool {
    if response.len() > MAX_REFUSAL_BYTES {
        return false;
    }
    let response: serde_json::Value = serde_json::from_slice(response).unwrap_or_default();
    let error = &response["error"];
    error["code"] == LOST_SESSION_CODE
        && error["message"].as_str().is_some_and(says_session_is_lost)
}

/// Reads a body; `None` if it is longer than the limit.
pub(crate) async fn read_body(
    mut response: Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, HttpError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(HttpError::Request)? {
        if body.len() + piece.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// The events of a response.
#[derive(Debug)]
pub(crate) struct EventStream {
    response: Response,
    decoder: Decoder,
    /// The data of the events that were received together.
    received: VecDeque<String>,
    /// True if the rest of the stream cannot be read.
    pub(crate) is_broken: bool,
}

impl EventStream {
    pub(crate) fn new(response: Response) -> EventStream {
        let decoder = Decoder::with_limit(MAX_EVENT_BYTES);
        EventStream { response, decoder, received: VecDeque::new(), is_broken: false }
    }

    /// Returns the data of the next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the connection was lost or an event is too large. There is nothing more to read then.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, HttpError> {
        loop {
            if let Some(data) = self.received.pop_front() {
                return Ok(Some(data));
            }
            if self.is_broken {
                return Err(HttpError::Unexpected("an event is longer than 16 MiB".to_owned()));
            }
            let next = self.response.chunk().await;
            let piece = next.map_err(|error| HttpError::Request(error.without_url()))?;
            let received = &mut self.received;
            // Other events are not of this protocol.
            let mut keep = |event: turnwright_http::sse::Event<'_>| {
                if matches!(event.name, "" | "message") {
                    received.push_back(event.data.to_owned());
                }
            };
            match piece {
                Some(piece) => self.is_broken = self.decoder.push(&piece, keep).is_err(),
                None => {
                    self.decoder.finish(&mut keep);
                    return Ok(self.received.pop_front());
                }
            }
        }
    }

    /// The id with which the stream can be continued, if the server has sent one.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.decoder.last_id()
    }

    /// The delay that the server asks for before the stream is opened again.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.decoder.retry().map(|delay| delay.max(MIN_RETRY))
    }

    /// Reads the rest of a stream that has nothing more to say.
    pub(crate) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        tokio::time::timeout(DRAIN_TIMEOUT, rest).await.ok();
    }
}
