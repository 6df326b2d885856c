//! Everything a client can be told about a session. Live turns and replays use the same list.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::TerminalExit;
use crate::effect::{CallView, Content, Location};
use crate::ids::{CallId, MessageId};
use crate::message::Part;

/// One thing to tell the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A piece of what the user has said, of a conversation that comes back.
    User {
        /// The message it belongs to.
        message: MessageId,
        /// The piece.
        part: Part,
    },
    /// Words of the model's answer.
    Text {
        /// The message they belong to.
        message: MessageId,
        /// The words, to be appended.
        text: String,
    },
    /// Words of the model's reasoning.
    Thought {
        /// The message they belong to.
        message: MessageId,
        /// The words, to be appended.
        text: String,
    },
    /// First sight of a tool call. Status: pending.
    Call {
        /// Its identifier.
        id: CallId,
        /// The function's name.
        name: String,
        /// How it looks.
        view: CallView,
    },
    /// News of a tool call.
    CallUpdate(Box<CallUpdate>),
    /// The whole plan.
    Plan(Vec<PlanEntry>),
    /// The slash commands, all of them.
    Commands(Vec<Command>),
    /// Something the user should know that is no part of the answer, such as a wait.
    Notice(String),
    /// What the session is about, and when something last happened in it.
    Info {
        /// The title, if it has changed.
        title: Option<String>,
        /// The moment.
        updated: SystemTime,
    },
    /// The mode has changed.
    Mode(&'static str),
    /// How full the context window is.
    Usage {
        /// Tokens in use.
        used: u64,
        /// Tokens it can hold.
        size: u64,
        /// Tokens of the last request that the provider had in its cache.
        cached: u64,
        /// What the session has cost so far, in US dollars, if prices are configured.
        cost: Option<f64>,
    },
    /// The settings that the user can change, all of them.
    Settings(Vec<Setting>),
}

/// Something about a session that the user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub id: SettingId,
    /// The value now.
    pub current: String,
    /// What can be chosen.
    pub choices: Vec<SettingChoice>,
}

/// The settings that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingId {
    /// Who thinks.
    Model,
    /// How long it thinks.
    Effort,
    /// How much is done without asking.
    Mode,
}

/// One value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChoice {
    /// Its stable name.
    pub value: String,
    /// What people read.
    pub name: String,
    /// A little more.
    pub description: Option<String>,
}

impl SettingId {
    /// All, the most important first.
    pub const ALL: [SettingId; 3] = [SettingId::Model, SettingId::Effort, SettingId::Mode];

    /// A stable word for clients.
    pub fn id(self) -> &'static str {
        match self {
            SettingId::Model => "model",
            SettingId::Effort => "thought_level",
            SettingId::Mode => "mode",
        }
    }

    /// What people read.
    pub fn name(self) -> &'static str {
        match self {
            SettingId::Model => "Model",
            SettingId::Effort => "Reasoning effort",
            SettingId::Mode => "Mode",
        }
    }

    /// The setting of that name.
    pub fn parse(id: &str) -> Option<SettingId> {
        SettingId::ALL.into_iter().find(|it| it.id() == id)
    }
}

/// News of a tool call. `None` leaves a field as it was; lists replace.
#[derive(Clone, Debug, PartialEq)]
pub struct CallUpdate {
    /// The call.
    pub id: CallId,
    /// Always sent: some clients show an update without it as pending.
    pub status: Status,
    /// A better view, once the arguments are complete or the work is done.
    pub view: Option<CallView>,
    /// What the card shows.
    pub content: Option<Vec<Content>>,
    /// Only the places, when the rest of the view stays.
    pub locations: Option<Vec<Location>>,
    /// The arguments.
    pub raw_input: Option<Value>,
    /// The result in a few words or fields.
    pub raw_output: Option<Value>,
    /// What its terminal is to show, where the client draws it from what we send.
    pub terminal: Option<TerminalNews>,
}

/// News of a terminal that the client draws. It has the call's identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalNews {
    /// What was printed, to be appended; escape sequences are kept.
    pub text: String,
    /// How the command ended, once it has.
    pub exit: Option<TerminalExit>,
}

impl CallUpdate {
    /// An update that says no more than the status.
    pub fn new(id: CallId, status: Status) -> CallUpdate {
        CallUpdate {
            id,
            status,
            view: None,
            content: None,
            locations: None,
            raw_input: None,
            raw_output: None,
            terminal: None,
        }
    }
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its arguments still stream, or it waits for permission.
    Pending,
    /// It runs.
    InProgress,
    /// It did what was asked.
    Completed,
    /// It did not.
    Failed,
}

/// One step of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How important it is.
    pub priority: Priority,
    /// How far it is.
    pub status: PlanStatus,
}

/// How important a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// First.
    High,
    /// Usual.
    Medium,
    /// If there is time.
    Low,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}

/// A slash command that the user can type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Without the slash.
    pub name: String,
    /// One line.
    pub description: String,
    /// What may stand behind it.
    pub hint: Option<String>,
}
