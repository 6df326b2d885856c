//! The test client: exchanges messages with the agent, and fails on everything that would break a real
//! client.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::builder::TestAgentBuilder;
use crate::hosted_server::HostedHandler;
use crate::process_waits::{Input, LIMIT};
use crate::protocol::Protocol;
use crate::replies::prompt;
use crate::schema;
use crate::scripted_model::Server;
use crate::transcript::{summarize_all, summarize_model_message};
use crate::transport::{Launch, Transport};

/// An agent with its client and its scripted model. Dropping this value closes the agent's stdin
/// and requires that the agent ends soon and successfully, and has written nothing to stderr.
pub struct TestAgent<T: Transport> {
    pub(crate) transport: T,
    pub(crate) stdin: Option<Input>,
    pub(crate) messages: Receiver<Value>,
    /// Every message from the agent so far, in order.
    pub log: Vec<Value>,
    /// The number of messages in the log that `wait_for` has consumed.
    pub(crate) consumed: usize,
    /// The id and method of each request that was sent.
    pub(crate) sent_requests: Vec<(Value, String)>,
    pub(crate) next_id: i64,
    /// The session that `start` opened.
    pub session: String,
    pub(crate) model: Option<Server>,
    pub(crate) workspace: TempDir,
    pub(crate) home: TempDir,
    /// How the agent was started, so that `restart` can start it again.
    pub(crate) launch: Launch,
    /// The MCP servers that each session is opened with.
    pub servers: Vec<Value>,
    pub(crate) capabilities: Value,
    pub(crate) permission: Option<&'static str>,
    pub(crate) allows_stderr: bool,
    /// Whether the agent has ended and its end was checked, or the agent was killed.
    pub(crate) has_ended: bool,
    /// The number of messages that told the user that there is no sandbox. These messages, and those
    /// about gaps of the sandbox and a disk that is slow, depend on the machine and not on the test, so
    /// they are not in the log.
    pub told_of_no_sandbox: usize,
    pub(crate) protocol: Protocol,
    /// Answers for the MCP servers that the client hosts.
    pub(crate) hosted: Option<HostedHandler>,
}

impl<T: Transport> TestAgent<T> {
    pub(crate) fn initialize_connection(&mut self) {
        let info = json!({ "name": "test", "version": "1" });
        let capabilities = &self.capabilities;
        let (params, version) = match self.protocol {
            Protocol::V2 => {
                (json!({ "protocolVersion": 2, "info": info, "capabilities": capabilities }), 2)
            }
            _ => (
                json!({
                    "protocolVersion": 1, "clientInfo": info, "clientCapabilities": capabilities,
                }),
                1,
            ),
        };
        let answer = self.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
    }

    /// Ends the agent, unless it was killed, and starts another one with the same files and model. Clears
    /// the log.
    pub fn restart(&mut self) {
        if !self.has_ended {
            T::check_end(self.close(), true);
        }
        let (transport, pipes) = T::start(&self.launch);
        self.transport = transport;
        self.stdin = Some(pipes.stdin);
        self.messages = pipes.messages;
        self.log.clear();
        self.sent_requests.clear();
        self.protocol = self.protocol.restarted();
        self.consumed = 0;
        self.has_ended = false;
        self.initialize_connection();
    }

    /// Returns how the agent was started.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Breaks the agent off with `end`. How it has ended is not checked.
    pub fn break_off(&mut self, end: impl FnOnce(&mut T)) {
        end(&mut self.transport);
        self.has_ended = true;
    }

    /// Returns the builder of an agent with a scripted model without replies, in an empty
    /// workspace.
    pub fn builder() -> TestAgentBuilder<T> {
        TestAgentBuilder::new(Some(json!([])))
    }

    /// Returns the builder of an agent with the built-in offline model.
    pub fn offline() -> TestAgentBuilder<T> {
        TestAgentBuilder::new(None).variable("TURNWRIGHT_MODEL", "offline")
    }

    /// Returns the builder of an agent without a configured model.
    pub fn unconfigured() -> TestAgentBuilder<T> {
        TestAgentBuilder::new(None)
    }

