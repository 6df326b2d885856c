//! The test client: starts the agent, exchanges messages with it, and fails on everything that would
//! break a real client.
//!
//! Dropping a `TestAgent` closes the agent's stdin and requires exit status 0 within four seconds and an
//! empty stderr.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ended::{self, Input};
use crate::schema;
use crate::scripted_model::{Scenario, Server};

/// The timeout of any single wait.
pub const LIMIT: Duration = ended::LIMIT;

/// Configures and starts a [`TestAgent`].
pub struct TestAgentBuilder {
    files: Vec<(String, String)>,
    own_files: Vec<(String, Vec<u8>)>,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    replies: Option<Value>,
    capabilities: Value,
    permission: Option<&'static str>,
    allows_stderr: bool,
    inside: Option<&'static str>,
    servers: Vec<Value>,
}

/// The agent, its client and its model.
pub struct TestAgent {
    child: Child,
    stdin: Option<Input>,
    lines: Receiver<Value>,
    stderr: Option<Receiver<Vec<u8>>>,
    /// Every message from the agent so far, in order.
    pub log: Vec<Value>,
    /// The number of messages in the log that `wait_for` has consumed.
    consumed: usize,
    /// The id and method of each request that was sent.
    sent_requests: Vec<(Value, String)>,
    next_id: i64,
    /// The session that `start` opened.
    pub session: String,
    model: Option<Server>,
    workspace: TempDir,
    home: TempDir,
    /// For `restart`.
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// The MCP servers of its sessions.
    pub servers: Vec<Value>,
    capabilities: Value,
    permission: Option<&'static str>,
    allows_stderr: bool,
    /// Whether the process has ended and its exit was has_exited, or it was killed.
    has_exited: bool,
    /// How often the user was told that there is no sandbox. That depends on the machine and not on the
    /// test, so these messages are not in the log.
    pub told_of_no_sandbox: usize,
}

