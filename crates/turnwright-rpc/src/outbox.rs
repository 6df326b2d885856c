//! The way out: one lane, so what is put in first is written first, and one thread that writes.
//!
//! Messages are serialised straight into a shared buffer under a short lock; the writer swaps
//! that buffer out and hands it to the kernel in one call. Nothing is copied in between, and a
//! burst of messages costs one `write(2)`.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;

use super::frame::{self, RequestId, RpcError};

/// Bytes that may wait for the writer before bulk senders have to. Twice this can be in memory:
/// one buffer filling, one being written.
const BULK_MARK: usize = 256 * 1024;

/// Bytes of waiting answers above which no more requests are read. A client that asks for ever
/// and never reads stops itself here.
const ANSWER_MARK: usize = 8 * 1024 * 1024;

/// Looks at a message on its way out, by its method (`None` for an answer), and may have another one
/// in its place.
pub type Filter = fn(Option<&str>, &[u8]) -> Option<Vec<u8>>;

/// The sending end. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<Shared>);

struct Shared {
    // A std mutex: held for the time of one serialisation, never across an await.
    lane: Mutex<Lane>,
    filled: Condvar,
    drained: Notify,
    ended: Condvar,
    filter: Filter,
}

#[derive(Default)]
struct Lane {
    buffer: Vec<u8>,
    /// No more will come: write what is there and stop.
    closing: bool,
    /// The writer has stopped; whatever is put in from now on is dropped.
    dead: bool,
}

impl Outbox {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(output: impl Write + Send + 'static) -> std::io::Result<Outbox> {
        Outbox::filtered(output, |_, _| None)
    }

    /// The same, with something that looks at each message.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn filtered(
        output: impl Write + Send + 'static,
        filter: Filter,
    ) -> std::io::Result<Outbox> {
        let shared = Arc::new(Shared {
            lane: Mutex::new(Lane::default()),
            filled: Condvar::new(),
            drained: Notify::new(),
            ended: Condvar::new(),
            filter,
        });
        let outbox = Outbox(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("stdout".into())
            .stack_size(128 * 1024)
            .spawn(move || write_all(&shared, output))?;
        Ok(outbox)
    }

    /// Answers a request. Never waits: a full pipe must not keep us from reading the very
    /// cancel that ends the flood.
    pub fn respond<R: Serialize>(&self, id: &RequestId, result: Result<&R, &RpcError>) {
        self.put(None, |buffer| match result {
            Ok(result) => frame::write_success(buffer, id, result),
            Err(error) => frame::write_failure(buffer, id, error),
        });
    }

    /// Tells something. Never waits; bulk senders await [`Outbox::room`] first.
    pub fn notify(&self, method: &str, params: &impl Serialize) {
        self.put(Some(method), |buffer| frame::write_notification(buffer, method, params));
    }

    /// Sends a message that is whole already. Never waits.
    pub fn send(&self, message: &impl Serialize) {
        self.put(None, |buffer| serde_json::to_writer(buffer, message));
    }

    pub(super) fn request(&self, id: u64, method: &str, params: &impl Serialize) {
        self.put(Some(method), |buffer| frame::write_request(buffer, id, method, params));
    }

    /// Waits until there is room for bulk, or the client is gone.
    pub async fn room(&self) {
        self.below(BULK_MARK).await;
    }

    /// Waits until so few answers are unread that more requests may be taken.
    pub async fn settled(&self) {
        self.below(ANSWER_MARK).await;
    }

    /// Waits until nothing can be written any more: the client has closed its end.
    pub async fn gone(&self) {
        loop {
            let drained = self.0.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            if self.lock().dead {
                return;
            }
            drained.await;
        }
    }

    async fn below(&self, mark: usize) {
        loop {
            let drained = self.0.drained.notified();
            tokio::pin!(drained);
            // Registered before the check, so that a swap in between is not missed.
            drained.as_mut().enable();
            {
                let lane = self.lock();
                if lane.buffer.len() < mark || lane.dead {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Writes what is left and stops the writer. Waits for it, but not longer than `limit`: the
    /// client may have stopped reading.
    pub fn close(&self, limit: Duration) {
        let mut lane = self.lock();
        lane.closing = true;
        self.0.filled.notify_one();
        if !lane.dead {
            drop(self.0.ended.wait_timeout_while(lane, limit, |lane| !lane.dead));
        }
    }

    fn put(
        &self,
        method: Option<&str>,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) {
        let mut lane = self.lock();
        if lane.dead || lane.closing {
            return;
        }
        let start = lane.buffer.len();
        if let Err(error) = write(&mut lane.buffer) {
            // Only a type that cannot be JSON fails here. Half a line must not go out.
            lane.buffer.truncate(start);
            tracing::error!(%error, "a message could not be serialised");
            return;
        }
        if let Some(other) = (self.0.filter)(method, &lane.buffer[start..]) {
            lane.buffer.truncate(start);
            lane.buffer.extend_from_slice(&other);
        }
        lane.buffer.push(b'\n');
        // Woken while the lock is held, the writer would only run into it.
        drop(lane);
        if start == 0 {
            self.0.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lane> {
        self.0.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Outbox")
    }
}

fn write_all(shared: &Shared, mut output: impl Write) {
    let mut spare = Vec::new();
    loop {
        {
            let lane = shared.lane.lock().unwrap_or_else(PoisonError::into_inner);
            let mut lane = shared
                .filled
                .wait_while(lane, |lane| lane.buffer.is_empty() && !lane.closing)
                .unwrap_or_else(PoisonError::into_inner);
            if lane.buffer.is_empty() {
                break;
            }
            std::mem::swap(&mut lane.buffer, &mut spare);
        }
        shared.drained.notify_waiters();
        if let Err(error) = output.write_all(&spare).and_then(|()| output.flush()) {
            // The client is gone; the reader notices that too and ends everything.
            tracing::debug!(%error, "stdout is closed");
            break;
        }
        spare.clear();
        spare.shrink_to(BULK_MARK);
    }
    let mut lane = shared.lane.lock().unwrap_or_else(PoisonError::into_inner);
    lane.dead = true;
    lane.buffer = Vec::new();
    drop(lane);
    shared.drained.notify_waiters();
    shared.ended.notify_all();
}
