//! The agent that is checked: a process whose stdin and stdout carry one message a line.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest line that is read.
const MAX_LINE: u64 = 16 * 1024 * 1024;
/// How many lines may wait to be checked.
const MAX_PENDING_LINES: usize = 256;
/// How often to check whether the process has ended.
const POLL: Duration = Duration::from_millis(10);

/// How the agent is started.
pub(super) struct AgentCommand {
    /// The program and its arguments.
    pub(super) words: Vec<OsString>,
    /// The project in which it works.
    pub(super) folder: PathBuf,
    /// All variables that the program gets.
    pub(super) variables: Vec<(OsString, OsString)>,
}

pub(super) struct AgentProcess {
    child: Child,
    /// None when the end of the input was reached.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Why there is no line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLineError {
    TimeOut,
    Ended,
}

impl AgentCommand {
    #[expect(clippy::disallowed_methods, reason = "no session: the doctor talks with the agent")]
    pub(super) fn start(&self) -> io::Result<AgentProcess> {
        let program = self.words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let mut child = Command::new(program)
            .args(self.words.iter().skip(1))
            .current_dir(&self.folder)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (sender, lines) = sync_channel(MAX_PENDING_LINES);
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        // From here on the process is ended if anything fails.
        let process = AgentProcess { child, stdin, lines };
        if let Some(stdout) = stdout {
            thread::Builder::new()
                .name("agent-output".to_owned())
                .spawn(move || read_lines(stdout, &sender))?;
        }
        Ok(process)
    }
}

impl AgentProcess {
    /// Writes a line. If the agent has ended, the next line that is waited for tells.
    pub(super) fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).ok();
        }
    }

    /// The next line, if it comes in time.
    pub(super) fn next_line(&self, until: Instant) -> Result<String, NextLineError> {
        let left = until.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => NextLineError::TimeOut,
            RecvTimeoutError::Disconnected => NextLineError::Ended,
        })
    }

    /// Ends the input. Returns true if the process has ended within `limit`.
    pub(super) fn end(mut self, limit: Duration) -> bool {
        self.stdin = None;
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return true,
                Ok(None) if Instant::now() < end => thread::sleep(POLL),
                _ => return false,
            }
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // An error means that it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Reads until the output ends or nobody waits for lines any more.
fn read_lines(stdout: ChildStdout, lines: &SyncSender<String>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
        if lines.send(line).is_err() {
            return;
        }
    }
}
