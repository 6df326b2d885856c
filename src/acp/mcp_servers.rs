//! Converts the MCP servers that a client requests for a session to server specs.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::error::{invalid, read_params};
use super::linked_servers::ClientServer;
use super::opening::META_FIELDS;
use super::schema::{McpServer, McpServerHttp, McpServerStdio};
use super::versions::Version;
use crate::error::Error;
use crate::session::{LinkedServer, ServerSource, ServerSpec, ServerTransport};
use turnwright_types::error_text::json_error_text;

/// The most MCP servers that a client may name for a session.
const MAX_SERVERS: usize = 256;
/// The kinds of MCP servers that a client of version 2 may name.
const SERVER_TYPES: [&str; 3] = ["stdio", "http", "acp"];

fn fault(place: &str, expected: &str) -> String {
    format!("`{place}` must be {expected}")
}

/// Brings the MCP servers in the parameters of a request into the form of the protocol, where a client can only
/// mean one thing: lists that are null, missing or an empty object, servers by their names, variables and
/// headers as an object, numbers in place of texts, other names of the HTTP transport. Keeps only what is read of
/// `_meta`.
///
/// # Errors
/// If a field can mean more than one thing. The text names it with its path.
fn normalize(method: &str, params: &mut Value) -> Result<(), Error> {
    normalize_servers(params)
        .map_err(|found| invalid(format!("Invalid parameters for {method}: {found}")))
}

fn normalize_servers(params: &mut Value) -> Result<(), String> {
    let Some(fields) = params.as_object_mut() else { return Ok(()) };
    if let Some(meta) = fields.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.retain(|name, _| META_FIELDS.contains(&name.as_str()));
    }
    let servers = fields.entry("mcpServers").or_insert(Value::Null);
    let mut list = match servers.take() {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        Value::Object(named) => named.into_iter().map(with_name).collect(),
        other => {
            // The schema says what it must be.
            *servers = other;
            return Ok(());
        }
    };
    if list.len() > MAX_SERVERS {
        let count = list.len();
        return Err(format!(
            "`mcpServers` has {count} servers; at most {MAX_SERVERS} are possible"
        ));
    }
    for (index, server) in list.iter_mut().enumerate() {
        let place = format!("mcpServers[{index}]");
        let fields = server.as_object_mut().ok_or_else(|| fault(&place, "an object"))?;
        normalize_server(fields, &place)?;
        let found = match fields.get("type").and_then(Value::as_str) {
            None | Some("stdio") => field_fault::<McpServerStdio>(server),
            Some("http") => field_fault::<McpServerHttp>(server),
            Some(_) => None,
        };
        if let Some(found) = found {
            // The path of the field begins with that of the server.
            let found = found.replacen('`', &format!("`{place}."), 1);
            return Err(found);
        }
    }
    *servers = Value::Array(list);
    Ok(())
}

fn with_name((name, mut server): (String, Value)) -> Value {
    if let Some(fields) = server.as_object_mut() {
        fields.entry("name").or_insert(name.into());
    }
    server
}

fn normalize_server(fields: &mut Map<String, Value>, place: &str) -> Result<(), String> {
    fields.retain(|name, value| name != "type" || !value.is_null());
    let is_far = fields.contains_key("url") && !fields.contains_key("command");
    match fields.get("type").and_then(Value::as_str) {
        // No other transport with an address is offered.
        None if !is_far => {}
        None | Some("streamable-http" | "streamable_http" | "streamableHttp") => {
            fields.insert("type".to_owned(), "http".into());
        }
        Some(_) => {}
    }
    for name in ["args", "env", "headers"] {
        let list = fields.entry(name).or_insert(Value::Null);
        match list {
            Value::Null => *list = json!([]),
            Value::Object(pairs) if name != "args" || pairs.is_empty() => {
                let is_none =
                    |value: &Value| value.is_null() || value.is_array() || value.is_object();
                if let Some((key, _)) = pairs.iter().find(|(_, value)| is_none(value)) {
                    return Err(fault(&format!("{place}.{name}.{key}"), "text"));
                }
                *list = pairs
                    .iter()
                    .map(|(name, value)| json!({ "name": name, "value": value }))
                    .collect();
            }
            _ => {}
        }
        for item in list.as_array_mut().into_iter().flatten() {
            let value = match item {
                Value::Object(pair) => pair.get_mut("value"),
                word => Some(word),
            };
            if let Some(value) = value.filter(|found| found.is_number() || found.is_boolean()) {
                *value = value.to_string().into();
            }
        }
    }
    Ok(())
}

