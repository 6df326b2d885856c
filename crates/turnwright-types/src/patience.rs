//! Time-outs that look once more if this process was stopped when they came: by a signal, a debugger or a
//! machine that was suspended. The clock went on, and what has arrived meanwhile was not looked at yet.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Nobody has waited for a timer that comes this late.
const LATE: Duration = Duration::from_secs(2);
/// The time for noticing events that came while the process was stopped.
const SECOND_LOOK: Duration = Duration::from_secs(2);

/// The time was up before the work was done.
#[derive(Debug)]
pub struct TimeIsUp;

/// Waits until this moment, and a little longer if the process was stopped when it came.
pub async fn sleep_until(due: Instant) {
    tokio::time::sleep_until(due).await;
    if due.elapsed() >= LATE {
        sleep(SECOND_LOOK).await;
    }
}

/// Does the work, unless it takes longer than this.
///
/// # Errors
/// If the time is up.
pub async fn timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, TimeIsUp> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = sleep_until(Instant::now() + limit) => Err(TimeIsUp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happened_while_the_process_was_stopped_is_noticed() {
        for (stopped, is_noticed) in [(0, false), (1, false), (60, true)] {
            let work = sleep(Duration::from_millis(10_500 + stopped * 1_000));
            let waiting = timeout(Duration::from_secs(10), work);
            tokio::pin!(waiting);
            assert!(futures_util::poll!(&mut waiting).is_pending());
            // Both timers come at once, and only that of the time-out is looked at.
            tokio::time::advance(Duration::from_secs(10 + stopped)).await;
            assert_eq!(waiting.await.is_ok(), is_noticed, "{stopped}");
        }
    }
}
