//! A transport for `rmcp` that sends each request through a [`ServerLink`](super::link::ServerLink). Answers
//! have the same limits as those of a process.

use std::collections::HashMap;
use std::convert::Infallible;

use futures_util::StreamExt;
use futures_util::stream::{AbortHandle, BoxStream, SelectAll, abortable, once};
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, JsonObject, JsonRpcMessage, RequestId, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::line::{self, LineKind};
use super::link::{LinkError, LinkEvent, LinkedServer};
use super::message_io::MAX_MESSAGE_BYTES;

/// How many requests may run at the same time. Another one is refused.
const MAX_RUNNING: usize = 256;
/// The key in `_meta` of the request that a notification belongs to.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

type ServerMessage = RxJsonRpcMessage<RoleClient>;
type Events = BoxStream<'static, (RequestId, LinkEvent)>;

/// The client's end of a link.
pub(super) struct LinkTransport {
    link: LinkedServer,
    events: SelectAll<Events>,
    running: HashMap<RequestId, RunningRequest>,
    /// Gets the reason when the server is gone.
    lost: watch::Sender<Option<String>>,
}

/// A request without an answer.
struct RunningRequest {
    abort: AbortHandle,
    /// It asks whether there is a server at all.
    is_discovery: bool,
}

impl LinkTransport {
    /// Creates a transport, and a receiver of the reason for its end.
    pub(super) fn new(link: LinkedServer) -> (LinkTransport, watch::Receiver<Option<String>>) {
        let (lost, reason) = watch::channel(None);
        let (events, running) = (SelectAll::new(), HashMap::new());
        (LinkTransport { link, events, running, lost }, reason)
    }

    fn start(&mut self, id: RequestId, request: &ClientRequest) {
        let is_discovery = matches!(request, ClientRequest::DiscoverRequest(_));
        let events = match method_and_params(request) {
            Some(_) if self.running.len() >= MAX_RUNNING => {
                failed("too many requests are running at the same time")
            }
            Some((method, params)) => self.link.0.send(method, params),
            None => failed("the request cannot be written as JSON"),
        };
        let key = id.clone();
        let (events, abort) = abortable(events.map(move |it| (key.clone(), it)));
        self.running.insert(id, RunningRequest { abort, is_discovery });
        self.events.push(events.boxed());
    }

    fn cancel(&mut self, id: Option<&RequestId>) {
        // The stream is dropped when it is polled next, and that cancels the request.
        if let Some(running) = id.and_then(|it| self.running.remove(it)) {
            running.abort.abort();
        }
    }

    /// The message for `rmcp`, or why there will be no more. Events that are malformed or too late bring
    /// none.
    fn message(
        &mut self,
        id: RequestId,
        event: LinkEvent,
    ) -> Result<Option<ServerMessage>, String> {
        let outcome = match event {
            LinkEvent::Notification { method, params } => {
                return Ok(notification(&id, &method, params));
            }
            LinkEvent::Outcome(outcome) => outcome,
        };
        let Some(RunningRequest { is_discovery, .. }) = self.running.remove(&id) else {
            return Ok(None);
        };
        Ok(Some(match outcome {
            Ok(result) => response(id, "result", &result),
            Err(LinkError::ErrorResponse(error)) => response(id, "error", &error),
            Err(LinkError::Failed(why)) if !is_discovery => {
                error_response(id, &format!("{why}. It may have been partly executed"))
            }
            Err(LinkError::Failed(why) | LinkError::Gone(why)) => return Err(why),
        }))
    }
}

