//! Takes what a session gets from outside and hands it to a thread that writes it. Nothing here waits:
//! when the thread cannot keep up, the recording ends and the session goes on.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::PLAYED_LIVE;
use crate::outside::{AnswerKind, Outside, current_session};
use crate::recording_writer::RecordingWriter;
use turnwright_llm::{ConnectionFault, Exchange, ExchangeObserver};
use turnwright_rpc::{LineDirection, LineObserver};
use turnwright_types::client::ClientConnection;
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::SessionId;
use turnwright_types::private_file;

/// The most events that may wait to be written, and the most bytes that they may have.
const MAX_QUEUED_EVENTS: usize = 4096;
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;
/// The longest `initialize` that is kept for a recording which begins later.
const MAX_FIRST_LINE: usize = 64 * 1024;
/// How many files of one name are tried: none that exists is overwritten.
const MAX_NAMES: u32 = 100;

/// Something that came from outside or went there.
pub(crate) struct RawEvent {
    pub(crate) number: u64,
    pub(crate) milliseconds: u64,
    pub(crate) session: Option<SessionId>,
    pub(crate) kind: RawKind,
}

pub(crate) enum RawKind {
    Line(LineDirection, Vec<u8>),
    /// The beginning of an exchange, whose number is that of this event.
    Request {
        path: String,
        body: Vec<u8>,
    },
    Head {
        exchange: u64,
        status: u16,
        headers: Vec<(String, String)>,
    },
    Bytes {
        exchange: u64,
        bytes: Vec<u8>,
    },
    /// The end of an exchange: how, unless the answer is whole, or why the server was not reached.
    End {
        exchange: u64,
        end: Option<&'static str>,
        fault: Option<ConnectionFault>,
    },
    /// A fact, under the name that it has in the file: the MCP servers, the answer of a tool, or one of those with
    /// which a session begins, which may come before the session is open.
    Fact {
        what: &'static str,
        value: Value,
    },
    Finish,
}

/// The facts with which a session begins: the project's settings about questions, and the conversation from the store.
pub(crate) const PROJECT: &str = "project";
pub(crate) const STORED: &str = "stored";

/// The end of an exchange of which nobody read more.
pub(crate) const DROPPED: &str = "dropped";

impl RawKind {
    pub(crate) fn size(&self) -> usize {
        match self {
            RawKind::Line(_, bytes)
            | RawKind::Request { body: bytes, .. }
            | RawKind::Bytes { bytes, .. } => bytes.len(),
            RawKind::Fact { value, .. } => weight(value),
            RawKind::Head { .. } => 1024,
            RawKind::End { .. } | RawKind::Finish => 0,
        }
    }
}

