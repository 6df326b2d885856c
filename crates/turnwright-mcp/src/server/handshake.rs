//! How a connection begins: with a handshake, `initialize`, which every version of the protocol until
//! 2025-11-25 has, or with `server/discover` of the newest version, which has none.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::server_requests::ServerMessageHandler;
use crate::features::JsonObject;
use crate::transport::{Channel, Peer, PeerError, Response};
use turnwright_rpc::RpcError;

/// The version that a handshake proposes.
const HANDSHAKE_VERSION: &str = "2025-11-25";
/// The version without a handshake.
pub(crate) const NEWEST_VERSION: &str = "2026-07-28";
const KNOWN_VERSIONS: [&str; 5] =
    ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE_VERSION, NEWEST_VERSION];
/// The error code of a server that does not know the version.
const UNSUPPORTED_VERSION: i32 = -32022;
/// The error codes of a server that may not understand a request: not JSON, no valid request, wrong parameters, or an
/// internal error.
const UNREADABLE: [i32; 4] = [-32700, -32600, -32602, -32603];
/// The beginning of the error if the HTTP server itself refuses a request, without an answer in the protocol.
const BAD_REQUEST: &str = "HTTP 400";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The extension with which a server may answer a call with a task.
const TASKS: &str = "io.modelcontextprotocol/tasks";
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// A server's description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerInfo {
    /// The protocol version of the connection.
    pub(crate) version: String,
    /// The server's name and its own version.
    pub(crate) title: String,
    capabilities: Value,
}

impl ServerInfo {
    fn new(version: String, about: &Value, capabilities: Value) -> ServerInfo {
        let name = about["name"].as_str().unwrap_or_default();
        let revision = about["version"].as_str().unwrap_or_default();
        let title = format!("{name} {revision}").trim().to_owned();
        ServerInfo { version, title, capabilities }
    }

    /// True if the protocol version has a handshake. Without one, each request carries its contents.
    pub(crate) fn has_handshake(&self) -> bool {
        self.version.as_str() < NEWEST_VERSION
    }

    pub(crate) fn has_known_version(&self) -> bool {
        KNOWN_VERSIONS.contains(&self.version.as_str())
    }

    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities[capability].is_object()
    }

    /// True if the server may turn calls into tasks. The versions with a handshake do not have this extension.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.has_handshake() && self.has_extension(TASKS)
    }

    pub(crate) fn has_extension(&self, name: &str) -> bool {
        self.capabilities["extensions"][name].is_object()
    }

    /// True if the server announces changes of its tools.
    pub(crate) fn announces_tools(&self) -> bool {
        self.capabilities["tools"]["listChanged"] == true
    }

    /// True if the server announces changes of the resources that a client subscribes to.
    pub(crate) fn announces_resources(&self) -> bool {
        self.capabilities["resources"]["subscribe"] == true
    }
}

/// Why a connection did not begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// The server refuses this way to begin, or the connection has ended or cannot be used.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// It knows only these versions of the protocol.
    #[error("it knows only other versions of the protocol")]
    UnsupportedVersion(Vec<String>),
    /// The answer is none of this protocol.
    #[error("the result of `{0}` is malformed")]
    Malformed(&'static str),
}

fn capabilities(handler: &ServerMessageHandler) -> Value {
    match (handler.elicitation.form, handler.elicitation.url) {
        // The address of a page is shown in a form if there is no better way.
        (true, _) => json!({ "roots": {}, "elicitation": { "form": {}, "url": {} } }),
        (false, true) => json!({ "roots": {}, "elicitation": { "url": {} } }),
        (false, false) => json!({ "roots": {} }),
    }
}

fn client_info() -> Value {
    json!({ "name": "turnwright", "version": env!("CARGO_PKG_VERSION") })
}

/// The `_meta` fields of each request if there was no handshake. With `has_tasks`, the server may answer with a
/// task.
pub(crate) fn client_context(handler: &ServerMessageHandler, has_tasks: bool) -> JsonObject {
    let mut capabilities = capabilities(handler);
    if has_tasks {
        capabilities["extensions"] = json!({ TASKS: {} });
    }
    JsonObject::from_iter([
        (VERSION_KEY.to_owned(), NEWEST_VERSION.into()),
        ("io.modelcontextprotocol/clientInfo".to_owned(), client_info()),
        ("io.modelcontextprotocol/clientCapabilities".to_owned(), capabilities),
    ])
}

