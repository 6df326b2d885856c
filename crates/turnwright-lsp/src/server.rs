//! A running server: its start and its end, its open documents, and the check that its answers are about the text in
//! question.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::catalogue::LanguageServer;
use crate::connection::{Connection, Document, Heard, connect};
use crate::process::{Launch, ServerProcess, keep_tail, shown_words, with_tail};
use crate::protocol::{Encoding, Problem, errors_in, uri};
use crate::source::{DiagnosticSource, FileEvent, ShownText};
use turnwright_rpc::RequestError;
use turnwright_types::hash::std_hash;

/// The most documents that a server has open.
const MAX_DOCUMENTS: usize = 50;
/// The pause before a request is repeated that the server could not answer yet.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The error codes after which a request is repeated: content modified, and cancelled by the server.
const RETRIED_CODES: [i32; 2] = [-32801, -32802];
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);

/// The state of a server.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Starting,
    Ready(Arc<Server>),
    /// The server was ended because it was not used, or because the session stopped it.
    Idle,
    /// The server has ended or could not be started. `why` is part of a sentence.
    Failed {
        why: String,
        has_worked: bool,
    },
}

/// A server that has been initialised.
#[derive(Debug)]
pub(crate) struct Server {
    spec: Arc<LanguageServer>,
    connection: Connection,
    encoding: Encoding,
    is_told_saves: bool,
    can_pull: bool,
}

/// Runs a server until it ends, nobody has used it for `idle_time`, or `stop` is cancelled.
pub(crate) async fn run(
    launch: Launch,
    (memory, idle_time): (u64, Duration),
    phase: watch::Sender<Phase>,
    stop: CancellationToken,
) {
    let spec = Arc::clone(&launch.spec);
    let root = launch.root.clone();
    let mut has_worked = false;
    let end = match stop.run_until_cancelled(ServerProcess::start(launch)).await {
        None => None,
        Some(Err(why)) => Some(why),
        Some(Ok((mut process, pipes))) => {
            let name = root.file_name().unwrap_or_default().to_string_lossy();
            let folders = json!([{ "uri": uri(&root), "name": name }]);
            let (connection, mut tasks) =
                connect(pipes.stdout, pipes.stdin, spec.settings.clone(), folders.clone());
            let stderr = watch::Sender::new(Vec::new());
            tasks.spawn(keep_tail(pipes.stderr, stderr.clone()));
            let working = async {
                let server = initialize(&spec, &connection, &root, &folders).await?;
                phase.send_replace(Phase::Ready(Arc::new(server)));
                has_worked = true;
                tokio::select! {
                    () = connection.ended() => Err("it closed its connection".to_owned()),
                    () = unused(&connection, idle_time) => Ok(()),
                }
            };
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                why = process.ended(memory) => Err(why),
                ended = working => ended,
            };
            if end.is_ok() {
                shut_down(&connection).await;
            }
            connection.close();
            process.stop().await;
            let tail = stderr.borrow().clone();
            end.err().map(|why| with_tail(why, &tail))
        }
    };
    phase.send_replace(match end {
        None => Phase::Idle,
        Some(why) => {
            tracing::debug!(name = %spec.name, %why, "a language server has ended");
            Phase::Failed { why, has_worked }
        }
    });
}

/// Waits until nobody has used the server for this time.
async fn unused(connection: &Connection, idle_time: Duration) {
    loop {
        let end = connection.heard().borrow().used + idle_time;
        if end <= Instant::now() {
            return;
        }
        sleep_until(end).await;
    }
}

async fn shut_down(connection: &Connection) {
    connection.request("shutdown", Value::Null, SHUTDOWN_TIMEOUT).await.ok();
    connection.notify("exit", Value::Null);
}

