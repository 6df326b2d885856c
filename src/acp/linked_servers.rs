//! MCP servers that run within the client (MCP over ACP, unstable): each request to one of them is a request
//! of the connection, `mcp/message`, and a notification names the request that it belongs to (R-MCP-9).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::client::error_text;
use super::schema::{McpServerAcpId, MessageMcpNotification, MessageMcpRequest};
use crate::session::{LinkError, LinkEvent, ServerLink};
use turnwright_rpc::{Params, Peer, RequestError, some_even_if_null};

/// The method of both directions.
pub(super) const METHOD: &str = "mcp/message";
/// The request itself has no timeout: the caller sets one, which differs for calls, lists and subscriptions.
const NO_TIMEOUT: Duration = Duration::MAX;
/// How many notifications of a request may wait. Each of them says more than the ones before, or that
/// something has changed, so one more can be left out.
const MAX_WAITING: usize = 64;
/// Maximum size of a notification. All that is shown of one is a line.
const MAX_NOTIFICATION_BYTES: usize = 64 * 1024;
/// The error code of a client that no longer has the server.
const SERVER_UNAVAILABLE: i32 = -33001;

/// The requests to MCP servers of the client that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct LinkedRequests {
    last_id: AtomicU64,
    /// By the id of a request: which server may send its notifications, and who gets them.
    // Held only for one map operation.
    requests: Mutex<HashMap<String, (McpServerAcpId, mpsc::Sender<MessageMcpNotification>)>>,
}

impl LinkedRequests {
    /// Hands a notification of the client to the request that it names. One that names no running request of
    /// its server is left out, because a notification has no answer that could say so.
    pub(super) fn deliver(&self, params: &Params) {
        let size = params.text().len();
        if size > MAX_NOTIFICATION_BYTES {
            return tracing::debug!(size, "a notification of an MCP server is too long");
        }
        let notification: MessageMcpNotification = match params.read() {
            Ok(notification) => notification,
            Err(error) => return tracing::debug!(%error, "malformed parameters of mcp/message"),
        };
        let requests = self.requests.lock();
        let target = requests.get(notification.request_id.0.as_ref());
        match target.filter(|(server, _)| *server == notification.server_id) {
            Some((_, sender)) => {
                if sender.try_send(notification).is_err() {
                    tracing::debug!("an MCP server sends more notifications than are read");
                }
            }
            None => tracing::debug!(id = %notification.request_id, "mcp/message for no request"),
        }
    }

    /// Returns the id of a new request and its notifications.
    fn register(
        &self,
        server: &McpServerAcpId,
    ) -> (String, mpsc::Receiver<MessageMcpNotification>) {
        let id = format!("mcp-{}", self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, notifications) = mpsc::channel(MAX_WAITING);
        self.requests.lock().insert(id.clone(), (server.clone(), sender));
        (id, notifications)
    }
}

/// An MCP server of the client.
#[derive(Debug)]
pub(super) struct ClientServer {
    pub(super) peer: Peer,
    pub(super) requests: Arc<LinkedRequests>,
    pub(super) id: McpServerAcpId,
}

impl ServerLink for ClientServer {
    fn send(
        &self,
        method: String,
        params: Option<Map<String, Value>>,
    ) -> BoxStream<'static, LinkEvent> {
        let (id, notifications) = self.requests.register(&self.id);
        let request = MessageMcpRequest::new(self.id.clone(), id.clone(), method).params(params);
        let peer = self.peer.clone();
        let answer = async move {
            // A client that does not read is sent no more.
            peer.outbox().wait_for_capacity().await;
            parse_outcome(peer.request(METHOD, &request, NO_TIMEOUT).await)
        };
        let exchange = LinkedExchange {
            id,
            all: Arc::clone(&self.requests),
            notifications,
            answer: Box::pin(answer),
            outcome: None,
        };
        let next = async |exchange: Option<LinkedExchange>| exchange?.next().await;
        stream::unfold(Some(exchange), next).boxed()
    }
}

type Outcome = Result<Box<RawValue>, LinkError>;

/// A running request with its notifications, which it gets until this is dropped, and its answer.
struct LinkedExchange {
    id: String,
    all: Arc<LinkedRequests>,
    notifications: mpsc::Receiver<MessageMcpNotification>,
    answer: BoxFuture<'static, Outcome>,
    /// The answer, until the notifications that came before it are handed out.
    outcome: Option<Outcome>,
}

