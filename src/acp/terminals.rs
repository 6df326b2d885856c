//! The client's terminals (R-TERM-1…7): each is released exactly once, and not before the card that
//! shows it is final.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{AcpClient, METHOD_NOT_FOUND, error_text};
use super::schema::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReleaseTerminalRequest, SessionId,
    TerminalId as WireId, TerminalOutputRequest, WaitForTerminalExitRequest,
};
use turnwright_rpc::{Peer, RequestError};
use turnwright_types::client::{
    ClientTerminals, CommandDisplay, TerminalCommand, TerminalError, TerminalExit, TerminalOutput,
};
use turnwright_types::effect::CallContent;
use turnwright_types::ids::{CallId, TerminalId};
use turnwright_types::text;
use turnwright_types::update::Update;

/// Most editors open a terminal at once, but some start a container first.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
/// For requests that an editor can answer at once.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// A command may run for a long time; a day is as good as no limit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Words of an error, in lower case, by which a client says that its user or its settings do not allow a
/// command. A mere "permission denied" is also what the operating system says of a program that
/// cannot be executed.
const DENIALS: [&str; 5] =
    ["permission denied for", "denied by", "rejected by", "declined by", "not allowed by"];

impl AcpClient {
    /// How this client shows the output of commands.
    pub(super) fn display(self: &Arc<Self>) -> CommandDisplay {
        if self.caps.terminal {
            CommandDisplay::ClientTerminal(Arc::clone(self) as Arc<dyn ClientTerminals>)
        } else {
            CommandDisplay::default()
        }
    }

    pub(super) fn release_terminal(&self, id: &TerminalId) {
        release(&self.peer, &self.session, wire_id(id));
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // Terminals whose cards never became final.
        for id in self.terminal_cards.drain_released() {
            self.release_terminal(&id);
        }
    }
}

impl ClientTerminals for AcpClient {
    fn create(&self, command: TerminalCommand) -> BoxFuture<'_, Result<TerminalId, TerminalError>> {
        Box::pin(async move {
            let env = command.env.into_iter();
            let params = CreateTerminalRequest::new(
                self.session.clone(),
                command.program.to_string_lossy().into_owned(),
            )
            .args(command.arguments)
            .env(env.map(|(name, value)| EnvVariable::new(name, value)).collect())
            .cwd(command.workdir)
            .output_byte_limit(command.output_byte_limit);
            let peer = self.peer.clone();
            let session = self.session.clone();
            if self.terminal_cards.are_unavailable() {
                return Err(TerminalError::Failed("not available, although advertised".to_owned()));
            }
            let response = self.peer.request_with_late_handler(
                "terminal/create",
                &params,
                CREATE_TIMEOUT,
                move |result| {
                    if let Some(id) = terminal_id(result) {
                        release(&peer, &session, WireId::new(id));
                    }
                },
            );
            let result = response.await.map_err(|error| {
                self.terminal_cards.record_failure(&error);
                to_terminal_error(&error)
            })?;
            let id = terminal_id(&result).map(TerminalId::from);
            id.ok_or_else(|| TerminalError::Failed("the response has no terminal id".to_owned()))
        })
    }

    fn output(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, TerminalError>> {
        Box::pin(async move {
            let params = TerminalOutputRequest::new(self.session.clone(), wire_id(&id));
            let response = self.peer.request("terminal/output", &params, QUERY_TIMEOUT).await;
            Ok(terminal_output(&parse(&response.map_err(|error| to_terminal_error(&error))?)))
        })
    }

    fn wait(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalExit, TerminalError>> {
        Box::pin(async move {
            let params = WaitForTerminalExitRequest::new(self.session.clone(), wire_id(&id));
            let response = self.peer.request("terminal/wait_for_exit", &params, EXIT_TIMEOUT).await;
            Ok(terminal_exit(&parse(&response.map_err(|error| to_terminal_error(&error))?)))
        })
    }

    fn kill(&self, id: TerminalId) -> BoxFuture<'_, Result<(), TerminalError>> {
        Box::pin(async move {
            let params = KillTerminalRequest::new(self.session.clone(), wire_id(&id));
            let response = self.peer.request("terminal/kill", &params, QUERY_TIMEOUT).await;
            response.map(drop).map_err(|error| to_terminal_error(&error))
        })
    }

    fn release(&self, id: TerminalId) {
        if let Some(id) = self.terminal_cards.release(id) {
            self.release_terminal(&id);
        }
    }
}

