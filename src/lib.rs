//! An agent that an editor drives over stdin and stdout (Agent Client Protocol).
//!
//! One line of JSON comes in; many go out:
//!   turnwright-rpc   lines ⇄ frames; the only owner of stdin and stdout
//!   acp              frames → requests to sessions; domain types ⇄ wire types; never waits
//!   session          one task each; owns history, queue and settings; starts turns
//!   turn             ask the model, run its tool calls, repeat; ends with exactly one stop reason
//!   tools, mcp       what the model can call; the crates below do the work
//!
//! `ARCHITECTURE.md` has the map of all crates, the reasons and the invariants.

// Requests and sessions
pub mod acp;
pub mod mcp_server;
pub mod session;

// The turn and what it uses
pub mod turn;
pub mod tools;
pub mod mcp;
pub mod undo;
pub mod trust;

// What everything stands on
pub mod config;
pub mod log;
pub mod error;
pub mod done;

pub mod cli;
