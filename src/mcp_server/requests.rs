//! The requests of the client: their versions of the protocol, the running ones, and the answers to the ones
//! that have no effect.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handler::McpHandler;
use super::offered_tools::PAGE_SIZE;
use turnwright_rpc::{
    LineReader, Outbox, Params, ParsedLine, Peer, RequestId, RpcError, RpcMessage,
};
use turnwright_types::text;

/// Maximum size of the parameters of one message.
const MAX_PARAMS_BYTES: usize = 8 * 1024 * 1024;
/// How many requests may run at the same time. Calls have a lower limit of their own.
const MAX_RUNNING: usize = 256;
/// The maximum length of an unsupported version that an error repeats.
const MAX_VERSION_CHARS: usize = 100;
/// The versions of the protocol, oldest first. All but the newest begin with a handshake.
const VERSIONS: [&str; 5] =
    ["2024-11-05", "2025-03-26", "2025-06-18", LAST_HANDSHAKE_VERSION, NEWEST_VERSION];
const LAST_HANDSHAKE_VERSION: &str = "2025-11-25";
const NEWEST_VERSION: &str = "2026-07-28";
/// The `_meta` keys that carry the contents of the handshake in a request without one.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// The error code of a version that is not supported.
const UNSUPPORTED_VERSION: i32 = -32_022;
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
const INSTRUCTIONS: &str = "Tools for the files of a project and for commands. What they may do is decided by the \
     user's settings; a call that is refused says why. Paths may be relative to the first \
     folder. There is no undo.";

/// The answer to a request.
pub(super) type Answer = Result<Value, RpcError>;

pub(super) struct ClientRequest {
    pub(super) params: Value,
    /// The protocol version that it follows.
    pub(super) version: String,
    /// The capabilities that the client has declared.
    pub(super) capabilities: Value,
    /// Cancelled when the client withdraws the request, or at the end.
    pub(super) cancel: CancellationToken,
}

impl ClientRequest {
    /// True if the answer to a question comes with another request.
    pub(super) fn is_of_newest_version(&self) -> bool {
        self.version.as_str() >= NEWEST_VERSION
    }
}

/// Tells whether the client has introduced itself.
#[derive(Clone, Debug, PartialEq)]
enum HandshakeState {
    Pending,
    Done {
        version: String,
        capabilities: Value,
    },
    /// With a request that says by itself what a handshake would say.
    NotNeeded,
}

/// Reads and answers the requests of the client.
pub(super) struct RequestLoop {
    handler: Arc<McpHandler>,
    outbox: Outbox,
    peer: Peer,
    handshake: HandshakeState,
    running: RequestTable,
    /// The work of requests, and other work, which ends with `None`.
    tasks: JoinSet<Option<EndedRequest>>,
}

/// A request with its number and its answer, if it has one.
type EndedRequest = (RequestId, u64, Result<Option<Value>, RpcError>);

/// The requests without an answer.
#[derive(Default)]
struct RequestTable {
    /// The number of the last request, because a client may use the id of a withdrawn one again.
    last_number: u64,
    by_id: HashMap<RequestId, (u64, CancellationToken)>,
}

impl RequestTable {
    /// Adds a request. Returns its number, with which it is removed at its end.
    fn add(&mut self, id: &RequestId, cancel: CancellationToken) -> Result<u64, RpcError> {
        if self.by_id.len() >= MAX_RUNNING {
            return Err(RpcError::internal_error("too many requests are running".to_owned()));
        }
        if self.by_id.contains_key(id) {
            return Err(RpcError::invalid_request("a request with this id is running"));
        }
        self.last_number += 1;
        self.by_id.insert(id.clone(), (self.last_number, cancel));
        Ok(self.last_number)
    }

    /// Cancels a request that the client has withdrawn. It is not answered.
    fn withdraw(&mut self, id: &RequestId) {
        if let Some((_, cancel)) = self.by_id.remove(id) {
            cancel.cancel();
        }
    }

    /// Removes a request that has ended. Returns false if it was withdrawn, even if another one has its id now.
    fn finish(&mut self, id: &RequestId, number: u64) -> bool {
        let is_awaited = self.by_id.get(id).is_some_and(|(latest, _)| *latest == number);
        if is_awaited {
            self.by_id.remove(id);
        }
        is_awaited
    }
}

