//! The connection task: owns the state of the connection and handles one event at a time.

use std::collections::HashMap;
use std::io::{Write, stderr};
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::capabilities::{self, ClientCaps, PendingOffer};
use super::linked_servers::LinkedRequests;
use super::remote::RemoteSessions;
use super::subagents::ToldSessions;
use super::v2::PromptLedger;
use super::versions::{self, Version};
use crate::completion::Completion;
use crate::error::Error;
use crate::runtime;
use crate::session::{PromptKey, SessionHandle, SessionHost};
use tokio::task::spawn_blocking;
use turnwright_config::Config;
use turnwright_recording::Recording;
use turnwright_rpc::{LineReader, Outbox, ParsedLine, Peer, RequestId, RpcMessage, Stdio};
use turnwright_types::ids::SessionId;
use turnwright_types::message::PromptEnd;
use turnwright_types::redact;

/// How long sessions may take to end after the client has gone.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long the client may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a recording may take to be written to its end.
pub(super) const RECORDING_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the settings may take to be read before a version is chosen without them.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(2);

/// The code of the error for a line that is not JSON.
const NOT_JSON: i32 = -32_700;
/// Printed if the first line seems to come from a person and not from a client.
const ADVICE: &str = "turnwright speaks the Agent Client Protocol on stdin; to ask something in a \
                      terminal, use `turnwright run \"…\"`.";

/// The connection's state.
pub(super) struct Connection {
    pub(super) host: Arc<SessionHost>,
    pub(super) peer: Peer,
    /// `None` until `initialize` (R-INIT-13).
    pub(super) client: Option<ClientCaps>,
    /// The kinds of requests that the client has left unanswered: no session makes another one before the next prompt,
    /// when a busy editor may answer again.
    pub(super) silent_requests: Arc<AtomicU8>,
    /// The offer of `initialize`, once it and every `authenticate` since are answered. Requests that
    /// depend on it wait for it in their tasks.
    pub(super) offer: PendingOffer,
    pub(super) sessions: HashMap<SessionId, SessionHandle>,
    /// Sessions that are closing or otherwise busy, each with a token that is cancelled when that is
    /// over. Whatever comes next for such a session waits for its token.
    busy: HashMap<SessionId, CancellationToken>,
    pub(super) in_flight: InFlightRequests,
    /// The places for requests without an answer.
    pub(super) unanswered: Arc<Semaphore>,
    /// The requests to MCP servers of the client.
    pub(super) linked_requests: Arc<LinkedRequests>,
    /// Fixed by the first `initialize`.
    pub(super) version: Version,
    /// True if the settings allow version 2, once a client has asked for another one than 1.
    pub(super) allows_v2: bool,
    /// The prompts of version 2.
    pub(super) prompts: PromptLedger,
    /// The helpers and, in version 2, the states that the client was told of.
    pub(super) told: ToldSessions,
    /// The sessions, if the connection may be lost: those of a pipe end with it.
    pub(super) remote: Option<RemoteSessions>,
}

/// The requests of a client that may be without an answer: they take memory, and those that read the store
/// delay other connections.
pub(super) const MAX_UNANSWERED: usize = 1_024;

/// Serves ACP on a runtime of its own until the client closes its end or `stop_requested` is ready.
pub(crate) fn serve_blocking(
    config: Config,
    stdio: Stdio,
    stop_requested: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let recording = SessionHost::started_recording(&config);
    serve_as_recorded(config, recording, stdio, stop_requested)
}

/// Like [`serve_blocking`], with a recording that takes notes already or is played back.
pub(crate) fn serve_as_recorded(
    config: Config,
    recording: Recording,
    stdio: Stdio,
    stop_requested: impl Future<Output = ()>,
) -> std::io::Result<()> {
    runtime::run(async {
        let recorder = Arc::clone(recording.recorder());
        let observer = recorder.observer(0);
        let outbox =
            Outbox::start_observed(stdio.output, redact_outgoing, Some(Arc::clone(&observer)))?;
        let mut input = LineReader::start_observed(stdio.input, Some(observer))?;
        let stop = CancellationToken::new();
        let host = Arc::new(SessionHost::with_recording(config, recording, stop.clone()));
        let mut connection = Connection::new(host, outbox.clone(), None);
        connection.run(&mut input, stop_requested).await;
        recorder.leave_out_servers(0);
        connection.shut_down(&stop).await;
        outbox.close(FLUSH_TIMEOUT);
        recorder.stop(RECORDING_TIMEOUT);
        Ok(())
    })
}