/// Returns what is wrong with a server, with the path of the field.
fn field_fault<T: DeserializeOwned>(server: &Value) -> Option<String> {
    let text = server.to_string();
    let error = serde_json::from_str::<T>(&text).err()?;
    Some(json_error_text(&text, &error))
}

/// Reads parameters that name MCP servers. The types of the schema take a server of any type for a program if
/// it is malformed and has a `command`: that would start what the client did not ask for (R-MCP-5). In version 2
/// each server has a type (R-TWO-16).
pub(super) fn read_with_servers<T: DeserializeOwned>(
    method: &str,
    mut params: Value,
    version: Version,
) -> Result<T, Error> {
    normalize(method, &mut params)?;
    let servers = params.get_mut("mcpServers").and_then(Value::as_array_mut);
    for server in servers.into_iter().flatten().filter_map(Value::as_object_mut) {
        let kind = server.get("type");
        let is_known = kind.is_some_and(|kind| SERVER_TYPES.iter().any(|known| kind == known));
        if version == Version::V2 && !is_known {
            return Err(invalid("Each MCP server must have the `type` stdio, http or acp"));
        }
        if kind.is_some_and(|kind| kind != "stdio") {
            server.remove("command");
        }
    }
    read_params(method, &params)
}

/// Converts the client's servers. A transport that we have not advertised is refused, never silently
/// left out (R-MCP-5).
pub(super) fn server_specs(
    connection: &Connection,
    servers: Vec<McpServer>,
) -> Result<Vec<ServerSpec>, Error> {
    servers.into_iter().map(|server| server_spec(connection, server)).collect()
}

