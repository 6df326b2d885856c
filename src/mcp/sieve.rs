//! What a program prints → the lines that are messages. Programs print other things too: greetings,
//! logs, what a library thinks of them. That is left out and counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use memchr::{memchr, memmem};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::line::{self, LOOK, Line};

/// Bytes of the longest message.
pub(super) const MOST: usize = 32 * 1024 * 1024;
/// Bytes of memory that are kept for the next line.
pub(super) const SPARE: usize = 64 * 1024;
/// After so many lines that are no answers there is a pause: each is work for us, and may be an
/// answer to be sent. It lasts as long as the program does not read.
const BURST: usize = 4096;
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the messages of a program, a line each.
pub(super) struct Sieve<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    /// The line is longer than any message.
    is_long: bool,
    /// A whole line that is being read from us, as far as it has been.
    given: Option<usize>,
    /// Lines since the last pause that are no answers.
    news: usize,
    pause: Option<Pin<Box<Sleep>>>,
    stray: Arc<AtomicU64>,
    stuck: Arc<AtomicBool>,
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
            news: 0,
            pause: None,
            stray,
            stuck: Arc::default(),
            _gone: gone.drop_guard(),
        }
    }

    /// Whether the program does not read what it is sent: to be kept by the [`Spout`].
    pub(super) fn stuck(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stuck)
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
            let why =
                format!("The answer is longer than {} MiB and was dropped", MOST / 1024 / 1024);
            self.line = line::refusal(&self.line, &why).unwrap_or_default();
        } else if memmem::find(&self.line, b"\"jsonrpc\"").is_none() {
            let is_blank = self.line.iter().all(u8::is_ascii_whitespace);
            self.stray.fetch_add(u64::from(!is_blank), Ordering::Relaxed);
            self.line.clear();
            self.count();
        } else {
            match line::look(&self.line) {
                Line::Answer => {}
                Line::News => self.count(),
                Line::Instead(line) => self.line = line,
            }
        }
        self.given = (!self.line.is_empty()).then_some(0);
    }

    fn count(&mut self) {
        self.news += 1;
        if self.news == BURST {
            self.news = 0;
            self.pause = Some(Box::pin(sleep(PAUSE)));
        }
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
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                let is_stuck = this.stuck.load(Ordering::Relaxed);
                this.pause = is_stuck.then(|| Box::pin(sleep(PAUSE)));
                continue;
            }
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

/// What a program reads. Knows whether it does.
pub(super) struct Spout<W> {
    to: W,
    stuck: Arc<AtomicBool>,
}

impl<W: AsyncWrite + Unpin> Spout<W> {
    /// `stuck` is true as long as the program does not read.
    pub(super) fn new(to: W, stuck: Arc<AtomicBool>) -> Spout<W> {
        Spout { to, stuck }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Spout<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.to).poll_write(context, bytes);
        self.stuck.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

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
            (
                "{\"id\":1,\"result\":0,\"jsonrpc\":\"2.0\"}\r\n \n",
                "{\"id\":1,\"result\":0,\"jsonrpc\":\"2.0\"}\r\n",
                0,
            ),
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

    #[tokio::test]
    async fn a_program_that_asks_and_does_not_read_is_not_heard_for_so_long() {
        let printed = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n".repeat(3 * BURST);
        let mut sieve = Sieve::new(printed.as_bytes(), Arc::default(), CancellationToken::new());
        sieve.stuck().store(true, Ordering::Relaxed);
        let mut read = Vec::new();
        let reading = timeout(3 * PAUSE, sieve.read_to_end(&mut read)).await;
        assert!(reading.is_err() && read.len() == printed.len() / 3, "{}", read.len());
        sieve.stuck().store(false, Ordering::Relaxed);
        sieve.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, printed.as_bytes());
    }
}
