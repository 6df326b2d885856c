//! `session/new`, `session/load`, `session/resume` and `session/fork` (unstable), which open a session: a new one, a
//! stored one with and without a replay of its conversation, and a new one that begins with the conversation of
//! another, or a part of it. Version 2 has no `session/load`; the parameters of its `session/resume` ask for the
//! replay. `session/options` (unstable) looks at what would be opened.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::mcp_servers::read_with_servers;
use crate::acp::opening::{self, OpeningRequest};
use crate::acp::responder::Responder;
use crate::acp::schema::{
    ForkSessionRequest, ForkSessionResponse, LoadSessionRequest, LoadSessionResponse,
    NewSessionRequest, NewSessionResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionOptionsRequest,
};
use crate::acp::versions::Version;
use crate::acp::{from_wire, to_wire, v2};
use crate::error::Error;
use crate::session::{SessionOptions, SessionOrigin, WantedSession, preview};
use turnwright_types::ids::SessionId;

/// The MCP servers are corrected before the rest is read, here and below.
pub(super) fn new_session(
    connection: &mut Connection,
    params: Value,
    reply: Responder<NewSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), params, Version::V1)
        .and_then(|opening| wanted_new(connection, opening));
    opening::open(connection, wanted, reply, |id, modes, options| {
        NewSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

pub(super) fn new_session_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let wanted =
        read_typed(reply.method(), params).and_then(|opening| wanted_new(connection, opening));
    opening::open_as_new_v2(connection, wanted, reply);
}

pub(super) fn fork_session(
    connection: &mut Connection,
    params: Value,
    reply: Responder<ForkSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), params, Version::V1)
        .and_then(|opening| wanted_fork(connection, opening));
    opening::open(connection, wanted, reply, |id, modes, options| {
        ForkSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

pub(super) fn fork_session_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let wanted =
        read_typed(reply.method(), params).and_then(|opening| wanted_fork(connection, opening));
    opening::open_as_new_v2(connection, wanted, reply);
}

pub(super) fn load_session(
    connection: &mut Connection,
    params: Value,
    reply: Responder<LoadSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), params, Version::V1).and_then(
        |opening: LoadSessionRequest| {
            let id = SessionId::from(opening.session_id.0.as_ref());
            opening.into_wanted(connection, id, SessionOrigin::Stored { replay: true })
        },
    );
    opening::open(connection, wanted, reply, |_, modes, options| {
        LoadSessionResponse::new().modes(modes).config_options(options)
    });
}

pub(super) fn resume_session(
    connection: &mut Connection,
    params: Value,
    reply: Responder<ResumeSessionResponse>,
) {
    let wanted = read_with_servers(reply.method(), params, Version::V1)
        .and_then(|opening| wanted_stored(connection, opening, false));
    opening::open(connection, wanted, reply, |_, modes, options| {
        ResumeSessionResponse::new().modes(modes).config_options(options)
    });
}

pub(super) fn resume_session_v2(
    connection: &mut Connection,
    params: Value,
    reply: Responder<Value>,
) {
    let replay = replays(&params);
    let wanted = read_typed(reply.method(), params)
        .and_then(|opening| wanted_stored(connection, opening, replay?));
    let Some((wanted, reply)) = reply.if_ok(wanted) else { return };
    let client = opening::client_v2(connection, &wanted);
    let resumed = Arc::clone(&client);
    let request = reply.id().clone();
    let done = reply.done(move |settings| {
        // The client learns the state of a session before it may prompt it (R-TWO-6).
        resumed.report_idle();
        json!({ "configOptions": v2::settings(settings) })
    });
    let client = opening::client_side_v2(client);
    opening::open_session(connection, request, wanted, client, done);
}

/// `session/options` (unstable) returns the options with which a session would be opened. It changes nothing.
pub(super) fn find_options(
    connection: &mut Connection,
    params: SessionOptionsRequest,
    reply: Responder<Value>,
) {
    let SessionOptionsRequest { cwd, additional_directories, session_id, .. } = params;
    let cwd = from_wire::working_folder(cwd, connection.remote.is_some());
    let folders = additional_directories.into_iter().map(from_wire::folder).collect();
    let (id, origin) = match session_id {
        Some(id) => (SessionId::from(id.0.as_ref()), SessionOrigin::Stored { replay: false }),
        None => (SessionId::random(), SessionOrigin::New),
    };
    let servers = Vec::new();
    let settings = Vec::new();
    let wanted = WantedSession { id, cwd, folders, servers, options: None, settings, origin };
    // It gets no updates, so one client does for both versions.
    let client = opening::client_side_v2(opening::client_v2(connection, &wanted));
    let version = connection.version;
    let caps = connection.client.unwrap_or_default();
    let (cancel, in_flight) = connection.in_flight.register(reply.id().clone());
    let done = reply.done(move |(settings, commands): SessionOptions| {
        drop(in_flight);
        match version {
            Version::V1 => json!({
                "modes": to_wire::modes(&settings), "configOptions": to_wire::settings(settings),
            }),
            Version::V2 => json!({
                "configOptions": v2::settings(settings),
                "availableCommands": v2::commands(commands, caps),
            }),
        }
    });
    preview(&connection.host, wanted, client, cancel, done);
}

fn wanted_new(connection: &Connection, opening: NewSessionRequest) -> Result<WantedSession, Error> {
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::New)
}

fn wanted_fork(
    connection: &Connection,
    opening: ForkSessionRequest,
) -> Result<WantedSession, Error> {
    let source = SessionId::from(opening.session_id.0.as_ref());
    let cursor = opening.cursor_id.as_ref().map(|cursor| cursor.0.to_string());
    opening.into_wanted(connection, SessionId::random(), SessionOrigin::Fork { source, cursor })
}

fn wanted_stored(
    connection: &Connection,
    opening: ResumeSessionRequest,
    replay: bool,
) -> Result<WantedSession, Error> {
    let id = SessionId::from(opening.session_id.0.as_ref());
    opening.into_wanted(connection, id, SessionOrigin::Stored { replay })
}

/// Reads the parameters of version 2, in which each initial value of an option has a type. The types of version 1 would
/// take any text for an id, so a value of an unknown type is replaced by one that no option accepts.
///
/// # Errors
/// If a value or another parameter is malformed.
fn read_typed<T: DeserializeOwned>(method: &str, mut params: Value) -> Result<T, Error> {
    let entries = params.get_mut("configOptions").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        match (entry["type"].as_str(), entry.get("value")) {
            (Some("id"), Some(Value::String(_))) | (Some("boolean"), Some(Value::Bool(_))) => {}
            (None | Some("id" | "boolean"), _) | (_, None) => {
                let text = "An entry of `configOptions` needs a `type` and a `value` of that type";
                return Err(invalid(text));
            }
            _ => {
                entry["type"] = "boolean".into();
                entry["value"] = true.into();
            }
        }
    }
    read_with_servers(method, params, Version::V2)
}

/// Returns true if the conversation is replayed. Any other cursor is refused: replaying something else, or nothing,
/// would mislead.
fn replays(params: &Value) -> Result<bool, Error> {
    match params.get("replayFrom").filter(|cursor| !cursor.is_null()) {
        None => Ok(false),
        Some(from) if from.get("type").is_some_and(|kind| kind == "start") => Ok(true),
        Some(_) => Err(invalid("`replayFrom` must be of the type `start`, or absent")),
    }
}
