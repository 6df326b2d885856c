//! `session/new`.

use serde_json::Value;

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::mcp_servers::{read_with_servers, read_with_typed_servers};
use crate::acp::opening::{self, OpeningRequest};
use crate::acp::responder::Responder;
use crate::acp::schema::{NewSessionRequest, NewSessionResponse};
use crate::error::Error;
use crate::session::{SessionOrigin, WantedSession};
use turnwright_types::ids::SessionId;

pub(super) struct NewSession;

impl RequestMethod for NewSession {
    const NAME: &'static str = "session/new";
    // The MCP servers are corrected before the rest is read.
    type Params = Value;
    type Result = NewSessionResponse;

    fn handle(connection: &mut Connection, mut params: Self::Params, reply: Responder<Self>) {
        let wanted = read_with_servers(Self::NAME, &mut params)
            .and_then(|opening| wanted_session(connection, opening));
        opening::open(connection, wanted, reply, |id, modes, options| {
            NewSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
        });
    }
}

pub(super) struct NewSessionV2;

impl RequestMethod for NewSessionV2 {
    const NAME: &'static str = "session/new";
    type Params = Value;
    type Result = Value;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let wanted = read_with_typed_servers(Self::NAME, params)
            .and_then(|opening| wanted_session(connection, opening));
        opening::open_as_new_v2(connection, wanted, reply);
    }
}

fn wanted_session(
    connection: &Connection,
    opening: NewSessionRequest,
) -> Result<WantedSession, Error> {
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::New)
}
