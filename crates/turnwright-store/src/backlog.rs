//! Writes that failed because of the storage and wait for a retry, in their order and in bounded
//! memory.

use std::collections::VecDeque;

use serde_json::Value;

use super::writer::WriteJob;
use super::{CallOutcome, Entry};
use turnwright_types::effect::CallContent;
use turnwright_types::message::{Arguments, Media, Message, PromptPart};

/// The most memory that waiting writes may retain.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// The estimated size of a job besides the bytes that it retains.
const JOB_OVERHEAD: usize = 512;

/// A queue of waiting jobs. The oldest are dropped when it gets too large.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(usize, Box<dyn WriteJob>)>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a job that retains about `retained_bytes`. Returns how many of the oldest jobs were
    /// dropped to make room for it.
    pub(super) fn push(&mut self, retained_bytes: usize, work: Box<dyn WriteJob>) -> u64 {
        let retained_bytes = retained_bytes.saturating_add(JOB_OVERHEAD);
        self.bytes += retained_bytes;
        self.waiting.push_back((retained_bytes, work));
        let mut dropped = 0;
        while self.bytes > MAX_BYTES
            && let Some((retained_bytes, _)) = self.waiting.pop_front()
        {
            self.bytes -= retained_bytes;
            dropped += 1;
        }
        dropped
    }

    /// Takes the oldest jobs, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Vec<Box<dyn WriteJob>> {
        let taken: Vec<_> = self.waiting.drain(..most.min(self.waiting.len())).collect();
        self.bytes -= taken.iter().map(|it| it.0).sum::<usize>();
        taken.into_iter().map(|it| it.1).collect()
    }

    /// Puts jobs back at the front, in their order.
    pub(super) fn put_back(&mut self, jobs: Vec<Box<dyn WriteJob>>) {
        for work in jobs.into_iter().rev() {
            let retained_bytes =
                work.retained_bytes().unwrap_or_default().saturating_add(JOB_OVERHEAD);
            self.bytes += retained_bytes;
            self.waiting.push_front((retained_bytes, work));
        }
    }
}

/// The approximate number of bytes that an entry holds in memory.
pub(super) fn entry_size(entry: &Entry) -> usize {
    match entry {
        Entry::Message { message, .. } => match message.as_ref() {
            Message::User(user) => user.parts.iter().map(part_size).sum(),
            Message::Assistant(it) => {
                let arguments = it.calls.iter().map(|it| match &it.arguments {
                    Arguments::Object(value) => value_size(value),
                    Arguments::Unusable { text, .. } => text.len(),
                });
                it.text.len() + it.thought.len() + arguments.sum::<usize>()
            }
            Message::Tool(tool) => tool.text.len() + media_size(&tool.images),
        },
        Entry::Note { text, .. } => text.len(),
        _ => 0,
    }
}

/// The approximate number of bytes that a call's outcome holds in memory.
pub(super) fn outcome_size(outcome: &CallOutcome) -> usize {
    let content = outcome.content.iter().map(|it| match it {
        CallContent::Text(text) => text.len(),
        CallContent::Diff { old, new, .. } => old.as_ref().map_or(0, String::len) + new.len(),
        CallContent::Image(media) => media.data.len(),
        CallContent::Terminal(_) => 0,
    });
    outcome.text.len()
        + media_size(&outcome.images)
        + content.sum::<usize>()
        + value_size(&outcome.raw_output)
        + outcome.file_contents.iter().map(|it| it.len()).sum::<usize>()
}

fn part_size(part: &PromptPart) -> usize {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) | PromptPart::Resource { text, .. } => {
            text.len()
        }
        PromptPart::Image(media) | PromptPart::Audio(media) => media.data.len(),
        PromptPart::Link { .. } => 0,
    }
}

fn media_size(all: &[Media]) -> usize {
    all.iter().map(|it| it.data.len()).sum()
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_size).sum(),
        Value::Object(fields) => fields.iter().map(|it| it.0.len() + value_size(it.1)).sum(),
        _ => 8,
    }
}
