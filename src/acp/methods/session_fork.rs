//! `session/fork` (unstable): a new session that begins with the conversation of another one.

use serde_json::Value;

use crate::acp::connection::Connection;
use crate::acp::mcp_servers::{read_with_servers, read_with_typed_servers};
use crate::acp::opening::{self, OpeningRequest};
use crate::acp::responder::Responder;
use crate::acp::schema::{ForkSessionRequest, ForkSessionResponse};
use crate::error::Error;
use crate::session::{SessionOrigin, WantedSession};
use turnwright_types::ids::SessionId;

/// The MCP servers are corrected before the rest is read.
pub(super) fn fork_session(
    connection: &mut Connection,
    mut params: Value,
    reply: Responder<ForkSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), &mut params)
        .and_then(|opening| wanted_session(connection, opening));
    opening::open(connection, wanted, reply, |id, modes, options| {
        ForkSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

pub(super) fn fork_session_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let wanted = read_with_typed_servers(reply.method(), params)
        .and_then(|opening| wanted_session(connection, opening));
    opening::open_as_new_v2(connection, wanted, reply);
}

fn wanted_session(
    connection: &Connection,
    opening: ForkSessionRequest,
) -> Result<WantedSession, Error> {
    let source = SessionId::from(opening.session_id.0.as_ref());
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::Fork { source })
}
