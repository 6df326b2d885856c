//! `session/set_title` (unstable): the user names a session.

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SetSessionTitleRequest, SetSessionTitleResponse};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{SessionHandle, stored_sessions};
use turnwright_types::ids::SessionId;

pub(super) fn set_session_title(
    connection: &mut Connection,
    params: SetSessionTitleRequest,
    reply: Responder<SetSessionTitleResponse>,
) {
    let id = SessionId::from(params.session_id.0.as_ref());
    let open = connection.session(&id).map(SessionHandle::probe);
    let done = Completion::new(move |result: Result<String, Error>| {
        let new_title = result.as_ref().ok().cloned();
        reply.done(|title: String| SetSessionTitleResponse::new(title)).complete(result);
        if let (Some(open), Some(title)) = (open, new_title) {
            open.report_title(title);
        }
    });
    stored_sessions::set_title(&connection.host, id, &params.title, done);
}
