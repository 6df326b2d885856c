//! The running process of a server: its pipes, its exit, and the end of its stderr, which is added to error
//! messages: bounded, without API keys and without control characters. Its messages are one a line, over its stdin
//! and stdout. Lines that are not messages, such as greetings and logs, are skipped and counted.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use memchr::{memchr, memmem};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::line::{self, SCAN_BYTES};
use super::program_setup::ProgramRequest;
use super::{Channel, Peer};
use crate::call::server_requests::ServerMessageHandler;
use turnwright_rpc::{Outbox, OutboxDrain, message_queue};
use turnwright_types::effect::escape_hidden;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;
use turnwright_types::text::{self, format_bytes};
use turnwright_workspace::exec::{CommandExit, ProcessGroup, ProgramActivity};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// How long a server may take to exit after its stdin is closed, and then after SIGTERM. Together they
/// must be less than the agent's own shutdown timeout.
const EXIT_TIMEOUT: Duration = Duration::from_millis(400);
const KILL_TIMEOUT: Duration = Duration::from_millis(400);
/// How long a download may take to clean up after SIGTERM. A cache that is left incomplete by a kill can
/// break each later start. At the end of the agent there is less time.
const DOWNLOAD_KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are kept: many more than are shown, so that a key is never cut before it is redacted.
const KEPT_BYTES: usize = 8 * 1024;
/// Bytes that are shown.
const SHOWN_BYTES: usize = 1024;
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// The wait for the rest of the output after the process has ended. Its own children may hold
/// the pipe open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The process of a server. Dropping it kills the process and everything that it has started.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    program: ProcessGroup,
    /// The last bytes that it wrote to stderr. The channel is closed with the pipe.
    stderr: watch::Receiver<Vec<u8>>,
    /// Cancelled when its stdout is no longer read, because the process closed it or its connection was closed.
    gone: CancellationToken,
    temp_folder: Option<PrivateTempFolder>,
    /// The bytes that it holds with all that it has started, once that is more than they may.
    memory_excess: Shared<BoxFuture<'static, u64>>,
}

impl ServerProcess {
    /// Starts the process, and returns it with its pipes.
    ///
    /// # Errors
    /// If it cannot be started; the text is for the user.
    pub(crate) async fn start(
        request: ProgramRequest,
        activity: &ProgramActivity,
    ) -> Result<(ServerProcess, MessageReader<ChildStdout>, ChildStdin), String> {
        let limit = request.env.memory;
        let prepared = spawn_blocking(move || {
            // Probed here because the first call blocks.
            turnwright_sandbox::namespace_support();
            request.prepare()
        });
        let prepared = prepared.await.map_err(|_| "it could not be prepared".to_owned())?;
        let (program, temp_folder) = prepared?;
        let is_confined = program.sandbox.is_some();
        let (program, pipes) = ProcessGroup::start_piped(&program)
            .await
            .map_err(|error| format!("it could not be started: {}", io_error_text(&error)))?;
        program.observe(activity);
        let limit = limit.filter(|_| is_confined);
        let running = ServerProcess {
            memory_excess: program.memory_above(limit).boxed().shared(),
            program,
            stderr: keep_tail(pipes.stderr),
            gone: CancellationToken::new(),
            temp_folder,
        };
        let reader = MessageReader::new(pipes.stdout, running.gone.clone());
        Ok((running, reader, pipes.stdin))
    }

    /// Waits for the process to end, and describes how it ended.
    pub(crate) async fn ended(&mut self) -> String {
        let exit = tokio::select! {
            bytes = self.memory_excess.clone() => {
                let held = format_bytes(bytes);
                return format!(
                    "it held {held} of memory, more than it may (`memory_mb` of the sandbox)"
                );
            }
            exit = self.program.wait_for_end() => Some(exit),
            () = self.gone.cancelled() => timeout(EXIT_TIMEOUT, self.program.wait_for_end()).await.ok(),
        };
        // The rest of stderr may still be on its way.
        let until_closed = async { while self.stderr.changed().await.is_ok() {} };
        timeout(DRAIN_TIMEOUT, until_closed).await.ok();
        self.with_stderr(describe_exit(exit.as_ref()))
    }

