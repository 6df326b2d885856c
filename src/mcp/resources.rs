//! The resources of a server, for the model: one tool beside those of the server lists and reads them.

use std::time::Duration;

use rmcp::model::{
    JsonObject, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, Resource,
    Tool, ToolAnnotations,
};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::{Trouble, cancelled, refused};
use super::content::{Answer, Block};
use super::schema::words;
use turnwright_types::effect::visible_line;
use crate::tools::ToolCtx;

/// Pages of a list. One that never ends is cut.
const MOST_PAGES: usize = 20;
/// Resources that are listed.
const MOST: usize = 500;
/// Characters of a line about one.
const LONGEST_LINE: usize = 300;

/// What the tool is called, unless the server has one of that name.
const NAMES: [&str; 2] = ["read_resource", "read_mcp_resource"];

/// The tool, if the server has resources.
pub(super) fn tool(peer: &Peer<RoleClient>, is_taken: impl Fn(&str) -> bool) -> Option<Tool> {
    peer.peer_info()?.capabilities.resources.as_ref()?;
    let name = NAMES.into_iter().find(|it| !is_taken(it))?;
    let about = "Reads a resource of this server. Without a uri, lists what there is.";
    let uri = json!({ "type": "string", "description": "As listed, linked or mentioned" });
    let schema = json!({ "type": "object", "properties": { "uri": uri } });
    let Value::Object(schema) = schema else { return None };
    let hints = ToolAnnotations::default().read_only(true);
    Some(Tool::new(name, about, schema).with_annotations(hints))
}

/// What the tool answers.
pub(super) async fn answer(
    peer: &Peer<RoleClient>,
    arguments: &JsonObject,
    limit: Duration,
    ctx: &ToolCtx,
) -> Result<Answer, Trouble> {
    let uri = arguments.get("uri").and_then(Value::as_str).filter(|it| !it.is_empty());
    let answering = async {
        match uri {
            Some(uri) => read(peer, uri).await,
            None => Ok(vec![Block::Text(list(peer).await?)]),
        }
    };
    let answering = timeout(limit, ctx.cancel.run_until_cancelled(answering));
    match answering.await {
        Ok(Some(Ok(blocks))) => Ok(Answer { blocks, ..Answer::default() }),
        Ok(Some(Err(error))) => Err(error),
        Ok(None) => Err(cancelled().into()),
        Err(_) => Err(format!("The server did not answer within {} s.", limit.as_secs()).into()),
    }
}

async fn read(peer: &Peer<RoleClient>, uri: &str) -> Result<Vec<Block>, Trouble> {
    let params = ReadResourceRequestParams::new(uri);
    let response = peer.read_resource_once(params).await.map_err(|error| refused(&error))?;
    let ReadResourceResponse::Complete(result) = response else {
        let why = "The server asks for something before it shows this, which it cannot be given.";
        return Err(why.to_owned().into());
    };
    Ok(result.contents.into_iter().map(Block::from).collect())
}

async fn list(peer: &Peer<RoleClient>) -> Result<String, Trouble> {
    let (mut lines, mut cursor) = (Vec::new(), None);
    for number in 0..MOST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        match peer.list_resources(Some(params)).await {
            Ok(page) => {
                lines.extend(page.resources.iter().take(MOST + 1).map(line));
                cursor = page.next_cursor;
            }
            Err(error) if number == 0 => return Err(refused(&error)),
            Err(error) => tracing::warn!(%error, "the list of resources breaks off"),
        }
        if cursor.is_none() || lines.len() >= MOST {
            break;
        }
    }
    let is_cut = cursor.is_some() || lines.len() > MOST;
    lines.truncate(MOST);
    lines.extend(templates(peer).await);
    if is_cut {
        lines.push("[there are more]".to_owned());
    }
    Ok(if lines.is_empty() { "There are none.".to_owned() } else { lines.join("\n") })
}

/// Patterns of addresses. A server that does not know them has none.
async fn templates(peer: &Peer<RoleClient>) -> Vec<String> {
    let page: Result<_, ServiceError> = peer.list_resource_templates(None).await;
    let templates = page.map(|it| it.resource_templates).unwrap_or_default();
    let line =
        |uri: &str, name: &str| words(&visible_line(&format!("{uri} – {name}")), LONGEST_LINE);
    templates.iter().take(MOST).map(|it| line(&it.uri_template, &it.name)).collect()
}

fn line(resource: &Resource) -> String {
    let name = resource.title.as_deref().unwrap_or(&resource.name);
    let mut line = format!("{} – {name}", resource.uri);
    let about = [&resource.mime_type, &resource.description];
    let about: Vec<_> = about.into_iter().flatten().map(String::as_str).collect();
    if !about.is_empty() {
        line.push_str(&format!(" ({})", about.join(": ")));
    }
    words(&visible_line(&line), LONGEST_LINE)
}
