//! Runs one program to its end: with a limit of time, bounded output, and an end of all that it has started.

use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use turnwright_workspace::exec::{PipedProgram, ProcessGroup, ProcessPipes, RunningCommand};

/// At least as many bytes are kept of the end of an output, and at most twice as many.
const KEPT_BYTES: usize = 64 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The time that a program gets to end after it was told to.
const GRACE: Duration = Duration::from_secs(3);
/// The time for which output is still read after the program has ended.
const DRAIN: Duration = Duration::from_millis(200);

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    /// With this exit code; `None` if a signal has ended it.
    Exited(Option<i32>),
    /// By its limit of time, or by the user.
    Stopped,
}

/// A program that has ended, with the end of its output.
pub(crate) struct Finished {
    pub(crate) end: ProgramEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The last line that it has printed which is not empty, of its messages or else of its output.
    pub(crate) fn last_words(&self) -> &str {
        let lines = self.stdout.lines().chain(self.stderr.lines());
        lines.map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
    }
}

/// Runs a program with this input for at most this time, and ends all that it has started.
pub(crate) async fn run(
    program: &PipedProgram,
    input: &[u8],
    time: Duration,
    stop: &CancellationToken,
) -> io::Result<Finished> {
    let (mut group, pipes) = ProcessGroup::start_piped(program).await?;
    let ProcessPipes { mut stdin, stdout, stderr } = pipes;
    let mut printed = Vec::new();
    let mut messages = Vec::new();
    let end = {
        let talking = pin!(async {
            let writing = async move {
                // It may end without having read everything.
                stdin.write_all(input).await.ok();
            };
            let reading = collect(stdout, &mut printed);
            tokio::join!(writing, reading, collect(stderr, &mut messages));
        });
        let ending = pin!(async {
            let end = tokio::select! {
                exit = group.wait_for_end() => ProgramEnd::Exited(exit.code()),
                () = tokio::time::sleep(time) => ProgramEnd::Stopped,
                () = stop.cancelled() => ProgramEnd::Stopped,
            };
            group.stop(GRACE).await;
            end
        });
        match select(talking, ending).await {
            Either::Left(((), ending)) => ending.await,
            Either::Right((end, talking)) => {
                // A process that it has left running would hold the pipes open.
                tokio::time::timeout(DRAIN, talking).await.ok();
                end
            }
        }
    };
    let [stdout, stderr] =
        [printed, messages].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Finished { end, stdout, stderr })
}

/// Reads a stream to its end, so that whoever writes to it is never blocked, and keeps the last of it.
async fn collect(mut stream: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * KEPT_BYTES {
            kept.drain(..kept.len() - KEPT_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_a_long_output_the_end_is_kept() {
        let mut kept = Vec::new();
        let long = ["x".repeat(50 * KEPT_BYTES), " end".to_owned()].concat();
        collect(long.as_bytes(), &mut kept).await;
        assert!(kept.len() >= KEPT_BYTES && kept.len() <= 2 * KEPT_BYTES);
        assert!(kept.ends_with(b"x end"));
    }
}
