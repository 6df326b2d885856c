//! Turns stored entries into the updates that the client gets when a conversation is loaded, and
//! into the model's history. Pure. The cards are made by the functions that make them during a
//! turn.

use std::sync::Arc;

use crate::turn;
use turnwright_store::{Audience, CallRow, Entry, StoredEntry};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{Arguments, History, Message, ToolMessage};
use turnwright_types::update::{CompactionState, Update};

/// The updates for one entry. What no longer matters is left out: notices, and the steps of a card
/// between the first and the last (R-LOAD-3, R-LOAD-6).
pub(super) fn updates(stored: &StoredEntry, last_plan: Option<u64>) -> Vec<Update> {
    match &stored.entry {
        Entry::Message { id, message, audience } if *audience != Audience::Model => {
            message_updates(id, message, &stored.calls)
        }
        Entry::Note { id, text } => {
            vec![Update::AgentText { message: id.clone(), text: text.clone() }]
        }
        Entry::IncompleteCall { call, name, view, reason: why } => {
            let id = call.clone();
            let name = name.clone();
            let view = view.clone();
            let last = turn::failed_update(&id, why);
            vec![
                Update::ToolCall { id, name, view, raw_input: None, can_cancel: false },
                last.into(),
            ]
        }
        Entry::Compacted { id, replacement, .. } => {
            let summary = turn::summary_of(replacement).map(str::to_owned);
            let state = CompactionState::Completed(summary);
            vec![Update::Compaction { id: id.clone(), state, notice: None }]
        }
        // Each plan update replaces the whole plan, so only the last one is sent.
        Entry::Plan { entries } if last_plan == Some(stored.seq) => {
            vec![Update::Plan(entries.clone())]
        }
        _ => Vec::new(),
    }
}

fn message_updates(id: &MessageId, message: &Message, calls: &[CallRow]) -> Vec<Update> {
    match message {
        Message::User(user) => {
            let own = user.own_parts().cloned();
            own.map(|part| Update::UserChunk { message: id.clone(), part }).collect()
        }
        Message::Assistant(answer) => {
            let mut updates = Vec::new();
            if !answer.thought.is_empty() {
                let text = answer.thought.clone();
                updates.push(Update::AgentThought { message: id.clone(), text });
            }
            if !answer.text.is_empty() {
                updates.push(Update::AgentText { message: id.clone(), text: answer.text.clone() });
            }
            // In the order in which the user saw the cards first: a call whose name arrived late is
            // behind the others.
            let mut calls: Vec<_> = calls.iter().collect();
            calls.sort_by_key(|row| number(&row.call));
            updates.extend(calls.into_iter().flat_map(card_updates));
            updates
        }
        Message::Tool(_) => Vec::new(),
    }
}

/// The number in an identifier.
fn number(id: &CallId) -> Option<u64> {
    id.as_str().rsplit('-').next()?.parse().ok()
}

/// The first and the last update of a call; none if it has no card.
fn card_updates(row: &CallRow) -> Vec<Update> {
    let Some(view) = row.outcome.view.clone() else { return Vec::new() };
    let raw_input = match &row.arguments {
        Arguments::Object(value) => Some(turn::abridged_arguments(value)),
        Arguments::Unusable { .. } => None,
    };
    let id = row.call.clone();
    let name = row.tool.clone();
    let first = Update::ToolCall { id, name, view, raw_input, can_cancel: false };
    let last = turn::final_update(&row.call, &row.outcome);
    vec![first, last.into()]
}

