//! The connection to a server, with requests and notifications in both directions. Every request of the server is
//! answered, and none of them changes any file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::framing::{FrameReader, frame};
use crate::state::ServerState;
use turnwright_rpc::{
    OutboxDrain, Params, ParsedLine, Peer, RequestError, RequestId, RpcError, RpcMessage,
    message_queue, parse_line,
};

/// A server that takes no message within this time is taken for broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of messages after which reading pauses, so that a server cannot keep this program busy.
const MAX_BURST: u32 = 1_000;
const BURST_PAUSE: Duration = Duration::from_millis(100);
/// The most settings in the answer to one request.
const MAX_SETTINGS: usize = 256;

/// The connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: Peer,
    pub(crate) state: watch::Sender<ServerState>,
    settings: Value,
    pub(crate) folders: Value,
    /// Cancelled when the connection ends.
    pub(crate) ended: CancellationToken,
}

/// Connects to a server. The returned task ends when the server closes one of its pipes, when the connection is closed,
/// or when the set is dropped.
pub(crate) fn connect(
    output: impl AsyncRead + Unpin + Send + 'static,
    input: impl AsyncWrite + Unpin + Send + 'static,
    settings: Value,
    folders: Value,
) -> (Arc<Connection>, JoinSet<()>) {
    let (outbox, messages) = message_queue(|_, _| None, None);
    let connection = Arc::new(Connection {
        peer: Peer::with_withdrawal(outbox, "$/cancelRequest", "id"),
        state: watch::Sender::new(ServerState::new()),
        settings,
        folders,
        ended: CancellationToken::new(),
    });
    let shared = Arc::clone(&connection);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        tokio::select! {
            () = shared.read(FrameReader::new(output)) => {}
            () = write(messages, input) => {}
            () = shared.ended.cancelled() => {}
        }
        shared.close();
    });
    (connection, tasks)
}

/// Writes messages to the server.
async fn write(mut messages: OutboxDrain, mut input: impl AsyncWrite + Unpin) {
    while let Some(batch) = messages.next().await {
        let lines = batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let frames = lines.map(frame).collect::<Vec<_>>().concat();
        let written = timeout(WRITE_TIMEOUT, input.write_all(&frames)).await;
        if !matches!(written, Ok(Ok(()))) {
            return tracing::debug!("a language server does not read its input");
        }
    }
}

impl Connection {
    /// Fails all pending and later requests.
    pub(crate) fn close(&self) {
        self.peer.fail_all();
        self.ended.cancel();
    }

    /// Sends a request and waits for its result. The request is cancelled if the wait is.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, RequestError> {
        let result = self.peer.request(method, &params, limit).await?;
        let reading = spawn_blocking(move || serde_json::from_str(result.get()).ok());
        reading.await.ok().flatten().ok_or_else(|| {
            let unread = RpcError::internal_error("its answer cannot be read".to_owned());
            RequestError::ErrorResponse(unread)
        })
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        self.peer.outbox().notify(method, params);
    }

    async fn read<R: AsyncRead + Unpin>(self: &Arc<Self>, mut frames: FrameReader<R>) {
        let mut burst = 0;
        loop {
            self.peer.outbox().wait_for_read_capacity().await;
            let bytes = match frames.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a language server cannot be read"),
            };
            let connection = Arc::clone(self);
            spawn_blocking(move || connection.handle_message(&bytes)).await.ok();
            burst += 1;
            if burst == MAX_BURST {
                burst = 0;
                sleep(BURST_PAUSE).await;
            }
        }
    }

    fn handle_message(&self, message: &[u8]) {
        match parse_line(message) {
            ParsedLine::Message(RpcMessage::Response { id, result }) => {
                self.peer.complete(&id, result);
            }
            ParsedLine::Message(RpcMessage::Notification { method, params }) => {
                if let Ok(params) = params.read::<Value>() {
                    self.state.send_modify(|state| state.handle_notification(&method, &params));
                }
            }
            ParsedLine::Message(RpcMessage::Request { id, method, params }) => {
                self.answer(&id, &method, &params);
            }
            ParsedLine::Rejected { .. } | ParsedLine::Ignored => {}
        }
    }

    /// Answers a request from the server.
    fn answer(&self, id: &RequestId, method: &str, params: &Params) {
        let params = params.read::<Value>().unwrap_or_default();
        let result = match method {
            "workspace/configuration" => Ok(configuration(&self.settings, &params)),
            "workspace/workspaceFolders" => Ok(self.folders.clone()),
            "client/registerCapability" => Ok(self.register(&params["registrations"], true)),
            // The protocol really spells the name like this.
            "client/unregisterCapability" => Ok(self.register(&params["unregisterations"], false)),
            "workspace/applyEdit" => Ok(json!({ "applied": false })),
            "window/showDocument" => Ok(json!({ "success": false })),
            "window/workDoneProgress/create" | "window/showMessageRequest" => Ok(Value::Null),
            _ if method.starts_with("workspace/") && method.ends_with("/refresh") => {
                Ok(Value::Null)
            }
            _ => Err(RpcError::method_not_found(method)),
        };
        self.peer.outbox().respond(id, result.as_ref());
    }

    fn register(&self, registrations: &Value, is_on: bool) -> Value {
        for registration in registrations.as_array().into_iter().flatten() {
            self.state.send_modify(|state| state.register(registration, is_on));
        }
        Value::Null
    }
}

