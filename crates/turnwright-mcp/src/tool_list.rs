//! Lists the tools of a server, page by page, and tolerates malformed lists.

use std::collections::HashSet;
use std::sync::Arc;

use super::model::{JsonObject, Tool};
use serde_json::Value;

use super::handshake::ServerInfo;
use super::listed_tool::{self, ListedTool};
use super::model_schema::bounded_text;
use super::peer::{Channel, Peer, PeerError};
use super::resources;
use super::standard_headers::{HeaderArguments, header_arguments};
use tokio::task::spawn_blocking;
use turnwright_types::effect::escape_hidden_line;

/// Maximum number of pages. The rest of the list is ignored.
const MAX_PAGES: usize = 100;
/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 1000;
/// Maximum size of all tool definitions of one server.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of a tool name in the log.
const MAX_NAME_CHARS: usize = 100;
/// A longer cursor ends the list.
const MAX_CURSOR_BYTES: usize = 64 * 1024;

const METHOD_NOT_FOUND: i32 = -32601;

/// Lists and prepares all tools of a server.
pub(super) async fn list_tools(peer: &Peer) -> Result<Vec<Arc<ListedTool>>, String> {
    let mut tools = Vec::new();
    let mut names = HashSet::new();
    let mut size = 0;
    let mut cursor = None;
    let mut cursors = HashSet::new();
    let mut marked = HeaderArguments::default();
    for page_index in 0..MAX_PAGES {
        let (mut page, next) = match request_page(peer, cursor.take()).await {
            Ok(page) => page,
            Err(PeerError::ErrorResponse(error))
                if page_index == 0 && error.code == METHOD_NOT_FOUND =>
            {
                break;
            }
            Err(error) if page_index == 0 => {
                return Err(format!("its tools could not be listed: {error}"));
            }
            Err(error) => {
                tracing::warn!(%error, "the list of a server's tools is incomplete");
                break;
            }
        };
        keep_header_arguments(peer, &mut page, &mut marked);
        // If several tools have the same name, the first wins. A list that repeats itself adds
        // nothing.
        let (accepted, rejected): (Vec<_>, Vec<_>) = page
            .into_iter()
            .partition(|tool| listed_tool::has_valid_name(tool) && names.insert(tool.name.clone()));
        for tool in rejected {
            let name = bounded_text(&escape_hidden_line(&tool.name), MAX_NAME_CHARS);
            tracing::warn!(name, "a tool with an invalid or duplicate name is ignored");
        }
        let preparing = spawn_blocking(|| accepted.into_iter().map(ListedTool::new).collect());
        let prepared: Vec<_> = preparing.await.map_err(|error| error.to_string())?;
        for tool in prepared {
            size += tool.size;
            if tools.len() < MAX_TOOLS && size <= MAX_BYTES {
                tools.push(Arc::new(tool));
            }
        }
        let is_full = tools.len() >= MAX_TOOLS || size > MAX_BYTES;
        let next = next.filter(|cursor| !is_full && cursor.len() <= MAX_CURSOR_BYTES);
        cursor = next.filter(|cursor| cursors.insert(cursor.clone()));
        if cursor.is_none() {
            break;
        }
    }
    if let Channel::Http(http) = peer.channel() {
        http.set_header_arguments(marked);
    }
    if let Some(tool) = resources::tool(peer, |name| names.contains(name)) {
        tools.push(Arc::new(ListedTool { reads_resources: true, ..ListedTool::new(tool) }));
    }
    Ok(tools)
}

/// Requests one page of the list. Returns its tools and the next cursor.
async fn request_page(
    peer: &Peer,
    cursor: Option<String>,
) -> Result<(Vec<Tool>, Option<String>), PeerError> {
    let page: Value = peer.request("tools/list", page_params(cursor)).await?;
    listed_tool::parse_page(page).ok_or(PeerError::Malformed)
}

/// The parameters that ask for a page of a list.
pub(super) fn page_params(cursor: Option<String>) -> JsonObject {
    cursor.map(|cursor| ("cursor".to_owned(), cursor.into())).into_iter().collect()
}

/// Over HTTP, some arguments are sent as headers too. Removes the tools whose definition of those is invalid.
fn keep_header_arguments(peer: &Peer, page: &mut Vec<Tool>, all: &mut HeaderArguments) {
    if !matches!(peer.channel(), Channel::Http(_))
        || peer.info().is_none_or(ServerInfo::has_handshake)
    {
        return;
    }
    page.retain(|tool| match header_arguments(&tool.input_schema.parse()) {
        Ok(arguments) => {
            if !arguments.is_empty() {
                all.insert(tool.name.clone(), arguments);
            }
            true
        }
        Err(why) => {
            let name = bounded_text(&escape_hidden_line(&tool.name), MAX_NAME_CHARS);
            tracing::warn!(name, why, "a tool is ignored");
            false
        }
    });
}
