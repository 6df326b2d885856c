//! Converts the MCP servers that a client requests for a session to server specs.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use url::Url;

use super::connection::Connection;
use super::error::read_params;
use super::linked_servers::ClientServer;
use super::wire::schema::{EnvVariable, HttpHeader, McpServer};
use crate::error::Error;
use crate::session::{LinkedServer, ServerSource, ServerSpec, ServerTransport};
use turnwright_types::secret::Secret;

/// A field of a request that cannot mean one thing only.
#[derive(Debug, thiserror::Error)]
#[error("Invalid parameters: `{place}` must be {expected}")]
struct FieldFault {
    place: String,
    expected: &'static str,
}

impl FieldFault {
    fn new(place: impl Into<String>, expected: &'static str) -> FieldFault {
        FieldFault { place: place.into(), expected }
    }
}

impl From<FieldFault> for Error {
    fn from(fault: FieldFault) -> Error {
        Error::InvalidParams(fault.to_string())
    }
}

/// Brings parameters that name folders and MCP servers into the form of the protocol, where a client can only
/// mean one thing: lists that are null, missing or an empty object, servers by their names, variables and
/// headers as an object, numbers in place of texts, other names of the HTTP transport, `file:` addresses.
///
/// # Errors
/// If a field can mean more than one thing. The text names it with its path.
pub(super) fn normalize(params: &mut Value) -> Result<(), Error> {
    let Some(fields) = params.as_object_mut() else { return Ok(()) };
    if let Some(cwd) = fields.get_mut("cwd") {
        normalize_folder(cwd);
    }
    if let Some(folders) = fields.get_mut("additionalDirectories") {
        if is_empty_object(folders) {
            *folders = json!([]);
        }
        folders.as_array_mut().into_iter().flatten().for_each(normalize_folder);
    }
    let servers = fields.entry("mcpServers").or_insert(Value::Null);
    let mut list = match servers.take() {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        Value::Object(named) => named.into_iter().map(with_name).collect(),
        _ => return Err(FieldFault::new("mcpServers", "a list").into()),
    };
    for (index, server) in list.iter_mut().enumerate() {
        let place = format!("mcpServers[{index}]");
        let Some(fields) = server.as_object_mut() else {
            return Err(FieldFault::new(place, "an object").into());
        };
        normalize_server(fields, &place)?;
    }
    *servers = Value::Array(list);
    Ok(())
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn normalize_folder(folder: &mut Value) {
    let url = folder.as_str().filter(|it| it.starts_with("file:"));
    let path = url.and_then(|it| Url::parse(it).ok()?.to_file_path().ok());
    if let Some(path) = path.as_deref().and_then(Path::to_str) {
        *folder = path.into();
    }
}

fn with_name((name, mut server): (String, Value)) -> Value {
    if let Some(fields) = server.as_object_mut() {
        fields.entry("name").or_insert(name.into());
    }
    server
}

fn normalize_server(fields: &mut Map<String, Value>, place: &str) -> Result<(), FieldFault> {
    let kind = fields.get("type").filter(|it| !it.is_null());
    match kind.map(|it| it.as_str().unwrap_or_default()) {
        Some("streamable-http" | "streamable_http" | "streamableHttp") => {
            fields.insert("type".to_owned(), "http".into());
        }
        // No other transport with an address is offered.
        None if fields.contains_key("url") && !fields.contains_key("command") => {
            fields.insert("type".to_owned(), "http".into());
        }
        None => drop(fields.remove("type")),
        Some(_) => {}
    }
    let needed: &[&str] = match fields.get("type").and_then(Value::as_str) {
        None | Some("stdio") => &["name", "command"],
        Some("http") => &["name", "url"],
        Some(_) => return Ok(()),
    };
    for name in needed {
        if !fields.get(*name).is_some_and(Value::is_string) {
            return Err(FieldFault::new(format!("{place}.{name}"), "text"));
        }
    }
    let args = fields.entry("args").or_insert(Value::Null);
    *args = match args.take() {
        Value::Null => json!([]),
        empty if is_empty_object(&empty) => json!([]),
        Value::Array(words) => words
            .iter()
            .enumerate()
            .map(|(index, word)| {
                let fault = || FieldFault::new(format!("{place}.args[{index}]"), "text");
                text_of(word).ok_or_else(fault)
            })
            .collect::<Result<Value, FieldFault>>()?,
        _ => return Err(FieldFault::new(format!("{place}.args"), "a list of texts")),
    };
    for list in ["env", "headers"] {
        let pairs = fields.entry(list).or_insert(Value::Null);
        *pairs = normalized_pairs(pairs, &format!("{place}.{list}"))?;
    }
    Ok(())
}

/// Returns names with their values as the protocol has them.
fn normalized_pairs(pairs: &Value, place: &str) -> Result<Value, FieldFault> {
    let pair = |name: &str, value: &Value, place: String| {
        let value = text_of(value).ok_or_else(|| FieldFault::new(place, "text"))?;
        Ok(json!({ "name": name, "value": value }))
    };
    match pairs {
        Value::Null => Ok(json!([])),
        Value::Object(values) => values
            .iter()
            .map(|(name, value)| pair(name, value, format!("{place}.{name}")))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, item)| match item["name"].as_str() {
                Some(name) => pair(name, &item["value"], format!("{place}[{index}].value")),
                None => Err(FieldFault::new(format!("{place}[{index}].name"), "text")),
            })
            .collect(),
        _ => Err(FieldFault::new(place, "a list of names and values, or an object")),
    }
}

