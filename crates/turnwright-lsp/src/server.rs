//! A running server: its start and its end, its open documents, and the check that its answers are about the text in
//! question.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::catalogue::{LanguageServer, shown_words};
use crate::connection::{Connection, connect};
use crate::process::Launch;
use crate::protocol::{DELETED, Encoding, Problem, compiler_errors, errors_in, uri};
use crate::state::Document;
use turnwright_rpc::RequestError;
use turnwright_types::hash::std_hash;

/// The most documents that a server has open.
const MAX_DOCUMENTS: usize = 50;
/// The time after which an unused server is ended.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// The pause before a request is repeated that the server could not answer yet.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The pause before the state of a server is looked at again.
const STATE_PAUSE: Duration = Duration::from_millis(20);
/// The time that a server's last words may take to arrive.
const LAST_WORDS_TIME: Duration = Duration::from_millis(200);
/// The error codes after which a request is repeated: content modified, and cancelled by the server.
const RETRIED_CODES: [i32; 2] = [-32801, -32802];
/// The longest wait for an answer. Most waits end before, at the deadline of the call.
const MAX_WAIT: Duration = Duration::from_secs(60);
pub(crate) const LOADING: &str = "it has not loaded the project yet";
const TOO_LATE: &str = "it has not answered in time";
const UNREADABLE: &str = "its answer cannot be read";
/// The command with which servers for TypeScript pass a request on to the compiler.
const COMPILER_COMMAND: &str = "typescript.tsserverRequest";

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

/// The errors of a text, or the reason why they are not known, as part of a sentence.
type Problems = Result<Vec<Problem>, String>;

/// A server that has been initialised.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) spec: Arc<LanguageServer>,
    connection: Arc<Connection>,
    /// The unit of columns in the positions of the server.
    pub(crate) encoding: Encoding,
    is_told_saves: bool,
    can_pull: bool,
    /// True if the server passes requests on to the TypeScript compiler.
    takes_compiler_requests: bool,
}

/// Runs a server until it ends, nobody has used it for some time, or `stop` is cancelled.
pub(crate) async fn run(launch: Launch, phase: watch::Sender<Phase>, stop: CancellationToken) {
    let (mut group, pipes) = match stop.run_until_cancelled(launch.start()).await {
        Some(Ok(started)) => started,
        Some(Err(why)) => {
            phase.send_replace(Phase::Failed { why, has_worked: false });
            return;
        }
        None => return,
    };
    let root = &launch.program.workdir;
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folders = json!([{ "uri": uri(root), "name": name }]);
    let (connection, mut tasks) =
        connect(pipes.stdout, pipes.stdin, launch.spec.settings.clone(), folders);
    tasks.spawn(keep_last_words(pipes.stderr, Arc::clone(&connection)));
    let working = async {
        let server = initialize(&launch.spec, &connection, root).await?;
        phase.send_replace(Phase::Ready(Arc::new(server)));
        tokio::select! {
            () = connection.ended.cancelled() => Err("it closed its connection".to_owned()),
            () = until_unused(&connection) => Ok(()),
        }
    };
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        why = launch.ended(&mut group) => Err(why),
        end = working => end,
    };
    let has_worked = matches!(*phase.borrow(), Phase::Ready(_));
    // Another process may take over from here on.
    phase.send_replace(match result {
        Ok(()) => Phase::Idle,
        Err(why) if has_worked => Phase::Failed { why, has_worked },
        Err(why) => {
            let why = with_last_words(why, &connection, tasks).await;
            Phase::Failed { why, has_worked }
        }
    });
    // A server exits when its input is closed.
    connection.close();
    launch.stop(group).await;
}

/// Reads the error output of a server to its end, and keeps the last line.
async fn keep_last_words(mut stderr: impl AsyncRead + Unpin, connection: Arc<Connection>) {
    let mut bytes = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
        let printed = String::from_utf8_lossy(&bytes[..count]);
        if let Some(line) = printed.lines().rfind(|line| !line.trim().is_empty()) {
            connection.state.send_modify(|state| state.last_words = shown_words(line));
        }
    }
}

