//! Distinguishes a peer that is gone from one whose message takes long: the arrival of bytes counts, not of
//! messages, since a large message may take minutes on a slow network. Also counts the bytes of incomplete
//! messages, because they take memory.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

/// How long a peer may send nothing. It is asked for a sign of life three times within this time.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// The bytes of incomplete messages that all connections together may hold.
const MAX_INCOMPLETE: usize = 256 * 1024 * 1024;
/// The bytes that each of them may hold in any case.
const OWN_SHARE: usize = 256 * 1024;

/// The time of the last read from a socket. Clones share it.
// Held only to copy the moment.
#[derive(Clone)]
pub(crate) struct LastRead(Arc<Mutex<Instant>>);

impl LastRead {
    /// Waits for the next message. `None` if the stream has ended, or nothing arrives for [`SILENCE_LIMIT`].
    pub(crate) async fn next_message<T>(
        &self,
        messages: &mut (impl Stream<Item = T> + Unpin),
    ) -> Option<T> {
        // While nobody waits, nothing is read.
        let begin = Instant::now();
        loop {
            let due = (*self.0.lock()).max(begin) + SILENCE_LIMIT;
            match timeout_at(due, messages.next()).await {
                Ok(message) => return message,
                Err(_) if *self.0.lock() + SILENCE_LIMIT <= Instant::now() => return None,
                Err(_) => {}
            }
        }
    }
}

/// The bytes of incomplete messages that all connections of a server hold. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct IncompleteMessages(Arc<AtomicUsize>);

impl IncompleteMessages {
    /// Creates the part of a new connection.
    pub(crate) fn part(&self) -> IncompletePart {
        IncompletePart(Arc::new(PartInner { all: self.clone(), own: AtomicUsize::new(0) }))
    }
}

/// The part of one connection. Clones share it; it is released with the last one.
#[derive(Clone, Debug)]
pub(crate) struct IncompletePart(Arc<PartInner>);

#[derive(Debug)]
struct PartInner {
    all: IncompleteMessages,
    own: AtomicUsize,
}

impl IncompletePart {
    /// Notes bytes that were read. Returns false if there is no room for them.
    fn add(&self, bytes: usize) -> bool {
        let own = self.0.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.0.all.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= OWN_SHARE || all <= MAX_INCOMPLETE
    }

    /// Releases the bytes: a message is complete, or the connection has ended.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}

impl PartInner {
    fn clear(&self) {
        let own = self.own.swap(0, Ordering::Relaxed);
        self.all.0.fetch_sub(own, Ordering::Relaxed);
    }
}

impl Drop for PartInner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A socket that notes when something was read from it, and how much.
pub(crate) struct WatchedSocket<S> {
    socket: S,
    last_read: LastRead,
    /// `None` if only one message at a time can be incomplete, whose size has a limit of its own.
    incomplete: Option<IncompletePart>,
}

impl<S> WatchedSocket<S> {
    pub(crate) fn new(
        socket: S,
        incomplete: Option<IncompletePart>,
    ) -> (WatchedSocket<S>, LastRead) {
        let last_read = LastRead(Arc::new(Mutex::new(Instant::now())));
        (WatchedSocket { socket, last_read: last_read.clone(), incomplete }, last_read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        *self.last_read.0.lock() = Instant::now();
        let read = buffer.filled().len() - before;
        let has_room = self.incomplete.as_ref().is_none_or(|part| part.add(read));
        Poll::Ready(if has_room { Ok(()) } else { Err(ErrorKind::OutOfMemory.into()) })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::sleep;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_may_take_long_and_a_peer_may_not_be_silent() {
        let (socket, mut peer) = tokio::io::duplex(64);
        let (socket, last_read) = WatchedSocket::new(socket, None);
        let mut messages = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
        let sending = async {
            // A text frame of five bytes.
            for byte in b"\x81\x05slow!" {
                sleep(SILENCE_LIMIT / 2).await;
                peer.write_all(&[*byte]).await.unwrap();
            }
        };
        let (message, ()) = tokio::join!(last_read.next_message(&mut messages), sending);
        assert_eq!(message.unwrap().unwrap(), Message::text("slow!"));
        let begin = Instant::now();
        assert!(last_read.next_message(&mut messages).await.is_none());
        assert_eq!(begin.elapsed().as_secs(), SILENCE_LIMIT.as_secs());
    }

    #[tokio::test]
    async fn a_socket_without_others_may_receive_any_number_of_messages() {
        let (socket, mut peer) = tokio::io::duplex(1024 * 1024);
        let (mut socket, _) = WatchedSocket::new(socket, None);
        let piece = vec![b'x'; 1024 * 1024];
        for _ in 0..=MAX_INCOMPLETE / piece.len() {
            peer.write_all(&piece).await.unwrap();
            let mut read = vec![0; piece.len()];
            socket.read_exact(&mut read).await.unwrap();
        }
    }

    #[test]
    fn incomplete_messages_of_all_connections_together_are_bounded() {
        let all = IncompleteMessages::default();
        let parts: Vec<_> = (0..4).map(|_| all.part()).collect();
        assert!(parts.iter().all(|part| part.add(MAX_INCOMPLETE / 4)), "just so much");
        assert!(!parts[0].add(1), "no more");
        let small = all.part();
        assert!(small.add(OWN_SHARE), "small messages go on");
        parts[1].clear();
        assert!(parts[2].add(1), "one was completed");
        drop(parts);
        drop(small);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
