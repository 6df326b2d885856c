//! JSON-RPC 2.0 over newline-delimited stdin and stdout, with bounded queues.
//!
//! [`LineReader`] parses lines on a thread of its own, [`Outbox`] serialises and writes messages on
//! another, and [`Peer`] sends requests, whose responses [`PendingRequests`] matches with them. For other
//! transports, [`line_queue`] and [`message_queue`] have tasks in the place of the threads, and [`AgentThread`]
//! serves a client in the same process over two pipes. The crate knows nothing of ACP or MCP.

mod long_line;
mod message;
mod outbox;
mod peer;
mod queues;
mod stdio;

#[cfg(test)]
mod tests;

pub use long_line::{LongLine, read_line};
pub use message::{
    Params, ParsedLine, RequestId, RpcError, RpcMessage, RpcResponse, parse_line,
    some_even_if_null, write_call, write_response,
};
pub use outbox::{Batch, Outbox, OutgoingFilter};
pub use peer::{MAX_PENDING_REQUESTS, Peer, PendingRequests, RequestError};
pub use queues::{LineSender, OutboxDrain, line_queue, message_queue};
pub use stdio::{
    AgentThread, LineDirection, LineObserver, LineReader, MAX_LINE_BYTES, Stdio, claim_stdio,
    stop_signal,
};
#[cfg(unix)]
pub use stdio::{end_first_process_by_signals, is_hangup_ignored, make_stdio_blocking};
