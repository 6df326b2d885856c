//! ACP for clients that reach the agent over a network: all connections share one process, and a session
//! whose connection is lost goes on for a while, so that its client can come back to it.

mod client;
mod detached;
mod journal;
mod server;

pub(super) use client::CurrentClient;
pub(super) use detached::{RemoteSession, RemoteSessions};
pub(crate) use server::serve_remote;
