//! Opening sessions, for the methods that make, load, resume and fork them. Clients ask for instructions in
//! `systemPrompt`, and for the rest in `_meta`, in the form in which the adapters of other agents take it. Nothing here
//! waits: the session itself answers the request once it is open.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::AcpClient;
use super::connection::Connection;
use super::error::invalid;
use super::remote::{CurrentClient, RemoteClient, RemoteSessions};
use super::responder::Responder;
use super::schema::{
    self, ContentBlock, ForkSessionRequest, InitialSessionConfigOption, LoadSessionRequest, Meta,
    NewSessionRequest, ResumeSessionRequest, SessionConfigOption, SessionModeState,
    SystemPromptMode,
};
use super::v2::{self, AcpClientV2};
use super::versions::Version;
use super::{from_wire, mcp_servers, to_wire};
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{
    self, ClientOptions, ClientSide, OpenRequest, Replayed, SessionHandle, SessionOrigin,
    SystemPrompt, Takeover, WantedSession,
};
use turnwright_rpc::{Params, RequestId};
use turnwright_types::client::{Client, EditorBuffers};
use turnwright_types::ids::SessionId;
use turnwright_types::message::PromptEnd;
use turnwright_types::update::{ConfigOption, ConfigOptionId};

/// The fields of `_meta` that are read.
pub(super) const META_FIELDS: [&str; 2] = ["systemPrompt", "claudeCode"];
/// The longest instructions, in bytes. They are sent with each request.
const MAX_PROMPT_BYTES: usize = 64 * 1024;
/// The most tools that may be named.
const MAX_TOOLS: usize = 1000;
/// The most initial values of options.
const MAX_INITIAL_VALUES: usize = 64;

/// A request that opens a session.
pub(super) trait OpeningRequest {
    /// Checks the servers and options that the client names.
    fn into_wanted(
        self,
        connection: &Connection,
        id: SessionId,
        origin: SessionOrigin,
    ) -> Result<WantedSession, Error>;
}

/// The requests have these fields in common.
macro_rules! opening_requests {
    ($($request:ty),+) => {$(
        impl OpeningRequest for $request {
            fn into_wanted(
                self,
                connection: &Connection,
                id: SessionId,
                origin: SessionOrigin,
            ) -> Result<WantedSession, Error> {
                Ok(WantedSession {
                    id,
                    cwd: from_wire::working_folder(self.cwd, connection.remote.is_some()),
                    folders: self
                        .additional_directories
                        .into_iter()
                        .map(from_wire::folder)
                        .collect(),
                    servers: mcp_servers::server_specs(connection, self.mcp_servers)?,
                    options: read_options(self.meta.as_ref(), self.system_prompt)?,
                    settings: initial_settings(&self.config_options)?,
                    origin,
                })
            }
        }
    )+};
}

opening_requests!(NewSessionRequest, LoadSessionRequest, ResumeSessionRequest, ForkSessionRequest);

/// Checks the number of initial values of options before they are read, which would take many times the memory of
/// their text.
///
/// # Errors
/// If there are too many.
pub(super) fn check_initial_values(params: &Params) -> Result<(), Error> {
    let list = params.field("configOptions").map_or("[]", RawValue::get);
    // Whatever has another form is refused when it is read.
    let entries: Vec<IgnoredAny> = serde_json::from_str(list).unwrap_or_default();
    if entries.len() <= MAX_INITIAL_VALUES {
        return Ok(());
    }
    Err(invalid(format!("`configOptions` has more than {MAX_INITIAL_VALUES} entries")))
}

/// The initial values of options. Those for unknown options and those of other types are left out (R-OPT-2).
///
/// # Errors
/// If an option has several values.
fn initial_settings(
    entries: &[InitialSessionConfigOption],
) -> Result<Vec<(ConfigOptionId, String)>, Error> {
    let mut named = HashSet::new();
    if let Some(entry) = entries.iter().find(|entry| !named.insert(&entry.config_id.0)) {
        let text = format!("`configOptions` has several values of `{}`", entry.config_id.0);
        return Err(invalid(text));
    }
    let known = entries.iter().filter_map(|entry| {
        let value = entry.value.as_value_id()?.0.to_string();
        Some((ConfigOptionId::parse(&entry.config_id.0)?, value))
    });
    Ok(known.collect())
}

