//! Output items and tool calls of a reply that are being received, and the matching of events to them. Servers
//! identify items by index, by name, by both or by neither; some give all items the same index, some change the
//! names.

use std::ops::Range;

use serde_json::{Value, json};

use super::wire::{ItemKind, ItemLocation, OutputItem, ResponsesEvent};
use crate::chat::arguments::{StreamedArguments, finish_arguments};
use crate::exchange::ReplyContext;
use crate::reply::repetition;
use crate::{Delta, DeltaBatch, ReplyCall};

/// The received parts of an item.
#[derive(Debug, Default)]
pub(super) struct StreamedItem {
    pub(super) kind: ItemKind,
    index: Option<u64>,
    id: String,
    /// True if the server has announced the item. Some servers only send deltas.
    announced: bool,
    /// True if the item is complete.
    pub(super) done: bool,
    /// The number of parts received.
    seen_parts: u64,
    /// The byte range of a message's text within the text of the reply.
    pub(super) span: Range<usize>,
    /// The phase of a message, as the server names it.
    pub(super) phase: String,
    /// Reasoning that must be sent back.
    pub(super) reasoning: Option<Value>,
    /// The form in which reasoning comes, as a summary or in full. The other form is ignored.
    thought_kind: Option<PieceKind>,
    /// The index of the call among the calls.
    pub(super) slot: usize,
    call_id: String,
}

impl StreamedItem {
    pub(super) fn new(kind: ItemKind, location: ItemLocation<'_>, slot: usize) -> StreamedItem {
        StreamedItem {
            kind,
            index: location.index,
            id: location.id.to_owned(),
            slot,
            ..StreamedItem::default()
        }
    }

    /// Records the server's description; what was known before stays. Returns the number of bytes
    /// added.
    pub(super) fn announce(&mut self, location: ItemLocation<'_>, call_id: &str) -> usize {
        self.announced = true;
        self.index = self.index.or(location.index);
        let mut new = 0;
        for (known, new_value) in [(&mut self.id, location.id), (&mut self.call_id, call_id)] {
            if known.is_empty() {
                new_value.clone_into(known);
                new += new_value.len();
            }
        }
        new
    }

    /// True if the item is only known from deltas without index and identifier.
    fn is_unspecified(&self) -> bool {
        self.index.is_none() && self.id.is_empty()
    }

    fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    fn has_index(&self, index: Option<u64>) -> bool {
        index.is_some() && self.index == index
    }

    fn has_call_id(&self, call_id: &str) -> bool {
        !call_id.is_empty() && self.call_id == call_id
    }

    /// True if an event can begin the item, or complete it if the event is not a start.
    fn is_free(&self, is_start: bool) -> bool {
        !(self.done || is_start && self.announced)
    }

    /// True if both have call identifiers and these differ, which makes them different calls.
    pub(super) fn is_other_call(&self, call_id: &str) -> bool {
        !call_id.is_empty() && !self.call_id.is_empty() && self.call_id != call_id
    }

    /// Marks a piece as seen. Returns true if it has text that had not been seen before.
    pub(super) fn mark_seen(&mut self, piece: TextPiece<'_>) -> bool {
        // Some servers send the same text as summary and as reasoning.
        if piece.text.is_empty()
            || self.kind == ItemKind::Reasoning
                && *self.thought_kind.get_or_insert(piece.kind) != piece.kind
        {
            return false;
        }
        let is_new = !piece.is_whole || piece.part >= self.seen_parts;
        self.seen_parts = self.seen_parts.max(piece.part.saturating_add(1));
        is_new
    }
}

/// The incomplete item that a delta belongs to.
pub(super) fn find_for_delta(
    items: &[StreamedItem],
    kind: ItemKind,
    location: ItemLocation<'_>,
) -> Option<usize> {
    let last = |test: &dyn Fn(&StreamedItem) -> bool| {
        items.iter().rposition(|item| item.kind == kind && !item.done && test(item))
    };
    last(&|item| item.has_index(location.index) && item.has_id(location.id))
        .or_else(|| last(&|item| item.has_id(location.id)))
        .or_else(|| last(&|item| item.has_index(location.index)))
        .or_else(|| last(&|_| location.is_unspecified()))
}

