//! The outgoing message queue: a single first-in-first-out buffer and the thread that writes it.
//!
//! Messages are serialised straight into the shared buffer under a short lock; the writer thread
//! swaps that buffer out and hands it to the kernel in one call. Nothing is copied in between, and
//! a burst of messages costs one `write(2)`. While nothing is queued and the peer reads, a short message
//! is written at once, where that cannot wait.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::Notify;

use super::message::{self, RequestId, RpcError};
use super::stdio::{LineDirection, LineObserver, make_blocking};

/// Unwritten bytes above which senders of bulk output must wait. Up to twice as much can be in
/// memory: one buffer is being filled while the other is written.
const MAX_QUEUED_BULK_BYTES: usize = 256 * 1024;

/// The size of the buffer that a task keeps while nothing is queued.
const MAX_IDLE_BYTES: usize = 16 * 1024;

/// Unwritten bytes above which no more requests are read. This bounds the memory that a peer can
/// make us use by sending requests without reading the responses.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// Inspects an outgoing message, given its method and its JSON, and may return a replacement for it.
/// The method is `None` for a response and for a message sent with [`Outbox::send`].
pub type OutgoingFilter = fn(Option<&str>, &[u8]) -> Option<Vec<u8>>;

/// The sending end of the queue. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<OutboxInner>);

pub(super) struct OutboxInner {
    // Held only while one message is serialised, or written without waiting.
    queue: Mutex<WriteQueue>,
    /// For the writer thread.
    has_messages: Condvar,
    /// For a task that takes the messages instead.
    messages_queued: Notify,
    /// Notified when the writer has taken so much that someone may wait for it, or has ended.
    buffer_taken: Notify,
    writer_ended: Condvar,
    filter: OutgoingFilter,
    observer: Option<Arc<LineObserver>>,
    /// The output, if its writes need not wait.
    direct: Option<File>,
}

#[derive(Default)]
struct WriteQueue {
    buffer: Vec<u8>,
    /// The writer has taken messages that it has not yet written.
    is_writing: bool,
    /// No more messages are accepted; the writer stops once the buffer is empty.
    is_closing: bool,
    /// The writer has stopped; messages are dropped from now on.
    is_closed: bool,
    /// The number of open batches. While there are any, nothing is written.
    batches: usize,
}

impl WriteQueue {
    /// True if there is something to write now. At the end no batch holds it back.
    fn is_due(&self) -> bool {
        !self.buffer.is_empty() && (self.batches == 0 || self.is_closing)
    }
}

/// Messages that are sent while this lives are written when it is dropped, with one write.
#[must_use = "the messages are written when it is dropped"]
pub struct Batch(Outbox);

impl Drop for Batch {
    fn drop(&mut self) {
        let mut queue = self.0.0.queue.lock();
        queue.batches -= 1;
        if !queue.buffer.is_empty() {
            self.0.write(queue);
        }
    }
}

impl Outbox {
    /// Starts the writer thread.
    pub fn start(output: impl Write + Send + 'static) -> std::io::Result<Outbox> {
        Outbox::start_writer(output, |_| (), |_, _| None, None, None)
    }

    /// Like [`Outbox::start`], with a filter that every message passes through, and an observer that sees
    /// each line as it is sent. Short messages are written by their senders.
    pub fn start_observed(
        output: File,
        filter: OutgoingFilter,
        observer: Option<Arc<LineObserver>>,
    ) -> std::io::Result<Outbox> {
        let direct = direct_output(&output);
        Outbox::start_writer(output, |output| make_blocking(output), filter, observer, direct)
    }

