//! A connection of the HTTP transport, which is many requests: the client's messages come as requests of
//! their own, and ours go out on streams of events, one for the connection and one for each session. The envelope of
//! a message tells which stream an answer belongs to, and which session a request is about.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::access::HttpRefusal;
use turnwright_rpc::{LineSender, OutboxDrain};

/// How long a connection lives without an open stream and without a request, or with a stream that has no
/// room because nobody reads it.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// The maximum number of streams of a connection.
const MAX_STREAMS: usize = 256;
/// The maximum number of a client's unanswered requests.
const MAX_REQUESTS: usize = 1_024;
/// The maximum number of bytes of events that wait for their streams. A larger event is sent if no other one
/// waits.
const MAX_WAITING_BYTES: usize = 1024 * 1024;
/// The maximum number of events of a stream that wait.
const MAX_WAITING_EVENTS: usize = 1_024;

/// A connection, shared by its requests.
pub(crate) struct HttpConnection {
    pub(crate) intended_end: CancellationToken,
    /// Cancelled when the connection is over.
    pub(crate) ended: CancellationToken,
    /// One permit for each byte of events that may wait for their streams.
    event_byte_permits: Arc<Semaphore>,
    // Held only to look something up.
    state: Mutex<ConnectionState>,
}

struct ConnectionState {
    /// `None` once the connection is over.
    lines: Option<Arc<LineSender>>,
    streams: HashMap<Option<String>, EventStream>,
    /// The sessions of helpers, each with the one whose stream has its messages.
    parents: HashMap<String, String>,
    /// The client's requests that are not answered, by the text of their ids.
    requests: HashMap<String, Answer>,
    last_used: Instant,
}

struct EventStream {
    events: mpsc::Sender<QueuedEvent>,
    /// `None` while a response carries the stream.
    waiting: Option<EventReceiver>,
    /// True if the session was closed while a response carried the stream. The official clients use the
    /// stream again when they load the session, and one of them takes its end for the end of the connection.
    is_of_closed_session: bool,
}

impl EventStream {
    /// True if a response carries the stream.
    fn is_carried(&self) -> bool {
        self.waiting.is_none()
    }
}

/// Where an answer goes.
enum Answer {
    /// Into the response to the first request.
    Response(oneshot::Sender<FirstAnswer>),
    /// To the stream of a session, or of the connection.
    Stream { session: Option<String>, ends_session: bool },
}

/// The answer to `initialize`: a result or a failure.
pub(crate) type FirstAnswer = Result<Bytes, Bytes>;

/// A message that tells of a helper has this in it.
const ANNOUNCEMENT: &str = "\"subagent_update\"";

const STREAM_TAKEN: HttpRefusal =
    HttpRefusal(StatusCode::CONFLICT, "Another response carries this stream.\n");
const TOO_MANY_STREAMS: HttpRefusal =
    HttpRefusal(StatusCode::TOO_MANY_REQUESTS, "There are too many streams.\n");

impl HttpConnection {
    pub(crate) fn new(lines: LineSender, intended_end: CancellationToken) -> HttpConnection {
        let state = ConnectionState {
            lines: Some(Arc::new(lines)),
            streams: HashMap::new(),
            parents: HashMap::new(),
            requests: HashMap::new(),
            last_used: Instant::now(),
        };
        HttpConnection {
            intended_end,
            ended: CancellationToken::new(),
            event_byte_permits: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
            state: Mutex::new(state),
        }
    }

    /// Notes the first request, whose answer goes into its response.
    pub(crate) fn expect_first_answer(&self, id: &str) -> oneshot::Receiver<FirstAnswer> {
        let (sender, answer) = oneshot::channel();
        self.state.lock().requests.insert(id.to_owned(), Answer::Response(sender));
        answer
    }

    /// Notes a client's request. Returns false if there are too many without an answer.
    #[must_use]
    pub(crate) fn expect_answer(&self, request: &Envelope<'_>, session: Option<&str>) -> bool {
        let (Some(id), true) = (request.id, request.is_request()) else { return true };
        let ends_session =
            matches!(request.method.as_deref(), Some("session/close" | "session/delete"));
        let mut state = self.state.lock();
        if state.requests.len() >= MAX_REQUESTS {
            return false;
        }
        let session = session.map(|session| state.root_of(session.to_owned()));
        let answer = Answer::Stream { session, ends_session };
        state.requests.insert(id.get().to_owned(), answer);
        true
    }

    /// Passes a client's message to the program. Waits while too much is queued. Returns false if the
    /// connection is over.
    pub(crate) async fn receive(&self, message: Vec<u8>) -> bool {
        let Some(lines) = self.state.lock().lines.clone() else { return false };
        self.note_use();
        let sent = self.ended.run_until_cancelled(lines.send(message)).await;
        self.note_use();
        sent.unwrap_or_default()
    }

