//! `initialize`: the client says what it can do, and is told what the agent can do.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::REQUESTS;
use crate::acp::capabilities::{
    ClientCaps, auth_methods, later_offer, make_offer, read_client_caps, read_v2_client_caps,
};
use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthStatusCapabilities, Implementation,
    InitializeResponse, McpCapabilities, PromptCapabilities, ProvidersCapabilities,
    SessionAdditionalDirectoriesCapabilities, SessionArchiveCapabilities, SessionCapabilities,
    SessionCloseCapabilities, SessionDeleteCapabilities, SessionForkCapabilities,
    SessionListCapabilities, SessionOptionsCapabilities, SessionResumeCapabilities,
    SessionStatusCapabilities, SessionSystemPromptCapabilities,
    SessionSystemPromptModeCapabilities, SessionSystemPromptOverrideCapabilities,
    SessionTitleCapabilities,
};
use crate::acp::versions::Version;
use crate::error::Error;
use crate::session::Modalities;
use agent_client_protocol_schema::ProtocolVersion;

/// Any version of the protocol is accepted. A client that sends a text instead of a number has confused it with the
/// date or the `1.0` of another protocol (R-INIT-5).
pub(super) fn initialize(
    connection: &mut Connection,
    mut params: Value,
    reply: Responder<InitializeResponse>,
) {
    if let Some(version) = params.get_mut("protocolVersion")
        && (version.is_string() || *version == json!(1.0))
    {
        *version = 1.into();
    }
    let Some((mut client, reply)) = reply.if_ok(read_client_caps(&params)) else { return };
    if connection.remote.is_some() {
        // The client's own terminals may be on another machine. It can draw those of commands that run here.
        client.terminal = false;
    }
    connection.host.set_client(&params, "clientInfo", "clientCapabilities");
    // A second `initialize` is handled like the first; open sessions keep the old capabilities.
    connection.client = Some(client);
    let host = Arc::clone(&connection.host);
    let task = make_offer(host, move |is_configured, modalities| {
        let answer = response(is_configured, modalities, client);
        reply.ok(&answer);
        answer.auth_methods
    });
    connection.offer = later_offer(&connection.host, task);
}

pub(super) fn initialize_v2(connection: &mut Connection, params: Value, reply: Responder<Value>) {
    let version = params.get("protocolVersion").and_then(Value::as_u64);
    if !version.is_some_and(|version| (2..=u64::from(u16::MAX)).contains(&version)) {
        return reply.fail(&refused("`protocolVersion` must be a number from 2 to 65535, as this connection speaks version 2"));
    }
    let info = &params["info"];
    let has_info = info["name"].is_string() && info["version"].is_string();
    // A later version may have another form of it.
    if version == Some(2) && !has_info {
        return reply.fail(&refused("`info` must have a `name` and a `version`"));
    }
    connection.host.set_client(&params, "info", "capabilities");
    let caps = read_v2_client_caps(&params);
    connection.client = Some(caps);
    connection.version = Version::V2;
    let host = Arc::clone(&connection.host);
    let task = make_offer(host, move |is_configured, modalities| {
        let methods = auth_methods(is_configured, caps);
        reply.ok(&response_v2(&methods, modalities));
        methods
    });
    connection.offer = later_offer(&connection.host, task);
}

fn refused(why: &str) -> Error {
    invalid(format!("Invalid parameters for initialize: {why}"))
}

/// The response of version 1 (R-INIT-3, R-INIT-4).
fn response(is_configured: bool, modalities: Modalities, caps: ClientCaps) -> InitializeResponse {
    let prompts = PromptCapabilities::new()
        .embedded_context(true)
        .image(modalities.images)
        .audio(modalities.audio);
    let sessions = SessionCapabilities::new()
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new())
        .list(SessionListCapabilities::new())
        .delete(SessionDeleteCapabilities::new())
        .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
        .fork(SessionForkCapabilities::new())
        .archive(SessionArchiveCapabilities::new())
        .status(SessionStatusCapabilities::new())
        .title(SessionTitleCapabilities::new())
        .options(SessionOptionsCapabilities::new())
        .system_prompt(
            SessionSystemPromptCapabilities::new().mode(
                SessionSystemPromptModeCapabilities::new()
                    .override_(SessionSystemPromptOverrideCapabilities::new()),
            ),
        );
    let capabilities = AgentCapabilities::new()
        .prompt_capabilities(prompts)
        .load_session(true)
        .session_capabilities(sessions)
        // The deprecated SSE transport is not supported (R-MCP-3).
        .mcp_capabilities(McpCapabilities::new().http(true).acp(true))
        .auth(AgentAuthCapabilities::new().status(AuthStatusCapabilities::new()))
        .providers(ProvidersCapabilities::new())
        .meta(advertised_methods(Version::V1));
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(auth_methods(is_configured, caps))
        .meta(advertised_steering())
        .agent_info(
            Implementation::new("turnwright", env!("CARGO_PKG_VERSION"))
                .title("turnwright".to_owned()),
        )
}

/// The response of version 2.
fn response_v2(methods: &[AuthMethod], modalities: Modalities) -> Value {
    let mut prompts = json!({ "embeddedContext": {}, "skill": { "inline": {} } });
    if modalities.images {
        prompts["image"] = json!({});
    }
    if modalities.audio {
        prompts["audio"] = json!({});
    }
    let session = json!({
        "prompt": prompts,
        "mcp": { "stdio": {}, "http": {}, "acp": {} },
        "delete": {},
        "additionalDirectories": {},
        "fork": {},
        "archive": {},
        "status": {},
        "title": {},
        "options": {},
        "systemPrompt": { "mode": { "override": {} } },
    });
    json!({
        "protocolVersion": 2,
        "info": {
            "name": "turnwright", "title": "turnwright", "version": env!("CARGO_PKG_VERSION"),
        },
        "capabilities": { "session": session, "_meta": advertised_methods(Version::V2) },
        "authMethods": methods.iter().filter_map(auth_method_v2).collect::<Vec<_>>(),
        "_meta": advertised_steering(),
    })
}

fn auth_method_v2(offered: &AuthMethod) -> Option<Value> {
    match offered {
        AuthMethod::Agent(method) => Some(json!({
            "type": "agent", "methodId": method.id, "name": method.name, "description": method.description,
        })),
        AuthMethod::Terminal(method) => Some(json!({
            "type": "terminal", "methodId": method.id, "name": method.name,
            "description": method.description, "args": method.args, "env": [],
        })),
        _ => None,
    }
}

/// The `_meta` of the agent's capabilities: the extensions, whose names begin with `_`.
fn advertised_methods(version: Version) -> Map<String, Value> {
    let known = REQUESTS.iter().filter(|route| route.versions.contains(&version));
    let methods: Value =
        known.map(|route| route.name).filter(|name| name.starts_with('_')).collect();
    [("turnwright/methods".to_owned(), methods)].into_iter().collect()
}

/// The `_meta` of the response, in which other agents advertise steering.
fn advertised_steering() -> Map<String, Value> {
    [("steering".to_owned(), json!({ "supported": true }))].into_iter().collect()
}
