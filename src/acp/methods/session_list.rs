//! `session/list`, which pages through the stored sessions.

use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::from_wire;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    ListSessionsRequest, ListSessionsResponse, SessionArchiveFilter, SessionInfo,
};
use crate::session::SessionRow;
use crate::session::stored_sessions::{self, ListRequest, SessionPage};
use turnwright_types::effect::escape_hidden_line;
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
        _ => return reply.fail(&invalid("`archived` must be exclude, include or only")),
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
