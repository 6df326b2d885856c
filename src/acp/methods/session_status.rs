//! `session/status` (unstable): a session is open, or only saved.

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SessionStatus, SessionStatusRequest, SessionStatusResponse};
use crate::session::stored_sessions;
use turnwright_types::ids::SessionId;

pub(super) fn get_session_status(
    connection: &mut Connection,
    params: SessionStatusRequest,
    reply: Responder<SessionStatusResponse>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let is_helper_at_work = connection.told.parent_of(&id).is_some();
    if is_helper_at_work || connection.session(&id).is_some() {
        return reply.ok(&SessionStatusResponse::new(SessionStatus::Open));
    }
    let done = reply.done(|()| SessionStatusResponse::new(SessionStatus::Saved));
    stored_sessions::find(&connection.host, id, done);
}
