//! How many calls a client may make: so many a second, so many at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Calls a second, for as long as anybody likes.
const A_SECOND: f64 = 20.0;
/// Calls that may come at once after a pause.
const BURST: f64 = 40.0;
/// Calls that wait or run at the same time.
const AT_A_TIME: usize = 16;
/// When it makes sense to come back while too many run.
const WHEN_BUSY: Duration = Duration::from_secs(1);

/// A bucket that fills as time goes by, and a number of places.
#[derive(Debug)]
pub(super) struct Limits {
    // A std mutex: held for one addition.
    bucket: Mutex<Bucket>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Bucket {
    calls: f64,
    at: Instant,
}

/// Why a call is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    /// They come too fast.
    TooFast(Duration),
    /// Too many of them are at work.
    AtWork(Duration),
}

impl Default for Limits {
    fn default() -> Limits {
        let bucket = Mutex::new(Bucket { calls: BURST, at: Instant::now() });
        Limits { bucket, places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }
}

impl Limits {
    /// Takes a place for one call, which is free again when that is dropped.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, TooMany> {
        let place = Arc::clone(&self.places);
        let place = place.try_acquire_owned().map_err(|_| TooMany::AtWork(WHEN_BUSY))?;
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(Instant::now()).map_err(TooMany::TooFast)?;
        Ok(place)
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.calls = (self.calls + passed * A_SECOND).min(BURST);
        self.at = now;
        if self.calls < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.calls) / A_SECOND));
        }
        self.calls -= 1.0;
        Ok(())
    }
}

impl TooMany {
    /// When to try again.
    pub(super) fn wait(&self) -> Duration {
        let (TooMany::TooFast(wait) | TooMany::AtWork(wait)) = self;
        *wait
    }
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let wait = self.wait().as_millis().max(1);
        match self {
            TooMany::TooFast(_) => {
                write!(
                    formatter,
                    "Too many calls: at most {A_SECOND} a second. Try again in {wait} ms"
                )
            }
            TooMany::AtWork(_) => {
                write!(
                    formatter,
                    "Too many calls at work: at most {AT_A_TIME}. Try again in {wait} ms"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_then_so_many_a_second() {
        let begin = Instant::now();
        let mut bucket = Bucket { calls: BURST, at: begin };
        let taken = (0..100).filter(|_| bucket.take(begin).is_ok()).count();
        assert_eq!(taken, 40);
        assert_eq!(bucket.take(begin), Err(Duration::from_millis(50)));
        let later = begin + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(later).is_ok()).count(), 20);
    }

    #[test]
    fn so_many_are_at_work_and_no_more() {
        let limits = Limits::default();
        let places: Vec<_> = (0..AT_A_TIME).map(|_| limits.take().unwrap()).collect();
        assert_eq!(limits.take().unwrap_err(), TooMany::AtWork(WHEN_BUSY));
        drop(places);
        drop(limits.take().unwrap());
    }
}
