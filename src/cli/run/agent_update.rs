//! The agent's updates of a session, read from the protocol's JSON. The text in them is not safe for a
//! terminal; [`paint`](super::text_style::paint) makes it so.

use serde_json::Value;

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
