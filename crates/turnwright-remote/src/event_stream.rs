//! The events of one stream of server-sent events, and the body of the response that carries them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::http_connection::HttpConnection;

/// The time without an event after which a comment is sent, so that a lost connection is noticed and proxies keep
/// the stream open.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A comment, which clients ignore.
const KEEP_ALIVE: &[u8] = b":\n\n";

/// An event, with permits for the bytes that it takes up while it waits to be sent.
pub(crate) struct QueuedEvent {
    pub(crate) event: Bytes,
    pub(crate) permits: OwnedSemaphorePermit,
}

pub(crate) type EventReceiver = mpsc::Receiver<QueuedEvent>;

/// Formats a message, which is a line of JSON, as an event.
pub(crate) fn format_event(message: &[u8]) -> Bytes {
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
            Poll::Ready(Some(QueuedEvent { event, permits })) => {
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
