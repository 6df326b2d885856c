//! `session/status` (unstable): a session is open, or only saved.

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SessionStatus, SessionStatusRequest, SessionStatusResponse};
use crate::session::stored_sessions;
use turnwright_types::ids::SessionId;

pub(super) struct GetSessionStatus;

impl RequestMethod for GetSessionStatus {
    const NAME: &'static str = "session/status";
    type Params = SessionStatusRequest;
    type Result = SessionStatusResponse;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let id = SessionId::from(params.session_id.0.as_ref());
        if connection.session(&id).is_some() {
            return reply.ok(&SessionStatusResponse::new(SessionStatus::Open));
        }
        let done = reply.done(|()| SessionStatusResponse::new(SessionStatus::Saved));
        stored_sessions::find(&connection.host, id, done);
    }
}
