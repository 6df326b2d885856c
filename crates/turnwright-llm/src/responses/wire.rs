//! Events of the Responses API as servers send them, as tolerant structs: every field may be
//! absent, null, empty or of an unexpected type. Nothing here interprets them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::wire::{TolerantText, bounded_list, holds_error, raw_arguments_text};
use crate::errors::error_body::number;
use crate::exchange::{cost_beside_usage, cost_in_usage};

/// One event of a stream. All kinds share one shape; the kind determines which fields count.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: TolerantText<'a>,
    output_index: Option<Value>,
    #[serde(borrow)]
    item_id: TolerantText<'a>,
    content_index: Option<Value>,
    summary_index: Option<Value>,
    #[serde(borrow)]
    pub(super) delta: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) text: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) refusal: TolerantText<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    error: Option<Value>,
}

/// The item that an event refers to, as far as the server says.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemLocation<'a> {
    pub(super) index: Option<u64>,
    /// The identifier of the item, possibly empty.
    pub(super) id: &'a str,
}

impl ItemLocation<'_> {
    /// True if the server says nothing.
    pub(super) fn is_unspecified(&self) -> bool {
        self.index.is_none() && self.id.is_empty()
    }
}

impl ResponsesEvent<'_> {
    /// True if the event reports an error outside of a response.
    pub(super) fn is_failure(&self) -> bool {
        self.kind.text == "error" || self.error.as_ref().is_some_and(holds_error)
    }

    pub(super) fn location(&self) -> ItemLocation<'_> {
        ItemLocation { index: self.output_index.as_ref().and_then(number), id: &self.item_id.text }
    }

    /// The index of the part within its item.
    pub(super) fn part_index(&self) -> u64 {
        let index = self.content_index.as_ref().or(self.summary_index.as_ref());
        index.and_then(number).unwrap_or(0)
    }

    /// The complete arguments.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(raw_arguments_text).unwrap_or_default()
    }
}

/// The kind of an output item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ItemKind {
    #[default]
    Message,
    Reasoning,
    Call,
}

/// One output item of a reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) id: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) call_id: TolerantText<'a>,
    #[serde(borrow)]
    name: TolerantText<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) phase: TolerantText<'a>,
}

impl<'a> OutputItem<'a> {
    /// Parses an item; `None` if its kind is unknown.
    pub(super) fn parse(raw: &'a RawValue) -> Option<(ItemKind, OutputItem<'a>)> {
        let item: OutputItem<'a> = serde_json::from_str(raw.get()).ok()?;
        let kind = match item.kind.text.as_ref() {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Call,
            _ => return None,
        };
        Some((kind, item))
    }

    pub(super) fn name(&self) -> &str {
        self.name.text.trim()
    }

    /// The identifier that the tool result must refer to.
    pub(super) fn call_id_or_id(&self) -> &str {
        if self.call_id.text.is_empty() { &self.id.text } else { &self.call_id.text }
    }

    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(raw_arguments_text).unwrap_or_default()
    }

    pub(super) fn content(&self) -> Vec<ContentPart<'a>> {
        parts(self.content)
    }

    pub(super) fn summary(&self) -> Vec<ContentPart<'a>> {
        parts(self.summary)
    }

    /// The part of reasoning that is sent back: all but its status and its identifier, which a
    /// server that stores nothing could not find. `None` if there is only a summary, which is for
    /// people.
    pub(super) fn reasoning_to_resend(&self) -> Option<Value> {
        let encrypted = self.encrypted_content.text.as_ref();
        let content = typed_texts("reasoning_text", &self.content());
        if encrypted.is_empty() && content.is_empty() {
            return None;
        }
        let summary = typed_texts("summary_text", &self.summary());
        let mut blob = json!({ "type": "reasoning", "summary": summary });
        if !content.is_empty() {
            blob["content"] = content.into();
        }
        if !encrypted.is_empty() {
            blob["encrypted_content"] = encrypted.into();
        }
        Some(blob)
    }
}

/// A part of a message or of reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentPart<'a> {
    #[serde(borrow)]
    pub(super) text: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) refusal: TolerantText<'a>,
}

/// The parts of a list; some servers send a plain string instead.
fn parts<'a>(raw: Option<&'a RawValue>) -> Vec<ContentPart<'a>> {
    let Some(raw) = raw.map(RawValue::get) else { return Vec::new() };
    if raw.starts_with('[') {
        return bounded_list(&mut serde_json::Deserializer::from_str(raw)).unwrap_or_default();
    }
    let text = serde_json::from_str::<TolerantText<'a>>(raw).unwrap_or_default();
    vec![ContentPart { text, refusal: TolerantText::default() }]
}

/// A complete response, from the last event or from a server that does not stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseObject<'a> {
    #[serde(borrow)]
    object: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) status: TolerantText<'a>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: TolerantText<'a>,
    pub(super) usage: Option<Value>,
    provider_metadata: Option<Value>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    incomplete_details: Option<Value>,
}

impl<'a> ResponseObject<'a> {
    /// True if the object is a response at all.
    fn is_response(&self) -> bool {
        self.object.text == "response" || self.output.is_some()
    }

    /// The cost of the response, if the server reports it.
    pub(super) fn cost(&self) -> Option<f64> {
        let in_usage = self.usage.as_ref().and_then(cost_in_usage);
        in_usage.or_else(|| cost_beside_usage(None, self.provider_metadata.as_ref()))
    }

    /// The error as JSON.
    pub(super) fn error(&self) -> Option<&'a str> {
        let raw = self.error?.get();
        serde_json::from_str::<Value>(raw).ok().filter(holds_error).map(|_| raw)
    }

    /// Why the response is incomplete, possibly empty.
    pub(super) fn incomplete_reason(&self) -> &str {
        let details = self.incomplete_details.as_ref();
        details.and_then(|details| details.get("reason")?.as_str()).unwrap_or_default()
    }

    pub(super) fn output(&self) -> Vec<&'a RawValue> {
        self.output
            .and_then(|raw| bounded_list(&mut serde_json::Deserializer::from_str(raw.get())).ok())
            .unwrap_or_default()
    }
}

fn typed_texts(kind: &str, parts: &[ContentPart<'_>]) -> Vec<Value> {
    parts.iter().map(|part| json!({ "type": kind, "text": part.text.text })).collect()
}

/// True if this JSON is a response object rather than an event.
pub(super) fn is_response(json: &str) -> bool {
    serde_json::from_str::<ResponseObject<'_>>(json).is_ok_and(|response| response.is_response())
}