/// Opens a session for a client of version 1. `respond` makes the response.
pub(super) fn open<R: Serialize + 'static>(
    connection: &mut Connection,
    wanted: Result<WantedSession, Error>,
    reply: Responder<R>,
    respond: impl FnOnce(&SessionId, Option<SessionModeState>, Vec<SessionConfigOption>) -> R
    + Send
    + 'static,
) {
    let Some((wanted, reply)) = reply.if_ok(wanted) else { return };
    let caps = connection.client.unwrap_or_default();
    let peer = connection.peer.clone();
    let silent_requests = Arc::clone(&connection.silent_requests);
    let told = connection.told.clone();
    let cwd = wanted.cwd.clone();
    let client = Arc::new(AcpClient::new(peer, &wanted.id, caps, cwd, silent_requests, told));
    let buffers = (caps.read || caps.write).then(|| Arc::clone(&client) as Arc<dyn EditorBuffers>);
    let terminals = client.terminals();
    let client = ClientSide { client, buffers, terminals };
    let id = wanted.id.clone();
    let request = reply.id().clone();
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        let modes = to_wire::modes(&settings);
        respond(&id, modes, to_wire::settings(settings))
    });
    open_session(connection, request, wanted, client, done);
}

/// Opens a new session, or a fork of one, for a client of version 2.
pub(super) fn open_as_new_v2(
    connection: &mut Connection,
    wanted: Result<WantedSession, Error>,
    reply: Responder<Value>,
) {
    let Some((wanted, reply)) = reply.if_ok(wanted) else { return };
    let id = wanted.id.clone();
    let request = reply.id().clone();
    let done = reply.done(move |settings: Vec<ConfigOption>| {
        json!({ "sessionId": id.as_str(), "configOptions": v2::settings(settings) })
    });
    let client = client_v2(connection, &wanted);
    open_session(connection, request, wanted, client_side_v2(client), done);
}

pub(super) fn client_v2(connection: &Connection, wanted: &WantedSession) -> Arc<AcpClientV2> {
    let caps = connection.client.unwrap_or_default();
    let peer = connection.peer.clone();
    let prompts = connection.prompts.clone();
    let tasks = connection.host.tracker();
    let cwd = wanted.cwd.clone();
    Arc::new(AcpClientV2::new(peer, &wanted.id, cwd, caps, prompts, tasks))
}

/// The agent reads files and runs commands itself: version 2 has no requests for them.
pub(super) fn client_side_v2(client: Arc<AcpClientV2>) -> ClientSide {
    let client: Arc<dyn Client> = client;
    ClientSide { client, buffers: None, terminals: None }
}

/// Opens a session. If it is open already, it is closed first; one that has lost its connection is taken
/// over as it is.
pub(super) fn open_session(
    connection: &mut Connection,
    request: RequestId,
    wanted: WantedSession,
    mut client: ClientSide,
    done: Completion<Vec<ConfigOption>>,
) {
    if matches!(wanted.origin, SessionOrigin::Stored { .. })
        && let Err(error) = connection.check_not_elsewhere(&wanted.id)
    {
        return done.complete(Err(error));
    }
    if let Some(remote) = &mut connection.remote {
        if let Err(error) = remote.make_room(&connection.sessions) {
            return done.complete(Err(error));
        }
        if let SessionOrigin::Stored { replay } = wanted.origin
            && let Some(taken) = remote.take(&wanted.id, &wanted.cwd, &wanted.folders)
        {
            return match taken {
                Ok(detached) => take_over(connection, wanted, detached, client, replay, done),
                Err(error) => done.complete(Err(error)),
            };
        }
        client = remote.add(&wanted.id, wanted.cwd.clone(), wanted.folders.clone(), client);
    }
    let id = wanted.id.clone();
    let (cancel, in_flight) = connection.in_flight.register(request);
    let remote_client = connection.remote.as_ref().and_then(|remote| remote.client(&id)).cloned();
    let opened = Completion::new(move |result| {
        drop(in_flight);
        if let Some(client) = remote_client {
            client.forget_opening();
        }
        done.complete(result);
    });
    let after = connection.close_session(&id);
    let offer = connection.offer.clone();
    let open_request = OpenRequest {
        wanted,
        client,
        advertised_modalities: offer.map(|offer| offer.modalities).boxed(),
        start_after: after.clone(),
        cancel,
        opened,
    };
    connection.sessions.retain(|_, handle| handle.is_open());
    // If it cannot be opened, the old session of this id is closing all the same.
    connection.block_session_until(id.clone(), after);
    let handle = session::open(&connection.host, open_request);
    if let Some(remote) = &connection.remote {
        remote.claim(&id, &handle);
    }
    connection.sessions.insert(id, handle);
}

