//! The connection to a server: our requests and notifications, its responses, what it requests, and what it says by
//! itself. Everything that it may ask is answered, and nothing that it asks changes anything.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::framing::{FrameReader, frame};
use crate::protocol::{Position, Problem, errors_in, path_of};
use turnwright_rpc::{
    Params, ParsedLine, PendingRequests, RequestError, RequestId, RpcError, RpcMessage, parse_line,
    write_response,
};

/// The most of our messages that wait for the server. One that does not read so many is given up.
const MAX_QUEUED_MESSAGES: usize = 256;
/// The most of our requests that wait for a response.
const MAX_REQUESTS: usize = 64;
/// After so many messages reading pauses, because each costs work.
const MAX_BURST: u32 = 1_000;
const BURST_PAUSE: Duration = Duration::from_millis(100);
/// The length above which a message is parsed on a blocking thread.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// The most files whose errors are kept, and the most works in progress that are followed.
const MAX_PUBLISHED_FILES: usize = 512;
const MAX_PROGRESS: usize = 64;
/// The work of a server that sends no notification about it is assumed to begin and end within this time.
const QUIET_START: Duration = Duration::from_secs(3);

/// How a server tells that it has loaded the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It does not answer before.
    #[default]
    AtOnce,
    /// When its progress has ended.
    Progress,
    /// It says that it is quiescent, as rust-analyzer does.
    Quiescence,
}

/// The errors of a file as the server last published them.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// The version of the document that it has looked at, if it says so.
    pub(crate) version: Option<i64>,
    pub(crate) at: Instant,
    pub(crate) errors: Vec<Problem>,
}

/// A document that the server was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) version: i64,
    /// A hash of its text, and the end of it.
    pub(crate) hash: u64,
    pub(crate) end: Position,
    /// When it was told this text.
    pub(crate) since: Instant,
}

/// The state that follows from what the server has said and was told.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) published: HashMap<PathBuf, Published>,
    /// The open documents, the one that was used last at the end.
    pub(crate) documents: Vec<Document>,
    /// The number of the text that was told last. No two texts of a server have the same.
    pub(crate) last_version: i64,
    /// True if it has asked to be asked for diagnostics.
    pub(crate) wants_pulls: bool,
    /// When somebody last asked it something.
    pub(crate) used: Instant,
    started: Instant,
    progress: HashSet<String>,
    has_progressed: bool,
    is_quiescent: bool,
}

impl Heard {
    fn new() -> Heard {
        Heard {
            published: HashMap::new(),
            documents: Vec::new(),
            last_version: 0,
            wants_pulls: false,
            used: Instant::now(),
            started: Instant::now(),
            progress: HashSet::new(),
            has_progressed: false,
            is_quiescent: false,
        }
    }

    /// Returns true if it has loaded the project.
    pub(crate) fn is_ready(&self, readiness: Readiness) -> bool {
        let may_begin = self.has_progressed || self.started.elapsed() > QUIET_START;
        match readiness {
            Readiness::AtOnce => true,
            Readiness::Progress => self.progress.is_empty() && may_begin,
            Readiness::Quiescence => self.is_quiescent,
        }
    }

    fn take_progress(&mut self, params: &Value) {
        let token = params["token"].to_string();
        match params["value"]["kind"].as_str() {
            Some("begin") if self.progress.len() < MAX_PROGRESS => {
                self.has_progressed = true;
                self.progress.insert(token);
            }
            Some("end") => {
                self.progress.remove(&token);
            }
            _ => {}
        }
    }

    fn take_errors(&mut self, params: &Value) {
        let Some(path) = path_of(&params["uri"]) else { return };
        if self.published.len() >= MAX_PUBLISHED_FILES && !self.published.contains_key(&path) {
            // Servers may publish the whole project. What was told is kept.
            let documents = &self.documents;
            self.published.retain(|known, _| documents.iter().any(|open| open.path == *known));
        }
        let version = params["version"].as_i64();
        let errors = errors_in(&params["diagnostics"]);
        self.published.insert(path, Published { version, at: Instant::now(), errors });
    }
}

/// The connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Wire>);

struct Wire {
    outgoing: mpsc::Sender<Vec<u8>>,
    pending: PendingRequests,
    heard: watch::Sender<Heard>,
    settings: Value,
    folders: Value,
    ended: CancellationToken,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connection")
    }
}

