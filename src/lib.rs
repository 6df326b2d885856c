//! A coding agent for editors, driven over stdin and stdout with the Agent Client Protocol (ACP).
//!
//! A request passes these layers from top to bottom, its updates return from bottom to top:
//!   turnwright-rpc   reads and writes JSON-RPC lines; the only owner of stdin and stdout
//!   acp              dispatches requests to sessions, converts wire types; never blocks
//!   session          a task per session; owns its history, queue and settings; starts turns
//!   turn             asks the model and runs its tool calls until the turn has its stop reason
//!   tools, mcp       the tools of the model; the crates below do the work
//!
//! `ARCHITECTURE.md` shows all crates, follows a prompt and a call, and has the invariants and the decisions.

// Requests and sessions
mod acp;
mod mcp_server;
mod session;

// The turn and its services
mod turn;
mod tools;
mod mcp;

// Foundations
mod log;
mod error;
mod completion;
mod runtime;

mod cli;
pub mod internals;

pub use cli::run;
