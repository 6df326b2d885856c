//! The sockets whose clients have not shown the token yet. When there are too many, the oldest is closed, so
//! that clients which open sockets and send nothing keep nobody else out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use crate::http_server::MAX_CONNECTIONS;

/// The maximum number of sockets that wait for their first authorised request: all clients may come back at
/// once.
const MAX_WAITING: usize = MAX_CONNECTIONS;

/// The sockets that are waiting, oldest first. Those that no longer wait stay in the list until it is full.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(VecDeque<Weak<Handshake>>);

/// A socket that is waiting, until this is dropped or the socket is admitted.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    is_admitted: AtomicBool,
    /// Cancelled when the socket has to make room for others.
    pub(crate) evicted: CancellationToken,
}

impl Handshakes {
    /// Adds a socket.
    pub(crate) fn begin(&mut self) -> Arc<Handshake> {
        if self.0.len() >= MAX_WAITING {
            self.0.retain(|socket| socket.upgrade().is_some_and(|socket| socket.is_waiting()));
        }
        if self.0.len() >= MAX_WAITING
            && let Some(oldest) = self.0.pop_front().and_then(|socket| socket.upgrade())
        {
            oldest.evicted.cancel();
        }
        let handshake = Arc::new(Handshake::default());
        self.0.push_back(Arc::downgrade(&handshake));
        handshake
    }
}

impl Handshake {
    /// Notes that the client has shown the token: the socket is no longer closed for others.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    fn is_waiting(&self) -> bool {
        !self.is_admitted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_socket_that_waits_makes_room() {
        let mut all = Handshakes::default();
        let admitted = all.begin();
        admitted.admit();
        drop(all.begin());
        let waiting: Vec<_> = (0..=MAX_WAITING).map(|_| all.begin()).collect();
        let evicted: Vec<_> = waiting.iter().map(|socket| socket.evicted.is_cancelled()).collect();
        assert!(!admitted.evicted.is_cancelled());
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
        drop(waiting);
        assert!(all.0.iter().all(|socket| socket.upgrade().is_none()));
    }
}
