//! Converts the MCP servers that a client requests for a session to server specs.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::connection::Connection;
use super::error::read_params;
use super::linked_servers::ClientServer;
use super::wire::schema::{EnvVariable, HttpHeader, McpServer};
use crate::error::Error;
use crate::session::{LinkedServer, ServerSource, ServerSpec, ServerTransport};
use turnwright_types::secret::Secret;

/// Reads parameters that name MCP servers. The types of the schema take a server of any type for a program if
/// it is malformed and has a `command`: that would start what the client did not ask for (R-MCP-5).
pub(super) fn read_with_servers<T: DeserializeOwned>(
    method: &str,
    params: &mut Value,
) -> Result<T, Error> {
    for server in servers_of(params) {
        if server.get("type").is_some_and(|it| it != "stdio") {
            server.remove("command");
        }
    }
    read_params(method, params)
}

/// The servers in the parameters of a request.
pub(super) fn servers_of(params: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let servers = params.get_mut("mcpServers").and_then(Value::as_array_mut);
    servers.into_iter().flatten().filter_map(Value::as_object_mut)
}

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
            let variable = |it: EnvVariable| (it.name, Secret::from(it.value));
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
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        _ => Err(Error::InvalidParams(
            "Only MCP servers of type stdio, http and acp are supported: sse is not advertised"
                .to_owned(),
        )),
    }
}
