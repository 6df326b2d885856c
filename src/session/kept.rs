//! Sessions as wholes, open or not: which there are, what they are called, and how they go away.
//! Nothing here waits for a session, but for the end of one that was told to close.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use super::{Host, title};
use crate::done::Done;
use crate::error::Error;
use turnwright_workspace::exec::Jobs;
use turnwright_types::ids::SessionId;
use turnwright_store::sessions::{self, Cursor, Filter};
use turnwright_store::{Durability, SessionRow, StoreError};

/// Sessions of one page.
const PAGE: usize = 50;

/// Which sessions a client wants to see.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Those of this folder.
    pub cwd: Option<PathBuf>,
    /// Those that are put away, or those that are not.
    pub archived: Option<bool>,
    /// Where the list goes on.
    pub cursor: Option<String>,
    /// Those that are open here.
    pub open: Vec<SessionId>,
}

/// Some sessions.
#[derive(Debug)]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<Listed>,
    /// Where the list goes on, if there are more.
    pub next: Option<String>,
}

/// What is told of a session in a list.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub id: SessionId,
    /// The working folder.
    pub cwd: PathBuf,
    /// The folders besides.
    pub folders: Vec<PathBuf>,
    /// What it is about.
    pub title: Option<String>,
    /// When something last happened in it.
    pub updated: SystemTime,
    /// Whether it is put away.
    pub archived: bool,
}

fn listed_row(row: SessionRow) -> Listed {
    let SessionRow { id, cwd, folders, title, updated, archived, .. } = row;
    Listed { id, cwd, folders, title, updated, archived }
}

/// Lists sessions, the newest first. Changes nothing.
pub fn list(host: &Arc<Host>, wish: Wish, cancel: CancellationToken, done: Done<Page>) {
    let (store, stop) = (host.store().clone(), host.stop_token());
    host.spawn(async move {
        let listing = async {
            let found = listed(&store, wish.clone()).await;
            if !matches!(found, Err(Error::Store(StoreError::Unusable(_)))) {
                return found;
            }
            // Nobody may have made the store yet: whoever writes does that.
            store.flush().await.ok();
            listed(&store, wish).await
        };
        let listing = stop.run_until_cancelled(cancel.run_until_cancelled(listing));
        done.report(listing.await.flatten().unwrap_or(Err(Error::Cancelled)));
    });
}

async fn listed(store: &turnwright_store::Store, wish: Wish) -> Result<Page, Error> {
    let after = match &wish.cursor {
        Some(word) => Some(Cursor::parse(word).ok_or_else(|| {
            Error::Params("`cursor` is none that `session/list` has given out".to_owned())
        })?),
        None => None,
    };
    if let Some(cwd) = wish.cwd.as_ref().filter(|it| !it.is_absolute()) {
        let text = format!("`cwd` must be an absolute path, not `{}`", cwd.display());
        return Err(Error::Params(text));
    }
    let read = move |connection: &_| {
        let cwd = wish.cwd.clone().map(|cwd| {
            let real = fs::canonicalize(&cwd).unwrap_or_else(|_| cwd.clone());
            (cwd, real)
        });
        let filter = Filter { cwd, archived: wish.archived, open: wish.open.clone() };
        sessions::list(connection, &filter, after, PAGE)
    };
    let (rows, next) = store.read(read).await?;
    let sessions = rows.into_iter().map(listed_row).collect();
    Ok(Page { sessions, next: next.map(Cursor::word) })
}

/// Reports the end of a session.
pub fn closed(host: &Arc<Host>, closed: CancellationToken, done: Done<()>) {
    host.spawn(async move {
        closed.cancelled().await;
        done.report(Ok(()));
    });
}

/// Tells whether a session that is not open is kept.
pub fn find(host: &Arc<Host>, id: SessionId, done: Done<()>) {
    let store = host.store().clone();
    host.spawn(async move {
        // It may have been open a moment ago.
        store.flush().await.ok();
        let name = id.clone();
        let found = store.read(move |connection| sessions::exists(connection, &name)).await;
        done.report(match found {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NoSuchSession(id.to_string())),
            Err(error) => Err(Error::Store(error)),
        });
    });
}

/// Takes a session away for good, once `closed` is over. There need not be one.
pub fn delete(host: &Arc<Host>, id: SessionId, closed: CancellationToken, done: Done<()>) {
    let (store, state) = (host.store().clone(), host.config().paths.state.clone());
    host.spawn(async move {
        closed.cancelled().await;
        // Not under another process that has it open.
        let _hold = match store.wait_for(&id).await {
            Ok(hold) => hold,
            Err(StoreError::NoSuchSession) => return done.report(Ok(())),
            Err(error) => return done.report(Err(Error::Store(error))),
        };
        let name = id.clone();
        let delete = move |connection: &_| sessions::delete(connection, &name);
        let deleted = store.write(Durability::Machine, delete).await;
        if deleted.is_ok() {
            let removing = tokio::task::spawn_blocking(move || remove_outputs(&state, &id));
            drop(removing.await);
        }
        done.report(deleted.map(drop).map_err(Error::Store));
    });
}

/// Removes the long outputs of a session's commands.
fn remove_outputs(state: &Path, id: &SessionId) {
    // The name comes from a client: it is one folder's and no path.
    let is_name = id.as_str().bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    if !is_name || id.as_str().is_empty() {
        return;
    }
    match fs::remove_dir_all(Jobs::folder(state, id)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(%error, %id, "the outputs of a session were not removed");
        }
        _ => {}
    }
}

/// Puts a session away once `closed` is over; without that, takes it back.
pub fn archive(host: &Arc<Host>, id: SessionId, closed: Option<CancellationToken>, done: Done<()>) {
    let store = host.store().clone();
    host.spawn(async move {
        let archived = closed.is_some();
        if let Some(closed) = closed {
            closed.cancelled().await;
        }
        let name = id.clone();
        let archive = move |connection: &_| sessions::archive(connection, &name, archived);
        done.report(known(store.write(Durability::Process, archive).await, &id));
    });
}

/// Calls a session what a person wants it to be called. Reports the title as it is kept.
pub fn set_title(host: &Arc<Host>, id: SessionId, wanted: &str, done: Done<String>) {
    let Some(title) = title::chosen(wanted) else {
        let text = "`title` has nothing in it that could be seen".to_owned();
        return done.report(Err(Error::Params(text)));
    };
    let store = host.store().clone();
    host.spawn(async move {
        let (name, words) = (id.clone(), title.clone());
        let set = move |connection: &_| sessions::set_title(connection, &name, &words);
        let set = known(store.write(Durability::Process, set).await, &id);
        done.report(set.map(|()| title));
    });
}

fn known<T>(result: Result<T, StoreError>, id: &SessionId) -> Result<T, Error> {
    result.map_err(|error| match error {
        StoreError::NoSuchSession => Error::NoSuchSession(id.to_string()),
        error => Error::Store(error),
    })
}
