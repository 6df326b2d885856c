//! The two queues of a connection that has no streams of its own: a task sends lines into one and takes
//! messages out of the other, as the threads of stdin and stdout do for a pipe.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::long_line::LongLine;
use super::message::{self, ParsedLine};
use super::outbox::{Outbox, OutboxInner, OutgoingFilter};
use super::stdio::{
    LineDirection, LineObserver, LineReader, MAX_LINE_BYTES, MAX_READ_AHEAD_BYTES,
    MAX_READ_AHEAD_LINES, ReservedCapacity,
};

/// The length above which a line is parsed on a blocking thread.
const MAX_INLINE_PARSE_BYTES: usize = 128 * 1024;

/// Sends lines to a [`LineReader`]. Dropping it ends the input.
pub struct LineSender {
    lines: mpsc::Sender<(ParsedLine, ReservedCapacity)>,
    /// One permit for each byte of the messages that are parsed ahead.
    capacity: Arc<Semaphore>,
    observer: Option<Arc<LineObserver>>,
    _ended: DropGuard,
}

/// Creates an input whose lines a task sends. An observer sees each of them before it is parsed.
pub fn line_queue(observer: Option<Arc<LineObserver>>) -> (LineSender, LineReader) {
    let (sender, lines) = mpsc::channel(MAX_READ_AHEAD_LINES);
    let input_ended = CancellationToken::new();
    let ended = input_ended.clone().drop_guard();
    let capacity = Arc::new(Semaphore::new(MAX_READ_AHEAD_BYTES));
    (
        LineSender { lines: sender, capacity, observer, _ended: ended },
        LineReader { lines, input_ended },
    )
}

impl LineSender {
    /// Parses a message and queues it. Waits while too much is queued. Returns true if the other end
    /// still takes lines.
    pub async fn send(&self, line: Vec<u8>) -> bool {
        let bytes = u32::try_from(line.len().min(MAX_READ_AHEAD_BYTES)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.capacity).acquire_many_owned(bytes).await else {
            return false;
        };
        if let Some(observer) = &self.observer {
            observer(LineDirection::In, &line);
        }
        let line = match line.len() {
            0..=MAX_INLINE_PARSE_BYTES => message::parse_line(&line),
            MAX_LINE_BYTES.. => LongLine::of(&line, &line).parsed(),
            _ => match tokio::task::spawn_blocking(move || message::parse_line(&line)).await {
                Ok(line) => line,
                Err(_) => return false,
            },
        };
        self.lines.send((line, ReservedCapacity::OfTask(permit))).await.is_ok()
    }
}

/// Takes the messages of an [`Outbox`] that has no thread. Dropping it closes the outbox.
pub struct OutboxDrain {
    shared: Arc<OutboxInner>,
    taken: Vec<u8>,
}

/// Creates an outbox whose messages a task takes, each after the filter has seen it, and then an observer.
pub fn message_queue(
    filter: OutgoingFilter,
    observer: Option<Arc<LineObserver>>,
) -> (Outbox, OutboxDrain) {
    let (outbox, shared) = Outbox::create(filter, observer, None);
    (outbox, OutboxDrain { shared, taken: Vec::new() })
}

impl OutboxDrain {
    /// Waits for messages, and takes all of them: lines, each with its newline. Returns `None` when the
    /// outbox is closed and nothing is left. Cancel safe.
    pub async fn next(&mut self) -> Option<&[u8]> {
        self.shared.take(&mut self.taken).await.then_some(self.taken.as_slice())
    }
}

impl Drop for OutboxDrain {
    fn drop(&mut self) {
        self.shared.close_now();
    }
}
