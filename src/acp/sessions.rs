//! Handlers that open, load, resume, fork and close sessions. None of them waits: the session itself
//! answers the request once it is open.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;

use super::client::AcpClient;
use super::connection::Connection;
use super::remote::{CurrentClient, DetachedSession, RemoteSessions};
use super::responder::Responder;
use super::to_wire;
use super::versions::Version;
use super::wire::schema::{
    CloseSessionRequest, CloseSessionResponse, ForkSessionRequest, ForkSessionResponse,
    LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionConfigOption, SessionModeState,
};
use super::wire::{
    CloseSession, ForkSession, LoadSession, NewSession, RequestMethod, ResumeSession,
};
use super::{client_options, mcp_servers, v2};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{
    self, ClientSide, OpenRequest, Replayed, SessionOrigin, Takeover, WantedSession,
};
use turnwright_rpc::RequestId;
use turnwright_types::client::EditorBuffers;
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

pub(super) fn new(
    connection: &mut Connection,
    request: &RequestId,
    mut params: Value,
    reply: Responder<NewSession>,
) {
    let wanted = mcp_servers::read_with_servers(NewSession::NAME, &mut params).and_then(
        |opening: NewSessionRequest| {
            opening.into_wanted(connection, SessionId::random(), SessionOrigin::New)
        },
    );
    open(connection, request, wanted, reply, |id, modes, options| {
        NewSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

pub(super) fn load(
    connection: &mut Connection,
    request: &RequestId,
    mut params: Value,
    reply: Responder<LoadSession>,
) {
    let wanted = mcp_servers::read_with_servers(LoadSession::NAME, &mut params).and_then(
        |opening: LoadSessionRequest| {
            let id = SessionId::from(opening.session_id.0.as_ref());
            opening.into_wanted(connection, id, SessionOrigin::Stored { replay: true })
        },
    );
    open(connection, request, wanted, reply, |_, modes, options| {
        LoadSessionResponse::new().modes(modes).config_options(options)
    });
}

pub(super) fn resume(
    connection: &mut Connection,
    request: &RequestId,
    mut params: Value,
    reply: Responder<ResumeSession>,
) {
    let wanted = mcp_servers::read_with_servers(ResumeSession::NAME, &mut params).and_then(
        |opening: ResumeSessionRequest| {
            let id = SessionId::from(opening.session_id.0.as_ref());
            opening.into_wanted(connection, id, SessionOrigin::Stored { replay: false })
        },
    );
    open(connection, request, wanted, reply, |_, modes, options| {
        ResumeSessionResponse::new().modes(modes).config_options(options)
    });
}

pub(super) fn fork(
    connection: &mut Connection,
    request: &RequestId,
    mut params: Value,
    reply: Responder<ForkSession>,
) {
    let wanted = mcp_servers::read_with_servers(ForkSession::NAME, &mut params).and_then(
        |opening: ForkSessionRequest| {
            let source = SessionId::from(opening.session_id.0.as_ref());
            opening.into_wanted(connection, SessionId::random(), SessionOrigin::Fork { source })
        },
    );
    open(connection, request, wanted, reply, |id, modes, options| {
        ForkSessionResponse::new(id.to_arc()).modes(modes).config_options(options)
    });
}

/// Opens a session for a client of version 1. `respond` makes the response.
fn open<M: RequestMethod + 'static>(
    connection: &mut Connection,
    request: &RequestId,
    wanted: Result<WantedSession, Error>,
    reply: Responder<M>,
    respond: impl FnOnce(&SessionId, Option<SessionModeState>, Vec<SessionConfigOption>) -> M::Result
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
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        let modes = to_wire::modes(&settings);
        respond(&id, modes, to_wire::settings(settings))
    });
    open_session(connection, request, wanted, client, done);
}

/// Opens a session. If it is open already, it is closed first; one that has lost its connection is taken
/// over as it is.
pub(super) fn open_session(
    connection: &mut Connection,
    request: &RequestId,
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
    let (cancel, in_flight) = connection.in_flight.register(request.clone());
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
    detached: DetachedSession,
    client: ClientSide,
    replay: bool,
    done: Completion<Vec<ConfigOption>>,
) {
    let DetachedSession { handle, session } = detached;
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

pub(super) fn close(
    connection: &mut Connection,
    _: &RequestId,
    CloseSessionRequest { session_id, .. }: CloseSessionRequest,
    reply: Responder<CloseSession>,
) {
    let id = SessionId::from(session_id.0.as_ref());
    if connection.session(&id).is_none() {
        return reply.fail(&Error::SessionNotFound(id.to_string()));
    }
    let closed = connection.close_session(&id);
    connection.block_session_until(id, closed.clone());
    let done = reply.done(|()| CloseSessionResponse::new());
    session::stored_sessions::report_closed(&connection.host, closed, done);
}
