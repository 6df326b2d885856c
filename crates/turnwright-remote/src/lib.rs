//! JSON-RPC for clients that reach an agent over a network instead of a pipe.
//!
//! A [`Listener`] accepts WebSockets, and the streamable HTTP transport of the Agent Client Protocol, on one
//! path. Each connection becomes a [`RemoteConnection`]: the queues of `turnwright-rpc`, which are bounded as
//! those of a pipe are. [`bridge()`] is the other end: it connects stdin and stdout with a listener.

mod access;
mod bridge;
mod http_connection;
mod http_server;
mod listener;
mod silence;
mod websocket;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;

pub use access::{AccessRules, new_token};
pub use bridge::{BridgeError, bridge};
pub use listener::{ListenOptions, Listener, TlsFiles};
use turnwright_rpc::{LineObserver, LineReader, Outbox};

/// The path of the agent.
pub const PATH: &str = "/acp";

/// A client's connection, of whatever transport.
#[derive(Debug)]
pub struct RemoteConnection {
    /// Identifies the connection within its listener.
    pub number: u64,
    /// The client's messages, until the connection is closed or lost.
    pub input: LineReader,
    /// The messages to the client.
    pub outbox: Outbox,
    pub end: ConnectionEnd,
}

/// Serves a connection until its input ends, or its outbox is closed.
pub type ServeConnection = Arc<dyn Fn(RemoteConnection) -> BoxFuture<'static, ()> + Send + Sync>;

/// Creates the observer of the lines of the connection with this number.
pub type ObserveConnection = Arc<dyn Fn(u64) -> Arc<LineObserver> + Send + Sync>;

/// How a connection has ended. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionEnd(Arc<AtomicBool>);

impl ConnectionEnd {
    /// True if the client has closed the connection in due form. Otherwise it was lost, and the client may
    /// come back.
    pub fn is_intended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn mark_intended(&self) {
        self.0.store(true, Ordering::Release);
    }
}