fn server_spec(connection: &Connection, server: McpServer) -> Result<ServerSpec, Error> {
    match server {
        McpServer::Stdio(server) => {
            let variables = server.env.into_iter().map(|entry| (entry.name, entry.value.into()));
            let reach = ServerTransport::Stdio {
                command: server.command,
                arguments: server.args,
                environment: variables.collect(),
            };
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|header| (header.name, header.value));
            let reach = ServerTransport::http(&server.url, headers).map_err(|why| {
                invalid(format!("The MCP server `{}` cannot be used: {why}", server.name))
            })?;
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        McpServer::Acp(server) => {
            let link = ClientServer {
                peer: connection.peer.clone(),
                requests: Arc::clone(&connection.linked_requests),
                id: server.server_id,
            };
            let reach = ServerTransport::Linked(LinkedServer::new(link));
            Ok(ServerSpec::new(server.name, ServerSource::Client, reach))
        }
        _ => Err(invalid(
            "Only MCP servers of type stdio, http and acp are supported: sse is not advertised",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_only_mean_one_thing_is_brought_into_the_form_of_the_protocol() {
        let program =
            json!([{ "name": "n", "command": "c", "args": [], "env": [], "headers": [] }]);
        let full = json!([{ "name": "n", "command": "c", "args": ["--port", "80"], "headers": [],
            "env": [{ "name": "A", "value": "b" }, { "name": "N", "value": "7" }] }]);
        let far = json!([{ "type": "http", "name": "n", "url": "http://h/", "args": [], "env": [],
            "headers": [{ "name": "X-Key", "value": "k" }] }]);
        let none = json!([]);
        let table = [
            (json!({}), &none),
            (json!({ "mcpServers": null }), &none),
            (json!({ "mcpServers": {} }), &none),
            (json!({ "mcpServers": [{ "name": "n", "command": "c" }] }), &program),
            (
                json!({ "mcpServers": [{ "type": null, "name": "n", "command": "c", "args": null, "env": null }] }),
                &program,
            ),
            (
                json!({ "mcpServers": [{ "name": "n", "command": "c", "args": {}, "env": {}, "headers": {} }] }),
                &program,
            ),
            (json!({ "mcpServers": { "n": { "command": "c" } } }), &program),
            (
                json!({ "mcpServers": [{ "name": "n", "command": "c", "args": ["--port", 80],
                    "env": { "A": "b", "N": 7 } }] }),
                &full,
            ),
            (
                json!({ "mcpServers": [{ "name": "n", "command": "c", "args": ["--port", "80"],
                    "env": [{ "name": "A", "value": "b" }, { "name": "N", "value": 7 }] }] }),
                &full,
            ),
            (
                json!({ "mcpServers": [{ "type": "streamable-http", "name": "n", "url": "http://h/",
                    "headers": { "X-Key": "k" } }] }),
                &far,
            ),
            (
                json!({ "mcpServers": [{ "name": "n", "url": "http://h/",
                    "headers": [{ "name": "X-Key", "value": "k" }] }] }),
                &far,
            ),
        ];
        for (mut params, expected) in table {
            let given = params.to_string();
            normalize_servers(&mut params).unwrap();
            assert_eq!(params["mcpServers"], *expected, "{given}");
        }
    }

    #[test]
    fn only_what_is_read_of_the_metadata_is_kept() {
        let mut params =
            json!({ "_meta": { "systemPrompt": "Be brief.", "claudeCode": {}, "trace": [1] } });
        normalize_servers(&mut params).unwrap();
        assert_eq!(params["_meta"], json!({ "systemPrompt": "Be brief.", "claudeCode": {} }));
    }

    #[test]
    fn what_is_refused_is_named_with_its_path() {
        let server = |name: &str, value: Value| {
            let mut server = json!({ "name": "n", "command": "c" });
            server[name] = value;
            json!([{ "name": "good", "command": "c" }, server])
        };
        let far = json!([{ "type": "http", "name": "n", "url": "http://h/", "headers": "X: y" }]);
        let table = [
            (json!([7]), "`mcpServers[0]` must be an object"),
            (json!([{ "command": "c" }]), "`mcpServers[0].name` is missing"),
            (json!([{ "name": "n" }]), "`mcpServers[0].command` is missing"),
            (json!([{ "name": "n", "type": "http" }]), "`mcpServers[0].url` is missing"),
            (server("command", json!(["c", "a"])), "`mcpServers[1].command` must be text"),
            (server("args", json!("-a -b")), "`mcpServers[1].args` must be a list, not text"),
            (server("args", json!({ "0": "a" })), "`mcpServers[1].args` must be a list"),
            (server("args", json!(["a", null])), "`mcpServers[1].args[1]` must be text, not null"),
            (server("env", json!("A=b")), "`mcpServers[1].env` must be a list, not text"),
            (server("env", json!(["A=b"])), "`mcpServers[1].env[0]` must be an object"),
            (server("env", json!([{ "name": "A" }])), "`mcpServers[1].env[0].value` is missing"),
            (server("env", json!({ "A": null })), "`mcpServers[1].env.A` must be text"),
            (json!(vec![0; 257]), "`mcpServers` has 257 servers; at most 256 are possible"),
            (server("env", json!({ "A": ["b"] })), "`mcpServers[1].env.A` must be text"),
            (far, "`mcpServers[0].headers` must be a list, not text"),
        ];
        for (servers, expected) in table {
            let error = normalize_servers(&mut json!({ "mcpServers": servers })).unwrap_err();
            assert!(error.contains(expected), "{servers}: {error}");
        }
    }
}
