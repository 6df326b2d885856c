//! Cancels one tool call or one command while its turn goes on (R-TWO-18, R-TWO-19).

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{CancelTerminal, CancelToolCall};
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::wire::RequestMethod;
use crate::error::Error;
use crate::session::TurnPart;
use turnwright_rpc::RequestId;
use turnwright_types::ids::{CallId, SessionId};

/// The parameters of `tool_call/cancel`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelToolCallRequest {
    session_id: String,
    tool_call_id: String,
}

/// The parameters of `terminal/cancel`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelTerminalRequest {
    session_id: String,
    terminal_id: String,
}

pub(super) fn tool_call(
    connection: &mut Connection,
    _: &RequestId,
    params: CancelToolCallRequest,
    reply: Responder<CancelToolCall>,
) {
    let part = TurnPart::Call(CallId::from(params.tool_call_id));
    cancel(connection, &params.session_id, part, reply);
}

pub(super) fn terminal(
    connection: &mut Connection,
    _: &RequestId,
    params: CancelTerminalRequest,
    reply: Responder<CancelTerminal>,
) {
    let part = TurnPart::Terminal(CallId::from(params.terminal_id));
    cancel(connection, &params.session_id, part, reply);
}

fn cancel<M: RequestMethod<Result = Value> + 'static>(
    connection: &Connection,
    session: &str,
    part: TurnPart,
    reply: Responder<M>,
) {
    match connection.session(&SessionId::from(session)) {
        Some(handle) => handle.cancel_part(part, reply.done(|()| json!({}))),
        None => reply.fail(&Error::SessionNotFound(session.to_owned())),
    }
}