    /// Waits until it holds more memory than it may. Then [`ended`](Self::ended) says so, and it must be stopped.
    pub(crate) async fn memory_exceeded(&self) {
        self.memory_excess.clone().await;
    }

    /// Adds the end of its stderr to a message.
    pub(crate) fn with_stderr(&self, message: String) -> String {
        with_tail(message, &self.stderr.borrow())
    }

    /// Ends the process, which may still be downloading a server. Its stdin must be closed already.
    pub(crate) async fn stop(self, may_download: bool) {
        let kill_timeout = if may_download { DOWNLOAD_KILL_TIMEOUT } else { KILL_TIMEOUT };
        self.program.stop_after(EXIT_TIMEOUT, kill_timeout).await;
        if let Some(folder) = self.temp_folder {
            spawn_blocking(move || drop(folder)).await.ok();
        }
    }
}

/// Describes an exit; `None` if the process has only closed its stdout.
fn describe_exit(exit: Option<&CommandExit>) -> String {
    match exit {
        Some(exit @ CommandExit::Code(_)) => format!("it ended ({exit})"),
        Some(CommandExit::Signal(name)) => format!("it was killed by {name}"),
        Some(CommandExit::TerminalClosed | CommandExit::Unknown) => "it ended".to_owned(),
        None => "it closed its output".to_owned(),
    }
}

/// Reads a pipe until it is closed, and keeps its last bytes.
#[expect(clippy::disallowed_methods, reason = "ends with the program, which is waited for")]
fn keep_tail(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> watch::Receiver<Vec<u8>> {
    let (sender, tail) = watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            sender.send_modify(|kept| keep_last(kept, &buffer[..count]));
        }
    });
    tail
}

/// Adds the end of stderr to a message.
fn with_tail(message: String, stderr: &[u8]) -> String {
    match display_tail(stderr).as_str() {
        "" => message,
        tail => format!("{message}. It printed: {tail}"),
    }
}

/// Appends bytes and drops the oldest ones above [`KEPT_BYTES`].
fn keep_last(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    let surplus = kept.len().saturating_sub(KEPT_BYTES);
    kept.drain(..surplus);
}

fn display_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let redacted = redact::text(&text);
    let shown = redacted.trim();
    let end = text::suffix(shown, SHOWN_BYTES);
    let ellipsis = if end.len() < shown.len() { "… " } else { "" };
    format!("{ellipsis}{}", escape_hidden(end))
}

/// Maximum size of a message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// The error for a response that is longer.
pub(crate) const TOO_LONG: &str = "The response is longer than 32 MiB and was dropped";
/// The part of the buffer that is kept for the next line.
const RETAINED_BYTES: usize = 64 * 1024;
/// After this many lines that are not responses, reading pauses, because each such line costs work and
/// may need a response.
const MAX_BURST: usize = 4096;
/// The length of a pause in reading. It pauses again while the process does not read its stdin.
const BURST_PAUSE: Duration = Duration::from_millis(100);

/// Connects to a process. The task of the connection ends when the process closes one of its pipes, or
/// when the peer is closed and everything is written. Dropping the set ends it at once.
pub(crate) fn connect(
    output: MessageReader<impl AsyncRead + Unpin + Send + 'static>,
    input: impl AsyncWrite + Unpin + Send + 'static,
    handler: ServerMessageHandler,
) -> (Peer, JoinSet<()>) {
    let (outbox, drain) = message_queue(|_, _| None, None);
    let peer = Peer::new(Channel::Pipes(outbox.clone()), handler);
    let mut tasks = JoinSet::new();
    let reader = peer.clone();
    let is_blocked = Arc::clone(&output.stdin_is_blocked);
    tasks.spawn(async move {
        tokio::select! {
            () = read(output, outbox, &reader) => {}
            () = write(drain, input, &is_blocked) => {}
        }
        reader.close();
    });
    (peer, tasks)
}

