//! Filters the event streams of an HTTP server before `rmcp` reads them: replaces malformed responses,
//! limits how fast other messages arrive, and enforces a minimum reconnection delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use tokio::time::sleep;

use super::line::{self, LineKind};

/// After this many events that are not responses, reading pauses until all our responses to them have
/// been sent.
const MAX_BURST: u64 = 4096;
const BURST_PAUSE: Duration = Duration::from_millis(100);
/// The shortest delay in milliseconds before a stream is reopened, whatever the server asks for.
const MIN_RETRY_MS: u64 = 1_000;

/// Paces the incoming events of one connection by the outgoing responses.
#[derive(Clone, Debug, Default)]
pub(super) struct EventPacer(Arc<PacerCounts>);

#[derive(Debug, Default)]
struct PacerCounts {
    /// Events that are not responses.
    other_events: AtomicU64,
    /// Responses of ours that were ever started to be sent.
    started: AtomicU64,
    /// Responses of ours that are being sent now.
    in_flight: AtomicUsize,
}

/// Counts a response as being sent until it is dropped.
pub(super) struct ResponseInFlight(EventPacer);

impl Drop for ResponseInFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventPacer {
    /// Call before sending a message; hold the guard until it is sent. Only responses count.
    pub(super) fn sending(&self, message: &ClientJsonRpcMessage) -> Option<ResponseInFlight> {
        if !matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
            return None;
        }
        self.0.started.fetch_add(1, Ordering::Relaxed);
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(ResponseInFlight(self.clone()))
    }

    /// Wraps the events of a stream.
    pub(super) fn events(&self, stream: BoxedSseResponse) -> BoxedSseResponse {
        let pacer = self.clone();
        let events = stream.then(move |event| {
            let pacer = pacer.clone();
            async move {
                let mut event = match event {
                    Ok(event) => event,
                    failed => return failed,
                };
                event.retry = event.retry.map(|it| it.max(MIN_RETRY_MS));
                match event.data.as_deref().map(|it| line::classify(it.as_bytes())) {
                    Some(LineKind::Malformed { replacement }) => {
                        event.data = String::from_utf8(replacement).ok();
                    }
                    Some(LineKind::Other) => pacer.on_other_event().await,
                    Some(LineKind::Response) | None => {}
                }
                Ok(event)
            }
        });
        events.boxed()
    }

    async fn on_other_event(&self) {
        if !(self.0.other_events.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(MAX_BURST) {
            return;
        }
        loop {
            let started = self.0.started.load(Ordering::Relaxed);
            sleep(BURST_PAUSE).await;
            // No response is being sent, and none was during the pause.
            let is_quiet = self.0.in_flight.load(Ordering::Relaxed) == 0;
            if is_quiet && self.0.started.load(Ordering::Relaxed) == started {
                return;
            }
        }
    }
}
