//! A server's program that runs: its pipes, its end and its last words.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::sieve::{Sieve, Spout};
use super::start::{Prepared, Wanted};
use super::words::Words;
use turnwright_workspace::exec::{Exit, Piped};

/// How long a server may take to end by itself once its input is closed, and then after TERM. Both
/// together are less than the agent has for its own end.
const PATIENCE: Duration = Duration::from_millis(400);
const GRACE: Duration = Duration::from_millis(400);

/// A program that is talked to. Dropping it kills it with all that it has started.
#[derive(Debug)]
pub(super) struct Running {
    program: Piped,
    words: Words,
    /// Its output is read by nobody any more: it has closed that, or the protocol has given up.
    gone: CancellationToken,
    stray: Arc<AtomicU64>,
    temp: Option<TempDir>,
}

impl Running {
    /// Starts it. The pipes are for whoever speaks the protocol.
    ///
    /// # Errors
    /// Why it does not start, for people.
    pub(super) async fn start(
        wanted: Wanted,
    ) -> Result<(Running, Sieve<ChildStdout>, Spout<ChildStdin>), String> {
        let prepared = tokio::task::spawn_blocking(move || {
            // Nobody on the runtime's thread shall have to find that out.
            turnwright_sandbox::rooms();
            wanted.prepare()
        });
        let prepared = prepared.await.map_err(|_| "it could not be prepared".to_owned())?;
        let Prepared { program, temp } = prepared?;
        let (program, pipes) =
            Piped::start(&program).map_err(|error| format!("it could not be started: {error}"))?;
        let running = Running {
            program,
            words: Words::default(),
            gone: CancellationToken::new(),
            stray: Arc::default(),
            temp,
        };
        running.words.listen(pipes.stderr);
        let sieve = Sieve::new(pipes.stdout, Arc::clone(&running.stray), running.gone.clone());
        let spout = Spout::new(pipes.stdin, sieve.stuck());
        Ok((running, sieve, spout))
    }

    /// Waits for its end, and says how it came.
    pub(super) async fn ended(&mut self) -> String {
        let exit = tokio::select! {
            exit = self.program.ended() => Some(exit),
            () = self.gone.cancelled() => timeout(PATIENCE, self.program.ended()).await.ok(),
        };
        self.words.after(how(exit.as_ref())).await
    }

    /// What has happened, with its last words.
    pub(super) fn said(&self, what: String) -> String {
        self.words.with(what)
    }

    /// Counts the lines that it has printed and that are no messages.
    pub(super) fn stray(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.stray)
    }

    /// Ends it. Its input is closed by now.
    pub(super) async fn stop(self) {
        self.program.stop(PATIENCE, GRACE).await;
        if let Some(temp) = self.temp {
            drop(tokio::task::spawn_blocking(move || drop(temp)).await);
        }
    }
}

/// How it has ended; or it has not, and only closed its output.
fn how(exit: Option<&Exit>) -> String {
    match exit {
        Some(exit @ Exit::Code(_)) => format!("it ended ({exit})"),
        Some(Exit::Signal(name)) => format!("it was killed by {name}"),
        Some(Exit::Closed | Exit::Unknown) => "it ended".to_owned(),
        None => "it closed its output".to_owned(),
    }
}