    /// Returns the scripted model.
    pub fn model(&self) -> &Server {
        self.model.as_ref().expect("this agent has no scripted model")
    }

    /// Waits for the n-th request to the model, counted from 0, and returns its body.
    pub fn model_request(&self, number: usize) -> Value {
        let requests = self.model().wait_for_requests(number + 1, LIMIT).unwrap();
        requests[number].body.clone()
    }

    /// Returns the messages of the n-th request to the model without the system prompt, one line
    /// each.
    pub fn model_transcript(&self, number: usize) -> Vec<String> {
        let body = self.model_request(number);
        let messages = body["messages"].as_array().unwrap();
        messages.iter().skip(1).map(summarize_model_message).collect()
    }

    /// Returns the names of the tools that the n-th request to the model offers, counted from 0.
    pub fn offered_tools(&self, number: usize) -> Vec<String> {
        let body = self.model_request(number);
        let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns those of them that are of MCP servers.
    pub fn server_tools(&self, number: usize) -> Vec<String> {
        let tools = self.offered_tools(number).into_iter();
        tools.filter(|it| it.starts_with("mcp__")).collect()
    }

    /// Returns the folder of the workspace.
    pub fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// Returns the folder of the agent's own files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns a path in the workspace, with the separators of the system.
    pub fn path(&self, path: &str) -> PathBuf {
        self.workspace.path().join(path.replace('/', std::path::MAIN_SEPARATOR_STR))
    }

    /// Returns the content of a file in the workspace.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// Writes raw bytes to the agent.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stdin.as_ref().expect("stdin is open").write(bytes).unwrap();
    }

    /// Writes a line to the agent.
    pub fn send_line(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Sends a request with the given id.
    pub fn send_request(&mut self, id: &Value, method: &str, params: &Value) {
        let (method, params) = self.translated(id, method, params);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.sent_requests.push((id.clone(), method));
        self.send_line(&message.to_string());
    }

    /// A request in the version that is spoken.
    fn translated(&mut self, id: &Value, method: &str, params: &Value) -> (String, Value) {
        match &mut self.protocol {
            Protocol::Translated(translator) => translator.request(id, method, params),
            Protocol::V1 | Protocol::V2 => (method.to_owned(), params.clone()),
        }
    }

    /// Sends a request and returns its id.
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send_request(&id, method, params);
        id
    }

    /// Prepares a request that the test sends as part of other data. Returns its id and its line.
    pub fn request_line(&mut self, method: &str, params: &Value) -> (Value, String) {
        let id = json!(self.next_id);
        self.next_id += 1;
        let (method, params) = self.translated(&id, method, params);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.sent_requests.push((id.clone(), method));
        (id, format!("{message}\n"))
    }

