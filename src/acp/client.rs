//! Implements the client traits of a session over ACP: updates, questions, unsaved files and the client's terminals
//! (R-TERM-1…7): each is released exactly once, and not before the card that shows it is final.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;

use super::capabilities::ClientCaps;
use super::cursors::KnownCursors;
use super::schema::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReadTextFileRequest,
    ReleaseTerminalRequest, SessionId, SessionNotification, TerminalId as WireId,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use super::subagents::{ChildSession, ToldSessions};
use super::to_wire;
use super::user_question::UserQuestions;
use super::versions::Version;
use turnwright_rpc::{Peer, RequestError, RpcError};
use turnwright_types::client::{
    BufferError, Client, ClientTerminals, EditorBuffers, ElicitationModes, FormOutcome, HelperView,
    PermissionAnswer, PermissionRequest, ServerForm, StartedHelper, TerminalCommand, TerminalError,
    TerminalExit, TerminalOutput, UserQuestion, UserReply,
};
use turnwright_types::effect::CallContent;
use turnwright_types::ids::{self, CallId, TerminalId};
use turnwright_types::text;
use turnwright_types::update::Update;

/// Editors read files at once.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// An editor may show the change to the user first.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bits for the requests that are not made again before the next prompt: for files, because the client has left
/// one unanswered, and for terminals, also because it has none, although it advertised them.
const SILENT_READS: u8 = 1;
const SILENT_TERMINALS: u8 = 2;

/// The error codes of a client for a file that does not exist, and for a method that it advertised but
/// does not have. In both cases the file is read from disk instead.
const RESOURCE_NOT_FOUND: i32 = -32002;
const METHOD_NOT_FOUND: i32 = -32601;
/// The error code of a client that has failed, which is not a refusal unless its text says so.
const INTERNAL_ERROR: i32 = -32603;

/// Words of an error, in lower case, by which a client denies access to a file.
const DENIALS: [&str; 10] = [
    "permission",
    "denied",
    "deny",
    "outside",
    "not allowed",
    "not permitted",
    "forbidden",
    "refused",
    "eacces",
    "eperm",
];
/// Words of an error, in lower case, by which a client says that it does not have a file, or cannot
/// serve files.
const ABSENCES: [&str; 6] =
    ["not found", "no such file", "enoent", "does not exist", "not supported", "not implemented"];

/// The notice to the user when the client is asked for no further file before the next prompt.
const UNANSWERED_READ: &str = "The editor does not answer when it is asked for a file, so files are read \
                               and written on the disk until your next prompt. Save your changes, and reload changed \
                               files.";

/// The state of the client on which later messages depend.
#[derive(Debug, Default)]
struct ShownEntities {
    /// The cards that show terminals. At least one client refuses an update that names a released terminal,
    /// so a terminal is released only after its card is final.
    terminal_cards: Vec<TerminalCard>,
    cursors: KnownCursors,
}

/// The client of one session.
#[derive(Debug)]
pub(super) struct AcpClient {
    peer: Peer,
    session: SessionId,
    caps: ClientCaps,
    cwd: PathBuf,
    // Held only to look something up.
    shown: Mutex<ShownEntities>,
    questions: UserQuestions,
    /// The bits of the requests that are not made now. Shared by the sessions of the connection.
    silent_requests: Arc<AtomicU8>,
    /// The helpers that the client of the connection was told of.
    told: ToldSessions,
}

impl AcpClient {
    pub(super) fn new(
        peer: Peer,
        session: &ids::SessionId,
        caps: ClientCaps,
        cwd: PathBuf,
        silent_requests: Arc<AtomicU8>,
        told: ToldSessions,
    ) -> AcpClient {
        let session = SessionId::new(session.to_arc());
        let modes = caps.elicitation;
        let questions = UserQuestions::new(peer.clone(), session.clone(), Version::V1, modes);
        AcpClient {
            peer,
            session,
            caps,
            cwd,
            shown: Mutex::default(),
            questions,
            silent_requests,
            told,
        }
    }
}

impl Client for AcpClient {
    fn update(&self, mut update: Update) {
        self.told.leave_out_unknown(&mut update);
        let released = self.observe_cards(&update);
        let cursor = self.shown.lock().cursors.note(&update, self.caps);
        if let Some(update) = cursor.or_else(|| to_wire::update(update, self.caps, &self.cwd)) {
            let params = SessionNotification::new(self.session.clone(), update);
            self.peer.outbox().notify("session/update", &params);
        }
        for terminal in released {
            self.release_terminal(&terminal);
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.peer.outbox().wait_for_capacity())
    }

    fn draws_terminals(&self) -> bool {
        self.caps.terminal_output && !self.caps.terminal
    }

    fn shows_suggestions(&self) -> bool {
        self.caps.suggestions
    }

