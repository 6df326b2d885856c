//! Ends the work of calls when they are cancelled.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::tools::{ToolCtx, ToolOutcome};
use turnwright_types::refusal::ToolRefusal;

/// The longest time that a tool with side effects may take to stop after a cancel.
const GRACE: Duration = Duration::from_secs(2);

/// Runs `work` until the token is cancelled. Once it is, `work` is not polled again, because withdrawing one question
/// must not let the next one start.
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

/// Waits for the outcome of a running tool. On a cancel, a tool that only reads is dropped at once; others may finish
/// within a grace period.
pub(super) async fn wait_for_outcome(
    running: impl Future<Output = Result<ToolOutcome, ToolRefusal>>,
    ctx: &ToolCtx,
    reads_only: bool,
    runs_calls: bool,
) -> ToolOutcome {
    let outcome = if reads_only && !runs_calls {
        unless_cancelled(&ctx.cancel, running).await
    } else {
        // The tool sees the cancel as well and should end by itself; dropping it is the last resort. A tool that runs
        // other calls needs longer, because it ends after the last of them.
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

/// Waits until the token has been cancelled for this long.
pub(super) async fn grace_elapsed(cancel: &CancellationToken, grace: Duration) {
    cancel.cancelled().await;
    tokio::time::sleep(grace).await;
}
