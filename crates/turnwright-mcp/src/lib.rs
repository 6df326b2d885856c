//! Connections to servers of the Model Context Protocol (MCP): when a server runs, in which sandbox, what
//! happens when it fails, and how large its messages may be.
//!
//!   server            one server: a task that connects, lists, reconnects, and ends it
//!     spec            a server as the user or the editor has configured it
//!     pool            all servers of the process, which sessions share, and servers that are only described
//!     connection      one connection, through a child process, HTTP or a link
//!     handshake       how it begins
//!   transport         our end of a connection: requests and their responses
//!     process         the child process, and messages through its pipes; `line` classifies one line, and
//!                     `program_setup` has its command line, environment and sandbox
//!     followed        subscriptions to resources that the model has read
//!     link            messages to servers that run within the client
//!     result_cache    results that are used again for as long as the server calls them fresh
//!     http            the HTTP client; `channel` carries messages with it, `reply` reads what it gets,
//!                     `standard_headers` are sent with them, `login` obtains and keeps logins
//!   call              one call in flight, its progress and its result
//!     task            a call that the server has turned into a task
//!     server_requests what a server may request or notify, such as questions to the user
//!   features          what a server offers, as types of the protocol
//!     tools           the list of its tools, and their names in a session
//!     resources       a tool that lists and reads its resources
//!     prompts         its prompts, as slash commands
//!     skills          its skills, each with a tool that loads it
//!   schema            validates arguments and results against a server's schema, as far as it is checked
//!     model_schema    the schema of a tool's arguments as the model is shown it

mod call;
mod features;
mod schema;
mod server;
mod transport;

#[cfg(test)]
mod tests;

pub use call::server_requests::{SERVER_ASKS, WaitingCall, WaitingCalls};
pub use call::{CallError, ResultBlock, ToolResult, call, parse_block};
pub use features::prompts::PromptRequest;
pub use features::skills::ServerSkill;
pub use features::tools::{ListedTool, ToolNames};
pub use features::{
    JsonObject, Prompt, PromptArgument, SchemaText, Tool, ToolAnnotations, prompts, resources,
};
pub use schema::SchemaValidator;
pub use schema::model_schema::bounded_text;
pub use server::pool::{ServerEnv, ServerPool, described_server, server_json};
pub use server::spec::{
    ServerSandbox, ServerSource, ServerSpec, ServerTimeouts, ServerTransport, ToolFilter,
    key_places,
};
pub use server::{Server, ServerPhase, ServerState};
pub use transport::http::login::{LoginStore, ServerLogin, log_in};
pub use transport::link::{LinkError, LinkEvent, LinkedServer, ServerLink};
pub use transport::{Peer, PeerError};
