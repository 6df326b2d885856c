//! Handlers of connection and prompt methods. None of them waits.

use std::sync::Arc;

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use super::connection::{CancelTarget, Connection, Offer};
use super::responder::Responder;
use super::wire::{
    Authenticate, Initialize, Prompt, SetConfigOption, SetMode,
    schema::{
        AuthMethod, AuthenticateRequest, AuthenticateResponse, CancelNotification, PromptRequest,
        PromptResponse, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
        SetSessionModeRequest, SetSessionModeResponse,
    },
};
use super::{capabilities, from_wire, to_wire};
use crate::error::Error;
use crate::session::SessionHost;
use turnwright_policy::permission::Mode;
use turnwright_rpc::{Params, RequestId};
use turnwright_types::ids::SessionId;
use turnwright_types::message::StopReason;
use turnwright_types::update::SettingId;

pub(super) fn initialize(
    connection: &mut Connection,
    _: &RequestId,
    params: Value,
    reply: Responder<Initialize>,
) {
    let client = match capabilities::read_client_caps(params) {
        Ok(client) => client,
        Err(error) => {
            return reply.fail(&Error::InvalidParams(format!(
                "Invalid parameters for initialize: {error}"
            )));
        }
    };
    // A second `initialize` is handled like the first; open sessions keep the old capabilities.
    connection.client = Some(client);
    let host = Arc::clone(&connection.host);
    let task = async move {
        let (reading, store) = (Arc::clone(&host), host.store().clone());
        let read = move || (reading.is_configured(), reading.default_modalities());
        let Ok((is_configured, modalities)) = spawn_blocking(read).await else {
            return Offer::default();
        };
        let answer = capabilities::initialize_response(is_configured, modalities, client);
        let agent_methods = answer.auth_methods.iter().filter_map(|it| match it {
            AuthMethod::Agent(method) => Some(method.id.0.to_string()),
            // The client runs terminal methods itself, without `authenticate` (R-AUTH-4).
            _ => None,
        });
        let offer = Offer { modalities, auth_methods: agent_methods.collect() };
        reply.ok(&answer);
        // The store is opened now, so that the first session does not wait for the disk.
        store.open_in_background();
        offer
    };
    let task = connection.host.spawn(task);
    connection.offer = task.map(Result::unwrap_or_default).boxed().shared();
}

pub(super) fn authenticate(
    connection: &mut Connection,
    _: &RequestId,
    params: AuthenticateRequest,
    reply: Responder<Authenticate>,
) {
    let (host, offer) = (Arc::clone(&connection.host), connection.offer.clone());
    let task = async move {
        let offer = offer.await;
        match check_auth_method(host, &offer, &params.method_id.0).await {
            Ok(()) => reply.ok(&AuthenticateResponse::new()),
            Err(error) => reply.fail(&error),
        }
        offer
    };
    // A session that is opened next finds the method in effect.
    let task = connection.host.spawn(task);
    connection.offer = task.map(Result::unwrap_or_default).boxed().shared();
}

async fn check_auth_method(
    host: Arc<SessionHost>,
    offer: &Offer,
    method: &str,
) -> Result<(), Error> {
    if !offer.auth_methods.iter().any(|it| it == method) {
        return Err(Error::InvalidParams(format!(
            "Unknown auth method `{method}`; offered are: {}",
            offer.auth_methods.join(", ")
        )));
    }
    match method {
        "offline" => host.use_offline(),
        // The client has run the login in a terminal and now asks whether it succeeded.
        "login" if !spawn_blocking(move || host.is_configured()).await.unwrap_or_default() => {
            return Err(Error::NoModelConfigured);
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn prompt(
    connection: &mut Connection,
    id: &RequestId,
    params: PromptRequest,
    reply: Responder<Prompt>,
) {
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session).filter(|it| it.is_open()) else {
        return reply.fail(&Error::SessionNotFound(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => prompt,
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) = connection.in_flight.register_prompt(id.clone(), session);
    let done = reply.done(move |stop_reason: StopReason| {
        drop(in_flight);
        PromptResponse::new(to_wire::stop_reason(stop_reason))
    });
    handle.prompt(key, prompt, done);
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
        let known: Vec<_> = Mode::ALL.iter().map(|it| it.id()).collect();
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
    let (Some(setting), Some(value)) = (SettingId::parse(&config_id.0), value.as_value_id()) else {
        let known: Vec<_> = SettingId::ALL.iter().map(|it| it.id()).collect();
        return reply.fail(&Error::InvalidParams(format!(
            "Unknown option `{}`, or a value that is not an id; options are: {}",
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

/// Cancels a request. This concerns prompts, and opening and listing sessions. A change of the model is
/// not cancelled, though it may wait up to ten seconds for the provider's model list; every other
/// request is answered before its cancellation could be read.
pub(super) fn cancel_request(connection: &mut Connection, params: &Params) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelRequest {
        // Kept raw, because ids are compared byte for byte.
        request_id: Box<RawValue>,
    }
    let Ok(params) = params.read::<CancelRequest>() else { return };
    let Some(id) = RequestId::parse(&params.request_id) else { return };
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