/// About how many bytes of memory a value takes.
fn weight(value: &Value) -> usize {
    const EACH: usize = 32;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + weight(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Where a recording begins that is started within a session.
#[derive(Debug)]
pub struct RecordedSession {
    pub id: SessionId,
    /// Its working directory.
    pub cwd: PathBuf,
    /// The connection that has the session.
    pub connection: ClientConnection,
    /// The id of its permission mode.
    pub mode: &'static str,
    /// The known facts about the MCP servers.
    pub servers: Value,
    /// The project's settings about questions.
    pub project: Value,
    /// The conversation so far; `None` if it is empty.
    pub stored: Option<Value>,
    /// True if the user was told about the gaps of the sandbox before, so that it is not in the recording.
    pub are_gaps_reported: bool,
}

/// Records one session of this process, if it is asked to.
#[derive(Default)]
pub struct Recorder {
    // Held only to take a number and to queue an event.
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct RecorderState {
    active: Option<ActiveRecording>,
    /// The `initialize` of each connection's client, by the connection's number.
    first_lines: HashMap<u64, Vec<u8>>,
    /// A sentence for the user.
    notice: Option<String>,
}

struct ActiveRecording {
    path: PathBuf,
    /// The connection whose lines are recorded. Without one it will be the first that is initialized.
    connection: Option<u64>,
    /// True if that connection has ended, so that its MCP servers end, too.
    has_connection_ended: bool,
    started: Instant,
    next: u64,
    queue: SyncSender<RawEvent>,
    queued_bytes: Arc<AtomicUsize>,
    /// Gets why the recording has ended, or nothing if all is written.
    ended: Receiver<Option<String>>,
}

impl RecorderState {
    /// The recording, if it has the lines of this connection.
    fn active_on(&mut self, connection: u64) -> Option<&mut ActiveRecording> {
        self.active.as_mut().filter(|active| active.connection == Some(connection))
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Recorder").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Recorder {
    fn is_on(&self) -> bool {
        self.state.lock().active.is_some()
    }

    /// Records the lines of the connection with this number, if they are those of the recorded session.
    pub fn observer(self: &Arc<Self>, connection: u64) -> Arc<LineObserver> {
        let has_first_line = AtomicBool::new(false);
        let recorder = Arc::clone(self);
        Arc::new(move |direction: LineDirection, line: &[u8]| {
            if direction == LineDirection::In
                && !has_first_line.load(Ordering::Relaxed)
                && is_initialize(line)
                && !has_first_line.swap(true, Ordering::Relaxed)
            {
                recorder.keep_first_line(connection, line);
            }
            if recorder.state.lock().active_on(connection).is_some() {
                recorder.post(None, || RawKind::Line(direction, line.to_vec()));
            }
        })
    }

    /// Keeps what the client of a connection has said of itself, with which each recording begins.
    fn keep_first_line(&self, connection: u64, line: &[u8]) {
        let mut state = self.state.lock();
        if line.len() <= MAX_FIRST_LINE {
            state.first_lines.insert(connection, line.to_vec());
        }
        if let Some(active) = &mut state.active {
            active.connection.get_or_insert(connection);
        }
    }

    /// Leaves out what happens to MCP servers from now on, if the lines of this connection are recorded: the
    /// client has gone, and those that it hosts with it.
    pub fn leave_out_servers(&self, connection: u64) {
        if let Some(active) = self.state.lock().active_on(connection) {
            active.has_connection_ended = true;
        }
    }

    /// Forgets a connection. If its lines are recorded, the recording ends, and at most `timeout` is waited until
    /// all of it is written. Blocks.
    pub fn end_connection(&self, connection: u64, timeout: Duration) {
        let mut state = self.state.lock();
        state.first_lines.remove(&connection);
        let is_recorded = state.active_on(connection).is_some();
        drop(state);
        if is_recorded {
            self.stop(timeout);
        }
    }

    /// The file of the running recording.
    pub fn path(&self) -> Option<PathBuf> {
        self.state.lock().active.as_ref().map(|active| active.path.clone())
    }

    /// Starts a recording in a new file, whose path is returned: another one than `path` if that exists.
    /// `facts` are what the process was started with, and read files. Without a session, the next one
    /// that is opened is recorded. Blocks.
    ///
    /// # Errors
    /// If a recording is running already, or the file or the thread that writes it cannot be created.
    pub fn start(
        &self,
        path: &Path,
        facts: impl FnOnce() -> Value + Send + 'static,
        session: Option<RecordedSession>,
    ) -> io::Result<PathBuf> {
        if self.is_on() {
            return Err(io::Error::other("a recording is running already"));
        }
        let (path, file) = create_file(path)?;
        let (queue, events) = sync_channel(MAX_QUEUED_EVENTS);
        let (end_sender, ended) = sync_channel(1);
        let queued_bytes = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&queued_bytes);
        let connection = session.as_ref().map(|session| session.connection.number);
        let prelude = session.map(|session| {
            let first_line = self.state.lock().first_lines.get(&session.connection.number).cloned();
            (session, first_line.unwrap_or_default())
        });
        let thread = std::thread::Builder::new().name("recorder".into());
        thread.spawn(move || {
            let failure = RecordingWriter::write(file, facts, prelude, &events, &counter).err();
            end_sender.send(failure.map(|error| io_error_text(&error))).ok();
        })?;
        let active = ActiveRecording {
            path: path.clone(),
            connection,
            has_connection_ended: false,
            started: Instant::now(),
            next: 0,
            queue,
            queued_bytes,
            ended,
        };
        self.state.lock().active = Some(active);
        Ok(path)
    }

    /// Keeps a notice for the user about why the session is not recorded although they asked for it.
    pub fn set_notice(&self, notice: String) {
        self.state.lock().notice = Some(notice);
    }

    /// Ends the recording, and waits for at most `timeout` until all of it is written. Returns its path.
    pub fn stop(&self, timeout: Duration) -> Option<PathBuf> {
        let mut active = self.state.lock().active.take()?;
        active.post(None, RawKind::Finish).ok();
        match active.ended.recv_timeout(timeout) {
            Ok(Some(why)) => self.set_notice(ended_notice(&active.path, &why)),
            Err(RecvTimeoutError::Timeout) => {
                self.set_notice(ended_notice(&active.path, "the disk does not answer"));
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => {}
        }
        Some(active.path)
    }

    fn give_up(&self, why: &str) {
        let mut state = self.state.lock();
        if let Some(active) = state.active.take() {
            state.notice = Some(ended_notice(&active.path, why));
        }
    }

    pub(crate) fn begin_exchange(
        self: &Arc<Self>,
        path: &str,
        body: &dyn Fn() -> Vec<u8>,
    ) -> Exchange {
        // A request outside of a turn, such as for the list of models, belongs to no session.
        let Some(session) = current_session().filter(|_| self.is_on()) else {
            return Exchange::Live;
        };
        let path = path.to_owned();
        let body = body();
        let number = self.post(Some(session.clone()), || RawKind::Request { path, body });
        let Some(exchange) = number else { return Exchange::Live };
        let recorder = Arc::clone(self);
        let recorded = RecordedExchange { recorder, session, exchange, has_ended: false };
        Exchange::Observed(Box::new(recorded))
    }

    /// Queues an event. Returns its number unless the recording has ended.
    fn post(&self, session: Option<SessionId>, kind: impl FnOnce() -> RawKind) -> Option<u64> {
        let mut state = self.state.lock();
        let active = state.active.as_mut()?;
        let Err(why) = active.post(session, kind()) else { return Some(active.next - 1) };
        let failure = active.ended.try_recv().ok().flatten();
        let notice = ended_notice(&active.path, failure.as_deref().unwrap_or(why));
        state.active = None;
        state.notice = Some(notice);
        None
    }
}

impl Outside for Recorder {
    fn is_deterministic(&self) -> bool {
        self.is_on()
    }

    fn record_project(&self, session: &SessionId, project: &dyn Fn() -> Value) {
        if self.is_on() {
            let value = project();
            self.post(Some(session.clone()), || RawKind::Fact { what: PROJECT, value });
        }
    }

    fn record_servers(&self, servers: &dyn Fn() -> Value) {
        let is_recording =
            self.state.lock().active.as_ref().is_some_and(|active| !active.has_connection_ended);
        if is_recording {
            let value = servers();
            self.post(current_session(), || RawKind::Fact { what: "servers", value });
        }
    }

    fn records_conversations(&self) -> bool {
        self.is_on()
    }

    /// If the conversation could not be read, the recording ends, because it could not be played back.
    fn record_conversation(&self, session: &SessionId, stored: Result<Value, String>) {
        match stored {
            Ok(value) => {
                self.post(Some(session.clone()), || RawKind::Fact { what: STORED, value });
            }
            Err(error) => self.give_up(&format!("the stored conversation cannot be read: {error}")),
        }
    }

    fn take_notice(&self) -> Option<String> {
        self.state.lock().notice.take()
    }

    fn record_answer(
        &self,
        kind: AnswerKind,
        tool: &str,
        arguments: &Value,
        answer: &dyn Fn() -> Value,
    ) {
        if !self.is_on() || PLAYED_LIVE.contains(&tool) {
            return;
        }
        let what = match kind {
            AnswerKind::View => "view",
            AnswerKind::Preview => "preview",
            AnswerKind::Result => "result",
        };
        let value = json!({ "tool": tool, "arguments": arguments, "answer": answer() });
        self.post(current_session(), || RawKind::Fact { what, value });
    }
}

impl ActiveRecording {
    fn post(&mut self, session: Option<SessionId>, kind: RawKind) -> Result<(), &'static str> {
        let size = kind.size();
        if size > MAX_QUEUED_BYTES {
            return Err("a part of it is too long");
        }
        let milliseconds = self.started.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let event = RawEvent { number: self.next, milliseconds, session, kind };
        if self.queued_bytes.fetch_add(size, Ordering::Relaxed) + size > MAX_QUEUED_BYTES {
            return Err("the disk is too slow");
        }
        self.queue.try_send(event).map_err(|error| match error {
            TrySendError::Full(_) => "the disk is too slow",
            TrySendError::Disconnected(_) => "it cannot be written",
        })?;
        self.next += 1;
        Ok(())
    }
}

/// Records the answer to one request.
#[derive(Debug)]
struct RecordedExchange {
    recorder: Arc<Recorder>,
    session: SessionId,
    exchange: u64,
    has_ended: bool,
}

impl RecordedExchange {
    fn post(&self, kind: RawKind) {
        self.recorder.post(Some(self.session.clone()), || kind);
    }

    fn end(&mut self, end: Option<&'static str>, fault: Option<ConnectionFault>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.post(RawKind::End { exchange: self.exchange, end, fault });
        }
    }
}

impl ExchangeObserver for RecordedExchange {
    fn on_head(&mut self, status: u16, headers: &mut dyn Iterator<Item = (&str, &str)>) {
        // Others say nothing that this program reads, and may say who the user is.
        let read_headers = headers.filter(|(name, _)| is_read_header(name));
        let headers =
            read_headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.post(RawKind::Head { exchange: self.exchange, status, headers });
    }

    fn on_bytes(&mut self, bytes: &[u8]) {
        self.post(RawKind::Bytes { exchange: self.exchange, bytes: bytes.to_vec() });
    }

    fn on_end(&mut self, is_broken: bool) {
        self.end(is_broken.then_some("broken"), None);
    }

    fn on_fault(&mut self, fault: &ConnectionFault) {
        self.end(None, Some(fault.clone()));
    }
}

impl Drop for RecordedExchange {
    fn drop(&mut self) {
        self.end(Some(DROPPED), None);
    }
}

/// Returns true for the first line of a client. Anything else that comes first is an error of the client.
fn is_initialize(line: &[u8]) -> bool {
    let beginning = &line[..line.len().min(MAX_FIRST_LINE)];
    memchr::memmem::find(beginning, b"\"initialize\"").is_some()
}

fn is_read_header(name: &str) -> bool {
    name.starts_with("retry-after") || name.contains("ratelimit") || name == "content-type"
}

fn ended_notice(path: &Path, why: &str) -> String {
    format!("The recording {} has ended early: {why}. The session goes on.", path.display())
}

/// Creates a new file that only the user can read. If the name is taken, a number is added to it.
fn create_file(path: &Path) -> io::Result<(PathBuf, File)> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    for number in 1..MAX_NAMES {
        let mut name = path.to_path_buf();
        if number > 1 {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let ending =
                path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
            name.set_file_name(format!("{stem}-{number}{}", ending.unwrap_or_default()));
        }
        match private_file::create_new(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (name, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
