//! The requests of the HTTP transport: `POST` sends a message, `GET` opens a stream of events or a
//! WebSocket, `DELETE` ends a connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS,
    CACHE_CONTROL, CONTENT_TYPE, ORIGIN, UPGRADE, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::access::{AccessRules, HttpRefusal};
use crate::http_connection::{Envelope, EventBody, HttpConnection, route};
use crate::{ObserveConnection, PATH, RemoteConnection, ServeConnection, websocket};
use turnwright_rpc::{
    LineSender, MAX_LINE_BYTES, OutboxDrain, OutgoingFilter, line_queue, message_queue,
};

const CONNECTION_ID: &str = "acp-connection-id";
const SESSION_ID: &str = "acp-session-id";

/// The maximum number of open connections.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// The maximum number of request bytes in memory that the program has not taken yet.
const MAX_WAITING_BYTES: usize = 256 * 1024 * 1024;
/// How long a client may pause in the middle of a request.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the answer to the first request may take.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;
/// The response to a request, or why it is refused.
pub(crate) type HttpAnswer = Result<Response<ResponseBody>, HttpRefusal>;

/// The state that all sockets of a listener share.
pub(crate) struct HttpServer {
    pub(crate) access: AccessRules,
    pub(crate) serve: ServeConnection,
    filter: OutgoingFilter,
    observe: ObserveConnection,
    /// The number of the next connection.
    next_number: AtomicU64,
    /// The tasks of connections.
    pub(crate) tasks: TaskTracker,
    pub(crate) connection_permits: Arc<Semaphore>,
    /// The received bytes of WebSocket messages that the program does not have yet.
    pub(crate) incomplete_bytes: Arc<AtomicUsize>,
    /// One permit for each byte of requests that the program has not taken yet.
    request_byte_permits: Arc<Semaphore>,
    // Held only to look up a connection.
    connections: Mutex<HashMap<String, Arc<HttpConnection>>>,
}

const NO_CONNECTION: HttpRefusal =
    HttpRefusal(StatusCode::BAD_REQUEST, "The header Acp-Connection-Id is missing.\n");
const UNKNOWN_CONNECTION: HttpRefusal =
    HttpRefusal(StatusCode::NOT_FOUND, "This connection is not open. Send `initialize` first.\n");
pub(crate) const TOO_MANY_CONNECTIONS: HttpRefusal =
    HttpRefusal(StatusCode::SERVICE_UNAVAILABLE, "There are too many connections.\n");
const NOT_ANSWERED: HttpRefusal =
    HttpRefusal(StatusCode::INTERNAL_SERVER_ERROR, "The agent did not answer.\n");

impl HttpServer {
    pub(crate) fn new(
        access: AccessRules,
        filter: OutgoingFilter,
        observe: ObserveConnection,
        serve: ServeConnection,
    ) -> HttpServer {
        HttpServer {
            access,
            serve,
            filter,
            observe,
            next_number: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            connection_permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            incomplete_bytes: Arc::default(),
            request_byte_permits: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
            connections: Mutex::default(),
        }
    }

