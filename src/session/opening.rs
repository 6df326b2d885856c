//! Opens a session: loads what it needs off the runtime's thread, starts or restores it, and then runs it.
//! Meanwhile cancels, the end of the opening request and the end of the process are handled at once.

use std::mem::take;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::actor::SessionActor;
use super::announcements::Announcements;
use super::early_messages::EarlyMessages;
use super::lifecycle::{CancelFlag, Lifecycle};
use super::load::{LoadRequest, LoadedSession, ServerLaunch};
use super::{OpenRequest, SessionHost, SessionMessage, SessionOrigin, settings};
use crate::completion::Completion;
use crate::error::Error;
use crate::turn::SharedModelSelection;
use turnwright_store::SessionLog;
use turnwright_types::update::Setting;

/// A session that is opening.
pub(super) struct Opening {
    inbox: mpsc::Receiver<SessionMessage>,
    early: EarlyMessages,
    cancelling: CancelFlag,
    /// Stops the session.
    stop: CancellationToken,
    /// Cancels the opening.
    cancel: CancellationToken,
    /// Cancelled when the previous task of the same session has ended.
    start_after: CancellationToken,
    /// Answers the opening request.
    opened: Completion<Vec<Setting>>,
}

/// Opens the session and runs it to its end.
pub(super) async fn open_and_run(
    host: Arc<SessionHost>,
    request: OpenRequest,
    inbox: mpsc::Receiver<SessionMessage>,
    cancelling: CancelFlag,
) {
    let OpenRequest { id, cwd, folders, client, buffers, display, servers, .. } = request;
    let OpenRequest { advertised_modalities, origin, start_after, cancel, opened, .. } = request;
    let mut opening =
        Opening::new(inbox, cancelling.clone(), host.stop_token(), (start_after, cancel), opened);
    let load = LoadRequest {
        id: id.clone(),
        cwd,
        folders,
        servers,
        supports_forms: client.supports_forms(),
        is_new: !matches!(origin, SessionOrigin::Stored { .. }),
    };
    let loader = Arc::clone(&host);
    let loading = async {
        let advertised = advertised_modalities.await;
        let loaded = tokio::task::spawn_blocking(move || loader.load_session(load)).await;
        Ok((advertised, loaded.map_err(|_| Error::Internal { place: "opening a session" })??))
    };
    let (advertised, loaded) = match opening.wait_for(loading).await {
        Ok(loaded) => loaded,
        Err(error) => return opening.fail(error).await,
    };
    let LoadedSession { mut project, model, effort, max_requests, servers, lock } = loaded;
    let (notices, policy) = (take(&mut project.notices), take(&mut project.policy));
    let log = SessionLog::new(host.store().clone(), id.clone());
    let mut env = host.tool_env(id, project, client, buffers, display);
    env.log = log;
    let selection = SharedModelSelection::new(model, effort);
    let services = host.turn_services(env, policy, selection, max_requests);
    let announcements = Announcements::new(notices, advertised, settings::all(&host, &services));
    let lifecycle = Lifecycle::new(opening.stop.clone(), cancelling, lock);
    let actor = SessionActor::new(host, services, announcements, lifecycle);
    opening.start_and_run(actor, origin, servers).await;
}

impl Opening {
    /// `gates` are what the session starts after, and what cancels its opening.
    pub(super) fn new(
        inbox: mpsc::Receiver<SessionMessage>,
        cancelling: CancelFlag,
        stop: CancellationToken,
        gates: (CancellationToken, CancellationToken),
        opened: Completion<Vec<Setting>>,
    ) -> Opening {
        let (start_after, cancel) = gates;
        let early = EarlyMessages::default();
        Opening { inbox, early, cancelling, stop, cancel, start_after, opened }
    }

    /// Starts or restores the session, answers the opening request, and runs the session to its end.
    pub(super) async fn start_and_run(
        mut self,
        mut actor: SessionActor,
        origin: SessionOrigin,
        servers: ServerLaunch,
    ) {
        let is_copy = matches!(origin, SessionOrigin::Fork { .. });
        let start_after = self.start_after.clone();
        let starting = async {
            start_after.cancelled().await;
            actor.start(origin).await
        };
        let started = self.wait_for(starting).await;
        let Opening { mut inbox, early, opened, .. } = self;
        match started {
            Ok(()) => {
                opened.complete(Ok(actor.announcements.settings()));
                actor.run(inbox, servers, early).await;
            }
            Err(error) => {
                // From now on the session is not found.
                inbox.close();
                if is_copy {
                    actor.delete_copy().await;
                }
                opened.complete(Err(error));
                // Whoever waits for this session's end also waits for the end of the previous task.
                start_after.cancelled().await;
                actor.close(inbox, early).await;
            }
        }
    }

    /// Waits for a part of the opening. Receives messages meanwhile.
    async fn wait_for<T>(
        &mut self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut work = std::pin::pin!(work);
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Error::Cancelled),
                () = self.cancel.cancelled() => return Err(Error::Cancelled),
                result = &mut work => return result,
                message = self.inbox.recv() => message.ok_or(Error::Cancelled)?,
            };
            if matches!(message, SessionMessage::Cancel) {
                self.cancelling.clear();
            }
            self.early.receive(message);
        }
    }

    /// Answers everything, because the session cannot be loaded.
    async fn fail(self, error: Error) {
        let Opening { mut inbox, early, start_after, opened, .. } = self;
        inbox.close();
        opened.complete(Err(error));
        let closings = early.end(&mut inbox);
        // Whoever waits for this session's end also waits for the end of the previous task.
        start_after.cancelled().await;
        for done in closings {
            done.complete(Ok(()));
        }
    }
}
