//! Shell commands: started in a group of their own, with nothing of ours in their hands, heard
//! with bounded memory, and ended as a group on every path.

mod environment;
mod group;
mod output;
mod stray;
#[cfg(unix)]
mod watch;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

pub use environment::Environment;
pub use output::Output;

use group::Group;

/// How long a command may clean up after SIGTERM before its group is killed.
const GRACE: Duration = Duration::from_millis(200);
/// How long output is still taken after the command itself has ended: what it left in the pipe
/// is there at once, a background child that holds the pipe open may hold it for ever.
const DRAIN: Duration = Duration::from_millis(100);
/// How often news of a running command is passed on.
const NEWS: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The command line, for the shell.
    pub command: String,
    /// Where, absolute.
    pub workdir: PathBuf,
    /// How long at most.
    pub limit: Duration,
    /// The variables that it gets.
    pub environment: Environment,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It took too long.
    TimedOut,
    /// The user cancelled.
    Cancelled,
}

/// What came of it.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// What it printed, stdout and stderr in the order of their arrival.
    pub output: Output,
    /// How long it took.
    pub took: Duration,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
#[error("the command could not be started: {0}")]
pub struct StartError(#[from] std::io::Error);

/// Runs a command to its end. Dropping the future kills its group at once.
///
/// # Errors
/// When it did not start.
pub async fn run(
    spec: &Spec,
    cancel: &CancellationToken,
    mut news: impl FnMut(&Output) + Send,
) -> Result<Finished, StartError> {
    let begun = Instant::now();
    let mut group = Group::start(spec)?;
    let mut output = Output::default();
    let limit = tokio::time::sleep(spec.limit);
    tokio::pin!(limit);
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + NEWS, NEWS);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = 0;
    let ended = loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => break Ended::Cancelled,
            () = &mut limit => break Ended::TimedOut,
            _ = tick.tick(), if output.total() > told => {
                told = output.total();
                news(&output);
            }
            status = group.next(&mut output) => if let Some(status) = status? {
                break Ended::Exited(status);
            },
        }
    };
    if matches!(ended, Ended::Exited(_)) {
        drop(tokio::time::timeout(DRAIN, group.drain(&mut output)).await);
    }
    // After a normal exit too: what it has left running would hold our pipe, or just go on.
    group.stop(GRACE).await;
    let mark = group.mark().clone();
    // A thread that cannot be had is no reason to keep the result back.
    drop(tokio::task::spawn_blocking(move || mark.end_all()).await);
    drop(tokio::time::timeout(DRAIN, group.drain(&mut output)).await);
    Ok(Finished { ended, output, took: begun.elapsed() })
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