/// Connects to a server. Its tasks end when the server closes one of its pipes, when the connection is closed, or when
/// the set is dropped.
pub(crate) fn connect(
    output: impl AsyncRead + Unpin + Send + 'static,
    input: impl AsyncWrite + Unpin + Send + 'static,
    settings: Value,
    folders: Value,
) -> (Connection, JoinSet<()>) {
    let (outgoing, frames) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let ended = CancellationToken::new();
    let connection = Connection(Arc::new(Wire {
        outgoing,
        pending: PendingRequests::new(1, MAX_REQUESTS),
        heard: watch::Sender::new(Heard::new()),
        settings,
        folders,
        ended: ended.clone(),
    }));
    let reader = connection.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(write(frames, input, ended));
    tasks.spawn(async move {
        let reading = reader.read(FrameReader::new(output));
        reader.0.ended.run_until_cancelled(reading).await;
        reader.close();
    });
    (connection, tasks)
}

/// Writes the messages, and at the end those that are queued by then.
async fn write(
    mut frames: mpsc::Receiver<Vec<u8>>,
    mut input: impl AsyncWrite + Unpin,
    ended: CancellationToken,
) {
    loop {
        let next = tokio::select! {
            biased;
            frame = frames.recv() => frame,
            () = ended.cancelled() => None,
        };
        let Some(frame) = next else { return };
        if let Err(error) = input.write_all(&frame).await {
            tracing::debug!(%error, "a language server has closed its input");
            return ended.cancel();
        }
    }
}

impl Connection {
    /// The state that follows from what the server has said and was told.
    pub(crate) fn heard(&self) -> &watch::Sender<Heard> {
        &self.0.heard
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// Fails all pending and later requests. Queued messages are still written.
    pub(crate) fn close(&self) {
        self.0.pending.fail_all();
        self.0.ended.cancel();
    }

    /// Sends a request and waits for its result. One that is given up is withdrawn.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, RequestError> {
        let id = self.0.pending.next_id();
        let receiver = self.0.pending.register(id, None)?;
        let _withdrawal = Withdrawal { connection: self, id };
        self.call(Some(id), method, params);
        let Ok(answered) = timeout(limit, receiver).await else {
            return Err(RequestError::TimedOut(limit));
        };
        let response = answered.map_err(|_| RequestError::ConnectionClosed)?;
        let result = response.map_err(RequestError::ErrorResponse)?;
        let read = serde_json::from_str(result.get());
        read.map_err(|error| malformed(&error))
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.call(None, method, params);
    }

    /// Sends a request or notification. Some servers refuse parameters that are null.
    fn call(&self, id: Option<u64>, method: &str, params: Value) {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(id) = id {
            message["id"] = id.into();
        }
        if !params.is_null() {
            message["params"] = params;
        }
        self.send(message.to_string().as_bytes());
    }

    fn send(&self, message: &[u8]) {
        if self.0.outgoing.try_send(frame(message)).is_err() && !self.is_ended() {
            tracing::debug!("a language server does not read its input");
            self.close();
        }
    }

    async fn read<R: AsyncRead + Unpin>(&self, mut frames: FrameReader<R>) {
        let mut burst = 0;
        loop {
            let bytes = match frames.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a language server cannot be read"),
            };
            let parsed = if bytes.len() > MAX_INLINE_BYTES {
                spawn_blocking(move || parse_line(&bytes)).await.unwrap_or(ParsedLine::Ignored)
            } else {
                parse_line(&bytes)
            };
            match parsed {
                ParsedLine::Message(RpcMessage::Response { id, result }) => {
                    if let Ok(id) = id.to_string().parse() {
                        self.0.pending.complete(id, result);
                    }
                }
                ParsedLine::Message(RpcMessage::Notification { method, params }) => {
                    self.hear(&method, &params);
                }
                ParsedLine::Message(RpcMessage::Request { id, method, params }) => {
                    self.answer(&id, &method, &params);
                }
                ParsedLine::Rejected { .. } | ParsedLine::Ignored => {}
            }
            burst += 1;
            if burst == MAX_BURST {
                burst = 0;
                sleep(BURST_PAUSE).await;
            }
        }
    }

    fn hear(&self, method: &str, params: &Params) {
        let heard = &self.0.heard;
        let Ok(params) = params.read::<Value>() else { return };
        match method {
            "textDocument/publishDiagnostics" => {
                heard.send_modify(|heard| heard.take_errors(&params));
            }
            "$/progress" => heard.send_modify(|heard| heard.take_progress(&params)),
            "experimental/serverStatus" => {
                heard.send_modify(|heard| heard.is_quiescent = params["quiescent"] == true);
            }
            _ => {}
        }
    }

    /// Answers a request of the server.
    fn answer(&self, id: &RequestId, method: &str, params: &Params) {
        let params = params.read::<Value>().unwrap_or_default();
        let result = match method {
            "workspace/configuration" => Ok(configuration(&self.0.settings, &params)),
            "workspace/workspaceFolders" => Ok(self.0.folders.clone()),
            "client/registerCapability" => {
                self.register(&params["registrations"], true);
                Ok(Value::Null)
            }
            "client/unregisterCapability" => {
                // The name is misspelt in the protocol.
                self.register(&params["unregisterations"], false);
                Ok(Value::Null)
            }
            "workspace/applyEdit" => Ok(json!({ "applied": false })),
            "window/showDocument" => Ok(json!({ "success": false })),
            "window/workDoneProgress/create" | "window/showMessageRequest" => Ok(Value::Null),
            _ if method.starts_with("workspace/") && method.ends_with("/refresh") => {
                Ok(Value::Null)
            }
            _ => Err(RpcError::method_not_found(method)),
        };
        let mut message = Vec::new();
        if write_response(&mut message, id, result.as_ref()).is_ok() {
            self.send(&message);
        }
    }

    fn register(&self, registrations: &Value, is_on: bool) {
        let mut all = registrations.as_array().into_iter().flatten();
        if all.any(|registration| registration["method"] == "textDocument/diagnostic") {
            self.0.heard.send_modify(|heard| heard.wants_pulls = is_on);
        }
    }
}

