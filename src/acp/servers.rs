//! The MCP servers that a client wants a session to have: wire types → servers.

use super::wire::schema::{EnvVariable, HttpHeader, McpServer};
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
            let variable = |it: EnvVariable| (it.name, Hidden::from(it.value));
            let reach = Reach::Stdio {
                command: server.command,
                arguments: server.args,
                environment: server.env.into_iter().map(variable).collect(),
            };
            Ok(ServerSpec::new(server.name, Source::Client, reach))
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|it: HttpHeader| (it.name, it.value));
            let reach = Reach::http(&server.url, headers).map_err(|why| {
                Error::Params(format!("The MCP server `{}` cannot be used: {why}", server.name))
            })?;
            Ok(ServerSpec::new(server.name, Source::Client, reach))
        }
        _ => Err(Error::Params(
            "Only MCP servers of type stdio and http may be given: sse is not advertised"
                .to_owned(),
        )),
    }
}
