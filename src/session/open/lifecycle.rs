//! The end of a session: what stops it, who waits for it, and the lock that it holds until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::completion::Completion;
use tokio::task::spawn_blocking;
use turnwright_store::SessionLock;

/// Set while a cancel is in the mailbox with no message after it: another one would change nothing. So a
/// client that sends nothing but cancels cannot fill the mailbox.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Returns true if a cancel must be sent, because none is on its way.
    pub(in crate::session) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// The cancel was received or could not be sent, or another message follows it.
    pub(in crate::session) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Stops a session, and holds everything that its end releases.
pub(in crate::session) struct Lifecycle {
    /// Stops the session and its turn.
    pub(in crate::session) stop: CancellationToken,
    pub(in crate::session) cancelling: CancelFlag,
    /// The lock that keeps other processes from writing to the session.
    lock: Option<SessionLock>,
    /// The requests that wait for the session to be closed.
    closings: Vec<Completion<()>>,
}

impl Lifecycle {
    pub(in crate::session) fn new(
        stop: CancellationToken,
        cancelling: CancelFlag,
        lock: Option<SessionLock>,
    ) -> Lifecycle {
        Lifecycle { stop, cancelling, lock, closings: Vec::new() }
    }

    pub(in crate::session) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    pub(in crate::session) fn hold(&mut self, lock: SessionLock) {
        self.lock = Some(lock);
    }

    /// Stops the session. `done` is answered at its end.
    pub(in crate::session) fn close(&mut self, done: Completion<()>) {
        self.closings.push(done);
        self.stop.cancel();
    }

    /// Releases the lock, which removes a file, and answers those who wait for the end.
    pub(in crate::session) async fn end(self) {
        let lock = self.lock;
        spawn_blocking(move || drop(lock)).await.ok();
        for done in self.closings {
            done.complete(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn one_cancel_is_on_its_way_at_a_time() {
        // `r` raises the flag, `c` clears it; a capital letter is a cancel that is sent.
        for (steps, expected) in [("rr", "Rr"), ("rcr", "RcR"), ("ccrrcr", "ccRrcR")] {
            let flag = CancelFlag::default();
            let step = |letter: char| match letter {
                'r' if flag.raise() => 'R',
                'c' => {
                    flag.clear();
                    'c'
                }
                other => other,
            };
            assert_eq!(steps.chars().map(step).collect::<String>(), expected);
        }
    }

    #[tokio::test]
    async fn a_close_stops_the_session_and_is_answered_at_its_end() {
        for count in 0..3 {
            let stop = CancellationToken::new();
            let answers = Arc::new(Mutex::new(0));
            let mut lifecycle = Lifecycle::new(stop.clone(), CancelFlag::default(), None);
            for _ in 0..count {
                let answers = Arc::clone(&answers);
                lifecycle.close(Completion::new(move |result| {
                    *answers.lock() += usize::from(result.is_ok());
                }));
            }
            assert_eq!((stop.is_cancelled(), *answers.lock()), (count > 0, 0));
            lifecycle.end().await;
            assert_eq!(*answers.lock(), count);
        }
    }
}
