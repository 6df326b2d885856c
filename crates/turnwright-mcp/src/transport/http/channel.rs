//! Streamable HTTP: each message is posted, and the response to a request comes as JSON, as a stream of events
//! or on the stream of the session. A session that the server has forgotten is opened again, and a stream that
//! breaks off is continued where it ended.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::reply::{Attempt, EventStream, ReplyBody, is_lost_session_error};
use super::standard_headers::{self, HeaderArguments};
use super::{CONNECT_TIMEOUT, HttpConnection, HttpError, SESSION_HEADER};
use crate::features::JsonObject;
use crate::server::handshake::{self, NEWEST_VERSION};
use crate::transport::line;
use crate::transport::{Peer, PeerError, Response};
use turnwright_rpc::{
    ParsedLine, RequestId, RpcError, RpcMessage, RpcResponse, parse_line, write_call,
    write_response,
};
use turnwright_types::patience::timeout;

/// How many requests may be posted at the same time. A stream that has begun does not count.
const MAX_POSTS: usize = 16;
/// How many responses and withdrawals may wait to be posted. They are posted one by one. While there is no
/// room, the stream that brings the requests is not read.
const MAX_WAITING_ANSWERS: usize = 64;
/// How long one of them may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// After this many events that are not responses, reading a stream pauses.
const MAX_BURST: usize = 4096;
const BURST_PAUSE: Duration = Duration::from_millis(100);
/// The delay before a stream is opened again, which doubles with each failure, and its maximum.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The client's end of a connection over HTTP.
#[derive(Debug)]
pub(crate) struct HttpChannel {
    pub(crate) connection: HttpConnection,
    session: watch::Sender<HttpSession>,
    /// The handshake that the server has accepted, as posted.
    handshake: OnceLock<Vec<u8>>,
    /// One permit: a session is opened once.
    renewing: Semaphore,
    posts: Semaphore,
    answers: mpsc::Sender<Vec<u8>>,
    /// The arguments of tools that are sent as headers too.
    header_arguments: watch::Sender<HeaderArguments>,
}

/// The session id and protocol version that each request of a session names.
#[derive(Clone, Debug, Default)]
struct HttpSession {
    id: Option<HeaderValue>,
    /// The protocol version, once it is agreed upon.
    version: Option<HeaderValue>,
}

impl HttpSession {
    fn headers(&self) -> HeaderMap {
        let named = [(SESSION_HEADER, &self.id), (VERSION_HEADER, &self.version)];
        named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    fn has_standard_headers(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.as_bytes() >= NEWEST_VERSION.as_bytes())
    }
}

/// The messages that wait to be posted.
pub(crate) type WaitingAnswers = mpsc::Receiver<Vec<u8>>;

impl HttpChannel {
    /// Creates a channel. With a handshake, `version` is `None`.
    pub(crate) fn new(
        connection: HttpConnection,
        version: Option<&'static str>,
    ) -> (Arc<HttpChannel>, WaitingAnswers) {
        let version = version.map(HeaderValue::from_static);
        let (answers, waiting) = mpsc::channel(MAX_WAITING_ANSWERS);
        let channel = HttpChannel {
            connection,
            session: watch::Sender::new(HttpSession { id: None, version }),
            handshake: OnceLock::new(),
            renewing: Semaphore::new(1),
            posts: Semaphore::new(MAX_POSTS),
            answers,
            header_arguments: watch::Sender::default(),
        };
        (Arc::new(channel), waiting)
    }

