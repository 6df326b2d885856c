//! `session/set_mode`, and `session/set_model`, which is no longer a part of the protocol and which older clients
//! use. Version 2 has only configuration options.

use serde::Deserialize;
use serde_json::{Value, json};

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SetSessionModeRequest, SetSessionModeResponse};
use crate::error::Error;
use turnwright_policy::permission::Mode;
use turnwright_types::ids::SessionId;
use turnwright_types::update::ConfigOptionId;

pub(super) struct SetMode;

impl RequestMethod for SetMode {
    const NAME: &'static str = "session/set_mode";
    type Params = SetSessionModeRequest;
    type Result = SetSessionModeResponse;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let SetSessionModeRequest { session_id, mode_id, .. } = params;
        let session = SessionId::from(session_id.0.as_ref());
        let Some(handle) = connection.session(&session) else {
            return reply.fail(&Error::SessionNotFound(session.to_string()));
        };
        let Some(mode) = Mode::parse(&mode_id.0) else {
            let known: Vec<_> = Mode::ALL.iter().map(|mode| mode.id()).collect();
            return reply.fail(&Error::InvalidParams(format!(
                "Unknown mode `{}`; modes are: {}",
                mode_id.0,
                known.join(", ")
            )));
        };
        handle.set_mode(mode, reply.done(|()| SetSessionModeResponse::new()));
    }
}

pub(super) struct SetModel;

/// The parameters of `session/set_model`, which version 0.13.5 of the protocol removed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModelRequest {
    session_id: String,
    model_id: String,
}

impl RequestMethod for SetModel {
    const NAME: &'static str = "session/set_model";
    type Params = SetModelRequest;
    type Result = Value;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let Some(handle) = connection.session(&SessionId::from(params.session_id.as_str())) else {
            return reply.fail(&Error::SessionNotFound(params.session_id));
        };
        handle.set(ConfigOptionId::Model, params.model_id, reply.done(|_| json!({})));
    }
}
