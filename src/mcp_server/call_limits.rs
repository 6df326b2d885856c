//! Limits how many calls a client may make per second and at the same time.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The sustained rate of calls.
const CALLS_PER_SECOND: f64 = 20.0;
/// Maximum number of calls that may arrive at once after a pause.
const MAX_BURST: f64 = 40.0;
/// Maximum number of calls that wait or run at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The delay to suggest to a client while too many calls run.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A token bucket for the rate, and a semaphore for the number of concurrent calls.
#[derive(Debug)]
pub(super) struct CallLimits {
    // Held only for one addition.
    bucket: Mutex<TokenBucket>,
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
struct TokenBucket {
    /// Calls that may be made now.
    calls: f64,
    refilled_at: Instant,
}

/// The limit that a call exceeds, with the delay after which to try again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LimitExceeded {
    #[error("Too many calls: at most {CALLS_PER_SECOND} a second")]
    Rate(Duration),
    #[error("Too many calls at the same time: at most {MAX_CONCURRENT_CALLS}")]
    Concurrency(Duration),
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        let bucket = Mutex::new(TokenBucket { calls: MAX_BURST, refilled_at: Instant::now() });
        CallLimits { bucket, slots: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)) }
    }
}

impl CallLimits {
    /// Admits one call, which counts as running until the permit is dropped.
    pub(super) fn acquire(&self) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        let slots = Arc::clone(&self.slots);
        let permit =
            slots.try_acquire_owned().map_err(|_| LimitExceeded::Concurrency(BUSY_RETRY_DELAY))?;
        let mut bucket = self.bucket.lock();
        bucket.take(Instant::now()).map_err(LimitExceeded::Rate)?;
        Ok(permit)
    }
}

impl TokenBucket {
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.calls = (self.calls + elapsed * CALLS_PER_SECOND).min(MAX_BURST);
        self.refilled_at = now;
        if self.calls < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.calls) / CALLS_PER_SECOND));
        }
        self.calls -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_calls_are_limited_to_the_rate() {
        let begin = Instant::now();
        let mut bucket = TokenBucket { calls: MAX_BURST, refilled_at: begin };
        let taken = (0..100).filter(|_| bucket.take(begin).is_ok()).count();
        assert_eq!(taken, 40);
        assert_eq!(bucket.take(begin), Err(Duration::from_millis(50)));
        let later = begin + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(later).is_ok()).count(), 20);
    }

    #[test]
    fn concurrent_calls_are_limited() {
        let limits = CallLimits::default();
        let permits: Vec<_> =
            (0..MAX_CONCURRENT_CALLS).map(|_| limits.acquire().unwrap()).collect();
        assert_eq!(limits.acquire().unwrap_err(), LimitExceeded::Concurrency(BUSY_RETRY_DELAY));
        drop(permits);
        drop(limits.acquire().unwrap());
    }
}
