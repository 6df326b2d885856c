//! Initialization and authentication in version 2.

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{InitializeV2, LogIn, LogOut};
use crate::acp::capabilities::{auth_methods, read_v2_client_caps};
use crate::acp::connection::Connection;
use crate::acp::extensions;
use crate::acp::offer;
use crate::acp::responder::Responder;
use crate::acp::versions::Version;
use crate::acp::wire::schema::AuthMethod;
use crate::error::Error;
use crate::session::Modalities;
use turnwright_rpc::RequestId;

#[expect(clippy::needless_pass_by_value, reason = "every handler gets its parameters by value")]
pub(super) fn initialize(
    connection: &mut Connection,
    _: &RequestId,
    params: Value,
    reply: Responder<InitializeV2>,
) {
    let refused =
        |why: &str| Error::InvalidParams(format!("Invalid parameters for initialize: {why}"));
    let version = params.get("protocolVersion").and_then(Value::as_u64);
    if !version.is_some_and(|version| (2..=u64::from(u16::MAX)).contains(&version)) {
        return reply.fail(&refused("`protocolVersion` must be a number from 2 to 65535, as this connection speaks version 2"));
    }
    let info = &params["info"];
    let (Some(name), Some(_)) = (info["name"].as_str(), info["version"].as_str()) else {
        return reply.fail(&refused("`info` must have a `name` and a `version`"));
    };
    connection.host.store().set_client_name(info["title"].as_str().unwrap_or(name));
    connection.host.set_client(&params, "info", "capabilities");
    let caps = read_v2_client_caps(&params);
    connection.client = Some(caps);
    connection.version = Version::V2;
    let task = offer::make(&connection.host, move |is_configured, modalities| {
        let methods = auth_methods(is_configured, caps);
        reply.ok(&response(&methods, modalities));
        methods
    });
    connection.offer = offer::later(&connection.host, task);
}

fn response(methods: &[AuthMethod], modalities: Modalities) -> Value {
    let mut prompts = json!({ "embeddedContext": {} });
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
        "systemPrompt": { "mode": { "override": {} } },
    });
    json!({
        "protocolVersion": 2,
        "info": {
            "name": "turnwright", "title": "turnwright", "version": env!("CARGO_PKG_VERSION"),
        },
        "capabilities": { "session": session, "_meta": extensions::advertised_methods() },
        "authMethods": methods.iter().filter_map(auth_method).collect::<Vec<_>>(),
        "_meta": extensions::advertised_steering(),
    })
}

fn auth_method(method: &AuthMethod) -> Option<Value> {
    match method {
        AuthMethod::Agent(it) => Some(json!({
            "type": "agent", "methodId": it.id, "name": it.name, "description": it.description,
        })),
        AuthMethod::Terminal(it) => Some(json!({
            "type": "terminal", "methodId": it.id, "name": it.name,
            "description": it.description, "args": it.args, "env": [],
        })),
        _ => None,
    }
}

/// The parameters of `auth/login`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginRequest {
    method_id: String,
}

pub(super) fn log_in(
    connection: &mut Connection,
    _: &RequestId,
    LoginRequest { method_id }: LoginRequest,
    reply: Responder<LogIn>,
) {
    let host = &connection.host;
    let offer = connection.offer.clone();
    let task = offer::authenticate(host, None, offer, method_id, reply.done(|()| json!({})));
    // A session that is opened next finds the method in effect.
    connection.offer = offer::later(host, task);
}

/// Stored keys stay: they belong to the user and not to this client.
pub(super) fn log_out(
    connection: &mut Connection,
    _: &RequestId,
    _: Value,
    reply: Responder<LogOut>,
) {
    let host = connection.host.clone();
    let offer = connection.offer.clone();
    // A login that was requested before is finished first.
    let task = async move {
        let offer = offer.await;
        host.log_out();
        reply.ok(&json!({}));
        offer
    };
    connection.offer = offer::later(&connection.host, task);
}