/// Adds the last line that the server printed to the reason of its end.
async fn with_last_words(why: String, connection: &Connection, mut tasks: JoinSet<()>) -> String {
    connection.close();
    let reading = async { while tasks.join_next().await.is_some() {} };
    timeout(LAST_WORDS_TIME, reading).await.ok();
    let state = connection.state.borrow();
    if state.last_words.is_empty() {
        return why;
    }
    format!("{why}. It printed: {}", state.last_words)
}

/// Waits until nobody has used the server for some time.
async fn until_unused(connection: &Connection) {
    loop {
        let end = connection.state.borrow().used + IDLE_TIME;
        if end <= Instant::now() {
            return;
        }
        sleep_until(end).await;
    }
}

/// Initialises the server.
async fn initialize(
    spec: &Arc<LanguageServer>,
    connection: &Arc<Connection>,
    root: &Path,
) -> Result<Server, String> {
    let params = json!({
        "processId": null,
        "clientInfo": { "name": "turnwright", "version": env!("CARGO_PKG_VERSION") },
        "rootUri": uri(root),
        "workspaceFolders": connection.folders,
        // Many servers fail without an object here.
        "initializationOptions": spec.options.as_object().cloned().unwrap_or_default(),
        "capabilities": client_capabilities()
    });
    let asking = connection.request("initialize", params, spec.startup());
    let answer = asking.await.map_err(|error| {
        format!("it could not be initialised: {}", shown_words(&error.to_string()))
    })?;
    connection.notify("initialized", &json!({}));
    if spec.settings.is_object() {
        let settings = json!({ "settings": spec.settings });
        connection.notify("workspace/didChangeConfiguration", &settings);
    }
    let capabilities = &answer["capabilities"];
    let sync = &capabilities["textDocumentSync"];
    let save = &sync["save"];
    let commands = capabilities["executeCommandProvider"]["commands"].as_array();
    Ok(Server {
        spec: Arc::clone(spec),
        connection: Arc::clone(connection),
        encoding: Encoding::deserialize(&capabilities["positionEncoding"]).unwrap_or_default(),
        is_told_saves: sync.is_u64() || save.is_object() || save == true,
        can_pull: !matches!(capabilities["diagnosticProvider"], Value::Null | Value::Bool(false)),
        takes_compiler_requests: commands.is_some_and(|all| all.contains(&json!(COMPILER_COMMAND))),
    })
}

/// Returns the client's capabilities. Servers ask for nothing beyond them.
fn client_capabilities() -> Value {
    serde_json::from_str(include_str!("capabilities.json")).unwrap_or_default()
}

impl Server {
    pub(crate) fn is_ready(&self) -> bool {
        self.connection.state.borrow().is_ready(self.spec.readiness)
    }

    /// Returns the files that are open in the server.
    pub(crate) fn shown_files(&self) -> Vec<PathBuf> {
        let state = self.connection.state.borrow();
        state.documents.iter().map(|document| document.path.clone()).collect()
    }

    /// Sends a text to the server unless the server already has it. Returns the version of the text.
    pub(crate) fn show(&self, file: &Path, text: &str) -> i64 {
        let mut version = 0;
        self.connection.state.send_modify(|state| {
            state.used = Instant::now();
            let place = state.documents.iter().position(|document| document.path == file);
            let known = place.map(|place| state.documents.remove(place));
            let hash = std_hash(text);
            let document = match known {
                Some(known) if known.hash == hash => known,
                known => {
                    state.last_version += 1;
                    self.send_text(file, text, state.last_version, known.is_some());
                    let path = file.to_path_buf();
                    Document { path, version: state.last_version, hash, published: None }
                }
            };
            version = document.version;
            state.documents.push(document);
            if state.documents.len() > MAX_DOCUMENTS {
                let oldest = state.documents.remove(0);
                self.notify_of(&oldest.path, "textDocument/didClose");
            }
        });
        version
    }

