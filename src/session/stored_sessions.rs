//! Lists, finds, reads, archives, renames and deletes sessions, open or not. Nothing here waits for a
//! session, except for the end of one that was told to close.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{SessionHost, title};
use crate::completion::Completion;
use crate::error::Error;
use tokio::task::spawn_blocking;
use turnwright_store::history::{HistoryPage, HistoryQuery, MessageRecord, find_messages};
use turnwright_store::sessions::{self, SessionCursor, SessionFilter};
use turnwright_store::{Durability, SessionRow, StoreError};
use turnwright_types::ids::SessionId;
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::real_path;

/// The number of sessions on one page.
const PAGE_SIZE: usize = 50;

/// The filter and cursor of a list request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListRequest {
    /// Only sessions of this folder.
    pub cwd: Option<PathBuf>,
    /// Only archived sessions, or only others.
    pub archived: Option<bool>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
    /// The sessions that are open in this process.
    pub open: Vec<SessionId>,
}

/// The sessions of one page, and the cursor of the next one, if there is one.
pub(crate) type SessionPage = (Vec<SessionRow>, Option<String>);

/// Does the work in a task of its own, and reports its result.
fn report<T: Send + 'static>(
    host: &SessionHost,
    done: Completion<T>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) {
    host.spawn(async move { done.complete(work.await) });
}

/// Lists sessions, the newest first.
pub(crate) fn list(
    host: &Arc<SessionHost>,
    request: ListRequest,
    cancel: CancellationToken,
    done: Completion<SessionPage>,
) {
    let store = host.store().clone();
    let stop = host.stop_token();
    report(host, done, async move {
        let listing = async {
            // A session that was announced a moment ago may still wait to be written, and the store
            // may not exist yet.
            store.flush().await.ok();
            find_page(&store, request).await
        };
        let listed = stop.run_until_cancelled(cancel.run_until_cancelled(listing));
        listed.await.flatten().unwrap_or(Err(Error::Cancelled))
    });
}

pub(super) async fn find_page(
    store: &turnwright_store::Store,
    request: ListRequest,
) -> Result<SessionPage, Error> {
    // Some clients write an empty text for none.
    let word = request.cursor.as_deref().filter(|word| !word.is_empty());
    let text = "`cursor` is none that `session/list` has given out";
    let unknown = Error::InvalidParams(text.to_owned());
    let after = word.map(|word| SessionCursor::parse(word).ok_or(unknown)).transpose()?;
    if let Some(cwd) = request.cwd.as_ref().filter(|cwd| !cwd.is_absolute()) {
        let text = format!("`cwd` must be an absolute path, not `{}`", cwd.display());
        return Err(Error::InvalidParams(text));
    }
    let looked_up = match request.cwd {
        // The folder may never answer, and the store must not wait for it.
        Some(cwd) => Some(spawn_blocking(move || with_real_path(cwd)).await),
        None => None,
    };
    let cwd = looked_up.transpose().map_err(|_| Error::Internal { place: "listing sessions" })?;
    let reading = store.read(move |connection| {
        let cwd = cwd.clone();
        let filter = SessionFilter { cwd, archived: request.archived, open: request.open.clone() };
        sessions::list(connection, &filter, after, PAGE_SIZE)
    });
    let (sessions, next) = reading.await?;
    Ok((sessions, next.map(SessionCursor::encode)))
}

fn with_real_path(path: PathBuf) -> (PathBuf, PathBuf) {
    let real = real_path(&path).unwrap_or_else(|_| path.clone());
    (path, real)
}

/// Reports when the session has ended.
pub(crate) fn report_closed(
    host: &Arc<SessionHost>,
    closed: CancellationToken,
    done: Completion<()>,
) {
    report(host, done, async move {
        closed.cancelled().await;
        Ok(())
    });
}

/// Reports whether a session is stored.
pub(crate) fn find(host: &Arc<SessionHost>, id: SessionId, done: Completion<()>) {
    let store = host.store().clone();
    report(host, done, async move {
        // The session may have been open a moment ago.
        store.flush().await.ok();
        let name = id.clone();
        let is_stored = store.read(move |connection| sessions::exists(connection, &name)).await?;
        if is_stored { Ok(()) } else { Err(Error::SessionNotFound(id.to_string())) }
    });
}

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
    report(host, done, async move {
        let query = HistoryQuery {
            session: Some(id.clone()),
            limit,
            after: before,
            ..HistoryQuery::default()
        };
        if !store.exists() {
            return Err(Error::SessionNotFound(id.to_string()));
        }
        // If the flush fails, the messages that are stored are returned all the same.
        store.flush().await.ok();
        let found = store.read(move |connection| find_messages(connection, &query)).await;
        map_missing(found, &id)
    });
}

/// Deletes a session once `closed` is cancelled. The session need not exist.
pub(crate) fn delete(
    host: &Arc<SessionHost>,
    id: SessionId,
    closed: CancellationToken,
    done: Completion<()>,
) {
    let store = host.store().clone();
    let state = host.config().paths.state.clone();
    report(host, done, async move {
        closed.cancelled().await;
        // Not while another process has it open.
        let _hold = match store.lock_session_when_released(&id).await {
            Err(StoreError::NoSuchSession) => return Ok(()),
            hold => hold?,
        };
        let deleting =
            store.write(Durability::PowerLoss, move |connection| sessions::delete(connection, &id));
        let deleted = deleting.await?;
        spawn_blocking(move || Jobs::remove_outputs(&state, &deleted)).await.ok();
        Ok(())
    });
}

/// Archives a session once `closed` is cancelled; without `closed`, unarchives it.
pub(crate) fn archive(
    host: &Arc<SessionHost>,
    id: SessionId,
    closed: Option<CancellationToken>,
    done: Completion<()>,
) {
    let store = host.store().clone();
    report(host, done, async move {
        let archived = closed.is_some();
        if let Some(closed) = closed {
            closed.cancelled().await;
        }
        let name = id.clone();
        let archiving = store.write(Durability::ProcessCrash, move |connection| {
            sessions::set_archived(connection, &name, archived)
        });
        map_missing(archiving.await, &id)
    });
}

/// Sets the title that the user has chosen. Reports the title as it is stored.
pub(crate) fn set_title(
    host: &Arc<SessionHost>,
    id: SessionId,
    wanted: &str,
    done: Completion<String>,
) {
    let Some(title) = title::normalize(wanted) else {
        let text = "`title` has nothing in it that could be seen".to_owned();
        return done.complete(Err(Error::InvalidParams(text)));
    };
    let store = host.store().clone();
    report(host, done, async move {
        let name = id.clone();
        let words = title.clone();
        let writing = store.write(Durability::ProcessCrash, move |connection| {
            sessions::set_title(connection, &name, &words)
        });
        map_missing(writing.await, &id).map(|()| title)
    });
}

/// Reports a session that the store does not have as one that is not found.
pub(super) fn map_missing<T>(result: Result<T, StoreError>, id: &SessionId) -> Result<T, Error> {
    result.map_err(|error| match error {
        StoreError::NoSuchSession => Error::SessionNotFound(id.to_string()),
        error => Error::Store(error),
    })
}
