//! Everything that a client can be told about a session. Live turns and replays send the same updates.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::TerminalExit;
use crate::effect::{CallContent, CallView, Location};
use crate::ids::{CallId, MessageId};
use crate::message::PromptPart;

/// The name of the tool that runs commands, whose cards show a terminal.
pub const COMMAND_TOOL: &str = "exec";

/// Identifies a prompt within one connection.
pub type PromptKey = u64;

/// One message to the client about a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A part of an earlier prompt, when a conversation is replayed.
    UserChunk { message: MessageId, part: PromptPart },
    /// The turn of this prompt begins. Only for a client that follows prompts.
    TurnBegan(PromptKey),
    /// The user's words have become a message of the conversation. Only for a client that follows
    /// prompts.
    UserMessage {
        /// The prompt that has joined a running turn. `None` for the turn's own prompt, and for words
        /// that did not come as a prompt.
        prompt: Option<PromptKey>,
        message: MessageId,
        parts: Vec<PromptPart>,
    },
    /// The prompt was sent before, and is this message. Only for a client that follows prompts.
    KnownPrompt { prompt: PromptKey, message: MessageId },
    /// A piece of the model's answer, to be appended to the message.
    AgentText { message: MessageId, text: String },
    /// A piece of the model's reasoning, to be appended to the message.
    AgentThought { message: MessageId, text: String },
    /// A new tool call, whose status is `Pending`.
    ToolCall {
        id: CallId,
        /// The tool name.
        name: String,
        /// The title, the kind and the locations of its card.
        view: CallView,
        /// The arguments, if they are complete.
        raw_input: Option<Value>,
        /// True if the user can cancel it from now on without cancelling the turn.
        can_cancel: bool,
    },
    /// New values for some fields of a tool call.
    CallUpdate(Box<CallUpdate>),
    /// A command that went on in the background after its call has ended. Only a client whose terminals
    /// outlive their cards shows it.
    TerminalEnded { call: CallId, exit: TerminalExit },
    /// Replaces the plan.
    Plan(Vec<PlanEntry>),
    /// Replaces the list of slash commands.
    Commands(Vec<SlashCommand>),
    /// Replaces the prompts that the user may want to send next. Only for a client that shows them.
    Suggestions(Vec<String>),
    /// Something the user should know that is not part of the answer, such as a delay.
    Notice(String),
    SessionInfo {
        /// `None` if the title has not changed.
        title: Option<String>,
        /// When the session was last active.
        updated: SystemTime,
    },
    /// The id of the new mode.
    Mode(&'static str),
    /// The usage of the context window.
    ContextUsage {
        /// Tokens in use.
        used: u64,
        /// Tokens that the context window can hold.
        size: u64,
        /// Tokens of the last request that the provider read from its cache.
        cached: u64,
        /// The cost of the session so far in US dollars, if prices are configured.
        cost: Option<f64>,
    },
    /// Replaces the list of configuration options.
    ConfigOptions(Vec<ConfigOption>),
    /// The progress of a compaction of the conversation.
    Compaction {
        id: MessageId,
        state: CompactionState,
        /// The same in a sentence, for a client that does not show compactions.
        notice: Option<String>,
    },
    /// A piece of the summary that a compaction makes, to be appended to it.
    CompactionSummary { id: MessageId, text: String },
    /// A place at which the session can be forked: a new one, sent after its message or compaction, or one that was
    /// lost because the conversation was rewound, or has come back.
    Cursor { place: CursorPlace, at: MessageId, can_fork: bool },
    /// The client has all of the conversation that it has asked for.
    ReplayComplete,
}

/// The place of a cursor, by which a client names a point in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorPlace {
    /// Before a message of the user.
    BeforePrompt,
    AfterCompaction,
}

/// The state of a compaction: the older part of a conversation is replaced by a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionState {
    InProgress,
    /// With the whole summary, if the model has written one.
    Completed(Option<String>),
    /// With the reason.
    Failed(String),
    Cancelled,
}

/// A setting of a session that the user can change; ACP calls it a configuration option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOption {
    pub id: ConfigOptionId,
    /// The `value` of the current choice.
    pub current: String,
    pub choices: Vec<ConfigChoice>,
}

