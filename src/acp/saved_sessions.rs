//! Handlers for stored sessions, open or not: list, delete, archive, unarchive, status and title. None
//! of them waits.

use super::connection::Connection;
use super::responder::Responder;
use super::wire::schema::{
    ArchiveSessionRequest, ArchiveSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    ListSessionsRequest, ListSessionsResponse, SessionArchiveFilter, SessionId as WireId,
    SessionInfo, SessionStatus, SessionStatusRequest, SessionStatusResponse,
    SetSessionTitleRequest, SetSessionTitleResponse, UnarchiveSessionRequest,
    UnarchiveSessionResponse,
};
use super::wire::{
    ArchiveSession, DeleteSession, GetSessionStatus, ListSessions, RequestMethod, SetSessionTitle,
    UnarchiveSession,
};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::SessionRow;
use crate::session::stored_sessions::{self, ListRequest, SessionPage};
use tokio_util::sync::CancellationToken;
use turnwright_rpc::RequestId;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::timestamp;

fn session_id(id: &WireId) -> SessionId {
    SessionId::from(id.0.as_ref())
}

/// Some clients request the list every few seconds, also while a turn runs.
pub(super) fn list(
    connection: &mut Connection,
    request: &RequestId,
    params: ListSessionsRequest,
    reply: Responder<ListSessions>,
) {
    let ListSessionsRequest { cwd, cursor, archived, .. } = params;
    let archived = match archived.unwrap_or_default() {
        SessionArchiveFilter::Exclude => Some(false),
        SessionArchiveFilter::Include => None,
        SessionArchiveFilter::Only => Some(true),
        _ => {
            let text = "`archived` must be exclude, include or only";
            return reply.fail(&Error::InvalidParams(text.to_owned()));
        }
    };
    let (cancel, in_flight) = connection.in_flight.register(request.clone());
    let open = connection
        .sessions
        .iter()
        .filter(|(_, handle)| handle.is_open())
        .map(|(id, _)| id.clone())
        .collect();
    let done = reply.done(move |SessionPage { sessions, next }| {
        drop(in_flight);
        let sessions = sessions.into_iter().map(session_info).collect();
        ListSessionsResponse::new(sessions).next_cursor(next)
    });
    stored_sessions::list(
        &connection.host,
        ListRequest { cwd, archived, cursor, open },
        cancel,
        done,
    );
}

fn session_info(row: SessionRow) -> SessionInfo {
    SessionInfo::new(row.id.to_arc(), row.cwd)
        .additional_directories(row.additional_folders)
        .title(row.title.as_deref().map(escape_hidden_line))
        .updated_at(timestamp::rfc3339(row.updated_at))
        .archived(row.is_archived)
}

/// Closes a session, which stays blocked until the returned completion is used. Answers the request if the
/// session is open on another connection.
fn close<M: RequestMethod + 'static>(
    connection: &mut Connection,
    id: &SessionId,
    reply: Responder<M>,
    response: impl FnOnce() -> M::Result + Send + 'static,
) -> Option<(CancellationToken, Completion<()>)> {
    if let Err(error) = connection.check_not_elsewhere(id) {
        reply.fail(&error);
        return None;
    }
    let closed = connection.close_session(id);
    let guard = connection.block_session(id.clone());
    let done = reply.done(move |()| {
        drop(guard);
        response()
    });
    Some((closed, done))
}

pub(super) fn delete(
    connection: &mut Connection,
    _: &RequestId,
    DeleteSessionRequest { session_id, .. }: DeleteSessionRequest,
    reply: Responder<DeleteSession>,
) {
    let id = self::session_id(&session_id);
    let Some((closed, done)) = close(connection, &id, reply, DeleteSessionResponse::new) else {
        return;
    };
    stored_sessions::delete(&connection.host, id, closed, done);
}

pub(super) fn archive(
    connection: &mut Connection,
    _: &RequestId,
    ArchiveSessionRequest { session_id, .. }: ArchiveSessionRequest,
    reply: Responder<ArchiveSession>,
) {
    let id = self::session_id(&session_id);
    let Some((closed, done)) = close(connection, &id, reply, ArchiveSessionResponse::new) else {
        return;
    };
    stored_sessions::archive(&connection.host, id, Some(closed), done);
}

pub(super) fn unarchive(
    connection: &mut Connection,
    _: &RequestId,
    UnarchiveSessionRequest { session_id, .. }: UnarchiveSessionRequest,
    reply: Responder<UnarchiveSession>,
) {
    let done = reply.done(|()| UnarchiveSessionResponse::new());
    stored_sessions::archive(&connection.host, self::session_id(&session_id), None, done);
}

pub(super) fn status(
    connection: &mut Connection,
    _: &RequestId,
    SessionStatusRequest { session_id, .. }: SessionStatusRequest,
    reply: Responder<GetSessionStatus>,
) {
    let id = self::session_id(&session_id);
    if connection.session(&id).is_some() {
        return reply.ok(&SessionStatusResponse::new(SessionStatus::Open));
    }
    let done = reply.done(|()| SessionStatusResponse::new(SessionStatus::Saved));
    stored_sessions::find(&connection.host, id, done);
}

pub(super) fn set_title(
    connection: &mut Connection,
    _: &RequestId,
    SetSessionTitleRequest { session_id, title, .. }: SetSessionTitleRequest,
    reply: Responder<SetSessionTitle>,
) {
    let id = self::session_id(&session_id);
    let notifier = connection.session(&id).map(crate::session::SessionHandle::title_notifier);
    let done = Completion::new(move |result: Result<String, Error>| {
        let new_title = result.as_ref().ok().cloned();
        reply.done(|title: String| SetSessionTitleResponse::new(title)).complete(result);
        if let (Some(notifier), Some(title)) = (notifier, new_title) {
            notifier.notify(title);
        }
    });
    stored_sessions::set_title(&connection.host, id, &title, done);
}
