//! The messages of a server's process: one a line, over its stdin and stdout.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use turnwright_rpc::{Outbox, OutboxDrain, message_queue};

use super::handler::ServerMessageHandler;
use super::message_io::{MessageReader, MessageWriter};
use super::peer::{Channel, Peer};

/// Connects to a process. The task of the connection ends when the process closes one of its pipes, or
/// when the peer is closed and everything is written. Dropping the set ends it at once.
pub(super) fn connect<R, W>(
    output: MessageReader<R>,
    input: MessageWriter<W>,
    handler: ServerMessageHandler,
) -> (Peer, JoinSet<()>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outbox, drain) = message_queue(|_, _| None, None);
    let peer = Peer::new(Channel::Pipes(outbox.clone()), handler);
    let mut tasks = JoinSet::new();
    let reader = peer.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = read(output, outbox, &reader) => {}
            () = write(drain, input) => {}
        }
        reader.close();
    });
    (peer, tasks)
}

async fn read<R: AsyncRead + Unpin>(mut output: MessageReader<R>, outbox: Outbox, peer: &Peer) {
    loop {
        // No more is read from a server that does not read our responses.
        outbox.wait_for_read_capacity().await;
        match output.next().await {
            Ok(Some(line)) => peer.receive(line).await,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "the output of a server cannot be read"),
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(mut drain: OutboxDrain, mut input: MessageWriter<W>) {
    while let Some(messages) = drain.next().await {
        if let Err(error) = input.write_all(messages).await {
            return tracing::debug!(%error, "a server has closed its input");
        }
    }
}
