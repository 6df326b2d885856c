//! The sockets whose clients have not shown the token yet. When there are too many, the oldest is closed, so
//! that clients which open sockets and send nothing keep nobody else out.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::http_server::MAX_CONNECTIONS;

/// The maximum number of sockets that wait for their first authorised request: all clients may come back at
/// once.
const MAX_WAITING: usize = MAX_CONNECTIONS;

/// The sockets that are waiting, oldest first. Clones share them.
// Held only to add or remove one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handshakes(Arc<Mutex<WaitingSockets>>);

#[derive(Debug, Default)]
struct WaitingSockets {
    next: u64,
    waiting: VecDeque<(u64, CancellationToken)>,
}

/// A socket that is waiting, until this is dropped or the socket is admitted.
#[derive(Debug)]
pub(crate) struct Handshake {
    id: u64,
    all: Handshakes,
    /// Cancelled when the socket has to make room for others.
    pub(crate) evicted: CancellationToken,
}

impl Handshakes {
    /// Adds a socket.
    pub(crate) fn begin(&self) -> Handshake {
        let mut sockets = self.0.lock();
        if sockets.waiting.len() >= MAX_WAITING
            && let Some((_, oldest)) = sockets.waiting.pop_front()
        {
            oldest.cancel();
        }
        sockets.next += 1;
        let id = sockets.next;
        let evicted = CancellationToken::new();
        sockets.waiting.push_back((id, evicted.clone()));
        Handshake { id, all: self.clone(), evicted }
    }
}

impl Handshake {
    /// Notes that the client has shown the token: the socket is no longer closed for others.
    pub(crate) fn admit(&self) {
        self.all.0.lock().waiting.retain(|(id, _)| *id != self.id);
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_socket_that_waits_makes_room() {
        let all = Handshakes::default();
        let admitted = all.begin();
        admitted.admit();
        drop(all.begin());
        let waiting: Vec<_> = (0..=MAX_WAITING).map(|_| all.begin()).collect();
        let evicted: Vec<_> = waiting.iter().map(|socket| socket.evicted.is_cancelled()).collect();
        assert!(!admitted.evicted.is_cancelled());
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
        drop(waiting);
        assert!(all.0.lock().waiting.is_empty());
    }
}