    /// Sends a request and waits for its answer, result or error.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer_to(&id)
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send_line(&message.to_string());
    }

    /// Requests another session in the workspace and returns the whole answer.
    pub fn call_new_session(&mut self) -> Value {
        let params = json!({ "cwd": self.workspace.path(), "mcpServers": self.servers });
        self.call("session/new", &params)
    }

    /// Opens another session in the workspace.
    pub fn new_session(&mut self) -> String {
        let answer = self.call_new_session();
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Loads a session of the workspace and makes it the current one.
    pub fn load(&mut self, session: &str) {
        let params = json!({
            "cwd": self.workspace.path(), "mcpServers": self.servers, "sessionId": session,
        });
        let answer = self.call("session/load", &params);
        assert!(answer["result"].is_object(), "{answer}");
        session.clone_into(&mut self.session);
    }

    /// Sends a text prompt and returns the id of the request.
    pub fn prompt(&mut self, text: &str) -> Value {
        let params = prompt(&self.session, text);
        self.request("session/prompt", &params)
    }

    /// Sends a prompt and waits for the stop reason.
    pub fn turn(&mut self, text: &str) -> String {
        let id = self.prompt(text);
        self.stop_reason(&id)
    }

    /// Runs a turn that must end by itself, and returns the text of its answer.
    #[track_caller]
    pub fn turn_text(&mut self, prompt: &str) -> String {
        let before = self.text().len();
        assert_eq!(self.turn(prompt), "end_turn", "{prompt}");
        self.text()[before..].to_owned()
    }

    /// Waits for the stop reason of a prompt. In version 2 this is that of the next turn that ends.
    pub fn stop_reason(&mut self, id: &Value) -> String {
        if matches!(self.protocol, Protocol::V2) {
            self.answer_to(id);
            let session = self.session.clone();
            // Helpers have states, too.
            let is_idle = |it: &Value| {
                it["params"]["update"]["stopReason"].is_string()
                    && it["params"]["sessionId"] == session.as_str()
            };
            let idle = self.wait_for("the end of the turn", is_idle);
            return idle["params"]["update"]["stopReason"].as_str().unwrap_or_default().to_owned();
        }
        let answer = self.answer_to(id);
        answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Cancels the session's turn.
    pub fn cancel(&mut self) {
        let session = self.session.clone();
        self.notify("session/cancel", &json!({ "sessionId": session }));
    }

    /// Answers a request of the agent.
    pub fn respond(&mut self, request: &Value, result: &Value) {
        let message = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        self.send_line(&message.to_string());
    }

    /// Answers a request of the agent with an error.
    pub fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        let message = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error });
        self.send_line(&message.to_string());
    }

    /// Chooses an option of a permission request.
    pub fn choose(&mut self, request: &Value, option: &str) {
        self.respond(request, &json!({ "outcome": { "outcome": "selected", "optionId": option } }));
    }

    /// Receives a message, checks it against the schema and logs it. Returns `None` after a timeout.
    fn receive(&mut self, limit: Duration) -> Option<()> {
        let message = self.messages.recv_timeout(limit).ok()?;
        let method = self.sent_requests.iter().rev().find(|it| it.0 == message["id"]);
        let method = method.map(|it| it.1.as_str());
        schema::check_version(self.protocol.version(method, &message), &message, method);
        match &mut self.protocol {
            Protocol::V1 | Protocol::V2 => self.log_message(message),
            Protocol::Translated(translator) => {
                for message in translator.message(message) {
                    self.log_message(message);
                }
            }
        }
        Some(())
    }

    fn log_message(&mut self, message: Value) {
        let update = &message["params"]["update"];
        let text = update["content"]["text"].as_str().or_else(|| update["title"].as_str());
        if text.is_some_and(|it| it.starts_with("The sandbox is not available here")) {
            self.told_of_no_sandbox += 1;
            return;
        }
        let is_of_the_machine = |it: &str| {
            it.starts_with("The sandbox has gaps here") || it.contains("the disk does not respond")
        };
        if text.is_some_and(is_of_the_machine) {
            return;
        }
        let is_permission_request = message["method"] == "session/request_permission";
        if let Some(option) = self.permission.filter(|_| is_permission_request) {
            self.choose(&message, option);
        }
        self.answer_hosted(&message);
        self.log.push(message);
    }

    /// Waits for the next unconsumed message that fits, and consumes all messages up to it.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            while self.consumed < self.log.len() {
                self.consumed += 1;
                let message = &self.log[self.consumed - 1];
                if fits(message) {
                    return message.clone();
                }
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if self.receive(remaining).is_none() {
                let transcript = self.transcript().join("\n");
                panic!("timed out waiting for {what}; the messages so far:\n{transcript}");
            }
        }
    }

    /// Forgets all messages so far.
    pub fn clear_log(&mut self) {
        self.log.clear();
        self.consumed = 0;
    }

    /// Waits for an update of this kind, such as `agent_message_chunk`.
    pub fn wait_for_update(&mut self, kind: &str) -> Value {
        let message = self.wait_for(kind, |it| it["params"]["update"]["sessionUpdate"] == kind);
        message["params"]["update"].clone()
    }

    /// Waits until a tool call has this status.
    pub fn wait_for_status(&mut self, status: &str) -> Value {
        let message = self.wait_for(status, |it| it["params"]["update"]["status"] == status);
        message["params"]["update"].clone()
    }

    pub fn wait_for_request(&mut self, method: &str) -> Value {
        self.wait_for(method, |it| it["method"] == method && it.get("id").is_some())
    }

    /// Waits for the answer to a request. The answer may already have been consumed.
    pub fn answer_to(&mut self, id: &Value) -> Value {
        let is_answer = |it: &Value| it.get("method").is_none() && it.get("id") == Some(id);
        if let Some(answer) = self.log.iter().find(|it| is_answer(it)) {
            return answer.clone();
        }
        self.wait_for(&format!("the answer to {id}"), is_answer)
    }

    /// Receives messages until no message has arrived for the time `quiet`.
    pub fn settle(&mut self, quiet: Duration) {
        let end = Instant::now() + LIMIT;
        while self.receive(quiet).is_some() {
            assert!(Instant::now() < end, "the agent keeps sending messages");
        }
    }

    /// Sends a harmless request and waits for its answer, so that everything sent before is handled.
    pub fn sync(&mut self) {
        let answer = self.call("_test/sync", &json!({}));
        // The agent reports an unknown method, or a request before `initialize`.
        assert!(answer["error"]["code"] == -32601 || answer["error"]["code"] == -32600, "{answer}");
    }

    /// Returns all updates of the current session so far.
    pub fn updates(&self) -> Vec<Value> {
        let is_of_this_session = |it: &&Value| it["params"]["sessionId"] == self.session.as_str();
        let updates = self
            .log
            .iter()
            .filter(|it| it["method"] == "session/update")
            .filter(is_of_this_session);
        updates.map(|it| it["params"]["update"].clone()).collect()
    }

    /// Returns the updates of this kind of the current session.
    pub fn updates_of(&self, kind: &str) -> Vec<Value> {
        self.updates().into_iter().filter(|it| it["sessionUpdate"] == kind).collect()
    }

    /// Returns the model's text as the user sees it.
    pub fn text(&self) -> String {
        self.chunk_text("agent_message_chunk")
    }

    /// Returns the model's reasoning as the user sees it.
    pub fn thoughts(&self) -> String {
        self.chunk_text("agent_thought_chunk")
    }

    fn chunk_text(&self, kind: &str) -> String {
        let chunks = self.updates_of(kind);
        chunks.iter().filter_map(|it| it["content"]["text"].as_str()).collect()
    }

    /// Returns all received messages, one line each, with consecutive text chunks joined.
    pub fn transcript(&self) -> Vec<String> {
        let lines = summarize_all(&self.log);
        let workspace = self.workspace.path().to_string_lossy().into_owned();
        lines.iter().map(|it| it.replace(&workspace, "$WS")).collect()
    }

    /// Closes stdin, waits for the agent to end, and returns how it ended.
    pub fn close(&mut self) -> T::Ended {
        drop(self.stdin.take());
        let ended = self.transport.wait_for_end();
        self.settle(Duration::from_secs(1));
        self.has_ended = true;
        ended
    }
}