    /// Starts the tasks of a connection that has begun.
    pub(crate) fn start_tasks(
        self: &Arc<HttpChannel>,
        peer: &Peer,
        mut waiting: WaitingAnswers,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let channel = Arc::clone(self);
        tasks.spawn(async move {
            let no_params = JsonObject::new();
            while let Some(answer) = waiting.recv().await {
                let posting = channel.post(&answer, "", &no_params, Attempt::Message);
                match timeout(ANSWER_TIMEOUT, posting).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a message could not be posted"),
                    Err(_) => tracing::debug!("a message was not posted in time"),
                }
            }
        });
        let channel = Arc::clone(self);
        let peer = peer.clone();
        tasks.spawn(async move { channel.listen(&peer).await });
        tasks
    }

    /// When the login was last changed, if there is one.
    pub(crate) async fn login_changed_at(&self) -> Option<SystemTime> {
        self.connection.login.as_ref()?.changed_at().await
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        let session = self.session.borrow().clone();
        if session.id.is_some() {
            self.connection.delete(session.headers()).await;
        }
    }

    /// Keeps which arguments of a tool are sent as headers.
    pub(crate) fn set_header_arguments(&self, arguments: HeaderArguments) {
        if self.session.borrow().has_standard_headers() {
            self.header_arguments.send_replace(arguments);
        }
    }

    /// Posts the handshake and returns its result.
    pub(crate) async fn initialize(&self, params: &JsonObject) -> Response {
        let message = request_bytes(0, "initialize", params)?;
        let result = self.open_session(&message).await?;
        self.handshake.set(message).ok();
        Ok(result)
    }

    async fn open_session(&self, handshake: &[u8]) -> Response {
        let reply = self.connection.post(handshake, HeaderMap::new(), Attempt::Request).await;
        let (body, session) = reply.map_err(transport_error)?;
        let response = match body {
            ReplyBody::Json(body) => read_response(&body),
            ReplyBody::Events(mut events) => loop {
                let Some(data) = events.next().await.map_err(transport_error)? else { break None };
                let response = read_response(data.as_bytes());
                if response.is_some() {
                    break response;
                }
            },
            ReplyBody::Accepted => None,
        };
        let result = response
            .ok_or_else(|| PeerError::Transport("there is no response to `initialize`".to_owned()))?
            .map_err(PeerError::ErrorResponse)?;
        let info = handshake::initialize_result(&result);
        let version = info.and_then(|info| HeaderValue::from_str(&info.version).ok());
        self.session.send_replace(HttpSession { id: session, version });
        Ok(result)
    }

    /// Opens the session again, unless another request has done so.
    async fn renew_session(&self, expired: &HttpSession) -> Result<(), PeerError> {
        let renewal = async {
            let _permit = self.renewing.acquire().await;
            if self.session.borrow().id != expired.id {
                return Ok(());
            }
            let Some(handshake) = self.handshake.get() else { return Err(PeerError::Closed) };
            self.open_session(handshake).await?;
            self.notify("notifications/initialized").await;
            Ok(())
        };
        timeout(CONNECT_TIMEOUT, renewal).await.unwrap_or_else(|_| {
            Err(PeerError::Transport("the session could not be opened again".to_owned()))
        })
    }

    /// Waits until the session has been opened again.
    pub(crate) async fn session_renewed(&self) {
        self.session.subscribe().changed().await.ok();
        // The permit is free once the server was told that the session has begun.
        self.renewing.acquire().await.ok();
    }

    /// Posts a notification. A server that refuses it may well answer the requests that follow.
    pub(crate) async fn notify(&self, method: &str) {
        let message = json!({ "jsonrpc": "2.0", "method": method }).to_string().into_bytes();
        let posted = self.post(&message, method, &JsonObject::new(), Attempt::Message).await;
        if let Err(error) = posted {
            tracing::debug!(%error, method, "a notification could not be posted");
        }
    }

    /// Queues a notification, unless too many messages wait.
    pub(crate) fn try_send(&self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if self.answers.try_send(message.to_string().into_bytes()).is_err() {
            tracing::debug!(method, "too many messages wait to be posted");
        }
    }

    /// Queues a response. Waits for room.
    pub(crate) async fn respond(&self, id: &RequestId, result: Result<&Value, &RpcError>) {
        let mut message = Vec::new();
        if write_response(&mut message, id, result).is_ok() {
            self.answers.send(message).await.ok();
        }
    }

    async fn post(
        &self,
        message: &[u8],
        method: &str,
        params: &JsonObject,
        attempt: Attempt,
    ) -> Result<ReplyBody, HttpError> {
        let session = self.session.borrow().clone();
        let mut headers = session.headers();
        if session.has_standard_headers() && !method.is_empty() {
            let arguments = self.header_arguments.borrow();
            headers.extend(standard_headers::of(method, params, &arguments));
        }
        Ok(self.connection.post(message, headers, attempt).await?.0)
    }

    /// Posts a request and passes the server's answer to the peer. Returns when there is nothing more to wait for.
    /// Dropping this gives up the request.
    ///
    /// # Errors
    /// If there will be no response.
    pub(crate) async fn exchange(
        self: Arc<HttpChannel>,
        peer: Peer,
        id: u64,
        method: &'static str,
        params: JsonObject,
    ) -> Result<(), PeerError> {
        let message = request_bytes(id, method, &params)?;
        let mut attempt = Attempt::Request;
        loop {
            let permit = self.posts.acquire().await.map_err(|_| PeerError::Closed)?;
            let mut sessions = self.session.subscribe();
            let session = sessions.borrow_and_update().clone();
            let reply = self.post(&message, method, &params, attempt);
            let exchange = async { self.finish(reply.await?, &peer, id, (permit, sessions)).await };
            match exchange.await {
                Err(HttpError::SessionExpired) if attempt == Attempt::Request => {
                    peer.forget_results("");
                    // The server may offer other tools now.
                    peer.handler().changed.notify_one();
                    self.renew_session(&session).await?;
                    attempt = Attempt::Retry;
                }
                // The server says that it has not processed the request.
                Err(error @ HttpError::Status { status, .. })
                    if matches!(status.as_u16(), 401 | 403 | 429) =>
                {
                    return Err(PeerError::Rejected(error.to_string()));
                }
                result => return result.map_err(transport_error),
            }
        }
    }

    /// Hands the response to the peer. The permit is given back before a stream is read.
    async fn finish(
        &self,
        reply: ReplyBody,
        peer: &Peer,
        id: u64,
        (permit, mut sessions): (SemaphorePermit<'_>, watch::Receiver<HttpSession>),
    ) -> Result<(), HttpError> {
        match reply {
            ReplyBody::Json(body) => {
                let response = read_response(&body).ok_or_else(|| {
                    HttpError::Unexpected("the server did not send a response".to_owned())
                })?;
                peer.0.pending.complete(id, response);
            }
            // The response comes on the stream of the session.
            ReplyBody::Accepted => {
                drop(permit);
                sessions.changed().await.ok();
                return Err(HttpError::Unexpected(
                    "the session was opened again before the response arrived".to_owned(),
                ));
            }
            ReplyBody::Events(events) => {
                drop(permit);
                let followed = self.follow(peer, *events, Some(id)).await;
                // The server has begun with the call, so no status means that it has turned it away.
                followed.map_err(|error| match error {
                    HttpError::Status { .. } => HttpError::Unexpected(error.to_string()),
                    error => error,
                })?;
            }
        }
        Ok(())
    }

    /// Reads the stream of the session, for each session. Never returns.
    async fn listen(&self, peer: &Peer) {
        let mut sessions = self.session.subscribe();
        loop {
            let session = sessions.borrow_and_update().clone();
            let reading = async {
                let following = async {
                    let events = self.connection.get(session.headers(), None).await?;
                    self.follow(peer, events, None).await
                };
                if let Err(error) = following.await {
                    tracing::debug!(%error, "the stream of a session has ended");
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                changed = sessions.changed() => if changed.is_err() { return },
                () = reading, if session.id.is_some() => {}
            }
        }
    }

    /// Reads a stream of events and its continuations. The stream of a request ends with the response, and can be
    /// continued only if its events have ids. The stream of a session is always opened again.
    async fn follow(
        &self,
        peer: &Peer,
        mut events: EventStream,
        request: Option<u64>,
    ) -> Result<(), HttpError> {
        let mut others = 0;
        let mut was_at_once = false;
        loop {
            let opened = Instant::now();
            let end = loop {
                let data = match events.next().await {
                    Ok(Some(data)) => data,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                };
                let has_session = request.is_some() && self.session.borrow().id.is_some();
                if has_session && is_lost_session_error(data.as_bytes()) {
                    return Err(HttpError::SessionExpired);
                }
                if deliver(peer, &data).await {
                    others += 1;
                    if others % MAX_BURST == 0 {
                        sleep(BURST_PAUSE).await;
                    }
                }
                if request.is_some_and(|id| !peer.0.pending.is_pending(id)) {
                    peer.tasks().spawn(events.drain());
                    return Ok(());
                }
            };
            if events.is_broken || request.is_some() && events.last_id().is_none() {
                return end;
            }
            let at_once = is_opened_at_once(&mut was_at_once, end.is_err(), opened.elapsed());
            events = self.reopen(&events, at_once).await?;
        }
    }

    /// Continues a stream, at once or after a delay.
    async fn reopen(&self, ended: &EventStream, at_once: bool) -> Result<EventStream, HttpError> {
        let (mut delay, max) = RETRY_DELAY;
        if !at_once {
            sleep(ended.retry().unwrap_or(delay)).await;
        }
        loop {
            let headers = self.session.borrow().headers();
            match self.connection.get(headers, ended.last_id()).await {
                Err(error) if is_temporary(&error) => {
                    tracing::debug!(%error, "a stream could not be opened again");
                    delay = (delay * 2).min(max);
                    sleep(delay.max(ended.retry().unwrap_or_default())).await;
                }
                result => return result,
            }
        }
    }
}

/// Returns true if a stream is opened again without a delay: one that broke off, unless it does so again and again.
/// `lasted` is how long it was open.
fn is_opened_at_once(was_at_once: &mut bool, broke_off: bool, lasted: Duration) -> bool {
    let at_once = broke_off && (!*was_at_once || lasted >= RETRY_DELAY.0);
    *was_at_once |= at_once;
    at_once
}

/// True if a stream may be opened later.
fn is_temporary(error: &HttpError) -> bool {
    match error {
        HttpError::Auth(_) => false,
        HttpError::Status { status, .. } => !matches!(status.as_u16(), 401 | 403 | 405),
        _ => true,
    }
}

/// Hands an event to the peer. Returns true if it is not a response.
async fn deliver(peer: &Peer, data: &str) -> bool {
    if let Some(messages) = line::batch(data.as_bytes()) {
        for message in messages {
            peer.receive(message.get().as_bytes()).await;
        }
        return true;
    }
    let response = line::response(data.as_bytes());
    peer.receive(response.as_deref().unwrap_or(data.as_bytes())).await;
    response.is_none()
}

fn request_bytes(id: u64, method: &str, params: &JsonObject) -> Result<Vec<u8>, PeerError> {
    let mut message = Vec::new();
    write_call(&mut message, Some(id), method, params).map_err(transport_error)?;
    Ok(message)
}

/// Reads a response with any id.
fn read_response(message: &[u8]) -> Option<RpcResponse> {
    let message = line::without_mark(message);
    if let Some(messages) = line::batch(message) {
        return messages.iter().find_map(|message| read_response(message.get().as_bytes()));
    }
    let Some(response) = line::response(message) else {
        // An error may have no id, because the server could not read the request.
        return error_without_id(message).map(Err);
    };
    match parse_line(&response) {
        ParsedLine::Message(RpcMessage::Response { result, .. }) => Some(result),
        _ => None,
    }
}

fn error_without_id(message: &[u8]) -> Option<RpcError> {
    let mut message: Value = serde_json::from_slice(message).ok()?;
    if !message["method"].is_null() {
        return None;
    }
    let error = message.get_mut("error").filter(|error| error.is_object())?.take();
    Some(line::error_object(&serde_json::value::to_raw_value(&error).ok()?))
}

fn transport_error(error: impl std::fmt::Display) -> PeerError {
    PeerError::Transport(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_breaks_off_again_and_again_is_opened_with_a_delay() {
        let mut was_at_once = false;
        // Each row: did it break off, how long was it open, and is it opened again at once.
        let table = [
            (false, 0, false),
            (true, 0, true),
            (true, 0, false),
            (true, 0, false),
            (true, 1, true),
            (true, 0, false),
            (false, 60, false),
        ];
        for (row, (broke_off, seconds, expected)) in table.into_iter().enumerate() {
            let lasted = Duration::from_secs(seconds);
            let at_once = is_opened_at_once(&mut was_at_once, broke_off, lasted);
            assert_eq!(at_once, expected, "row {row}");
        }
    }
}