/// True if an event about this location repeats a completed item.
pub(super) fn is_repeat(
    items: &[StreamedItem],
    kind: ItemKind,
    location: ItemLocation<'_>,
) -> bool {
    let is_completed = items.iter().filter(|item| item.kind == kind && item.done).any(|item| {
        item.has_id(location.id) || item.has_index(location.index) || location.is_unspecified()
    });
    is_completed && find_for_delta(items, kind, location).is_none()
}

/// The item that an announcement or a completion refers to.
pub(super) fn find_for_item_event(
    items: &[StreamedItem],
    kind: ItemKind,
    location: ItemLocation<'_>,
    call_id: &str,
    is_start: bool,
) -> Option<usize> {
    let last = |test: &dyn Fn(&StreamedItem) -> bool| {
        items
            .iter()
            .rposition(|item| item.kind == kind && !item.is_other_call(call_id) && test(item))
    };
    last(&|item| {
        let fits = item.index.is_none() || location.index.is_none() || item.index == location.index;
        fits && (item.has_id(location.id) || item.has_call_id(call_id))
    })
    // Some servers count items when they begin and again when they are complete.
    .or_else(|| {
        last(&|item| {
            let is_same_call = item.has_call_id(call_id) || !is_start && !item.done;
            item.has_id(location.id) && is_same_call
        })
    })
    .or_else(|| last(&|item| item.is_free(is_start) && item.has_index(location.index)))
    .or_else(|| {
        last(&|item| item.is_free(is_start) && (location.is_unspecified() || item.is_unspecified()))
    })
}

/// The items of one kind, in the order of the reply.
pub(super) fn of_kind(items: &[StreamedItem], kind: ItemKind) -> Vec<usize> {
    in_order(items).into_iter().filter(|index| items[*index].kind == kind).collect()
}

/// The items in the order of the reply.
fn in_order(items: &[StreamedItem]) -> Vec<usize> {
    let mut order: Vec<_> = (0..items.len()).collect();
    if items.iter().all(|item| item.index.is_some()) {
        order.sort_by_key(|index| items[*index].index);
    }
    order
}

/// The data that must be kept to send the reply back item by item: verbatim reasoning, and markers for the
/// messages and calls around it. Empty if there is no reasoning and no phase.
pub(super) fn provider_state(items: &[StreamedItem]) -> Vec<Value> {
    if items.iter().all(|item| item.reasoning.is_none() && item.phase.is_empty()) {
        return Vec::new();
    }
    in_order(items).into_iter().filter_map(|index| item_record(&items[index])).collect()
}

fn item_record(item: &StreamedItem) -> Option<Value> {
    match item.kind {
        ItemKind::Reasoning => item.reasoning.clone(),
        ItemKind::Call => Some(json!({ "type": "function_call", "slot": item.slot })),
        ItemKind::Message if item.span.is_empty() => None,
        ItemKind::Message => {
            let Range { start, end } = item.span;
            let mut mark = json!({ "type": "message", "start": start, "end": end });
            if !item.phase.is_empty() {
                mark["phase"] = json!(item.phase);
            }
            Some(mark)
        }
    }
}

/// Where a piece of text belongs. The first two are parts of messages, the others of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    Text,
    Refusal,
    Summary,
    Thought,
}

/// A piece of text: a delta, or a whole part that repeats its deltas.
#[derive(Clone, Copy)]
pub(super) struct TextPiece<'a> {
    pub(super) kind: PieceKind,
    pub(super) part: u64,
    pub(super) text: &'a str,
    pub(super) is_whole: bool,
}

