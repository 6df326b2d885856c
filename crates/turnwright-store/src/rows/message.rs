//! The stored form of messages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, stored_as};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, PromptPart, ProviderState, ToolCall, ToolMessage,
    UserMessage,
};

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