    /// Starts the writer thread, which first prepares the output.
    fn start_writer<Output: Write + Send + 'static>(
        output: Output,
        prepare: fn(&Output),
        filter: OutgoingFilter,
        observer: Option<Arc<LineObserver>>,
        direct: Option<File>,
    ) -> std::io::Result<Outbox> {
        let (outbox, shared) = Outbox::create(filter, observer, direct);
        std::thread::Builder::new().name("stdout".into()).stack_size(128 * 1024).spawn(
            move || {
                prepare(&output);
                run_writer(&shared, output);
            },
        )?;
        Ok(outbox)
    }

    /// An outbox whose messages a thread or a task takes.
    pub(super) fn create(
        filter: OutgoingFilter,
        observer: Option<Arc<LineObserver>>,
        direct: Option<File>,
    ) -> (Outbox, Arc<OutboxInner>) {
        let shared = Arc::new(OutboxInner {
            queue: Mutex::new(WriteQueue::default()),
            has_messages: Condvar::new(),
            messages_queued: Notify::new(),
            buffer_taken: Notify::new(),
            writer_ended: Condvar::new(),
            filter,
            observer,
            direct,
        });
        (Outbox(Arc::clone(&shared)), shared)
    }

    /// Answers a request. Never waits: a full pipe must not stop us from reading the cancellation
    /// that would end the flood.
    pub fn respond<R: Serialize>(&self, id: &RequestId, result: Result<&R, &RpcError>) {
        self.enqueue(None, |buffer| message::write_response(buffer, id, result));
    }

    /// Sends a notification. Never waits; senders of bulk output await
    /// [`Outbox::wait_for_capacity`] first.
    pub fn notify(&self, method: &str, params: &impl Serialize) {
        self.enqueue(Some(method), |buffer| message::write_call(buffer, None, method, params));
    }

    /// Sends a value that is already a complete JSON-RPC message. Never waits.
    pub fn send(&self, message: &impl Serialize) {
        self.enqueue(None, |buffer| serde_json::to_writer(buffer, message));
    }

    /// Holds messages back, to write them together. The messages of all senders wait for it, so it must be
    /// short-lived.
    pub fn batch(&self) -> Batch {
        self.0.queue.lock().batches += 1;
        Batch(self.clone())
    }

    /// Sends a request with an id of [`PendingRequests`](super::PendingRequests), where it is registered. Never
    /// waits.
    pub fn request(&self, id: u64, method: &str, params: &impl Serialize) {
        self.enqueue(Some(method), |buffer| message::write_call(buffer, Some(id), method, params));
    }

    /// Waits until bulk output may be sent, or the peer has closed its end.
    pub async fn wait_for_capacity(&self) {
        self.wait_until(|queue| queue.buffer.len() < MAX_QUEUED_BULK_BYTES || queue.is_closed)
            .await;
    }

    /// Waits until few enough bytes are queued to read more requests.
    pub async fn wait_for_read_capacity(&self) {
        self.wait_until(|queue| queue.buffer.len() < MAX_QUEUED_BYTES || queue.is_closed).await;
    }

    /// Waits until nothing can be written any more, because the peer has closed its end.
    pub async fn closed(&self) {
        self.wait_until(|queue| queue.is_closed).await;
    }

    async fn wait_until(&self, is_reached: fn(&WriteQueue) -> bool) {
        loop {
            let buffer_taken = self.0.buffer_taken.notified();
            tokio::pin!(buffer_taken);
            // Registered before the check, so that a buffer swap in between is not missed.
            buffer_taken.as_mut().enable();
            if is_reached(&self.0.queue.lock()) {
                return;
            }
            buffer_taken.await;
        }
    }

    /// Writes the queued messages and stops the writer. Waits at most `timeout` for that, because the peer
    /// may have stopped reading.
    pub fn close(&self, timeout: Duration) {
        self.stop_accepting();
        let mut queue = self.0.queue.lock();
        self.0.writer_ended.wait_while_for(&mut queue, |queue| !queue.is_closed, timeout);
    }

    /// Accepts no more messages. Queued ones are still written.
    pub fn stop_accepting(&self) {
        self.0.queue.lock().is_closing = true;
        self.0.wake_writer();
    }

    fn enqueue(
        &self,
        method: Option<&str>,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) {
        let mut queue = self.0.queue.lock();
        if queue.is_closed || queue.is_closing {
            return;
        }
        let start = queue.buffer.len();
        if let Err(error) = write(&mut queue.buffer) {
            // Only a type that has no JSON form fails here. Half a line must not be sent.
            queue.buffer.truncate(start);
            tracing::error!(%error, "a message could not be serialised");
            return;
        }
        let line = &queue.buffer[start..];
        let filtered = (self.0.filter)(method, line);
        let escaped = escape_separators(filtered.as_deref().unwrap_or(line));
        if let Some(replacement) = escaped.or(filtered) {
            queue.buffer.truncate(start);
            queue.buffer.extend_from_slice(&replacement);
        }
        if let Some(observer) = &self.0.observer {
            observer(LineDirection::Out, &queue.buffer[start..]);
        }
        queue.buffer.push(b'\n');
        // Otherwise the writer is awake already.
        if start == 0 {
            self.write(queue);
        }
    }

    /// Writes the queued messages, or wakes the writer for them.
    fn write(&self, mut queue: MutexGuard<'_, WriteQueue>) {
        if queue.batches > 0 {
            return;
        }
        if !queue.is_writing
            && let Some(direct) = &self.0.direct
        {
            let written = write_without_waiting(direct, &queue.buffer);
            queue.buffer.drain(..written);
            if queue.buffer.is_empty() {
                queue.buffer.shrink_to(MAX_IDLE_BYTES);
                return;
            }
        }
        // The lock is released first; a writer woken earlier would only wait for it.
        drop(queue);
        self.0.wake_writer();
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Outbox")
    }
}

