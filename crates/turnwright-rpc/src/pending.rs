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

/// What is to be done with a result that comes when nobody waits for it any more.
type Late = Arc<dyn Fn(&RawValue) + Send + Sync>;

struct Entry {
    sender: oneshot::Sender<Answer>,
    late: Option<Late>,
}

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
    answers: Mutex<Option<HashMap<u64, Entry>>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, Entry>>> {
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
        self.ask(method, params, limit, None).await
    }

    /// The same for a request that makes the peer hold something for us: a result that comes
    /// after we have given up is handed to `late`, so that it can be given back.
    ///
    /// # Errors
    /// When no result comes back.
    pub async fn request_or_late(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
        late: impl Fn(&RawValue) + Send + Sync + 'static,
    ) -> Result<Box<RawValue>, RequestFailed> {
        self.ask(method, params, limit, Some(Arc::new(late))).await
    }

    async fn ask(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
        late: Option<Late>,
    ) -> Result<Box<RawValue>, RequestFailed> {
        let (sender, receiver) = oneshot::channel();
        let id = self.waiting.next.fetch_add(1, Ordering::Relaxed);
        match self.waiting.lock().as_mut() {
            Some(answers) => drop(answers.insert(id, Entry { sender, late: late.clone() })),
            None => return Err(RequestFailed::Gone),
        }
        let mut waiter = Waiter { peer: self, id, receiver, late };
        self.outbox.request(id, method, params);
        match tokio::time::timeout(limit, &mut waiter.receiver).await {
            Ok(Ok(answer)) => answer.map_err(RequestFailed::Refused),
            Ok(Err(_)) => Err(RequestFailed::Gone),
            Err(_) => Err(RequestFailed::TimedOut(limit)),
        }
    }

    /// Asks for something whose answer, of whatever kind, changes nothing. Never waits.
    pub fn post(&self, method: &str, params: &impl Serialize) {
        let id = self.waiting.next.fetch_add(1, Ordering::Relaxed);
        self.outbox.request(id, method, params);
    }

    /// Hands an answer to who waits for it. An answer nobody waits for is ignored (R-TR-11).
    pub fn complete(&self, id: &RequestId, answer: Answer) {
        let entry = id
            .as_u64()
            .and_then(|id| self.waiting.lock().as_mut().and_then(|answers| answers.remove(&id)));
        let Some(Entry { sender, late }) = entry else {
            return tracing::debug!(%id, "answer to nothing");
        };
        // The waiter may have gone in this very moment.
        if let Err(Ok(result)) = sender.send(answer)
            && let Some(late) = late
        {
            late(&result);
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

/// Who waits for an answer. When it is dropped before the answer has come, the peer is told that
/// it is no longer wanted.
struct Waiter<'a> {
    peer: &'a Peer,
    id: u64,
    receiver: oneshot::Receiver<Answer>,
    late: Option<Late>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // It has come, and was not looked at.
        if let (Ok(Ok(result)), Some(late)) = (self.receiver.try_recv(), &self.late) {
            late(&result);
        }
        let waits = {
            let mut answers = self.peer.waiting.lock();
            match answers.as_mut() {
                // It stays in the map for the result that may come all the same.
                Some(answers) if self.late.is_some() => answers.contains_key(&self.id),
                Some(answers) => answers.remove(&self.id).is_some(),
                None => false,
            }
        };
        if waits {
            self.peer.outbox.notify("$/cancel_request", &json!({ "requestId": self.id }));
        }
    }
}
