//! Requests that we have sent and that the peer has not answered yet.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::message::{RequestId, RpcError};
use super::outbox::Outbox;

/// The additional wait for a response after the time-out.
const SECOND_LOOK: Duration = Duration::from_millis(200);

type Response = Result<Box<RawValue>, RpcError>;

/// Receives a result that arrives after the request was given up.
type LateResultHandler = Arc<dyn Fn(&RawValue) + Send + Sync>;

struct PendingRequest {
    sender: oneshot::Sender<Response>,
    on_late_result: Option<LateResultHandler>,
}

/// The other end of the connection, to which requests can be sent.
#[derive(Clone)]
pub struct Peer {
    outbox: Outbox,
    pending: Arc<PendingRequests>,
    /// The notification that withdraws a request.
    withdrawal: &'static str,
}

#[derive(Default)]
struct PendingRequests {
    next_id: AtomicU64,
    /// `None` once the connection has ended.
    // Held only for one map operation.
    requests: Mutex<Option<HashMap<u64, PendingRequest>>>,
}

/// Why a request that we sent brought no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The peer answered with an error.
    #[error("{}", .0.message)]
    ErrorResponse(RpcError),
    /// The peer did not answer in time. The request has been withdrawn.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection has ended.
    #[error("the connection has ended")]
    ConnectionClosed,
}

impl Peer {
    /// Creates a peer to which `outbox` leads. Withdrawn requests are announced with `$/cancel_request`.
    pub fn new(outbox: Outbox) -> Peer {
        Peer::with_withdrawal(outbox, "$/cancel_request")
    }

    /// Like [`Peer::new`], with another notification for withdrawn requests. Its parameters are the same.
    pub fn with_withdrawal(outbox: Outbox, withdrawal: &'static str) -> Peer {
        let pending = PendingRequests::default();
        *pending.requests.lock() = Some(HashMap::new());
        Peer { outbox, pending: Arc::new(pending), withdrawal }
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
        let (sender, receiver) = oneshot::channel();
        let id = self.pending.next_id.fetch_add(1, Ordering::Relaxed);
        match self.pending.requests.lock().as_mut() {
            Some(requests) => {
                let on_late_result = on_late_result.clone();
                requests.insert(id, PendingRequest { sender, on_late_result });
            }
            None => return Err(RequestError::ConnectionClosed),
        }
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
        let id = self.pending.next_id.fetch_add(1, Ordering::Relaxed);
        self.outbox.request(id, method, params);
    }

    /// Hands a response to the request that waits for it. A response without a pending request is
    /// ignored (R-TR-11).
    pub fn complete(&self, id: &RequestId, response: Response) {
        let request = id.as_u64().and_then(|id| {
            self.pending.requests.lock().as_mut().and_then(|requests| requests.remove(&id))
        });
        let Some(PendingRequest { sender, on_late_result }) = request else {
            return tracing::debug!(%id, "response without a pending request");
        };
        // The waiter may have been dropped in the meantime.
        if let Err(Ok(result)) = sender.send(response)
            && let Some(on_late_result) = on_late_result
        {
            on_late_result(&result);
        }
    }

    /// Fails all pending requests, and every later one.
    pub fn fail_all(&self) {
        *self.pending.requests.lock() = None;
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
    receiver: oneshot::Receiver<Response>,
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
        let is_pending = {
            let mut requests = self.peer.pending.requests.lock();
            match requests.as_mut() {
                // The entry stays in the map for the result that may still arrive.
                Some(requests) if self.on_late_result.is_some() => requests.contains_key(&self.id),
                Some(requests) => requests.remove(&self.id).is_some(),
                None => false,
            }
        };
        if is_pending {
            self.peer.outbox.notify(self.peer.withdrawal, &json!({ "requestId": self.id }));
        }
    }
}
