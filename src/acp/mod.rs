//! The Agent Client Protocol: forwards the client's requests to sessions and the sessions' updates to the
//! client. The connection is one task, which never waits for anything but its next event.

mod capabilities;
mod connection;
mod router;
mod methods;
mod error;
mod from_wire;
mod user_question;
mod client;
mod cursors;
mod remote;
mod responder;
mod linked_servers;
mod mcp_servers;
mod opening;
mod subagents;
mod to_wire;
mod v2;
mod versions;

#[cfg(test)]
mod tests;

use agent_client_protocol_schema::v1 as schema;

pub(crate) use connection::{serve_as_recorded, serve_blocking};
pub(crate) use remote::serve_remote;
