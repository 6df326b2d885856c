//! Restores a stored session: replays it to the client and rebuilds the model's history. Runs
//! nothing.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::recovery::recover;
use super::replay::{self, HistoryBuilder};
use super::recovery::RunningWork;
use crate::error::Error;
use crate::session::attachment::Replayed;
use crate::session::pending_context::UnfinishedTurn;
use crate::session::stored_sessions::map_missing;
use crate::turn::{self, Conversation};
use turnwright_store::recovery::last_stop;
use turnwright_store::{
    Audience, Entry, RewoundEntries, SessionRow, Store, StoreError, StoredEntry, read, sessions,
};
use turnwright_types::client::Client;
use turnwright_types::ids::SessionId;
use turnwright_types::message::History;
use turnwright_types::update::Update;

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
    /// The options that the client asked for when the session was created, as JSON.
    pub(in crate::session) client_options: Option<String>,
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

/// Answers an interrupted prompt in the history if nothing else has answered it. Without that, servers
/// would get it and the next prompt as one message.
fn separate_unanswered_prompt(history: &mut History, conversation: &Conversation) {
    let Some(note) = turn::stopped_note(history, "the agent ended") else { return };
    history.push(note);
    let Some(message) = history.messages.last().cloned() else { return };
    let id = history.mint_message_id();
    conversation.log().add_entry(Entry::Message { id, message, audience: Audience::Model });
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
        for update in replay::updates(entry, self.rewound.last_plan) {
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
    let (row, key, rewound, usage, stop, client_options, spent) = store
        .read(move |connection| {
            let row = read::session(connection, &name)?;
            let key = read::session_key(connection, &name)?;
            let rewound = RewoundEntries::load(connection, key)?;
            let usage = read::last_usage(connection, key)?;
            let client_options = sessions::client_options(connection, &name)?;
            let stop = last_stop(connection, key)?;
            let spent = read::session_spending(connection, key)?;
            Ok((row, key, rewound, usage, stop, client_options, spent))
        })
        .await?;
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
            replay::add_entry(&mut builder, stored);
        }
    }
    let ended_work = running.end_line();
    let is_shortened = builder.is_shortened;
    // A helper in the background may have gone on after the last turn.
    let cost = [row.cost_usd, spent.1].into_iter().flatten().reduce(f64::max);
    let mut history = builder.build(minted.max(row.last_id_number), cost);
    if let Some((used, size, cached)) = usage.filter(|_| replay) {
        // The conversation may no longer be the one that was counted.
        let (used, cached) = if is_shortened {
            (turn::estimated_size(conversation, &history), 0)
        } else {
            (used, cached)
        };
        let used = used.min(size);
        conversation.client().update(Update::ContextUsage { used, size, cached, cost });
    }
    history.spent = spent.0;
    if is_interrupted {
        separate_unanswered_prompt(&mut history, conversation);
    }
    let unfinished = stop.as_deref().and_then(UnfinishedTurn::from_stored);
    Ok(RestoredSession { row, history, unfinished, ended_work, client_options })
}
