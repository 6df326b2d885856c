//! The events of a server on HTTP, as the protocol may have them: answers that can be read, not more
//! news than we can answer, and no haste to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use tokio::time::sleep;

use super::line::{self, Line};

/// After so many events that are no answers there is a pause. It lasts until all that we have to
/// answer to them is sent.
const BURST: u64 = 4096;
const PAUSE: Duration = Duration::from_millis(100);
/// Milliseconds between the end of a stream and the next try, whatever the server wishes.
const SOONEST: u64 = 1_000;

/// What goes back and forth on one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    news: AtomicU64,
    /// Answers of ours that were begun to be sent, and those that are being sent.
    begun: AtomicU64,
    open: AtomicUsize,
}

/// As long as this is held an answer is being sent.
pub(super) struct Sending(Pace);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// Something is sent. What is no answer does not count.
    pub(super) fn sending(&self, message: &ClientJsonRpcMessage) -> Option<Sending> {
        if !matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
            return None;
        }
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Some(Sending(self.clone()))
    }

    /// The events of a stream, as they may be had.
    pub(super) fn events(&self, stream: BoxedSseResponse) -> BoxedSseResponse {
        let pace = self.clone();
        let events = stream.then(move |event| {
            let pace = pace.clone();
            async move {
                let mut event = match event {
                    Ok(event) => event,
                    broken => return broken,
                };
                event.retry = event.retry.map(|it| it.max(SOONEST));
                match event.data.as_deref().map(|it| line::look(it.as_bytes())) {
                    Some(Line::Instead(line)) => event.data = String::from_utf8(line).ok(),
                    Some(Line::News) => pace.news().await,
                    Some(Line::Answer) | None => {}
                }
                Ok(event)
            }
        });
        events.boxed()
    }

    async fn news(&self) {
        if !(self.0.news.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(BURST) {
            return;
        }
        loop {
            let begun = self.0.begun.load(Ordering::Relaxed);
            sleep(PAUSE).await;
            // Nothing is on its way, and nothing was in the meantime.
            let is_quiet = self.0.open.load(Ordering::Relaxed) == 0;
            if is_quiet && self.0.begun.load(Ordering::Relaxed) == begun {
                return;
            }
        }
    }
}
