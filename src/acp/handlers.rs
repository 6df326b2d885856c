//! One short function a method. None of them waits.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::peer::AcpClient;
use super::reply::Reply;
use super::wire::{
    Authenticate, Initialize, NewSession, Prompt, SetMode, SetOption,
    schema::{
        AuthMethod, AuthenticateRequest, AuthenticateResponse, CancelNotification, McpServer,
        NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
        SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
        SetSessionModeResponse,
    },
};
use super::{caps, from_wire, to_wire};
use crate::client::Buffers;
use crate::error::Error;
use crate::ids::SessionId;
use crate::message::Stop;
use crate::permission::Mode;
use crate::rpc::{Params, RequestId};
use crate::session::{self, Opening};
use crate::update::SettingId;

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

pub(super) fn new_session(
    connection: &mut Connection,
    _: &RequestId,
    params: NewSessionRequest,
    reply: Reply<NewSession>,
) {
    if let Err(error) = refuse_unoffered(&params) {
        return reply.fail(&error);
    }
    let id = SessionId::random();
    let caps = connection.client.unwrap_or_default();
    let client = Arc::new(AcpClient::new(connection.peer.clone(), &id, caps, params.cwd.clone()));
    let buffers = (caps.read || caps.write).then(|| Arc::clone(&client) as Arc<dyn Buffers>);
    let notice = unconnected(&params.mcp_servers);
    let offered = connection.offered;
    let display = client.display();
    let opening =
        Opening { id: id.clone(), cwd: params.cwd, client, buffers, display, notice, offered };
    match session::open(&connection.host, opening) {
        Ok((handle, settings)) => {
            let modes = to_wire::modes(&settings);
            let answer = NewSessionResponse::new(id.to_arc())
                .modes(modes)
                .config_options(to_wire::settings(settings));
            // The answer is in the lane before the session can say anything.
            reply.ok(&answer);
            connection.sessions.insert(id, handle);
        }
        Err(error) => reply.fail(&error),
    }
}

/// What we have not advertised is refused and never silently left out (R-DIR-3, R-MCP-5).
fn refuse_unoffered(params: &NewSessionRequest) -> Result<(), Error> {
    if !params.additional_directories.is_empty() {
        return Err(Error::Params("`additionalDirectories` are not supported yet".to_owned()));
    }
    if params.mcp_servers.iter().any(|it| !matches!(it, McpServer::Stdio(_))) {
        return Err(Error::Params(
            "Only MCP servers of type stdio may be given: http and sse are not advertised"
                .to_owned(),
        ));
    }
    Ok(())
}

/// What the user is told about MCP servers: every agent has to accept them, and editors hand
/// them over unasked, so this is no reason to refuse the session.
fn unconnected(servers: &[McpServer]) -> Option<String> {
    let name = |it: &McpServer| match it {
        McpServer::Stdio(server) => Some(server.name.clone()),
        _ => None,
    };
    let names: Vec<_> = servers.iter().filter_map(name).collect();
    let list = names.join(", ");
    (!names.is_empty()).then(|| format!("MCP servers are not connected yet: {list} is not in use."))
}

pub(super) fn prompt(
    connection: &mut Connection,
    id: &RequestId,
    params: PromptRequest,
    reply: Reply<Prompt>,
) {
    let session = SessionId::from(params.session_id.0.as_ref());
    let Some(handle) = connection.sessions.get(&session) else {
        return reply.fail(&Error::NoSuchSession(session.to_string()));
    };
    let prompt = match from_wire::prompt(params.prompt) {
        Ok(prompt) => prompt,
        Err(error) => return reply.fail(&error),
    };
    let (key, in_flight) = connection.in_flight.insert(id.clone(), session);
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
    let Some(handle) = connection.sessions.get(&session) else {
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
    let Some(handle) = connection.sessions.get(&session) else {
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
    if let Some(handle) = connection.sessions.get(&session) {
        handle.cancel();
    }
}

/// Only prompts take long. A change of the model may wait for its provider's list, which has ten
/// seconds; every other request is answered before this could be read.
pub(super) fn cancel_request(connection: &mut Connection, params: &Params) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelRequest {
        // As it came: an escape in it must not make it another one.
        request_id: Box<RawValue>,
    }
    let Ok(params) = params.read::<CancelRequest>() else { return };
    let Some(id) = RequestId::parse(&params.request_id) else { return };
    if let Some((session, key)) = connection.in_flight.find(&id)
        && let Some(handle) = connection.sessions.get(&session)
    {
        handle.cancel_prompt(key);
    }
}