    /// Opens a document, or replaces its text. The change has no range: all servers understand that, whichever kind of
    /// changes they ask for, and it does not depend on what a server takes for a line ending.
    fn send_text(&self, file: &Path, text: &str, version: i64, is_open: bool) {
        let mut document = json!({ "uri": uri(file), "version": version });
        if is_open {
            let params = json!({ "textDocument": document, "contentChanges": [{ "text": text }] });
            self.connection.notify("textDocument/didChange", &params);
            if self.is_told_saves {
                self.notify_of(file, "textDocument/didSave");
            }
        } else {
            document["languageId"] = self.spec.language(file).into();
            document["text"] = text.into();
            self.connection.notify("textDocument/didOpen", &json!({ "textDocument": document }));
        }
    }

    fn notify_of(&self, file: &Path, method: &str) {
        self.connection.notify(method, &json!({ "textDocument": { "uri": uri(file) } }));
    }

    /// Tells the server which files have changed, with the events of the protocol.
    pub(crate) fn note_events(&self, events: &[Value]) {
        self.connection.notify("workspace/didChangeWatchedFiles", &json!({ "changes": events }));
    }

    /// Closes the document of a file that was deleted.
    pub(crate) fn close_deleted(&self, file: &Path) {
        self.note_events(&[json!({ "uri": uri(file), "type": DELETED })]);
        self.notify_of(file, "textDocument/didClose");
        self.connection.state.send_modify(|state| {
            state.documents.retain(|document| document.path != file);
        });
    }