impl TestAgentBuilder {
    /// Adds a file to the workspace.
    pub fn file(mut self, path: &str, content: &str) -> TestAgentBuilder {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// Adds a file to the agent's own folder, such as `config/config.toml`.
    pub fn own_file(self, path: &str, content: &str) -> TestAgentBuilder {
        self.own_bytes(path, content.into())
    }

    /// Adds a file of bytes to the agent's own folder.
    pub fn own_bytes(mut self, path: &str, content: Vec<u8>) -> TestAgentBuilder {
        self.own_files.push((path.to_owned(), content));
        self
    }

    /// Sets a variable in the agent's environment.
    pub fn variable(mut self, name: &str, value: &str) -> TestAgentBuilder {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument to the agent's command line.
    pub fn argument(mut self, argument: &str) -> TestAgentBuilder {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets the replies of the scripted model, in the format of `examples/scripted_model.rs`.
    pub fn model(mut self, replies: Value) -> TestAgentBuilder {
        self.replies = Some(replies);
        self
    }

    /// Sets the client's capabilities.
    pub fn capabilities(mut self, capabilities: Value) -> TestAgentBuilder {
        self.capabilities = capabilities;
        self
    }

    /// Answers every permission request with this option.
    pub fn permission(mut self, option: &'static str) -> TestAgentBuilder {
        self.permission = Some(option);
        self
    }

    /// Allows the agent to write to stderr.
    pub fn noisy(mut self) -> TestAgentBuilder {
        self.allows_stderr = true;
        self
    }

    /// Starts the agent in a mount namespace of its own, after this script has run there.
    pub fn inside(mut self, script: &'static str) -> TestAgentBuilder {
        self.inside = Some(script);
        self
    }

    /// Adds a scripted MCP server with this scenario to each session.
    pub fn server(mut self, name: &str, scenario: &Value) -> TestAgentBuilder {
        self.servers.push(json!({
            "name": name,
            "command": crate::examples::built("scripted_server"),
            "args": [scenario.to_string()],
            "env": [],
        }));
        self
    }

    /// Adds an MCP server, in the format of the protocol, to each session.
    pub fn server_as(mut self, server: Value) -> TestAgentBuilder {
        self.servers.push(server);
        self
    }

    /// Starts the agent without sending anything.
    pub fn spawn(self) -> TestAgent {
        let workspace = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let workspace_files =
            self.files.iter().map(|it| (workspace.path().join(&it.0), it.1.as_bytes()));
        let own_files = self.own_files.iter().map(|it| (home.path().join(&it.0), it.1.as_slice()));
        for (path, content) in workspace_files.chain(own_files) {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let model = self.replies.map(|replies| {
            let scenario = json!({ "replies": replies });
            Server::start(Scenario::from_value(scenario).unwrap(), 0).unwrap()
        });
        let mut variables = Vec::new();
        if let Some(model) = &model {
            variables.push(("OPENAI_BASE_URL".to_owned(), model.base_url()));
            variables.push(("OPENAI_API_KEY".to_owned(), "sk-test-0123456789".to_owned()));
            variables.push(("TURNWRIGHT_MODEL".to_owned(), "scripted".to_owned()));
        }
        variables.extend(self.variables);
        let process = AgentProcess::start(self.inside, &self.arguments, &variables, home.path());
        TestAgent {
            stdin: Some(process.stdin),
            child: process.child,
            lines: process.lines,
            stderr: Some(process.stderr),
            log: Vec::new(),
            consumed: 0,
            sent_requests: Vec::new(),
            next_id: 1,
            session: String::new(),
            model,
            workspace,
            home,
            arguments: self.arguments,
            variables,
            capabilities: self.capabilities,
            servers: self.servers,
            permission: self.permission,
            allows_stderr: self.allows_stderr,
            has_exited: false,
            told_of_no_sandbox: 0,
        }
    }

    /// Starts the agent and initializes the connection.
    pub fn initialize(self) -> TestAgent {
        let mut agent = self.spawn();
        agent.initialize_connection();
        agent
    }

    /// Starts the agent, initializes the connection and opens a session in the workspace.
    pub fn start(self) -> TestAgent {
        let mut agent = self.initialize();
        agent.session = agent.new_session();
        agent
    }
}

/// A running process of the agent, with its pipes.
struct AgentProcess {
    child: Child,
    stdin: Input,
    lines: Receiver<Value>,
    stderr: Receiver<Vec<u8>>,
}

impl AgentProcess {
    /// `inside` is a script that prepares a mount namespace for the process.
    fn start(
        inside: Option<&str>,
        arguments: &[String],
        variables: &[(String, String)],
        home: &Path,
    ) -> AgentProcess {
        let program = env!("CARGO_BIN_EXE_turnwright");
        let mut command = match inside {
            Some(script) => {
                let mut command = Command::new("unshare");
                let script = format!("{script} && exec \"$0\" \"$@\"");
                command.args(["--mount", "sh", "-c", &script, program]);
                command
            }
            None => Command::new(program),
        };
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TURNWRIGHT_HOME", home)
            .envs([run_mark()])
            .envs(variables.iter().cloned())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                let line = String::from_utf8(line.unwrap()).expect("stdout must be UTF-8");
                let message = serde_json::from_str(&line);
                let message = message.unwrap_or_else(|_| json!({ "not JSON": line }));
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let stderr = ended::reading(child.stderr.take().unwrap());
        AgentProcess { stdin: Input::of(&mut child), child, lines, stderr }
    }
}

impl TestAgent {
    fn initialize_connection(&mut self) {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": self.capabilities });
        let answer = self.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    }

    /// Ends the agent, unless it was killed, and starts another one with the same files and model. Clears
    /// the log.
    pub fn restart(&mut self) {
        if !self.has_exited {
            let (status, stderr) = self.close();
            assert!(status.success(), "the agent ended with {status}: {stderr}");
        }
        let process = AgentProcess::start(None, &self.arguments, &self.variables, self.home.path());
        self.child = process.child;
        self.stdin = Some(process.stdin);
        self.lines = process.lines;
        self.stderr = Some(process.stderr);
        self.log.clear();
        self.sent_requests.clear();
        self.consumed = 0;
        self.has_exited = false;
        self.initialize_connection();
    }

    /// An agent with a scripted model without replies, in an empty workspace.
    pub fn builder() -> TestAgentBuilder {
        TestAgentBuilder {
            files: Vec::new(),
            own_files: Vec::new(),
            variables: Vec::new(),
            arguments: Vec::new(),
            replies: Some(json!([])),
            capabilities: json!({}),
            permission: None,
            allows_stderr: false,
            inside: None,
            servers: Vec::new(),
        }
    }

    /// An agent with the built-in offline model.
    pub fn offline() -> TestAgentBuilder {
        let mut builder = TestAgent::builder().variable("TURNWRIGHT_MODEL", "offline");
        builder.replies = None;
        builder
    }

    /// An agent without a configured model.
    pub fn unconfigured() -> TestAgentBuilder {
        let mut builder = TestAgent::builder();
        builder.replies = None;
        builder
    }

    /// The scripted model.
    pub fn model(&self) -> &Server {
        self.model.as_ref().expect("this agent has no scripted model")
    }

    /// The body of the n-th request to the model, counted from 0. Waits for it.
    pub fn model_request(&self, number: usize) -> Value {
        let requests = self.model().wait_for_requests(number + 1, LIMIT).unwrap();
        requests[number].body.clone()
    }

    /// The messages of the n-th request to the model without the system prompt, one line each.
    pub fn model_transcript(&self, number: usize) -> Vec<String> {
        let body = self.model_request(number);
        let messages = body["messages"].as_array().unwrap();
        messages.iter().skip(1).map(summarize_model_message).collect()
    }

    /// The folder of the workspace.
    pub fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// The folder of the agent's own files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A path in the workspace.
    pub fn path(&self, path: &str) -> PathBuf {
        self.workspace.path().join(path)
    }

    /// The content of a file in the workspace.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// The id of the agent's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        self.sent_requests.push((id.clone(), method.to_owned()));
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_line(&message.to_string());
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
        self.sent_requests.push((id.clone(), method.to_owned()));
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
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

    /// Opens another session in the workspace.
    pub fn new_session(&mut self) -> String {
        let params = json!({ "cwd": self.workspace.path(), "mcpServers": self.servers });
        let answer = self.call("session/new", &params);
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

    /// Waits for the stop reason of a prompt.
    pub fn stop_reason(&mut self, id: &Value) -> String {
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
    fn receive(&mut self, limit: Duration) -> Option<Value> {
        let message = match self.lines.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        };
        let method = self.sent_requests.iter().rev().find(|it| it.0 == message["id"]);
        schema::check(&message, method.map(|it| it.1.as_str()));
        let text = message["params"]["update"]["content"]["text"].as_str();
        if text.is_some_and(|it| it.starts_with("The sandbox is not available here")) {
            self.told_of_no_sandbox += 1;
            return Some(message);
        }
        self.log.push(message.clone());
        let asks = message["method"] == "session/request_permission";
        if let Some(option) = self.permission.filter(|_| asks) {
            self.choose(&message, option);
        }
        Some(message)
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
            let left = end.saturating_duration_since(Instant::now());
            if self.receive(left).is_none() {
                let transcript = self.transcript().join("\n");
                panic!("timed out waiting for {what}; the messages so far:\n{transcript}");
            }
        }
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

    /// Waits for a request of the agent.
    pub fn wait_for_request(&mut self, method: &str) -> Value {
        self.wait_for(method, |it| it["method"] == method && it.get("id").is_some())
    }

    /// Waits for the answer to a request, also if it is consumed already.
    pub fn answer_to(&mut self, id: &Value) -> Value {
        let is_answer = |it: &Value| it.get("method").is_none() && it.get("id") == Some(id);
        if let Some(answer) = self.log.iter().find(|it| is_answer(it)) {
            return answer.clone();
        }
        self.wait_for(&format!("the answer to {id}"), is_answer)
    }

    /// Receives messages until none has arrived for this long.
    pub fn settle(&mut self, quiet: Duration) {
        let end = Instant::now() + LIMIT;
        while self.receive(quiet).is_some() {
            assert!(Instant::now() < end, "the agent keeps sending messages");
        }
    }

    /// Sends a harmless request and waits for its answer, so that everything sent before is handled.
    pub fn sync(&mut self) {
        let answer = self.call("_test/sync", &json!({}));
        // An unknown method, or a request before `initialize`.
        assert!(answer["error"]["code"] == -32601 || answer["error"]["code"] == -32600, "{answer}");
    }

    /// All updates of the current session so far.
    pub fn updates(&self) -> Vec<Value> {
        let is_ours = |it: &&Value| it["params"]["sessionId"] == self.session.as_str();
        let updates = self.log.iter().filter(|it| it["method"] == "session/update").filter(is_ours);
        updates.map(|it| it["params"]["update"].clone()).collect()
    }

    /// The model's text as the user sees it.
    pub fn text(&self) -> String {
        self.chunk_text("agent_message_chunk")
    }

    /// The model's reasoning as the user sees it.
    pub fn thoughts(&self) -> String {
        self.chunk_text("agent_thought_chunk")
    }

    fn chunk_text(&self, kind: &str) -> String {
        let updates = self.updates();
        let chunks = updates.iter().filter(|it| it["sessionUpdate"] == kind);
        chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
    }

    /// All received messages, one line each, with consecutive text chunks joined.
    pub fn transcript(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for message in &self.log {
            let line = summarize(message);
            match lines.last_mut() {
                Some(last) if line.starts_with("text ") && last.starts_with("text ") => {
                    last.push_str(&line["text ".len()..]);
                }
                _ => lines.push(line),
            }
        }
        let workspace = self.workspace.path().to_string_lossy().into_owned();
        lines.iter().map(|it| it.replace(&workspace, "$WS")).collect()
    }

    /// Closes stdin and waits for the process to exit. Returns the exit status and its stderr.
    pub fn close(&mut self) -> (std::process::ExitStatus, String) {
        drop(self.stdin.take());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(4), "the agent does not exit");
            std::thread::sleep(Duration::from_millis(2));
        };
        self.settle(Duration::from_secs(1));
        self.has_exited = true;
        (status, self.take_stderr(LIMIT).expect("a process still holds the agent's stderr open"))
    }

    /// Kills the agent with SIGKILL.
    pub fn kill(&mut self) {
        ended::kill(&mut self.child);
        self.has_exited = true;
    }

    /// Returns all of stderr, once. `None` if a process still holds it open after the timeout.
    fn take_stderr(&mut self, limit: Duration) -> Option<String> {
        let Some(stderr) = self.stderr.take() else { return Some(String::new()) };
        let bytes = stderr.recv_timeout(limit).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.stdin.take());
            ended::kill(&mut self.child);
            // A process left behind may hold stderr open. That must not hide why the test failed.
            match self.take_stderr(Duration::from_secs(2)) {
                Some(stderr) => eprintln!("stderr of the agent: {stderr}"),
                None => eprintln!("stderr of the agent is still open"),
            }
        } else if !self.has_exited {
            let (status, stderr) = self.close();
            assert!(status.success(), "the agent ended with {status}: {stderr}");
            if !self.allows_stderr {
                assert_eq!(stderr, "", "stderr must be silent");
            }
        }
    }
}

/// The parameters of a text prompt.
pub fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// A reply of the model with text.
pub fn says(text: &str) -> Value {
    json!([{ "text": text }])
}

/// A reply of the model with one tool call.
pub fn calls(name: &str, arguments: &Value) -> Value {
    json!([{ "call": { "name": name, "arguments": arguments } }])
}

/// The name and value of the variable that marks the processes of this test run, to tell them from those
/// of a concurrent run.
pub fn run_mark() -> (&'static str, String) {
    ("TEST_RUN", std::process::id().to_string())
}

/// Whether a process with this word on its command line is alive, ignoring those of other test runs.
pub fn is_alive(word: &str) -> bool {
    if cfg!(not(target_os = "linux")) {
        let output = ended::output(Command::new("ps").args(["-axo", "command"])).unwrap();
        return String::from_utf8_lossy(&output.stdout).contains(word);
    }
    let (name, own) = run_mark();
    let (begin, mark) = (format!("{name}="), format!("{name}={own}"));
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter(|it| it.file_name().to_string_lossy() != own).any(|it| {
        let read = |file: &str| {
            let bytes = std::fs::read(it.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // A process with a cleared environment may be ours.
        let is_foreign = |it: &str| it.starts_with(&begin) && it != mark;
        read("cmdline").contains(word) && !read("environ").split('\0').any(is_foreign)
    })
}

/// Waits until the condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A message in one line.
fn summarize(message: &Value) -> String {
    let update = &message["params"]["update"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message["method"] == "session/update" {
        return match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => format!("text {}", word(&update["content"]["text"])),
            kind @ ("tool_call" | "tool_call_update") => {
                let mut line = format!("{kind} {}", word(&update["toolCallId"]));
                for key in ["status", "kind", "title"] {
                    if let Some(value) = update[key].as_str() {
                        line.push_str(&format!(" {value}"));
                    }
                }
                line
            }
            kind => kind.to_owned(),
        };
    }
    if let Some(method) = message["method"].as_str() {
        let title = word(&message["params"]["toolCall"]["title"]);
        return format!("{method} {title}").trim_end().to_owned();
    }
    match message.get("error") {
        Some(error) => format!("error {}: {}", error["code"], word(&error["message"])),
        None => match message["result"]["stopReason"].as_str() {
            Some(reason) => format!("stop {reason}"),
            None => "result".to_owned(),
        },
    }
}

/// A message to the model in one line.
fn summarize_model_message(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let content = message["content"].as_str().unwrap_or_default();
    // The agent adds context about the project and the date to the user's prompt.
    let content = content.split("\n\n<context>").next().unwrap_or_default();
    let mut line = format!("{role} {content}").trim_end().to_owned();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let arguments = function["arguments"].as_str().unwrap_or_default();
        line.push_str(&format!(" [{name} {arguments}]"));
    }
    line
}
