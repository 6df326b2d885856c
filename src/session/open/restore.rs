//! Restores a stored session: replays it to the client and rebuilds the model's history. The cards are made by the
//! functions that make them during a turn. Runs nothing.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::recovery::{RunningWork, recover};
use crate::error::Error;
use crate::session::attachment::Replayed;
use crate::session::prompts::UnfinishedTurn;
use crate::session::stored_sessions::map_missing;
use crate::turn::{self, Conversation};
use turnwright_store::recovery::last_stop;
use turnwright_store::{
    Audience, CallRow, Entry, GoalState, RewoundEntries, SessionRow, Store, StoreError,
    StoredEntry, read, sessions,
};
use turnwright_types::client::Client;
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Arguments, History, Message, ToolCall, ToolMessage};
use turnwright_types::update::{CompactionState, Update};

/// The number of entries that are read at a time.
const PAGE_SIZE: usize = 64;

/// A session that was read from the store.
pub(in crate::session) struct RestoredSession {
    pub(in crate::session) row: SessionRow,
    pub(in crate::session) history: History,
    /// How the last prompt's turn ended, if it did not finish.
    pub(in crate::session) unfinished: Option<UnfinishedTurn>,
    /// The line that tells the model what has ended since then.
    pub(in crate::session) ended_work: Option<String>,
    pub(in crate::session) goal: Option<GoalState>,
}

/// Reads the row of a stored session, and the options that the client asked for when it was created, as JSON.
pub(in crate::session) async fn read_row(
    store: &Store,
    id: &SessionId,
) -> Result<(SessionRow, Option<String>), Error> {
    // The session may be open, or have been open a moment ago.
    store.flush().await.map_err(Error::Store)?;
    let name = id.clone();
    let reading = store.read(move |connection| {
        Ok((read::session(connection, &name)?, sessions::client_options(connection, &name)?))
    });
    map_missing(reading.await, id)
}

/// Restores a session. With `replay`, the client is sent the whole conversation.
pub(in crate::session) async fn restore_session(
    store: &Store,
    conversation: &Conversation,
    id: &SessionId,
    replay: bool,
    cancel: &CancellationToken,
) -> Result<RestoredSession, Error> {
    let work = read_session(store, conversation, id, replay);
    let restored = cancel.run_until_cancelled(work).await.ok_or(Error::Cancelled)?;
    map_missing(restored, id)
}

/// The stored entries of a session, which are read page by page.
struct EntryPages {
    session: i64,
    rewound: Arc<RewoundEntries>,
    /// The last entry that was read. `None` after the last page.
    after: Option<u64>,
}

impl EntryPages {
    fn new(session: i64, rewound: RewoundEntries) -> EntryPages {
        EntryPages { session, rewound: Arc::new(rewound), after: Some(0) }
    }

    async fn next(&mut self, store: &Store) -> Result<Option<Vec<StoredEntry>>, StoreError> {
        let Some(after) = self.after else { return Ok(None) };
        let session = self.session;
        let rewound = Arc::clone(&self.rewound);
        let reading = store.read(move |connection| {
            read::entries_page(connection, session, (after, PAGE_SIZE), &rewound)
        });
        let (page, last) = reading.await?;
        self.after = last;
        Ok(Some(page))
    }

    /// Sends a client the updates of an entry. `note` sees each of them.
    async fn send(&self, entry: &StoredEntry, client: &dyn Client, mut note: impl FnMut(&Update)) {
        let shown = updates(entry, self.rewound.last_plan);
        for update in shown.into_iter().chain(entry.cursor(true)) {
            client.wait_for_capacity().await;
            note(&update);
            client.update(update);
        }
    }
}

/// Sends the whole stored conversation of a session to a client.
pub(in crate::session) async fn replay_session(
    store: &Store,
    id: &SessionId,
    client: &dyn Client,
) -> Result<Replayed, StoreError> {
    store.flush().await?;
    let name = id.clone();
    let (row, key, rewound) = store
        .read(move |connection| {
            let key = read::session_key(connection, &name)?;
            let rewound = RewoundEntries::load(connection, key)?;
            Ok((read::session(connection, &name)?, key, rewound))
        })
        .await?;
    let mut pages = EntryPages::new(key, rewound);
    let mut replayed = Replayed::default();
    while let Some(page) = pages.next(store).await? {
        for entry in &page {
            pages.send(entry, client, |update| replayed.note(update)).await;
        }
    }
    client.update(Update::SessionInfo { title: row.title, updated: row.updated_at });
    Ok(replayed)
}

