//! The agent, in this process and at the other end of two pipes: exactly what an editor starts. So nothing of the
//! protocol, of its redaction and of its limits exists a second time. Its updates of a session are read from the
//! protocol's JSON; the text in them is not safe for a terminal; [`paint`](super::text_style::paint) makes it so.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use turnwright_rpc::{AgentThread, LineReader, Outbox, Peer, Stdio};

/// How long the agent may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// A running agent.
pub(super) struct AgentLink {
    pub(super) peer: Peer,
    pub(super) incoming: LineReader,
    stop: CancellationToken,
    thread: JoinHandle<io::Result<()>>,
}

impl AgentLink {
    /// Starts the agent, which `serve` runs, on a thread of its own.
    pub(super) fn start(
        serve: impl FnOnce(Stdio, CancellationToken) -> io::Result<()> + Send + 'static,
    ) -> io::Result<AgentLink> {
        let AgentThread { requests, messages, stop, thread } = AgentThread::start(serve)?;
        let peer = Peer::new(Outbox::start(requests)?);
        let incoming = LineReader::start(messages)?;
        Ok(AgentLink { peer, incoming, stop, thread })
    }

    /// A connection with something else that stands for the agent.
    #[cfg(test)]
    pub(super) fn to(peer: Peer, incoming: LineReader) -> AgentLink {
        AgentLink {
            peer,
            incoming,
            stop: CancellationToken::new(),
            thread: std::thread::spawn(|| Ok(())),
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

/// The slash commands that an update of a session tells, each with a description.
pub(super) fn told_commands(update: &Value) -> Option<Vec<(String, String)>> {
    let is_about_commands = update["sessionUpdate"] == "available_commands_update";
    is_about_commands.then(|| pairs(&update["availableCommands"], "name", "description"))
}

pub(super) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Two fields of each item.
pub(super) fn pairs(items: &Value, first: &str, second: &str) -> Vec<(String, String)> {
    list(items).iter().map(|item| (string(&item[first]), string(&item[second]))).collect()
}