    /// Ends the program's input.
    pub(crate) fn close_input(&self) {
        self.state.lock().lines = None;
    }

    /// Returns the events of a stream, for a response that carries them from now on.
    pub(crate) fn open_stream(&self, session: Option<&str>) -> Result<EventReceiver, HttpRefusal> {
        let mut state = self.state.lock();
        let stream = state.stream(session).ok_or(TOO_MANY_STREAMS)?;
        stream.waiting.take().ok_or(STREAM_TAKEN)
    }

    /// Takes a stream back, because the response that carried it has ended.
    pub(crate) fn return_stream(&self, session: Option<&str>, events: EventReceiver) {
        let mut state = self.state.lock();
        state.last_used = Instant::now();
        let session = session.map(str::to_owned);
        match state.streams.get_mut(&session) {
            Some(stream) if stream.is_of_closed_session => {
                state.streams.remove(&session);
            }
            Some(stream) => stream.waiting = Some(events),
            None => {}
        }
    }

    fn note_use(&self) {
        self.state.lock().last_used = Instant::now();
    }

    /// Sends the program's messages to their streams, until there are no more, the connection is over, or the
    /// client has read nothing for too long: one stream that nobody reads keeps all others waiting.
    pub(crate) async fn send_messages(&self, mut messages: OutboxDrain) {
        let sending = async {
            while let Some(lines) = messages.next().await {
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    if timeout(IDLE_TIME, self.send(line)).await.is_err() {
                        tracing::debug!("a client reads nothing");
                        return;
                    }
                }
            }
        };
        self.ended.run_until_cancelled(sending).await;
        // The streams end after the queued events.
        let mut state = self.state.lock();
        state.streams.clear();
        state.requests.clear();
    }

    async fn send(&self, line: &[u8]) {
        let Some(envelope) = Envelope::read(line) else { return };
        let (session, ends_session) = if envelope.method.is_some() {
            let mut state = self.state.lock();
            let session = envelope.session().map(|session| state.root_of(session));
            state.note_helper(line, session.as_deref());
            (session, false)
        } else {
            let id = envelope.id.map_or("null", |id| id.get());
            let answer = self.state.lock().requests.remove(id);
            match answer {
                Some(Answer::Response(first)) => {
                    let message = Bytes::copy_from_slice(line.trim_ascii_end());
                    let answer = if envelope.is_failure() { Err(message) } else { Ok(message) };
                    // If it cannot be sent, the client has given up.
                    first.send(answer).ok();
                    return;
                }
                Some(Answer::Stream { session, ends_session }) => {
                    (session, ends_session && !envelope.is_failure())
                }
                None => (None, false),
            }
        };
        let size = u32::try_from(line.len().min(MAX_WAITING_BYTES)).unwrap_or(u32::MAX);
        let Ok(permits) = Arc::clone(&self.event_byte_permits).acquire_many_owned(size).await
        else {
            return;
        };
        let events = {
            let mut state = self.state.lock();
            // The stream is then forgotten, with its waiting events. Nobody reads it, so the connection's
            // stream gets this.
            let stream = state.streams.get(&session);
            let is_read = !ends_session || stream.is_some_and(EventStream::is_carried);
            let target = session.as_deref().filter(|_| is_read);
            state.stream(target).map(|stream| stream.events.clone())
        };
        match events {
            // It fails only if the connection is over.
            Some(events) => {
                events.send((format_event(line), permits)).await.ok();
            }
            None => {
                tracing::warn!("a message is lost, because the connection has too many streams");
            }
        }
        if ends_session {
            self.state.lock().end_session(session);
        }
    }

    /// Returns when the client seems to be gone: it has no stream open, and sends nothing.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let (is_carried, last_used) = {
                let state = self.state.lock();
                let is_carried = state.streams.values().any(EventStream::is_carried);
                (is_carried, state.last_used)
            };
            let due = if is_carried { Instant::now() } else { last_used } + IDLE_TIME;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

impl ConnectionState {
    /// The stream of a session, or of the connection. `None` if there are too many.
    fn stream(&mut self, session: Option<&str>) -> Option<&mut EventStream> {
        let key = session.map(str::to_owned);
        if !self.streams.contains_key(&key) && self.streams.len() >= MAX_STREAMS {
            return None;
        }
        let stream = self.streams.entry(key).or_insert_with(|| {
            let (events, waiting) = mpsc::channel(MAX_WAITING_EVENTS);
            EventStream { events, waiting: Some(waiting), is_of_closed_session: false }
        });
        // Whatever needs the stream of a closed session opens it again.
        stream.is_of_closed_session = false;
        Some(stream)
    }

