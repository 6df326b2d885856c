//! Converts the MCP servers that a client requests for a session to server specs.

use super::connection::Connection;
use super::linked_servers::ClientServer;
use super::wire::schema::{EnvVariable, HttpHeader, McpServer};
use crate::error::Error;
use crate::session::{LinkedServer, SecretValue, ServerSource, ServerSpec, ServerTransport};

/// Converts the client's servers. A transport that we have not advertised is refused, never silently
/// left out (R-MCP-5).
pub(super) fn server_specs(
    connection: &Connection,
    servers: Vec<McpServer>,
) -> Result<Vec<ServerSpec>, Error> {
    servers.into_iter().map(|it| server_spec(connection, it)).collect()
}

fn server_spec(connection: &Connection, server: McpServer) -> Result<ServerSpec, Error> {
    match server {
        McpServer::Stdio(server) => {
            let variable = |it: EnvVariable| (it.name, SecretValue::from(it.value));
            let reach = ServerTransport::Stdio {
                command: server.command,
                arguments: server.args,
                environment: server.env.into_iter().map(variable).collect(),
            };
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|it: HttpHeader| (it.name, it.value));
            let reach = ServerTransport::http(&server.url, headers).map_err(|why| {
                Error::InvalidParams(format!(
                    "The MCP server `{}` cannot be used: {why}",
                    server.name
                ))
            })?;
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        McpServer::Acp(server) => {
            let (peer, requests) = (connection.peer.clone(), connection.linked_requests.clone());
            let link = ClientServer::new(peer, requests, server.server_id);
            let reach = ServerTransport::Linked(LinkedServer::new(link));
            let spec = ServerSpec::new(server.name, ServerSource::Client, reach);
            Ok(ServerSpec { is_shared: false, ..spec })
        }
        _ => Err(Error::InvalidParams(
            "Only MCP servers of type stdio, http and acp are supported: sse is not advertised"
                .to_owned(),
        )),
    }
}