impl OutboxInner {
    fn wake_writer(&self) {
        self.has_messages.notify_one();
        self.messages_queued.notify_one();
    }

    /// Waits for messages and exchanges them for the empty buffer. Returns false when none will come.
    /// Cancel safe. Only one task may wait.
    pub(super) async fn take(&self, taken: &mut Vec<u8>) -> bool {
        taken.clear();
        taken.shrink_to(MAX_IDLE_BYTES);
        loop {
            {
                let mut queue = self.queue.lock();
                if queue.is_due() {
                    std::mem::swap(&mut queue.buffer, taken);
                    break;
                }
                if queue.is_closing {
                    return false;
                }
            }
            // A message that was queued in between has left a permit.
            self.messages_queued.notified().await;
        }
        self.report_taken(taken.len());
        true
    }

    /// Wakes the waiting senders and readers if at least [`MAX_QUEUED_BULK_BYTES`] were taken.
    fn report_taken(&self, bytes: usize) {
        if bytes >= MAX_QUEUED_BULK_BYTES {
            self.buffer_taken.notify_waiters();
        }
    }

    /// Drops all queued and later messages.
    pub(super) fn close_now(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        queue.buffer = Vec::new();
        drop(queue);
        self.buffer_taken.notify_waiters();
        self.writer_ended.notify_all();
    }
}

/// Escapes U+2028 and U+2029, at which Node's `readline` ends a line, too. JSON has them only in texts. Returns `None`
/// for a message without them, which nearly always lacks even their first byte.
fn escape_separators(line: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line.contains(&0xe2).then_some(line)?).ok()?;
    text.contains(['\u{2028}', '\u{2029}']).then(|| {
        text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").into_bytes()
    })
}

fn run_writer(shared: &OutboxInner, mut output: impl Write) {
    let mut writing = Vec::new();
    loop {
        {
            let mut queue = shared.queue.lock();
            queue.is_writing = false;
            shared
                .has_messages
                .wait_while(&mut queue, |queue| !queue.is_due() && !queue.is_closing);
            if queue.buffer.is_empty() {
                break;
            }
            std::mem::swap(&mut queue.buffer, &mut writing);
            queue.is_writing = true;
        }
        shared.report_taken(writing.len());
        if let Err(error) = output.write_all(&writing).and_then(|()| output.flush()) {
            // The reader notices that the peer is gone as well, and ends everything.
            tracing::debug!(%error, "the output is closed");
            break;
        }
        writing.clear();
        writing.shrink_to(MAX_QUEUED_BULK_BYTES);
    }
    shared.close_now();
}

/// Larger writes are left to the writer thread, which can copy them while other work goes on.
#[cfg(target_os = "linux")]
const MAX_DIRECT_BYTES: usize = 16 * 1024;

/// The output for writes that never wait, which save a short message a thread switch. Only Linux has such writes.
#[cfg(target_os = "linux")]
fn direct_output(output: &File) -> Option<File> {
    output.try_clone().ok()
}

#[cfg(not(target_os = "linux"))]
fn direct_output(_: &File) -> Option<File> {
    None
}

/// Writes as much as fits without waiting, and returns how much. Everything else, and every error,
/// is left to the writer thread. Linux has such writes to sockets, and since 6.4 to pipes.
#[cfg(target_os = "linux")]
fn write_without_waiting(output: &File, bytes: &[u8]) -> usize {
    use rustix::io::{ReadWriteFlags, pwritev2};
    if bytes.len() > MAX_DIRECT_BYTES {
        return 0;
    }
    // This offset stands for a plain write.
    let slices = [std::io::IoSlice::new(bytes)];
    pwritev2(output, &slices, u64::MAX, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn write_without_waiting(_: &File, _: &[u8]) -> usize {
    0
}
