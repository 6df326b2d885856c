//! `turnwright serve`: ACP for clients that reach the agent over a network. All connections of a listener share one
//! process and host, and a session whose connection is lost goes on for a while, so that its client can come back
//! to it.

mod client;
mod journal;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::acp::connection::{Connection, RECORDING_TIMEOUT, SHUTDOWN_TIMEOUT, redact_outgoing};
use crate::error::Error;
use crate::runtime;
use crate::session::{ClientSide, SessionHandle, SessionHost, SessionProbe};
use turnwright_config::Config;
use turnwright_remote::{
    ListenOptions, Listener, ObserveConnection, RemoteConnection, ServeConnection,
};
use turnwright_types::client::{Client, EditorBuffers};
use turnwright_types::ids::SessionId;
use turnwright_types::update::PromptKey;

pub(super) use client::{CurrentClient, RemoteClient};

/// How far apart the keys of prompts of two connections are: they must not be equal, since one connection may
/// take over the prompts of another.
const PROMPT_KEYS_PER_CONNECTION: u64 = 1 << 32;

/// Serves ACP on a socket until `stop_requested` is ready. `announce` gets the address. A session whose
/// connection is lost goes on for `keep`.
pub(crate) fn serve_remote(
    config: Config,
    options: ListenOptions,
    keep: Duration,
    announce: impl FnOnce(&str),
    stop_requested: impl Future<Output = ()>,
) -> io::Result<()> {
    let recording = SessionHost::started_recording(&config);
    runtime::run(async {
        let listener = Listener::bind(options)?;
        announce(&listener.url()?);
        // The connections end first, and then the sessions.
        let closing = CancellationToken::new();
        let stop = CancellationToken::new();
        let recorder = Arc::clone(recording.recorder());
        let host = Arc::new(SessionHost::with_recording(config, recording, stop.clone()));
        let serve = serve_connections(Arc::clone(&host), keep, closing.clone());
        let observed = Arc::clone(&recorder);
        let observe: ObserveConnection = Arc::new(move |connection| observed.observer(connection));
        let listening = listener.run(serve, redact_outgoing, observe, closing.clone());
        tokio::pin!(listening);
        tokio::select! {
            () = &mut listening => {}
            () = stop_requested => {
                closing.cancel();
                stop.cancel();
                if timeout(SHUTDOWN_TIMEOUT, listening).await.is_err() {
                    tracing::error!("a connection did not end in time");
                }
            }
        }
        stop.cancel();
        if timeout(SHUTDOWN_TIMEOUT, host.wait_for_sessions()).await.is_err() {
            tracing::error!("a session did not end in time");
        }
        recorder.stop(RECORDING_TIMEOUT);
        Ok(())
    })
}

fn serve_connections(
    host: Arc<SessionHost>,
    keep: Duration,
    closing: CancellationToken,
) -> ServeConnection {
    let known = SharedSessions::default();
    Arc::new(move |remote: RemoteConnection| {
        let RemoteConnection { number, mut input, outbox, intended_end } = remote;
        let first_key = number.wrapping_mul(PROMPT_KEYS_PER_CONNECTION);
        let prompts = first_key..first_key.saturating_add(PROMPT_KEYS_PER_CONNECTION);
        let known = Arc::clone(&known);
        let sessions = RemoteSessions { known, keep, prompts, open: HashMap::new() };
        let host = Arc::clone(&host);
        let mut connection = Connection::new(Arc::clone(&host), outbox.clone(), Some(sessions));
        let closing = closing.clone();
        Box::pin(async move {
            connection.run(&mut input, closing.cancelled()).await;
            let recorder = Arc::clone(host.recording().recorder());
            recorder.leave_out_servers(number);
            connection.leave(intended_end.is_cancelled());
            // Queued messages still go out.
            outbox.stop_accepting();
            // A recording has the lines of one connection.
            host.tracker()
                .spawn_blocking(move || recorder.end_connection(number, RECORDING_TIMEOUT));
        })
    })
}

/// The sessions that a connection may have open.
const MAX_SESSIONS: usize = 256;
/// The sessions that may be without a connection.
const MAX_DETACHED: usize = 256;

/// The sessions of all connections of the process, which each connection can look up.
// Held only to look something up.
type SharedSessions = Arc<Mutex<KnownSessions>>;

