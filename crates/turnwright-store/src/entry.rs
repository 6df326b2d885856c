//! The data model of the store: entries, calls and sessions, and how much memory they hold until they are
//! written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::GoalState;
use turnwright_types::effect::{CallContent, CallView, fenced};
use turnwright_types::file_change::FileChange;
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Arguments, Media, Message, PromptPart, ToolCall, ToolMessage};
use turnwright_types::text::json_len;
use turnwright_types::update::{CallUpdate, CursorPlace, PlanEntry, ToolCallStatus, Update};

/// Who a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The user and the model.
    #[default]
    Both,
    /// Only the user: a slash command, or an answer that consists of nothing but reasoning.
    User,
    /// Only the model.
    Model,
}

/// One entry of a conversation. It is stored as one field, whose name is the column `kind`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A message of the user or the model. Tool results are stored with their calls.
    Message {
        /// The id that the client knows the message by.
        id: MessageId,
        /// Without the arguments of calls, which are stored with the calls.
        message: Arc<Message>,
        #[serde(default)]
        audience: Audience,
    },
    /// A text for the user that is not an answer of the model.
    Note {
        /// The id that the client knows the note by.
        id: MessageId,
        text: String,
    },
    /// A call whose card the user has seen, but whose arguments never arrived completely.
    #[serde(rename = "lost")]
    IncompleteCall {
        call: CallId,
        /// The tool's name as the model gave it.
        name: String,
        /// How the client displays it.
        view: CallView,
        /// Why the call was never made.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A new plan, which replaces the one before.
    Plan { entries: Vec<PlanEntry> },
    /// The goal has changed; `None` if there is none any more.
    Goal { goal: Option<Box<GoalState>> },
    /// The context was cleared: the model does not see what came before.
    Cleared,
    /// The conversation was summarised: for the model, `replacement` stands for everything before
    /// its last `kept` messages. The user still sees all of it.
    Compacted {
        /// The id that the client knows the compaction by.
        id: MessageId,
        replacement: Arc<Message>,
        /// The number of messages that stay.
        kept: usize,
        /// Longer results among these are cut to this many bytes.
        max_result: usize,
    },
    /// For the model, the results before the last `kept` messages were left out.
    Pruned {
        /// The number of messages that stay as they were.
        kept: usize,
    },
    /// For the model, all images before this were left out, because its server could not use one.
    ImagesLeftOut,
    /// The same of some images alone.
    SomeImagesLeftOut {
        /// Their places among the images of the conversation, from 0.
        images: Vec<usize>,
    },
    /// The turn was refused: the model does not see it.
    Refused,
    /// The conversation was rewound to just before an earlier entry.
    Rewound {
        /// The first entry that no longer counts.
        to: u64,
    },
    /// A rewind was undone: the entries that it had removed count again.
    RewindUndone {
        /// The sequence number of the rewind.
        rewind: u64,
    },
    /// An entry of a newer version.
    #[serde(skip)]
    Unknown,
}

/// The cause of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// A prompt for the model.
    Prompt,
    /// A slash command.
    Command,
    /// An undo of the file changes of earlier turns.
    Undo,
    /// A redo of undone file changes.
    Redo,
}

impl TurnKind {
    /// The kind as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            TurnKind::Prompt => "prompt",
            TurnKind::Command => "command",
            TurnKind::Undo => "undo",
            TurnKind::Redo => "redo",
        }
    }

    /// Parses the stored kind; an unknown one counts as a prompt.
    pub fn parse(word: &str) -> TurnKind {
        let others = [TurnKind::Command, TurnKind::Undo, TurnKind::Redo];
        others.into_iter().find(|kind| kind.as_str() == word).unwrap_or(TurnKind::Prompt)
    }
}

/// The settled outcome of a call, for the model, for the user and for the record. Its serialized form is the column
/// `card`; the skipped fields have columns and tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct CallOutcome {
    /// True if the call succeeded.
    #[serde(skip)]
    pub is_success: bool,
    #[serde(skip)]
    pub tool: String,
    /// The text that the model reads.
    #[serde(skip)]
    pub text: String,
    /// Images that belong to the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Media>,
    /// How the client displays the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<CallView>,
    /// The content of its card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<CallContent>,
    /// The structured result for the client.
    #[serde(rename = "raw", skip_serializing_if = "Value::is_null")]
    pub raw_output: Value,
    /// True if the user has cancelled it or its turn, and it did not do all it was asked to do.
    #[serde(rename = "cancelled", skip_serializing_if = "std::ops::Not::not")]
    pub is_cancelled: bool,
    /// How long the call ran; `None` if it did not run.
    #[serde(skip)]
    pub duration: Option<Duration>,
    /// The file changes of the call.
    #[serde(skip)]
    pub file_changes: Vec<FileChange>,
    /// Contents of these files, to be stored as blobs.
    #[serde(skip)]
    pub file_contents: Vec<Arc<[u8]>>,
}