/// Takes over a session that has lost its connection, with the turn that runs in it.
fn take_over(
    connection: &mut Connection,
    WantedSession { id, servers, settings, .. }: WantedSession,
    (handle, remote_client): (SessionHandle, Arc<RemoteClient>),
    client: ClientSide,
    replay: bool,
    done: Completion<Vec<ConfigOption>>,
) {
    let known_as = id.clone();
    let mut follow: Box<dyn FnMut(_, _) -> Completion<PromptEnd> + Send> = match connection.version
    {
        // The request whose answer would tell the end of the turn is lost.
        Version::V1 => Box::new(|_, _| Completion::new(|_| ())),
        Version::V2 => Box::new(v2::follow(connection, known_as)),
    };
    let followed = Arc::clone(&remote_client);
    let follow = Box::new(move |key, has_begun| {
        let client = Arc::clone(&followed);
        let done = follow(key, has_begun);
        Completion::new(move |result| {
            client.forget_turn(key);
            done.complete(result);
        })
    });
    let own_prompts = connection.remote.as_ref().map(RemoteSessions::prompts).unwrap_or_default();
    let current =
        CurrentClient { client: Arc::clone(&client.client), buffers: client.buffers, own_prompts };
    let attach =
        Box::new(move |replayed: &Replayed| remote_client.attach(current, replayed, replay));
    let client = client.client;
    handle.take_over(Takeover { client, replay, attach, follow, servers, settings, done });
    if let Some(remote) = &connection.remote {
        remote.claim(&id, &handle);
    }
    connection.sessions.insert(id, handle);
}

/// Reads the options; `None` if there are none. A malformed one has no effect, because `_meta` may hold
/// anything, and the user is told; but a malformed restriction allows nothing.
///
/// # Errors
/// If `systemPrompt`, which is a part of the protocol, cannot be followed (R-SYS-1).
fn read_options(
    meta: Option<&Meta>,
    instructions: Option<schema::SystemPrompt>,
) -> Result<Option<ClientOptions>, Error> {
    let options = read_meta(meta);
    let Some(instructions) = instructions else { return Ok(options) };
    let system_prompt = Some(read_instructions(instructions)?);
    Ok(Some(ClientOptions { system_prompt, ..options.unwrap_or_default() }))
}

fn read_instructions(wanted: schema::SystemPrompt) -> Result<SystemPrompt, Error> {
    let mut texts = Vec::with_capacity(wanted.content.len());
    for block in wanted.content {
        let ContentBlock::Text(text) = block else {
            return refused_prompt("`content` may have only blocks of the type `text`");
        };
        texts.push(text.text);
    }
    let text = texts.join("\n\n");
    if text.trim().is_empty() || text.len() > MAX_PROMPT_BYTES {
        return refused_prompt("`content` must have a text of at most 64 KiB");
    }
    match wanted.mode {
        SystemPromptMode::Append => Ok(SystemPrompt::Append(text)),
        SystemPromptMode::Override => Ok(SystemPrompt::Replace(text)),
        _ => refused_prompt("`mode` must be `append` or `override`"),
    }
}

fn refused_prompt(why: &str) -> Result<SystemPrompt, Error> {
    Err(invalid(format!("`systemPrompt`: {why}")))
}

