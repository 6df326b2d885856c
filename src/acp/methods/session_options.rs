//! `session/options` (unstable): the options with which a session would be opened, so that a client can show them
//! before. It opens and changes nothing.

use serde::Serialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SessionOptionsRequest, SessionOptionsResponse};
use crate::acp::versions::Version;
use crate::acp::{to_wire, v2};
use crate::session::stored_sessions::{self, OptionsQuery};
use turnwright_types::ids::SessionId;
use turnwright_types::update::{ConfigOption, SlashCommand};

pub(super) fn find_options(
    connection: &mut Connection,
    params: SessionOptionsRequest,
    reply: Responder<SessionOptionsResponse>,
) {
    find(connection, params, reply, |settings, _| {
        let modes = to_wire::modes(&settings);
        SessionOptionsResponse::new().modes(modes).config_options(to_wire::settings(settings))
    });
}

pub(super) fn find_options_v2(
    connection: &mut Connection,
    params: SessionOptionsRequest,
    reply: Responder<Value>,
) {
    find(connection, params, reply, |settings, commands| {
        let options = v2::settings(settings);
        json!({ "configOptions": options, "availableCommands": v2::commands(commands) })
    });
}

fn find<R: Serialize + 'static>(
    connection: &mut Connection,
    params: SessionOptionsRequest,
    reply: Responder<R>,
    respond: impl FnOnce(Vec<ConfigOption>, Vec<SlashCommand>) -> R + Send + 'static,
) {
    let SessionOptionsRequest { cwd, additional_directories: folders, session_id, .. } = params;
    let stored = session_id.map(|id| SessionId::from(id.0.as_ref()));
    // The answer of version 1 has no commands.
    let with_commands = connection.version == Version::V2;
    let (cancel, in_flight) = connection.in_flight.register(reply.id().clone());
    let done = reply.done(move |(settings, commands)| {
        drop(in_flight);
        respond(settings, commands)
    });
    let query = OptionsQuery { cwd, folders, stored, with_commands };
    stored_sessions::options(&connection.host, query, cancel, done);
}
