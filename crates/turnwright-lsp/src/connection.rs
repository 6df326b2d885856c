//! The connection to a server, with requests and notifications in both directions. Every request of the server is
//! answered, and none of them changes any file.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::framing::{FrameReader, frame};
use crate::protocol::{Problem, errors_in, path_of};
use crate::source::ShownText;
use turnwright_rpc::{
    Params, ParsedLine, PendingRequests, RequestError, RequestId, RpcError, RpcMessage, parse_line,
    write_response,
};
use turnwright_types::hash::std_hash;

/// The most messages that wait to be sent. The connection is closed if the server falls further behind.
const MAX_QUEUED_MESSAGES: usize = 256;
/// The most requests that wait for a response.
const MAX_REQUESTS: usize = 64;
/// The number of messages after which reading pauses, so that a server cannot keep this program busy.
const MAX_BURST: u32 = 1_000;
const BURST_PAUSE: Duration = Duration::from_millis(100);
/// The length above which a message is parsed on a blocking thread.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// The most progress tokens that are tracked, and the most settings in the answer to one request.
const MAX_PROGRESS: usize = 64;
const MAX_SETTINGS: usize = 256;
/// Errors published without a version are taken for those of the latest text if no others follow within this time.
const QUIET_TIME: Duration = Duration::from_millis(250);
/// When another file has changed, older errors count only if no newer ones come within this time.
const DEPENDENT_TIME: Duration = Duration::from_secs(1);
/// A server that has reported no progress within this time is assumed to have loaded the project.
const QUIET_START: Duration = Duration::from_secs(3);

/// The way in which a server indicates that it has loaded the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Readiness {
    /// The server answers only once the project is loaded, so nothing has to be waited for.
    #[default]
    AtOnce,
    /// The progress that the server reports has ended.
    Progress,
    /// The server reports that it is quiescent, as rust-analyzer does.
    Quiescence,
}

/// A document that is open in the server.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) version: i64,
    /// The hash of the document's text.
    pub(crate) hash: u64,
    /// The errors that the server has published for this text.
    pub(crate) published: Option<Published>,
}

/// The errors that a server has published.
#[derive(Debug)]
pub(crate) struct Published {
    at: Instant,
    /// The time from which these errors count, unless others replace them before.
    settled: Instant,
    errors: Vec<Problem>,
}

/// The state of the server, as known from the messages in both directions.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The open documents, the most recently used one last.
    pub(crate) documents: Vec<Document>,
    /// The version of the text that was sent last. No two texts have the same version, even of different documents.
    pub(crate) last_version: i64,
    /// True if the server has registered to be asked for diagnostics.
    pub(crate) wants_pulls: bool,
    /// The time when the server was last used, and the time when a new text was last sent.
    pub(crate) used: Instant,
    pub(crate) changed: Instant,
    started: Instant,
    /// Hashes of the tokens of all progress that has begun and not ended.
    progress: HashSet<u64>,
    has_progressed: bool,
    is_quiescent: bool,
}

impl Heard {
    fn new() -> Heard {
        Heard {
            documents: Vec::new(),
            last_version: 0,
            wants_pulls: false,
            used: Instant::now(),
            changed: Instant::now(),
            started: Instant::now(),
            progress: HashSet::new(),
            has_progressed: false,
            is_quiescent: false,
        }
    }

    /// Returns true if the server has loaded the project.
    pub(crate) fn is_ready(&self, readiness: Readiness) -> bool {
        let may_begin = self.has_progressed || self.started.elapsed() > QUIET_START;
        match readiness {
            Readiness::AtOnce => true,
            Readiness::Progress => self.progress.is_empty() && may_begin,
            Readiness::Quiescence => self.is_quiescent,
        }
    }

