//! Sessions as wholes: list, delete, archive, status, title. They need not be open, and nothing here
//! waits for one that is.

use super::connection::Connection;
use super::reply::Reply;
use super::wire::schema::{
    ArchiveSessionRequest, ArchiveSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    ListSessionsRequest, ListSessionsResponse, SessionArchiveFilter, SessionId as WireId,
    SessionInfo, SessionStatus, SessionStatusRequest, SessionStatusResponse,
    SetSessionTitleRequest, SetSessionTitleResponse, UnarchiveSessionRequest,
    UnarchiveSessionResponse,
};
use super::wire::{
    ArchiveSession, DeleteSession, ListSessions, SetTitle, StatusOfSession, UnarchiveSession,
};
use crate::done::Done;
use turnwright_types::effect::visible_line;
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_types::moment;
use turnwright_rpc::RequestId;
use crate::session::kept::{self, Listed, Page, Wish};

fn id(id: &WireId) -> SessionId {
    SessionId::from(id.0.as_ref())
}

/// Some clients ask for this every few seconds, also while a turn runs.
pub(super) fn list(
    connection: &mut Connection,
    request: &RequestId,
    params: ListSessionsRequest,
    reply: Reply<ListSessions>,
) {
    let ListSessionsRequest { cwd, cursor, archived, .. } = params;
    let archived = match archived.unwrap_or_default() {
        SessionArchiveFilter::Exclude => Some(false),
        SessionArchiveFilter::Include => None,
        SessionArchiveFilter::Only => Some(true),
        _ => {
            let text = "`archived` is none of exclude, include, only";
            return reply.fail(&Error::Params(text.to_owned()));
        }
    };
    let (cancel, in_flight) = connection.in_flight.other(request.clone());
    let open = connection.sessions.iter().filter(|(_, it)| it.is_open());
    let open = open.map(|(id, _)| id.clone()).collect();
    let done = reply.done(move |Page { sessions, next }| {
        drop(in_flight);
        let sessions = sessions.into_iter().map(info).collect();
        ListSessionsResponse::new(sessions).next_cursor(next)
    });
    kept::list(&connection.host, Wish { cwd, archived, cursor, open }, cancel, done);
}

fn info(it: Listed) -> SessionInfo {
    SessionInfo::new(it.id.to_arc(), it.cwd)
        .additional_directories(it.folders)
        .title(it.title.as_deref().map(visible_line))
        .updated_at(moment::rfc3339(it.updated))
        .archived(it.archived)
}

pub(super) fn delete(
    connection: &mut Connection,
    _: &RequestId,
    DeleteSessionRequest { session_id, .. }: DeleteSessionRequest,
    reply: Reply<DeleteSession>,
) {
    let id = id(&session_id);
    let closed = connection.retire(&id);
    let guard = connection.occupy(id.clone());
    let done = reply.done(move |()| {
        drop(guard);
        DeleteSessionResponse::new()
    });
    kept::delete(&connection.host, id, closed, done);
}

pub(super) fn archive(
    connection: &mut Connection,
    _: &RequestId,
    ArchiveSessionRequest { session_id, .. }: ArchiveSessionRequest,
    reply: Reply<ArchiveSession>,
) {
    let id = id(&session_id);
    let closed = connection.retire(&id);
    let guard = connection.occupy(id.clone());
    let done = reply.done(move |()| {
        drop(guard);
        ArchiveSessionResponse::new()
    });
    kept::archive(&connection.host, id, Some(closed), done);
}

pub(super) fn unarchive(
    connection: &mut Connection,
    _: &RequestId,
    UnarchiveSessionRequest { session_id, .. }: UnarchiveSessionRequest,
    reply: Reply<UnarchiveSession>,
) {
    let done = reply.done(|()| UnarchiveSessionResponse::new());
    kept::archive(&connection.host, id(&session_id), None, done);
}

pub(super) fn status(
    connection: &mut Connection,
    _: &RequestId,
    SessionStatusRequest { session_id, .. }: SessionStatusRequest,
    reply: Reply<StatusOfSession>,
) {
    let id = id(&session_id);
    if connection.session(&id).is_some() {
        return reply.ok(&SessionStatusResponse::new(SessionStatus::Open));
    }
    let done = reply.done(|()| SessionStatusResponse::new(SessionStatus::Saved));
    kept::find(&connection.host, id, done);
}

pub(super) fn set_title(
    connection: &mut Connection,
    _: &RequestId,
    SetSessionTitleRequest { session_id, title, .. }: SetSessionTitleRequest,
    reply: Reply<SetTitle>,
) {
    let id = id(&session_id);
    let tell = connection.session(&id).map(crate::session::SessionHandle::teller);
    let done = Done::new(move |result: Result<String, Error>| {
        let told = result.as_ref().ok().cloned();
        reply.done(|it: String| SetSessionTitleResponse::new(it)).report(result);
        if let (Some(tell), Some(title)) = (tell, told) {
            tell.titled(title);
        }
    });
    kept::set_title(&connection.host, id, &title, done);
}
