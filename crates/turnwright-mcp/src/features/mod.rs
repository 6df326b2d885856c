//! The features of a server: tools, prompts and resources. Here are the types of the protocol, as far as they
//! are used.

pub mod prompts;
pub mod resources;
pub(crate) mod skills;
pub(crate) mod tools;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use skills::ServerSkill;

pub type JsonObject = Map<String, Value>;

/// A JSON Schema, kept as text. As values it takes eight times the memory, and of many tools most are
/// never called.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaText(Arc<str>);

impl SchemaText {
    pub fn new(schema: &JsonObject) -> SchemaText {
        SchemaText(serde_json::to_string(schema).unwrap_or_default().into())
    }

    /// Parses the text. It was written from an object, so this does not fail.
    pub fn parse(&self) -> JsonObject {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// The length of the text in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

impl Serialize for SchemaText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parse().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SchemaText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SchemaText, D::Error> {
        JsonObject::deserialize(deserializer).map(|object| SchemaText::new(&object))
    }
}

/// A tool as a server defines it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: SchemaText,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<SchemaText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// The skill that it loads, if it is one of our own tools for skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<Box<ServerSkill>>,
}

/// A server's claims about a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A prompt that a server offers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Prompt {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub arguments: Option<Vec<PromptArgument>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PromptArgument {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub required: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PromptMessage {
    pub(crate) role: Role,
    pub(crate) content: ContentBlock,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum ContentBlock {
    Text {
        text: String,
    },
    Image {
        data: String,
        mime_type: String,
    },
    Audio {
        data: String,
        mime_type: String,
    },
    Resource {
        resource: ResourceContents,
    },
    ResourceLink(Resource),
    #[serde(other)]
    Unknown,
}

/// A resource that can be read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: Option<String>,
    pub(crate) size: Option<u64>,
}

/// The contents of a resource: text or base64.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceContents {
    pub(crate) uri: String,
    pub(crate) mime_type: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) blob: Option<String>,
}
