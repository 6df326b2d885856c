//! `session/list`, which pages through the stored sessions, `session/status`, which says if one is open or only saved,
//! and `session/set_title`, with which the user names one. The last two are unstable.

use crate::acp::connection::Connection;
use crate::acp::from_wire;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    ListSessionsRequest, ListSessionsResponse, SessionArchiveFilter, SessionInfo, SessionStatus,
    SessionStatusRequest, SessionStatusResponse, SetSessionTitleRequest, SetSessionTitleResponse,
};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::stored_sessions::{self, ListRequest, SessionPage};
use crate::session::{SessionHandle, SessionRow};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::timestamp;

/// Some clients request the list every few seconds, also while a turn runs.
pub(super) fn list_sessions(
    connection: &mut Connection,
    params: ListSessionsRequest,
    reply: Responder<ListSessionsResponse>,
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
    let (cancel, in_flight) = connection.in_flight.register(reply.id().clone());
    let handles = connection.sessions.iter().filter(|(_, handle)| handle.is_open());
    let open = handles.map(|(id, _)| id.clone()).collect();
    let is_remote = connection.remote.is_some();
    let cwd = cwd.map(|path| from_wire::working_folder(path, is_remote));
    let request = ListRequest { cwd, archived, cursor, open };
    let done = reply.done(move |(sessions, next): SessionPage| {
        drop(in_flight);
        let sessions = sessions.into_iter().map(session_info).collect();
        ListSessionsResponse::new(sessions).next_cursor(next)
    });
    stored_sessions::list(&connection.host, request, cancel, done);
}

fn session_info(row: SessionRow) -> SessionInfo {
    SessionInfo::new(row.id.to_arc(), row.cwd)
        .additional_directories(row.additional_folders)
        .title(row.title.as_deref().map(escape_hidden_line))
        .updated_at(timestamp::rfc3339(row.updated_at))
        .archived(row.is_archived)
}

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
