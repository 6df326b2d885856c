//! The terminals of the client (R-TERM-1…7): each is given back once, and not before the card
//! that shows it has had its last word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::peer::AcpClient;
use super::wire::schema::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReleaseTerminalRequest, SessionId,
    TerminalId as WireId, TerminalOutputRequest, WaitForTerminalExitRequest,
};
use turnwright_types::client::{
    Display, TerminalCommand, TerminalError, TerminalExit, TerminalOutput, Terminals,
};
use turnwright_types::effect::Content;
use turnwright_types::ids::{CallId, TerminalId};
use turnwright_rpc::{Peer, RequestFailed};
use turnwright_types::update::{Status, Update};

/// An editor that opens a terminal does so at once; one that starts a container first may not.
const CREATING: Duration = Duration::from_secs(10);
/// For what an editor knows without looking.
const QUICKLY: Duration = Duration::from_secs(5);
/// A command may take long; a day is as good as never.
const WAITING: Duration = Duration::from_secs(24 * 60 * 60);
/// What a client answers that has no terminals.
const NO_SUCH_METHOD: i32 = -32601;

impl AcpClient {
    /// How this client shows commands.
    pub(super) fn display(self: &Arc<Self>) -> Display {
        if self.caps.terminal {
            Display::Terminals(Arc::clone(self) as Arc<dyn Terminals>)
        } else if self.caps.terminal_output {
            Display::Output
        } else {
            Display::Text
        }
    }

    pub(super) fn give_back(&self, id: &TerminalId) {
        release(&self.peer, &self.session, wire(id));
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // Cards that never had their last word.
        for id in self.shown.rest() {
            self.give_back(&id);
        }
    }
}

impl Terminals for AcpClient {
    fn create(&self, command: TerminalCommand) -> BoxFuture<'_, Result<TerminalId, TerminalError>> {
        Box::pin(async move {
            let variables = command.variables.into_iter();
            let params = CreateTerminalRequest::new(
                self.session.clone(),
                command.program.to_string_lossy().into_owned(),
            )
            .args(command.arguments)
            .env(variables.map(|(name, value)| EnvVariable::new(name, value)).collect())
            .cwd(command.workdir)
            .output_byte_limit(command.limit);
            let (peer, session) = (self.peer.clone(), self.session.clone());
            let late = move |result: &RawValue| {
                if let Some(id) = terminal_id(result) {
                    release(&peer, &session, WireId::new(id));
                }
            };
            if self.shown.are_given_up() {
                return Err(TerminalError("it has none, whatever it said".to_owned()));
            }
            let asked = self.peer.request_or_late("terminal/create", &params, CREATING, late);
            let result = asked.await.map_err(|error| {
                self.shown.note(&error);
                explain(&error)
            })?;
            let id = terminal_id(&result).map(TerminalId::from);
            id.ok_or_else(|| TerminalError("it has no identifier".to_owned()))
        })
    }

    fn output(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, TerminalError>> {
        Box::pin(async move {
            let params = TerminalOutputRequest::new(self.session.clone(), wire(&id));
            let asked = self.peer.request("terminal/output", &params, QUICKLY).await;
            Ok(output(&parse(&asked.map_err(|it| explain(&it))?)))
        })
    }

    fn wait(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalExit, TerminalError>> {
        Box::pin(async move {
            let params = WaitForTerminalExitRequest::new(self.session.clone(), wire(&id));
            let asked = self.peer.request("terminal/wait_for_exit", &params, WAITING).await;
            Ok(exit(&parse(&asked.map_err(|it| explain(&it))?)))
        })
    }

    fn kill(&self, id: TerminalId) -> BoxFuture<'_, Result<(), TerminalError>> {
        Box::pin(async move {
            let params = KillTerminalRequest::new(self.session.clone(), wire(&id));
            let asked = self.peer.request("terminal/kill", &params, QUICKLY).await;
            asked.map(drop).map_err(|it| explain(&it))
        })
    }

    fn release(&self, id: TerminalId) {
        if let Some(id) = self.shown.release(id) {
            self.give_back(&id);
        }
    }
}

