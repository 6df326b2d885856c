//! `session/new`.

use serde_json::Value;

use crate::acp::connection::Connection;
use crate::acp::mcp_servers::{read_with_servers, read_with_typed_servers};
use crate::acp::opening::{self, OpeningRequest};
use crate::acp::responder::Responder;
use crate::acp::schema::{NewSessionRequest, NewSessionResponse};
use crate::error::Error;
use crate::session::{SessionOrigin, WantedSession};
use turnwright_types::ids::SessionId;

/// The MCP servers are corrected before the rest is read.
pub(super) fn new_session(
    connection: &mut Connection,
    mut params: Value,
    reply: Responder<NewSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), &mut params)
        .and_then(|opening| wanted_session(connection, opening));
    opening::open(connection, wanted, reply, |id, modes, options| {
        NewSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

pub(super) fn new_session_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let wanted = read_with_typed_servers(reply.method(), params)
        .and_then(|opening| wanted_session(connection, opening));
    opening::open_as_new_v2(connection, wanted, reply);
}

fn wanted_session(
    connection: &Connection,
    opening: NewSessionRequest,
) -> Result<WantedSession, Error> {
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::New)
}
