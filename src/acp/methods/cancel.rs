//! The notifications `session/cancel`, which some clients send as a request, and `$/cancel_request`. In version 2 also
//! `tool_call/cancel` and `terminal/cancel`, which end one call or one command while its turn goes on (R-TWO-18,
//! R-TWO-19).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::{CancelTarget, Connection};
use crate::acp::responder::Responder;
use crate::acp::schema::CancelNotification;
use crate::completion::Completion;
use crate::session::TurnPart;
use turnwright_rpc::Params;
use turnwright_types::ids::{CallId, SessionId};

pub(super) fn session(connection: &mut Connection, params: &Params) {
    if let Ok(params) = params.read() {
        cancel_session(connection, params);
    }
}

/// A client that waits for an answer gets it at once.
pub(super) fn session_by_request(
    connection: &mut Connection,
    params: CancelNotification,
    reply: Responder<Value>,
) {
    cancel_session(connection, params);
    reply.ok(&json!({}));
}

/// Cancels the turn of a session. In the session of a helper it cancels that helper alone.
fn cancel_session(connection: &Connection, params: CancelNotification) {
    let session = SessionId::from(params.session_id.0.as_ref());
    if let Some(handle) = connection.session(&session) {
        handle.cancel();
    } else if let Some(parent) = connection.told.parent_of(&session)
        && let Some(handle) = connection.session(&parent)
    {
        handle.cancel_part(TurnPart::Helper(session), Completion::new(|_| ()));
    }
}

/// Cancels a request. This concerns prompts, and opening and listing sessions. A change of the model is
/// not cancelled, though it may wait up to ten seconds for the provider's model list; every other
/// request is answered before its cancellation could be read.
pub(super) fn request(connection: &mut Connection, params: &Params) {
    let Some(id) = params.withdrawn_request() else { return };
    match connection.in_flight.remove(&id) {
        Some(CancelTarget::Prompt(session, key)) => {
            if let Some(handle) = connection.session(&session) {
                handle.cancel_prompt(key);
            }
        }
        Some(CancelTarget::Other(cancel)) => cancel.cancel(),
        None => {}
    }
}

/// The parameters of `tool_call/cancel`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelToolCallRequest {
    session_id: String,
    tool_call_id: String,
}

pub(super) fn cancel_tool_call(
    connection: &mut Connection,
    params: CancelToolCallRequest,
    reply: Responder<Value>,
) {
    let part = TurnPart::Call(CallId::from(params.tool_call_id));
    cancel_part(connection, &params.session_id, part, reply);
}

/// The parameters of `terminal/cancel`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelTerminalRequest {
    session_id: String,
    terminal_id: String,
}

pub(super) fn cancel_terminal(
    connection: &mut Connection,
    params: CancelTerminalRequest,
    reply: Responder<Value>,
) {
    let part = TurnPart::Terminal(CallId::from(params.terminal_id));
    cancel_part(connection, &params.session_id, part, reply);
}

fn cancel_part(connection: &Connection, session: &str, part: TurnPart, reply: Responder<Value>) {
    let Some((handle, reply)) = reply.if_ok(connection.find_session(session)) else { return };
    handle.cancel_part(part, reply.done(|()| json!({})));
}