/// Redacts API keys in everything that the client is told or asked. The content of files to write and
/// commands to run stays exactly as it was permitted.
pub(super) fn redact_outgoing(method: Option<&str>, line: &[u8]) -> Option<Vec<u8>> {
    let is_action =
        method.is_some_and(|method| method.starts_with("fs/") || method.starts_with("terminal/"));
    if is_action { None } else { redact::bytes(line) }
}

impl Connection {
    /// Creates the state of a connection whose messages go to this outbox, and that may be lost if it is `remote`.
    pub(super) fn new(
        host: Arc<SessionHost>,
        outbox: Outbox,
        remote: Option<RemoteSessions>,
    ) -> Connection {
        // No prompt has the key 0.
        let next = 1 + remote.as_ref().map_or(0, |sessions| sessions.prompts().start);
        let told = ToldSessions::default();
        Connection {
            host,
            peer: Peer::new(outbox),
            client: None,
            silent_requests: Arc::default(),
            offer: capabilities::no_offer(),
            sessions: HashMap::new(),
            busy: HashMap::new(),
            in_flight: InFlightRequests { next, requests: HashMap::new() },
            unanswered: Arc::new(Semaphore::new(MAX_UNANSWERED)),
            linked_requests: Arc::default(),
            version: Version::default(),
            allows_v2: false,
            prompts: PromptLedger::new(told.clone()),
            told,
            remote,
        }
    }

    /// Handles messages until the input ends, nobody reads the output, or a stop is requested.
    pub(super) async fn run(
        &mut self,
        input: &mut LineReader,
        stop_requested: impl Future<Output = ()>,
    ) {
        let outbox = self.peer.outbox().clone();
        tokio::pin!(stop_requested);
        let mut may_be_person = self.remote.is_none();
        loop {
            // No more requests are read from a client that does not read the responses. If it has
            // closed its end as well, nobody waits for the responses.
            let next_line = async {
                tokio::select! {
                    biased;
                    () = outbox.wait_for_read_capacity() => input.next().await,
                    () = input.ended() => None,
                }
            };
            let line = tokio::select! {
                line = next_line => line,
                // A client that cannot read our messages cannot be asked for permission, and the model
                // would cost money without anyone reading its answers.
                () = outbox.closed() => None,
                () = &mut stop_requested => None,
            };
            match line {
                Some(ParsedLine::Message(message)) => {
                    if self.must_read_settings(&message) {
                        tokio::select! {
                            () = self.read_settings() => {}
                            () = &mut stop_requested => break,
                        }
                    }
                    self.on_message(message);
                }
                // A malformed line is the client's bug, and no reason to end the connection.
                Some(ParsedLine::Rejected { id, error }) => {
                    if may_be_person && error.code == NOT_JSON {
                        writeln!(stderr(), "{ADVICE}").ok();
                    }
                    outbox.respond::<()>(&id, Err(&error));
                }
                Some(ParsedLine::Ignored) => {}
                None => break,
            }
            may_be_person = false;
        }
    }

    /// The remote client is gone. Its sessions end if that was intended; otherwise they go on for a while.
    pub(super) fn leave(self, is_intended: bool) {
        if let Some(remote) = self.remote.filter(|_| !is_intended) {
            // Their questions are asked again of the next client, so they must not be answered now.
            remote.detach(self.sessions);
        }
        self.peer.fail_all();
    }

    fn on_message(&mut self, message: RpcMessage) {
        match message {
            RpcMessage::Request { id, method, params } => self.dispatch(id, &method, &params),
            RpcMessage::Notification { method, params } => self.on_notification(&method, &params),
            RpcMessage::Response { id, result } => self.peer.complete(&id, result),
        }
    }

    /// Returns true if the answer to this message depends on a setting that is not read yet.
    fn must_read_settings(&self, message: &RpcMessage) -> bool {
        self.client.is_none()
            && matches!(message, RpcMessage::Request { method, params, .. }
                if versions::is_open_to_choice(method, params))
    }

    /// Reads what the choice of a version depends on. The client waits for that answer anyway. A disk that
    /// does not answer in time chooses version 1, which every client speaks.
    async fn read_settings(&mut self) {
        let host = Arc::clone(&self.host);
        let setting = spawn_blocking(move || host.config().snapshot().values.acp.v2 != Some(false));
        let read = tokio::time::timeout(SETTINGS_TIMEOUT, setting).await;
        self.allows_v2 = read.is_ok_and(Result::unwrap_or_default);
    }

    /// Returns the session if it is open.
    pub(super) fn session(&self, id: &SessionId) -> Option<&SessionHandle> {
        self.sessions.get(id).filter(|session| session.is_open())
    }

    /// Returns the session of this name.
    ///
    /// # Errors
    /// If it is not open.
    pub(super) fn find_session(&self, id: &str) -> Result<&SessionHandle, Error> {
        self.session(&id.into()).ok_or_else(|| Error::SessionNotFound(id.to_owned()))
    }