/// Initialises the server.
async fn initialize(
    spec: &Arc<LanguageServer>,
    connection: &Connection,
    root: &Path,
    folders: &Value,
) -> Result<Server, String> {
    let params = json!({
        "processId": null,
        "clientInfo": { "name": "turnwright", "version": env!("CARGO_PKG_VERSION") },
        "rootUri": uri(root),
        "workspaceFolders": folders,
        "initializationOptions": spec.options,
        "capabilities": client_capabilities()
    });
    let answer = connection.request("initialize", params, spec.startup()).await;
    let capabilities = match answer {
        Ok(answer) => answer["capabilities"].clone(),
        Err(error) => {
            let why = shown_words(&error.to_string());
            return Err(format!("it could not be initialised: {why}"));
        }
    };
    connection.notify("initialized", json!({}));
    if spec.settings.as_object().is_some_and(|settings| !settings.is_empty()) {
        let settings = json!({ "settings": spec.settings });
        connection.notify("workspace/didChangeConfiguration", settings);
    }
    let sync = &capabilities["textDocumentSync"];
    let save = &sync["save"];
    Ok(Server {
        spec: Arc::clone(spec),
        connection: connection.clone(),
        encoding: Encoding::of(&capabilities),
        is_told_saves: sync.is_u64() || save.is_object() || save == true,
        can_pull: !matches!(capabilities["diagnosticProvider"], Value::Null | Value::Bool(false)),
    })
}

/// Returns the client's capabilities. Servers ask for nothing beyond them.
fn client_capabilities() -> Value {
    serde_json::from_str(include_str!("capabilities.json")).unwrap_or_default()
}