impl LinkedExchange {
    async fn next(mut self) -> Option<(LinkEvent, Option<LinkedExchange>)> {
        if self.outcome.is_none() {
            tokio::select! {
                biased;
                Some(notification) = self.notifications.recv() => return Some((to_link_event(notification), Some(self))),
                outcome = &mut self.answer => self.outcome = Some(outcome),
            }
        }
        if let Ok(notification) = self.notifications.try_recv() {
            return Some((to_link_event(notification), Some(self)));
        }
        self.outcome.take().map(|outcome| (LinkEvent::Outcome(outcome), None))
    }
}

impl Drop for LinkedExchange {
    fn drop(&mut self) {
        self.all.requests.lock().remove(&self.id);
    }
}

fn to_link_event(notification: MessageMcpNotification) -> LinkEvent {
    LinkEvent::Notification { method: notification.method, params: notification.params }
}

/// Interprets an answer (R-MCP-10). An error of the server itself comes as a result of the client.
fn parse_outcome(answer: Result<Box<RawValue>, RequestError>) -> Outcome {
    let answer = answer.map_err(|error| match error {
        RequestError::ErrorResponse(error) if error.code == SERVER_UNAVAILABLE => {
            LinkError::Gone(format!("the editor no longer has it: {}", error_text(&error)))
        }
        RequestError::ErrorResponse(error) => {
            LinkError::Failed(format!("the editor answered with an error: {}", error_text(&error)))
        }
        error @ (RequestError::ConnectionClosed | RequestError::TimedOut(_)) => {
            LinkError::Gone(error.to_string())
        }
        error @ RequestError::TooMany => LinkError::Failed(error.to_string()),
    })?;
    let malformed =
        || LinkError::Failed("the editor's answer has neither a result nor an error".to_owned());
    // Serde would also accept a list of the fields in order, so anything but an object is rejected.
    let carrier = answer.get().starts_with('{').then(|| serde_json::from_str(answer.get()));
    let Some(Ok(McpMessageResult { result, error })) = carrier else { return Err(malformed()) };
    match (result, error) {
        (Some(result), _) => Ok(result.to_owned()),
        (None, Some(error)) => Err(LinkError::ErrorResponse(error.to_owned())),
        (None, None) => Err(malformed()),
    }
}

/// The result of `mcp/message`.
#[derive(Deserialize)]
struct McpMessageResult<'a> {
    /// May be `null`.
    #[serde(borrow, default, deserialize_with = "some_even_if_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r_mcp_10_the_errors_of_a_server_and_of_its_client_are_told_apart() {
        let answers = |answer: Value| Ok(RawValue::from_string(answer.to_string()).unwrap());
        let refuses = |code: i32| {
            let error = json!({ "code": code, "message": "no" });
            Err(RequestError::ErrorResponse(serde_json::from_value(error).unwrap()))
        };
        let table = [
            (answers(json!({ "result": null })), "Ok(null)"),
            (answers(json!({ "result": [1], "more": 2, "_meta": 3 })), "Ok([1])"),
            (answers(json!({ "result": 4, "error": { "code": 1, "message": "m" } })), "Ok(4)"),
            (answers(json!({ "error": { "code": 1 } })), r#"ErrorResponse({"code":1})"#),
            (answers(json!({ "error": null })), "Failed: the editor's answer has neither"),
            (answers(json!({ "_meta": {} })), "Failed: the editor's answer has neither"),
            (answers(json!([5])), "Failed: the editor's answer has neither"),
            (answers(json!(null)), "Failed: the editor's answer has neither"),
            (refuses(-32601), "Failed: the editor answered with an error: no"),
            (refuses(-33002), "Failed: the editor answered with an error: no"),
            (refuses(SERVER_UNAVAILABLE), "Gone: the editor no longer has it: no"),
            (Err(RequestError::ConnectionClosed), "Gone: the connection has ended"),
            (Err(RequestError::TooMany), "Failed: too many requests"),
        ];
        for (answer, expected) in table {
            let described = match parse_outcome(answer.clone()) {
                Ok(result) => format!("Ok({result})"),
                Err(LinkError::ErrorResponse(error)) => format!("ErrorResponse({error})"),
                Err(LinkError::Failed(why)) => format!("Failed: {why}"),
                Err(LinkError::Gone(why)) => format!("Gone: {why}"),
            };
            assert!(described.starts_with(expected), "{answer:?}: {described}");
        }
    }
}