pub(in crate::session) fn add_entry(builder: &mut HistoryBuilder, stored: StoredEntry) {
    let StoredEntry { turn, entry, calls, .. } = stored;
    match entry {
        Entry::Message { message, audience, .. } if audience != Audience::User => {
            let message = with_arguments(message, &calls);
            builder.push(turn, message);
            for row in calls.iter().filter(|row| !row.outcome.text.is_empty()) {
                let result = result(row, builder.provider_ids(row));
                builder.push(turn, Arc::new(Message::Tool(result)));
            }
        }
        Entry::Cleared => {
            builder.messages.clear();
            builder.is_shortened = true;
        }
        Entry::Compacted { replacement, kept, max_result, .. } => {
            builder.compact(replacement, kept, max_result);
        }
        Entry::Pruned { kept } => {
            builder.change(|messages| turn::prune(messages, kept));
            builder.is_shortened = true;
        }
        Entry::ImagesLeftOut => builder.change(|messages| {
            turn::leave_out_images(messages, None);
        }),
        Entry::SomeImagesLeftOut { images } => builder.change(|messages| {
            turn::leave_out_images(messages, Some(&images));
        }),
        Entry::Refused => builder.messages.retain(|(of, _)| *of != turn),
        _ => {}
    }
}

/// The model's history while it is rebuilt from the store.
#[derive(Debug, Default)]
pub(in crate::session) struct HistoryBuilder {
    /// The messages, each with the number of its turn.
    messages: Vec<(u64, Arc<Message>)>,
    /// The conversation was compacted, pruned or cleared after the last answer.
    pub(super) is_shortened: bool,
}

impl HistoryBuilder {
    fn push(&mut self, turn: u64, message: Arc<Message>) {
        self.is_shortened &= !matches!(message.as_ref(), Message::Assistant(_));
        self.messages.push((turn, message));
    }

    fn compact(&mut self, replacement: Arc<Message>, kept: usize, max_result: usize) {
        let (turns, mut messages): (Vec<_>, Vec<_>) = self.messages.drain(..).unzip();
        turn::compact(&mut messages, replacement, kept, max_result);
        // The replacement belongs to no turn: it stays if the turn is refused.
        let kept_turns = turns[turns.len() + 1 - messages.len()..].iter().copied();
        self.messages = std::iter::once(0).chain(kept_turns).zip(messages).collect();
        self.is_shortened = true;
    }

    /// Changes messages, of which none is added or removed.
    fn change(&mut self, change: impl FnOnce(&mut [Arc<Message>])) {
        let (turns, mut messages): (Vec<_>, Vec<_>) = self.messages.drain(..).unzip();
        change(&mut messages);
        self.messages = turns.into_iter().zip(messages).collect();
    }

    /// The provider's identifier and function name of a call of the last answer.
    fn provider_ids(&self, row: &CallRow) -> (String, String) {
        let last = self.messages.iter().rev().find_map(|(_, message)| message.as_assistant());
        let mut calls = last.into_iter().flat_map(|answer| &answer.calls);
        let found = calls.find(|call| call.id == row.call);
        found.map_or_else(
            || (String::new(), row.tool.clone()),
            |call| (call.provider_id.clone(), call.name.clone()),
        )
    }

    pub(in crate::session) fn build(self, minted: u64, cost: Option<f64>) -> History {
        let mut history = History { minted, cost, ..History::default() };
        for (_, message) in self.messages {
            history.has_media |= message.has_images() || message.has_audio();
            history.messages.push(message);
        }
        history
    }
}

fn with_arguments(message: Arc<Message>, calls: &[CallRow]) -> Arc<Message> {
    if calls.is_empty() {
        return message;
    }
    let mut message = Arc::unwrap_or_clone(message);
    if let Message::Assistant(answer) = &mut message {
        for call in &mut answer.calls {
            if let Some(row) = calls.iter().find(|row| row.call == call.id) {
                call.arguments.clone_from(&row.arguments);
            }
        }
    }
    Arc::new(message)
}

fn result(row: &CallRow, (provider_id, name): (String, String)) -> ToolMessage {
    ToolMessage {
        call: row.call.clone(),
        provider_id,
        name,
        text: row.outcome.text.clone(),
        ok: row.outcome.is_success,
        images: row.outcome.images.clone(),
    }
}
