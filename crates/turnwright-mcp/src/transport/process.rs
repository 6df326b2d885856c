//! The running process of a server: its pipes, its exit, and the end of its stderr, which is added to error
//! messages: bounded, without API keys and without control characters.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::pipes::{MessageReader, MessageWriter};
use super::program_setup::{PreparedProgram, ProgramRequest};
use turnwright_types::effect::escape_hidden;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;
use turnwright_types::text::{self, format_bytes};
use turnwright_workspace::exec::{CommandExit, PipedProcess, ProgramActivity};
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
    program: PipedProcess,
    stderr: StderrTail,
    /// Cancelled when its stdout is no longer read, because the process closed it or its connection was closed.
    gone: CancellationToken,
    temp_folder: Option<PrivateTempFolder>,
    /// How many bytes it holds with all that it has started, once that is more than they may.
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
    ) -> Result<(ServerProcess, MessageReader<ChildStdout>, MessageWriter<ChildStdin>), String>
    {
        let limit = request.env.memory;
        let prepared = spawn_blocking(move || {
            // Probed here because the first call blocks.
            turnwright_sandbox::namespace_support();
            request.prepare()
        });
        let prepared = prepared.await.map_err(|_| "it could not be prepared".to_owned())?;
        let PreparedProgram { program, temp_folder } = prepared?;
        let is_confined = program.sandbox.is_some();
        let (program, pipes) = PipedProcess::start(&program)
            .await
            .map_err(|error| format!("it could not be started: {}", io_error_text(&error)))?;
        program.observe(activity);
        let limit = limit.filter(|_| is_confined);
        let running = ServerProcess {
            memory_excess: program.memory_above(limit).boxed().shared(),
            program,
            stderr: StderrTail::of(pipes.stderr),
            gone: CancellationToken::new(),
            temp_folder,
        };
        let reader = MessageReader::new(pipes.stdout, running.gone.clone());
        let writer = MessageWriter::new(pipes.stdin, reader.stdin_is_blocked());
        Ok((running, reader, writer))
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
        self.stderr.append_final_to(describe_exit(exit.as_ref())).await
    }

    /// Waits until it holds more memory than it may. Then [`ended`](Self::ended) says so, and it must be stopped.
    pub(crate) async fn memory_exceeded(&self) {
        self.memory_excess.clone().await;
    }

    /// Adds the end of its stderr to a message.
    pub(crate) fn with_stderr(&self, what: String) -> String {
        self.stderr.append_to(what)
    }

    /// Ends the process. Its stdin must be closed already.
    pub(crate) async fn stop(self) {
        self.stop_within(KILL_TIMEOUT).await;
    }

    /// Ends a process that has not become a server, and may be downloading one.
    pub(crate) async fn stop_starting(self, may_download: bool) {
        self.stop_within(if may_download { DOWNLOAD_KILL_TIMEOUT } else { KILL_TIMEOUT }).await;
    }

    async fn stop_within(self, kill_timeout: Duration) {
        self.program.stop(EXIT_TIMEOUT, kill_timeout).await;
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

/// The last bytes that a process wrote to stderr. The channel is closed with the pipe.
#[derive(Debug)]
struct StderrTail(watch::Receiver<Vec<u8>>);

impl StderrTail {
    /// Reads the pipe until it is closed.
    #[expect(clippy::disallowed_methods, reason = "ends with the program, which is waited for")]
    fn of(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> StderrTail {
        let (sender, tail) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut buffer = vec![0; READ_BUFFER_BYTES];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                sender.send_modify(|kept| keep_last(kept, &buffer[..count]));
            }
        });
        StderrTail(tail)
    }

    /// Adds the stderr of a process that has ended to a message, after waiting briefly for its rest.
    async fn append_final_to(&self, message: String) -> String {
        let mut tail = self.0.clone();
        let until_closed = async { while tail.changed().await.is_ok() {} };
        timeout(DRAIN_TIMEOUT, until_closed).await.ok();
        self.append_to(message)
    }

    /// Adds the stderr so far to a message.
    fn append_to(&self, message: String) -> String {
        let bytes = self.0.borrow().clone();
        match display_tail(&bytes).as_str() {
            "" => message,
            tail => format!("{message}. It printed: {tail}"),
        }
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
        let mut kept = Vec::new();
        for _ in 0..100 {
            keep_last(&mut kept, "ü".repeat(1000).as_bytes());
        }
        assert!(kept.len() <= KEPT_BYTES);
        let (_, tail) = watch::channel(kept);
        let long = StderrTail(tail).append_to("it ended".to_owned());
        assert!(
            long.starts_with("it ended. It printed: … ü") && long.len() < SHOWN_BYTES + 40,
            "{long}"
        );
    }
}
