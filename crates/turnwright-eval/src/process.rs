//! Runs one program to its end: with a limit of time, bounded output, and an end of all that it has started.

use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use turnwright_workspace::exec::{PipedProgram, ProcessGroup, RunningCommand};

/// At least as many bytes are kept of the end of an output, and at most twice as many.
const KEPT_BYTES: usize = 64 * 1024;
/// The time that a program gets to end after it was told to.
const GRACE: Duration = Duration::from_secs(3);

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
    let ending = async {
        let end = tokio::select! {
            exit = group.wait_for_end() => ProgramEnd::Exited(exit.code()),
            () = tokio::time::sleep(time) => ProgramEnd::Stopped,
            () = stop.cancelled() => ProgramEnd::Stopped,
        };
        group.stop(GRACE).await;
        end
    };
    let (end, printed, messages) = pipes.talk(input, ending, keep_end).await;
    let [stdout, stderr] =
        [printed, messages].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Finished { end, stdout, stderr })
}

/// Adds output to what is kept, which is the last of it.
fn keep_end(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    if kept.len() > 2 * KEPT_BYTES {
        kept.drain(..kept.len() - KEPT_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let mut kept = Vec::new();
        let long = ["x".repeat(50 * KEPT_BYTES), " end".to_owned()].concat();
        for bytes in long.as_bytes().chunks(16 * 1024) {
            keep_end(&mut kept, bytes);
        }
        assert!(kept.len() >= KEPT_BYTES && kept.len() <= 2 * KEPT_BYTES);
        assert!(kept.ends_with(b"x end"));
    }
}
