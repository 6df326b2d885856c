//! Tools of MCP servers as a turn sees them: the same checks, questions and audit as built-in tools.
//! `turnwright-mcp` holds the connections.
//!
//!   session_servers  the servers of one session and the tools that they add to it
//!   remote_tool      one tool of a server
//!   tool_pins        what a tool looked like when the user allowed it
//!   question         what the user is shown before a call
//!   tool_outcome     the result of a call, for the model and for its card

mod session_servers;
mod tool_pins;
mod question;
mod tool_outcome;
mod remote_tool;

pub(crate) use session_servers::SessionServers;
