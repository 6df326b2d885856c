//! How sessions begin, come back and end. None of these waits either: whoever opens a session has
//! the answer from the session itself.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::connection::Connection;
use super::peer::AcpClient;
use super::reply::Reply;
use super::servers;
use super::to_wire;
use super::wire::schema::{
    CloseSessionRequest, CloseSessionResponse, ForkSessionRequest, ForkSessionResponse,
    LoadSessionRequest, LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse,
    ResumeSessionRequest, ResumeSessionResponse,
};
use super::wire::{CloseSession, ForkSession, LoadSession, Method, NewSession, ResumeSession};
use turnwright_types::client::Buffers;
use crate::done::Done;
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_rpc::RequestId;
use crate::session::{self, Opening, Origin};
use turnwright_types::update::Setting;

/// What a client says of a session that it opens.
struct Wanted {
    id: SessionId,
    cwd: PathBuf,
    folders: Vec<PathBuf>,
    servers: Vec<McpServer>,
    origin: Origin,
}

pub(super) fn new(
    connection: &mut Connection,
    request: &RequestId,
    params: NewSessionRequest,
    reply: Reply<NewSession>,
) {
    let id = SessionId::random();
    let NewSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id: id.clone(), cwd, folders, servers, origin: Origin::New };
    open(connection, request, wanted, reply, move |settings| {
        let modes = to_wire::modes(&settings);
        NewSessionResponse::new(id.to_arc())
            .modes(modes)
            .config_options(to_wire::settings(settings))
    });
}

pub(super) fn load(
    connection: &mut Connection,
    request: &RequestId,
    mut params: Value,
    reply: Reply<LoadSession>,
) {
    // Some clients leave out what they have none of.
    if let Some(fields) = params.as_object_mut() {
        fields.entry("mcpServers").or_insert_with(|| json!([]));
    }
    let params: LoadSessionRequest = match serde_json::from_value(params) {
        Ok(params) => params,
        Err(error) => {
            let text = format!("Invalid parameters for session/load: {error}");
            return reply.fail(&Error::Params(text));
        }
    };
    let id = SessionId::from(params.session_id.0.as_ref());
    let LoadSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id, cwd, folders, servers, origin: Origin::Kept { replays: true } };
    open(connection, request, wanted, reply, |settings| {
        let modes = to_wire::modes(&settings);
        LoadSessionResponse::new().modes(modes).config_options(to_wire::settings(settings))
    });
}

pub(super) fn resume(
    connection: &mut Connection,
    request: &RequestId,
    params: ResumeSessionRequest,
    reply: Reply<ResumeSession>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let ResumeSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id, cwd, folders, servers, origin: Origin::Kept { replays: false } };
    open(connection, request, wanted, reply, |settings| {
        let modes = to_wire::modes(&settings);
        ResumeSessionResponse::new().modes(modes).config_options(to_wire::settings(settings))
    });
}

pub(super) fn fork(
    connection: &mut Connection,
    request: &RequestId,
    params: ForkSessionRequest,
    reply: Reply<ForkSession>,
) {
    let id = SessionId::random();
    let of = SessionId::from(params.session_id.0.as_ref());
    let ForkSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id: id.clone(), cwd, folders, servers, origin: Origin::Copy { of } };
    open(connection, request, wanted, reply, move |settings| {
        let modes = to_wire::modes(&settings);
        ForkSessionResponse::new(id.to_arc())
            .modes(modes)
            .config_options(to_wire::settings(settings))
    });
}

/// Opens a session. One that is open already is closed first.
fn open<M: Method + 'static>(
    connection: &mut Connection,
    request: &RequestId,
    wanted: Wanted,
    reply: Reply<M>,
    convert: impl FnOnce(Vec<Setting>) -> M::Result + Send + 'static,
) {
    let Wanted { id, cwd, folders, servers, origin } = wanted;
    let servers = match servers::understand(servers) {
        Ok(servers) => servers,
        Err(error) => return reply.fail(&error),
    };
    let (cancel, in_flight) = connection.in_flight.other(request.clone());
    let opened: Done<Vec<Setting>> = reply.done(move |settings| {
        drop(in_flight);
        convert(settings)
    });
    let after = connection.retire(&id);
    let caps = connection.client.unwrap_or_default();
    let client = Arc::new(AcpClient::new(connection.peer.clone(), &id, caps, cwd.clone()));
    let buffers = (caps.read || caps.write).then(|| Arc::clone(&client) as Arc<dyn Buffers>);
    let offered = connection.offered;
    let display = client.display();
    let opening = Opening {
        id: id.clone(),
        cwd,
        folders,
        client,
        buffers,
        display,
        servers,
        offered,
        origin,
        after: after.clone(),
        cancel,
        opened,
    };
    connection.sessions.retain(|_, it| it.is_open());
    match session::open(&connection.host, opening) {
        Some(handle) => drop(connection.sessions.insert(id, handle)),
        // It was closed all the same.
        None => connection.keep_ending(id, after),
    }
}

pub(super) fn close(
    connection: &mut Connection,
    _: &RequestId,
    CloseSessionRequest { session_id, .. }: CloseSessionRequest,
    reply: Reply<CloseSession>,
) {
    let id = SessionId::from(session_id.0.as_ref());
    if connection.session(&id).is_none() {
        return reply.fail(&Error::NoSuchSession(id.to_string()));
    }
    let closed = connection.retire(&id);
    connection.keep_ending(id, closed.clone());
    let done = reply.done(|()| CloseSessionResponse::new());
    session::kept::closed(&connection.host, closed, done);
}