impl CallOutcome {
    /// Returns false if the call was denied, impossible, or cancelled before it ran.
    pub fn has_run(&self) -> bool {
        self.duration.is_some()
    }

    /// The outcome of a call of this tool for the log. Unless it has a view of its own, it gets that of the card, if
    /// there is one. When the session is loaded again, the client shows no helper, and a terminal of it no longer exists.
    #[must_use]
    pub fn to_stored(&self, tool: &str, view: Option<&CallView>) -> CallOutcome {
        let mut stored = self.clone();
        tool.clone_into(&mut stored.tool);
        stored.view = view.map(|view| self.view.as_ref().unwrap_or(view).clone());
        stored.content.retain(|part| !matches!(part, CallContent::Session(_)));
        let before = stored.content.len();
        stored.content.retain(|part| !matches!(part, CallContent::Terminal(_)));
        if stored.content.len() < before {
            stored.content.push(CallContent::Text(fenced(&self.text)));
        }
        stored
    }

    /// The result that the model reads.
    pub fn message(&self, call: &ToolCall) -> ToolMessage {
        let images = self.images.clone();
        ToolMessage { images, ..ToolMessage::new(call, &self.text, self.is_success) }
    }

    /// The final update of the call's card. It repeats everything because some clients show only the last
    /// update.
    pub fn final_update(&self, id: &CallId) -> CallUpdate {
        let status = match self {
            CallOutcome { is_success: true, .. } => ToolCallStatus::Completed,
            CallOutcome { is_cancelled: true, .. } => ToolCallStatus::Cancelled,
            _ => ToolCallStatus::Failed,
        };
        let mut last = CallUpdate::new(id.clone(), status);
        last.view.clone_from(&self.view);
        last.content = Some(self.content.clone());
        last.raw_output = Some(self.raw_output.clone());
        last
    }
}

/// The last known state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// The model has requested it, and nothing was done yet.
    Pending,
    /// It was about to have effects, or was having them.
    Running,
    /// It succeeded.
    Success,
    /// It failed or was not allowed.
    Error,
}

impl CallStatus {
    /// The status as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            CallStatus::Pending => "pending",
            CallStatus::Running => "running",
            CallStatus::Success => "success",
            CallStatus::Error => "error",
        }
    }

    /// Parses the stored status; an unknown one counts as pending.
    pub fn parse(word: &str) -> CallStatus {
        let others = [CallStatus::Running, CallStatus::Success, CallStatus::Error];
        others.into_iter().find(|status| status.as_str() == word).unwrap_or(CallStatus::Pending)
    }
}

/// A stored call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    pub call: CallId,
    pub turn: u64,
    pub tool: String,
    /// The arguments: a JSON object, or the text that could not be parsed as one.
    pub arguments: Arguments,
    pub status: CallStatus,
    /// The outcome; empty if there is none yet.
    pub outcome: CallOutcome,
    /// When the model requested it.
    pub requested_at: SystemTime,
    /// When it was about to have effects.
    pub started_at: Option<SystemTime>,
    pub ended_at: Option<SystemTime>,
}

/// A stored entry, with the calls of its message.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    /// Its position in the conversation.
    pub seq: u64,
    pub turn: u64,
    /// When it was written.
    pub at: SystemTime,
    /// The entry, without the arguments of its calls.
    pub entry: Entry,
    /// The calls in the model's order.
    pub calls: Vec<CallRow>,
}

impl StoredEntry {
    /// The update of the cursor at this entry, if clients are told of one there.
    pub fn cursor(&self, can_fork: bool) -> Option<Update> {
        let (place, at) = match &self.entry {
            // The place and the id of words that wait for a turn are not final.
            Entry::Message { id, message, audience }
                if *audience != Audience::Model && !id.is_waiting() =>
            {
                message.as_user()?.own_parts().next()?;
                (CursorPlace::BeforePrompt, id.clone())
            }
            Entry::Compacted { id, .. } => (CursorPlace::AfterCompaction, id.clone()),
            _ => return None,
        };
        Some(Update::Cursor { place, at, can_fork })
    }
}