    /// The session whose stream has the messages of this one: that of a helper is delivered with the one that has
    /// started it.
    fn root_of(&self, session: String) -> String {
        self.parents.get(&session).cloned().unwrap_or(session)
    }

    /// Notes the session of a helper if this message announces one.
    fn note_helper(&mut self, line: &[u8], root: Option<&str>) {
        if !std::str::from_utf8(line).is_ok_and(|text| text.contains(ANNOUNCEMENT)) {
            return;
        }
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        let update = &message["params"]["update"];
        if let (Some(root), Some(helper), true) =
            (root, update["sessionId"].as_str(), update["sessionUpdate"] == "subagent_update")
        {
            self.parents.insert(helper.to_owned(), root.to_owned());
        }
    }

    /// Forgets the stream of a session that was closed, at once or when its response ends.
    fn end_session(&mut self, session: Option<String>) {
        self.parents.retain(|_, root| Some(&*root) != session.as_ref());
        match self.streams.entry(session) {
            Entry::Occupied(mut entry) if entry.get().is_carried() => {
                entry.get_mut().is_of_closed_session = true;
            }
            Entry::Occupied(entry) => {
                entry.remove();
            }
            Entry::Vacant(_) => {}
        }
    }
}

/// The time without an event after which a comment is sent, so that a lost connection is noticed and proxies keep
/// the stream open.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A comment, which clients ignore.
const KEEP_ALIVE: &[u8] = b":\n\n";

/// An event, with permits for the bytes that it takes up while it waits to be sent.
type QueuedEvent = (Bytes, OwnedSemaphorePermit);

type EventReceiver = mpsc::Receiver<QueuedEvent>;

/// Formats a message, which is a line of JSON, as an event.
fn format_event(message: &[u8]) -> Bytes {
    [b"data: ", message.trim_ascii_end(), b"\n\n"].concat().into()
}

/// The body of a response that carries the events of a stream. When it is dropped, another response can continue
/// the stream.
pub(crate) struct EventBody {
    connection: Arc<HttpConnection>,
    /// The session of the stream, if it has one.
    session: Option<String>,
    /// `None` only while the body is being dropped.
    events: Option<EventReceiver>,
    keep_alive: Interval,
}

impl EventBody {
    pub(crate) fn new(
        connection: Arc<HttpConnection>,
        session: Option<String>,
        events: EventReceiver,
    ) -> EventBody {
        let mut keep_alive = interval(KEEP_ALIVE_INTERVAL);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        EventBody { connection, session, events: Some(events), keep_alive }
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        match events.poll_recv(context) {
            Poll::Ready(Some((event, permits))) => {
                drop(permits);
                self.keep_alive.reset();
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            // The first tick comes at once, so that the client gets the head of the response.
            Poll::Pending => self
                .keep_alive
                .poll_tick(context)
                .map(|_| Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE))))),
        }
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        if let Some(events) = self.events.take() {
            self.connection.return_stream(self.session.as_deref(), events);
        }
    }
}

/// The methods whose requests are about a session, which must be named.
const SESSION_METHODS: [&str; 10] = [
    "session/cancel",
    "session/close",
    "session/delete",
    "session/fork",
    "session/load",
    "session/prompt",
    "session/resume",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
];

/// The parts of a message that determine its route.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Envelope<'a> {
    /// The text of the id.
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SessionParams {
    #[serde(default, rename = "sessionId")]
    session_id: Option<String>,
}

impl<'a> Envelope<'a> {
    /// Reads a message. `None` if it is not a JSON object.
    pub(crate) fn read(message: &'a [u8]) -> Option<Envelope<'a>> {
        serde_json::from_slice(message).ok()
    }

    /// The session that the message names. Messages about the connection itself name none.
    pub(crate) fn session(&self) -> Option<String> {
        if self.is_about_connection() {
            return None;
        }
        let params: SessionParams = serde_json::from_str(self.params?.get()).ok()?;
        params.session_id
    }

    fn is_about_connection(&self) -> bool {
        self.method.as_deref().is_none_or(|method| method.starts_with("$/"))
    }

    /// True if this is a request, which will be answered.
    pub(crate) fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some_and(|id| id.get() != "null")
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.error.is_some()
    }
}

