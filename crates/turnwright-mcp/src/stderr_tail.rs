//! Keeps the end of a process's stderr, to be added to error messages: bounded, without API keys and
//! without control characters.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use turnwright_types::effect::escape_hidden;
use turnwright_types::redact;
use turnwright_types::text;

/// Bytes that are kept: many more than are shown, so that a key is never cut before it is redacted.
const KEPT_BYTES: usize = 8 * 1024;
/// Bytes that are shown.
const SHOWN_BYTES: usize = 1024;
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// How long to wait for the rest of the output after the process has ended. Its own children may hold
/// the pipe open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The last bytes that a process wrote to stderr.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail {
    // Held only to copy a short text.
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Cancelled when the pipe is closed.
    closed: CancellationToken,
}

impl StderrTail {
    /// Starts to read the pipe until it is closed.
    #[expect(clippy::disallowed_methods, reason = "ends with the program, which is waited for")]
    pub(super) fn listen(&self, mut pipe: impl AsyncRead + Unpin + Send + 'static) {
        let tail = self.clone();
        let closed = self.closed.clone().drop_guard();
        tokio::spawn(async move {
            let mut buffer = vec![0; READ_BUFFER_BYTES];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                tail.push(&buffer[..count]);
            }
            drop(closed);
        });
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock();
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    }

    /// Adds the stderr of a process that has ended to a message, after waiting briefly for its rest.
    pub(super) async fn append_final_to(&self, message: String) -> String {
        timeout(DRAIN_TIMEOUT, self.closed.cancelled()).await.ok();
        self.append_to(message)
    }

    /// Adds the stderr so far to a message.
    pub(super) fn append_to(&self, message: String) -> String {
        let bytes = self.bytes.lock().clone();
        match display_tail(&bytes).as_str() {
            "" => message,
            tail => format!("{message}. It printed: {tail}"),
        }
    }
}

fn display_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let redacted = redact::text(&text);
    let shown = redacted.trim();
    let end = text::suffix(shown, SHOWN_BYTES);
    let ellipsis = if end.len() < shown.len() { "… " } else { "" };
    format!("{ellipsis}{}", escape_hidden(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_stderr_is_bounded_and_escaped() {
        redact::register_keys(["Hidden-2391-in-stderr".to_owned()]).unwrap();
        let hidden = format!("with {}", redact::text("Hidden-2391-in-stderr"));
        for (printed, expected) in [
            ("", ""),
            (" \n", ""),
            ("port taken\n", "port taken"),
            ("a\u{1b}[2Jb\rc\n", "a\\u{1b}[2Jb\\u{d}c"),
            ("with Hidden-2391-in-stderr", &hidden),
        ] {
            assert_eq!(display_tail(printed.as_bytes()), expected);
        }
        let tail = StderrTail::default();
        for _ in 0..100 {
            tail.push("ü".repeat(1000).as_bytes());
        }
        assert!(tail.bytes.lock().len() <= KEPT_BYTES);
        let long = tail.append_to("it ended".to_owned());
        assert!(
            long.starts_with("it ended. It printed: … ü") && long.len() < SHOWN_BYTES + 40,
            "{long}"
        );
    }
}
