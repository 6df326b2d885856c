//! JSON-RPC 2.0 over newline-delimited stdin and stdout, with bounded queues.
//!
//! [`LineReader`] parses lines on a thread of its own, [`Outbox`] serialises and writes messages on
//! another, and [`Peer`] matches responses with the requests that we sent. For other transports,
//! [`line_queue`] and [`message_queue`] have tasks in the place of the threads. The crate knows nothing
//! of ACP or MCP.

mod direct_output;
mod long_line;
mod message;
mod outbox;
mod pending;
mod queues;
mod stdio;

#[cfg(test)]
mod tests;

pub use long_line::{LongLine, read_line};
pub use message::{Params, ParsedLine, RequestId, RpcError, RpcMessage, parse_line};
pub use outbox::{Batch, Outbox, OutgoingFilter};
pub use pending::{Peer, RequestError};
pub use queues::{LineSender, OutboxDrain, line_queue, message_queue};
#[cfg(unix)]
pub use stdio::is_hangup_ignored;
pub use stdio::{
    LineDirection, LineObserver, LineReader, MAX_LINE_BYTES, Stdio, claim_stdio, stop_signal,
};
