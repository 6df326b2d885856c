//! An agent that an editor drives over stdin and stdout (Agent Client Protocol).
//!
//! One line of JSON comes in; many go out:
//!   rpc      lines ⇄ frames; the only owner of stdin and stdout
//!   acp      frames → questions to sessions; domain types ⇄ wire types; never waits
//!   session  one task each; owns history, queue and settings; starts turns
//!   turn     ask the model, run its tool calls, repeat; ends with exactly one stop reason
//!   llm, tools, permission, shell, exec, sandbox, files   what a turn uses; none knows who uses it
//!
//! `ARCHITECTURE.md` says why, and which invariants hold.

// 0 · vocabulary: plain data, no I/O
pub mod ids;
pub mod message;
pub mod update;
pub mod effect;
pub mod client;
pub mod sse;
pub mod moment;
pub mod error;
pub mod done;

// 1 · stdin and stdout
pub mod rpc;

// 2 · dispatch
pub mod acp;
pub mod mcp_server;

// 3 · sessions
pub mod session;

// 4 · the turn
pub mod turn;

// 5 · what a turn uses
pub mod llm;
pub mod mcp;
pub mod tools;
pub mod permission;
pub mod shell;
pub mod sandbox;
pub mod exec;
pub mod undo;
pub mod checkpoint;
pub mod files;
pub mod pinned;
pub mod trust;
pub mod edit;
pub mod memory;
pub mod skills;
pub mod web;
pub mod search;
pub mod export;

// 6 · ground
pub mod redact;
pub mod store;
pub mod config;
pub mod log;

// 7 · command line
pub mod cli;