impl RequestLoop {
    pub(super) fn new(handler: Arc<McpHandler>, outbox: Outbox, peer: Peer) -> RequestLoop {
        RequestLoop {
            handler,
            outbox,
            peer,
            handshake: HandshakeState::Pending,
            running: RequestTable::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until the end of the input or until `stop` is cancelled, and then until the running requests have
    /// ended, which `stop` cancels.
    pub(super) async fn run(mut self, mut input: LineReader, stop: CancellationToken) {
        loop {
            let line = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                Some(ended) = self.tasks.join_next() => {
                    self.on_end(ended.ok().flatten());
                    continue;
                }
                line = next_line(&mut input, &self.outbox) => line,
            };
            match line {
                Some(ParsedLine::Message(message)) => self.handle(message, &stop),
                Some(ParsedLine::Rejected { id, error }) => {
                    self.outbox.respond::<()>(&id, Err(&error));
                }
                Some(ParsedLine::Ignored) => {}
                None => break,
            }
        }
        stop.cancel();
        self.peer.fail_all();
        while let Some(ended) = self.tasks.join_next().await {
            self.on_end(ended.ok().flatten());
        }
    }

    /// Answers a request that has ended, unless it was withdrawn.
    fn on_end(&mut self, ended: Option<EndedRequest>) {
        if let Some((id, number, answer)) = ended
            && self.running.finish(&id, number)
        {
            self.respond(&id, answer);
        }
    }

    fn respond(&self, id: &RequestId, answer: Result<Option<Value>, RpcError>) {
        match answer {
            Ok(Some(result)) => self.outbox.respond(id, Ok(&result)),
            Ok(None) => {}
            Err(error) => self.outbox.respond::<()>(id, Err(&error)),
        }
    }

    fn handle(&mut self, message: RpcMessage, stop: &CancellationToken) {
        match message {
            RpcMessage::Response { id, result } => self.peer.complete(&id, result),
            RpcMessage::Notification { method, params } => {
                // Only requests have a meaning before the handshake.
                if self.handshake != HandshakeState::Pending {
                    self.handle_notification(&method, &params);
                }
            }
            RpcMessage::Request { id, .. } if id == RequestId::null() => {
                let error = RpcError::invalid_request("an id must be a string or a number");
                self.outbox.respond::<()>(&id, Err(&error));
            }
            RpcMessage::Request { id, method, params } => {
                let started =
                    read_params(&params).and_then(|params| self.start(&id, &method, params, stop));
                self.respond(&id, started);
            }
        }
    }

    fn handle_notification(&mut self, method: &str, params: &Params) {
        match method {
            "notifications/cancelled" => {
                if let Some(id) = params.withdrawn_request() {
                    self.running.withdraw(&id);
                }
            }
            "notifications/roots/list_changed" => {
                let handler = Arc::clone(&self.handler);
                self.tasks.spawn(async move {
                    handler.forget_roots().await;
                    None
                });
            }
            _ => {}
        }
    }

    /// Starts a request. Returns the answer if there is one already.
    fn start(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Map<String, Value>,
        stop: &CancellationToken,
    ) -> Result<Option<Value>, RpcError> {
        if method == "initialize" {
            return self.initialize(&params).map(Some);
        }
        if method == "ping" && self.handshake == HandshakeState::Pending {
            return Ok(Some(json!({})));
        }
        let meta = params.get("_meta").cloned().unwrap_or_default();
        let (version, capabilities, has_handshake) = self.request_context(method, &meta)?;
        let request = ClientRequest {
            params: Value::Object(params),
            version,
            capabilities,
            cancel: stop.child_token(),
        };
        let is_new = request.is_of_newest_version();
        match method {
            "server/discover" => Ok(Some(discover_result())),
            "ping" if has_handshake => Ok(Some(json!({}))),
            "tools/list" => {
                let cursor = &request.params["cursor"];
                if !cursor.is_null() && !cursor.is_string() {
                    return Err(RpcError::invalid_params("A cursor is a string"));
                }
                let page = self.handler.tools.page(cursor.as_str(), PAGE_SIZE)?;
                Ok(Some(if is_new { mark_cacheable(page) } else { page }))
            }
            "tools/call" => {
                let handler = Arc::clone(&self.handler);
                let peer = self.peer.clone();
                self.spawn(id, request.cancel.clone(), async move {
                    let result = handler.call_tool(request, peer).await?;
                    Ok(Some(if is_new { mark_complete(result) } else { result }))
                })
            }
            "subscriptions/listen" if !has_handshake => {
                let requested = &request.params["notifications"]["toolsListChanged"];
                let accepted =
                    if requested == true { json!({ "toolsListChanged": true }) } else { json!({}) };
                let meta = json!({ SUBSCRIPTION_KEY: id });
                let acknowledged = json!({ "notifications": accepted, "_meta": meta });
                self.outbox.notify("notifications/subscriptions/acknowledged", &acknowledged);
                let cancel = request.cancel.clone();
                // The tools never change, so there are no notifications.
                self.spawn(id, request.cancel, async move {
                    cancel.cancelled().await;
                    Ok(None)
                })
            }
            method => Err(RpcError::method_not_found(method)),
        }
    }

    /// Runs a request in a task.
    fn spawn(
        &mut self,
        id: &RequestId,
        cancel: CancellationToken,
        work: impl Future<Output = Result<Option<Value>, RpcError>> + Send + 'static,
    ) -> Result<Option<Value>, RpcError> {
        let number = self.running.add(id, cancel)?;
        let id = id.clone();
        self.tasks.spawn(async move { Some((id, number, work.await)) });
        Ok(None)
    }

    fn initialize(&mut self, params: &Map<String, Value>) -> Answer {
        let requested = params
            .get("protocolVersion")
            .and_then(Value::as_str)
            .ok_or_else(|| RpcError::invalid_params("`protocolVersion` must be a string"))?;
        let is_known = VERSIONS.contains(&requested) && requested < NEWEST_VERSION;
        let version = if is_known { requested } else { LAST_HANDSHAKE_VERSION }.to_owned();
        let capabilities = params.get("capabilities").cloned().unwrap_or_default();
        self.handler.set_client_capabilities(&capabilities);
        let result = json!({
            "protocolVersion": version,
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        });
        self.handshake = HandshakeState::Done { version, capabilities };
        Ok(result)
    }

    /// The version of a request, the capabilities of its client, and whether it relies on the handshake.
    fn request_context(
        &mut self,
        method: &str,
        meta: &Value,
    ) -> Result<(String, Value, bool), RpcError> {
        let stated = meta[VERSION_KEY].as_str();
        if let Some(stated) = stated.filter(|version| !VERSIONS.contains(version)) {
            let requested = text::clip(stated, MAX_VERSION_CHARS);
            let versions = json!({ "requested": requested, "supported": VERSIONS });
            let message = "Unsupported protocol version".to_owned();
            return Err(RpcError::application(UNSUPPORTED_VERSION, message, versions));
        }
        let is_self_contained = method == "server/discover"
            || !matches!(self.handshake, HandshakeState::Done { .. })
            || stated.is_some_and(|version| version >= NEWEST_VERSION);
        match (&self.handshake, stated) {
            (HandshakeState::Done { version, capabilities }, _) if !is_self_contained => {
                let version = stated.unwrap_or(version).to_owned();
                let stated =
                    meta.get(CAPABILITIES_KEY).filter(|capabilities| capabilities.is_object());
                Ok((version, stated.unwrap_or(capabilities).clone(), true))
            }
            (handshake, Some(stated)) if meta[CAPABILITIES_KEY].is_object() => {
                if *handshake == HandshakeState::Pending && method != "server/discover" {
                    self.handshake = HandshakeState::NotNeeded;
                }
                Ok((stated.to_owned(), meta[CAPABILITIES_KEY].clone(), false))
            }
            _ => Err(RpcError::invalid_params(&format!(
                "Without a handshake, `_meta` must have `{VERSION_KEY}` and `{CAPABILITIES_KEY}`"
            ))),
        }
    }
}

/// Reads the next line. No more requests are read from a client that does not read the responses.
async fn next_line(input: &mut LineReader, outbox: &Outbox) -> Option<ParsedLine> {
    tokio::select! {
        biased;
        () = outbox.wait_for_read_capacity() => {}
        () = input.ended() => return None,
    }
    input.next().await
}

fn read_params(params: &Params) -> Result<Map<String, Value>, RpcError> {
    if params.text().len() > MAX_PARAMS_BYTES {
        return Err(RpcError::invalid_request("the parameters may have at most 8 MiB"));
    }
    params.read().map_err(|error| RpcError::invalid_params(&format!("Invalid parameters: {error}")))
}

fn server_info() -> Value {
    json!({ "name": "turnwright", "version": env!("CARGO_PKG_VERSION") })
}

fn discover_result() -> Value {
    mark_cacheable(json!({
        "supportedVersions": VERSIONS,
        "capabilities": { "tools": { "listChanged": true } },
        "instructions": INSTRUCTIONS,
        "_meta": { SERVER_INFO_KEY: server_info() },
    }))
}

/// Marks a result as complete, as the newest version does, unless it has a type already.
fn mark_complete(mut result: Value) -> Value {
    if result.get("resultType").is_none() {
        result["resultType"] = "complete".into();
    }
    result
}

/// Marks a result that a client may keep, but must ask for again.
fn mark_cacheable(result: Value) -> Value {
    let mut result = mark_complete(result);
    result["ttlMs"] = 0.into();
    result["cacheScope"] = "private".into();
    result
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn a_withdrawn_request_does_not_end_the_next_one_with_its_id() {
        let mut running = RequestTable::default();
        let id = RequestId::parse(&RawValue::from_string("7".to_owned()).unwrap()).unwrap();
        let first = CancellationToken::new();
        let first_number = running.add(&id, first.clone()).unwrap();
        assert!(running.add(&id, CancellationToken::new()).is_err());
        running.withdraw(&id);
        assert!(first.is_cancelled());
        let second = CancellationToken::new();
        let second_number = running.add(&id, second.clone()).unwrap();
        assert!(!running.finish(&id, first_number) && !second.is_cancelled());
        assert!(running.finish(&id, second_number));
        running.withdraw(&id);
        assert!(!second.is_cancelled());
    }
}
