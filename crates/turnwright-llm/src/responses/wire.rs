//! The shapes that servers send, as tolerant structs: every field may be absent, null, empty or
//! of an odd type. Nothing here decides what they mean.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::wire::{Words, arguments_text, list, mend_surrogates, says_something};
use crate::failure::number;

/// One event of a stream. All sorts share one shape; which fields count depends on the sort.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) sort: Words<'a>,
    #[serde(default)]
    output_index: Option<Value>,
    #[serde(borrow, default)]
    item_id: Words<'a>,
    #[serde(default)]
    content_index: Option<Value>,
    #[serde(default)]
    summary_index: Option<Value>,
    #[serde(borrow, default)]
    pub(super) delta: Words<'a>,
    #[serde(borrow, default)]
    pub(super) text: Words<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Words<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
}

/// Where something stands in the answer, as far as the server says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) index: Option<u64>,
    /// The identifier of the item, possibly empty.
    pub(super) id: &'a str,
}

impl Place<'_> {
    /// Whether the server says nothing.
    pub(super) fn is_nowhere(&self) -> bool {
        self.index.is_none() && self.id.is_empty()
    }
}

impl Event<'_> {
    /// Whether it reports a failure outside of a response.
    pub(super) fn is_failure(&self) -> bool {
        self.sort.text == "error" || self.error.as_ref().is_some_and(says_something)
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place { index: self.output_index.as_ref().and_then(number), id: &self.item_id.text }
    }

    /// Which part of its item it is about.
    pub(super) fn part(&self) -> u64 {
        let index = self.content_index.as_ref().or(self.summary_index.as_ref());
        index.and_then(number).unwrap_or(0)
    }

    /// All arguments at their end.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(arguments_text).unwrap_or_default()
    }
}

/// What an item of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Message,
    Reasoning,
    Call,
}

/// One item of an answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    sort: Words<'a>,
    #[serde(borrow, default)]
    pub(super) id: Words<'a>,
    #[serde(borrow, default)]
    pub(super) call_id: Words<'a>,
    #[serde(borrow, default)]
    name: Words<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    encrypted_content: Words<'a>,
    #[serde(borrow, default)]
    pub(super) phase: Words<'a>,
}

impl<'a> Item<'a> {
    /// The item, or nothing if it is none that we know.
    pub(super) fn read(raw: &'a RawValue) -> Option<(Sort, Item<'a>)> {
        let item: Item<'a> = serde_json::from_str(raw.get()).ok()?;
        let sort = match item.sort.text.as_ref() {
            "message" => Sort::Message,
            "reasoning" => Sort::Reasoning,
            "function_call" => Sort::Call,
            _ => return None,
        };
        Some((sort, item))
    }

    pub(super) fn name(&self) -> &str {
        self.name.text.trim()
    }

    /// The identifier that the result is to carry.
    pub(super) fn result_id(&self) -> &str {
        if self.call_id.text.is_empty() { &self.id.text } else { &self.call_id.text }
    }

    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(arguments_text).unwrap_or_default()
    }

    pub(super) fn content(&self) -> Vec<Part<'a>> {
        parts(self.content)
    }

    pub(super) fn summary(&self) -> Vec<Part<'a>> {
        parts(self.summary)
    }

    /// What of the reasoning is sent back: all but its state and its identifier, which a server
    /// that stores nothing would look for in vain. Nothing if it has only a summary: that is for
    /// people.
    pub(super) fn blob(&self) -> Option<Value> {
        let texts = |sort: &str, parts: &[Part<'_>]| -> Vec<Value> {
            parts.iter().map(|it| json!({ "type": sort, "text": it.text.text })).collect()
        };
        let encrypted = self.encrypted_content.text.as_ref();
        let content = texts("reasoning_text", &self.content());
        if encrypted.is_empty() && content.is_empty() {
            return None;
        }
        let summary = texts("summary_text", &self.summary());
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
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    pub(super) text: Words<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Words<'a>,
}

/// The parts of a list; some servers send a plain string instead.
fn parts<'a>(raw: Option<&'a RawValue>) -> Vec<Part<'a>> {
    let Some(raw) = raw.map(RawValue::get) else { return Vec::new() };
    if raw.starts_with('[') {
        return list(&mut serde_json::Deserializer::from_str(raw)).unwrap_or_default();
    }
    let text = serde_json::from_str::<Words<'a>>(raw).unwrap_or_default();
    vec![Part { text, refusal: Words::default() }]
}

/// A whole answer, as it stands in the last event or alone.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    object: Words<'a>,
    #[serde(borrow, default)]
    pub(super) status: Words<'a>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    incomplete_details: Option<Value>,
}

impl<'a> Response<'a> {
    /// Whether it is one at all.
    fn is_response(&self) -> bool {
        self.object.text == "response" || self.output.is_some()
    }

    /// The error in JSON, if there is one.
    pub(super) fn error(&self) -> Option<&'a str> {
        let raw = self.error?.get();
        serde_json::from_str::<Value>(raw).ok().filter(says_something).map(|_| raw)
    }

    /// Why it is not complete, possibly empty.
    pub(super) fn reason(&self) -> &str {
        let details = self.incomplete_details.as_ref();
        details.and_then(|it| it.get("reason")?.as_str()).unwrap_or_default()
    }

    pub(super) fn output(&self) -> Vec<&'a RawValue> {
        let read = |raw: &'a RawValue| list(&mut serde_json::Deserializer::from_str(raw.get()));
        self.output.and_then(|it| read(it).ok()).unwrap_or_default()
    }
}

/// Whether this JSON is a whole answer.
pub(super) fn is_response(json: &str) -> bool {
    serde_json::from_str::<Response<'_>>(json).is_ok_and(|it| it.is_response())
}

/// Reads an event and passes it on with its JSON.
pub(super) fn with_event<T>(
    json: &str,
    then: impl FnOnce(serde_json::Result<Event<'_>>, &str) -> T,
) -> T {
    // Gemini wraps its errors in a list. Nothing else begins so.
    let list = json.starts_with('[').then(|| serde_json::from_str::<[&RawValue; 1]>(json));
    let json = match list {
        Some(Ok([only])) => only.get(),
        _ => json,
    };
    let parsed = serde_json::from_str::<Event<'_>>(json);
    // Half a surrogate pair does not show in a raw value until it is read.
    let is_sound =
        |it: &Event<'_>| it.item.is_none() && it.response.is_none() || !json.contains("\\u");
    match parsed {
        Ok(event) if is_sound(&event) => then(Ok(event), json),
        parsed => {
            let error = parsed.err();
            let mended = mend_surrogates(json);
            let event = serde_json::from_str(&mended);
            then(event.map_err(|it| error.unwrap_or(it)), &mended)
        }
    }
}
