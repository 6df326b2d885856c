//! `session/set_mode`, and `session/set_model`, which is no longer a part of the protocol and which older clients
//! use. Version 2 has only configuration options.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::SetSessionModeRequest;
use turnwright_types::update::ConfigOptionId;

pub(super) fn set_mode(
    connection: &mut Connection,
    params: SetSessionModeRequest,
    reply: Responder<Value>,
) {
    let SetSessionModeRequest { session_id, mode_id, .. } = params;
    let Some((handle, reply)) = reply.if_ok(connection.find_session(&session_id.0)) else { return };
    handle.set(ConfigOptionId::Mode, mode_id.0.to_string(), reply.done(|_| json!({})));
}

/// The parameters of `session/set_model`, which version 0.13.5 of the protocol removed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModelRequest {
    session_id: String,
    model_id: String,
}

pub(super) fn set_model(
    connection: &mut Connection,
    params: SetModelRequest,
    reply: Responder<Value>,
) {
    let found = connection.find_session(&params.session_id);
    let Some((handle, reply)) = reply.if_ok(found) else { return };
    handle.set(ConfigOptionId::Model, params.model_id, reply.done(|_| json!({})));
}