/// Begins with the handshake. A server that refuses the proposed version, although it should answer with its own,
/// is asked once more with the newest that it names. A server that seems unable to read the request is asked without
/// the capabilities that older libraries do not know.
pub(crate) async fn initialize(peer: &Peer) -> Result<(), HandshakeError> {
    let capabilities = capabilities(peer.handler());
    let result = match propose(peer, HANDSHAKE_VERSION, &capabilities).await {
        Err(error) => match named_version(&error) {
            Some(version) => propose(peer, version, &capabilities).await?,
            None if capabilities != json!({ "roots": {} }) && is_unreadable(&error) => {
                propose(peer, HANDSHAKE_VERSION, &json!({ "roots": {} })).await?
            }
            None => return Err(error.into()),
        },
        result => result?,
    };
    let info = initialize_result(&result).ok_or(HandshakeError::Malformed("initialize"))?;
    peer.set_info(info);
    peer.notify("notifications/initialized").await;
    Ok(())
}

/// Returns true if the server may have refused the request because it cannot read it.
fn is_unreadable(error: &PeerError) -> bool {
    match error {
        PeerError::ErrorResponse(error) => UNREADABLE.contains(&error.code),
        PeerError::Transport(why) => why.starts_with(BAD_REQUEST),
        _ => false,
    }
}

async fn propose(peer: &Peer, version: &str, capabilities: &Value) -> Response {
    let params = JsonObject::from_iter([
        ("protocolVersion".to_owned(), version.into()),
        ("capabilities".to_owned(), capabilities.clone()),
        ("clientInfo".to_owned(), client_info()),
    ]);
    match peer.channel() {
        Channel::Http(http) => http.initialize(&params).await,
        Channel::Pipes(_) | Channel::Link(_) => peer.start("initialize", params).response().await,
    }
}

/// The newest version with a handshake, other than the proposed one, that a refusal names.
fn named_version(error: &PeerError) -> Option<&'static str> {
    let (words, theirs) = match error {
        PeerError::ErrorResponse(error) => (&error.message, supported_versions(error)),
        PeerError::Transport(why) if why.starts_with(BAD_REQUEST) => (why, Vec::new()),
        _ => return None,
    };
    let older = KNOWN_VERSIONS.into_iter().filter(|version| *version < HANDSHAKE_VERSION);
    older
        .rev()
        .find(|&version| words.contains(version) || theirs.iter().any(|named| named == version))
}

/// Reads the result of `initialize`.
pub(crate) fn initialize_result(result: &RawValue) -> Option<ServerInfo> {
    let mut result: Value = serde_json::from_str(result.get()).ok()?;
    let version = result["protocolVersion"].as_str()?.to_owned();
    let capabilities = result.get_mut("capabilities").map(Value::take).unwrap_or_default();
    Some(ServerInfo::new(version, &result["serverInfo"], capabilities))
}

/// Begins without a handshake.
pub(crate) async fn discover(peer: &Peer) -> Result<(), HandshakeError> {
    let mut attempts = 0;
    let result = loop {
        attempts += 1;
        match peer.start("server/discover", JsonObject::new()).response().await {
            Err(PeerError::ErrorResponse(error)) if error.code == UNSUPPORTED_VERSION => {
                let theirs = supported_versions(&error);
                if attempts > 1 || !theirs.iter().any(|version| version == NEWEST_VERSION) {
                    return Err(HandshakeError::UnsupportedVersion(theirs));
                }
            }
            result => break result?,
        }
    };
    let malformed = HandshakeError::Malformed("server/discover");
    let Ok(mut result) = serde_json::from_str::<Value>(result.get()) else { return Err(malformed) };
    let Some(versions) = result["supportedVersions"].as_array() else { return Err(malformed) };
    if !versions.iter().any(|version| version == NEWEST_VERSION) {
        return Err(HandshakeError::UnsupportedVersion(texts(versions)));
    }
    let capabilities = result.get_mut("capabilities").map(Value::take).unwrap_or_default();
    let about = &result["_meta"][SERVER_INFO_KEY];
    peer.set_info(ServerInfo::new(NEWEST_VERSION.to_owned(), about, capabilities));
    Ok(())
}

fn supported_versions(error: &RpcError) -> Vec<String> {
    let versions = error.data.as_ref().and_then(|data| data["supported"].as_array());
    versions.map(|list| texts(list)).unwrap_or_default()
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
