//! Our end of a connection to an MCP server: sends requests, matches responses to them, and passes the server's
//! requests and notifications to its handler. The modules below transport the messages: through the pipes of a
//! process, over HTTP, or through a link to a server that runs inside the session's client.

mod followed;
pub(crate) mod http;
mod line;
pub(crate) mod link;
pub(crate) mod process;
pub(crate) mod program_setup;
mod result_cache;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::server_requests::ServerMessageHandler;
use crate::call::{Progress, read_progress};
use crate::features::JsonObject;
use crate::server::handshake::{self, ServerInfo};
use http::channel::HttpChannel;
use link::LinkChannel;
use result_cache::{ResultCache, time_to_live};
use turnwright_rpc::{
    MAX_PENDING_REQUESTS, Outbox, Params, ParsedLine, PendingRequests, RequestError, RequestId,
    RpcError, RpcMessage, RpcResponse, parse_line,
};

/// How many questions of a server may wait for the user. Another one is declined.
const MAX_WAITING_QUESTIONS: usize = 16;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// The server answered with an error.
    #[error(
        "error {}: {}{}",
        .0.code,
        .0.message,
        .0.data.as_ref().map(|data| format!(" ({data})")).unwrap_or_default()
    )]
    ErrorResponse(RpcError),
    /// The connection has ended.
    #[error("the connection was closed")]
    Closed,
    /// The server rejected the request without executing it.
    #[error("{0}")]
    Rejected(String),
    /// The request or its response could not be transferred.
    #[error("{0}")]
    Transport(String),
    /// The result does not have the form that the method requires.
    #[error("the result is malformed")]
    Malformed,
}

pub(super) type Response = Result<Box<RawValue>, PeerError>;

/// The transport of the messages.
#[derive(Debug)]
pub(super) enum Channel {
    Pipes(Outbox),
    Http(Arc<HttpChannel>),
    Link(LinkChannel),
}

/// The client's end of a connection. Cheap to clone.
#[derive(Clone)]
pub struct Peer(Arc<PeerInner>);

struct PeerInner {
    channel: Channel,
    handler: ServerMessageHandler,
    /// The requests that wait for a response.
    pending: PendingRequests,
    // Held only for one map operation.
    open: Mutex<OpenExchanges>,
    info: OnceLock<ServerInfo>,
    /// Background work that no request waits for. All of it ends soon after the connection.
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// The exchanges that notifications of the server may refer to while they are running.
#[derive(Default)]
struct OpenExchanges {
    /// The server's questions that are waiting for the user.
    questions: HashMap<RequestId, CancellationToken>,
    /// The running calls by their progress tokens. Only the latest progress of each is kept.
    progress: HashMap<u64, watch::Sender<Progress>>,
    /// The resources that are followed, by their URIs, and whether they have changed.
    resources: HashMap<String, watch::Sender<bool>>,
    /// The results that a notification may make outdated.
    results: ResultCache,
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Peer")
    }
}

impl Peer {
    pub(super) fn new(channel: Channel, handler: ServerMessageHandler) -> Peer {
        let limit = match &channel {
            Channel::Link(_) => link::MAX_RUNNING,
            Channel::Pipes(_) | Channel::Http(_) => MAX_PENDING_REQUESTS,
        };
        Peer(Arc::new(PeerInner {
            channel,
            handler,
            pending: PendingRequests::new(1, limit),
            open: Mutex::default(),
            info: OnceLock::new(),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        }))
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.0.channel
    }

    pub(super) fn handler(&self) -> &ServerMessageHandler {
        &self.0.handler
    }

    /// The server's description of itself, once it has sent one.
    pub(super) fn info(&self) -> Option<&ServerInfo> {
        self.0.info.get()
    }

    /// Stores the server's description of itself. Only the first one counts.
    pub(super) fn set_info(&self, info: ServerInfo) {
        self.0.info.set(info).ok();
    }

    /// Fails all pending and later requests, and withdraws the server's questions.
    pub(super) fn close(&self) {
        // First, so that whoever waits for a request knows why it has failed.
        self.0.ended.cancel();
        self.0.pending.fail_all();
        if let Channel::Pipes(outbox) = &self.0.channel {
            outbox.stop_accepting();
        }
    }

    /// Background work that no request waits for.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Waits until the background work has ended. To be called after the end of the connection.
    pub(super) async fn tasks_ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Waits for the end of the connection.
    pub(super) async fn closed(&self) {
        self.0.ended.cancelled().await;
    }

    /// Waits while too many sent messages have not been read by the server.
    pub(super) async fn wait_for_capacity(&self) {
        if let Channel::Pipes(outbox) = &self.0.channel {
            outbox.wait_for_capacity().await;
        }
    }

