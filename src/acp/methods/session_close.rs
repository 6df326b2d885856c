//! `session/close`, which ends what runs in a session. The session stays stored.

use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::CloseSessionRequest;
use crate::session::stored_sessions;
use turnwright_types::ids::SessionId;

pub(super) fn close_session(
    connection: &mut Connection,
    params: CloseSessionRequest,
    reply: Responder<Value>,
) {
    let found = connection.find_session(&params.session_id.0);
    let Some((_, reply)) = reply.if_ok(found) else { return };
    close_session_v2(connection, params, reply);
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
