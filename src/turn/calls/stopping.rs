//! Work for calls that a cancel ends.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::tools::{ToolCtx, ToolOutcome};
use turnwright_types::refusal::ToolRefusal;

/// The longest time that a tool with side effects may take to stop after a cancel.
const GRACE: Duration = Duration::from_secs(2);

/// Runs `work` until the token is cancelled, and does not poll it once more after that: withdrawing
/// one question must not let the next one start.
pub(super) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        done = work => Some(done),
    }
}

/// Waits for the outcome of a tool that runs, or until a cancel has ended it. One that only reads is dropped at once.
pub(super) async fn wait_for_outcome(
    running: impl Future<Output = Result<ToolOutcome, ToolRefusal>>,
    ctx: &ToolCtx,
    reads_only: bool,
    runs_calls: bool,
) -> ToolOutcome {
    let outcome = if reads_only && !runs_calls {
        unless_cancelled(&ctx.cancel, running).await
    } else {
        // A call with side effects is notified of the cancel and awaited; dropping it is the
        // last resort. One that runs other calls ends after the last of these.
        let grace = if runs_calls { 2 * GRACE } else { GRACE };
        tokio::select! {
            biased;
            outcome = running => Some(outcome),
            () = grace_elapsed(&ctx.cancel, grace) => None,
        }
    };
    match outcome {
        Some(Ok(outcome)) => outcome,
        Some(Err(refusal)) => ToolOutcome::failed(refusal),
        None => ToolOutcome::failed(ToolRefusal::cancelled("Cancelled by the user.")),
    }
}

async fn grace_elapsed(cancel: &CancellationToken, grace: Duration) {
    cancel.cancelled().await;
    tokio::time::sleep(grace).await;
}