    /// Creates the queues of a new connection: our ends and the program's.
    pub(crate) fn open(
        &self,
        intended_end: CancellationToken,
    ) -> (LineSender, OutboxDrain, RemoteConnection) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let observer = (self.observe)(number);
        let (lines, input) = line_queue(Some(Arc::clone(&observer)));
        let (outbox, messages) = message_queue(self.filter, Some(observer));
        (lines, messages, RemoteConnection { number, input, outbox, intended_end })
    }

    /// Answers a request. Calls `admit` when the client has shown the token.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        admit: impl FnOnce(),
    ) -> Response<ResponseBody> {
        let origin = request.headers().get(ORIGIN).cloned();
        let answer = if let Err(denial) = self.access.check_host(request.uri(), request.headers()) {
            Err(denial)
        } else if request.method() == Method::OPTIONS {
            self.answer_preflight(request.headers())
        } else {
            self.answer_authorised(request, admit).await
        };
        let mut response = answer.unwrap_or_else(|HttpRefusal(status, text)| plain(status, text));
        let status = response.status();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers.insert(VARY, HeaderValue::from_static("origin"));
        // A page of an origin that is not allowed must not be able to read the response.
        if let Some(origin) = origin.filter(|_| status != StatusCode::FORBIDDEN) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            let exposed = HeaderValue::from_static("acp-connection-id, acp-session-id");
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        response
    }

    /// Answers a CORS preflight request. Browsers send it without the token.
    fn answer_preflight(&self, headers: &HeaderMap) -> HttpAnswer {
        if !headers.contains_key(ORIGIN) || !self.access.allows_origin(headers) {
            return Err(HttpRefusal(StatusCode::FORBIDDEN, "This origin is not allowed.\n"));
        }
        let mut response = plain(StatusCode::NO_CONTENT, "");
        let headers_out = response.headers_mut();
        let methods = HeaderValue::from_static("GET, POST, DELETE");
        headers_out.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        // An allowed page may send any, such as `Acp-Protocol-Version`.
        let names = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        headers_out.extend(names.map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
        Ok(response)
    }

    async fn answer_authorised(
        self: &Arc<Self>,
        request: Request<Incoming>,
        admit: impl FnOnce(),
    ) -> HttpAnswer {
        self.access.check(request.headers())?;
        admit();
        if request.uri().path() != PATH {
            return Err(HttpRefusal(StatusCode::NOT_FOUND, "The agent is at /acp.\n"));
        }
        match *request.method() {
            // Clients in Java offer HTTP/2 with the same header, and are served without it.
            Method::GET if websocket::has_word(request.headers(), UPGRADE, "websocket") => {
                websocket::accept(self, request)
            }
            Method::GET => self.open_stream(request.headers()),
            Method::POST => self.post(request).await,
            Method::DELETE => {
                let connection = self.connection(request.headers())?;
                connection.intended_end.cancel();
                connection.ended.cancel();
                Ok(plain(StatusCode::ACCEPTED, ""))
            }
            _ => {
                let text = "The agent takes GET, POST and DELETE.\n";
                Err(HttpRefusal(StatusCode::METHOD_NOT_ALLOWED, text))
            }
        }
    }

    /// Ends all connections of the HTTP transport. WebSockets end with the program's side of them.
    pub(crate) fn end_connections(&self) {
        for connection in self.connections.lock().values() {
            connection.ended.cancel();
        }
    }

    fn connection(&self, headers: &HeaderMap) -> Result<Arc<HttpConnection>, HttpRefusal> {
        let id = header(headers, CONNECTION_ID).ok_or(NO_CONNECTION)?;
        self.connections.lock().get(id).cloned().ok_or(UNKNOWN_CONNECTION)
    }

    fn open_stream(&self, headers: &HeaderMap) -> HttpAnswer {
        let accepted = header(headers, ACCEPT.as_str()).unwrap_or_default();
        if !accepted.contains("text/event-stream") {
            let text = "Streams are of the type text/event-stream, which must be accepted.\n";
            return Err(HttpRefusal(StatusCode::NOT_ACCEPTABLE, text));
        }
        let connection = self.connection(headers)?;
        let session = header(headers, SESSION_ID);
        let events = connection.open_stream(session)?;
        let body = EventBody::new(Arc::clone(&connection), session.map(str::to_owned), events);
        let mut response = Response::new(body.boxed_unsync());
        let headers_out = response.headers_mut();
        headers_out.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        // Proxies would hold the events back, to compress them or until a buffer is full (nginx).
        headers_out.insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
        headers_out.insert("x-accel-buffering", HeaderValue::from_static("no"));
        for name in [CONNECTION_ID, SESSION_ID].map(HeaderName::from_static) {
            headers_out.extend(headers.get(&name).map(|value| (name, value.clone())));
        }
        Ok(response)
    }

    async fn post(self: &Arc<Self>, request: Request<Incoming>) -> HttpAnswer {
        let (head, body) = request.into_parts();
        let content_type = header(&head.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        if !content_type.to_ascii_lowercase().starts_with("application/json") {
            let text = "The content type must be application/json.\n";
            return Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        // The permits are released once the program has taken the message.
        let (message, _permits) = self.read(body).await?;
        if message.trim_ascii_start().first() == Some(&b'[') {
            return Ok(json(StatusCode::BAD_REQUEST, BATCH_REFUSAL.into()));
        }
        let has_connection = head.headers.contains_key(CONNECTION_ID);
        let initialize = Envelope::read(&message).filter(|envelope| {
            !has_connection
                && envelope.is_request()
                && envelope.method.as_deref() == Some("initialize")
        });
        if let Some(id) = initialize.and_then(|envelope| Some(envelope.id?.get().to_owned())) {
            return self.initialize(message, &id).await;
        }
        let connection = self.connection(&head.headers)?;
        let session = header(&head.headers, SESSION_ID);
        let (message, session) =
            route(message, session).map_err(|text| HttpRefusal(StatusCode::BAD_REQUEST, text))?;
        let envelope = Envelope::read(&message).unwrap_or_default();
        if !connection.expect_answer(&envelope, session.as_deref()) {
            let text = "There are too many requests without an answer.\n";
            return Err(HttpRefusal(StatusCode::TOO_MANY_REQUESTS, text));
        }
        drop(envelope);
        if connection.receive(message).await {
            Ok(plain(StatusCode::ACCEPTED, ""))
        } else {
            Err(UNKNOWN_CONNECTION)
        }
    }

    /// Reads a message. The permits that are returned with it count its bytes as waiting until they are dropped.
    async fn read(
        &self,
        mut body: Incoming,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), HttpRefusal> {
        const TOO_LARGE: HttpRefusal =
            HttpRefusal(StatusCode::PAYLOAD_TOO_LARGE, "The message is longer than 64 MiB.\n");
        const BUSY: HttpRefusal =
            HttpRefusal(StatusCode::SERVICE_UNAVAILABLE, "Too many messages are being read.\n");
        const INCOMPLETE: &str = "The message is incomplete.\n";
        if body.size_hint().lower() > MAX_LINE_BYTES as u64 {
            return Err(TOO_LARGE);
        }
        let mut message = BytesMut::new();
        let mut permits = None::<OwnedSemaphorePermit>;
        loop {
            let Ok(frame) = timeout(READ_TIMEOUT, body.frame()).await else {
                return Err(HttpRefusal(StatusCode::REQUEST_TIMEOUT, INCOMPLETE));
            };
            let Some(frame) = frame else { return Ok((message.into(), permits)) };
            let broken = HttpRefusal(StatusCode::BAD_REQUEST, INCOMPLETE);
            let Ok(data) = frame.map_err(|_| broken)?.into_data() else { continue };
            if message.len() + data.len() > MAX_LINE_BYTES {
                return Err(TOO_LARGE);
            }
            let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let more = Arc::clone(&self.request_byte_permits)
                .try_acquire_many_owned(size)
                .map_err(|_| BUSY)?;
            match &mut permits {
                Some(permits) => permits.merge(more),
                None => permits = Some(more),
            }
            message.extend_from_slice(&data);
        }
    }

    /// Opens a connection with its first request, and answers that one.
    async fn initialize(self: &Arc<Self>, message: Vec<u8>, id: &str) -> HttpAnswer {
        let place = Arc::clone(&self.connection_permits)
            .try_acquire_owned()
            .map_err(|_| TOO_MANY_CONNECTIONS)?;
        let intended_end = CancellationToken::new();
        let (lines, messages, remote) = self.open(intended_end.clone());
        let connection = Arc::new(HttpConnection::new(lines, intended_end));
        let answer = connection.expect_first_answer(id);
        let name = Uuid::new_v4().simple().to_string();
        self.connections.lock().insert(name.clone(), Arc::clone(&connection));
        let guard = ConnectionEntry { server: Arc::clone(self), name: name.clone() };
        self.tasks.spawn(run(Arc::clone(&connection), remote, messages, (guard, place)));
        // If the client goes away before the answer, this ends the connection.
        let end_on_drop = connection.ended.clone().drop_guard();
        if !connection.receive(message).await {
            return Err(NOT_ANSWERED);
        }
        let Ok(Ok(answer)) = timeout(FIRST_ANSWER_TIMEOUT, answer).await else {
            return Err(NOT_ANSWERED);
        };
        let is_failure = answer.is_err();
        let (Ok(message) | Err(message)) = answer;
        let mut response = json(StatusCode::OK, message);
        if !is_failure {
            end_on_drop.disarm();
            if let Ok(name) = HeaderValue::from_str(&name) {
                response.headers_mut().insert(CONNECTION_ID, name);
            }
        }
        Ok(response)
    }
}

/// Runs a connection to its end.
async fn run(
    connection: Arc<HttpConnection>,
    remote: RemoteConnection,
    messages: OutboxDrain,
    (entry, place): (ConnectionEntry, OwnedSemaphorePermit),
) {
    let serving = (entry.server.serve)(remote);
    let watched = async {
        tokio::select! {
            () = connection.wait_until_idle() => connection.ended.cancel(),
            () = connection.ended.cancelled() => {}
        }
        connection.close_input();
    };
    let sending = async {
        connection.send_messages(messages).await;
        connection.ended.cancel();
    };
    tokio::join!(serving, watched, sending);
    drop(entry);
    drop(place);
}

/// Removes a connection from the server when it is dropped.
struct ConnectionEntry {
    server: Arc<HttpServer>,
    name: String,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.server.connections.lock().remove(&self.name);
    }
}

/// The response to a batch of messages.
const BATCH_REFUSAL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"#,
    r#""message":"Invalid request: batches are not supported"}}"#
);

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json(status: StatusCode, message: Bytes) -> Response<ResponseBody> {
    let mut response = plain(status, message);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
