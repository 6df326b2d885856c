//! Runs one program to its end: with a limit of time, bounded output, and an end of all that it has started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, ProcessPipes, RunningCommand,
};

/// The bytes that are kept of the beginning of an output, and as many of its end.
const KEPT_BYTES: usize = 32 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The time that a program gets to end after it was told to.
const GRACE: Duration = Duration::from_secs(3);
/// The time for which output is still read after the program has ended.
const DRAIN: Duration = Duration::from_millis(200);

/// A program to run.
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    pub(crate) folder: PathBuf,
    pub(crate) environment: Environment,
    /// Its input.
    pub(crate) input: Vec<u8>,
    /// The longest time that it may take.
    pub(crate) time: Duration,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    /// With this exit code; `None` if a signal has ended it.
    Exited(Option<i32>),
    TimedOut,
    /// The user has stopped it.
    Stopped,
}

/// A program that has ended, with its output.
pub(crate) struct Finished {
    pub(crate) end: ProgramEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn is_success(&self) -> bool {
        self.end == ProgramEnd::Exited(Some(0))
    }

    /// The last line that it has printed which is not empty, of its messages or else of its output.
    pub(crate) fn last_words(&self) -> &str {
        let lines = self.stdout.lines().chain(self.stderr.lines());
        lines.map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
    }
}

/// Runs a program, and ends all that it has started.
pub(crate) async fn run(program: Program, stop: &CancellationToken) -> io::Result<Finished> {
    let Program { words, folder, environment, input, time } = program;
    let piped = PipedProgram { command_line: words, workdir: folder, environment, sandbox: None };
    let (mut group, pipes) = ProcessGroup::start_piped(&piped).await?;
    let ProcessPipes { mut stdin, stdout, stderr } = pipes;
    let mut printed = KeptOutput::default();
    let mut messages = KeptOutput::default();
    let end = {
        let conversation = async {
            let writing = async move {
                // It may end without having read everything.
                stdin.write_all(&input).await.ok();
            };
            let printing = collect(stdout, &mut printed);
            tokio::join!(writing, printing, collect(stderr, &mut messages));
        };
        let mut talking = pin!(conversation.fuse());
        let ended = {
            let mut ending = pin!(wait_for_end(&mut group, time, stop));
            loop {
                tokio::select! {
                    ended = &mut ending => break ended,
                    () = &mut talking => {}
                }
            }
        };
        // A process that it has left running would hold the pipes open.
        group.stop(GRACE).await;
        if !talking.is_terminated() {
            tokio::time::timeout(DRAIN, &mut talking).await.ok();
        }
        ended
    };
    Ok(Finished { end, stdout: printed.into_text(), stderr: messages.into_text() })
}

async fn wait_for_end(
    group: &mut ProcessGroup,
    time: Duration,
    stop: &CancellationToken,
) -> ProgramEnd {
    tokio::select! {
        exit = group.wait_for_end() => ProgramEnd::Exited(exit.code()),
        () = tokio::time::sleep(time) => ProgramEnd::TimedOut,
        () = stop.cancelled() => ProgramEnd::Stopped,
    }
}

/// Reads a stream to its end, so that whoever writes to it is never blocked.
async fn collect(mut stream: impl AsyncRead + Unpin, into: &mut KeptOutput) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        into.push(&buffer[..count]);
    }
}

/// The beginning and the end of an output.
#[derive(Default)]
struct KeptOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl KeptOutput {
    fn push(&mut self, bytes: &[u8]) {
        let first = bytes.len().min(KEPT_BYTES - self.head.len());
        self.head.extend_from_slice(&bytes[..first]);
        self.tail.extend(&bytes[first..]);
        let surplus = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..surplus);
        self.left_out += surplus as u64;
    }

    fn into_text(self) -> String {
        let mut bytes = self.head;
        if self.left_out > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes …]\n", self.left_out).as_bytes());
        }
        bytes.extend(self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_output_the_beginning_and_the_end_are_kept() {
        let mut kept = KeptOutput::default();
        kept.push(b"begin ");
        for _ in 0..1_000 {
            kept.push(&[b'x'; 1_000]);
        }
        kept.push(b" end");
        let text = kept.into_text();
        assert!(text.len() < 2 * KEPT_BYTES + 100);
        assert!(text.starts_with("begin x") && text.ends_with("x end"));
        let left_out = 1_000_010 - 2 * KEPT_BYTES;
        assert!(text.contains(&format!("[… {left_out} bytes …]")));
    }

    #[test]
    fn a_short_output_is_kept_as_it_is() {
        let mut kept = KeptOutput::default();
        kept.push("größe\n".as_bytes());
        assert_eq!(kept.into_text(), "größe\n");
    }
}
