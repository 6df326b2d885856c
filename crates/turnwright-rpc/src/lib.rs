//! JSON-RPC 2.0 over newline-delimited stdin and stdout, with bounded queues.
//!
//! [`StdinReader`] parses lines on a thread of its own, [`Outbox`] serialises and writes messages on
//! another, and [`Peer`] matches responses with the requests that we sent. The crate knows nothing
//! of ACP or MCP.

mod message;
mod outbox;
mod pending;
mod stdio;

#[cfg(test)]
mod tests;

pub use message::{Params, ParsedLine, RequestId, RpcError, RpcMessage, parse_line};
pub use outbox::{Outbox, OutgoingFilter};
pub use pending::{Peer, RequestError};
pub use stdio::{LineDirection, LineObserver, StdinReader, Stdio, claim_stdio, stop_signal};
