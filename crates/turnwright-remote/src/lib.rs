//! JSON-RPC for clients that reach an agent over a network instead of a pipe.
//!
//! A [`Listener`] accepts WebSockets, and the streamable HTTP transport of the Agent Client Protocol, on one
//! path. Each connection becomes a [`RemoteConnection`]: the queues of `turnwright-rpc`, which are bounded as
//! those of a pipe are. [`bridge()`] is the other end: it connects stdin and stdout with a listener.

mod access;
mod bridge;
mod connection;
mod event_stream;
mod handshakes;
mod http_connection;
mod http_server;
mod listener;
mod routing;
mod silence;
mod tls;
mod websocket;

pub use access::{AccessRules, new_token};
pub use bridge::{BridgeError, bridge};
pub use connection::{ConnectionEnd, ObserveConnection, RemoteConnection, ServeConnection};
pub use listener::{ListenError, ListenOptions, Listener};
pub use tls::TlsFiles;

/// The path of the agent.
pub const PATH: &str = "/acp";