fn release(peer: &Peer, session: &SessionId, id: WireId) {
    peer.post("terminal/release", &ReleaseTerminalRequest::new(session.clone(), id));
}

fn wire(id: &TerminalId) -> WireId {
    WireId::new(id.to_arc())
}

fn explain(error: &RequestFailed) -> TerminalError {
    TerminalError(error.to_string())
}

fn parse(result: &RawValue) -> Value {
    serde_json::from_str(result.get()).unwrap_or_default()
}

fn terminal_id(result: &RawValue) -> Option<String> {
    let id = parse(result).get("terminalId")?.as_str()?.to_owned();
    (!id.is_empty()).then_some(id)
}

fn output(value: &Value) -> TerminalOutput {
    let ended = value.get("exitStatus").filter(|it| it.is_object());
    TerminalOutput {
        text: value.get("output").and_then(Value::as_str).unwrap_or_default().to_owned(),
        truncated: value.get("truncated").and_then(Value::as_bool).unwrap_or_default(),
        exit: ended.map(exit),
    }
}

/// Some clients put it into an `exitStatus` here as well.
fn exit(value: &Value) -> TerminalExit {
    let value = value.get("exitStatus").filter(|it| it.is_object()).unwrap_or(value);
    let code = value.get("exitCode").and_then(Value::as_u64);
    TerminalExit {
        code: code.and_then(|it| it.try_into().ok()),
        signal: value.get("signal").and_then(Value::as_str).map(|it| it.chars().take(40).collect()),
    }
}

/// Which cards show which terminals. At least one client refuses an update that names a terminal
/// which it has taken back, so what a card still shows is kept until the card is final.
#[derive(Debug, Default)]
pub(super) struct Shown {
    // A std mutex: held to look at a short list.
    cards: Mutex<Vec<Card>>,
    /// The client only claims to have terminals. To find that out for each command would hold up
    /// each.
    given_up: AtomicBool,
}

#[derive(Debug)]
struct Card {
    call: CallId,
    terminal: TerminalId,
    /// Nobody but the card needs it any more.
    is_free: bool,
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Vec<Card>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Why no terminal came.
    fn note(&self, error: &RequestFailed) {
        let never = match error {
            RequestFailed::TimedOut(_) => true,
            RequestFailed::Refused(error) => error.code == NO_SUCH_METHOD,
            RequestFailed::Gone => false,
        };
        if never {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Looks at what goes to the client. Returns the terminals to give back after it.
    pub(super) fn look(&self, update: &Update) -> Vec<TerminalId> {
        let Update::CallUpdate(update) = update else { return Vec::new() };
        let is_final = matches!(update.status, Status::Completed | Status::Failed);
        let mut cards = self.lock();
        if is_final {
            let ours = cards.extract_if(.., |it| it.call == update.id);
            return ours.filter(|it| it.is_free).map(|it| it.terminal).collect();
        }
        for content in update.content.iter().flatten() {
            let Content::Terminal(terminal) = content else { continue };
            if !cards.iter().any(|it| it.call == update.id && it.terminal == *terminal) {
                let (call, terminal) = (update.id.clone(), terminal.clone());
                cards.push(Card { call, terminal, is_free: false });
            }
        }
        Vec::new()
    }

    /// Returns the terminal if it is to be given back at once.
    fn release(&self, id: TerminalId) -> Option<TerminalId> {
        let mut cards = self.lock();
        match cards.iter_mut().find(|it| it.terminal == id) {
            Some(card) => {
                card.is_free = true;
                None
            }
            None => Some(id),
        }
    }

    /// What waits for its card in vain.
    fn rest(&self) -> Vec<TerminalId> {
        let mut cards = self.lock();
        cards.drain(..).filter(|it| it.is_free).map(|it| it.terminal).collect()
    }
}
