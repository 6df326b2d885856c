//! The notification `mcp/message` (unstable), from an MCP server that runs within the client.

use crate::acp::connection::Connection;
use turnwright_rpc::Params;

pub(super) fn deliver(connection: &mut Connection, params: &Params) {
    connection.linked_requests.deliver(params);
}
