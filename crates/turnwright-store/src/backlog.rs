//! What could not be written and waits for better times, in its order and in bounded memory.

use std::collections::VecDeque;

use serde_json::Value;

use super::thread::Work;
use super::{Entry, Settled};
use turnwright_types::effect::Content;
use turnwright_types::message::{Arguments, Media, Message, Part};

/// The most memory that is used for it.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// What a piece of work takes besides the bytes that it holds.
const OVERHEAD: usize = 512;

/// Work that waits. The oldest is given up when there is too much.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(usize, Box<dyn Work>)>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes work that holds so many bytes. Returns how many pieces were given up for it.
    pub(super) fn push(&mut self, weight: usize, work: Box<dyn Work>) -> u64 {
        let weight = weight.saturating_add(OVERHEAD);
        self.bytes += weight;
        self.waiting.push_back((weight, work));
        let mut given_up = 0;
        while self.bytes > MOST_BYTES
            && let Some((weight, _)) = self.waiting.pop_front()
        {
            self.bytes -= weight;
            given_up += 1;
        }
        given_up
    }

    /// The oldest, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Vec<Box<dyn Work>> {
        let taken: Vec<_> = self.waiting.drain(..most.min(self.waiting.len())).collect();
        self.bytes -= taken.iter().map(|it| it.0).sum::<usize>();
        taken.into_iter().map(|it| it.1).collect()
    }

    /// They go on waiting.
    pub(super) fn put_back(&mut self, works: Vec<Box<dyn Work>>) {
        for work in works.into_iter().rev() {
            let weight = work.weight().unwrap_or_default().saturating_add(OVERHEAD);
            self.bytes += weight;
            self.waiting.push_front((weight, work));
        }
    }
}

/// About how many bytes an entry holds.
pub(super) fn weight_of(entry: &Entry) -> usize {
    match entry {
        Entry::Message { message, .. } => match message.as_ref() {
            Message::User(user) => user.parts.iter().map(weight_of_part).sum(),
            Message::Assistant(it) => {
                let arguments = it.calls.iter().map(|it| match &it.arguments {
                    Arguments::Object(value) => weight_of_value(value),
                    Arguments::Unusable { text, .. } => text.len(),
                });
                it.text.len() + it.thought.len() + arguments.sum::<usize>()
            }
            Message::Tool(tool) => tool.text.len() + weight_of_media(&tool.images),
        },
        Entry::Note { text, .. } => text.len(),
        _ => 0,
    }
}

/// About how many bytes a result holds.
pub(super) fn weight_of_result(settled: &Settled) -> usize {
    let content = settled.content.iter().map(|it| match it {
        Content::Text(text) => text.len(),
        Content::Diff { old, new, .. } => old.as_ref().map_or(0, String::len) + new.len(),
        Content::Image(media) => media.data.len(),
        Content::Terminal(_) => 0,
    });
    settled.text.len()
        + weight_of_media(&settled.images)
        + content.sum::<usize>()
        + weight_of_value(&settled.raw)
        + settled.bytes.iter().map(|it| it.len()).sum::<usize>()
}

fn weight_of_part(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::Context(text) | Part::Resource { text, .. } => text.len(),
        Part::Image(media) | Part::Audio(media) => media.data.len(),
        Part::Link { .. } => 0,
    }
}

fn weight_of_media(all: &[Media]) -> usize {
    all.iter().map(|it| it.data.len()).sum()
}

fn weight_of_value(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight_of_value).sum(),
        Value::Object(fields) => fields.iter().map(|it| it.0.len() + weight_of_value(it.1)).sum(),
        _ => 8,
    }
}