    /// Sends a request and waits for its result. A list or resource that is still fresh is not asked for again.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: JsonObject,
    ) -> Result<T, PeerError> {
        let can_keep = method.ends_with("/list") || method == "resources/read";
        let login = match &self.0.channel {
            Channel::Http(http) if can_keep => http.login_changed_at().await,
            _ => None,
        };
        let key = (method, Value::Object(params.clone()).to_string(), login);
        let (kept, version) = self.0.open.lock().results.find(&key);
        let result = match kept {
            Some(result) => result,
            None => {
                let result = self.start(method, params).response().await?;
                if can_keep && let Some(ttl) = time_to_live(result.get()) {
                    self.0.open.lock().results.keep(key, version, ttl, &result);
                }
                result
            }
        };
        serde_json::from_str(result.get()).map_err(|_| PeerError::Malformed)
    }

    /// Forgets the results of all methods that begin like this, because they may be outdated.
    pub(super) fn forget_results(&self, prefix: &str) {
        self.0.open.lock().results.forget(prefix);
    }

    /// Starts a request. It is sent now, or when its response is first waited for.
    pub(super) fn start(&self, method: &'static str, mut params: JsonObject) -> RunningRequest {
        let id = self.0.pending.next_id();
        tracing::trace!(id, method, "a request to a server");
        let mut meta = JsonObject::new();
        if method != "initialize" {
            meta.insert("progressToken".to_owned(), id.into());
        }
        if self.info().is_some_and(|info| !info.has_handshake()) || method == "server/discover" {
            let is_about_call = method == "tools/call" || method.starts_with("tasks/");
            let has_tasks = is_about_call && self.info().is_some_and(ServerInfo::has_tasks);
            meta.extend(handshake::client_context(self.handler(), has_tasks));
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        let response = self.send(id, method, params);
        // An abandoned handshake ends the connection, and must not be withdrawn.
        let is_withdrawable = !matches!(method, "initialize" | "server/discover");
        RunningRequest { peer: self.clone(), id, response, is_withdrawable }
    }

    fn send(
        &self,
        id: u64,
        method: &'static str,
        params: JsonObject,
    ) -> BoxFuture<'static, Response> {
        let mut receiver = match self.0.pending.register(id, None) {
            Ok(receiver) => receiver,
            Err(error) => {
                let refusal = match error {
                    RequestError::ConnectionClosed => PeerError::Closed,
                    error => PeerError::ErrorResponse(RpcError::internal_error(error.to_string())),
                };
                return Box::pin(std::future::ready(Err(refusal)));
            }
        };
        match &self.0.channel {
            Channel::Http(http) => {
                let exchange = Arc::clone(http).exchange(self.clone(), id, method, params);
                Box::pin(async move {
                    tokio::select! {
                        biased;
                        received = &mut receiver => to_response(received),
                        ended = exchange => match receiver.try_recv() {
                            // The exchange itself has brought the response.
                            Ok(response) => response.map_err(PeerError::ErrorResponse),
                            Err(_) => Err(ended.err().unwrap_or(PeerError::Closed)),
                        },
                    }
                })
            }
            Channel::Pipes(outbox) => {
                outbox.request(id, method, &params);
                Box::pin(async { to_response(receiver.await) })
            }
            Channel::Link(link) => Box::pin(link.clone().exchange(self.clone(), method, params)),
        }
    }

    /// Sends a notification without parameters.
    pub(super) async fn notify(&self, method: &'static str) {
        match &self.0.channel {
            Channel::Pipes(outbox) => outbox.send(&json!({ "jsonrpc": "2.0", "method": method })),
            Channel::Http(http) => http.notify(method).await,
            Channel::Link(_) => {}
        }
    }

    /// Tells the server that a request was given up.
    fn announce_withdrawal(&self, id: u64, why: &str) {
        let params = json!({ "requestId": id, "reason": why });
        match &self.0.channel {
            Channel::Pipes(outbox) => outbox.notify("notifications/cancelled", &params),
            // Without a handshake, the server notices that the request's stream is closed.
            Channel::Http(http) if self.info().is_none_or(ServerInfo::has_handshake) => {
                http.try_send("notifications/cancelled", &params);
            }
            Channel::Http(_) | Channel::Link(_) => {}
        }
    }

    /// Handles a message from the server.
    pub(super) async fn receive(&self, line: &[u8]) {
        match parse_line(line) {
            ParsedLine::Message(RpcMessage::Response { id, result }) => match id.as_u64() {
                Some(id) => self.0.pending.complete(id, result),
                None => tracing::debug!(%id, "a response with an unknown id"),
            },
            ParsedLine::Message(RpcMessage::Request { id, method, params }) => {
                self.handle_request(id, &method, params.read().unwrap_or_default()).await;
            }
            ParsedLine::Message(RpcMessage::Notification { method, params }) => {
                if &*method == "notifications/cancelled" {
                    self.withdraw_question(&params);
                } else {
                    self.handle_notification(&method, &params.read().unwrap_or_default());
                }
            }
            ParsedLine::Rejected { id, error } if id != RequestId::null() => {
                self.respond(&id, Err(&error)).await;
            }
            ParsedLine::Rejected { .. } | ParsedLine::Ignored => {
                tracing::debug!("a server sent something that is not a message");
            }
        }
    }

    pub(super) fn handle_notification(&self, method: &str, params: &Value) {
        if method != "notifications/progress" {
            let name = method.strip_prefix("notifications/").unwrap_or_default();
            // Tools, prompts or resources have changed.
            if let Some((kind, _)) = name.split_once('/') {
                self.forget_results(&format!("{kind}/"));
            }
            if name == "resources/updated" {
                self.mark_changed(params["uri"].as_str().unwrap_or_default());
            }
            return self.0.handler.notify(method, params);
        }
        let Some((token, progress)) = read_progress(params) else { return };
        if let Some(sender) = self.0.open.lock().progress.get(&token) {
            sender.send_if_modified(|known| {
                let is_new = progress.0 >= known.0;
                if is_new {
                    *known = progress;
                }
                is_new
            });
        }
    }

    /// Cancels the question that a notification names. The id stays in use until the question is answered.
    fn withdraw_question(&self, params: &Params) {
        let id = params.withdrawn_request();
        if let Some(question) = id.and_then(|id| self.0.open.lock().questions.get(&id).cloned()) {
            question.cancel();
        }
    }

    async fn handle_request(&self, id: RequestId, method: &str, params: Value) {
        tracing::debug!(%id, method, "a request of a server");
        // Without a handshake, a server may only send requests while one of ours is pending.
        let has_no_handshake = self.info().is_some_and(|info| !info.has_handshake());
        if has_no_handshake && self.0.pending.is_empty() && method != "ping" {
            let why = "A request of the server must belong to one of the client";
            return self.respond(&id, Err(&RpcError::invalid_params(why))).await;
        }
        if method != "elicitation/create" {
            return self.respond(&id, self.0.handler.answer(method).as_ref()).await;
        }
        let withdrawn = self.0.ended.child_token();
        let is_asked = {
            let questions = &mut self.0.open.lock().questions;
            // Of two questions with the same id, only one could be withdrawn.
            let has_room = questions.len() < MAX_WAITING_QUESTIONS && !questions.contains_key(&id);
            has_room && questions.insert(id.clone(), withdrawn.clone()).is_none()
        };
        if !is_asked {
            return self.respond(&id, Ok(&json!({ "action": "cancel" }))).await;
        }
        let peer = self.clone();
        self.0.tasks.spawn(async move {
            let asking = peer.0.handler.answer_from_user(params);
            let answer = withdrawn.run_until_cancelled(asking).await;
            peer.0.open.lock().questions.remove(&id);
            let answer = answer.unwrap_or_else(|| json!({ "action": "cancel" }));
            peer.respond(&id, Ok(&answer)).await;
        });
    }

    async fn respond(&self, id: &RequestId, result: Result<&Value, &RpcError>) {
        match &self.0.channel {
            Channel::Pipes(outbox) => outbox.respond(id, result),
            Channel::Http(http) => http.respond(id, result).await,
            // A server behind a link sends no requests.
            Channel::Link(_) => {}
        }
    }
}

fn to_response(received: Result<RpcResponse, RecvError>) -> Response {
    received.map_err(|_| PeerError::Closed)?.map_err(PeerError::ErrorResponse)
}

/// A request that was started. It is withdrawn when this is dropped.
pub(super) struct RunningRequest {
    peer: Peer,
    id: u64,
    response: BoxFuture<'static, Response>,
    is_withdrawable: bool,
}

impl RunningRequest {
    /// Returns the progress of this request, as long as it is running.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        let (sender, latest) = watch::channel(Progress::default());
        self.peer.0.open.lock().progress.insert(self.id, sender);
        latest
    }

    /// Waits for the response. Cancel safe. Must not be called again after it has returned.
    pub(super) async fn response(&mut self) -> Response {
        (&mut self.response).await
    }

    /// Withdraws the request, with a reason for the server's log.
    pub(super) fn give_up(&self, why: &str) {
        if self.peer.0.pending.give_up(self.id) && self.is_withdrawable {
            self.peer.announce_withdrawal(self.id, why);
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.peer.0.open.lock().progress.remove(&self.id);
        self.give_up("the request was given up");
    }
}