/// Identifies a configuration option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOptionId {
    Model,
    /// The model's reasoning effort.
    Effort,
    /// The permission mode: what is done without asking the user.
    Mode,
}

/// One possible value of a configuration option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChoice {
    /// The stable identifier.
    pub value: String,
    /// The display name.
    pub name: String,
    pub description: Option<String>,
}

impl ConfigOptionId {
    /// All options, the most important first.
    pub const ALL: [ConfigOptionId; 3] =
        [ConfigOptionId::Model, ConfigOptionId::Effort, ConfigOptionId::Mode];

    /// The stable identifier that clients use.
    pub fn id(self) -> &'static str {
        match self {
            ConfigOptionId::Model => "model",
            // ACP's name for it.
            ConfigOptionId::Effort => "thought_level",
            ConfigOptionId::Mode => "mode",
        }
    }

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            ConfigOptionId::Model => "Model",
            ConfigOptionId::Effort => "Reasoning effort",
            ConfigOptionId::Mode => "Mode",
        }
    }

    /// The inverse of [`ConfigOptionId::id`]. Some clients send any agent another one's name for the effort, such as
    /// `reasoning_effort`.
    pub fn parse(id: &str) -> Option<ConfigOptionId> {
        let meant = if id.to_lowercase().ends_with("effort") { Self::Effort.id() } else { id };
        ConfigOptionId::ALL.into_iter().find(|option| option.id() == meant)
    }
}

/// A change of a tool call. `None` leaves a field as it was; a list replaces the old one.
#[derive(Clone, Debug, PartialEq)]
pub struct CallUpdate {
    pub id: CallId,
    /// Always sent, because some clients show an update without a status as pending.
    pub status: ToolCallStatus,
    /// A more precise view, once the arguments are complete or the call is done.
    pub view: Option<CallView>,
    /// The content of the card.
    pub content: Option<Vec<CallContent>>,
    /// New locations, if the rest of the view stays.
    pub locations: Option<Vec<Location>>,
    /// The arguments.
    pub raw_input: Option<Value>,
    /// A summary of the result.
    pub raw_output: Option<Value>,
    /// New output, for a client that draws terminals from what we send.
    pub terminal: Option<TerminalDelta>,
    /// True if the user can cancel the call from now on without cancelling the turn.
    pub can_cancel: bool,
}

/// New output for a terminal that the client draws. The terminal's id is the call's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalDelta {
    /// Output to be appended, including its escape sequences.
    pub text: String,
    /// How the command ended, once it has.
    pub exit: Option<TerminalExit>,
    /// The output ends here, and the command goes on in the background.
    pub goes_on: bool,
    /// The text is all of the output so far, for a client that may have a part of it.
    pub is_snapshot: bool,
}

impl CallUpdate {
    /// Creates an update that changes only the status.
    pub fn new(id: CallId, status: ToolCallStatus) -> CallUpdate {
        CallUpdate {
            id,
            status,
            view: None,
            content: None,
            locations: None,
            raw_input: None,
            raw_output: None,
            terminal: None,
            can_cancel: false,
        }
    }
}

impl From<CallUpdate> for Update {
    fn from(update: CallUpdate) -> Update {
        Update::CallUpdate(Box::new(update))
    }
}

/// The state of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallStatus {
    /// The arguments are still being streamed, or the call waits for permission.
    Pending,
    InProgress,
    Completed,
    Failed,
    /// The user has cancelled the call, or its turn.
    Cancelled,
}

impl ToolCallStatus {
    /// Returns true if the call is over.
    pub fn is_final(self) -> bool {
        match self {
            ToolCallStatus::Pending | ToolCallStatus::InProgress => false,
            ToolCallStatus::Completed | ToolCallStatus::Failed | ToolCallStatus::Cancelled => true,
        }
    }
}

/// One step of the model's plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct PlanEntry {
    pub content: String,
    pub priority: PlanPriority,
    pub status: PlanStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPriority {
    High,
    Medium,
    Low,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// A slash command that the user can type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// Without the slash.
    pub name: String,
    /// One line.
    pub description: String,
    /// Describes the arguments.
    pub hint: Option<String>,
    /// The file that defines it, if it is a skill.
    pub skill: Option<PathBuf>,
}
