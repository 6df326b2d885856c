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

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

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
    /// Cancelled when the client closes the connection in due form. Otherwise it is lost, and the client may come
    /// back.
    pub intended_end: CancellationToken,
}

/// Serves a connection until its input ends, or its outbox is closed.
pub type ServeConnection = Arc<dyn Fn(RemoteConnection) -> BoxFuture<'static, ()> + Send + Sync>;

/// Creates the observer of the lines of the connection with this number.
pub type ObserveConnection = Arc<dyn Fn(u64) -> Arc<LineObserver> + Send + Sync>;