/// The number of messages that the report of a failure has.
const REPORTED_MESSAGES: usize = 60;
/// The number of characters of a message there, and of the agent's log.
const REPORTED_CHARACTERS: usize = 400;

impl<T: Transport> TestAgent<T> {
    /// Prints what helps to understand why a test has failed: the last messages and the agent's log.
    fn report(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.log.push(message);
        }
        let first = self.log.len().saturating_sub(REPORTED_MESSAGES);
        let short =
            |it: &Value| it.to_string().chars().take(REPORTED_CHARACTERS).collect::<String>();
        let messages: Vec<_> = self.log[first..].iter().map(short).collect();
        eprintln!("the last of {} messages of the agent:\n{}", self.log.len(), messages.join("\n"));
        let log = std::fs::read_to_string(self.home.path().join("state/turnwright.log"));
        let log: Vec<char> = log.unwrap_or_default().chars().collect();
        let end = &log[log.len().saturating_sub(10 * REPORTED_CHARACTERS)..];
        if !end.is_empty() {
            eprintln!("the end of the agent's log:\n{}", end.iter().collect::<String>());
        }
    }
}

impl<T: Transport> Drop for TestAgent<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.stdin.take());
            self.report();
            self.transport.abandon();
        } else if !self.has_ended {
            T::check_end(self.close(), self.allows_stderr);
        }
    }
}