async fn read<R: AsyncRead + Unpin>(mut output: MessageReader<R>, outbox: Outbox, peer: &Peer) {
    loop {
        // No more is read from a server that does not read our responses.
        outbox.wait_for_read_capacity().await;
        match output.next().await {
            Ok(Some(line)) => peer.receive(line).await,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "the output of a server cannot be read"),
        }
    }
}

/// Writes the messages. While the process does not read them, `is_blocked` is true.
async fn write<W: AsyncWrite + Unpin>(
    mut drain: OutboxDrain,
    mut input: W,
    is_blocked: &AtomicBool,
) {
    while let Some(messages) = drain.next().await {
        let mut writing = pin!(input.write_all(messages));
        let written = poll_fn(|context| {
            let polled = writing.as_mut().poll(context);
            is_blocked.store(polled.is_pending(), Ordering::Relaxed);
            polled
        });
        if let Err(error) = written.await {
            return tracing::debug!(%error, "a server has closed its input");
        }
    }
}

/// Reads the messages that a process prints, one per line.
pub(crate) struct MessageReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// The messages of a batch that are still to be read, the last first.
    batch: Vec<Vec<u8>>,
    /// The line exceeds [`MAX_MESSAGE_BYTES`]; only its beginning and end are kept.
    is_long: bool,
    /// Lines since the last pause that are not responses.
    other_lines: usize,
    is_paused: bool,
    /// True while the process does not read its input.
    stdin_is_blocked: Arc<AtomicBool>,
    _drop_guard: DropGuard,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// Creates a reader. `on_drop` is cancelled when it is dropped.
    pub(crate) fn new(input: R, on_drop: CancellationToken) -> MessageReader<R> {
        MessageReader {
            input: BufReader::new(input),
            line: Vec::new(),
            batch: Vec::new(),
            is_long: false,
            other_lines: 0,
            is_paused: false,
            stdin_is_blocked: Arc::default(),
            _drop_guard: on_drop.drop_guard(),
        }
    }

    /// Keeps the beginning and the end of a line that is too long.
    fn limit_line(&mut self) {
        if self.line.len() > MAX_MESSAGE_BYTES || self.is_long && self.line.len() > 4 * SCAN_BYTES {
            self.is_long = true;
            // Its beginning and end suffice to find the id.
            let tail_start = self.line.len() - SCAN_BYTES;
            self.line.drain(SCAN_BYTES.min(tail_start)..tail_start);
        }
    }

    /// Handles a complete line. Returns true if it is a message.
    fn finish_line(&mut self) -> bool {
        if std::mem::take(&mut self.is_long) {
            self.line = line::error_in_place_of(&self.line, TOO_LONG).unwrap_or_default();
        } else if memmem::find(&self.line, b"\"jsonrpc\"").is_none() {
            self.line.clear();
            self.count_non_response();
        } else if let Some(messages) = line::batch(&self.line) {
            self.batch =
                messages.iter().rev().map(|message| message.get().as_bytes().to_vec()).collect();
            self.line.clear();
        } else {
            self.line.drain(..line::message_start(&self.line));
            match line::response(&self.line) {
                Some(Cow::Borrowed(_)) => {}
                Some(Cow::Owned(replacement)) => self.line = replacement,
                None => self.count_non_response(),
            }
        }
        !self.line.is_empty()
    }

    fn count_non_response(&mut self) {
        self.other_lines += 1;
        if self.other_lines == MAX_BURST {
            self.other_lines = 0;
            self.is_paused = true;
        }
    }

    /// Reads the next message. Returns `None` when the process has closed its output.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        self.line.shrink_to(RETAINED_BYTES);
        loop {
            while self.is_paused {
                sleep(BURST_PAUSE).await;
                self.is_paused = self.stdin_is_blocked.load(Ordering::Relaxed);
            }
            if let Some(message) = self.batch.pop() {
                self.line = message;
                if self.finish_line() {
                    return Ok(Some(&self.line));
                }
                continue;
            }
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = memchr(b'\n', bytes).map(|index| index + 1);
            let count = end.unwrap_or(bytes.len());
            self.line.extend_from_slice(&bytes[..count]);
            self.input.consume(count);
            self.limit_line();
            if end.is_some() && self.finish_line() {
                return Ok(Some(&self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        let mut kept = Vec::new();
        for _ in 0..100 {
            keep_last(&mut kept, "ü".repeat(1000).as_bytes());
        }
        assert!(kept.len() <= KEPT_BYTES);
        let long = with_tail("it ended".to_owned(), &kept);
        assert!(
            long.starts_with("it ended. It printed: … ü") && long.len() < SHOWN_BYTES + 40,
            "{long}"
        );
    }

    async fn read_into(reader: &mut MessageReader<&[u8]>, read: &mut Vec<u8>) {
        while let Some(line) = reader.next().await.unwrap() {
            read.extend_from_slice(line);
        }
    }

    async fn read_all(printed: &[u8]) -> String {
        let mut reader = MessageReader::new(printed, CancellationToken::new());
        let mut read = Vec::new();
        read_into(&mut reader, &mut read).await;
        String::from_utf8(read).unwrap()
    }

    #[tokio::test]
    async fn lines_that_are_not_messages_are_skipped() {
        let table = [
            ("", ""),
            ("{\"jsonrpc\":\"2.0\"}\n", "{\"jsonrpc\":\"2.0\"}\n"),
            ("hello\n\n{\"jsonrpc\":1}\n{\"level\":\"info\"}\n", "{\"jsonrpc\":1}\n"),
            (
                "{\"id\":1,\"result\":0,\"jsonrpc\":\"2.0\"}\r\n \n",
                "{\"id\":1,\"result\":0,\"jsonrpc\":\"2.0\"}\r\n",
            ),
            ("\u{fffd}\u{1b}[1mready\n", ""),
            ("no end of a line {\"jsonrpc\"", ""),
        ];
        for (printed, expected) in table {
            assert_eq!(read_all(printed.as_bytes()).await, expected, "{printed}");
        }
    }

    #[tokio::test]
    async fn a_response_that_is_too_long_becomes_an_error_and_the_next_one_is_read() {
        let long = "x".repeat(MAX_MESSAGE_BYTES);
        let next = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";
        for line in [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{long}\"}}\n"),
            format!("{{\"result\":{{\"id\":3,\"x\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\n"),
        ] {
            let read = read_all(format!("{line}{next}").as_bytes()).await;
            let (first, rest) = read.split_once('\n').unwrap();
            let first: Value = serde_json::from_str(first).unwrap();
            assert_eq!((&first["id"], first["error"]["code"].as_i64()), (&json!(7), Some(-32603)));
            assert_eq!(rest, next);
        }
    }

    #[tokio::test]
    async fn reading_pauses_while_a_process_sends_requests_without_reading() {
        let printed = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n".repeat(3 * MAX_BURST);
        let mut reader = MessageReader::new(printed.as_bytes(), CancellationToken::new());
        reader.stdin_is_blocked.store(true, Ordering::Relaxed);
        let mut read = Vec::new();
        let reading = timeout(3 * BURST_PAUSE, read_into(&mut reader, &mut read)).await;
        assert!(reading.is_err() && read.len() == printed.len() / 3, "{}", read.len());
        reader.stdin_is_blocked.store(false, Ordering::Relaxed);
        read_into(&mut reader, &mut read).await;
        assert_eq!(read, printed.as_bytes());
    }
}