/// A stored session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    pub id: SessionId,
    /// The working folder as the client has named it.
    pub cwd: PathBuf,
    /// The working folder with symbolic links resolved.
    pub real_cwd: PathBuf,
    pub additional_folders: Vec<PathBuf>,
    pub title: Option<String>,
    /// A person has chosen the title, so it is never generated again.
    pub title_is_final: bool,
    pub created_at: SystemTime,
    /// When something last happened in it.
    pub updated_at: SystemTime,
    pub is_archived: bool,
    /// The session that it was forked from.
    pub parent: Option<SessionId>,
    /// The session whose helper has this conversation. It is written and never read.
    pub helper_of: Option<SessionId>,
    /// The last used permission mode.
    pub mode: Option<String>,
    /// The last used model.
    pub model: Option<String>,
    /// The last used reasoning effort.
    pub effort: Option<String>,
    /// The greatest number that was used in an id of this session.
    pub last_id_number: u64,
    /// The cost in US dollars, if known.
    pub cost_usd: Option<f64>,
}

impl SessionRow {
    /// A session in this folder that begins now, with nothing else set.
    pub fn new(id: SessionId, cwd: PathBuf) -> SessionRow {
        let now = SystemTime::now();
        SessionRow {
            id,
            real_cwd: cwd.clone(),
            cwd,
            additional_folders: Vec::new(),
            title: None,
            title_is_final: false,
            created_at: now,
            updated_at: now,
            is_archived: false,
            parent: None,
            helper_of: None,
            mode: None,
            model: None,
            effort: None,
            last_id_number: 0,
            cost_usd: None,
        }
    }
}

/// The approximate number of bytes that an entry holds in memory.
pub(super) fn entry_size(entry: &Entry) -> usize {
    match entry {
        Entry::Message { message, .. } | Entry::Compacted { replacement: message, .. } => {
            match message.as_ref() {
                Message::User(user) => user.parts.iter().map(PromptPart::size).sum(),
                Message::Assistant(answer) => {
                    let calls: usize = answer.calls.iter().map(call_size).sum();
                    let state: usize = answer.provider_state.blobs.iter().map(json_len).sum();
                    answer.text.len() + answer.thought.len() + calls + state
                }
                Message::Tool(tool) => tool.text.len() + media_size(&tool.images),
            }
        }
        Entry::Note { text, .. } => text.len(),
        Entry::IncompleteCall { name, view, reason, .. } => {
            name.len() + view_size(view) + reason.len()
        }
        Entry::Plan { entries } => entries.iter().map(|entry| entry.content.len()).sum(),
        Entry::Goal { goal } => goal.as_ref().map_or(0, |goal| goal_size(goal)),
        Entry::Cleared
        | Entry::Pruned { .. }
        | Entry::ImagesLeftOut
        | Entry::SomeImagesLeftOut { .. }
        | Entry::Refused
        | Entry::Rewound { .. }
        | Entry::RewindUndone { .. }
        | Entry::Unknown => 0,
    }
}

fn goal_size(goal: &GoalState) -> usize {
    let missing: usize = goal.last_missing.iter().map(String::len).sum();
    goal.text.len() + goal.requirement_list().len() + missing
}

/// The approximate number of bytes that a call's outcome holds in memory.
pub(super) fn outcome_size(outcome: &CallOutcome) -> usize {
    let content = outcome.content.iter().map(|part| match part {
        CallContent::Text(text) => text.len(),
        CallContent::Diff { old, new, .. } => old.as_ref().map_or(0, String::len) + new.len(),
        CallContent::Image(media) => media.data.len(),
        CallContent::Terminal(_) | CallContent::Session(_) => 0,
    });
    outcome.text.len()
        + media_size(&outcome.images)
        + outcome.view.as_ref().map_or(0, view_size)
        + content.sum::<usize>()
        + json_len(&outcome.raw_output)
        + outcome.file_contents.iter().map(|bytes| bytes.len()).sum::<usize>()
}

fn call_size(call: &ToolCall) -> usize {
    let arguments = match &call.arguments {
        Arguments::Object(value) => json_len(value),
        Arguments::Unusable { text, .. } => text.len(),
    };
    call.name.len() + arguments + call.extra.as_ref().map_or(0, json_len)
}

fn view_size(view: &CallView) -> usize {
    let locations = view.locations.iter().map(|location| location.path.as_os_str().len());
    view.title.len() + locations.sum::<usize>()
}

fn media_size(all: &[Media]) -> usize {
    all.iter().map(|media| media.data.len()).sum()
}
