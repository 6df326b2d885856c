//! How sessions begin, come back and end. None of these waits either: whoever opens a session has
//! the answer from the session itself.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::connection::Connection;
use super::peer::AcpClient;
use super::reply::Reply;
use super::to_wire;
use super::wire::schema::{
    CloseSessionRequest, CloseSessionResponse, LoadSessionRequest, LoadSessionResponse, McpServer,
    NewSessionRequest, NewSessionResponse, ResumeSessionRequest, ResumeSessionResponse,
};
use super::wire::{CloseSession, LoadSession, NewSession, ResumeSession};
use crate::client::Buffers;
use crate::done::Done;
use crate::error::Error;
use crate::ids::SessionId;
use crate::rpc::RequestId;
use crate::session::{self, Opening, Origin};
use crate::update::Setting;

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
    _: &RequestId,
    params: NewSessionRequest,
    reply: Reply<NewSession>,
) {
    let id = SessionId::random();
    let NewSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id: id.clone(), cwd, folders, servers, origin: Origin::New };
    let done = reply.done(move |settings: Vec<Setting>| {
        let modes = to_wire::modes(&settings);
        NewSessionResponse::new(id.to_arc())
            .modes(modes)
            .config_options(to_wire::settings(settings))
    });
    open(connection, wanted, done);
}

pub(super) fn load(
    connection: &mut Connection,
    _: &RequestId,
    params: LoadSessionRequest,
    reply: Reply<LoadSession>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let LoadSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id, cwd, folders, servers, origin: Origin::Kept { replays: true } };
    let done = reply.done(|settings: Vec<Setting>| {
        let modes = to_wire::modes(&settings);
        LoadSessionResponse::new().modes(modes).config_options(to_wire::settings(settings))
    });
    open(connection, wanted, done);
}

pub(super) fn resume(
    connection: &mut Connection,
    _: &RequestId,
    params: ResumeSessionRequest,
    reply: Reply<ResumeSession>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let ResumeSessionRequest { cwd, additional_directories: folders, mcp_servers: servers, .. } =
        params;
    let wanted = Wanted { id, cwd, folders, servers, origin: Origin::Kept { replays: false } };
    let done = reply.done(|settings: Vec<Setting>| {
        let modes = to_wire::modes(&settings);
        ResumeSessionResponse::new().modes(modes).config_options(to_wire::settings(settings))
    });
    open(connection, wanted, done);
}

/// Opens a session. One that is open already is closed first.
fn open(connection: &mut Connection, wanted: Wanted, opened: Done<Vec<Setting>>) {
    if let Err(error) = refuse_unoffered(&wanted) {
        return opened.report(Err(error));
    }
    let Wanted { id, cwd, servers, origin, .. } = wanted;
    let after = connection.sessions.remove(&id).map(|open| {
        let (ended, after) = oneshot::channel();
        // It may have ended by itself.
        open.close(Done::new(move |_| ended.send(()).unwrap_or_default()));
        after
    });
    let caps = connection.client.unwrap_or_default();
    let client = Arc::new(AcpClient::new(connection.peer.clone(), &id, caps, cwd.clone()));
    let buffers = (caps.read || caps.write).then(|| Arc::clone(&client) as Arc<dyn Buffers>);
    let notice = unconnected(&servers);
    let offered = connection.offered;
    let display = client.display();
    let opening = Opening {
        id: id.clone(),
        cwd,
        client,
        buffers,
        display,
        notice,
        offered,
        origin,
        after,
        opened,
    };
    if let Some(handle) = session::open(&connection.host, opening) {
        connection.sessions.retain(|_, it| it.is_open());
        connection.sessions.insert(id, handle);
    }
}

/// What we have not advertised is refused and never silently left out (R-DIR-3, R-MCP-5).
fn refuse_unoffered(wanted: &Wanted) -> Result<(), Error> {
    if !wanted.folders.is_empty() {
        return Err(Error::Params("`additionalDirectories` are not supported yet".to_owned()));
    }
    if wanted.servers.iter().any(|it| !matches!(it, McpServer::Stdio(_))) {
        return Err(Error::Params(
            "Only MCP servers of type stdio may be given: http and sse are not advertised"
                .to_owned(),
        ));
    }
    Ok(())
}

/// What the user is told about MCP servers: every agent has to accept them, and editors hand
/// them over unasked, so this is no reason to refuse the session.
fn unconnected(servers: &[McpServer]) -> Option<String> {
    let name = |it: &McpServer| match it {
        McpServer::Stdio(server) => Some(server.name.clone()),
        _ => None,
    };
    let names: Vec<_> = servers.iter().filter_map(name).collect();
    let list = names.join(", ");
    (!names.is_empty()).then(|| format!("MCP servers are not connected yet: {list} is not in use."))
}

pub(super) fn close(
    connection: &mut Connection,
    _: &RequestId,
    CloseSessionRequest { session_id, .. }: CloseSessionRequest,
    reply: Reply<CloseSession>,
) {
    let id = SessionId::from(session_id.0.as_ref());
    match connection.sessions.remove(&id).filter(session::SessionHandle::is_open) {
        Some(open) => open.close(reply.done(|()| CloseSessionResponse::new())),
        None => reply.fail(&Error::NoSuchSession(id.to_string())),
    }
}