impl<'a> TextPiece<'a> {
    /// The piece that an event brings; `None` if it brings none.
    pub(super) fn of_event(event_kind: &str, event: &'a ResponsesEvent<'_>) -> Option<Self> {
        let (kind, is_whole) = match event_kind.strip_prefix("response.")? {
            "output_text.delta" => (PieceKind::Text, false),
            "output_text.done" => (PieceKind::Text, true),
            "refusal.delta" => (PieceKind::Refusal, false),
            "refusal.done" => (PieceKind::Refusal, true),
            "reasoning_summary_text.delta" | "reasoning_summary.delta" => {
                (PieceKind::Summary, false)
            }
            "reasoning_summary_text.done" => (PieceKind::Summary, true),
            "reasoning_text.delta" | "reasoning.delta" => (PieceKind::Thought, false),
            "reasoning_text.done" => (PieceKind::Thought, true),
            _ => return None,
        };
        let source = match kind {
            _ if !is_whole => &event.delta,
            PieceKind::Refusal => &event.refusal,
            PieceKind::Text | PieceKind::Summary | PieceKind::Thought => &event.text,
        };
        Some(TextPiece { kind, part: event.part_index(), text: &source.text, is_whole })
    }
}

/// A tool call. Each method returns the number of bytes that it added to what is kept.
#[derive(Debug, Default)]
pub(super) struct StreamedCall {
    id: String,
    name: String,
    arguments: StreamedArguments,
    /// Arguments that came with the name, used if no others arrive.
    early: String,
}

impl StreamedCall {
    /// Sets the name and the identifier unless they are known.
    pub(super) fn set_name(
        &mut self,
        slot: usize,
        item: &OutputItem<'_>,
        context: &ReplyContext,
        batch: &mut DeltaBatch,
    ) -> usize {
        let mut new = 0;
        if self.id.is_empty() {
            item.call_id_or_id().clone_into(&mut self.id);
            new += self.id.len();
        }
        if self.name.is_empty() && !item.name().is_empty() {
            context.tool_name(item.name()).clone_into(&mut self.name);
            new += self.name.len();
            batch.deltas.push(Delta::CallNamed { slot, name: self.name.clone() });
        }
        new
    }

    /// Keeps arguments that came with the name. Some servers send them there and again as deltas.
    pub(super) fn set_early_arguments(&mut self, item: &OutputItem<'_>) -> usize {
        self.early = item.arguments().into_owned();
        self.early.len()
    }

    /// Adds arguments.
    pub(super) fn push_arguments(
        &mut self,
        slot: usize,
        text: &str,
        batch: &mut DeltaBatch,
    ) -> usize {
        let new = self.arguments.new_part(text);
        self.arguments.push(new);
        batch.push_arguments(slot, new);
        new.len()
    }

    /// Sets the complete arguments, which have usually been received as deltas.
    pub(super) fn set_arguments(
        &mut self,
        slot: usize,
        text: &str,
        batch: &mut DeltaBatch,
    ) -> usize {
        if let Some(rest) = text.strip_prefix(self.arguments.as_str()) {
            self.arguments.push(rest);
            batch.push_arguments(slot, rest);
            rest.len()
        } else if text.is_empty() || self.arguments.is_json_object() {
            0
        } else {
            // Deltas were lost or repeated: the final arguments count.
            self.arguments = StreamedArguments::default();
            self.arguments.push(text);
            text.len()
        }
    }

    /// The complete call.
    pub(super) fn finish(mut self, slot: usize, cut: bool, batch: &mut DeltaBatch) -> ReplyCall {
        if self.arguments.is_empty() {
            self.arguments.push(&self.early);
            batch.push_arguments(slot, &self.early);
        }
        let arguments = finish_arguments(slot, self.arguments.into_text(), cut);
        ReplyCall { slot, provider_id: self.id, name: self.name, arguments, extra: None }
    }
}

/// The first slot from which the calls only repeat earlier ones. With the first repetition the reply ends,
/// because the rest would only be more of the same.
pub(super) fn first_repeat(calls: &[StreamedCall], context: &ReplyContext) -> Option<usize> {
    let calls: Vec<_> = calls
        .iter()
        .filter(|_| context.quirks.loops)
        .map(|call| (&call.name, call.arguments.as_str()))
        .collect();
    repetition::first_repeat(&calls)
}
