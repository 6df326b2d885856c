//! JSON-RPC 2.0 over lines: framing, the one way out, and the requests we have sent. Knows
//! nothing of ACP and nothing else of ours.

mod frame;
mod outbox;
mod pending;
mod stdio;

#[cfg(test)]
mod tests;

pub use frame::{Frame, Line, Params, RequestId, RpcError, parse};
pub use outbox::{Filter, Outbox};
pub use pending::{Peer, RequestFailed};
pub use stdio::{Input, Stdio, claim, stop_signal};
