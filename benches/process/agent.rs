//! The ACP client of the benchmark: it starts the agent and exchanges JSON-RPC lines with it. It
//! recognises most lines by their text instead of parsing them, so that its own cost stays small.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model::Model;

/// The version of the protocol that is spoken with agents that start from now on.
static VERSION: AtomicU16 = AtomicU16::new(1);

/// Whether the client draws the terminals of commands, which is optional in version 1.
static DRAWS_TERMINALS: AtomicBool = AtomicBool::new(false);

pub(crate) fn speak_version(version: u16) {
    VERSION.store(version, Ordering::Relaxed);
}

/// Agents that start from now on have a client that draws the terminals of commands.
pub(crate) fn draw_terminals() {
    DRAWS_TERMINALS.store(true, Ordering::Relaxed);
}

/// The path of the measured agent: that of `TURNWRIGHT_BENCH_BINARY`, or the one that was built with
/// the benchmark.
pub(crate) fn binary() -> PathBuf {
    let chosen = std::env::var_os("TURNWRIGHT_BENCH_BINARY");
    chosen.map_or_else(|| env!("CARGO_BIN_EXE_turnwright").into(), PathBuf::from)
}

/// Returns a command that runs the agent with the variables of an editor's environment that decide what it costs: a
/// shell without `HOME` or `SHELL` asks the name service at its start.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.join("home"))
        .env("SHELL", "/bin/bash")
        .env("TURNWRIGHT_HOME", home)
        .current_dir("/")
        .stderr(Stdio::null());
    command
}

/// Returns a command that runs the agent with this model.
pub(crate) fn model_command(model: &Model, home: &Path) -> Command {
    let mut command = command(home);
    command
        .env("OPENAI_BASE_URL", format!("http://{}/v1", model.address()))
        .env("OPENAI_API_KEY", "sk-bench-0123456789")
        .env("TURNWRIGHT_MODEL", "bench");
    command
}

/// A running agent, connected over stdin and stdout.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    /// `None` once it is closed.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    bytes: usize,
    folder: Arc<TempDir>,
    version: u16,
    /// The sessions of the prompts, by the ids of the requests.
    prompts: HashMap<u64, String>,
}

impl Agent {
    /// Starts the agent in this folder, without initializing the connection. A start-up time
    /// includes this call.
    pub(crate) fn spawn(model: &Model, folder: TempDir) -> io::Result<Agent> {
        Agent::spawn_command(model_command(model, folder.path()), folder)
    }

