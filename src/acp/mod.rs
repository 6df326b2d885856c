//! The Agent Client Protocol: forwards the client's requests to sessions and the sessions' updates to the
//! client. The connection is one task, which never waits for anything but its next event.

mod capabilities;
mod client_options;
mod connection;
mod dispatch;
mod error;
mod extensions;
mod from_wire;
mod handlers;
mod helper_sessions;
mod user_question;
mod saved_sessions;
mod client;
mod providers;
mod remote;
mod responder;
mod linked_servers;
mod mcp_servers;
mod offer;
mod sessions;
mod terminals;
mod to_wire;
mod v2;
mod versions;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use connection::serve_blocking;
pub(crate) use remote::serve_remote;
pub(crate) use to_wire::IS_BOUNDED;