    fn request_permission(
        &self,
        mut request: PermissionRequest,
    ) -> BoxFuture<'_, PermissionAnswer> {
        self.caps.limit_answers(&mut request);
        let offered: Vec<_> = request.choices.iter().map(|choice| choice.kind).collect();
        let params = to_wire::permission_request(self.session.clone(), request);
        Box::pin(async move { self.questions.permission(&params, &offered, || ()).await })
    }

    fn ask_user(&self, question: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(self.questions.ask(question, || ()))
    }

    fn show_helper(&self, helper: &StartedHelper) -> Option<Box<dyn HelperView>> {
        if !self.caps.subagents {
            return None;
        }
        // The output of a helper's commands is text.
        let caps = ClientCaps { terminal: false, terminal_output: false, ..self.caps };
        let client = AcpClient::new(
            self.peer.clone(),
            &helper.session,
            caps,
            self.cwd.clone(),
            Arc::clone(&self.silent_requests),
            self.told.clone(),
        );
        let parent = ids::SessionId::from(self.session.0.as_ref());
        let peer = self.peer.clone();
        let told = self.told.clone();
        let version = Version::V1;
        Some(ChildSession::announce(helper, parent, peer, version, told, Box::new(client)))
    }

    fn elicitation_modes(&self) -> ElicitationModes {
        self.caps.elicitation
    }

    fn show_form(&self, form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        Box::pin(self.questions.show_form(form, || ()))
    }
}

impl EditorBuffers for AcpClient {
    fn can_read(&self) -> bool {
        self.caps.read && !self.is_silent(SILENT_READS)
    }

