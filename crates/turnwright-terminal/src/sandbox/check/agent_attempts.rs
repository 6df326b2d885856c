//! Attempts that the sandbox alone does not stop: traps for other programs, files of other projects, keys of the agent, and
//! installers. They are made by commands of a whole agent, which is asked over MCP.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent_check::AgentProcess;
use turnwright_sandbox::escape_tests::{AttemptResult, SECRET};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_types::text;
use turnwright_workspace::exec;

use super::TestedAttempt;

/// How long one command may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How the result of a command begins.
const RAN: &str = "[exit ";
const PACKAGE: &str = ".venv/lib/python3/site-packages/package.py";
const ORIGINAL: &str = "original\n";
const EVIL: &str = "evil\n";

/// An attempt, and how it shows that it came through.
struct AgentAttempt {
    name: &'static str,
    what: &'static str,
    /// The visible words of the command; the rest is in the script.
    command: &'static str,
    script: String,
    succeeded: fn(&Path, &str) -> bool,
}

/// Makes all attempts in a folder of their own. Without the sandbox they come through, which shows that they are noticed.
pub(super) fn run_all(without_sandbox: bool) -> Vec<TestedAttempt> {
    let results = make_all(without_sandbox);
    let attempts = attempts(Path::new("")).into_iter().enumerate();
    let tested = attempts.map(|(index, AgentAttempt { name, what, .. })| {
        let result = match &results {
            Ok(results) => results[index].clone(),
            Err(error) => AttemptResult::NotTested(io_error_text(error)),
        };
        TestedAttempt { name, what, result }
    });
    tested.collect()
}

fn make_all(without_sandbox: bool) -> io::Result<Vec<AttemptResult>> {
    let folder = tempfile::Builder::new().prefix("turnwright-proof-").tempdir()?;
    let place = folder.path().canonicalize()?;
    make_files(&place)?;
    let mut agent = AskedAgent::start(&place, if without_sandbox { "full" } else { "auto" })?;
    let results = attempts(&place).into_iter().map(|attempt| agent.make(&place, &attempt));
    Ok(results.collect())
}

fn attempts(place: &Path) -> [AgentAttempt; 4] {
    [
        AgentAttempt {
            name: "trap",
            what: "set up what an editor runs, while the command goes on",
            command: "sh attempt",
            script: "mkdir -p sub/.vscode; echo evil > sub/.vscode/tasks.json; for i in 1 2 3 4 5 6 7 8 9 10; do \
                      [ -e sub/.vscode/tasks.json ] && sleep 0.5; done; [ -e sub/.vscode/tasks.json ] && echo still-there"
                .to_owned(),
            succeeded: |_, text| text.contains("still-there"),
        },
        AgentAttempt {
            name: "agent-key",
            what: "read a file with a key of the agent",
            // As it is, it would not be shown.
            command: "sh attempt",
            script: format!("tr a-y b-z < '{}'", place.join("key").display()),
            succeeded: |_, text| text.contains(&shifted(SECRET)),
        },
        AgentAttempt {
            name: "shared-package",
            what: "change a package that another project shares (hard link)",
            command: "sh attempt",
            script: format!("echo evil >> {PACKAGE}"),
            succeeded: |place, _| fs::read_to_string(place.join("store.py")).ok().as_deref() != Some(ORIGINAL),
        },
        AgentAttempt {
            name: "environment",
            what: "replace a program of a Python environment beside an installer",
            // The installer need not run: it opens the environment by standing in the line.
            command: "false && pip install ruff; sh attempt",
            script: "cp evil .venv/bin/activate".to_owned(),
            succeeded: |place, _| {
                let text = fs::read_to_string(place.join("project/.venv/bin/activate"));
                text.ok().as_deref() != Some(ORIGINAL)
            },
        },
    ]
}

/// A text with the next letter for each.
fn shifted(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter {
        'a'..='y' => char::from_u32(u32::from(letter) + 1).unwrap_or(letter),
        other => other,
    });
    letters.collect()
}

fn make_files(place: &Path) -> io::Result<()> {
    let settings = format!(
        "[providers.proof]\nbase_url = 'http://127.0.0.1:9/v1'\nkey_file = '{}'\n",
        place.join("key").display()
    );
    for (path, text) in [
        ("key", SECRET),
        ("store.py", ORIGINAL),
        ("home/config/config.toml", &settings),
        ("project/.gitignore", ".venv\n"),
        ("project/.venv/pyvenv.cfg", "home = /usr/bin\n"),
        ("project/.venv/bin/activate", ORIGINAL),
        ("project/evil", EVIL),
    ] {
        private_file::write(&place.join(path), text.as_bytes())?;
    }
    let package = place.join("project").join(PACKAGE);
    fs::create_dir_all(package.parent().unwrap_or(place))?;
    fs::hard_link(place.join("store.py"), package)
}

/// An agent that runs commands for this process.
struct AskedAgent {
    process: AgentProcess,
    last_id: u64,
}

impl AskedAgent {
    #[expect(
        clippy::disallowed_methods,
        reason = "this runs our own program, not a command of the model"
    )]
    fn start(place: &Path, mode: &str) -> io::Result<AskedAgent> {
        let program = exec::launcher_program().ok_or(io::ErrorKind::NotFound)?;
        let project = place.join("project");
        let mut command = Command::new(program);
        command
            .args(["mcp-server", "--mode", mode, "--root"])
            .arg(&project)
            .current_dir(&project)
            .env("TURNWRIGHT_HOME", place.join("home"));
        let mut agent = AskedAgent { process: AgentProcess::start(&mut command)?, last_id: 0 };
        let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "doctor", "version": "1" } });
        agent.ask("initialize", &about)?;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        agent.process.send(&initialized.to_string());
        Ok(agent)
    }

    fn make(&mut self, place: &Path, attempt: &AgentAttempt) -> AttemptResult {
        let arguments = json!({ "command": attempt.command, "timeout": TIMEOUT.as_secs() });
        let call = json!({ "name": "exec", "arguments": arguments });
        let script = place.join("project/attempt");
        let written = private_file::write(&script, attempt.script.as_bytes());
        match written.and_then(|()| self.ask("tools/call", &call)) {
            Err(error) => AttemptResult::NotTested(io_error_text(&error)),
            Ok(answer) => {
                let text = answer.to_string();
                if (attempt.succeeded)(place, &text) {
                    AttemptResult::NotHeld("the attempt succeeded".to_owned())
                } else if text.contains(RAN) {
                    AttemptResult::Held
                } else {
                    let shown = text::first_chars(&text, 200);
                    AttemptResult::NotTested(format!("the command did not run: {shown}"))
                }
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.process.send(&request.to_string());
        loop {
            let end = Instant::now() + TIMEOUT + TIMEOUT;
            let line = self.process.next_line(end).map_err(|error| match error {
                RecvTimeoutError::Timeout => io::Error::from(io::ErrorKind::TimedOut),
                RecvTimeoutError::Disconnected => io::Error::other("the agent has ended"),
            })?;
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == id {
                return Ok(answer);
            }
        }
    }
}

impl Drop for AskedAgent {
    fn drop(&mut self) {
        // It ends, and removes what it has made, when its input ends.
        self.process.end(TIMEOUT);
    }
}
