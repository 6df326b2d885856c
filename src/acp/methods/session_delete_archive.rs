//! `session/delete`, and the unstable `session/archive` and `session/unarchive`. A session that is open is closed
//! before it is deleted or archived.

use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{ArchiveSessionRequest, DeleteSessionRequest, UnarchiveSessionRequest};
use crate::completion::Completion;
use crate::session::stored_sessions;
use tokio_util::sync::CancellationToken;
use turnwright_types::ids::SessionId;

pub(super) fn delete_session(
    connection: &mut Connection,
    params: DeleteSessionRequest,
    reply: Responder<Value>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let Some((closed, done)) = close(connection, &id, reply) else { return };
    stored_sessions::delete(&connection.host, id, closed, done);
}

pub(super) fn archive_session(
    connection: &mut Connection,
    params: ArchiveSessionRequest,
    reply: Responder<Value>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let Some((closed, done)) = close(connection, &id, reply) else { return };
    stored_sessions::archive(&connection.host, id, Some(closed), done);
}

pub(super) fn unarchive_session(
    connection: &mut Connection,
    params: UnarchiveSessionRequest,
    reply: Responder<Value>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    stored_sessions::archive(&connection.host, id, None, reply.done(|()| json!({})));
}

/// Closes a session, which stays blocked until the returned completion is used. Answers the request if the
/// session is open on another connection.
fn close(
    connection: &mut Connection,
    id: &SessionId,
    reply: Responder<Value>,
) -> Option<(CancellationToken, Completion<()>)> {
    if let Err(error) = connection.check_not_elsewhere(id) {
        reply.fail(&error);
        return None;
    }
    let closed = connection.close_session(id);
    let guard = connection.block_session(id.clone());
    let done = reply.done(move |()| {
        drop(guard);
        json!({})
    });
    Some((closed, done))
}
