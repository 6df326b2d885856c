//! A session that is kept comes back: what the client is told, and what the model knows.
//! Nothing is run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::recover::recover;
use super::replay::{self, Recalled};
use crate::error::Error;
use turnwright_types::ids::SessionId;
use turnwright_types::message::History;
use turnwright_store::broken::was_interrupted;
use turnwright_store::{Gone, SessionRow, Store, StoreError, read};
use crate::turn::Equipment;
use turnwright_types::update::Update;

/// Entries that are read at a time.
const PAGE: usize = 64;

/// What has come back.
pub(super) struct Revived {
    pub(super) row: SessionRow,
    pub(super) history: History,
    /// The last turn that the model has heard of was interrupted.
    pub(super) was_interrupted: bool,
}

/// Brings a session back. With `replays`, the client is told the whole conversation meanwhile.
pub(super) async fn revive(
    store: &Store,
    equipment: &Equipment,
    id: &SessionId,
    replays: bool,
    cancel: &CancellationToken,
) -> Result<Revived, Error> {
    let work = revived(store, equipment, id, replays);
    match cancel.run_until_cancelled(work).await {
        Some(Ok(revived)) => Ok(revived),
        Some(Err(StoreError::NoSuchSession)) => Err(Error::NoSuchSession(id.to_string())),
        Some(Err(error)) => Err(Error::Store(error)),
        None => Err(Error::Cancelled),
    }
}

async fn revived(
    store: &Store,
    equipment: &Equipment,
    id: &SessionId,
    replays: bool,
) -> Result<Revived, StoreError> {
    // It may have been open a moment ago.
    store.flush().await?;
    let minted = recover(store, equipment).await?;
    let name = id.clone();
    let (row, key, gone, usage, was_interrupted) = store
        .read(move |connection| {
            let row = read::session(connection, &name)?;
            let key = read::key(connection, &name)?;
            let (gone, usage) = (Gone::find(connection, key)?, read::last_usage(connection, key)?);
            Ok((row, key, gone, usage, was_interrupted(connection, key)?))
        })
        .await?;
    let gone = Arc::new(gone);
    let (mut after, mut recalled) = (0, Recalled::default());
    loop {
        let gone_here = Arc::clone(&gone);
        let read = move |connection: &_| read::page(connection, key, (after, PAGE), &gone_here);
        let (page, last) = store.read(read).await?;
        for stored in page {
            if replays {
                for update in replay::updates(&stored, gone.last_plan) {
                    equipment.client().room().await;
                    equipment.client().update(update);
                }
            }
            replay::recall(&mut recalled, stored);
        }
        let Some(last) = last else { break };
        after = last;
    }
    if let Some((used, size, cached)) = usage.filter(|_| replays) {
        let (used, cost) = (used.min(size), row.cost);
        equipment.client().update(Update::Usage { used, size, cached, cost });
    }
    let history = recalled.history(minted.max(row.minted), row.cost);
    Ok(Revived { row, history, was_interrupted })
}
