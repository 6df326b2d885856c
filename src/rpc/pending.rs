//! Requests that we have sent and the peer has not answered yet.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::frame::{RequestId, RpcError};
use super::outbox::Outbox;

type Answer = Result<Box<RawValue>, RpcError>;

/// The other side, as somebody who can be asked.
#[derive(Clone)]
pub struct Peer {
    outbox: Outbox,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: AtomicU64,
    // A std mutex: a map operation long, never across an await.
    answers: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request of ours brought no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestFailed {
    /// The peer answered with an error.
    #[error("{}", .0.message)]
    Refused(RpcError),
    /// The peer did not answer in time. The request has been withdrawn.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The connection has ended.
    #[error("the connection has ended")]
    Gone,
}

impl Peer {
    /// A peer that hears us through this outbox.
    pub fn new(outbox: Outbox) -> Peer {
        let waiting = Waiting::default();
        *waiting.lock() = Some(HashMap::new());
        Peer { outbox, waiting: Arc::new(waiting) }
    }

    /// The way out, for what needs no answer.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Asks, and waits at most `limit` for the answer. When it is given up, by the limit or by
    /// dropping the future, the peer is told with `$/cancel_request` (R-CXL-6).
    ///
    /// # Errors
    /// When no result comes back.
    pub async fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
    ) -> Result<Box<RawValue>, RequestFailed> {
        let (sender, receiver) = oneshot::channel();
        let id = self.waiting.next.fetch_add(1, Ordering::Relaxed);
        match self.waiting.lock().as_mut() {
            Some(answers) => drop(answers.insert(id, sender)),
            None => return Err(RequestFailed::Gone),
        }
        let _withdraw = Withdraw { peer: self, id };
        self.outbox.request(id, method, params);
        match tokio::time::timeout(limit, receiver).await {
            Ok(Ok(answer)) => answer.map_err(RequestFailed::Refused),
            Ok(Err(_)) => Err(RequestFailed::Gone),
            Err(_) => Err(RequestFailed::TimedOut(limit)),
        }
    }

    /// Hands an answer to who waits for it. An answer nobody waits for is ignored (R-TR-11).
    pub fn complete(&self, id: &RequestId, answer: Answer) {
        let sender = id
            .as_u64()
            .and_then(|id| self.waiting.lock().as_mut().and_then(|answers| answers.remove(&id)));
        // The waiter may have gone in this very moment.
        if sender.is_none_or(|it| it.send(answer).is_err()) {
            tracing::debug!(%id, "answer to nothing");
        }
    }

    /// Ends every wait, and all that would begin later.
    pub fn hang_up(&self) {
        drop(self.waiting.lock().take());
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Peer")
    }
}

/// Tells the peer that its answer is no longer wanted, unless it has come: then the entry is
/// gone from the map already.
struct Withdraw<'a> {
    peer: &'a Peer,
    id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let waited = self.peer.waiting.lock().as_mut().and_then(|it| it.remove(&self.id));
        if waited.is_some() {
            self.peer.outbox.notify("$/cancel_request", &json!({ "requestId": self.id }));
        }
    }
}
