//! The client of the benches: starts the agent, writes lines, reads lines, and looks into a line
//! no more than it has to.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model::Model;

/// The agent that is measured.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_turnwright");

/// The program with nobody's settings but ours.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TURNWRIGHT_HOME", home)
        .current_dir("/")
        .stderr(Stdio::null());
    command
}

/// A running agent and its client.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    bytes: usize,
    folder: TempDir,
}

impl Agent {
    /// Starts it. The clock of the start-up begins before this.
    pub(crate) fn spawn(model: &Model, folder: TempDir) -> io::Result<Agent> {
        let mut child = command(folder.path())
            .env("OPENAI_BASE_URL", format!("http://{}/v1", model.address()))
            .env("OPENAI_API_KEY", "sk-bench-0123456789")
            .env("TURNWRIGHT_MODEL", "bench")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("no stdin"))?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        Ok(Agent { child, stdin, stdout: BufReader::new(stdout), next_id: 1, bytes: 0, folder })
    }

    /// Starts it in a folder of its own with a small file in it, and initializes the connection.
    pub(crate) fn start(model: &Model) -> io::Result<Agent> {
        let folder = workspace()?;
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        Ok(agent)
    }

    pub(crate) fn initialize(&mut self) -> io::Result<()> {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
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

    /// Sends a prompt. Returns its identifier and the moment right before it was written.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> io::Result<(u64, Instant)> {
        let block = json!({ "type": "text", "text": text });
        let params = json!({ "sessionId": session, "prompt": [block] });
        let id = self.next_id;
        let line = self.line("session/prompt", &params);
        let begun = Instant::now();
        self.stdin.write_all(line.as_bytes())?;
        Ok((id, begun))
    }

    /// A whole turn. Returns the moment right before the prompt was written.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> io::Result<Instant> {
        let (id, begun) = self.prompt(session, text)?;
        self.answer(id)?;
        Ok(begun)
    }

    pub(crate) fn cancel(&mut self, session: &str) -> io::Result<()> {
        self.write(&json!({
            "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session }
        }))
    }

    /// Says yes to a question.
    pub(crate) fn allow(&mut self, question: &str) -> io::Result<()> {
        self.choose(question, "allow_once")
    }

    /// Says yes to a question and to all like it.
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

    /// The next line.
    pub(crate) fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(io::Error::other("the agent has ended")),
            bytes => {
                self.bytes += bytes;
                Ok(line)
            }
        }
    }

    /// The next line with this in it.
    pub(crate) fn wait_for(&mut self, what: &str) -> io::Result<String> {
        loop {
            let line = self.read()?;
            if line.contains(what) {
                return Ok(line);
            }
        }
    }

    /// The answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> io::Result<String> {
        loop {
            let line = self.read()?;
            if is_answer(&line, id)? {
                return Ok(line);
            }
        }
    }

    /// The next line with this in it, unless the answer to a request comes before.
    pub(crate) fn answer_or(&mut self, id: u64, what: &str) -> io::Result<Option<String>> {
        loop {
            let line = self.read()?;
            if is_answer(&line, id)? {
                return Ok(None);
            }
            if line.contains(what) {
                return Ok(Some(line));
            }
        }
    }

    /// How many bytes it has written.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where its sessions work.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        let id = self.next_id;
        let line = self.line(method, params);
        self.stdin.write_all(line.as_bytes())?;
        Ok(id)
    }

    fn line(&mut self, method: &str, params: &Value) -> String {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        format!("{message}\n")
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Nothing that a bench starts is worth waiting for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn is_answer(line: &str, id: u64) -> io::Result<bool> {
    if line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error""#)) {
        return Err(io::Error::other(line.to_owned()));
    }
    Ok(line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)))
}

/// A folder with what the tools are asked to read.
pub(crate) fn workspace() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("small.txt"), "one line of forty characters, or about\n")?;
    Ok(folder)
}

/// Waits for something that nobody announces.
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
