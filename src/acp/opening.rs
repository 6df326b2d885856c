//! Opening sessions, for the methods that make, load, resume and fork them. Nothing here waits: the session
//! itself answers the request once it is open.

use std::sync::Arc;

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::{Value, json};

use super::client::AcpClient;
use super::connection::Connection;
use super::remote::{CurrentClient, RemoteSession, RemoteSessions};
use super::responder::Responder;
use super::schema::{
    ForkSessionRequest, LoadSessionRequest, NewSessionRequest, ResumeSessionRequest,
    SessionConfigOption, SessionModeState,
};
use super::to_wire;
use super::v2::{self, AcpClientV2};
use super::versions::Version;
use super::{client_options, mcp_servers};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{
    self, ClientSide, OpenRequest, Replayed, SessionHandle, SessionOrigin, Takeover, WantedSession,
};
use turnwright_rpc::RequestId;
use turnwright_types::client::{Client, CommandDisplay, EditorBuffers};
use turnwright_types::ids::SessionId;
use turnwright_types::message::PromptEnd;
use turnwright_types::update::ConfigOption;

/// A request that opens a session.
pub(super) trait OpeningRequest {
    /// Checks the servers and options that the client names.
    fn into_wanted(
        self,
        connection: &Connection,
        id: SessionId,
        origin: SessionOrigin,
    ) -> Result<WantedSession, Error>;
}

/// The requests have these fields in common.
macro_rules! opening_requests {
    ($($request:ty),+) => {$(
        impl OpeningRequest for $request {
            fn into_wanted(
                self,
                connection: &Connection,
                id: SessionId,
                origin: SessionOrigin,
            ) -> Result<WantedSession, Error> {
                Ok(WantedSession {
                    id,
                    cwd: self.cwd,
                    folders: self.additional_directories,
                    servers: mcp_servers::server_specs(connection, self.mcp_servers)?,
                    options: client_options::read(self.meta.as_ref(), self.system_prompt)?,
                    origin,
                })
            }
        }
    )+};
}

opening_requests!(NewSessionRequest, LoadSessionRequest, ResumeSessionRequest, ForkSessionRequest);

/// Opens a session for a client of version 1. `respond` makes the response.
pub(super) fn open<R: Serialize + 'static>(
    connection: &mut Connection,
    wanted: Result<WantedSession, Error>,
    reply: Responder<R>,
    respond: impl FnOnce(&SessionId, Option<SessionModeState>, Vec<SessionConfigOption>) -> R
    + Send
    + 'static,
) {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply.fail(&error),
    };
    let caps = connection.client.unwrap_or_default();
    let peer = connection.peer.clone();
    let silent_reads = connection.silent_reads.clone();
    let client = Arc::new(AcpClient::new(peer, &wanted.id, caps, wanted.cwd.clone(), silent_reads));
    let buffers = (caps.read || caps.write).then(|| Arc::clone(&client) as Arc<dyn EditorBuffers>);
    let display = client.display();
    let client = ClientSide { client, buffers, display };
    let id = wanted.id.clone();
    let request = reply.id().clone();
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        let modes = to_wire::modes(&settings);
        respond(&id, modes, to_wire::settings(settings))
    });
    open_session(connection, request, wanted, client, done);
}

/// Opens a new session, or a fork of one, for a client of version 2.
pub(super) fn open_as_new_v2(
    connection: &mut Connection,
    wanted: Result<WantedSession, Error>,
    reply: Responder<Value>,
) {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply.fail(&error),
    };
    let id = wanted.id.clone();
    let request = reply.id().clone();
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        json!({ "sessionId": id.as_str(), "configOptions": v2::settings(settings) })
    });
    let client = client_v2(connection, &wanted);
    open_session(connection, request, wanted, client_side_v2(client), done);
}

pub(super) fn client_v2(connection: &Connection, wanted: &WantedSession) -> Arc<AcpClientV2> {
    let forms = connection.client.unwrap_or_default().forms;
    let peer = connection.peer.clone();
    let prompts = connection.prompts.clone();
    let tasks = connection.host.tracker();
    Arc::new(AcpClientV2::new(peer, &wanted.id, wanted.cwd.clone(), forms, prompts, tasks))
}

