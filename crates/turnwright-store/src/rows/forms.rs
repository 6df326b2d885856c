//! The stored form of plans, messages, cards of calls, and file states.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, stored_as};
use turnwright_types::effect::{CallContent, CallView, FileFate, Location, ToolKind};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::{CallId, MessageId, TerminalId};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, PromptPart, ProviderState, ToolCall, ToolMessage,
    UserMessage,
};
use turnwright_types::update::{PlanEntry, PlanPriority, PlanStatus};

stored_as!(
    PlanEntry => PlanEntryJson,
    PlanPriority => PlanPriorityJson,
    PlanStatus => PlanStatusJson,
);

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanEntry")]
struct PlanEntryJson {
    content: String,
    #[serde(with = "json")]
    priority: PlanPriority,
    #[serde(with = "json")]
    status: PlanStatus,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanPriority", rename_all = "snake_case")]
enum PlanPriorityJson {
    High,
    Medium,
    Low,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanStatus", rename_all = "snake_case")]
enum PlanStatusJson {
    Pending,
    InProgress,
    Completed,
}

stored_as!(
    Message => MessageJson,
    UserMessage => UserMessageJson,
    PromptPart => PromptPartJson,
    Media => MediaJson,
    AssistantMessage => AssistantMessageJson,
    ProviderState => ProviderStateJson,
    ToolCall => ToolCallJson,
    Arguments => ArgumentsJson,
    ToolMessage => ToolMessageJson,
);

#[derive(Deserialize, Serialize)]
#[serde(remote = "Message", rename_all = "snake_case")]
enum MessageJson {
    User(#[serde(with = "json")] UserMessage),
    Assistant(#[serde(with = "json")] AssistantMessage),
    Tool(#[serde(with = "json")] ToolMessage),
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "UserMessage")]
struct UserMessageJson {
    #[serde(with = "json")]
    parts: Vec<PromptPart>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PromptPart", rename_all = "snake_case")]
enum PromptPartJson {
    Text(String),
    Image(#[serde(with = "json")] Media),
    Audio(#[serde(with = "json")] Media),
    Link { name: String, uri: String },
    Resource { uri: String, text: String },
    Context(String),
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Media")]
struct MediaJson {
    mime: String,
    data: String,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "AssistantMessage")]
struct AssistantMessageJson {
    #[serde(with = "json")]
    id: MessageId,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    thought: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "json")]
    calls: Vec<ToolCall>,
    #[serde(default)]
    interrupted: bool,
    #[serde(default, rename = "echo", with = "json")]
    provider_state: ProviderState,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "ProviderState")]
struct ProviderStateJson {
    #[serde(default)]
    origin: Arc<str>,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    blobs: Vec<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "ToolCall")]
struct ToolCallJson {
    #[serde(with = "json")]
    id: CallId,
    provider_id: String,
    name: String,
    /// They are stored with the call, not in the message.
    #[serde(skip)]
    arguments: Arguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra: Option<Value>,
}

/// Only unusable arguments are stored in this form. Others are the JSON object itself.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Arguments", rename_all = "snake_case")]
enum ArgumentsJson {
    Object(Value),
    Unusable { text: String, reason: String },
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "ToolMessage")]
struct ToolMessageJson {
    #[serde(with = "json")]
    call: CallId,
    provider_id: String,
    name: String,
    text: String,
    ok: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "json")]
    images: Vec<Media>,
}

stored_as!(
    CallView => CallViewJson,
    ToolKind => ToolKindJson,
    Location => LocationJson,
    CallContent => CallContentJson,
);

/// The part of [`CallOutcome`](crate::CallOutcome) that is stored as JSON in the column `card`.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct CardJson {
    #[serde(skip_serializing_if = "Vec::is_empty", with = "json")]
    pub(crate) images: Vec<Media>,
    #[serde(skip_serializing_if = "Option::is_none", with = "json")]
    pub(crate) view: Option<CallView>,
    #[serde(skip_serializing_if = "Vec::is_empty", with = "json")]
    pub(crate) content: Vec<CallContent>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) raw: Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cancelled: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "CallView")]
struct CallViewJson {
    title: String,
    #[serde(with = "json")]
    kind: ToolKind,
    #[serde(with = "json")]
    locations: Vec<Location>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "ToolKind", rename_all = "snake_case")]
enum ToolKindJson {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Fetch,
    Execute,
    Think,
    SwitchMode,
    Other,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Location")]
struct LocationJson {
    #[serde(serialize_with = "lossy_path")]
    path: PathBuf,
    line: Option<u32>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "CallContent", rename_all = "snake_case")]
enum CallContentJson {
    Text(String),
    Diff {
        #[serde(serialize_with = "lossy_path")]
        path: PathBuf,
        old: Option<String>,
        new: String,
        #[serde(default, skip_serializing_if = "is_kept", with = "FileFateJson")]
        fate: FileFate,
    },
    Image(#[serde(with = "json")] Media),
    Terminal(#[serde(with = "json")] TerminalId),
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "FileFate", rename_all = "snake_case")]
enum FileFateJson {
    Kept,
    Deleted,
    MovedFrom(#[serde(serialize_with = "lossy_path")] PathBuf),
}

fn is_kept(fate: &FileFate) -> bool {
    *fate == FileFate::Kept
}

/// Serializes a path that is only displayed: bytes that are not UTF-8 become U+FFFD.
fn lossy_path<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

stored_as!(FileState => FileStateJson);

#[derive(Deserialize, Serialize)]
#[serde(remote = "FileState", rename_all = "snake_case")]
enum FileStateJson {
    Absent,
    File { hash: String, size: u64, mode: u32, is_kept: bool },
    Link { target: PathBuf },
    Folder { mode: u32 },
    Unknown { why: String },
}
