//! Tells a peer that is gone from one whose message takes long: what counts is when bytes have arrived, not
//! messages, since a large message on a slow network is one for minutes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

/// How long a peer may send nothing. It is asked for a sign of life three times within this time.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// When something was read from a socket. Clones share it.
// Held only to copy the moment.
#[derive(Clone)]
pub(crate) struct LastRead(Arc<Mutex<Instant>>);

impl LastRead {
    /// Waits for the next message. `None` if the stream has ended, or nothing arrives for a minute.
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

/// A socket that notes when something was read from it.
pub(crate) struct WatchedSocket<S> {
    socket: S,
    last_read: LastRead,
}

impl<S> WatchedSocket<S> {
    pub(crate) fn new(socket: S) -> (WatchedSocket<S>, LastRead) {
        let last_read = LastRead(Arc::new(Mutex::new(Instant::now())));
        (WatchedSocket { socket, last_read: last_read.clone() }, last_read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        *self.last_read.0.lock() = Instant::now();
        Poll::Ready(Ok(()))
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
    use tokio::io::AsyncWriteExt;
    use tokio::time::sleep;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_may_take_long_and_a_peer_may_not_be_silent() {
        let (socket, mut peer) = tokio::io::duplex(64);
        let (socket, last_read) = WatchedSocket::new(socket);
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
}