/// Finds the session of a client's message, whose stream gets the answer. The header may name it instead of the
/// parameters, to which it is then added.
///
/// # Errors
/// Returns the text for the client if the session is missing or they disagree.
pub(crate) fn route(
    message: Vec<u8>,
    header: Option<&str>,
) -> Result<(Vec<u8>, Option<String>), &'static str> {
    let Some(envelope) = Envelope::read(&message) else { return Ok((message, None)) };
    if envelope.is_about_connection() {
        return Ok((message, None));
    }
    let needs_session =
        envelope.method.as_deref().is_some_and(|method| SESSION_METHODS.contains(&method));
    match (envelope.session(), header) {
        (Some(named), Some(header)) if named != header => {
            Err("The header Acp-Session-Id names another session than the message.\n")
        }
        (Some(session), _) => Ok((message, Some(session))),
        (None, Some(header)) => Ok((with_session(&message, header)?, Some(header.to_owned()))),
        (None, None) if needs_session => Err(
            "The message must name its session, in `sessionId` or in the header Acp-Session-Id.\n",
        ),
        (None, None) => Ok((message, None)),
    }
}

/// Adds the session to the parameters of a message.
fn with_session(message: &[u8], session: &str) -> Result<Vec<u8>, &'static str> {
    const UNFIT: &str =
        "A message whose session is named by a header must have an object as parameters.\n";
    let mut message: Value = serde_json::from_slice(message).map_err(|_| UNFIT)?;
    let message_fields = message.as_object_mut().ok_or(UNFIT)?;
    let params = message_fields.entry("params").or_insert_with(|| json!({}));
    let params = params.as_object_mut().ok_or(UNFIT)?;
    if params.get("sessionId").is_some_and(|known| !known.is_null()) {
        return Err(UNFIT);
    }
    params.insert("sessionId".to_owned(), session.into());
    serde_json::to_vec(&message).map_err(|_| UNFIT)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use turnwright_rpc::{line_queue, message_queue};

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_reads_ends_the_connection() {
        let (lines, _input) = line_queue(None);
        let connection = HttpConnection::new(lines, CancellationToken::new());
        let _open = connection.open_stream(Some("unread")).unwrap();
        let (outbox, messages) = message_queue(|_, _| None, None);
        let text = "x".repeat(MAX_WAITING_BYTES);
        for session in ["unread", "other"] {
            outbox.notify("session/update", &json!({ "sessionId": session, "text": text }));
        }
        connection.send_messages(messages).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_stream_that_sends_nothing_is_gone() {
        let (lines, _input) = line_queue(None);
        let connection = HttpConnection::new(lines, CancellationToken::new());
        let pause = IDLE_TIME / 2;
        let begin = Instant::now();
        let acting = async {
            sleep(pause).await;
            connection.receive(b"{}".to_vec()).await;
            sleep(pause).await;
            let stream = connection.open_stream(None).unwrap();
            sleep(IDLE_TIME * 3).await;
            connection.return_stream(None, stream);
        };
        tokio::join!(connection.wait_until_idle(), acting);
        assert_eq!(begin.elapsed().as_secs(), (pause * 2 + IDLE_TIME * 4).as_secs());
    }

    #[test]
    fn a_message_goes_to_the_stream_of_its_session() {
        let prompt = r#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
        let unnamed = r#"{"id":1,"method":"session/prompt","params":{"prompt":[]}}"#;
        let table = [
            (prompt, None, Ok(Some("a"))),
            (prompt, Some("a"), Ok(Some("a"))),
            (prompt, Some("b"), Err(())),
            (unnamed, Some("b"), Ok(Some("b"))),
            (unnamed, None, Err(())),
            (r#"{"method":"session/cancel"}"#, None, Err(())),
            (r#"{"method":"session/cancel"}"#, Some("b"), Ok(Some("b"))),
            (r#"{"method":"session/cancel","params":[1]}"#, Some("b"), Err(())),
            (r#"{"method":"session/cancel","params":{"sessionId":7}}"#, Some("b"), Err(())),
            (r#"{"id":1,"method":"session/new","params":{"cwd":"/"}}"#, None, Ok(None)),
            (r#"{"method":"$/cancel_request","params":{"requestId":1}}"#, Some("b"), Ok(None)),
            (r#"{"id":1,"result":{"sessionId":"a"}}"#, Some("b"), Ok(None)),
            ("not JSON", Some("b"), Ok(None)),
            ("[]", None, Ok(None)),
        ];
        for (message, header, expected) in table {
            let routed = route(message.into(), header);
            let session = routed.as_ref().map(|(_, session)| session.as_deref()).map_err(|_| ());
            assert_eq!(session, expected, "{message} {header:?}");
        }
    }

    #[test]
    fn the_session_of_the_header_is_added_to_the_message() {
        let (message, _) =
            route(br#"{"method":"session/cancel","params":{"a":1}}"#.to_vec(), Some("s")).unwrap();
        let message: Value = serde_json::from_slice(&message).unwrap();
        assert_eq!(message["params"], serde_json::json!({ "a": 1, "sessionId": "s" }));
    }
}
