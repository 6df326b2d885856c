//! What a program prints → the lines that are messages. Programs print other things too: greetings,
//! logs, what a library thinks of them. That is left out and counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use memchr::{memchr, memmem};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes of the longest message.
pub(super) const MOST: usize = 32 * 1024 * 1024;
/// Bytes at the beginning and at the end of a longer one that are looked at for its number.
const LOOK: usize = 256;
/// Bytes of memory that are kept for the next line.
pub(super) const SPARE: usize = 64 * 1024;

/// Reads the messages of a program, a line each.
pub(super) struct Sieve<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    /// The line is longer than any message.
    is_long: bool,
    /// A whole line that is being read from us, as far as it has been.
    given: Option<usize>,
    stray: Arc<AtomicU64>,
    _gone: DropGuard,
}

impl<R: AsyncRead + Unpin> Sieve<R> {
    /// Counts lines that are no messages; `gone` is cancelled when nobody reads any more.
    pub(super) fn new(from: R, stray: Arc<AtomicU64>, gone: CancellationToken) -> Sieve<R> {
        Sieve {
            from: BufReader::new(from),
            line: Vec::new(),
            is_long: false,
            given: None,
            stray,
            _gone: gone.drop_guard(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        if self.line.len() > MOST || self.is_long && self.line.len() > 4 * LOOK {
            self.is_long = true;
            // Its beginning and its end are all that is wanted of it.
            let end = self.line.len() - LOOK;
            self.line.drain(LOOK.min(end)..end);
        }
    }

    /// A line is complete.
    fn finish(&mut self) {
        if std::mem::take(&mut self.is_long) {
            self.line = refusal(&self.line).unwrap_or_default();
        } else if memmem::find(&self.line, b"\"jsonrpc\"").is_none() {
            let is_blank = self.line.iter().all(u8::is_ascii_whitespace);
            self.stray.fetch_add(u64::from(!is_blank), Ordering::Relaxed);
            self.line.clear();
        }
        self.given = (!self.line.is_empty()).then_some(0);
    }

    fn give(&mut self, given: usize, buffer: &mut ReadBuf<'_>) {
        let rest = &self.line[given..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.given = Some(given + count);
        if given + count == self.line.len() {
            self.given = None;
            self.line.clear();
            self.line.shrink_to(SPARE);
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Sieve<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(given) = self.given {
                self.give(given, buffer);
                return Poll::Ready(Ok(()));
            }
            let this = &mut *self;
            let bytes = ready!(Pin::new(&mut this.from).poll_fill_buf(context))?;
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let end = memchr(b'\n', bytes).map(|it| it + 1);
            let count = end.unwrap_or(bytes.len());
            let bytes = bytes[..count].to_vec();
            Pin::new(&mut this.from).consume(count);
            this.take(&bytes);
            if end.is_some() {
                this.finish();
            }
        }
    }
}

/// What stands for an answer that is too long, so that nobody waits for it.
fn refusal(line: &[u8]) -> Option<Vec<u8>> {
    let id = number(line)?;
    let message = format!("The answer is longer than {} MiB and was dropped", MOST / 1024 / 1024);
    let error = json!({ "code": -32603, "message": message });
    let line = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    Some(format!("{line}\n").into_bytes())
}

/// The number of an answer of which only the beginning and the end are known. It stands before the
/// result, or is among the last.
fn number(line: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(line);
    let (head, tail) = (text.get(..LOOK.min(text.len())).unwrap_or(&text), text.trim_end());
    let begin: String = head.split_whitespace().collect();
    let first = begin.strip_prefix("{\"jsonrpc\":\"2.0\",").or(begin.strip_prefix('{'));
    if let Some(rest) = first.and_then(|it| it.strip_prefix("\"id\":")) {
        return serde_json::from_str(rest.split(',').next()?).ok();
    }
    let last = &tail[tail.rfind("\"id\"")?..];
    let last: Value = serde_json::from_str(&format!("{{{last}")).ok()?;
    let is_outer = last.as_object()?.keys().all(|it| it == "id" || it == "jsonrpc");
    is_outer.then(|| last["id"].clone())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn sift(printed: &[u8]) -> (String, u64) {
        let stray = Arc::new(AtomicU64::new(0));
        let mut sieve = Sieve::new(printed, Arc::clone(&stray), CancellationToken::new());
        let mut read = String::new();
        sieve.read_to_string(&mut read).await.unwrap();
        (read, stray.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn only_messages_come_through_and_the_rest_is_counted() {
        let table = [
            ("", "", 0),
            ("{\"jsonrpc\":\"2.0\"}\n", "{\"jsonrpc\":\"2.0\"}\n", 0),
            ("hello\n\n{\"jsonrpc\":1}\n{\"level\":\"info\"}\n", "{\"jsonrpc\":1}\n", 2),
            ("{\"id\":1,\"jsonrpc\":\"2.0\"}\r\n \n", "{\"id\":1,\"jsonrpc\":\"2.0\"}\r\n", 0),
            ("\u{fffd}\u{1b}[1mready\n", "", 1),
            ("no end of a line {\"jsonrpc\"", "", 0),
        ];
        for (printed, expected, stray) in table {
            assert_eq!(sift(printed.as_bytes()).await, (expected.to_owned(), stray), "{printed}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_becomes_an_error_and_the_next_one_is_heard() {
        let long = "x".repeat(MOST);
        let next = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";
        for line in [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{long}\"}}\n"),
            format!("{{\"result\":{{\"id\":3,\"x\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\n"),
        ] {
            let (read, stray) = sift(format!("{line}{next}").as_bytes()).await;
            let (first, rest) = read.split_once('\n').unwrap();
            let first: Value = serde_json::from_str(first).unwrap();
            assert_eq!((&first["id"], first["error"]["code"].as_i64()), (&json!(7), Some(-32603)));
            assert_eq!((rest, stray), (next, 0));
        }
    }
}