    /// Reports the end of a prompt. After it nothing of its turn has to be kept for another client.
    pub(super) fn at_prompt_end(
        &self,
        session: &SessionId,
        key: PromptKey,
        done: Completion<PromptEnd>,
    ) -> Completion<PromptEnd> {
        let client = self.remote.as_ref().and_then(|remote| remote.client(session));
        let Some(client) = client.cloned() else { return done };
        Completion::new(move |result| {
            client.forget_turn(key);
            done.complete(result);
        })
    }

    /// Refuses what only the connection that has a session may do with it.
    ///
    /// # Errors
    /// If another connection of this process has the session.
    pub(super) fn check_not_elsewhere(&self, id: &SessionId) -> Result<(), Error> {
        if !self.remote.as_ref().is_some_and(|remote| remote.is_open_elsewhere(id)) {
            return Ok(());
        }
        let text = "Another connection has this session open. Close it there, or fork the session";
        Err(Error::InvalidState(text.to_owned()))
    }

    /// Closes a session if it is open. The returned token is cancelled when the session has ended;
    /// whatever comes next for a session of this id must wait for it.
    pub(super) fn close_session(&mut self, id: &SessionId) -> CancellationToken {
        let previous = self.busy.remove(id);
        let open = self.sessions.remove(id).filter(SessionHandle::is_open);
        let Some(open) = open.or_else(|| self.remote.as_ref()?.take_handle(id)) else {
            return previous.unwrap_or_else(cancelled_token);
        };
        let (ended, guard) = token_with_guard();
        // The guard is dropped whether the completion is called or dropped. The session itself
        // has waited for the previous token.
        open.close(Completion::new(move |_| drop(guard)));
        ended
    }

    /// Marks a session that is not open as busy until the guard is dropped.
    pub(super) fn block_session(&mut self, id: SessionId) -> DropGuard {
        let (token, guard) = token_with_guard();
        self.block_session_until(id, token);
        guard
    }

    /// Marks a session as busy until the token is cancelled.
    pub(super) fn block_session_until(&mut self, id: SessionId, ended: CancellationToken) {
        self.busy.retain(|_, token| !token.is_cancelled());
        self.busy.insert(id, ended);
    }

    /// Ends all sessions, and waits for at most [`SHUTDOWN_TIMEOUT`].
    async fn shut_down(self, stop: &CancellationToken) {
        stop.cancel();
        self.peer.fail_all();
        drop(self.sessions);
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.host.wait_for_sessions()).await.is_err() {
            tracing::error!("a session did not end in time");
        }
    }
}

fn cancelled_token() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// A token that is cancelled when the guard is dropped.
fn token_with_guard() -> (CancellationToken, DropGuard) {
    let token = CancellationToken::new();
    (token.clone(), token.drop_guard())
}

/// The requests that are being served, for `$/cancel_request`.
pub(super) struct InFlightRequests {
    next: PromptKey,
    requests: HashMap<RequestId, (CancelTarget, Weak<()>)>,
}

/// The work that a request has started, as the thing that `$/cancel_request` must cancel.
pub(super) enum CancelTarget {
    Prompt(SessionId, PromptKey),
    Other(CancellationToken),
}

impl InFlightRequests {
    /// Registers a prompt. It is in flight as long as the returned `Arc` lives, so the `Arc` must be
    /// held until the request is answered.
    pub(super) fn register_prompt(
        &mut self,
        id: RequestId,
        session: SessionId,
    ) -> (PromptKey, Arc<()>) {
        let key = self.next;
        self.next += 1;
        (key, self.insert(id, CancelTarget::Prompt(session, key)))
    }

    /// Registers any other request. The token is cancelled when the client cancels the request.
    pub(super) fn register(&mut self, id: RequestId) -> (CancellationToken, Arc<()>) {
        let cancel = CancellationToken::new();
        (cancel.clone(), self.insert(id, CancelTarget::Other(cancel)))
    }

    fn insert(&mut self, id: RequestId, target: CancelTarget) -> Arc<()> {
        if self.requests.len() > 64 {
            self.requests.retain(|_, (_, alive)| alive.strong_count() > 0);
        }
        let alive = Arc::new(());
        self.requests.insert(id, (target, Arc::downgrade(&alive)));
        alive
    }

    /// Removes a request and returns what to cancel. Returns `None` if the request is no longer in
    /// flight: then there is nothing to cancel (R-CXL-3).
    pub(super) fn remove(&mut self, id: &RequestId) -> Option<CancelTarget> {
        let (target, alive) = self.requests.remove(id)?;
        (alive.strong_count() > 0).then_some(target)
    }
}