fn release(peer: &Peer, session: &SessionId, id: WireId) {
    peer.send_request_ignoring_response(
        "terminal/release",
        &ReleaseTerminalRequest::new(session.clone(), id),
    );
}

fn wire_id(id: &TerminalId) -> WireId {
    WireId::new(id.to_arc())
}

fn to_terminal_error(error: &RequestError) -> TerminalError {
    let RequestError::ErrorResponse(response) = error else {
        return TerminalError::Failed(error.to_string());
    };
    let text = error_text(response);
    let lower = text.to_lowercase();
    let is_denied = DENIALS.iter().any(|denial| lower.contains(denial));
    if is_denied { TerminalError::Denied(text) } else { TerminalError::Failed(text) }
}

fn parse(result: &RawValue) -> Value {
    serde_json::from_str(result.get()).unwrap_or_default()
}

fn terminal_id(result: &RawValue) -> Option<String> {
    let id = parse(result).get("terminalId")?.as_str()?.to_owned();
    (!id.is_empty()).then_some(id)
}

fn terminal_output(value: &Value) -> TerminalOutput {
    let exit_status = value.get("exitStatus").filter(|status| status.is_object());
    TerminalOutput {
        text: value.get("output").and_then(Value::as_str).unwrap_or_default().to_owned(),
        truncated: value.get("truncated").and_then(Value::as_bool).unwrap_or_default(),
        exit: exit_status.map(terminal_exit),
    }
}

/// Reads an exit status. In the response to `terminal/wait_for_exit`, some clients wrap it in an
/// `exitStatus`.
fn terminal_exit(value: &Value) -> TerminalExit {
    let value = value.get("exitStatus").filter(|status| status.is_object()).unwrap_or(value);
    let code = value.get("exitCode").and_then(Value::as_u64);
    TerminalExit {
        code: code.and_then(|code| code.try_into().ok()),
        signal: value.get("signal").and_then(Value::as_str).map(|signal| text::cut(signal, 40)),
    }
}

/// The cards that show terminals. At least one client refuses an update that names a released terminal,
/// so a terminal is released only after its card is final.
#[derive(Debug, Default)]
pub(super) struct TerminalCards {
    // Held only to look at a short list.
    cards: Mutex<Vec<TerminalCard>>,
    /// Set when the client turns out not to have the terminals that it advertised, so that later
    /// commands are not delayed by trying again.
    is_unavailable: AtomicBool,
}

#[derive(Debug)]
struct TerminalCard {
    call: CallId,
    terminal: TerminalId,
    /// The terminal is no longer used, and only waits for its card to become final.
    is_released: bool,
}

impl TerminalCards {
    fn are_unavailable(&self) -> bool {
        self.is_unavailable.load(Ordering::Relaxed)
    }

    /// Records a failure to create a terminal.
    fn record_failure(&self, error: &RequestError) {
        let is_permanent = match error {
            RequestError::TimedOut(_) => true,
            RequestError::ErrorResponse(error) => error.code == METHOD_NOT_FOUND,
            RequestError::ConnectionClosed | RequestError::TooMany => false,
        };
        if is_permanent {
            self.is_unavailable.store(true, Ordering::Relaxed);
        }
    }

    /// Takes note of an update that is about to be sent, and returns the terminals to release after
    /// it.
    pub(super) fn observe(&self, update: &Update) -> Vec<TerminalId> {
        let Update::CallUpdate(update) = update else { return Vec::new() };
        let mut cards = self.cards.lock();
        if update.status.is_final() {
            let removed = cards.extract_if(.., |card| card.call == update.id);
            return removed.filter(|card| card.is_released).map(|card| card.terminal).collect();
        }
        for content in update.content.iter().flatten() {
            let CallContent::Terminal(terminal) = content else { continue };
            if !cards.iter().any(|card| card.call == update.id && card.terminal == *terminal) {
                let call = update.id.clone();
                let terminal = terminal.clone();
                cards.push(TerminalCard { call, terminal, is_released: false });
            }
        }
        Vec::new()
    }

    /// Returns the terminal if no card shows it, so that it can be released at once.
    fn release(&self, id: TerminalId) -> Option<TerminalId> {
        let mut cards = self.cards.lock();
        match cards.iter_mut().find(|card| card.terminal == id) {
            Some(card) => {
                card.is_released = true;
                None
            }
            None => Some(id),
        }
    }

    /// Removes all cards and returns the terminals that still wait for theirs to become final.
    fn drain_released(&self) -> Vec<TerminalId> {
        let mut cards = self.cards.lock();
        cards.drain(..).filter(|card| card.is_released).map(|card| card.terminal).collect()
    }
}
