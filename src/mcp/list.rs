//! The tools of a server, page by page, whatever it makes of that.

use std::collections::HashSet;
use std::sync::Arc;

use rmcp::model::{
    ClientRequest, ErrorCode, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool,
};
use rmcp::{Peer, RoleClient, ServiceError};

use super::listed::{self, Listed};
use super::resources;
use super::schema::words;
use turnwright_types::effect::visible_line;

/// Pages of a list. One that never ends is cut.
const MOST_PAGES: usize = 100;
/// Tools of one server.
const MOST_TOOLS: usize = 1000;
/// Bytes of what a server says of all its tools.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Characters of a name in the log.
const LONGEST_NAME: usize = 100;
/// Bytes of a cursor.
const LONGEST_CURSOR: usize = 64 * 1024;

const METHOD_NOT_FOUND: ErrorCode = ErrorCode::METHOD_NOT_FOUND;

/// All tools, page by page, made ready.
pub(super) async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Arc<Listed>>, String> {
    let (mut tools, mut names, mut weight) = (Vec::new(), HashSet::new(), 0);
    let (mut cursor, mut cursors) = (None, HashSet::new());
    for number in 0..MOST_PAGES {
        let (page, next) = match page(peer, cursor.take()).await {
            Ok(page) => page,
            Err(ServiceError::McpError(it)) if number == 0 && it.code == METHOD_NOT_FOUND => break,
            Err(error) if number == 0 => {
                return Err(format!("its tools could not be listed: {error}"));
            }
            Err(error) => {
                tracing::warn!(%error, "the list of its tools breaks off");
                break;
            }
        };
        // The first of a name counts, as it does in a list without an end.
        let is_new = |it: &Tool| listed::has_name(it) && names.insert(it.name.clone());
        let (new, old): (Vec<_>, Vec<_>) = page.into_iter().partition(is_new);
        for tool in old {
            let name = words(&visible_line(&tool.name), LONGEST_NAME);
            tracing::warn!(name, "a tool with a bad or known name");
        }
        let ready = tokio::task::spawn_blocking(|| new.into_iter().map(Listed::new).collect());
        let ready: Vec<_> = ready.await.map_err(|error| error.to_string())?;
        for tool in ready {
            weight += tool.weight;
            if tools.len() < MOST_TOOLS && weight <= MOST_BYTES {
                tools.push(Arc::new(tool));
            }
        }
        let is_full = tools.len() >= MOST_TOOLS || weight > MOST_BYTES;
        let next = next.filter(|it| !is_full && it.len() <= LONGEST_CURSOR);
        cursor = next.filter(|it| cursors.insert(it.clone()));
        if cursor.is_none() {
            break;
        }
    }
    let taken = |name: &str| names.contains(name);
    if let Some(tool) = resources::tool(peer, taken) {
        tools.push(Arc::new(Listed { reads_resources: true, ..Listed::new(tool) }));
    }
    Ok(tools)
}

/// A page of the list, and where the next one is.
async fn page(
    peer: &Peer<RoleClient>,
    cursor: Option<String>,
) -> Result<(Vec<Tool>, Option<String>), ServiceError> {
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    match peer.send_request(request).await? {
        ServerResult::ListToolsResult(page) => Ok((page.tools, page.next_cursor)),
        // Something in it is not as it should be.
        ServerResult::CustomResult(page) => {
            listed::page(page.0).ok_or(ServiceError::UnexpectedResponse)
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}
