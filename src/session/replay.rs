//! What is kept → what the client is told when a conversation comes back, and what the model knows
//! of it. Pure; the cards are made by the functions that make them while a turn runs.

use std::sync::Arc;

use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{Arguments, History, Message, Part, ToolMessage};
use turnwright_store::{Audience, CallRow, Entry, Stored};
use crate::turn;
use turnwright_types::update::Update;

/// What the client is told of one entry. Nothing that is over is told: no notices, no steps of a
/// card but the first and the last (R-LOAD-3, R-LOAD-6).
pub(super) fn updates(stored: &Stored, last_plan: Option<u64>) -> Vec<Update> {
    match &stored.entry {
        Entry::Message { id, message, audience } if *audience != Audience::Model => {
            said(id, message, &stored.calls)
        }
        Entry::Note { id, text } => {
            vec![Update::Text { message: id.clone(), text: text.clone() }]
        }
        Entry::Lost { call, name, view, why } => {
            let (id, name, view) = (call.clone(), name.clone(), view.clone());
            let last = turn::failed(&id, why);
            vec![Update::Call { id, name, view }, Update::CallUpdate(Box::new(last))]
        }
        // A plan is told as a whole each time.
        Entry::Plan { entries } if last_plan == Some(stored.seq) => {
            vec![Update::Plan(entries.clone())]
        }
        _ => Vec::new(),
    }
}

fn said(id: &MessageId, message: &Message, calls: &[CallRow]) -> Vec<Update> {
    match message {
        Message::User(user) => {
            let own = user.parts.iter().filter(|it| !matches!(it, Part::Context(_)));
            own.map(|it| Update::User { message: id.clone(), part: it.clone() }).collect()
        }
        Message::Assistant(answer) => {
            let mut updates = Vec::new();
            let message = || id.clone();
            if !answer.thought.is_empty() {
                let text = answer.thought.clone();
                updates.push(Update::Thought { message: message(), text });
            }
            if !answer.text.is_empty() {
                updates.push(Update::Text { message: message(), text: answer.text.clone() });
            }
            // In the order in which the user has seen them first: a call whose name came late is
            // behind the others.
            let mut calls: Vec<_> = calls.iter().collect();
            calls.sort_by_key(|it| number(&it.call));
            updates.extend(calls.into_iter().flat_map(card));
            updates
        }
        Message::Tool(_) => Vec::new(),
    }
}

/// The number that an identifier was made of.
fn number(id: &CallId) -> Option<u64> {
    id.as_str().rsplit('-').next()?.parse().ok()
}

/// The first and the last that is told of a call; nothing if it has no card.
fn card(row: &CallRow) -> Vec<Update> {
    let Some(view) = row.settled.view.clone() else { return Vec::new() };
    let first = Update::Call { id: row.call.clone(), name: row.tool.clone(), view };
    let mut last = turn::last(&row.call, &row.settled);
    last.raw_input = match &row.arguments {
        Arguments::Object(value) => Some(turn::brief(value)),
        Arguments::Unusable { .. } => None,
    };
    vec![first, Update::CallUpdate(Box::new(last))]
}

/// What the model knows after one more entry.
pub(super) fn recall(history: &mut Recalled, stored: Stored) {
    let Stored { turn, entry, calls, .. } = stored;
    match entry {
        Entry::Message { message, audience, .. } if audience != Audience::User => {
            let message = with_arguments(message, &calls);
            history.push(turn, message);
            for row in calls.iter().filter(|it| !it.settled.text.is_empty()) {
                let result = result(row, history.own(row));
                history.push(turn, Arc::new(Message::Tool(result)));
            }
        }
        Entry::Cleared => history.messages.clear(),
        Entry::Refused => history.messages.retain(|(of, _)| *of != turn),
        _ => {}
    }
}

/// A conversation on its way back to the model.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// Each with its turn.
    messages: Vec<(u64, Arc<Message>)>,
}

impl Recalled {
    fn push(&mut self, turn: u64, message: Arc<Message>) {
        self.messages.push((turn, message));
    }

    /// The model's own identifier of a call of the last answer, and its name for the function.
    fn own(&self, row: &CallRow) -> (String, String) {
        let answers = self.messages.iter().rev().filter_map(|(_, it)| match it.as_ref() {
            Message::Assistant(answer) => Some(answer),
            _ => None,
        });
        let calls = answers.take(1).flat_map(|it| it.calls.iter());
        let mut own = calls.filter(|it| it.id == row.call);
        let own = own.next().map(|it| (it.provider_id.clone(), it.name.clone()));
        own.unwrap_or_else(|| (String::new(), row.tool.clone()))
    }

    /// The conversation.
    pub(super) fn history(self, minted: u64, cost: Option<f64>) -> History {
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
            if let Some(row) = calls.iter().find(|it| it.call == call.id) {
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
        text: row.settled.text.clone(),
        ok: row.settled.ok,
        images: row.settled.images.clone(),
    }
}
