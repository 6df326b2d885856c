//! The connection: one task that owns what belongs to the connection and waits for one event
//! at a time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::caps::ClientCaps;
use crate::config::Config;
use crate::done::Done;
use turnwright_types::ids::SessionId;
use turnwright_types::redact;
use turnwright_rpc::{Frame, Input, Line, Outbox, Peer, RequestId, Stdio, stop_signal};
use crate::session::{Host, PromptKey, Senses, SessionHandle};

/// How long everything may take to end after the client has gone.
const SHUTDOWN: Duration = Duration::from_millis(1_500);
/// How long the last words may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Everything that can wake the connection. Closed on purpose: read it and you know every cause
/// of every change.
enum Event {
    Line(Line),
    InputClosed,
    Signal,
}

/// The connection's state.
pub(super) struct Connection {
    pub(super) host: Arc<Host>,
    pub(super) peer: Peer,
    /// `None` until `initialize` (R-INIT-13).
    pub(super) client: Option<ClientCaps>,
    /// What prompts may hold besides text, as `initialize` has said.
    pub(super) offered: Senses,
    /// By which names `authenticate` may be called.
    pub(super) auth_methods: Vec<String>,
    pub(super) sessions: HashMap<SessionId, SessionHandle>,
    /// Sessions that are coming to an end, each with what is cancelled when they have.
    ending: HashMap<SessionId, CancellationToken>,
    pub(super) in_flight: InFlight,
}

/// Speaks ACP until the client closes its end or the process is told to stop.
///
/// # Errors
/// When the system cannot give us what we need to begin.
pub async fn serve(config: Config, stdio: Stdio) -> std::io::Result<()> {
    let outbox = Outbox::filtered(stdio.output, without_keys)?;
    let mut input = Input::start(stdio.input)?;
    let stop = CancellationToken::new();
    let mut connection = Connection {
        host: Arc::new(Host::new(config, stop.clone())),
        peer: Peer::new(outbox.clone()),
        client: None,
        offered: Senses::default(),
        auth_methods: Vec::new(),
        sessions: HashMap::new(),
        ending: HashMap::new(),
        in_flight: InFlight::default(),
    };
    let signal = stop_signal();
    tokio::pin!(signal);
    loop {
        // A client that does not read its answers gets no more of them. If it has closed its end
        // as well, nobody waits for what it has asked.
        let next = async {
            tokio::select! {
                biased;
                () = outbox.settled() => input.next().await,
                () = input.ended() => None,
            }
        };
        let event = tokio::select! {
            line = next => line.map_or(Event::InputClosed, Event::Line),
            // Whoever cannot hear us cannot be asked, and pays for a model that nobody hears.
            () = outbox.gone() => Event::InputClosed,
            () = &mut signal => Event::Signal,
        };
        match event {
            Event::Line(Line::Message(frame)) => connection.on_frame(frame),
            // A bad line is the client's bug and no reason to die.
            Event::Line(Line::Refused { id, error }) => outbox.respond::<()>(&id, Err(&error)),
            Event::Line(Line::Ignored) => {}
            Event::InputClosed | Event::Signal => break,
        }
    }
    connection.shut_down(&stop).await;
    outbox.close(LAST_WORDS);
    Ok(())
}

/// What the client is told and asked holds no key of ours. What it is to write or to run stays as it
/// was allowed.
fn without_keys(method: Option<&str>, line: &[u8]) -> Option<Vec<u8>> {
    let is_order = method.is_some_and(|it| it.starts_with("fs/") || it.starts_with("terminal/"));
    if is_order { None } else { redact::bytes(line) }
}

impl Connection {
    fn on_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Request { id, method, params } => self.dispatch(id, &method, &params),
            Frame::Notification { method, params } => self.notice(&method, &params),
            Frame::Response { id, result } => self.peer.complete(&id, result),
        }
    }

    /// A session that is open.
    pub(super) fn session(&self, id: &SessionId) -> Option<&SessionHandle> {
        self.sessions.get(id).filter(|it| it.is_open())
    }

    /// Closes a session if it is open. What is returned is cancelled when nothing of it is left:
    /// whatever comes next for a session of that name waits for that.
    pub(super) fn retire(&mut self, id: &SessionId) -> CancellationToken {
        let before = self.ending.remove(id);
        let Some(open) = self.sessions.remove(id) else { return before.unwrap_or_else(ended) };
        let (ended, guard) = ending();
        // Dropped or called, it is over; and it has waited for what was before it.
        open.close(Done::new(move |_| drop(guard)));
        ended
    }

    /// Something is done with a session that is not open. What comes next for it waits until the
    /// guard is dropped.
    pub(super) fn occupy(&mut self, id: SessionId) -> DropGuard {
        let (token, guard) = ending();
        self.keep_ending(id, token);
        guard
    }

    /// What comes next for a session waits for this.
    pub(super) fn keep_ending(&mut self, id: SessionId, ended: CancellationToken) {
        self.ending.retain(|_, it| !it.is_cancelled());
        self.ending.insert(id, ended);
    }

    /// Ends everything and waits for it, but not for ever.
    async fn shut_down(self, stop: &CancellationToken) {
        stop.cancel();
        self.peer.hang_up();
        drop(self.sessions);
        if tokio::time::timeout(SHUTDOWN, self.host.finished()).await.is_err() {
            tracing::error!("something did not end in time");
        }
    }
}

/// Something that is over.
fn ended() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// Something that is over when the guard is dropped.
fn ending() -> (CancellationToken, DropGuard) {
    let token = CancellationToken::new();
    (token.clone(), token.drop_guard())
}

/// Which requests are being worked on, for `$/cancel_request`.
#[derive(Default)]
pub(super) struct InFlight {
    next: PromptKey,
    requests: HashMap<RequestId, (Work, Weak<()>)>,
}

/// What a request has started, and how that is cancelled.
pub(super) enum Work {
    /// A turn, by its session.
    Prompt(SessionId, PromptKey),
    /// Something else.
    Other(CancellationToken),
}

impl InFlight {
    /// Registers a prompt. It counts as in flight as long as the returned token lives, which
    /// therefore goes with the duty to answer.
    pub(super) fn prompt(&mut self, id: RequestId, session: SessionId) -> (PromptKey, Arc<()>) {
        self.next += 1;
        (self.next, self.insert(id, Work::Prompt(session, self.next)))
    }

    /// The same for any other request; the token is cancelled when that is.
    pub(super) fn other(&mut self, id: RequestId) -> (CancellationToken, Arc<()>) {
        let cancel = CancellationToken::new();
        (cancel.clone(), self.insert(id, Work::Other(cancel)))
    }

    fn insert(&mut self, id: RequestId, work: Work) -> Arc<()> {
        if self.requests.len() > 64 {
            self.requests.retain(|_, (_, alive)| alive.strong_count() > 0);
        }
        let alive = Arc::new(());
        self.requests.insert(id, (work, Arc::downgrade(&alive)));
        alive
    }

    /// What that request has started, if it is still in flight. One that is finished is nothing to
    /// cancel (R-CXL-3).
    pub(super) fn find(&mut self, id: &RequestId) -> Option<Work> {
        let (work, alive) = self.requests.remove(id)?;
        (alive.strong_count() > 0).then_some(work)
    }
}
