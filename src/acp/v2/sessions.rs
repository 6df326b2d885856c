//! Sessions in version 2: what `session/load` did, `session/resume` does with `replayFrom`, and modes are
//! configuration options.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::AcpClientV2;
use super::encode;
use super::wire::{
    CloseSessionV2, ForkSessionV2, NewSessionV2, ResumeSessionV2, SetConfigOptionV2,
};
use crate::acp::connection::Connection;
use crate::acp::mcp_servers;
use crate::acp::responder::Responder;
use crate::acp::sessions::{OpeningRequest, open_session};
use crate::acp::wire::RequestMethod;
use crate::acp::wire::schema::{
    CloseSessionRequest, ForkSessionRequest, NewSessionRequest, ResumeSessionRequest,
};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{ClientSide, SessionOrigin, WantedSession, stored_sessions};
use turnwright_rpc::RequestId;
use turnwright_types::client::{Client, CommandDisplay};
use turnwright_types::ids::SessionId;
use turnwright_types::update::{ConfigOption, ConfigOptionId};

/// The kinds of MCP servers that a client may name.
const SERVER_TYPES: [&str; 3] = ["stdio", "http", "acp"];

pub(super) fn new(
    connection: &mut Connection,
    request: &RequestId,
    params: Value,
    reply: Responder<NewSessionV2>,
) {
    let wanted = read::<NewSessionRequest>(NewSessionV2::NAME, params).and_then(|opening| {
        opening.into_wanted(connection, SessionId::random(), SessionOrigin::New)
    });
    open_as_new(connection, request, wanted, reply);
}

pub(super) fn fork(
    connection: &mut Connection,
    request: &RequestId,
    params: Value,
    reply: Responder<ForkSessionV2>,
) {
    let wanted = read::<ForkSessionRequest>(ForkSessionV2::NAME, params).and_then(|opening| {
        let source = SessionId::from(opening.session_id.0.as_ref());
        opening.into_wanted(connection, SessionId::random(), SessionOrigin::Fork { source })
    });
    open_as_new(connection, request, wanted, reply);
}

fn open_as_new<M: RequestMethod<Result = Value> + 'static>(
    connection: &mut Connection,
    request: &RequestId,
    wanted: Result<WantedSession, Error>,
    reply: Responder<M>,
) {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply.fail(&error),
    };
    let id = wanted.id.clone();
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        json!({ "sessionId": id.as_str(), "configOptions": encode::settings(settings) })
    });
    let client = client(connection, &wanted);
    open_session(connection, request, wanted, client_side(client), done);
}

pub(super) fn resume(
    connection: &mut Connection,
    request: &RequestId,
    params: Value,
    reply: Responder<ResumeSessionV2>,
) {
    let replay = replays(&params);
    let wanted = read::<ResumeSessionRequest>(ResumeSessionV2::NAME, params).and_then(|opening| {
        let id = SessionId::from(opening.session_id.0.as_ref());
        opening.into_wanted(connection, id, SessionOrigin::Stored { replay: replay? })
    });
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply.fail(&error),
    };
    let client = client(connection, &wanted);
    let resumed = Arc::clone(&client);
    let done = Completion::new(move |settings: Result<_, Error>| match settings {
        Ok(settings) => {
            // The client learns the state of a session before it may prompt it (R-TWO-6).
            resumed.report_idle();
            reply.ok(&json!({ "configOptions": encode::settings(settings) }));
        }
        Err(error) => reply.fail(&error),
    });
    open_session(connection, request, wanted, client_side(client), done);
}

/// Returns true if the conversation is replayed. Any other cursor is refused: replaying something else, or nothing,
/// would mislead.
fn replays(params: &Value) -> Result<bool, Error> {
    match params.get("replayFrom").filter(|cursor| !cursor.is_null()) {
        None => Ok(false),
        Some(from) if from.get("type").is_some_and(|kind| kind == "start") => Ok(true),
        Some(_) => {
            let text = "`replayFrom` must be of the type `start`, or absent";
            Err(Error::InvalidParams(text.to_owned()))
        }
    }
}

/// Reads the parameters of a method that opens a session. They have the fields of version 1, but each MCP
/// server has a type (R-TWO-16).
fn read<T: DeserializeOwned>(method: &str, mut params: Value) -> Result<T, Error> {
    mcp_servers::normalize(method, &mut params)?;
    if let Some(servers) = params.get("mcpServers")
        && !servers.as_array().is_none_or(|servers| servers.iter().all(has_known_type))
    {
        let text = "Each MCP server must have the `type` stdio, http or acp";
        return Err(Error::InvalidParams(text.to_owned()));
    }
    mcp_servers::read_with_servers(method, &mut params)
}

fn has_known_type(server: &Value) -> bool {
    let kind = server.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| SERVER_TYPES.contains(&kind))
}

fn client(connection: &Connection, wanted: &WantedSession) -> Arc<AcpClientV2> {
    let forms = connection.client.unwrap_or_default().forms;
    let peer = connection.peer.clone();
    let prompts = connection.prompts.clone();
    let tasks = connection.host.tracker();
    Arc::new(AcpClientV2::new(peer, &wanted.id, wanted.cwd.clone(), forms, prompts, tasks))
}

/// The agent reads files and runs commands itself: this version has no requests for them.
fn client_side(client: Arc<AcpClientV2>) -> ClientSide {
    let client: Arc<dyn Client> = client;
    ClientSide { client, buffers: None, display: CommandDisplay::default() }
}

/// Closing a session that is not open succeeds.
pub(super) fn close(
    connection: &mut Connection,
    _: &RequestId,
    CloseSessionRequest { session_id, .. }: CloseSessionRequest,
    reply: Responder<CloseSessionV2>,
) {
    let id = SessionId::from(session_id.0.as_ref());
    let closed = connection.close_session(&id);
    connection.block_session_until(id, closed.clone());
    stored_sessions::report_closed(&connection.host, closed, reply.done(|()| json!({})));
}

/// The parameters of `session/set_config_option`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOptionRequest {
    session_id: String,
    config_id: String,
    r#type: String,
    value: Value,
}

pub(super) fn set_option(
    connection: &mut Connection,
    _: &RequestId,
    params: SetOptionRequest,
    reply: Responder<SetConfigOptionV2>,
) {
    let Some(handle) = connection.session(&SessionId::from(params.session_id.as_str())) else {
        return reply.fail(&Error::SessionNotFound(params.session_id));
    };
    let value = params.value.as_str().filter(|_| params.r#type == "id");
    let (Some(setting), Some(value)) = (ConfigOptionId::parse(&params.config_id), value) else {
        let known: Vec<_> = ConfigOptionId::ALL.iter().map(|option| option.id()).collect();
        return reply.fail(&Error::InvalidParams(format!(
            "Unknown option `{}`, or a value that is not of the type `id`; options are: {}",
            params.config_id,
            known.join(", ")
        )));
    };
    let done = reply.done(|all| json!({ "configOptions": encode::settings(all) }));
    handle.set(setting, value.to_owned(), done);
}