    fn can_write(&self) -> bool {
        // A text in the editor that cannot be read must not be replaced.
        self.caps.write && !self.is_silent(SILENT_READS)
    }

    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>> {
        Box::pin(async move {
            // Always the whole file, because some clients get `line` and `limit` wrong.
            let params = ReadTextFileRequest::new(self.session.clone(), path);
            let response = self.peer.request("fs/read_text_file", &params, READ_TIMEOUT).await;
            let result = response.map_err(|error| {
                let error = read_error(&error, path);
                if error == BufferError::TimedOut && !self.set_silent(SILENT_READS) {
                    self.update(Update::Notice(UNANSWERED_READ.to_owned()));
                }
                error
            })?;
            let value = parse(&result);
            let content = value.as_str().or_else(|| value.get("content")?.as_str());
            let text = content.map(str::to_owned);
            text.ok_or_else(|| BufferError::Failed("it sent no content".to_owned()))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), BufferError>> {
        Box::pin(async move {
            let params = WriteTextFileRequest::new(self.session.clone(), path, text);
            let result = self.peer.request("fs/write_text_file", &params, WRITE_TIMEOUT).await;
            match serde_json::from_str(result.map_err(|error| to_buffer_error(&error, path))?.get())
            {
                // One client reports a failed write as a string result.
                Ok(Value::String(text)) if !text.is_empty() => Err(BufferError::Refused(text)),
                _ => Ok(()),
            }
        })
    }
}

fn to_buffer_error(error: &RequestError, path: &Path) -> BufferError {
    let RequestError::ErrorResponse(error) = error else { return BufferError::TimedOut };
    let text = error_text(error);
    match error.code {
        METHOD_NOT_FOUND => BufferError::NotFound,
        _ if mentions(&text, path, &DENIALS) => BufferError::Refused(text),
        RESOURCE_NOT_FOUND => BufferError::NotFound,
        INTERNAL_ERROR => BufferError::Failed(text),
        _ => BufferError::Refused(text),
    }
}

/// The text of a client's error. Some clients say in `data` what has happened, below a message that says
/// nothing, or what to do instead.
pub(super) fn error_text(error: &RpcError) -> String {
    let data = error.data.as_ref().filter(|data| !data.is_null());
    let Some(data) = data else { return error.message.clone() };
    match data.get("details").unwrap_or(data).as_str() {
        Some(details) if error.message == "Internal error" => details.to_owned(),
        Some(details) => format!("{}: {details}", error.message),
        None => format!("{} {data}", error.message),
    }
}

/// The error of a read. With any code, words may say that there is no such file.
fn read_error(error: &RequestError, path: &Path) -> BufferError {
    match to_buffer_error(error, path) {
        BufferError::Refused(text)
            if !mentions(&text, path, &DENIALS) && mentions(&text, path, &ABSENCES) =>
        {
            BufferError::NotFound
        }
        error => error,
    }
}

/// True if the text of an error contains one of these words outside the names of files.
fn mentions(text: &str, path: &Path, words: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let text = text.to_lowercase();
    let parts = text.split(|letter: char| letter.is_whitespace() || "\"'`{}(),".contains(letter));
    let plain_parts = parts.filter(|part| !part.contains(['/', '\\']) && !part.contains(&*name));
    let plain = plain_parts.collect::<Vec<_>>().join(" ");
    words.iter().any(|word| plain.contains(word))
}

/// Most editors open a terminal at once, but some start a container first.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
/// For requests that an editor can answer at once.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// A command in the background may run as long as its session; a year is as good as no limit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Words of an error, in lower case, by which a client says that its user or its settings do not allow a
/// command. A mere "permission denied" is also what the operating system says of a program that
/// cannot be executed.
const TERMINAL_DENIALS: [&str; 5] =
    ["permission denied for", "denied by", "rejected by", "declined by", "not allowed by"];

impl AcpClient {
    /// The terminals of this client, if it has any.
    pub(super) fn terminals(self: &Arc<Self>) -> Option<Arc<dyn ClientTerminals>> {
        self.caps.terminal.then(|| Arc::clone(self) as Arc<dyn ClientTerminals>)
    }

    fn release_terminal(&self, id: &TerminalId) {
        release(&self.peer, &self.session, wire_id(id));
    }

    /// Records a failure to create a terminal, unless the next attempt may succeed.
    fn record_failure(&self, error: &RequestError) {
        let code = if let RequestError::ErrorResponse(answer) = error { answer.code } else { 0 };
        if code == METHOD_NOT_FOUND || matches!(error, RequestError::TimedOut(_)) {
            self.set_silent(SILENT_TERMINALS);
        }
    }

    fn is_silent(&self, bit: u8) -> bool {
        self.silent_requests.load(Ordering::Relaxed) & bit != 0
    }

    /// Returns true if the bit was set before.
    fn set_silent(&self, bit: u8) -> bool {
        self.silent_requests.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }

    /// Takes note of an update that is about to be sent, and returns the terminals to release after
    /// it.
    fn observe_cards(&self, update: &Update) -> Vec<TerminalId> {
        let Update::CallUpdate(update) = update else { return Vec::new() };
        let mut shown = self.shown.lock();
        let cards = &mut shown.terminal_cards;
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
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // Terminals whose cards never became final.
        for card in std::mem::take(&mut self.shown.get_mut().terminal_cards) {
            if card.is_released {
                self.release_terminal(&card.terminal);
            }
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
            if self.is_silent(SILENT_TERMINALS) {
                return Err(TerminalError::Failed("not available, although advertised".to_owned()));
            }
            let response = self.peer.request_with_late_handler(
                "terminal/create",
                &params,
                CREATE_TIMEOUT,
                Some(Arc::new(move |result: &RawValue| {
                    if let Some(id) = terminal_id(result) {
                        release(&peer, &session, WireId::new(id));
                    }
                })),
            );
            let result = response.await.map_err(|error| {
                self.record_failure(&error);
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
        let mut shown = self.shown.lock();
        if let Some(card) = shown.terminal_cards.iter_mut().find(|card| card.terminal == id) {
            card.is_released = true;
            return;
        }
        drop(shown);
        // No card shows it.
        self.release_terminal(&id);
    }
}

fn release(peer: &Peer, session: &SessionId, id: WireId) {
    let params = ReleaseTerminalRequest::new(session.clone(), id);
    peer.send_request_ignoring_response("terminal/release", &params);
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
    let is_denied = TERMINAL_DENIALS.iter().any(|denial| lower.contains(denial));
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

/// A card that shows a terminal.
#[derive(Debug)]
struct TerminalCard {
    call: CallId,
    terminal: TerminalId,
    /// The terminal is no longer used, and only waits for its card to become final.
    is_released: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_denial_is_told_from_a_missing_file_and_from_a_failure() {
        let refused = |text: &str| BufferError::Refused(text.to_owned());
        let table = [
            (-32603, "Permission denied", refused("Permission denied")),
            (-32002, "Path is outside allowed cwd", refused("Path is outside allowed cwd")),
            (-32602, "Notebooks have a tool", refused("Notebooks have a tool")),
            (
                -32000,
                "EACCES: open '/ws/permission.rs'",
                refused("EACCES: open '/ws/permission.rs'"),
            ),
            (-32002, "Resource not found: /ws/permission.rs", BufferError::NotFound),
            (-32002, "no buffer for permission.rs", BufferError::NotFound),
            (-32000, "ENOENT: no such file or directory", BufferError::NotFound),
            (-32000, "reading is not supported", BufferError::NotFound),
            (-32601, "Method not allowed", BufferError::NotFound),
            (-32603, "Internal error", BufferError::Failed("Internal error".to_owned())),
        ];
        for (code, message, expected) in table {
            let answer = json!({ "code": code, "message": message });
            let error = RequestError::ErrorResponse(serde_json::from_value(answer).unwrap());
            let path = Path::new("/ws/permission.rs");
            assert_eq!(read_error(&error, path), expected, "{code} {message}");
        }
    }

    #[test]
    fn the_text_of_an_error_is_what_a_person_can_read() {
        let table = [
            ("Internal error", json!({ "details": "Permission denied" }), "Permission denied"),
            ("Internal error", json!(null), "Internal error"),
            ("Invalid path", json!("it is a folder"), "Invalid path: it is a folder"),
            ("Use a tool", json!({ "path": "x" }), r#"Use a tool {"path":"x"}"#),
        ];
        for (message, data, expected) in table {
            let answer = json!({ "code": -32603, "message": message, "data": data });
            assert_eq!(error_text(&serde_json::from_value(answer).unwrap()), expected);
        }
    }
}
