//! A thread that serves a client in the same process: its standard streams are two pipes.

use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};

use tokio_util::sync::CancellationToken;

use super::stdio::Stdio;

/// The stack of the agent's thread, which is a main thread elsewhere.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// The thread of an agent, with our ends of its pipes.
#[derive(Debug)]
pub struct AgentThread {
    /// The end of its input.
    pub requests: io::PipeWriter,
    /// The end of its output.
    pub messages: io::PipeReader,
    /// Ends the agent.
    pub stop: CancellationToken,
    /// The thread, with the result of serving.
    pub thread: JoinHandle<io::Result<()>>,
}

impl AgentThread {
    /// Starts the thread. `serve` gets our pipes as its standard streams, and the token that ends it.
    pub fn start(
        serve: impl FnOnce(Stdio, CancellationToken) -> io::Result<()> + Send + 'static,
    ) -> io::Result<AgentThread> {
        let (agent_input, requests) = io::pipe()?;
        let (messages, agent_output) = io::pipe()?;
        let stop = CancellationToken::new();
        let requested = stop.clone();
        let builder = thread::Builder::new().name("agent".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            let stdio = Stdio { input: pipe_file(agent_input), output: pipe_file(agent_output) };
            serve(stdio, requested)
        })?;
        Ok(AgentThread { requests, messages, stop, thread })
    }
}

/// The end of a pipe, as a file.
#[cfg(unix)]
pub fn pipe_file(pipe: impl Into<std::os::fd::OwnedFd>) -> File {
    File::from(pipe.into())
}

/// The end of a pipe, as a file.
#[cfg(windows)]
pub fn pipe_file(pipe: impl Into<std::os::windows::io::OwnedHandle>) -> File {
    File::from(pipe.into())
}