#[derive(Default)]
struct KnownSessions {
    /// Those whose connections were lost. Each goes on until its turn has ended or its time is over. What was noted
    /// for its next client is dropped with it.
    detached: HashMap<SessionId, (SessionHandle, Weak<RemoteClient>)>,
    /// Those that have a connection.
    open: HashMap<SessionId, SessionProbe>,
}

/// The sessions of one remote connection.
pub(in crate::acp) struct RemoteSessions {
    known: SharedSessions,
    /// How long a session goes on without a connection.
    keep: Duration,
    /// The keys of the connection's prompts.
    prompts: Range<PromptKey>,
    open: HashMap<SessionId, Arc<RemoteClient>>,
}

impl RemoteSessions {
    /// The keys that the connection's prompts have.
    pub(in crate::acp) fn prompts(&self) -> Range<PromptKey> {
        self.prompts.clone()
    }

    /// Makes the client of a session replaceable. Its own terminals are on another machine, and the next client
    /// may have none.
    pub(in crate::acp) fn add(
        &mut self,
        id: &SessionId,
        cwd: PathBuf,
        folders: Vec<PathBuf>,
        client: ClientSide,
    ) -> ClientSide {
        let ClientSide { client, buffers, .. } = client;
        let current = CurrentClient { client, buffers, own_prompts: self.prompts() };
        let client = Arc::new(RemoteClient::new(current, cwd, folders));
        self.open.insert(id.clone(), Arc::clone(&client));
        let buffers = Some(Arc::clone(&client) as Arc<dyn EditorBuffers>);
        ClientSide { client: client as Arc<dyn Client>, buffers, terminals: None }
    }

    /// Tells the other connections that this one has the session.
    pub(in crate::acp) fn claim(&self, id: &SessionId, handle: &SessionHandle) {
        let mut known = self.known.lock();
        known.open.retain(|_, probe| probe.is_open());
        known.open.insert(id.clone(), handle.probe());
    }

    /// Returns true if another connection has the session.
    pub(in crate::acp) fn is_open_elsewhere(&self, id: &SessionId) -> bool {
        let is_own = self.open.contains_key(id);
        !is_own && self.known.lock().open.get(id).is_some_and(SessionProbe::is_open)
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
        self.open.get(id)
    }

    /// Takes over a session that has no connection; `None` if there is no such session.
    ///
    /// # Errors
    /// If the session works in other folders: to open it in the given ones, its turn would have to end.
    pub(in crate::acp) fn take(
        &mut self,
        id: &SessionId,
        cwd: &Path,
        folders: &[PathBuf],
    ) -> Option<Result<(SessionHandle, Arc<RemoteClient>), Error>> {
        let detached = &mut self.known.lock().detached;
        let (_, kept) = detached.get(id).filter(|(handle, _)| handle.is_open())?;
        let client = kept.upgrade()?;
        if client.cwd != cwd || client.folders != folders {
            let place = client.cwd.display();
            let text = format!("A turn still runs in {place}. Use the same folders, or close it");
            return Some(Err(Error::InvalidState(text)));
        }
        let (handle, _) = detached.remove(id)?;
        self.open.insert(id.clone(), Arc::clone(&client));
        Some(Ok((handle, client)))
    }

    /// Takes a session that is without a connection, to close it.
    pub(in crate::acp) fn take_handle(&self, id: &SessionId) -> Option<SessionHandle> {
        let (handle, _) = self.known.lock().detached.remove(id)?;
        Some(handle).filter(SessionHandle::is_open)
    }

    /// The connection is lost: its sessions go on without it.
    pub(in crate::acp) fn detach(mut self, sessions: HashMap<SessionId, SessionHandle>) {
        for (id, handle) in sessions {
            let Some(client) = self.open.remove(&id).filter(|_| handle.is_open()) else { continue };
            client.detach();
            if !handle.detach(self.keep) {
                continue;
            }
            let mut known = self.known.lock();
            known.open.remove(&id);
            let detached = &mut known.detached;
            detached.retain(|_, (kept, _)| kept.is_open());
            // Without room the session ends, because its handle is dropped.
            if detached.len() < MAX_DETACHED {
                detached.insert(id, (handle, Arc::downgrade(&client)));
            }
        }
    }
}
