//! The other end of a connection: sends requests to it and waits for the responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::message::{RequestId, RpcResponse};
use super::outbox::Outbox;
use super::pending::{LateResultHandler, MAX_PENDING_REQUESTS, PendingRequests, RequestError};

/// The additional wait for a response after the time-out.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// The other end of the connection, to which requests can be sent.
#[derive(Clone)]
pub struct Peer {
    outbox: Outbox,
    pending: Arc<PendingRequests>,
    /// The notification that withdraws a request.
    withdrawal: &'static str,
}

impl Peer {
    /// Creates a peer to which `outbox` leads. Withdrawn requests are announced with `$/cancel_request`.
    pub fn new(outbox: Outbox) -> Peer {
        Peer::with_withdrawal(outbox, "$/cancel_request")
    }

    /// Like [`Peer::new`], with another notification for withdrawn requests. Its parameters are the same.
    pub fn with_withdrawal(outbox: Outbox, withdrawal: &'static str) -> Peer {
        let pending = Arc::new(PendingRequests::new(0, MAX_PENDING_REQUESTS));
        Peer { outbox, pending, withdrawal }
    }

    /// The queue of outgoing messages, for messages that need no response.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Sends a request and waits at most `timeout` for the response. If the request is given up,
    /// by the timeout or by dropping the future, the peer is told (R-CXL-6).
    pub async fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<Box<RawValue>, RequestError> {
        self.send_and_wait(method, params, timeout, None).await
    }

    /// Like [`Peer::request`], for a request that makes the peer allocate something for us. A
    /// result that arrives after the request was given up is handed to `on_late_result`, so that
    /// the resource can be released.
    ///
    /// # Errors
    /// If no result arrives in time.
    pub async fn request_with_late_handler(
        &self,
        method: &str,
        params: &impl Serialize,
        timeout: Duration,
        on_late_result: impl Fn(&RawValue) + Send + Sync + 'static,
    ) -> Result<Box<RawValue>, RequestError> {
        self.send_and_wait(method, params, timeout, Some(Arc::new(on_late_result))).await
    }

    async fn send_and_wait(
        &self,
        method: &str,
        params: &impl Serialize,
        timeout: Duration,
        on_late_result: Option<LateResultHandler>,
    ) -> Result<Box<RawValue>, RequestError> {
        let id = self.pending.next_id();
        let receiver = self.pending.register(id, on_late_result.clone())?;
        let mut waiter = ResponseWaiter { peer: self, id, receiver, on_late_result };
        self.outbox.request(id, method, params);
        let mut answered = tokio::time::timeout(timeout, &mut waiter.receiver).await;
        if answered.is_err() {
            // If this process was stopped meanwhile, the response may be waiting in a pipe.
            answered = tokio::time::timeout(SECOND_LOOK, &mut waiter.receiver).await;
        }
        match answered {
            Ok(Ok(response)) => response.map_err(RequestError::ErrorResponse),
            Ok(Err(_)) => Err(RequestError::ConnectionClosed),
            Err(_) => Err(RequestError::TimedOut(timeout)),
        }
    }

    /// Sends a request whose response does not matter, and does not wait for it.
    pub fn send_request_ignoring_response(&self, method: &str, params: &impl Serialize) {
        let id = self.pending.next_id();
        self.outbox.request(id, method, params);
    }

    /// Hands a response to the request that waits for it, if one does.
    pub fn complete(&self, id: &RequestId, response: RpcResponse) {
        match id.as_u64() {
            Some(id) => self.pending.complete(id, response),
            None => tracing::debug!(%id, "a response with an unknown id"),
        }
    }

    /// Fails all pending requests, and every later one.
    pub fn fail_all(&self) {
        self.pending.fail_all();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Peer")
    }
}

/// Waits for one response. If it is dropped before the response has arrived, it withdraws the
/// request.
struct ResponseWaiter<'a> {
    peer: &'a Peer,
    id: u64,
    receiver: oneshot::Receiver<RpcResponse>,
    on_late_result: Option<LateResultHandler>,
}

impl Drop for ResponseWaiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // The response may have arrived without having been received.
        if let (Ok(Ok(result)), Some(on_late_result)) =
            (self.receiver.try_recv(), &self.on_late_result)
        {
            on_late_result(&result);
        }
        if self.peer.pending.give_up(self.id) {
            self.peer.outbox.notify(self.peer.withdrawal, &json!({ "requestId": self.id }));
        }
    }
}
