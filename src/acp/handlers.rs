//! One short function a method. None of them waits.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::{Connection, Work};
use super::reply::Reply;
use super::wire::{
    Authenticate, Initialize, Prompt, SetMode, SetOption,
    schema::{
        AuthMethod, AuthenticateRequest, AuthenticateResponse, CancelNotification, PromptRequest,
        PromptResponse, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
        SetSessionModeRequest, SetSessionModeResponse,
    },
};
use super::{caps, from_wire, to_wire};
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_types::message::Stop;
use turnwright_policy::permission::Mode;
use turnwright_rpc::{Params, RequestId};
use turnwright_types::update::SettingId;

pub(super) fn initialize(
    connection: &mut Connection,
    _: &RequestId,
    params: Value,
    reply: Reply<Initialize>,
) {
    let client = match caps::read(params) {
        Ok(client) => client,
        Err(error) => {
            return reply
                .fail(&Error::Params(format!("Invalid parameters for initialize: {error}")));
        }
    };
    // A second `initialize` is taken like the first; sessions that are open keep what they have.
    connection.client = Some(client);
    connection.offered = connection.host.senses();
    let answer = caps::answer(connection.host.is_configured(), connection.offered, client);
    let agent_methods = answer.auth_methods.iter().filter_map(|it| match it {
        AuthMethod::Agent(method) => Some(method.id.0.to_string()),
        // Terminal methods are run by the client, not by `authenticate` (R-AUTH-4).
        _ => None,
    });
    connection.auth_methods = agent_methods.collect();
    reply.ok(&answer);
    // Whoever opens a session next shall not wait for the disk.
    connection.host.store().warm_up();
}

pub(super) fn authenticate(
    connection: &mut Connection,
    _: &RequestId,
    params: AuthenticateRequest,
    reply: Reply<Authenticate>,
) {
    let AuthenticateRequest { method_id, .. } = params;
    let method = method_id.0.as_ref();
    if !connection.auth_methods.iter().any(|it| it == method) {
        return reply.fail(&Error::Params(format!(
            "`{method}` is none of the methods that were offered: {}",
            connection.auth_methods.join(", ")
        )));
    }
    match method {
        "offline" => connection.host.use_offline(),
        // The client runs it in a terminal and then asks whether it has helped.
        "login" if !connection.host.is_configured() => return reply.fail(&Error::NotSignedIn),
        _ => {}
    }
    reply.ok(&AuthenticateResponse::new());
}

pub(super) fn prompt(
    connection: &mut Connection,
    id: &RequestId,
    params: PromptRequest,
    reply: Reply<Prompt>,
) {
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|it| it.is_open()) else {
        return reply.fail(&Error::NoSuchSession(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => prompt,
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) = connection.in_flight.prompt(id.clone(), session);
    let done = reply.done(move |stop: Stop| {
        drop(in_flight);
        PromptResponse::new(to_wire::stop_reason(stop))
    });
    handle.prompt(key, prompt, done);
}

pub(super) fn set_mode(
    connection: &mut Connection,
    _: &RequestId,
    params: SetSessionModeRequest,
    reply: Reply<SetMode>,
) {
    let SetSessionModeRequest { session_id, mode_id, .. } = params;
    let session = SessionId::from(session_id.0.as_ref());
    let Some(handle) = connection.session(&session) else {
        return reply.fail(&Error::NoSuchSession(session.to_string()));
    };
    let Some(mode) = Mode::parse(&mode_id.0) else {
        let known: Vec<_> = Mode::ALL.iter().map(|it| it.id()).collect();
        return reply.fail(&Error::Params(format!(
            "There is no mode `{}`; there are: {}",
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
    reply: Reply<SetOption>,
) {
    let SetSessionConfigOptionRequest { session_id, config_id, value, .. } = params;
    let session = SessionId::from(session_id.0.as_ref());
    let Some(handle) = connection.session(&session) else {
        return reply.fail(&Error::NoSuchSession(session.to_string()));
    };
    let (Some(setting), Some(value)) = (SettingId::parse(&config_id.0), value.as_value_id()) else {
        let known: Vec<_> = SettingId::ALL.iter().map(|it| it.id()).collect();
        return reply.fail(&Error::Params(format!(
            "There is no option `{}` with such a value; there are: {}",
            config_id.0,
            known.join(", ")
        )));
    };
    let convert = |all| SetSessionConfigOptionResponse::new(to_wire::settings(all));
    handle.set(setting, value.0.to_string(), reply.done(convert));
}

pub(super) fn cancel(connection: &mut Connection, params: &Params) {
    let Ok(params) = params.read::<CancelNotification>() else { return };
    let session = SessionId::from(params.session_id.0.as_ref());
    if let Some(handle) = connection.session(&session) {
        handle.cancel();
    }
}

/// Prompts take long, and what opens or lists sessions may. A change of the model may wait for its
/// provider's list, which has ten seconds; every other request is answered before this could be read.
pub(super) fn cancel_request(connection: &mut Connection, params: &Params) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelRequest {
        // As it came: an escape in it must not make it another one.
        request_id: Box<RawValue>,
    }
    let Ok(params) = params.read::<CancelRequest>() else { return };
    let Some(id) = RequestId::parse(&params.request_id) else { return };
    match connection.in_flight.find(&id) {
        Some(Work::Prompt(session, key)) => {
            if let Some(handle) = connection.session(&session) {
                handle.cancel_prompt(key);
            }
        }
        Some(Work::Other(cancel)) => cancel.cancel(),
        None => {}
    }
}
