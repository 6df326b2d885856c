//! A session's conversation for a client that asks, open or not.

use std::sync::Arc;

use super::Host;
use crate::done::Done;
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_store::StoreError;
use turnwright_store::history::{Page, Query, Said, messages};

/// Looks it up: at most so many messages, those before that cursor. Nothing waits for it but
/// `done`.
pub fn history(
    host: &Arc<Host>,
    id: SessionId,
    limit: usize,
    before: Option<&str>,
    done: Done<Page<Said>>,
) {
    let Ok(before) = before.map(str::parse).transpose() else {
        return done.report(Err(Error::Params("`before` is no cursor of ours".to_owned())));
    };
    let store = host.store().clone();
    host.spawn(async move {
        let query = Query { session: Some(id.clone()), limit, before, ..Query::default() };
        if !store.is_there() {
            return done.report(Err(Error::NoSuchSession(id.to_string())));
        }
        // What waits for a better time is not there yet; the rest is.
        store.flush().await.ok();
        done.report(store.read(move |it| messages(it, &query)).await.map_err(
            |error| match error {
                StoreError::NoSuchSession => Error::NoSuchSession(id.to_string()),
                error => error.into(),
            },
        ));
    });
}