    fn take_progress(&mut self, params: &Value) {
        let token = std_hash(params["token"].to_string());
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

    /// Stores published errors, except those of files that are not open and those of earlier texts.
    fn take_errors(&mut self, params: &Value) {
        let Some(path) = path_of(&params["uri"]) else { return };
        let mut open = self.documents.iter_mut();
        let Some(document) = open.find(|document| document.path == path) else { return };
        let Some(errors) = errors_in(&params["diagnostics"]) else { return };
        let at = Instant::now();
        let settled = match params["version"].as_i64() {
            Some(version) if version == document.version => at,
            Some(_) => return,
            None => at + QUIET_TIME,
        };
        document.published = Some(Published { at, settled, errors });
    }

    /// Returns the document that has this text; `None` if its text has changed since.
    pub(crate) fn document(&self, shown: &ShownText) -> Option<&Document> {
        let document = self.documents.iter().find(|document| document.path == shown.path)?;
        (document.version == shown.version).then_some(document)
    }

    /// Returns the published errors of a text, and the time from which they count.
    pub(crate) fn published(&self, shown: &ShownText) -> Option<(Instant, Vec<Problem>)> {
        let Published { at, settled, errors } = self.document(shown)?.published.as_ref()?;
        let may_depend = shown.is_saved && *at < self.changed;
        let counts = if may_depend { self.changed + DEPENDENT_TIME } else { *settled };
        Some((counts, errors.clone()))
    }
}

/// A connection to a server. Clones share it.
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

/// Connects to a server. The returned tasks end when the server closes one of its pipes, when the connection is closed,
/// or when the set is dropped.
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

/// Writes messages to the server. Those that are queued when the connection ends are still written.
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
    /// Returns the state of the server, as known from the messages in both directions.
    pub(crate) fn heard(&self) -> &watch::Sender<Heard> {
        &self.0.heard
    }

    /// Waits until the connection has ended.
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

    /// Sends a request and waits for its result. The request is cancelled if the wait is.
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
        let reading = spawn_blocking(move || serde_json::from_str(result.get()).ok());
        reading.await.ok().flatten().ok_or_else(|| {
            let unread = RpcError::internal_error("its answer cannot be read".to_owned());
            RequestError::ErrorResponse(unread)
        })
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.call(None, method, params);
    }

    /// Sends a request or notification. Null parameters are left out, because some servers refuse them.
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
            if bytes.len() > MAX_INLINE_BYTES {
                let connection = self.clone();
                spawn_blocking(move || connection.take(&bytes)).await.ok();
            } else {
                self.take(&bytes);
            }
            burst += 1;
            if burst == MAX_BURST {
                burst = 0;
                sleep(BURST_PAUSE).await;
            }
        }
    }

    /// Handles a message from the server.
    fn take(&self, message: &[u8]) {
        match parse_line(message) {
            ParsedLine::Message(RpcMessage::Response { id, result }) => {
                if let Some(id) = id.as_u64() {
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

    /// Answers a request from the server.
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
                // The protocol really spells the name like this.
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

/// Cancels a request on drop, unless it was answered.
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
    use std::path::Path;

    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::protocol::uri;

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

    #[test]
    fn only_published_errors_of_the_last_text_of_an_open_document_are_kept() {
        let path = PathBuf::from(if cfg!(windows) { "C:\\w\\a" } else { "/w/a" });
        let shown = ShownText { path: path.clone(), version: 2, is_saved: true };
        let start = json!({ "line": 0, "character": 0 });
        let publish = |path: &Path, version: Value, message: &str| {
            let range = json!({ "start": start, "end": start });
            let diagnostics = json!([{ "range": range, "message": message }]);
            json!({ "uri": uri(path), "version": version, "diagnostics": diagnostics })
        };
        let mut heard = Heard::new();
        heard.take_errors(&publish(&path, json!(2), "not open"));
        heard.documents.push(Document { path: path.clone(), version: 2, hash: 0, published: None });
        for ignored in [json!(1), json!(3)] {
            heard.take_errors(&publish(&path, ignored, "of another text"));
        }
        heard.take_errors(&publish(&path.with_file_name("b"), json!(2), "of another file"));
        assert_eq!(heard.published(&shown), None);
        heard.take_errors(&publish(&path, json!(2), "right"));
        heard.take_errors(&publish(&path, json!(1), "late"));
        let (settled, errors) = heard.published(&shown).unwrap();
        assert!(settled <= Instant::now() && errors[0].message == "right");
        heard.take_errors(&publish(&path, Value::Null, "without a version"));
        assert!(heard.published(&shown).unwrap().0 > Instant::now());
        // Another file has changed since, and new errors because of that may be published soon.
        heard.changed = Instant::now() + Duration::from_secs(9);
        assert_eq!(heard.published(&shown).unwrap().0, heard.changed + DEPENDENT_TIME);
        let earlier = ShownText { is_saved: false, ..shown };
        assert!(heard.published(&earlier).unwrap().0 < heard.changed);
        assert_eq!(heard.published(&ShownText { version: 1, ..earlier }), None);
    }

    #[test]
    fn a_request_for_settings_is_answered_with_a_bounded_number_of_them() {
        let items = vec![json!({}); MAX_SETTINGS * 9];
        let answer = configuration(&json!({ "a": 1 }), &json!({ "items": items }));
        assert_eq!(answer.as_array().unwrap().len(), MAX_SETTINGS);
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
