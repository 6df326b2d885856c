//! The sessions of a remote connection, and those whose connections were lost.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::{CurrentClient, RemoteClient};
use crate::acp::sessions::ClientSide;
use crate::error::Error;
use crate::session::SessionHandle;
use turnwright_types::client::{Client, CommandDisplay, EditorBuffers};
use turnwright_types::ids::SessionId;

/// The sessions that a connection may have open.
const MAX_SESSIONS: usize = 64;
/// The sessions that may be without a connection.
const MAX_DETACHED: usize = 256;

/// The sessions whose connections were lost. All connections of the process share them.
// Held only to look one up.
#[derive(Default)]
pub(super) struct DetachedSessions(Mutex<HashMap<SessionId, DetachedSession>>);

/// A session without a connection, which goes on until its turn has ended or its time is over.
pub(in crate::acp) struct DetachedSession {
    pub(in crate::acp) handle: SessionHandle,
    pub(in crate::acp) session: RemoteSession,
}

/// A session as a remote connection knows it.
#[derive(Clone)]
pub(in crate::acp) struct RemoteSession {
    pub(in crate::acp) client: Arc<RemoteClient>,
    cwd: PathBuf,
    folders: Vec<PathBuf>,
}

/// The sessions of one remote connection.
pub(in crate::acp) struct RemoteSessions {
    detached: Arc<DetachedSessions>,
    /// How long a session goes on without a connection.
    keep: Duration,
    open: HashMap<SessionId, RemoteSession>,
}

impl RemoteSessions {
    pub(super) fn new(detached: Arc<DetachedSessions>, keep: Duration) -> RemoteSessions {
        RemoteSessions { detached, keep, open: HashMap::new() }
    }

    /// Makes the client of a session replaceable. Commands show their output as text, since the next client
    /// may have no terminals, or other ones.
    pub(in crate::acp) fn add(
        &mut self,
        id: &SessionId,
        cwd: PathBuf,
        folders: Vec<PathBuf>,
        client: ClientSide,
    ) -> ClientSide {
        let ClientSide { client, buffers, .. } = client;
        let current = CurrentClient { client, buffers };
        let client = Arc::new(RemoteClient::new(current));
        let session = RemoteSession { client: Arc::clone(&client), cwd, folders };
        self.open.insert(id.clone(), session);
        let buffers = Some(Arc::clone(&client) as Arc<dyn EditorBuffers>);
        ClientSide { client: client as Arc<dyn Client>, buffers, display: CommandDisplay::Text }
    }

    /// Adds a session that the connection takes over.
    pub(in crate::acp) fn add_taken(&mut self, id: SessionId, session: RemoteSession) {
        self.open.insert(id, session);
    }

    /// Forgets the sessions that are not open any more.
    ///
    /// # Errors
    /// If too many are open for another one.
    pub(in crate::acp) fn make_room(
        &mut self,
        sessions: &HashMap<SessionId, SessionHandle>,
    ) -> Result<(), Error> {
        self.open.retain(|id, _| sessions.get(id).is_some_and(SessionHandle::is_open));
        if self.open.len() < MAX_SESSIONS {
            return Ok(());
        }
        let text = format!("A connection may have {MAX_SESSIONS} sessions open. Close one first");
        Err(Error::InvalidState(text))
    }

    pub(in crate::acp) fn client(&self, id: &SessionId) -> Option<&Arc<RemoteClient>> {
        self.open.get(id).map(|it| &it.client)
    }

    /// Takes a session that is without a connection, if it works in these folders.
    pub(in crate::acp) fn take(
        &self,
        id: &SessionId,
        cwd: &Path,
        folders: &[PathBuf],
    ) -> Option<DetachedSession> {
        let mut detached = self.detached.0.lock();
        let session = &detached.get(id).filter(|it| it.handle.is_open())?.session;
        if session.cwd == cwd && session.folders == folders { detached.remove(id) } else { None }
    }

    /// Takes a session that is without a connection, to close it.
    pub(in crate::acp) fn take_handle(&self, id: &SessionId) -> Option<SessionHandle> {
        let detached = self.detached.0.lock().remove(id)?;
        Some(detached.handle).filter(SessionHandle::is_open)
    }

    /// The connection is lost: its sessions go on without it.
    pub(in crate::acp) fn detach(mut self, sessions: HashMap<SessionId, SessionHandle>) {
        for (id, handle) in sessions {
            let Some(session) = self.open.remove(&id).filter(|_| handle.is_open()) else { continue };
            session.client.detach();
            if !handle.detach(self.keep) {
                continue;
            }
            let mut detached = self.detached.0.lock();
            detached.retain(|_, it| it.handle.is_open());
            // Without room the session ends, because its handle is dropped.
            if detached.len() < MAX_DETACHED {
                detached.insert(id, DetachedSession { handle, session });
            }
        }
    }
}
