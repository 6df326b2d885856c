//! Connections to servers of the Model Context Protocol (MCP): when a server runs, in which sandbox, what
//! happens when it fails, and how large its messages may be.
//!
//!   spec              a server as the user or the editor has configured it
//!   pool              all servers of the process; sessions that use an equal server share it
//!   server            one server: a task that connects, lists, reconnects, and ends it
//!   connection        one connection, through a child process, HTTP or a link
//!   handshake         how it begins
//!   peer              our end of it: requests and their responses
//!   pipes             its messages, through a child process
//!   http_channel      its messages, over HTTP; `standard_headers` are sent with them
//!   http              the HTTP client below; `http_reply` and `event_stream` read what it gets
//!   link              servers that run within the client; `link_channel` carries their messages
//!   login_store       stored OAuth logins; `login` obtains one
//!   program_setup     the command line, environment and sandbox of a child process; `process` runs it
//!   message_io        stdout of a child process → messages; `line` classifies one line
//!   stderr_tail       the last lines of a server's stderr, for error messages
//!   tool_list         the tools of a server, page by page; `listed_tool` is one of them
//!   model             the types of the protocol that are kept
//!   model_schema      the schema of a tool's arguments as the model is shown it
//!   schema_validator  validates arguments and results against a server's schema
//!   tool_names        the names of the tools of a session
//!   call              one call in flight; `progress` routes progress notifications to it
//!   played_server     servers in recordings
//!   handler           what a server may request or notify
//!   tool_result       the result of a call
//!   resources         a tool that lists and reads the resources of a server
//!   prompts           the prompts of servers, as slash commands
//!   elicitation       questions of a server to the user

mod call;
mod connection;
mod elicitation;
mod event_stream;
mod handler;
mod handshake;
mod http;
mod http_channel;
mod http_reply;
mod json_schema;
mod line;
mod link;
mod link_channel;
mod listed_tool;
mod login;
mod login_store;
mod message_io;
mod model;
mod model_schema;
mod peer;
mod pipes;
mod played_server;
mod pool;
mod process;
mod program_setup;
mod progress;
pub mod prompts;
pub mod resources;
mod schema_validator;
mod server;
mod spec;
mod standard_headers;
mod stderr_tail;
mod tool_list;
mod tool_names;
mod tool_result;

#[cfg(test)]
mod tests;

pub use call::{CallContext, CallError, InputRequestContext, call};
pub use elicitation::{SERVER_ASKS, WaitingCall, WaitingCalls};
pub use link::{LinkError, LinkEvent, LinkedServer, ServerLink};
pub use listed_tool::ListedTool;
pub use login::{LoginOptions, log_in};
pub use login_store::{LoginStore, ServerLogin};
pub use model::{JsonObject, Prompt, PromptArgument, SchemaText, Tool, ToolAnnotations};
pub use model_schema::bounded_text;
pub use peer::{Peer, PeerError};
pub use played_server::{played_server, server_json};
pub use pool::{ServerEnv, ServerPool};
pub use progress::ProgressRouter;
pub use prompts::PromptRequest;
pub use schema_validator::SchemaValidator;
pub use server::{Server, ServerPhase, ServerState};
pub use spec::{
    ServerSandbox, ServerSource, ServerSpec, ServerTimeouts, ServerTransport, ToolFilter,
};
pub use tool_names::ToolNames;
pub use tool_result::{ResultBlock, ToolResult};
