//! Defines how a test starts an agent, and how it learns how the agent has ended.

pub(crate) mod child;
pub(crate) mod thread;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process_waits::Input;

/// The longest time that an agent may take to end after its stdin was closed. An agent waits at most
/// two seconds for what does not end; the rest is for a slow machine.
const EXIT_LIMIT: Duration = Duration::from_secs(60);

/// The settings that an agent is started with.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The folder of the agent's own files.
    pub home: PathBuf,
    /// Arguments of its command line.
    pub arguments: Vec<String>,
    /// The variables of its environment besides `PATH`.
    pub variables: Vec<(String, String)>,
    /// A script that prepares a mount namespace for the process.
    pub namespace_script: Option<&'static str>,
}

/// The client's ends of the agent's pipes.
pub struct AgentPipes {
    /// Dropping it closes the agent's stdin.
    pub stdin: Input,
    /// The messages that the agent writes. A line that is not JSON is received as
    /// `{"not JSON": LINE}`.
    pub messages: Receiver<Value>,
}

/// Starts agents in one way, such as in a process. A value is an agent that runs or has ended.
pub trait Transport: Sized {
    /// Describes how the agent has ended.
    type Ended;

    fn start(launch: &Launch) -> (Self, AgentPipes);

    /// Waits for the agent to end after its stdin was closed. Fails the test if that takes longer
    /// than [`EXIT_LIMIT`].
    fn wait_for_end(&mut self) -> Self::Ended;

    /// Fails the test unless the agent has ended successfully. Unless `allows_stderr`, the agent
    /// must also have written nothing to stderr.
    fn check_end(ended: Self::Ended, allows_stderr: bool);

    /// Ends an agent whose test has failed, after its stdin was closed. It must not panic.
    fn abandon(&mut self);
}

/// Reads the agent's stdout on a thread.
pub fn read_messages(stdout: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8(line.unwrap()).expect("stdout must be UTF-8");
            let message = serde_json::from_str(&line);
            let message = message.unwrap_or_else(|_| json!({ "not JSON": line }));
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    messages
}