/// The text that a value stands for where only a text can be meant.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Reads parameters that name MCP servers. The types of the schema take a server of any type for a program if
/// it is malformed and has a `command`: that would start what the client did not ask for (R-MCP-5).
pub(super) fn read_with_servers<T: DeserializeOwned>(
    method: &str,
    params: &mut Value,
) -> Result<T, Error> {
    normalize(params)?;
    for server in servers_of(params) {
        if server.get("type").is_some_and(|it| it != "stdio") {
            server.remove("command");
        }
    }
    read_params(method, params)
}

/// The servers in the parameters of a request.
fn servers_of(params: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
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
            normalize(&mut params).unwrap();
            assert_eq!(params["mcpServers"], *expected, "{given}");
        }
        let mut params = json!({ "additionalDirectories": {} });
        normalize(&mut params).unwrap();
        assert_eq!(params["additionalDirectories"], json!([]));
    }

    #[cfg(unix)]
    #[test]
    fn folders_may_be_file_addresses() {
        let mut params = json!({ "cwd": "file:///home/me/a%20b",
            "additionalDirectories": ["file:///x", "/y", "file://host/z", 7] });
        normalize(&mut params).unwrap();
        assert_eq!(params["cwd"], "/home/me/a b");
        assert_eq!(params["additionalDirectories"], json!(["/x", "/y", "file://host/z", 7]));
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
            (json!("x"), "`mcpServers` must be a list"),
            (json!([7]), "`mcpServers[0]` must be an object"),
            (json!([{ "command": "c" }]), "`mcpServers[0].name` must be text"),
            (json!([{ "name": "n" }]), "`mcpServers[0].command` must be text"),
            (json!([{ "name": "n", "type": "http" }]), "`mcpServers[0].url` must be text"),
            (server("command", json!(["c", "a"])), "`mcpServers[1].command` must be text"),
            (server("args", json!("-a -b")), "`mcpServers[1].args` must be a list of texts"),
            (server("args", json!({ "0": "a" })), "`mcpServers[1].args` must be a list of texts"),
            (server("args", json!(["a", null])), "`mcpServers[1].args[1]` must be text"),
            (server("env", json!("A=b")), "`mcpServers[1].env` must be a list of names"),
            (server("env", json!(["A=b"])), "`mcpServers[1].env[0].name` must be text"),
            (server("env", json!([{ "name": "A" }])), "`mcpServers[1].env[0].value` must be text"),
            (server("env", json!({ "A": null })), "`mcpServers[1].env.A` must be text"),
            (server("env", json!({ "A": ["b"] })), "`mcpServers[1].env.A` must be text"),
            (far, "`mcpServers[0].headers` must be a list of names"),
        ];
        for (servers, expected) in table {
            let error = normalize(&mut json!({ "mcpServers": servers })).unwrap_err().to_string();
            assert!(error.contains(expected), "{servers}: {error}");
        }
    }
}
