//! The client's side of a test: starts the agent, speaks to it line by line, and fails on
//! whatever a real client would stumble over.
//!
//! Dropping a `TestAgent` closes the agent's stdin and requires exit status 0 within two seconds
//! and a silent stderr.

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

/// How long any single wait may take.
pub const LIMIT: Duration = ended::LIMIT;

/// How a `TestAgent` is to be started.
pub struct Builder {
    files: Vec<(String, String)>,
    own_files: Vec<(String, Vec<u8>)>,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    replies: Option<Value>,
    capabilities: Value,
    permission: Option<&'static str>,
    stderr_may_speak: bool,
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
    /// How much of the log has been looked at by `wait_for`.
    seen: usize,
    /// The methods of the requests that were sent, by their identifier.
    sent: Vec<(Value, String)>,
    next_id: i64,
    /// The session that `start` has opened.
    pub session: String,
    model: Option<Server>,
    workspace: TempDir,
    home: TempDir,
    /// How it was started, to start another one.
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// What its sessions are given.
    pub servers: Vec<Value>,
    capabilities: Value,
    permission: Option<&'static str>,
    stderr_may_speak: bool,
    checked: bool,
    /// How often the user was told that there is no sandbox. That is a matter of the machine and
    /// not of what a test is about, so it is not in the log.
    pub told_of_no_sandbox: usize,
}

