//! Runs the agent as a program of its own.

use std::marker::PhantomData;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AgentPipes, EXIT_LIMIT, Launch, Transport, read_messages};
use crate::process_waits::{self, Input, LIMIT};
use crate::programs::example_program;
use crate::waits::{basic_variables, eventually, run_mark};
use crate::{TestAgent, TestAgentBuilder};

/// Names the program of the agent. Only the root package's integration tests know its path.
pub trait Program {
    /// The path of the program: `env!("CARGO_BIN_EXE_turnwright")`.
    const PATH: &'static str;
}

/// An agent that runs as a process.
pub struct ChildAgent<P> {
    child: Child,
    stderr: Option<Receiver<Vec<u8>>>,
    program: PhantomData<P>,
}

impl<P: Program> Transport for ChildAgent<P> {
    /// The exit status, and all of stderr.
    type Ended = (ExitStatus, String);

    fn start(launch: &Launch) -> (Self, AgentPipes) {
        let mut command = match launch.namespace_script {
            Some(script) => {
                let mut command = Command::new("unshare");
                let script = format!("{script} && exec \"$0\" \"$@\"");
                command.args(["--mount", "sh", "-c", &script, P::PATH]);
                command
            }
            None => Command::new(P::PATH),
        };
        command
            .args(&launch.arguments)
            .env_clear()
            .envs(basic_variables())
            .env("TURNWRIGHT_HOME", &launch.home)
            .envs([run_mark()])
            .envs(launch.variables.iter().cloned())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let messages = read_messages(child.stdout.take().unwrap());
        let stderr = Some(process_waits::reading(child.stderr.take().unwrap()));
        let stdin = Input::of(&mut child);
        (ChildAgent { child, stderr, program: PhantomData }, AgentPipes { stdin, messages })
    }

    fn wait_for_end(&mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < EXIT_LIMIT, "the agent does not exit");
            std::thread::sleep(Duration::from_millis(2));
        };
        (status, self.take_stderr(LIMIT).expect("a process still holds the agent's stderr open"))
    }

    fn check_end((status, stderr): (ExitStatus, String), allows_stderr: bool) {
        assert!(status.success(), "the agent ended with {status}: {stderr}");
        if !allows_stderr {
            assert_eq!(stderr, "", "the agent must not write to stderr");
        }
    }

    fn abandon(&mut self) {
        process_waits::kill(&mut self.child);
        // A process left behind may hold stderr open. Waiting for it must not hide why the test
        // failed.
        match self.take_stderr(Duration::from_secs(2)) {
            Some(stderr) => eprintln!("stderr of the agent: {stderr}"),
            None => eprintln!("stderr of the agent is still open"),
        }
    }
}

impl<P> ChildAgent<P> {
    /// Returns all of stderr on the first call, and an empty string afterwards. Returns `None` if a
    /// process still holds stderr open after the timeout.
    fn take_stderr(&mut self, limit: Duration) -> Option<String> {
        let Some(stderr) = self.stderr.take() else { return Some(String::new()) };
        let bytes = stderr.recv_timeout(limit).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Operations that only a process supports.
impl<P: Program> TestAgent<ChildAgent<P>> {
    /// Returns the id of the agent's process.
    pub fn pid(&self) -> u32 {
        self.transport.child.id()
    }

    /// Waits until the agent has ended by itself. [`TestAgent::close`] tells how.
    pub fn wait_for_own_end(&mut self) {
        let child = &mut self.transport.child;
        eventually("the agent ends", || child.try_wait().unwrap().is_some());
    }

    /// Kills the agent with SIGKILL.
    pub fn kill(&mut self) {
        process_waits::kill(&mut self.transport.child);
        self.has_ended = true;
    }
}

/// Options that only a process can be started with.
impl<P: Program> TestAgentBuilder<ChildAgent<P>> {
    /// Adds an argument to the agent's command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Allows the agent to write to stderr.
    #[must_use]
    pub fn noisy(mut self) -> Self {
        self.allows_stderr = true;
        self
    }

    /// Starts the agent in a mount namespace of its own, after this script has run there.
    #[must_use]
    pub fn inside(mut self, script: &'static str) -> Self {
        self.namespace_script = Some(script);
        self
    }

    /// Adds a scripted MCP server with this scenario to each session.
    #[must_use]
    pub fn server(self, name: &str, scenario: &Value) -> Self {
        self.server_as(json!({
            "name": name,
            "command": example_program("scripted_server"),
            "args": [scenario.to_string()],
            "env": [],
        }))
    }
}
