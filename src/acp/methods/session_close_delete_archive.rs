//! `session/close`, which ends what runs in a session and leaves it stored, `session/delete`, and the unstable
//! `session/archive` and `session/unarchive`. A session that is open is closed before it is deleted or archived.

use serde::Serialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    ArchiveSessionRequest, ArchiveSessionResponse, CloseSessionRequest, CloseSessionResponse,
    DeleteSessionRequest, DeleteSessionResponse, UnarchiveSessionRequest, UnarchiveSessionResponse,
};
use crate::completion::Completion;
use crate::session::stored_sessions;
use tokio_util::sync::CancellationToken;
use turnwright_types::ids::SessionId;

pub(super) fn close_session(
    connection: &mut Connection,
    params: CloseSessionRequest,
    reply: Responder<CloseSessionResponse>,
) {
    let found = connection.find_session(&params.session_id.0);
    let Some((_, reply)) = reply.if_ok(found) else { return };
    let id = SessionId::from(params.session_id.0.as_ref());
    let closed = connection.close_session(&id);
    connection.block_session_until(id, closed.clone());
    let done = reply.done(|()| CloseSessionResponse::new());
    stored_sessions::report_closed(&connection.host, closed, done);
}

/// Closing a session that is not open succeeds.
pub(super) fn close_session_v2(
    connection: &mut Connection,
    params: CloseSessionRequest,
    reply: Responder<Value>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let closed = connection.close_session(&id);
    connection.block_session_until(id, closed.clone());
    stored_sessions::report_closed(&connection.host, closed, reply.done(|()| json!({})));
}

pub(super) fn delete_session(
    connection: &mut Connection,
    params: DeleteSessionRequest,
    reply: Responder<DeleteSessionResponse>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let Some((closed, done)) = close(connection, &id, reply, DeleteSessionResponse::new) else {
        return;
    };
    stored_sessions::delete(&connection.host, id, closed, done);
}

pub(super) fn archive_session(
    connection: &mut Connection,
    params: ArchiveSessionRequest,
    reply: Responder<ArchiveSessionResponse>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let Some((closed, done)) = close(connection, &id, reply, ArchiveSessionResponse::new) else {
        return;
    };
    stored_sessions::archive(&connection.host, id, Some(closed), done);
}

pub(super) fn unarchive_session(
    connection: &mut Connection,
    params: UnarchiveSessionRequest,
    reply: Responder<UnarchiveSessionResponse>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let done = reply.done(|()| UnarchiveSessionResponse::new());
    stored_sessions::archive(&connection.host, id, None, done);
}

/// Closes a session, which stays blocked until the returned completion is used. Answers the request if the
/// session is open on another connection.
fn close<R: Serialize + 'static>(
    connection: &mut Connection,
    id: &SessionId,
    reply: Responder<R>,
    response: impl FnOnce() -> R + Send + 'static,
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
