//! A coding agent for editors, driven over stdin and stdout with the Agent Client Protocol (ACP).
//!
//! A request passes these layers from top to bottom, its updates return from bottom to top:
//!   turnwright-rpc   reads and writes JSON-RPC lines; the only owner of stdin and stdout
//!   acp              dispatches requests to sessions, converts wire types; never blocks
//!   session          a task per session; owns its history, queue and settings; starts turns
//!   turn             asks the model and runs its tool calls until the turn has its stop reason
//!   tools, mcp       the tools of the model; the crates below do the work
//!
//! `ARCHITECTURE.md` describes all crates, the design decisions and the invariants.

// Requests and sessions
pub mod acp;
pub mod mcp_server;
pub mod session;

// The turn and its services
pub mod turn;
pub mod tools;
pub mod mcp;
pub mod undo;
pub mod trust;

// Foundations
pub mod config;
pub mod log;
pub mod error;
pub mod completion;

pub mod cli;