async fn read_session(
    store: &Store,
    conversation: &Conversation,
    id: &SessionId,
    replay: bool,
) -> Result<RestoredSession, StoreError> {
    // The session may have been open a moment ago.
    store.flush().await?;
    let (minted, is_interrupted) = recover(store, conversation).await?;
    let name = id.clone();
    let (row, key, rewound, usage, stop, spent, submissions, goal) = store
        .read(move |connection| {
            let row = read::session(connection, &name)?;
            let key = read::session_key(connection, &name)?;
            let rewound = RewoundEntries::load(connection, key)?;
            let usage = read::last_usage(connection, key)?;
            let stop = last_stop(connection, key)?;
            let spent = read::session_spending(connection, key)?;
            let submissions = read::submissions(connection, key)?;
            let goal = read::current_goal(connection, key)?;
            Ok((row, key, rewound, usage, stop, spent, submissions, goal))
        })
        .await?;
    for (message, submission) in submissions {
        conversation.submissions.restore(&Arc::new(submission), message);
    }
    let mut pages = EntryPages::new(key, rewound);
    let mut builder = HistoryBuilder::default();
    let mut running = RunningWork::default();
    while let Some(page) = pages.next(store).await? {
        for stored in page {
            if replay {
                pages.send(&stored, conversation.client().as_ref(), |_| ()).await;
            }
            for row in &stored.calls {
                conversation.tools.load_stored_call(&row.tool, &row.outcome.raw_output);
            }
            running.note(&stored);
            if let Entry::Message { id, message, .. } = &stored.entry {
                conversation.submissions.restore_said(id, message);
            }
            add_entry(&mut builder, stored);
        }
    }
    let ended_work = running.end_line();
    let is_shortened = builder.is_shortened;
    // A helper in the background may have gone on after the last turn.
    let cost = [row.cost_usd, spent.1].into_iter().flatten().reduce(f64::max);
    let mut history = builder.build(minted.max(row.last_id_number), cost);
    if let Some(usage) = usage.filter(|_| replay) {
        report_usage(conversation, &history, usage, is_shortened);
    }
    history.spent = spent.0;
    // Without an answer to an interrupted prompt, servers would get it and the next one as one message.
    if is_interrupted && let Some(note) = turn::stopped_note(&history, "the agent ended") {
        conversation.push_hidden(&mut history, note);
    }
    let unfinished = stop.as_deref().and_then(UnfinishedTurn::from_stored);
    Ok(RestoredSession { row, history, unfinished, ended_work, goal })
}

/// Tells the client the usage of the context window as it was counted last: tokens in use, the size and cached tokens. A
/// shortened conversation is no longer the one that was counted.
fn report_usage(
    conversation: &Conversation,
    history: &History,
    (used, size, cached): (u64, u64, u64),
    is_shortened: bool,
) {
    let (used, cached) = if is_shortened {
        (turn::estimated_size(conversation, history), 0)
    } else {
        (used, cached)
    };
    conversation.report_context(history, used, size, cached);
}

/// The updates for one entry. What no longer matters is left out: notices, and the steps of a card
/// between the first and the last (R-LOAD-3, R-LOAD-6).
fn updates(stored: &StoredEntry, last_plan: Option<u64>) -> Vec<Update> {
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
    let last = row.outcome.final_update(&row.call);
    vec![first, last.into()]
}

pub(in crate::session) fn add_entry(builder: &mut HistoryBuilder, stored: StoredEntry) {
    let StoredEntry { turn, entry, calls, .. } = stored;
    match entry {
        Entry::Message { message, audience, .. } if audience != Audience::User => {
            let message = with_arguments(message, &calls);
            builder.push(turn, message);
            for row in calls.iter().filter(|row| !row.outcome.text.is_empty()) {
                let result = builder.result(row);
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
    is_shortened: bool,
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

    /// The result of a call of the last answer.
    fn result(&self, row: &CallRow) -> ToolMessage {
        let last = self.messages.iter().rev().find_map(|(_, message)| message.as_assistant());
        let mut calls = last.into_iter().flat_map(|answer| &answer.calls);
        if let Some(call) = calls.find(|call| call.id == row.call) {
            return row.outcome.message(call);
        }
        row.outcome.message(&ToolCall::new(row.call.clone(), "", row.tool.as_str(), Value::Null))
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
