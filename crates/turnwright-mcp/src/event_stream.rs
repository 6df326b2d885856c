//! The events of one HTTP response, bounded.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Response;
use turnwright_http::sse::Decoder;

use super::http::HttpError;

/// Maximum size of an event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The shortest delay before a stream is opened again, even if the server asks for less.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// How long the end of a response that has nothing more to say may take, so that its connection can be used
/// again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// The events of a response.
#[derive(Debug)]
pub(super) struct EventStream {
    response: Response,
    decoder: Decoder,
    /// The data of the events that were received together.
    received: VecDeque<String>,
    is_broken: bool,
}

impl EventStream {
    pub(super) fn new(response: Response) -> EventStream {
        let decoder = Decoder::with_limit(MAX_EVENT_BYTES);
        EventStream { response, decoder, received: VecDeque::new(), is_broken: false }
    }

    /// Returns the data of the next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the connection was lost or an event is too large. There is nothing more to read then.
    pub(super) async fn next(&mut self) -> Result<Option<String>, HttpError> {
        loop {
            if let Some(data) = self.received.pop_front() {
                return Ok(Some(data));
            }
            if self.is_broken {
                return Err(HttpError::Unexpected("an event is longer than 16 MiB".to_owned()));
            }
            let piece = match self.response.chunk().await {
                Ok(piece) => piece,
                Err(error) => return Err(HttpError::Request(error.without_url())),
            };
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

    /// True if the rest of the stream cannot be read.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The id with which the stream can be continued, if the server has sent one.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.decoder.last_id()
    }

    /// How long the server asks to wait before the stream is opened again.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.decoder.retry().map(|delay| delay.max(MIN_RETRY))
    }

    /// Reads the rest of a stream that has nothing more to say.
    pub(super) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        tokio::time::timeout(DRAIN_TIMEOUT, rest).await.ok();
    }
}
