//! Tells a peer that is gone from one whose message takes a long time: what counts is the arrival of bytes, not of
//! whole messages, since a large message may take minutes on a slow network. Also counts the bytes of incomplete
//! messages, because they take memory.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

/// How long a peer may send nothing before it counts as gone. Within this time it is asked three times for a sign of
/// life.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// The bytes of incomplete messages that all connections together may hold.
const MAX_INCOMPLETE: usize = 256 * 1024 * 1024;
/// The bytes that each connection may hold even beyond [`MAX_INCOMPLETE`].
const OWN_SHARE: usize = 256 * 1024;

/// When something was read from a socket, and how much of it waits for the rest of its message.
#[derive(Debug)]
pub(crate) struct SocketReads {
    opened: Instant,
    /// The time of the last read, in milliseconds since `opened`.
    last_read: AtomicU64,
    /// The bytes of this connection's incomplete messages. They are released when this is dropped.
    incomplete: AtomicUsize,
    /// The bytes of incomplete messages of all connections of a server; `None` if only one message at a time can be
    /// incomplete, and its size is limited elsewhere.
    all_incomplete: Option<Arc<AtomicUsize>>,
}

impl SocketReads {
    fn new(all_incomplete: Option<Arc<AtomicUsize>>) -> SocketReads {
        SocketReads {
            opened: Instant::now(),
            last_read: AtomicU64::new(0),
            incomplete: AtomicUsize::new(0),
            all_incomplete,
        }
    }

    fn last_read(&self) -> Instant {
        self.opened + Duration::from_millis(self.last_read.load(Ordering::Relaxed))
    }

    /// Records that bytes were read just now. Returns false if there is no room for them.
    fn add(&self, bytes: usize) -> bool {
        let millis = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_read.store(millis, Ordering::Relaxed);
        let Some(all_incomplete) = &self.all_incomplete else { return true };
        let own = self.incomplete.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = all_incomplete.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= OWN_SHARE || all <= MAX_INCOMPLETE
    }

    /// Releases the bytes: a message is complete, or the connection has ended.
    pub(crate) fn clear(&self) {
        if let Some(all_incomplete) = &self.all_incomplete {
            let own = self.incomplete.swap(0, Ordering::Relaxed);
            all_incomplete.fetch_sub(own, Ordering::Relaxed);
        }
    }

    /// Waits for the next message. `None` if the stream has ended, or nothing arrives for [`SILENCE_LIMIT`].
    pub(crate) async fn next_message<T>(
        &self,
        messages: &mut (impl Stream<Item = T> + Unpin),
    ) -> Option<T> {
        // Nothing is read while nobody waits, so an earlier silence means nothing.
        let begin = Instant::now();
        loop {
            let due = self.last_read().max(begin) + SILENCE_LIMIT;
            match timeout_at(due, messages.next()).await {
                Ok(message) => return message,
                Err(_) if self.last_read() + SILENCE_LIMIT <= Instant::now() => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for SocketReads {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A socket that records when something was read from it, and how much.
pub(crate) struct WatchedSocket<S> {
    socket: S,
    reads: Arc<SocketReads>,
}

impl<S> WatchedSocket<S> {
    pub(crate) fn new(
        socket: S,
        all_incomplete: Option<Arc<AtomicUsize>>,
    ) -> (WatchedSocket<S>, Arc<SocketReads>) {
        let reads = Arc::new(SocketReads::new(all_incomplete));
        (WatchedSocket { socket, reads: Arc::clone(&reads) }, reads)
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
        let has_room = self.reads.add(buffer.filled().len() - before);
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
        let (socket, reads) = WatchedSocket::new(socket, None);
        let mut messages = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
        let sending = async {
            // A text frame of five bytes.
            for byte in b"\x81\x05slow!" {
                sleep(SILENCE_LIMIT / 2).await;
                peer.write_all(&[*byte]).await.unwrap();
            }
        };
        let (message, ()) = tokio::join!(reads.next_message(&mut messages), sending);
        assert_eq!(message.unwrap().unwrap(), Message::text("slow!"));
        let begin = Instant::now();
        assert!(reads.next_message(&mut messages).await.is_none());
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
        let all = Arc::new(AtomicUsize::new(0));
        let parts: Vec<_> = (0..4).map(|_| SocketReads::new(Some(Arc::clone(&all)))).collect();
        assert!(parts.iter().all(|part| part.add(MAX_INCOMPLETE / 4)), "just so much");
        assert!(!parts[0].add(1), "no more");
        let small = SocketReads::new(Some(Arc::clone(&all)));
        assert!(small.add(OWN_SHARE), "small messages go on");
        parts[1].clear();
        assert!(parts[2].add(1), "one was completed");
        drop(parts);
        drop(small);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
