//! A session that is kept comes back: what the client is told, what the model knows, and what has
//! become of the calls that were under way when the process ended. Nothing is run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::replay::{self, Recalled};
use crate::error::Error;
use crate::ids::SessionId;
use crate::message::History;
use crate::store::{CallRow, CallStatus, Gone, SessionRow, Settled, Store, StoreError, read};
use crate::turn::Equipment;
use crate::update::Update;

/// Entries that are read at a time.
const PAGE: usize = 64;
/// Numbers that may have been given out without a word about it in the store.
const UNKNOWN_IDS: u64 = 10_000;

/// What has come back.
pub(super) struct Revived {
    pub(super) row: SessionRow,
    pub(super) history: History,
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
    let name = id.clone();
    let found = store.read(move |connection| {
        let row = read::session(connection, &name)?;
        let key = read::key(connection, &name)?;
        Ok((row, read::last(connection, key)?, read::unsettled(connection, key)?))
    });
    let (row, last, unsettled) = found.await?;
    let log = equipment.log();
    log.go_on(last);
    for call in &unsettled {
        log.settle(&call.call, truth(call)).written().await;
    }
    let name = id.clone();
    let (key, gone, usage) = store
        .read(move |connection| {
            let key = read::key(connection, &name)?;
            Ok((key, Gone::find(connection, key)?, read::last_usage(connection, key)?))
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
    let history = recalled.history(row.minted + UNKNOWN_IDS, row.cost);
    Ok(Revived { row, history })
}

/// What can be said of a call that was under way when the process ended. It is never run again.
fn truth(call: &CallRow) -> Settled {
    let text = match call.status {
        CallStatus::Running => {
            "The agent stopped while this was running. It may or may not have taken effect: look \
             before you repeat it."
        }
        _ => "The agent stopped before this was run. Nothing was done.",
    };
    let mut settled = call.settled.clone();
    settled.ok = false;
    text.clone_into(&mut settled.text);
    settled.content = vec![crate::effect::Content::Text(text.to_owned())];
    settled.raw = serde_json::json!({ "error": text });
    settled
}
