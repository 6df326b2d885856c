//! `session/set_config_option`, which changes the model, its effort or the mode.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::responder::Responder;
use crate::acp::schema::{SetSessionConfigOptionRequest, SetSessionConfigOptionResponse};
use crate::acp::{to_wire, v2};
use crate::error::Error;
use turnwright_types::update::ConfigOptionId;

pub(super) fn set_option(
    connection: &mut Connection,
    params: SetSessionConfigOptionRequest,
    reply: Responder<SetSessionConfigOptionResponse>,
) {
    let SetSessionConfigOptionRequest { session_id, config_id, value, .. } = params;
    let Some((handle, reply)) = reply.if_ok(connection.find_session(&session_id.0)) else { return };
    let (Some(setting), Some(value)) = (ConfigOptionId::parse(&config_id.0), value.as_value_id())
    else {
        return reply.fail(&refused(&config_id.0, "an id"));
    };
    let done = reply.done(|all| SetSessionConfigOptionResponse::new(to_wire::settings(all)));
    handle.set(setting, value.0.to_string(), done);
}

/// The parameters of version 2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOptionRequest {
    session_id: String,
    config_id: String,
    r#type: String,
    value: Value,
}

pub(super) fn set_option_v2(
    connection: &mut Connection,
    params: SetOptionRequest,
    reply: Responder<Value>,
) {
    let found = connection.find_session(&params.session_id);
    let Some((handle, reply)) = reply.if_ok(found) else { return };
    let value = params.value.as_str().filter(|_| params.r#type == "id");
    let (Some(setting), Some(value)) = (ConfigOptionId::parse(&params.config_id), value) else {
        return reply.fail(&refused(&params.config_id, "of the type `id`"));
    };
    let done = reply.done(|all| json!({ "configOptions": v2::settings(all) }));
    handle.set(setting, value.to_owned(), done);
}

fn refused(name: &str, expected: &str) -> Error {
    let known = ConfigOptionId::ALL.map(ConfigOptionId::id).join(", ");
    invalid(format!(
        "Unknown option `{name}`, or a value that is not {expected}; options are: {known}"
    ))
}
