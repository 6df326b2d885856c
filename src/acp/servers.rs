//! The MCP servers that a client wants a session to have: wire types → servers.

use super::wire::schema::McpServer;
use crate::error::Error;
use crate::session::{Hidden, Reach, ServerSpec, Source};

/// What the client wants. What we have not advertised is refused and never silently left out
/// (R-MCP-5).
pub(super) fn understand(servers: Vec<McpServer>) -> Result<Vec<ServerSpec>, Error> {
    servers.into_iter().map(server).collect()
}

fn server(server: McpServer) -> Result<ServerSpec, Error> {
    match server {
        McpServer::Stdio(server) => {
            let variable = |it: super::wire::schema::EnvVariable| (it.name, Hidden::from(it.value));
            let reach = Reach::Stdio {
                command: server.command,
                arguments: server.args,
                environment: server.env.into_iter().map(variable).collect(),
            };
            Ok(ServerSpec::new(server.name, Source::Client, reach))
        }
        _ => Err(Error::Params(
            "Only MCP servers of type stdio may be given: http and sse are not advertised"
                .to_owned(),
        )),
    }
}