/// The agent reads files and runs commands itself: version 2 has no requests for them.
pub(super) fn client_side_v2(client: Arc<AcpClientV2>) -> ClientSide {
    let client: Arc<dyn Client> = client;
    ClientSide { client, buffers: None, display: CommandDisplay::default() }
}

/// Opens a session. If it is open already, it is closed first; one that has lost its connection is taken
/// over as it is.
pub(super) fn open_session(
    connection: &mut Connection,
    request: RequestId,
    wanted: WantedSession,
    mut client: ClientSide,
    done: Completion<Vec<ConfigOption>>,
) {
    if matches!(wanted.origin, SessionOrigin::Stored { .. })
        && let Err(error) = connection.check_not_elsewhere(&wanted.id)
    {
        return done.complete(Err(error));
    }
    if let Some(remote) = &mut connection.remote {
        if let Err(error) = remote.make_room(&connection.sessions) {
            return done.complete(Err(error));
        }
        if let SessionOrigin::Stored { replay } = wanted.origin
            && let Some(detached) = remote.take(&wanted.id, &wanted.cwd, &wanted.folders)
        {
            return take_over(connection, wanted, detached, client, replay, done);
        }
        client = remote.add(&wanted.id, wanted.cwd.clone(), wanted.folders.clone(), client);
    }
    let id = wanted.id.clone();
    let (cancel, in_flight) = connection.in_flight.register(request);
    let remote_client = connection.remote.as_ref().and_then(|remote| remote.client(&id)).cloned();
    let opened = Completion::new(move |result| {
        drop(in_flight);
        if let Some(client) = remote_client {
            client.forget_opening();
        }
        done.complete(result);
    });
    let after = connection.close_session(&id);
    let offer = connection.offer.clone();
    let open_request = OpenRequest {
        wanted,
        client,
        advertised_modalities: offer.map(|offer| offer.modalities).boxed(),
        start_after: after.clone(),
        cancel,
        opened,
    };
    connection.sessions.retain(|_, handle| handle.is_open());
    // If it cannot be opened, the old session of this id is closing all the same.
    connection.block_session_until(id.clone(), after);
    let handle = session::open(&connection.host, open_request);
    if let Some(remote) = &connection.remote {
        remote.claim(&id, &handle);
    }
    connection.sessions.insert(id, handle);
}

/// Takes over a session that has lost its connection, with the turn that runs in it.
fn take_over(
    connection: &mut Connection,
    WantedSession { id, servers, .. }: WantedSession,
    (handle, session): (SessionHandle, RemoteSession),
    client: ClientSide,
    replay: bool,
    done: Completion<Vec<ConfigOption>>,
) {
    let remote_client = Arc::clone(&session.client);
    let known_as = id.clone();
    let mut follow: Box<dyn FnMut(_, _) -> Completion<PromptEnd> + Send> = match connection.version
    {
        // The request whose answer would tell the end of the turn is lost.
        Version::V1 => Box::new(|_, _| Completion::new(|_| ())),
        Version::V2 => Box::new(v2::follow(connection, known_as)),
    };
    let followed = Arc::clone(&session.client);
    let follow = Box::new(move |key, has_begun| {
        let client = Arc::clone(&followed);
        let done = follow(key, has_begun);
        Completion::new(move |result| {
            client.forget_turn(key);
            done.complete(result);
        })
    });
    let own_prompts = connection.remote.as_ref().map(RemoteSessions::prompts).unwrap_or_default();
    let current =
        CurrentClient { client: Arc::clone(&client.client), buffers: client.buffers, own_prompts };
    let attach =
        Box::new(move |replayed: &Replayed| remote_client.attach(current, replayed, replay));
    handle.take_over(Takeover { client: client.client, replay, attach, follow, servers, done });
    if let Some(remote) = &mut connection.remote {
        remote.claim(&id, &handle);
        remote.add_taken(id.clone(), session);
    }
    connection.sessions.insert(id, handle);
}
