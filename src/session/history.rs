//! Reads the conversation of a session, open or not, for a client.

use std::sync::Arc;

use super::SessionHost;
use super::stored_sessions::map_missing;
use crate::completion::Completion;
use crate::error::Error;
use turnwright_store::history::{HistoryPage, HistoryQuery, MessageRecord, find_messages};
use turnwright_types::ids::SessionId;

/// Reads at most `limit` messages before the cursor and reports them to `done`.
pub(crate) fn history(
    host: &Arc<SessionHost>,
    id: SessionId,
    limit: usize,
    before: Option<&str>,
    done: Completion<HistoryPage<MessageRecord>>,
) {
    let Ok(before) = before.map(str::parse).transpose() else {
        return done
            .complete(Err(Error::InvalidParams("`before` is not a valid cursor".to_owned())));
    };
    let store = host.store().clone();
    host.spawn(async move {
        let query = HistoryQuery {
            session: Some(id.clone()),
            limit,
            after: before,
            ..HistoryQuery::default()
        };
        if !store.exists() {
            return done.complete(Err(Error::SessionNotFound(id.to_string())));
        }
        // If the flush fails, the messages that are stored are returned all the same.
        store.flush().await.ok();
        let found = store.read(move |connection| find_messages(connection, &query)).await;
        done.complete(map_missing(found, &id));
    });
}
