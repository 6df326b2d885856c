//! The other end of a connection: sends requests to it and waits for the responses. A table holds those that are
//! not answered yet.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::message::{RequestId, RpcError, RpcResponse};
use super::outbox::Outbox;

/// The additional wait for a response after the timeout.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// The other end of the connection, to which requests can be sent.
#[derive(Clone)]
pub struct Peer {
    outbox: Outbox,
    pending: Arc<PendingRequests>,
    /// The method of the notification that withdraws a request, and the name of its parameter for the request's id.
    withdrawal: (&'static str, &'static str),
}

impl Peer {
    /// Creates the peer that gets the messages in `outbox`. Withdrawn requests are announced with `$/cancel_request`.
    pub fn new(outbox: Outbox) -> Peer {
        Peer::with_withdrawal(outbox, "$/cancel_request", "requestId")
    }

    /// Like [`Peer::new`], but withdrawn requests are announced with the notification `method`, whose parameter
    /// `id_field` is the request's id.
    pub fn with_withdrawal(outbox: Outbox, method: &'static str, id_field: &'static str) -> Peer {
        let pending = Arc::new(PendingRequests::new(0, MAX_PENDING_REQUESTS));
        Peer { outbox, pending, withdrawal: (method, id_field) }
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
        self.request_with_late_handler(method, params, timeout, None).await
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
            let (method, id_field) = self.peer.withdrawal;
            self.peer.outbox.notify(method, &json!({ id_field: self.id }));
        }
    }
}

/// The maximum number of requests of a connection that wait for a response, unless a lower limit is set.
pub const MAX_PENDING_REQUESTS: usize = 4_096;

/// Called with a result that arrives after its request was given up.
type LateResultHandler = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Why a request that we sent has no result.
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
    /// Too many requests wait for a response. This one was not sent.
    #[error("too many requests are running at the same time")]
    TooMany,
}

/// Matches responses with the requests of one connection. A request gets at most one response, and none after
/// the connection has ended.
pub struct PendingRequests {
    next_id: AtomicU64,
    /// The maximum number of requests that wait for a response.
    limit: usize,
    /// `None` once the connection has ended.
    // Held only for one map operation.
    requests: Mutex<Option<HashMap<u64, PendingRequest>>>,
}

struct PendingRequest {
    sender: oneshot::Sender<RpcResponse>,
    on_late_result: Option<LateResultHandler>,
}

impl PendingRequests {
    /// Creates a table for a connection whose requests are numbered from `first_id` on. At most `limit` of them
    /// may wait for a response.
    pub fn new(first_id: u64, limit: usize) -> PendingRequests {
        let requests = Mutex::new(Some(HashMap::new()));
        PendingRequests { next_id: AtomicU64::new(first_id), limit, requests }
    }

    /// Returns an id that no other request of the connection has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a request before it is sent. The receiver gets the response, or fails when the connection ends.
    /// A result that arrives after the request was given up goes to the handler, if there is one.
    ///
    /// # Errors
    /// If the connection has ended, or if too many requests wait for a response.
    pub fn register(
        &self,
        id: u64,
        on_late_result: Option<LateResultHandler>,
    ) -> Result<oneshot::Receiver<RpcResponse>, RequestError> {
        let mut table = self.requests.lock();
        let requests = table.as_mut().ok_or(RequestError::ConnectionClosed)?;
        if requests.len() >= self.limit {
            return Err(RequestError::TooMany);
        }
        let (sender, receiver) = oneshot::channel();
        requests.insert(id, PendingRequest { sender, on_late_result });
        Ok(receiver)
    }

    /// Hands a response to the request that waits for it. A response without a pending request is
    /// ignored (R-TR-11).
    pub fn complete(&self, id: u64, response: RpcResponse) {
        let request = self.requests.lock().as_mut().and_then(|requests| requests.remove(&id));
        let Some(PendingRequest { sender, on_late_result }) = request else {
            tracing::debug!(id, "a response without a pending request");
            return;
        };
        // The receiver may have been dropped in the meantime.
        if let Err(Ok(result)) = sender.send(response)
            && let Some(on_late_result) = on_late_result
        {
            on_late_result(&result);
        }
    }

    /// Gives up a request. Returns true if it has not been answered. A request with a handler for late results
    /// stays registered, because its result may still arrive.
    pub fn give_up(&self, id: u64) -> bool {
        let mut table = self.requests.lock();
        let Some(requests) = table.as_mut() else { return false };
        let expects_late_result =
            requests.get(&id).is_some_and(|request| request.on_late_result.is_some());
        expects_late_result || requests.remove(&id).is_some()
    }

    /// Returns true if the request waits for a response.
    pub fn is_pending(&self, id: u64) -> bool {
        self.requests.lock().as_ref().is_some_and(|requests| requests.contains_key(&id))
    }

    /// Returns true if no request waits for a response.
    pub fn is_empty(&self) -> bool {
        self.requests.lock().as_ref().is_none_or(HashMap::is_empty)
    }

    /// Fails all pending requests, and every later one.
    pub fn fail_all(&self) {
        *self.requests.lock() = None;
    }
}
