//! `session/set_config_option`, which changes the model, its effort or the mode.

use serde::Deserialize;
use serde_json::{Value, json};

use super::RequestMethod;
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{SetSessionConfigOptionRequest, SetSessionConfigOptionResponse};
use crate::acp::{to_wire, v2};
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_types::update::ConfigOptionId;

pub(super) struct SetConfigOption;

impl RequestMethod for SetConfigOption {
    const NAME: &'static str = "session/set_config_option";
    type Params = SetSessionConfigOptionRequest;
    type Result = SetSessionConfigOptionResponse;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let SetSessionConfigOptionRequest { session_id, config_id, value, .. } = params;
        let session = SessionId::from(session_id.0.as_ref());
        let Some(handle) = connection.session(&session) else {
            return reply.fail(&Error::SessionNotFound(session.to_string()));
        };
        let (Some(setting), Some(value)) =
            (ConfigOptionId::parse(&config_id.0), value.as_value_id())
        else {
            return reply.fail(&refused(&config_id.0, "an id"));
        };
        let done = reply.done(|all| SetSessionConfigOptionResponse::new(to_wire::settings(all)));
        handle.set(setting, value.0.to_string(), done);
    }
}

pub(super) struct SetConfigOptionV2;

/// The parameters of version 2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOptionRequest {
    session_id: String,
    config_id: String,
    r#type: String,
    value: Value,
}

impl RequestMethod for SetConfigOptionV2 {
    const NAME: &'static str = "session/set_config_option";
    type Params = SetOptionRequest;
    type Result = Value;

    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>) {
        let Some(handle) = connection.session(&SessionId::from(params.session_id.as_str())) else {
            return reply.fail(&Error::SessionNotFound(params.session_id));
        };
        let value = params.value.as_str().filter(|_| params.r#type == "id");
        let (Some(setting), Some(value)) = (ConfigOptionId::parse(&params.config_id), value) else {
            return reply.fail(&refused(&params.config_id, "of the type `id`"));
        };
        let done = reply.done(|all| json!({ "configOptions": v2::settings(all) }));
        handle.set(setting, value.to_owned(), done);
    }
}

fn refused(name: &str, expected: &str) -> Error {
    let known: Vec<_> = ConfigOptionId::ALL.iter().map(|option| option.id()).collect();
    Error::InvalidParams(format!(
        "Unknown option `{name}`, or a value that is not {expected}; options are: {}",
        known.join(", ")
    ))
}