impl Transport<RoleClient> for LinkTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match message {
            JsonRpcMessage::Request(it) => self.start(it.id, &it.request),
            JsonRpcMessage::Notification(it) => {
                // Nothing else can be said outside of a request.
                if let ClientNotification::CancelledNotification(it) = it.notification {
                    self.cancel(it.params.request_id.as_ref());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            // Without a request there is nothing to wait for: the next one is sent through `&mut self`,
            // so this future is dropped and made again.
            let Some((id, event)) = self.events.next().await else {
                return std::future::pending().await;
            };
            match self.message(id, event) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(why) => {
                    self.lost.send_replace(Some(why));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.events.clear();
        self.running.clear();
        Ok(())
    }
}

fn failed(why: &str) -> BoxStream<'static, LinkEvent> {
    let event = LinkEvent::Outcome(Err(LinkError::Failed(why.to_owned())));
    once(std::future::ready(event)).boxed()
}

fn method_and_params(request: &ClientRequest) -> Option<(String, Option<JsonObject>)> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(request) else { return None };
    let Some(Value::String(method)) = fields.remove("method") else { return None };
    let params = match fields.remove("params") {
        Some(Value::Object(params)) => Some(params),
        _ => None,
    };
    Some((method, params))
}

/// The notification of a request. What names the request in it, in whatever way the server was told of it,
/// names it as `rmcp` does.
fn notification(
    id: &RequestId,
    method: &str,
    mut params: Option<JsonObject>,
) -> Option<ServerMessage> {
    if let (Some(params), Ok(id)) = (&mut params, serde_json::to_value(id)) {
        if let Some(named) = params.get_mut("_meta").and_then(|it| it.get_mut(SUBSCRIPTION_KEY)) {
            *named = id.clone();
        }
        if method == "notifications/cancelled" {
            params.insert("requestId".to_owned(), id);
        }
    }
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if let Some(params) = params {
        message["params"] = Value::Object(params);
    }
    serde_json::from_value(message)
        .inspect_err(|error| tracing::debug!(%error, method, "a notification cannot be read"))
        .ok()
}

/// The response with this result or error.
fn response(id: RequestId, field: &str, value: &RawValue) -> ServerMessage {
    if value.get().len() > MAX_MESSAGE_BYTES {
        let limit = MAX_MESSAGE_BYTES / 1024 / 1024;
        return error_response(
            id,
            &format!("The response is longer than {limit} MiB and was dropped"),
        );
    }
    let line = serde_json::to_string(&id)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"{field}":{}}}"#, value.get()));
    let line = match line.map(String::into_bytes) {
        Ok(line) => match line::classify(&line) {
            LineKind::Malformed { replacement } => replacement,
            LineKind::Response | LineKind::Other => line,
        },
        Err(error) => return error_response(id, &error.to_string()),
    };
    let mut message: ServerMessage = match serde_json::from_slice(&line) {
        Ok(message) => message,
        Err(error) => return error_response(id, &format!("The response cannot be read: {error}")),
    };
    if let JsonRpcMessage::Response(response) = &mut message
        && let ServerResult::SubscriptionsListenResult(result) = &mut response.result
    {
        result.meta.set_subscription_id(id);
    }
    message
}

