//! Plays a client against this program, or against another agent, with a home and a project of its own, and checks
//! every message. The agent is a process whose stdin and stdout carry one message a line.

mod frame_checker;
mod script;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use self::frame_checker::FRAME_RULES;
use self::script::{AcpScript, STEPS, StepEnd};
use crate::write_without_keys;
use turnwright_config::Config;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// Checks the agent that this command starts; without words, this program. Exits with 0 if there is no fault, 1 if
/// there is one, 2 if nothing could be tried.
pub fn check_agent(command: &[OsString], config: &Config) -> ExitCode {
    match check(command, config) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            line("FAIL", "start", &io_error_text(&error));
            ExitCode::from(2)
        }
    }
}

/// Returns true if everything is as it must be.
#[expect(clippy::disallowed_methods, reason = "no session: the doctor talks with the agent")]
fn check(command: &[OsString], config: &Config) -> io::Result<bool> {
    let home = PrivateTempFolder::create()?;
    let folder = home.path().join("project");
    std::fs::create_dir(&folder)?;
    let words = match command {
        [] => vec![std::env::current_exe()?.into_os_string()],
        words => words.to_vec(),
    };
    let mut agent = Command::new(&words[0]);
    agent
        .args(&words[1..])
        .current_dir(&folder)
        .env_clear()
        .envs(config.inherited.iter().cloned())
        .env_remove("TURNWRIGHT_CONFIG")
        .env("TURNWRIGHT_HOME", home.path().join("home"))
        .env("TURNWRIGHT_MODEL", "offline");
    let mut script = AcpScript::new(agent, folder);
    let mut is_fine = true;
    for (name, step) in STEPS {
        if script.is_over {
            line("skip", name, "not tried");
            continue;
        }
        match step(&mut script) {
            Ok(StepEnd::Ok(text)) => line("ok", name, &text),
            Ok(StepEnd::Skipped(why)) => line("skip", name, &why),
            Err(why) => {
                is_fine = false;
                line("FAIL", name, &why);
            }
        }
    }
    for (rule, name, meaning) in FRAME_RULES {
        match script.checker.fault(rule) {
            None => line("ok", name, meaning),
            Some((first, count)) => {
                is_fine = false;
                let more =
                    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
                line("FAIL", name, &format!("{first}{more}"));
            }
        }
    }
    let messages = script.checker.frames;
    let verdict = if is_fine { "no fault" } else { "the lines marked FAIL are faults" };
    write_without_keys(&format!("\n{messages} messages of the agent were checked: {verdict}.\n"))
        .ok();
    Ok(is_fine)
}

fn line(mark: &str, name: &str, text: &str) {
    write_without_keys(&format!("{mark:4} {name:10}  {}\n", escape_hidden_line(text))).ok();
}

/// The longest line that is read.
const MAX_LINE: u64 = 16 * 1024 * 1024;
/// How many lines may wait to be checked.
const MAX_PENDING_LINES: usize = 256;
/// How often to check whether the process has ended.
const POLL: Duration = Duration::from_millis(10);

/// An agent that this process has started. It is killed on drop.
pub(crate) struct AgentProcess {
    child: Child,
    /// None when the end of the input was reached.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl AgentProcess {
    pub(crate) fn start(command: &mut Command) -> io::Result<AgentProcess> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
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

    /// Writes a line. If the agent has ended, the next line that is waited for tells.
    pub(crate) fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).ok();
        }
    }

    /// The next line, if it comes in time.
    pub(crate) fn next_line(&self, until: Instant) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    /// Ends the input. Returns true if the process has ended within `limit`.
    pub(crate) fn end(&mut self, limit: Duration) -> bool {
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
    let mut bytes = Vec::new();
    while let Ok(1..) = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes) {
        let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
        if lines.send(line).is_err() {
            return;
        }
        bytes.clear();
    }
}