    /// Waits for an answer of the server until the deadline. An error is part of a sentence.
    async fn wait_until<T>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = T>,
    ) -> Result<T, String> {
        let waiting = timeout_at(deadline, answer);
        match self.connection.ended.run_until_cancelled(waiting).await {
            Some(Ok(answer)) => Ok(answer),
            None => Err("it has just ended".to_owned()),
            Some(Err(_)) if self.is_ready() => Err(TOO_LATE.to_owned()),
            Some(Err(_)) => Err(LOADING.to_owned()),
        }
    }

    /// Waits until the server has loaded the project. Fails at once while it says that it could not.
    async fn loaded(&self) -> Result<(), String> {
        while !self.is_ready() {
            if self.connection.state.borrow().is_loaded == Some(false) {
                return Err(LOADING.to_owned());
            }
            sleep(STATE_PAUSE).await;
        }
        Ok(())
    }

    /// Finds the errors of a text that the server was shown.
    async fn errors_of(&self, file: &Path, version: i64) -> Problems {
        self.loaded().await?;
        let state = &self.connection.state;
        if self.takes_compiler_requests
            && let Ok(errors) = self.compiler_errors(file).await
        {
            return Ok(errors);
        }
        loop {
            // A server may register for this at any time after its start.
            let can_pull = self.can_pull || state.borrow().wants_pulls();
            if can_pull {
                let mut errors = self.pull(file).await?;
                errors.extend(state.borrow().published(file, version).unwrap_or_default());
                return Ok(errors);
            }
            if let Some(errors) = state.borrow().published(file, version) {
                return Ok(errors);
            }
            sleep(STATE_PAUSE).await;
        }
    }

    /// Asks the compiler behind a TypeScript server for the errors of a document. The server itself publishes nothing
    /// for a text without errors if there were none before.
    async fn compiler_errors(&self, file: &Path) -> Problems {
        let mut errors = Vec::new();
        for request in ["syntacticDiagnosticsSync", "semanticDiagnosticsSync"] {
            // Not all of these servers take an address here.
            let arguments = json!([request, { "file": file.to_string_lossy() }]);
            let params = json!({ "command": COMPILER_COMMAND, "arguments": arguments });
            let asking = self.connection.request("workspace/executeCommand", params, MAX_WAIT);
            let answer = asking.await.map_err(|error| shown_words(&error.to_string()))?;
            errors.extend(compiler_errors(&answer["body"]).ok_or(UNREADABLE)?);
        }
        Ok(errors)
    }

    /// Asks the server for the errors of a document.
    async fn pull(&self, file: &Path) -> Problems {
        loop {
            let params = json!({ "textDocument": { "uri": uri(file) } });
            match self.connection.request("textDocument/diagnostic", params, MAX_WAIT).await {
                Ok(report) => {
                    let errors = errors_in(&report["items"]);
                    return errors.ok_or_else(|| UNREADABLE.to_owned());
                }
                Err(RequestError::ErrorResponse(error)) if RETRIED_CODES.contains(&error.code) => {
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(shown_words(&error.to_string())),
            }
        }
    }

    /// Sends a request and waits for its result until the deadline. An error is part of a sentence.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        deadline: Instant,
    ) -> Result<Value, String> {
        let answer = self.wait_until(deadline, async {
            self.loaded().await?;
            let asking = self.connection.request(method, params, MAX_WAIT);
            asking.await.map_err(|error| shown_words(&error.to_string()))
        });
        answer.await?
    }

    /// Finds the errors of a file with exactly this text. Fails with a reason, as part of a sentence, if they are not
    /// known by the deadline.
    pub(crate) async fn errors(&self, file: &Path, text: &str, deadline: Instant) -> Problems {
        let version = self.show(file, text);
        let finding = Box::pin(self.errors_of(file, version));
        let mut errors = self.wait_until(deadline, finding).await??;
        errors.sort();
        errors.dedup();
        // Another call may have shown a newer text in the meantime.
        let is_same = self.connection.state.borrow().document(file, version).is_some();
        is_same.then_some(errors).ok_or_else(|| "the file was changed again".to_owned())
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
        /// The parameters of the first request.
        first: Value,
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
    async fn started(capabilities: &Value) -> (Server, Peer, JoinSet<()>) {
        let (output, server_output) = duplex(64 * 1024);
        let (server_input, input) = duplex(64 * 1024);
        let (connection, tasks) = connect(output, input, Value::Null, Value::Null);
        let frames = FrameReader::new(server_input);
        let mut peer = Peer { frames, output: server_output, first: Value::Null };
        let spec = Arc::new(crate::catalogue::known_servers()[3].clone());
        let root = file();
        let answering = async {
            let mut request = peer.next().await;
            peer.first = request["params"].take();
            let result = json!({ "capabilities": capabilities });
            peer.say(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
            assert_eq!(peer.next().await["method"], "initialized");
        };
        let (server, ()) = tokio::join!(initialize(&spec, &connection, &root), answering);
        (server.unwrap(), peer, tasks)
    }

    fn almost_now() -> Instant {
        Instant::now() + Duration::from_millis(60)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(9)
    }

    #[test]
    fn our_capabilities_are_sent() {
        assert_eq!(client_capabilities()["window"]["workDoneProgress"], true);
    }

    #[tokio::test]
    async fn a_server_without_options_is_sent_an_empty_object() {
        let (_server, peer, _tasks) = started(&json!({})).await;
        assert_eq!(peer.first["initializationOptions"], json!({}));
    }

    #[tokio::test]
    async fn errors_of_an_earlier_text_are_never_those_of_a_later_one() {
        let sync = json!({ "textDocumentSync": { "change": 2, "save": { "includeText": false } } });
        let (server, mut peer, _tasks) = started(&sync).await;
        let old = server.show(&file(), "a\n\u{e4}b");
        assert_eq!(peer.next().await["params"]["textDocument"]["languageId"], "python");
        let new = server.show(&file(), "new");
        assert_ne!(old, new);
        let change = peer.next().await["params"].take();
        assert_eq!(change["textDocument"]["version"], new);
        assert_eq!(change["contentChanges"], json!([{ "text": "new" }]));
        assert_eq!(peer.next().await["method"], "textDocument/didSave");
        peer.publish(&json!(old), "stale").await;
        let early = server.errors(&file(), "new", almost_now()).await;
        assert_eq!(early, Err(TOO_LATE.to_owned()));
        peer.publish(&json!(new), "right").await;
        let found = server.errors(&file(), "new", soon()).await.unwrap();
        assert_eq!(found[0].message, "right");
        // The earlier text is no longer open.
        assert_eq!(server.connection.state.borrow().published(&file(), old), None);
        assert_eq!(server.show(&file(), "new"), new);
        server.show(&file(), "newest");
        peer.publish(&Value::Null, "without a version").await;
        let found = server.errors(&file(), "newest", soon()).await.unwrap();
        assert_eq!(found[0].message, "without a version");
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_and_one_that_has_ended_knows_nothing() {
        let (server, mut peer, _tasks) = started(&json!({ "diagnosticProvider": {} })).await;
        server.show(&file(), "text");
        assert_eq!(peer.next().await["method"], "textDocument/didOpen");
        let path = file();
        let asking = server.errors(&path, "text", soon());
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
        assert_eq!(errors, Ok(Vec::new()));
        drop(peer);
        assert!(server.errors(&path, "text", soon()).await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_could_not_load_the_project_is_not_waited_for() {
        let (mut server, mut peer, _tasks) = started(&json!({})).await;
        let mut known = crate::catalogue::known_servers().iter();
        let spec = known.find(|known| known.name == "rust-analyzer").unwrap();
        server.spec = Arc::new(spec.clone());
        let status = json!({ "quiescent": true, "health": "error" });
        let method = "experimental/serverStatus";
        peer.say(&json!({ "jsonrpc": "2.0", "method": method, "params": status })).await;
        let path = file();
        let asking = async {
            let errors = server.errors(&path, "text", soon()).await;
            (errors, server.request("x", json!({}), soon()).await)
        };
        let answers = timeout_at(Instant::now() + Duration::from_secs(7), asking).await;
        assert_eq!(answers.unwrap(), (Err(LOADING.to_owned()), Err(LOADING.to_owned())));
    }

    #[tokio::test]
    async fn the_compiler_behind_a_typescript_server_is_asked() {
        let commands = json!({ "executeCommandProvider": { "commands": [COMPILER_COMMAND] } });
        let (server, mut peer, _tasks) = started(&commands).await;
        let path = file();
        server.show(&path, "text");
        peer.next().await;
        let asking = server.errors(&path, "text", soon());
        let answering = async {
            for errors in [
                json!([]),
                json!([{ "start": { "line": 2, "offset": 9 },
                "end": { "line": 2, "offset": 13 }, "text": "no", "code": 2322, "category": "error" }]),
            ] {
                let request = peer.next().await;
                assert_eq!(request["params"]["command"], COMPILER_COMMAND);
                let result = json!({ "body": errors });
                peer.say(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
            }
        };
        let (errors, ()) = tokio::join!(asking, answering);
        let found = errors.unwrap().remove(0);
        assert_eq!((found.range.start.line, found.range.start.character), (1, 8));
        assert_eq!((&*found.code, &*found.message), ("2322", "no"));
        // Published errors count if the compiler does not answer.
        let asking = server.errors(&path, "text", soon());
        let answering = async {
            let id = peer.next().await["id"].take();
            peer.say(&json!({ "jsonrpc": "2.0", "id": id, "result": { "success": false } })).await;
            peer.publish(&Value::Null, "published").await;
        };
        let (errors, ()) = tokio::join!(asking, answering);
        assert_eq!(errors.unwrap()[0].message, "published");
    }

    #[tokio::test]
    async fn the_number_of_open_documents_is_bounded() {
        let (server, mut peer, _tasks) = started(&json!({ "textDocumentSync": 1 })).await;
        for number in 0..=MAX_DOCUMENTS {
            server.show(&file().with_file_name(format!("{number}.py")), "text");
            assert_eq!(peer.next().await["method"], "textDocument/didOpen");
        }
        let closed = peer.next().await;
        assert_eq!(closed["method"], "textDocument/didClose");
        assert!(closed["params"]["textDocument"]["uri"].as_str().unwrap().ends_with("/0.py"));
        assert_eq!(server.shown_files().len(), MAX_DOCUMENTS);
    }
}