fn error_response(id: RequestId, why: &str) -> ServerMessage {
    JsonRpcMessage::error(rmcp::ErrorData::internal_error(why.to_owned(), None), Some(id))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::stream::pending;
    use rmcp::model::{CancelledNotification, CancelledNotificationParam, PingRequest};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::ServerTransport;
    use crate::link::ServerLink;
    use crate::{LoginStore, ServerEnv, ServerPhase, ServerPool, ServerSource, ServerSpec};
    use turnwright_workspace::exec::Environment;

    /// Never answers. Counts the requests that are not dropped.
    #[derive(Clone, Debug, Default)]
    struct SilentLink(Arc<AtomicUsize>);

    impl ServerLink for SilentLink {
        fn send(&self, _: String, _: Option<JsonObject>) -> BoxStream<'static, LinkEvent> {
            struct Running(Arc<AtomicUsize>);
            impl Drop for Running {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                }
            }
            self.0.fetch_add(1, Ordering::Relaxed);
            let running = Running(Arc::clone(&self.0));
            pending().map(move |it: LinkEvent| (&running, it).1).boxed()
        }
    }

    fn ping(transport: &mut LinkTransport, id: i64) {
        let request = ClientRequest::PingRequest(PingRequest::default());
        let message = JsonRpcMessage::request(request, RequestId::Number(id));
        transport.send(message).now_or_never().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_cancelled_request_is_dropped_and_all_are_when_the_transport_closes() {
        let link = SilentLink::default();
        let (mut transport, _reason) = LinkTransport::new(LinkedServer::new(link.clone()));
        for id in 1..=3 {
            ping(&mut transport, id);
        }
        assert!(transport.receive().now_or_never().is_none());
        let params = CancelledNotificationParam::new(Some(RequestId::Number(2)), None);
        let cancelled = CancelledNotification::new(params);
        let message = JsonRpcMessage::notification(cancelled.into());
        transport.send(message).await.unwrap();
        assert!(transport.receive().now_or_never().is_none());
        assert_eq!(link.0.load(Ordering::Relaxed), 2);
        transport.close().await.unwrap();
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn more_requests_than_a_limit_are_refused() {
        let (mut transport, _reason) = LinkTransport::new(LinkedServer::new(SilentLink::default()));
        for id in 0..=MAX_RUNNING {
            ping(&mut transport, id.try_into().unwrap());
        }
        let Some(JsonRpcMessage::Error(refused)) = transport.receive().await else { panic!() };
        assert_eq!(refused.id, Some(RequestId::Number(MAX_RUNNING.try_into().unwrap())));
        assert!(refused.error.message.contains("too many requests"), "{refused:?}");
        assert!(transport.receive().now_or_never().is_none());
    }

    #[test]
    fn an_answer_has_the_limits_of_a_process() {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        let table = [
            (raw("{}".to_owned()), None),
            (raw("null".to_owned()), None),
            (raw(format!("\"{}\"", "x".repeat(MAX_MESSAGE_BYTES))), Some("longer than 32 MiB")),
            (raw(format!("{}{}", "[".repeat(105), "]".repeat(105))), Some("nests too deeply")),
        ];
        for (value, expected) in table {
            match (response(RequestId::Number(7), "result", &value), expected) {
                (JsonRpcMessage::Response(it), None) => assert_eq!(it.id, RequestId::Number(7)),
                (JsonRpcMessage::Error(it), Some(words)) => {
                    assert!(it.error.message.contains(words), "{it:?}");
                }
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_names_the_request_names_it_as_the_client_library_does() {
        let params = json!({ "_meta": { SUBSCRIPTION_KEY: "mcp-9" }, "requestId": "mcp-9" });
        let id = RequestId::Number(4);
        for method in ["notifications/tools/list_changed", "notifications/cancelled"] {
            let message = notification(&id, method, params.as_object().cloned()).unwrap();
            let params = serde_json::to_value(&message).unwrap()["params"].take();
            assert_eq!(params["_meta"][SUBSCRIPTION_KEY], 4, "{params}");
            assert!(params["requestId"] == 4 || method != "notifications/cancelled", "{params}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_has_failed_after_a_while_and_is_not_tried_again() {
        let link = SilentLink::default();
        let nowhere = PathBuf::from("/nowhere");
        let env = ServerEnv {
            cwd: nowhere.clone(),
            roots: Vec::new(),
            profile: None,
            supports_forms: false,
            logins: LoginStore::new(&nowhere),
            package_caches: Vec::new(),
            private_caches: nowhere,
        };
        let environment = Environment::scrubbed([], &[]);
        let pool = ServerPool::new(environment, CancellationToken::new(), TaskTracker::new());
        let reach = ServerTransport::Linked(LinkedServer::new(link.clone()));
        let spec = ServerSpec::new("near", ServerSource::Client, reach);
        let server = pool.get(&spec, &env);
        let mut watch = server.watch();
        watch.wait_for(|it| it.phase != ServerPhase::Starting).await.unwrap();
        let state = server.state();
        assert_eq!(state.phase, ServerPhase::Failed("it was not ready within 10 s".to_owned()));
        assert!(!state.is_restarting);
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(server.state().phase, state.phase);
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
    }
}
