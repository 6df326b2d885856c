//! Estimates how much memory a write retains until it is done.

use serde_json::Value;

use super::{CallOutcome, Entry};
use turnwright_types::effect::{CallContent, CallView};
use turnwright_types::message::{Arguments, Media, Message, PromptPart, ToolCall};

/// The approximate number of bytes that an entry holds in memory.
pub(super) fn entry_size(entry: &Entry) -> usize {
    match entry {
        Entry::Message { message, .. } | Entry::Compacted { replacement: message, .. } => {
            match message.as_ref() {
                Message::User(user) => user.parts.iter().map(part_size).sum(),
                Message::Assistant(answer) => {
                    let calls: usize = answer.calls.iter().map(call_size).sum();
                    let state: usize = answer.provider_state.blobs.iter().map(value_size).sum();
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

/// The approximate number of bytes that a call's outcome holds in memory.
pub(super) fn outcome_size(outcome: &CallOutcome) -> usize {
    let content = outcome.content.iter().map(|part| match part {
        CallContent::Text(text) => text.len(),
        CallContent::Diff { old, new, .. } => old.as_ref().map_or(0, String::len) + new.len(),
        CallContent::Image(media) => media.data.len(),
        CallContent::Terminal(_) => 0,
    });
    outcome.text.len()
        + media_size(&outcome.images)
        + outcome.view.as_ref().map_or(0, view_size)
        + content.sum::<usize>()
        + value_size(&outcome.raw_output)
        + outcome.file_contents.iter().map(|bytes| bytes.len()).sum::<usize>()
}

fn call_size(call: &ToolCall) -> usize {
    let arguments = match &call.arguments {
        Arguments::Object(value) => value_size(value),
        Arguments::Unusable { text, .. } => text.len(),
    };
    call.name.len() + arguments + call.extra.as_ref().map_or(0, value_size)
}

fn part_size(part: &PromptPart) -> usize {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) => text.len(),
        PromptPart::Image(media) | PromptPart::Audio(media) => media.data.len(),
        PromptPart::Link { name: text, uri } | PromptPart::Resource { uri, text } => {
            uri.len() + text.len()
        }
    }
}

fn view_size(view: &CallView) -> usize {
    let locations = view.locations.iter().map(|location| location.path.as_os_str().len());
    view.title.len() + locations.sum::<usize>()
}

fn media_size(all: &[Media]) -> usize {
    all.iter().map(|media| media.data.len()).sum()
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_size).sum(),
        Value::Object(fields) => {
            fields.iter().map(|field| field.0.len() + value_size(field.1)).sum()
        }
        _ => 8,
    }
}
