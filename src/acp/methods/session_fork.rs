//! `session/fork` (unstable): a new session that begins with the conversation of another one.

use serde_json::Value;

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::mcp_servers::{read_with_servers, read_with_typed_servers};
use crate::acp::opening::{self, OpeningRequest};
use crate::acp::responder::Responder;
use crate::acp::schema::{ForkSessionRequest, ForkSessionResponse};
use crate::error::Error;
use crate::session::{SessionOrigin, WantedSession};
use turnwright_types::ids::SessionId;

pub(super) struct ForkSession;

impl RequestMethod for ForkSession {
    const NAME: &'static str = "session/fork";
    // The MCP servers are corrected before the rest is read.
    type Params = Value;
    type Result = ForkSessionResponse;

    fn handle(connection: &mut Connection, mut params: Self::Params, reply: Responder<Self>) {
        let wanted = read_with_servers(Self::NAME, &mut params)
            .and_then(|opening| wanted_session(connection, opening));
        opening::open(connection, wanted, reply, |id, modes, options| {
            ForkSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
        });
    }
}

pub(super) struct ForkSessionV2;

impl RequestMethod for ForkSessionV2 {
    const NAME: &'static str = "session/fork";
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
    opening: ForkSessionRequest,
) -> Result<WantedSession, Error> {
    let source = SessionId::from(opening.session_id.0.as_ref());
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::Fork { source })
}
