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

/// An update of a session, as far as a terminal shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AgentUpdate {
    /// A piece of a message of the model.
    Text {
        message: String,
        text: String,
    },
    /// The model is reasoning.
    Thought,
    /// A sentence to the user that is not part of the answer.
    Notice(String),
    /// A tool call, or changes of one: the fields that are set.
    Card(Value),
    /// The steps of the plan, each with its status.
    Plan(Vec<(String, String)>),
    /// How full the context window is, and the cost of the session in US dollars.
    Usage {
        used: u64,
        size: u64,
        cost: Option<f64>,
    },
    /// The slash commands, each with a description.
    Commands(Vec<(String, String)>),
    Other,
}

impl AgentUpdate {
    /// Reads the `update` of a notification.
    pub(super) fn read(update: &Value) -> AgentUpdate {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => AgentUpdate::Text {
                message: string(&update["messageId"]),
                text: string(&update["content"]["text"]),
            },
            "agent_thought_chunk" => AgentUpdate::Thought,
            "notice" => AgentUpdate::Notice(string(&update["title"])),
            "tool_call" | "tool_call_update" => AgentUpdate::Card(update.clone()),
            "plan" => AgentUpdate::Plan(pairs(&update["entries"], "content", "status")),
            "usage_update" => AgentUpdate::Usage {
                used: update["used"].as_u64().unwrap_or_default(),
                size: update["size"].as_u64().unwrap_or_default(),
                cost: update["cost"]["amount"].as_f64(),
            },
            "available_commands_update" => {
                AgentUpdate::Commands(pairs(&update["availableCommands"], "name", "description"))
            }
            _ => AgentUpdate::Other,
        }
    }
}

pub(super) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn pairs(items: &Value, first: &str, second: &str) -> Vec<(String, String)> {
    list(items).iter().map(|item| (string(&item[first]), string(&item[second]))).collect()
}