    /// Starts any agent.
    pub(crate) fn spawn_command(
        mut command: Command,
        folder: impl Into<Arc<TempDir>>,
    ) -> io::Result<Agent> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        Ok(Agent {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            next_id: 1,
            bytes: 0,
            folder: folder.into(),
            version: VERSION.load(Ordering::Relaxed),
            prompts: HashMap::new(),
        })
    }

    /// Starts the agent in a new [`workspace`] and initializes the connection.
    pub(crate) fn start(model: &Model) -> io::Result<Agent> {
        let folder = workspace()?;
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        Ok(agent)
    }

    pub(crate) fn initialize(&mut self) -> io::Result<()> {
        let info = json!({ "name": "bench", "version": "1" });
        let params = if self.version == 1 {
            let draws_terminals = DRAWS_TERMINALS.load(Ordering::Relaxed);
            let meta = json!({ "terminal_output": draws_terminals });
            json!({ "protocolVersion": 1, "clientCapabilities": { "_meta": meta } })
        } else {
            json!({ "protocolVersion": self.version, "info": info, "capabilities": {} })
        };
        let id = self.request("initialize", &params)?;
        self.answer(id).map(drop)
    }

    pub(crate) fn new_session(&mut self) -> io::Result<String> {
        let params = json!({ "cwd": self.folder.path(), "mcpServers": [] });
        let id = self.request("session/new", &params)?;
        let answer: Value = serde_json::from_str(&self.answer(id)?)?;
        let session = answer["result"]["sessionId"].as_str();
        session.map(str::to_owned).ok_or_else(|| io::Error::other(answer.to_string()))
    }

    /// Sends a prompt. Returns the id of the request and the time right before it was written.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> io::Result<(u64, Instant)> {
        let block = json!({ "type": "text", "text": text });
        let params = json!({ "sessionId": session, "prompt": [block] });
        let id = self.next_id;
        self.prompts.insert(id, session.to_owned());
        let line = self.line("session/prompt", &params);
        let begun = Instant::now();
        self.send(&line)?;
        Ok((id, begun))
    }

    /// Runs a whole turn. Returns the time right before the prompt was written.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> io::Result<Instant> {
        let (id, begun) = self.prompt(session, text)?;
        self.answer(id)?;
        Ok(begun)
    }

    /// Runs a turn and allows everything that the agent asks for.
    pub(crate) fn turn_with_approval(&mut self, session: &str, text: &str) -> io::Result<()> {
        let (id, _) = self.prompt(session, text)?;
        while let Some(question) = self.answer_or(id, "session/request_permission")? {
            self.allow_always(&question)?;
        }
        Ok(())
    }

    /// Opens a stored session, whose updates precede the response. Returns the id of the request.
    pub(crate) fn load(&mut self, session: &str) -> io::Result<u64> {
        let cwd = self.folder.path();
        let mut params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
        if self.version == 1 {
            return self.request("session/load", &params);
        }
        params["replayFrom"] = json!({ "type": "start" });
        self.request("session/resume", &params)
    }

    pub(crate) fn close_session(&mut self, session: &str) -> io::Result<()> {
        let id = self.request("session/close", &json!({ "sessionId": session }))?;
        self.answer(id).map(drop)
    }

    pub(crate) fn cancel(&mut self, session: &str) -> io::Result<()> {
        self.write(&json!({
            "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session }
        }))
    }

    /// Allows this permission request once.
    pub(crate) fn allow(&mut self, question: &str) -> io::Result<()> {
        self.choose(question, "allow_once")
    }

    /// Allows this permission request and all similar ones.
    pub(crate) fn allow_always(&mut self, question: &str) -> io::Result<()> {
        self.choose(question, "allow_always")
    }

    fn choose(&mut self, question: &str, option: &str) -> io::Result<()> {
        let question: Value = serde_json::from_str(question)?;
        let outcome = json!({ "outcome": "selected", "optionId": option });
        self.write(&json!({
            "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome }
        }))
    }

    /// Reads the next line.
    pub(crate) fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(io::Error::other("the agent exited")),
            bytes => {
                self.bytes += bytes;
                Ok(line)
            }
        }
    }

    /// Reads up to the next line that contains `text` and returns that line.
    pub(crate) fn wait_for(&mut self, text: &str) -> io::Result<String> {
        loop {
            let line = self.read()?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Reads up to the response to a request and returns it. For a prompt it is the end of the turn.
    pub(crate) fn answer(&mut self, id: u64) -> io::Result<String> {
        loop {
            let line = self.read()?;
            if self.is_answer(&line, id)? {
                return Ok(line);
            }
        }
    }

    /// Returns the next line that contains `text`, or `None` if the response to a request comes first.
    pub(crate) fn answer_or(&mut self, id: u64, text: &str) -> io::Result<Option<String>> {
        loop {
            let line = self.read()?;
            if self.is_answer(&line, id)? {
                return Ok(None);
            }
            if line.contains(text) {
                return Ok(Some(line));
            }
        }
    }

    fn is_answer(&self, line: &str, id: u64) -> io::Result<bool> {
        let is_answer = is_answer(line, id)?;
        // In version 2 a turn ends with a state of the session.
        let Some(session) = self.prompts.get(&id).filter(|_| self.version > 1) else {
            return Ok(is_answer);
        };
        let is_end = line.contains(r#""state":"idle""#) && line.contains(session.as_str());
        if is_end && line.contains(r#""stopReason":"error""#) {
            return Err(io::Error::other(line.to_owned()));
        }
        Ok(is_end)
    }

    /// The version of the protocol.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    /// The number of bytes read from the agent so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The working folder of the sessions, which is also the agent's home.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        let id = self.next_id;
        let line = self.line(method, params);
        self.send(&line)?;
        Ok(id)
    }

    /// Closes stdin and waits until the agent has exited.
    pub(crate) fn end(mut self) -> io::Result<()> {
        drop(self.stdin.take());
        self.child.wait().map(drop)
    }

    fn line(&mut self, method: &str, params: &Value) -> String {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        format!("{message}\n")
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        self.send(&format!("{message}\n"))
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        let closed = || io::Error::other("stdin is closed");
        self.stdin.as_mut().ok_or_else(closed)?.write_all(line.as_bytes())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // No measurement needs an orderly shutdown. An error means that the agent already exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn is_answer(line: &str, id: u64) -> io::Result<bool> {
    if line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error""#)) {
        return Err(io::Error::other(line.to_owned()));
    }
    if line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)) {
        return Ok(true);
    }
    // Other agents write the members in another order.
    if line.contains("\"method\"") {
        return Ok(false);
    }
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    if message["id"] == id && message["error"].is_object() {
        return Err(io::Error::other(line.to_owned()));
    }
    Ok(message["id"] == id)
}

/// Creates a temporary folder with a small file for `read_file`, and a home.
pub(crate) fn workspace() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("home"))?;
    std::fs::write(folder.path().join("small.txt"), "one line of forty characters, or about\n")?;
    Ok(folder)
}

/// Sleeps. Used where no message tells when the agent is ready.
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