fn malformed(error: &serde_json::Error) -> RequestError {
    RequestError::ErrorResponse(RpcError::internal_error(error.to_string()))
}

/// The settings that a server asks for: as many as it names, null where there are none.
fn configuration(settings: &Value, params: &Value) -> Value {
    let items = params["items"].as_array().into_iter().flatten();
    let found = items.map(|item| {
        let section = item["section"].as_str().unwrap_or_default();
        let names = section.split('.').filter(|name| !name.is_empty());
        names.fold(settings, |at, name| &at[name]).clone()
    });
    found.collect()
}

/// Withdraws a request when it is dropped, unless it was answered.
struct Withdrawal<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.connection.0.pending.give_up(self.id) {
            self.connection.notify("$/cancelRequest", json!({ "id": self.id }));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    type Connected = (Connection, JoinSet<()>, FrameReader<DuplexStream>, DuplexStream);

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
        assert!(connection.heard().borrow().wants_pulls);
        say(&mut output, &json!({ "jsonrpc": "2.0", "id": 7, "method": "x/unknown" })).await;
        assert_eq!(next(&mut frames).await["error"]["code"], -32601);
    }

    #[tokio::test]
    async fn a_request_is_answered_once_withdrawn_when_it_is_late_and_fails_with_the_connection() {
        let (connection, _tasks, mut frames, mut output) = connected();
        let asking = connection.request("x", Value::Null, Duration::from_secs(9));
        let answering = async {
            let request = next(&mut frames).await;
            assert_eq!(request, json!({ "jsonrpc": "2.0", "method": "x", "id": request["id"] }));
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
        connection.ended().await;
    }

    #[tokio::test]
    async fn what_a_server_publishes_is_bounded_and_the_latest_counts() {
        let (connection, _tasks, _frames, mut output) = connected();
        let publish = |file: &str, version: Value, message: &str| {
            let start = json!({ "line": 0, "character": 0 });
            let range = json!({ "start": start, "end": start });
            json!({ "jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": {
                "uri": format!("file:///w/{file}"),
                "version": version,
                "diagnostics": [{ "range": range, "message": message }]
            } })
        };
        for number in 0..MAX_PUBLISHED_FILES + 10 {
            say(&mut output, &publish(&format!("f{number}"), Value::Null, "m")).await;
        }
        say(&mut output, &publish("a", json!(1), "old")).await;
        say(&mut output, &publish("a", json!(2), "new")).await;
        let mut heard = connection.heard().subscribe();
        let path = PathBuf::from("/w/a");
        let seen = heard
            .wait_for(|heard| heard.published.get(&path).is_some_and(|it| it.version == Some(2)));
        assert!(timeout(Duration::from_secs(9), seen).await.is_ok() || cfg!(windows));
        assert!(connection.heard().borrow().published.len() <= MAX_PUBLISHED_FILES);
    }

    #[tokio::test]
    async fn readiness_follows_what_the_server_says() {
        let mut heard = Heard::new();
        let progress = |kind: &str| json!({ "token": 1, "value": { "kind": kind } });
        assert!(heard.is_ready(Readiness::AtOnce) && !heard.is_ready(Readiness::Progress));
        heard.take_progress(&progress("begin"));
        assert!(!heard.is_ready(Readiness::Progress));
        heard.take_progress(&progress("end"));
        assert!(heard.is_ready(Readiness::Progress) && !heard.is_ready(Readiness::Quiescence));
    }
}