/// Returns the settings for the sections that a server asks for, in order; null for a section without settings.
fn configuration(settings: &Value, params: &Value) -> Value {
    let items = params["items"].as_array().into_iter().flatten().take(MAX_SETTINGS);
    let found = items.map(|item| {
        let section = item["section"].as_str().unwrap_or_default();
        let names = section.split('.').filter(|name| !name.is_empty());
        names.fold(settings, |at, name| &at[name]).clone()
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    type Connected = (Arc<Connection>, JoinSet<()>, FrameReader<DuplexStream>, DuplexStream);

    fn connected() -> Connected {
        let (output, server_output) = duplex(64 * 1024);
        let (server_input, input) = duplex(64 * 1024);
        let settings = json!({ "gopls": { "a": { "b": 1 } } });
        let (connection, tasks) = connect(output, input, settings, json!(["folder"]));
        (connection, tasks, FrameReader::new(server_input), server_output)
    }

    async fn next(frames: &mut FrameReader<DuplexStream>) -> Value {
        serde_json::from_slice(&frames.next().await.unwrap().unwrap()).unwrap()
    }

    async fn say(output: &mut DuplexStream, message: &Value) {
        output.write_all(&frame(message.to_string().as_bytes())).await.unwrap();
    }

    #[tokio::test]
    async fn every_request_of_a_server_is_answered() {
        let (connection, _tasks, mut frames, mut output) = connected();
        let items = json!({ "items": [
            { "section": "gopls.a" }, { "section": "other" }, { "scopeUri": "file:///w" }
        ] });
        let configured = json!([{ "b": 1 }, null, { "gopls": { "a": { "b": 1 } } }]);
        let diagnostic =
            json!({ "registrations": [{ "id": "1", "method": "textDocument/diagnostic" }] });
        let table = [
            ("workspace/configuration", items, configured),
            ("workspace/workspaceFolders", Value::Null, json!(["folder"])),
            ("window/workDoneProgress/create", json!({ "token": 1 }), Value::Null),
            ("window/showMessageRequest", json!({ "message": "?" }), Value::Null),
            ("workspace/applyEdit", json!({ "edit": {} }), json!({ "applied": false })),
            ("workspace/diagnostic/refresh", Value::Null, Value::Null),
            ("client/registerCapability", diagnostic, Value::Null),
        ];
        for (method, params, expected) in table {
            let request =
                json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
            say(&mut output, &request).await;
            let answer = next(&mut frames).await;
            let response = json!({ "jsonrpc": "2.0", "id": "a", "result": expected });
            assert_eq!(answer, response, "{method}");
        }
        assert!(connection.state.borrow().wants_pulls());
        // As pyright does it, a newer registration replaces the first one, which is withdrawn afterwards.
        for (method, name, id, is_on) in [
            ("client/registerCapability", "registrations", "2", true),
            ("client/unregisterCapability", "unregisterations", "1", true),
            ("client/unregisterCapability", "unregisterations", "2", false),
        ] {
            let changes = json!({ name: [{ "id": id, "method": "textDocument/diagnostic" }] });
            say(
                &mut output,
                &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": changes }),
            )
            .await;
            next(&mut frames).await;
            assert_eq!(connection.state.borrow().wants_pulls(), is_on, "{method} {id}");
        }
        say(&mut output, &json!({ "jsonrpc": "2.0", "id": 7, "method": "x/unknown" })).await;
        assert_eq!(next(&mut frames).await["error"]["code"], -32601);
    }

    #[tokio::test]
    async fn a_request_is_answered_once_withdrawn_when_it_is_late_and_fails_with_the_connection() {
        let (connection, _tasks, mut frames, mut output) = connected();
        let asking = connection.request("x", json!({}), Duration::from_secs(9));
        let answering = async {
            let request = next(&mut frames).await;
            assert_eq!((&request["method"], &request["params"]), (&json!("x"), &json!({})));
            say(&mut output, &json!({ "jsonrpc": "2.0", "id": request["id"], "result": 5 })).await;
        };
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer, Ok(json!(5)));
        let late = connection.request("y", json!({}), Duration::from_millis(20)).await;
        assert_eq!(late, Err(RequestError::TimedOut(Duration::from_millis(20))));
        let request = next(&mut frames).await;
        let withdrawal = next(&mut frames).await;
        assert_eq!(withdrawal["method"], "$/cancelRequest");
        assert_eq!(withdrawal["params"]["id"], request["id"]);
        drop(output);
        let failed = connection.request("z", json!({}), Duration::from_secs(9)).await;
        assert_eq!(failed, Err(RequestError::ConnectionClosed));
        connection.ended.cancelled().await;
    }

    #[test]
    fn a_request_for_settings_is_answered_with_a_bounded_number_of_them() {
        let items = vec![json!({}); MAX_SETTINGS * 9];
        let answer = configuration(&json!({ "a": 1 }), &json!({ "items": items }));
        assert_eq!(answer.as_array().unwrap().len(), MAX_SETTINGS);
    }
}