fn read_meta(meta: Option<&Meta>) -> Option<ClientOptions> {
    let field = |name: &str| meta.and_then(|meta| meta.get(name)).filter(|value| !value.is_null());
    let option = |name: &str| {
        let options = field("claudeCode").and_then(|code| code.get("options"));
        options.and_then(|options| options.get(name)).filter(|value| !value.is_null())
    };
    let mut options = ClientOptions::default();
    if let Some(value) = field("systemPrompt") {
        options.system_prompt = system_prompt(value);
        if options.system_prompt.is_none() {
            options.notices.push(ignored(
                "systemPrompt",
                "a text of at most 64 KiB, or an object with such a text as `append`",
            ));
        }
    }
    if let Some(value) = option("allowedTools") {
        options.allowed_tools = Some(allowed_tools(value).unwrap_or_else(|| {
            options.notices.push(
                "The editor restricts this session to some tools in a form that is not understood \
                 (`_meta.claudeCode.options.allowedTools`), so it has none."
                    .to_owned(),
            );
            Vec::new()
        }));
    }
    if options.allowed_tools.as_ref().is_some_and(Vec::is_empty) && options.notices.is_empty() {
        let notice = "The editor allows no tools in this session (`_meta.claudeCode.options.allowedTools` is empty).";
        options.notices.push(notice.to_owned());
    }
    if let Some(value) = option("maxTurns") {
        options.max_requests = max_requests(value);
        if options.max_requests.is_none() {
            options.notices.push(ignored("claudeCode.options.maxTurns", "a number above 0"));
        }
    }
    (options != ClientOptions::default()).then_some(options)
}

fn system_prompt(value: &Value) -> Option<SystemPrompt> {
    let is_usable = |text: &&str| !text.trim().is_empty() && text.len() <= MAX_PROMPT_BYTES;
    match value.as_str() {
        Some(text) => {
            Some(text).filter(is_usable).map(|text| SystemPrompt::Replace(text.to_owned()))
        }
        None => {
            let text = value.get("append").and_then(Value::as_str).filter(is_usable);
            text.map(|text| SystemPrompt::Append(text.to_owned()))
        }
    }
}

fn allowed_tools(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array().filter(|names| names.len() <= MAX_TOOLS)?.iter();
    names.map(|name| name.as_str().map(str::to_owned)).collect()
}

fn max_requests(value: &Value) -> Option<NonZeroU32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new)
}

fn ignored(name: &str, expected: &str) -> String {
    format!("The editor's `_meta.{name}` was ignored: it must be {expected}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_other_adapters_are_read() {
        let none = ClientOptions::default();
        let append = |text: &str| Some(SystemPrompt::Append(text.to_owned()));
        for (meta, expected) in [
            (json!({}), None),
            (json!({ "systemPrompt": null, "claudeCode": { "options": {} } }), None),
            (json!({ "other": { "systemPrompt": 1 } }), None),
            (
                json!({ "systemPrompt": "Be brief." }),
                Some(ClientOptions {
                    system_prompt: Some(SystemPrompt::Replace("Be brief.".to_owned())),
                    ..none.clone()
                }),
            ),
            (
                json!({ "systemPrompt": { "type": "preset", "append": "Be brief." } }),
                Some(ClientOptions { system_prompt: append("Be brief."), ..none.clone() }),
            ),
            (
                json!({ "claudeCode": { "options": { "allowedTools": [], "maxTurns": 3 } } }),
                Some(ClientOptions {
                    allowed_tools: Some(Vec::new()),
                    notices: vec![
                        "The editor allows no tools in this session (`_meta.claudeCode.options.allowedTools` \
                         is empty)."
                            .to_owned(),
                    ],
                    max_requests: NonZeroU32::new(3),
                    ..none
                }),
            ),
        ] {
            assert_eq!(read_meta(meta.as_object()), expected, "{meta}");
        }
    }

    #[test]
    fn a_malformed_option_gives_nothing_and_is_named() {
        for (meta, name) in [
            (json!({ "systemPrompt": 1 }), "systemPrompt"),
            (json!({ "systemPrompt": " " }), "systemPrompt"),
            (json!({ "systemPrompt": { "preset": "x" } }), "systemPrompt"),
            (json!({ "systemPrompt": "x".repeat(70_000) }), "systemPrompt"),
            (json!({ "claudeCode": { "options": { "allowedTools": "Read" } } }), "allowedTools"),
            (json!({ "claudeCode": { "options": { "allowedTools": [1] } } }), "allowedTools"),
            (json!({ "claudeCode": { "options": { "maxTurns": 0 } } }), "maxTurns"),
            (json!({ "claudeCode": { "options": { "maxTurns": "3" } } }), "maxTurns"),
        ] {
            let options = read_meta(meta.as_object()).unwrap();
            assert!(options.notices[0].contains(name), "{meta}: {options:?}");
            let allowed = (name == "allowedTools").then(Vec::new);
            let expected = ClientOptions {
                allowed_tools: allowed,
                notices: options.notices.clone(),
                ..ClientOptions::default()
            };
            assert_eq!(options, expected, "{meta}");
        }
    }
}
