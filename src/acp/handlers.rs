//! Handlers of connection and prompt methods. None of them waits.

use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::{CancelTarget, Connection};
use super::responder::Responder;
use super::wire::{
    Authenticate, Initialize, Prompt, SetConfigOption, SetMode, SetModel,
    schema::{
        AuthenticateRequest, AuthenticateResponse, CancelNotification, PromptRequest,
        SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
        SetSessionModeResponse,
    },
};
use super::{capabilities, from_wire, offer, to_wire};
use crate::error::Error;
use turnwright_policy::permission::Mode;
use turnwright_rpc::{Params, RequestId};
use turnwright_types::ids::SessionId;
use turnwright_types::message::PromptEnd;
use turnwright_types::update::ConfigOptionId;

#[expect(clippy::needless_pass_by_value, reason = "every handler gets its parameters by value")]
pub(super) fn initialize(
    connection: &mut Connection,
    _: &RequestId,
    params: Value,
    reply: Responder<Initialize>,
) {
    let mut client = match capabilities::read_client_caps(&params) {
        Ok(client) => client,
        Err(error) => return reply.fail(&error),
    };
    if connection.remote.is_some() {
        // The client's own terminals may be on another machine. It can draw those of commands that run here.
        client.terminal = false;
    }
    let info = &params["clientInfo"];
    if let Some(name) = info["title"].as_str().or_else(|| info["name"].as_str()) {
        connection.host.store().set_client_name(name);
    }
    connection.host.set_client(&params, "clientInfo", "clientCapabilities");
    // A second `initialize` is handled like the first; open sessions keep the old capabilities.
    connection.client = Some(client);
    let task = offer::initialize(&connection.host, client, reply);
    connection.offer = offer::later(&connection.host, task);
}

pub(super) fn authenticate(
    connection: &mut Connection,
    _: &RequestId,
    AuthenticateRequest { method_id, .. }: AuthenticateRequest,
    reply: Responder<Authenticate>,
) {
    let host = &connection.host;
    let offer = connection.offer.clone();
    let peer = connection.peer.clone();
    let done = reply.done(|()| AuthenticateResponse::new());
    let task = offer::authenticate(host, Some(peer), offer, method_id.0.to_string(), done);
    // A session that is opened next finds the method in effect.
    connection.offer = offer::later(host, task);
}

pub(super) fn prompt(
    connection: &mut Connection,
    id: &RequestId,
    params: PromptRequest,
    reply: Responder<Prompt>,
) {
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|handle| handle.is_open()) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => prompt,
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) = connection.in_flight.register_prompt(id.clone(), session.clone());
    let done = reply.done(move |end: PromptEnd| {
        drop(in_flight);
        to_wire::prompt_end(end)
    });
    handle.prompt(key, prompt, connection.at_prompt_end(&session, key, done));
}

pub(super) fn set_mode(
    connection: &mut Connection,
    _: &RequestId,
    params: SetSessionModeRequest,
    reply: Responder<SetMode>,
) {
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

pub(super) fn set_option(
    connection: &mut Connection,
    _: &RequestId,
    params: SetSessionConfigOptionRequest,
    reply: Responder<SetConfigOption>,
) {
    let SetSessionConfigOptionRequest { session_id, config_id, value, .. } = params;
    let session = SessionId::from(session_id.0.as_ref());
    let Some(handle) = connection.session(&session) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let (Some(setting), Some(value)) = (ConfigOptionId::parse(&config_id.0), value.as_value_id())
    else {
        let known: Vec<_> = ConfigOptionId::ALL.iter().map(|option| option.id()).collect();
        return reply.fail(&Error::InvalidParams(format!(
            "Unknown option `{}`, or a value that is not an id; options are: {}",
            config_id.0,
            known.join(", ")
        )));
    };
    let done = reply.done(|all| SetSessionConfigOptionResponse::new(to_wire::settings(all)));
    handle.set(setting, value.0.to_string(), done);
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
    _: &RequestId,
    SetModelRequest { session_id, model_id }: SetModelRequest,
    reply: Responder<SetModel>,
) {
    let Some(handle) = connection.session(&SessionId::from(session_id.as_str())) else {
        return reply.fail(&Error::SessionNotFound(session_id));
    };
    handle.set(ConfigOptionId::Model, model_id, reply.done(|_| json!({})));
}

pub(super) fn cancel(connection: &mut Connection, params: &Params) {
    let Ok(params) = params.read::<CancelNotification>() else { return };
    let session = SessionId::from(params.session_id.0.as_ref());
    if let Some(handle) = connection.session(&session) {
        handle.cancel();
    }
}

/// Cancels a request. This concerns prompts, and opening and listing sessions. A change of the model is
/// not cancelled, though it may wait up to ten seconds for the provider's model list; every other
/// request is answered before its cancellation could be read.
pub(super) fn cancel_request(connection: &mut Connection, params: &Params) {
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