impl Builder {
    /// A file in the workspace.
    pub fn file(mut self, path: &str, content: &str) -> Builder {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// A file in the folder of the agent's own files, such as `config/config.toml`.
    pub fn own_file(self, path: &str, content: &str) -> Builder {
        self.own_bytes(path, content.into())
    }

    /// The same, of bytes.
    pub fn own_bytes(mut self, path: &str, content: Vec<u8>) -> Builder {
        self.own_files.push((path.to_owned(), content));
        self
    }

    /// A variable in the agent's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Builder {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An argument of the agent.
    pub fn argument(mut self, argument: &str) -> Builder {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The replies of the scripted model, as `examples/scripted_model.rs` documents them.
    pub fn model(mut self, replies: Value) -> Builder {
        self.replies = Some(replies);
        self
    }

    /// What the client says it can do.
    pub fn capabilities(mut self, capabilities: Value) -> Builder {
        self.capabilities = capabilities;
        self
    }

    /// Answers every question with this option at once.
    pub fn permission(mut self, option: &'static str) -> Builder {
        self.permission = Some(option);
        self
    }

    /// The agent may write to stderr.
    pub fn noisy(mut self) -> Builder {
        self.stderr_may_speak = true;
        self
    }

    /// Has this script run in a mount namespace of its own, and the agent behind it.
    pub fn inside(mut self, script: &'static str) -> Builder {
        self.inside = Some(script);
        self
    }

    /// Gives each session of the workspace a scripted MCP server with this scenario.
    pub fn server(mut self, name: &str, scenario: &Value) -> Builder {
        self.servers.push(json!({
            "name": name,
            "command": crate::examples::built("scripted_server"),
            "args": [scenario.to_string()],
            "env": [],
        }));
        self
    }

    /// Gives each session of the workspace an MCP server as the protocol writes it.
    pub fn server_as(mut self, server: Value) -> Builder {
        self.servers.push(server);
        self
    }

    /// Starts the agent and does nothing else.
    pub fn spawn(self) -> TestAgent {
        let workspace = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let ours = self.files.iter().map(|it| (workspace.path().join(&it.0), it.1.as_bytes()));
        let its = self.own_files.iter().map(|it| (home.path().join(&it.0), it.1.as_slice()));
        for (path, content) in ours.chain(its) {
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
        let process = Process::start(self.inside, &self.arguments, &variables, home.path());
        TestAgent {
            stdin: Some(process.stdin),
            child: process.child,
            lines: process.lines,
            stderr: Some(process.stderr),
            log: Vec::new(),
            seen: 0,
            sent: Vec::new(),
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
            stderr_may_speak: self.stderr_may_speak,
            checked: false,
            told_of_no_sandbox: 0,
        }
    }

    /// Starts the agent and initializes the connection.
    pub fn initialize(self) -> TestAgent {
        let mut agent = self.spawn();
        agent.greet();
        agent
    }

    /// Starts the agent, initializes the connection and opens a session in the workspace.
    pub fn start(self) -> TestAgent {
        let mut agent = self.initialize();
        agent.session = agent.new_session();
        agent
    }
}

/// A process of the agent.
struct Process {
    child: Child,
    stdin: Input,
    lines: Receiver<Value>,
    stderr: Receiver<Vec<u8>>,
}

impl Process {
    /// `inside` is a script that sets up a mount namespace for it.
    fn start(
        inside: Option<&str>,
        arguments: &[String],
        variables: &[(String, String)],
        home: &Path,
    ) -> Process {
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
        Process { stdin: Input::of(&mut child), child, lines, stderr }
    }
}

impl TestAgent {
    fn greet(&mut self) {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": self.capabilities });
        let answer = self.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    }

    /// Ends the agent, unless it was killed, and starts another one with the same files and the same
    /// model. Nothing of the first is in the log any more.
    pub fn restart(&mut self) {
        if !self.checked {
            let (status, stderr) = self.close();
            assert!(status.success(), "the agent ended with {status}: {stderr}");
        }
        let process = Process::start(None, &self.arguments, &self.variables, self.home.path());
        self.child = process.child;
        self.stdin = Some(process.stdin);
        self.lines = process.lines;
        self.stderr = Some(process.stderr);
        self.log.clear();
        self.sent.clear();
        self.seen = 0;
        self.checked = false;
        self.greet();
    }

    /// An agent with a model that has nothing to say, in an empty workspace.
    pub fn builder() -> Builder {
        Builder {
            files: Vec::new(),
            own_files: Vec::new(),
            variables: Vec::new(),
            arguments: Vec::new(),
            replies: Some(json!([])),
            capabilities: json!({}),
            permission: None,
            stderr_may_speak: false,
            inside: None,
            servers: Vec::new(),
        }
    }

    /// An agent with the built-in model.
    pub fn offline() -> Builder {
        let mut builder = TestAgent::builder().variable("TURNWRIGHT_MODEL", "offline");
        builder.replies = None;
        builder
    }

    /// An agent for which no model is configured.
    pub fn unconfigured() -> Builder {
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

    /// What the n-th request to the model says, one line a message.
    pub fn model_transcript(&self, number: usize) -> Vec<String> {
        let body = self.model_request(number);
        let messages = body["messages"].as_array().unwrap();
        messages.iter().skip(1).map(model_line).collect()
    }

    /// The workspace.
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

    /// The agent's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stdin.as_ref().expect("stdin is open").write(bytes).unwrap();
    }

    /// Writes a line.
    pub fn send_line(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Sends a request with an identifier of one's own.
    pub fn send_request(&mut self, id: &Value, method: &str, params: &Value) {
        self.sent.push((id.clone(), method.to_owned()));
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_line(&message.to_string());
    }

    /// Sends a request and returns its identifier.
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send_request(&id, method, params);
        id
    }

    /// A request that is yet to be sent as a part of something else: its identifier and its line.
    pub fn request_line(&mut self, method: &str, params: &Value) -> (Value, String) {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.sent.push((id.clone(), method.to_owned()));
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (id, format!("{message}\n"))
    }

    /// Sends a request and waits for its answer, which is returned whole.
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

    /// Loads a session of the workspace and goes on with it.
    pub fn load(&mut self, session: &str) {
        let params = json!({
            "cwd": self.workspace.path(), "mcpServers": self.servers, "sessionId": session,
        });
        let answer = self.call("session/load", &params);
        assert!(answer["result"].is_object(), "{answer}");
        session.clone_into(&mut self.session);
    }

    /// Sends a prompt of one text and returns the request's identifier.
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

    /// The next message, looked at or not; `None` when none comes within the limit.
    fn receive(&mut self, limit: Duration) -> Option<Value> {
        let message = match self.lines.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        };
        let method = self.sent.iter().rev().find(|it| it.0 == message["id"]);
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

    /// Waits for the next message that has not been looked at and fits. Those before it count as
    /// looked at.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            while self.seen < self.log.len() {
                self.seen += 1;
                let message = &self.log[self.seen - 1];
                if fits(message) {
                    return message.clone();
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if self.receive(left).is_none() {
                let transcript = self.transcript().join("\n");
                panic!("waited for {what} in vain; this is what came:\n{transcript}");
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

    /// Waits for the answer to a request, wherever in the log it is.
    pub fn answer_to(&mut self, id: &Value) -> Value {
        let is_answer = |it: &Value| it.get("method").is_none() && it.get("id") == Some(id);
        if let Some(answer) = self.log.iter().find(|it| is_answer(it)) {
            return answer.clone();
        }
        self.wait_for(&format!("the answer to {id}"), is_answer)
    }

    /// Takes everything that comes until nothing has come for this long.
    pub fn settle(&mut self, quiet: Duration) {
        let end = Instant::now() + LIMIT;
        while self.receive(quiet).is_some() {
            assert!(Instant::now() < end, "the agent does not come to rest");
        }
    }

    /// Asks for something harmless, to know that all that was sent before has been dealt with.
    pub fn sync(&mut self) {
        let answer = self.call("_test/sync", &json!({}));
        // Unknown, or asked before `initialize`.
        assert!(answer["error"]["code"] == -32601 || answer["error"]["code"] == -32600, "{answer}");
    }

    /// All updates of the session so far.
    pub fn updates(&self) -> Vec<Value> {
        let ours = |it: &&Value| it["params"]["sessionId"] == self.session.as_str();
        let updates = self.log.iter().filter(|it| it["method"] == "session/update").filter(ours);
        updates.map(|it| it["params"]["update"].clone()).collect()
    }

    /// The model's words as the user sees them.
    pub fn text(&self) -> String {
        self.words("agent_message_chunk")
    }

    /// The model's reasoning as the user sees it.
    pub fn thoughts(&self) -> String {
        self.words("agent_thought_chunk")
    }

    fn words(&self, kind: &str) -> String {
        let updates = self.updates();
        let chunks = updates.iter().filter(|it| it["sessionUpdate"] == kind);
        chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
    }

    /// Everything that came, one line a message, with words that follow each other joined.
    pub fn transcript(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for message in &self.log {
            let line = line(message);
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

    /// Closes stdin and waits for the end; returns the exit status and what was on stderr.
    pub fn close(&mut self) -> (std::process::ExitStatus, String) {
        drop(self.stdin.take());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(4), "the agent does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        self.settle(Duration::from_secs(1));
        self.checked = true;
        (status, self.said_on_stderr(LIMIT).expect("what holds the agent's stderr has ended"))
    }

    /// Kills the agent as a dying machine would.
    pub fn kill(&mut self) {
        ended::kill(&mut self.child);
        self.checked = true;
    }

    /// All that was on stderr, once. `None` while somebody can still write to it.
    fn said_on_stderr(&mut self, limit: Duration) -> Option<String> {
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
            // What it has left behind may hold it open, and is not to hide why the test has failed.
            match self.said_on_stderr(Duration::from_secs(2)) {
                Some(said) => eprintln!("stderr of the agent: {said}"),
                None => eprintln!("stderr of the agent is still open"),
            }
        } else if !self.checked {
            let (status, stderr) = self.close();
            assert!(status.success(), "the agent ended with {status}: {stderr}");
            if !self.stderr_may_speak {
                assert_eq!(stderr, "", "stderr must be silent");
            }
        }
    }
}

/// The parameters of a prompt of one text.
pub fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// A reply of the model that says something.
pub fn says(text: &str) -> Value {
    json!([{ "text": text }])
}

/// A reply of the model that calls one tool.
pub fn calls(name: &str, arguments: &Value) -> Value {
    json!([{ "call": { "name": name, "arguments": arguments } }])
}

/// The variable that tells the processes of this run from those of another one beside it, and its
/// value here.
pub fn run_mark() -> (&'static str, String) {
    ("TEST_RUN", std::process::id().to_string())
}

/// Whether a process with this word on its command line is alive, that is not of another run.
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
        // One that has cleared its environment may be ours.
        let is_foreign = |it: &str| it.starts_with(&begin) && it != mark;
        read("cmdline").contains(word) && !read("environ").split('\0').any(is_foreign)
    })
}

/// Waits until something is the case.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn line(message: &Value) -> String {
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

fn model_line(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let content = message["content"].as_str().unwrap_or_default();
    // What the agent adds about the project and the date is not the user's.
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
