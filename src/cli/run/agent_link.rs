//! The agent, in this process and at the other end of two pipes: exactly what an editor starts. So
//! nothing of the protocol, of its redaction and of its limits exists a second time.

use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::acp;
use crate::config::Config;
use turnwright_rpc::{LineReader, Outbox, Peer, Stdio};

/// The stack of the agent's thread, which is a main thread elsewhere.
const STACK_BYTES: usize = 8 * 1024 * 1024;
/// How long the agent may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// The thread of an agent, with our ends of its pipes.
pub(in crate::cli) struct AgentThread {
    pub(in crate::cli) requests: io::PipeWriter,
    pub(in crate::cli) messages: io::PipeReader,
    /// Ends the agent.
    pub(in crate::cli) stop: CancellationToken,
    pub(in crate::cli) thread: JoinHandle<io::Result<()>>,
}

impl AgentThread {
    /// Starts the thread. `serve` gets our pipes as its standard streams, and the token that ends it.
    pub(in crate::cli) fn start(
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

/// A running agent.
pub(super) struct AgentLink {
    pub(super) peer: Peer,
    pub(super) incoming: LineReader,
    stop: CancellationToken,
    thread: JoinHandle<io::Result<()>>,
}

impl AgentLink {
    /// Starts the agent on a thread of its own.
    pub(super) fn start(config: Config) -> io::Result<AgentLink> {
        let AgentThread { requests, messages, stop, thread } =
            AgentThread::start(move |stdio, stop| {
                acp::serve_blocking(config, stdio, stop.cancelled_owned())
            })?;
        let peer = Peer::new(Outbox::start(requests)?);
        let incoming = LineReader::start(pipe_file(messages))?;
        Ok(AgentLink { peer, incoming, stop, thread })
    }

    /// A connection with something else that stands for the agent.
    #[cfg(test)]
    pub(super) fn to(peer: Peer, incoming: LineReader) -> AgentLink {
        AgentLink {
            peer,
            incoming,
            stop: CancellationToken::new(),
            thread: thread::spawn(|| Ok(())),
        }
    }

    /// Ends the agent: its turn is cancelled, and its commands end with it.
    pub(super) fn end(self) -> io::Result<()> {
        let AgentLink { peer, incoming, stop, thread } = self;
        peer.fail_all();
        peer.outbox().close(FLUSH_TIMEOUT);
        stop.cancel();
        // Whatever the agent still wants to say must not hold it up.
        drop(incoming);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the agent has crashed")))
    }
}

#[cfg(unix)]
pub(in crate::cli) fn pipe_file(pipe: impl Into<std::os::fd::OwnedFd>) -> File {
    File::from(pipe.into())
}

#[cfg(windows)]
pub(in crate::cli) fn pipe_file(pipe: impl Into<std::os::windows::io::OwnedHandle>) -> File {
    File::from(pipe.into())
}