impl Server {
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.is_ended()
    }

    /// Sends a text to the server unless the server already has it. Returns the version of the text.
    fn tell(&self, heard: &mut Heard, file: &Path, text: &str, is_saved: bool) -> i64 {
        heard.used = Instant::now();
        let place = heard.documents.iter().position(|document| document.path == file);
        let known = place.map(|place| heard.documents.remove(place));
        let hash = std_hash(text);
        let document = match known {
            Some(known) if known.hash == hash => known,
            known => {
                heard.changed = Instant::now();
                heard.last_version += 1;
                let version = heard.last_version;
                let path = file.to_path_buf();
                let document = Document { path, version, hash, published: None };
                self.send_text(&document, known.is_some(), text);
                if is_saved && self.is_told_saves {
                    self.notify_of(file, "textDocument/didSave");
                }
                document
            }
        };
        let version = document.version;
        heard.documents.push(document);
        if heard.documents.len() > MAX_DOCUMENTS {
            let oldest = heard.documents.remove(0);
            self.notify_of(&oldest.path, "textDocument/didClose");
        }
        version
    }

    /// Opens a document, or replaces its text. The change has no range: all servers understand that, whichever kind of
    /// changes they ask for, and it does not depend on what a server takes for a line ending.
    fn send_text(&self, document: &Document, is_open: bool, text: &str) {
        let mut about = json!({ "uri": uri(&document.path), "version": document.version });
        if is_open {
            let params = json!({ "textDocument": about, "contentChanges": [{ "text": text }] });
            return self.connection.notify("textDocument/didChange", params);
        }
        about["languageId"] = self.spec.language(&document.path).into();
        about["text"] = text.into();
        self.connection.notify("textDocument/didOpen", json!({ "textDocument": about }));
    }

    fn notify_of(&self, file: &Path, method: &str) {
        self.connection.notify(method, json!({ "textDocument": { "uri": uri(file) } }));
    }

    /// Waits until the server has loaded the project.
    async fn wait_until_ready(&self, deadline: Instant) -> Option<()> {
        let is_ready = self.wait_for(deadline, |heard| {
            let soon = Instant::now() + RETRY_PAUSE;
            heard.is_ready(self.spec.readiness).then_some(()).ok_or(soon)
        });
        is_ready.await
    }

    /// Waits until the server publishes the errors of a document.
    async fn wait_for_publication(
        &self,
        shown: &ShownText,
        deadline: Instant,
    ) -> Option<Vec<Problem>> {
        let publication = self.wait_for(deadline, |heard| match heard.published(shown) {
            Some((settled, errors)) if settled <= Instant::now() => Ok(errors),
            Some((settled, _)) => Err(settled),
            None => Err(deadline),
        });
        publication.await
    }

    /// Waits until `find` returns a value. `find` is called when the state of the server changes, and at the time that
    /// its last error named. Returns `None` at the deadline and after the end of the server.
    async fn wait_for<T>(
        &self,
        deadline: Instant,
        find: impl Fn(&Heard) -> Result<T, Instant>,
    ) -> Option<T> {
        let mut heard = self.connection.heard().subscribe();
        loop {
            let until = match find(&heard.borrow_and_update()) {
                Ok(found) => return Some(found),
                Err(until) => until.min(deadline),
            };
            if Instant::now() >= deadline {
                return None;
            }
            tokio::select! {
                biased;
                () = self.connection.ended() => return None,
                news = heard.changed() => news.ok()?,
                () = sleep_until(until) => {}
            }
        }
    }

    /// Asks the server for the errors of a document.
    async fn pull(&self, shown: &ShownText, deadline: Instant) -> Option<Vec<Problem>> {
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let params = json!({ "textDocument": { "uri": uri(&shown.path) } });
            match self.connection.request("textDocument/diagnostic", params, left).await {
                Ok(report) => return errors_in(&report["items"]),
                Err(RequestError::ErrorResponse(error)) if RETRIED_CODES.contains(&error.code) => {
                    sleep(RETRY_PAUSE).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl DiagnosticSource for Server {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn is_ready(&self) -> bool {
        self.connection.heard().borrow().is_ready(self.spec.readiness)
    }

    fn show(&self, file: &Path, text: &str, is_saved: bool) -> ShownText {
        let mut shown = ShownText { path: file.to_path_buf(), version: 0, is_saved };
        self.connection.heard().send_modify(|heard| {
            shown.version = self.tell(heard, file, text, is_saved);
        });
        shown
    }

    fn shown_files(&self) -> Vec<PathBuf> {
        let heard = self.connection.heard().borrow();
        heard.documents.iter().map(|document| document.path.clone()).collect()
    }

    fn note_events(&self, events: &[(PathBuf, FileEvent)]) {
        let changes: Vec<_> = events
            .iter()
            .map(|(path, event)| json!({ "uri": uri(path), "type": *event as u8 }))
            .collect();
        let params = json!({ "changes": changes });
        self.connection.notify("workspace/didChangeWatchedFiles", params);
        self.connection.heard().send_modify(|heard| {
            heard.documents.retain(|document| {
                let gone = (document.path.clone(), FileEvent::Deleted);
                let is_gone = events.contains(&gone);
                if is_gone {
                    self.notify_of(&document.path, "textDocument/didClose");
                }
                !is_gone
            });
        });
    }

    fn errors<'a>(
        &'a self,
        shown: &'a ShownText,
        deadline: Instant,
    ) -> BoxFuture<'a, Option<Vec<Problem>>> {
        Box::pin(async move {
            self.wait_until_ready(deadline).await?;
            let wants_pulls = self.connection.heard().borrow().wants_pulls;
            let mut errors = if self.can_pull || wants_pulls {
                let mut pulled = self.pull(shown, deadline).await?;
                let pushed = self.connection.heard().borrow().published(shown);
                pulled.extend(pushed.into_iter().flat_map(|(_, errors)| errors));
                pulled
            } else {
                self.wait_for_publication(shown, deadline).await?
            };
            errors.sort();
            errors.dedup();
            // Another call may have shown a newer text in the meantime.
            let is_same = self.connection.heard().borrow().document(shown).is_some();
            is_same.then_some(errors)
        })
    }

    fn request<'a>(
        &'a self,
        method: &'static str,
        params: Value,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            self.connection.heard().send_modify(|heard| heard.used = Instant::now());
            let ready = self.wait_until_ready(deadline).await;
            ready.ok_or("it has not loaded the project yet")?;
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.connection.request(method, params, left).await;
            answer.map_err(|error| match error {
                RequestError::TimedOut(_) => "it has not answered in time".to_owned(),
                other => other.to_string(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::framing::{FrameReader, frame};

    struct Peer {
        frames: FrameReader<DuplexStream>,
        output: DuplexStream,
    }

    impl Peer {
        async fn next(&mut self) -> Value {
            serde_json::from_slice(&self.frames.next().await.unwrap().unwrap()).unwrap()
        }

        async fn say(&mut self, message: &Value) {
            self.output.write_all(&frame(message.to_string().as_bytes())).await.unwrap();
        }

        async fn publish(&mut self, version: &Value, message: &str) {
            let range = json!({
                "start": { "line": 0, "character": 0 },
                "end": { "line": 0, "character": 1 }
            });
            let params = json!({
                "uri": uri(&file()),
                "version": version,
                "diagnostics": [{ "range": range, "message": message }]
            });
            let method = "textDocument/publishDiagnostics";
            self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
        }
    }

    fn file() -> PathBuf {
        if cfg!(windows) { "C:\\w\\a.py".into() } else { "/w/a.py".into() }
    }

    /// Returns an initialised server with these capabilities.
    async fn started(capabilities: &Value) -> (Server, Peer, tokio::task::JoinSet<()>) {
        let (output, server_output) = duplex(64 * 1024);
        let (server_input, input) = duplex(64 * 1024);
        let (connection, tasks) = connect(output, input, Value::Null, Value::Null);
        let mut peer = Peer { frames: FrameReader::new(server_input), output: server_output };
        let spec = Arc::new(crate::catalogue::known_servers().remove(3));
        let root = file();
        let answering = async {
            let request = peer.next().await;
            let result = json!({ "capabilities": capabilities });
            peer.say(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
            assert_eq!(peer.next().await["method"], "initialized");
        };
        let (server, ()) =
            tokio::join!(initialize(&spec, &connection, &root, &Value::Null), answering);
        (server.unwrap(), peer, tasks)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(9)
    }

    #[test]
    fn our_capabilities_are_sent() {
        assert_eq!(client_capabilities()["window"]["workDoneProgress"], true);
    }

    #[tokio::test]
    async fn errors_of_an_earlier_text_are_never_those_of_a_later_one() {
        let sync = json!({ "textDocumentSync": { "change": 2, "save": { "includeText": false } } });
        let (server, mut peer, _tasks) = started(&sync).await;
        let old = server.show(&file(), "a\n\u{e4}b", false);
        assert_eq!(peer.next().await["params"]["textDocument"]["languageId"], "python");
        let new = server.show(&file(), "new", true);
        assert_ne!(old.version, new.version);
        let change = peer.next().await["params"].take();
        assert_eq!(change["textDocument"]["version"], new.version);
        assert_eq!(change["contentChanges"], json!([{ "text": "new" }]));
        assert_eq!(peer.next().await["method"], "textDocument/didSave");
        peer.publish(&json!(old.version), "stale").await;
        let early = server.errors(&new, Instant::now() + Duration::from_millis(60)).await;
        assert_eq!(early, None);
        peer.publish(&json!(new.version), "right").await;
        let found = server.errors(&new, soon()).await.unwrap();
        assert_eq!(found[0].message, "right");
        // The earlier text is no longer open.
        assert_eq!(server.errors(&old, Instant::now() + Duration::from_millis(60)).await, None);
        let same = server.show(&file(), "new", true);
        assert_eq!(same, new);
        let newest = server.show(&file(), "newest", false);
        peer.publish(&Value::Null, "without a version").await;
        let found = server.errors(&newest, soon()).await.unwrap();
        assert_eq!(found[0].message, "without a version");
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_and_one_that_has_ended_knows_nothing() {
        let (server, mut peer, _tasks) = started(&json!({ "diagnosticProvider": {} })).await;
        let shown = server.show(&file(), "text", false);
        assert_eq!(peer.next().await["method"], "textDocument/didOpen");
        let asking = server.errors(&shown, soon());
        let answering = async {
            for code in RETRIED_CODES {
                let request = peer.next().await;
                let error = json!({ "code": code, "message": "busy" });
                peer.say(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error })).await;
            }
            let request = peer.next().await;
            let result = json!({ "kind": "full", "items": [] });
            peer.say(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
        };
        let (errors, ()) = tokio::join!(asking, answering);
        assert_eq!(errors, Some(Vec::new()));
        drop(peer);
        assert_eq!(server.errors(&shown, soon()).await, None);
    }

    #[tokio::test]
    async fn the_number_of_open_documents_is_bounded() {
        let (server, mut peer, _tasks) = started(&json!({ "textDocumentSync": 1 })).await;
        for number in 0..=MAX_DOCUMENTS {
            server.show(&file().with_file_name(format!("{number}.py")), "text", false);
            assert_eq!(peer.next().await["method"], "textDocument/didOpen");
        }
        let closed = peer.next().await;
        assert_eq!(closed["method"], "textDocument/didClose");
        assert!(closed["params"]["textDocument"]["uri"].as_str().unwrap().ends_with("/0.py"));
        assert_eq!(server.shown_files().len(), MAX_DOCUMENTS);
    }
}
