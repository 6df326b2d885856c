//! What is kept, as data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use turnwright_types::effect::{CallView, Content};
use turnwright_types::file_change::Change;
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Media, Message};
use turnwright_types::update::PlanEntry;

/// Who a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The user and the model.
    #[default]
    Both,
    /// The user alone: a slash command, or an answer of which nothing but thoughts came.
    User,
    /// The model alone.
    Model,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// What the user or the model has said. Results of tools stand with their calls.
    Message {
        /// What the client knows it by.
        id: MessageId,
        /// Arguments of calls are left out: they stand with the calls.
        message: Arc<Message>,
        /// Who it is for.
        #[serde(default)]
        audience: Audience,
    },
    /// Words to the user that are no answer of the model.
    Note {
        /// What the client knows it by.
        id: MessageId,
        /// The words.
        text: String,
    },
    /// A call that the user has seen the beginning of, and that never was whole.
    Lost {
        /// The call.
        call: CallId,
        /// The function's name.
        name: String,
        /// How it looked.
        view: CallView,
        /// Why nothing has come of it.
        why: String,
    },
    /// The plan, from here on.
    Plan {
        /// All of its steps.
        entries: Vec<PlanEntry>,
    },
    /// The model knows nothing of what was before.
    Cleared,
    /// The model knows nothing of this turn: it was refused.
    Refused,
    /// The conversation went back to just before this entry.
    Rewound {
        /// The first entry that does not count any more.
        to: u64,
    },
    /// Something that a newer program has written.
    #[serde(skip)]
    Unknown,
}

/// What sort of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// The model's.
    Prompt,
    /// A slash command.
    Command,
    /// Files of earlier turns went back.
    Undo,
    /// And forth again.
    Redo,
}

impl TurnKind {
    /// A stable word.
    pub fn word(self) -> &'static str {
        match self {
            TurnKind::Prompt => "prompt",
            TurnKind::Command => "command",
            TurnKind::Undo => "undo",
            TurnKind::Redo => "redo",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> TurnKind {
        match word {
            "command" => TurnKind::Command,
            "undo" => TurnKind::Undo,
            "redo" => TurnKind::Redo,
            _ => TurnKind::Prompt,
        }
    }
}

/// What a call has come to: for the model, for the user and for the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Whether it did what was asked.
    pub ok: bool,
    /// The tool's own name.
    pub tool: String,
    /// What the model reads.
    pub text: String,
    /// Pictures that belong to it.
    pub images: Vec<Media>,
    /// How it looks.
    pub view: Option<CallView>,
    /// What its card shows.
    pub content: Vec<Content>,
    /// The result in a few fields.
    pub raw: Value,
    /// How long it took; `None` if it did not run.
    pub took: Option<Duration>,
    /// What it has done to files.
    pub files: Vec<Change>,
    /// Bytes of theirs, to be kept.
    pub bytes: Vec<Arc<[u8]>>,
}

/// The part of [`Settled`] that is kept as JSON.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Card {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) images: Vec<Media>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) view: Option<CallView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) content: Vec<Content>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) raw: Value,
}

/// How far a call was when it was last heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// It was asked for and has done nothing.
    Pending,
    /// It was about to do something, or was doing it.
    Running,
    /// It did what was asked.
    Success,
    /// It did not.
    Error,
}

impl CallStatus {
    /// A stable word.
    pub fn word(self) -> &'static str {
        match self {
            CallStatus::Pending => "pending",
            CallStatus::Running => "running",
            CallStatus::Success => "success",
            CallStatus::Error => "error",
        }
    }

    /// The status of that word.
    pub fn parse(word: &str) -> CallStatus {
        match word {
            "running" => CallStatus::Running,
            "success" => CallStatus::Success,
            "error" => CallStatus::Error,
            _ => CallStatus::Pending,
        }
    }
}

/// A call as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// Which.
    pub call: CallId,
    /// In which turn.
    pub turn: u64,
    /// The tool's name.
    pub tool: String,
    /// What it was called with: an object, or a text that was none.
    pub arguments: turnwright_types::message::Arguments,
    /// How far it was.
    pub status: CallStatus,
    /// What has come of it. Empty if nothing has.
    pub settled: Settled,
    /// When it was asked for.
    pub asked: SystemTime,
    /// When it was about to do something.
    pub begun: Option<SystemTime>,
    /// When it ended.
    pub ended: Option<SystemTime>,
}

/// An entry as it is kept, with the calls of its message.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its place in the conversation.
    pub seq: u64,
    /// The turn that it belongs to.
    pub turn: u64,
    /// When it was written.
    pub at: SystemTime,
    /// What it is. The arguments of calls are where they belong.
    pub entry: Entry,
    /// In the model's order.
    pub calls: Vec<CallRow>,
}

/// A session as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    /// Its name.
    pub id: SessionId,
    /// The working folder as the client has named it.
    pub cwd: PathBuf,
    /// The same without links.
    pub real_cwd: PathBuf,
    /// The folders besides.
    pub folders: Vec<PathBuf>,
    /// What it is about.
    pub title: Option<String>,
    /// A person has chosen the title.
    pub title_is_final: bool,
    /// When it began.
    pub created: SystemTime,
    /// When something last happened in it.
    pub updated: SystemTime,
    /// Put away by the user.
    pub archived: bool,
    /// What it was forked from.
    pub parent: Option<SessionId>,
    /// What it was left with.
    pub mode: Option<String>,
    /// What it was left with.
    pub model: Option<String>,
    /// What it was left with.
    pub effort: Option<String>,
    /// The last number that an identifier was made of.
    pub minted: u64,
    /// What it has cost, in US dollars, where that is known.
    pub cost: Option<f64>,
}

impl SessionRow {
    /// A session in this folder that begins now and of which nothing else is known.
    pub fn new(id: SessionId, cwd: PathBuf) -> SessionRow {
        let now = SystemTime::now();
        SessionRow {
            id,
            real_cwd: cwd.clone(),
            cwd,
            folders: Vec::new(),
            title: None,
            title_is_final: false,
            created: now,
            updated: now,
            archived: false,
            parent: None,
            mode: None,
            model: None,
            effort: None,
            minted: 0,
            cost: None,
        }
    }
}
