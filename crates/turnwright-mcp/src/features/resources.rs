//! A tool of ours, beside those of a server, with which the model lists and reads the server's resources.

use std::time::Duration;

use serde_json::{Value, json};

use super::tools::list_items;
use super::{JsonObject, Resource, ResourceContents, Tool};
use crate::call::server_requests::{WaitingCall, request_with_pages};
use crate::call::{CallError, ResultBlock, ToolResult, call_error, cancelled};
use crate::schema::model_schema::bounded_text;
use crate::transport::{Peer, PeerError};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::patience::timeout;

/// Maximum number of resources that are listed.
const MAX_RESOURCES: usize = 500;
/// Maximum length of the line about one resource.
const MAX_LINE_CHARS: usize = 300;

/// The tool's name: the first that no tool of the server has.
const TOOL_NAMES: [&str; 2] = ["read_resource", "read_mcp_resource"];

/// Makes the definition of the tool, if the server has resources.
pub fn tool(peer: &Peer, is_taken: impl Fn(&str) -> bool) -> Option<Tool> {
    peer.info().filter(|info| info.has("resources"))?;
    let name = TOOL_NAMES.into_iter().find(|name| !is_taken(name))?;
    let uri = json!({ "type": "string", "description": "As listed, linked or mentioned" });
    let tool = json!({
        "name": name,
        "description": "Reads a resource of this server. Without a uri, lists what there is.",
        "inputSchema": { "type": "object", "properties": { "uri": uri } },
        "annotations": { "readOnlyHint": true },
    });
    serde_json::from_value(tool).ok()
}

/// Runs the tool. The server may ask the user of `caller` to visit pages first.
pub async fn call(
    peer: &Peer,
    arguments: &JsonObject,
    limit: Duration,
    caller: &WaitingCall,
) -> Result<ToolResult, CallError> {
    let running = async {
        let Some(uri) = wanted_uri(arguments) else {
            let listed = timeout(limit, list(peer)).await.map_err(|_| timed_out(limit))?;
            return Ok(vec![ResultBlock::Text(listed?)]);
        };
        read(peer, uri, limit, caller).await
    };
    let blocks = caller.cancel.run_until_cancelled(running).await.ok_or_else(cancelled)??;
    Ok(ToolResult { blocks, ..ToolResult::default() })
}

fn timed_out(limit: Duration) -> CallError {
    format!("The server did not answer within {} s.", limit.as_secs()).into()
}

/// The resource that a call of the tool reads; `None` if it lists them.
pub fn wanted_uri(arguments: &JsonObject) -> Option<&str> {
    arguments.get("uri").and_then(Value::as_str).filter(|uri| !uri.is_empty())
}

pub(super) async fn read(
    peer: &Peer,
    uri: &str,
    limit: Duration,
    caller: &WaitingCall,
) -> Result<Vec<ResultBlock>, CallError> {
    let params = JsonObject::from_iter([("uri".to_owned(), uri.into())]);
    let asking = request_with_pages(peer, "resources/read", params, limit, caller);
    let answer = asking.await.ok_or_else(|| timed_out(limit))?;
    let mut result: Value = answer.map_err(|error| call_error(&error))?;
    if result["resultType"] == "input_required" {
        let why =
            "The server asks for input before it shows this, which is not supported for resources.";
        return Err(why.to_owned().into());
    }
    let Some(Value::Array(contents)) = result.get_mut("contents").map(Value::take) else {
        return Err(call_error(&PeerError::Malformed));
    };
    let blocks = contents.into_iter().map(|content| {
        serde_json::from_value::<ResourceContents>(content)
            .map_or_else(|_| ResultBlock::Unknown("resource".to_owned()), ResultBlock::from)
    });
    Ok(blocks.collect())
}

async fn list(peer: &Peer) -> Result<String, CallError> {
    let listing = list_items(peer, ("resources/list", "resources"), MAX_RESOURCES, resource_line);
    let (mut lines, has_more) = listing.await.map_err(|error| call_error(&error))?;
    let list = ("resources/templates/list", "resourceTemplates");
    let templates = list_items(peer, list, MAX_RESOURCES, |template| template_line(&template));
    // A server that does not support the request has none.
    lines.extend(templates.await.unwrap_or_default().0);
    if has_more {
        lines.push("[there are more]".to_owned());
    }
    Ok(if lines.is_empty() { "There are none.".to_owned() } else { lines.join("\n") })
}

fn template_line(template: &Value) -> Option<String> {
    let uri = template["uriTemplate"].as_str()?;
    let name = template["name"].as_str()?;
    Some(bounded_text(&escape_hidden_line(&format!("{uri} – {name}")), MAX_LINE_CHARS))
}

fn resource_line(resource: Value) -> Option<String> {
    let resource: Resource = serde_json::from_value(resource).ok()?;
    let name = resource.title.as_deref().unwrap_or(&resource.name);
    let mut line = format!("{} – {name}", resource.uri);
    let fields = [&resource.mime_type, &resource.description];
    let details: Vec<_> = fields.into_iter().flatten().map(String::as_str).collect();
    if !details.is_empty() {
        line.push_str(&format!(" ({})", details.join(": ")));
    }
    Some(bounded_text(&escape_hidden_line(&line), MAX_LINE_CHARS))
}
