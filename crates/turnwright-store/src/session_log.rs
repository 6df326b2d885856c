//! Writes one session, in order. No method waits for the disk: the write is submitted, and a
//! [`PendingWrite`] tells when it is committed.

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::health::DeliveredNotices;
use super::read::{session_key, to_millis};
use super::rows::{
    delete_entry, finish_call, insert_entry, insert_session, record_changes, replace_result,
    set_updated_at,
};
use super::{
    CallOutcome, CallStatus, Durability, Entry, Result, SessionRow, Store, StoreError, TurnFacts,
    TurnKind,
};
use crate::database::execute;
use crate::entry::{entry_size, outcome_size};
use turnwright_types::file_change::{ChangeIntent, FileChange};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::TokenUsage;
use turnwright_types::patience::timeout;
use turnwright_types::redact;

/// How long to wait for a commit: longer than for a lock of another process. After a timeout each
/// further wait is short until a commit succeeds, so that a hanging disk does not block sessions.
const COMMIT_WAIT: Duration = Duration::from_secs(3);
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// A handle for writing one session. Clones share their state. The default handle writes nothing.
#[derive(Clone, Debug, Default)]
pub struct SessionLog(Option<Arc<SessionLogInner>>);

#[derive(Debug)]
struct SessionLogInner {
    store: Store,
    session: SessionId,
    /// The sequence number of the next entry.
    next: AtomicU64,
    /// The number of the current or last turn.
    turn: AtomicU64,
    /// The last commit that was waited for has timed out.
    is_hung: AtomicBool,
    // Held only to move a few strings, and while a write is submitted, which does not wait.
    state: Mutex<LogState>,
    /// Where file changes are recorded, if not here.
    changes: Option<ChangeTarget>,
}

/// How far the writes of a session have come.
#[derive(Debug, Default)]
struct LogState {
    /// The session's row, if it is known. It is inserted again if a new database has replaced a
    /// damaged one.
    row: Option<SessionRow>,
    /// The turn that has begun, until the next write stores it in the same commit.
    begun_turn: Option<BegunTurn>,
    /// The commit of the write that was submitted last.
    last_commit: Option<Commit>,
    /// Why a write failed, until that is reported.
    unreported: Option<StoreError>,
    delivered: DeliveredNotices,
}

/// The result of a write, for any number of waiters.
type Commit = Shared<oneshot::Receiver<Result<()>>>;

/// A write that was submitted, with the log that is told if it fails.
#[derive(Debug, Default)]
#[must_use = "a write that must not be lost has to be waited for"]
pub struct PendingWrite(Option<(Commit, Arc<SessionLogInner>)>);

impl PendingWrite {
    /// Returns true if the write is committed or has failed.
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|(commit, _)| commit.clone().now_or_never().is_some())
    }

    /// Lets the session go on before the write is committed.
    pub fn in_background(self) {
        drop(self);
    }

    /// Waits for the commit, up to a timeout. If it fails the session goes on, and
    /// [`SessionLog::take_notices`] reports why.
    pub async fn written(self) {
        let Some((commit, log)) = self.0 else { return };
        let is_hung = log.is_hung.load(Ordering::Relaxed);
        let waiting = timeout(if is_hung { SHORT_WAIT } else { COMMIT_WAIT }, commit);
        let Ok(result) = waiting.await else {
            if !log.is_hung.swap(true, Ordering::Relaxed) {
                let why = "the disk does not respond; new messages are written when it does";
                log.note(StoreError::Unusable(why.to_owned()));
            }
            return;
        };
        log.is_hung.store(false, Ordering::Relaxed);
        // Storage faults are reported by the store itself, which also retries the write.
        if let Err(error) = result.unwrap_or(Err(StoreError::Closed))
            && error.fault().is_none()
        {
            log.note(error);
        }
    }

    /// Like [`PendingWrite::written`], without a timeout, since a test may run on a slow machine.
    #[cfg(test)]
    pub(super) async fn ended(self) {
        if let Some((commit, _)) = &self.0 {
            commit.clone().await.ok();
        }
        self.written().await;
    }
}

impl SessionLog {
    /// The log of a session without entries.
    pub fn new(store: Store, session: SessionId) -> SessionLog {
        SessionLog::with_changes(store, session, None)
    }

    /// The log of a helper that a call of the current turn starts. The file changes of its calls are recorded
    /// as changes of that turn of this session, so that an undo of the turn covers them.
    #[must_use]
    pub fn for_helper(&self, session: SessionId, call: &CallId) -> SessionLog {
        let Some(inner) = &self.0 else { return SessionLog::default() };
        let target = ChangeTarget { log: self.clone(), turn: self.turn(), call: call.clone() };
        SessionLog::with_changes(inner.store.clone(), session, Some(target))
    }

    /// Returns where the file changes of a helper are recorded: the session, and the prefix that the ids of the
    /// helper's calls have there. Returns `None` if this is not the log of a helper.
    pub fn recorded_elsewhere(&self) -> Option<(SessionId, String)> {
        let target = self.change_target()?;
        Some((target.log.0.as_ref()?.session.clone(), target.call_prefix()))
    }

    fn with_changes(store: Store, session: SessionId, changes: Option<ChangeTarget>) -> SessionLog {
        SessionLog(Some(Arc::new(SessionLogInner {
            store,
            session,
            changes,
            next: AtomicU64::new(1),
            turn: AtomicU64::new(0),
            is_hung: AtomicBool::new(false),
            state: Mutex::default(),
        })))
    }

    /// Continues after these numbers of the last entry and the last turn.
    pub fn resume_after(&self, (entry, turn): (u64, u64)) {
        if let Some(inner) = &self.0 {
            inner.next.store(entry + 1, Ordering::Relaxed);
            inner.turn.store(turn, Ordering::Relaxed);
        }
    }

    /// Returns new notices about the store for the user of this session.
    pub fn take_notices(&self) -> Vec<String> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let mut state = inner.state.lock();
        let mut notices = inner.store.0.shared.undelivered_notices(&mut state.delivered);
        let unreported = state.unreported.take();
        notices.extend(
            unreported.map(|error| format!("Part of this session was not saved: {error}.")),
        );
        notices
    }

    /// Sets the row to insert if the session is not in the database.
    pub fn set_session_row(&self, row: SessionRow) {
        if let Some(inner) = &self.0 {
            inner.state.lock().row = Some(row);
        }
    }

    /// The store that this writes to; `None` if it writes nothing.
    pub fn store(&self) -> Option<&Store> {
        self.0.as_ref().map(|inner| &inner.store)
    }

    /// The number of the current or last turn.
    pub fn turn(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.turn.load(Ordering::Relaxed))
    }

    /// The turn of a write that is submitted now, and the time in milliseconds.
    pub(super) fn turn_and_time(&self) -> (u64, i64) {
        (self.turn(), to_millis(SystemTime::now()))
    }

    pub fn create_session(&self, row: SessionRow) -> PendingWrite {
        self.set_session_row(row);
        // Every job of a session inserts its row first if it is missing.
        self.submit(|_, _| Ok(()))
    }

    /// Stores the options that the client asked for when it opened the session, as JSON.
    pub fn set_client_options(&self, options: String) -> PendingWrite {
        self.submit(move |connection, session| {
            let update = "UPDATE sessions SET client_options = ? WHERE key = ?";
            execute(connection, update, params![options, session])
        })
    }

    /// Begins a turn and returns its number. All later writes belong to the turn, and the next one also stores that it
    /// has begun. The next entry must be the prompt, which begins with `words`.
    pub fn begin_turn(&self, kind: TurnKind, words: String) -> u64 {
        let Some(inner) = &self.0 else { return 0 };
        let turn = inner.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let begun_at = to_millis(SystemTime::now());
        let first_entry = inner.next.load(Ordering::Relaxed);
        let begun = BegunTurn { number: turn, kind, words, begun_at, first_entry };
        inner.state.lock().begun_turn = Some(begun);
        turn
    }

    /// Ends the turn. `stop` is the stop reason as it is stored, and `last_id` the greatest number in an id of the
    /// session.
    pub fn end_turn(
        &self,
        stop: &'static str,
        last_id: u64,
        cost: Option<f64>,
        facts: Option<TurnFacts>,
    ) -> PendingWrite {
        let (turn, now) = self.turn_and_time();
        self.submit(move |connection, session| {
            let numbers = facts.as_ref().map(serde_json::to_string).transpose()?;
            let end = "UPDATE turns SET ended_at = ?, stop = ?, facts = ? WHERE session = ? AND \
                       number = ?";
            execute(connection, end, params![now, stop, numbers, session, turn])?;
            let update = "UPDATE sessions SET minted = ?, cost = ? WHERE key = ?";
            execute(connection, update, params![last_id, cost, session])?;
            set_updated_at(connection, session, now)
        })
    }

    /// Adds an entry, together with the calls of its message. Returns its sequence number.
    pub fn add_entry(&self, entry: Entry) -> u64 {
        let seq = self.reserve_seq();
        self.write_entry(seq, entry);
        seq
    }

    /// Reserves the sequence number of an entry that is written later.
    pub fn reserve_seq(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes the entry for a reserved sequence number and deletes its draft.
    pub fn write_entry(&self, seq: u64, entry: Entry) {
        self.replace_entries(Vec::new(), seq, entry);
    }

    /// Like [`SessionLog::write_entry`], and removes the entries that it replaces.
    pub fn replace_entries(&self, replaced: Vec<u64>, seq: u64, entry: Entry) {
        let (turn, now) = self.turn_and_time();
        drop(self.submit_sized(entry_size(&entry), move |connection, session| {
            for seq in &replaced {
                delete_entry(connection, session, *seq)?;
            }
            insert_entry(connection, session, (seq, turn, now), &entry)
        }));
    }

    pub fn remove_entry(&self, seq: u64) {
        self.submit(move |connection, session| delete_entry(connection, session, seq))
            .in_background();
    }

    /// Records what a call is about to do, before it does it.
    pub fn record_intent(
        &self,
        call: &CallId,
        mut intent: ChangeIntent,
        durability: Durability,
    ) -> PendingWrite {
        if let Some(target) = self.change_target() {
            let ChangeIntent { files, bytes } = std::mem::take(&mut intent);
            // Writes are committed in order, so it is enough to wait for the second one.
            target.record(call, files, bytes, durability).in_background();
        }
        let call = call.clone();
        let (turn, now) = self.turn_and_time();
        let retained_bytes = intent.bytes.iter().map(|bytes| bytes.len()).sum();
        self.submit_durable(durability, retained_bytes, move |connection, session| {
            execute(
                connection,
                "UPDATE calls SET status = ?, begun_at = ? WHERE session = ? AND call = ?",
                params![CallStatus::Running.as_str(), now, session, call.as_str()],
            )?;
            record_changes(connection, session, (turn, &call), &intent.files, &intent.bytes)
        })
    }

    /// Records that a call starts a helper, with the helper's task as a JSON object.
    pub fn record_helper(&self, call: &CallId, task: String) -> PendingWrite {
        let call = call.clone();
        let now = to_millis(SystemTime::now());
        self.submit_sized(task.len(), move |connection, session| {
            let update = "UPDATE calls SET status = ?, begun_at = ?, spawn_task = ? \
                          WHERE session = ? AND call = ?";
            let status = CallStatus::Running.as_str();
            let task = redact::text(&task);
            execute(connection, update, params![status, now, task, session, call.as_str()])
        })
    }

    /// Records the outcome of a call.
    pub fn finish_call(&self, call: &CallId, mut outcome: CallOutcome) -> PendingWrite {
        if let Some(target) = self.change_target() {
            let files = std::mem::take(&mut outcome.file_changes);
            let bytes = std::mem::take(&mut outcome.file_contents);
            target.record(call, files, bytes, Durability::ProcessCrash).in_background();
        }
        let call = call.clone();
        let (turn, now) = self.turn_and_time();
        self.submit_sized(outcome_size(&outcome), move |connection, session| {
            finish_call(connection, session, (&call, turn, now), &outcome)
        })
    }

    /// Records further file changes of a call in an earlier or the current turn. If the state of a file before the call
    /// is already recorded, that is kept.
    pub fn record_changes(
        &self,
        turn: u64,
        call: &CallId,
        files: Vec<FileChange>,
        bytes: Vec<Arc<[u8]>>,
    ) -> PendingWrite {
        match self.change_target() {
            Some(target) => target.record(call, files, bytes, Durability::ProcessCrash),
            None => {
                self.submit_changes((turn, call.clone()), files, bytes, Durability::ProcessCrash)
            }
        }
    }

    /// Returns the call for which the file changes of this call are recorded.
    pub fn recorded_call(&self, call: &CallId) -> CallId {
        self.change_target().map_or_else(|| call.clone(), |target| target.call_id(call))
    }

    /// The log of the session that this helper belongs to, or this one.
    pub(super) fn of_session(&self) -> &SessionLog {
        self.change_target().map_or(self, |target| &target.log)
    }

    fn change_target(&self) -> Option<&ChangeTarget> {
        self.0.as_ref().and_then(|inner| inner.changes.as_ref())
    }

    fn submit_changes(
        &self,
        (turn, call): (u64, CallId),
        files: Vec<FileChange>,
        bytes: Vec<Arc<[u8]>>,
        durability: Durability,
    ) -> PendingWrite {
        let retained_bytes = bytes.iter().map(|bytes| bytes.len()).sum();
        self.submit_durable(durability, retained_bytes, move |connection, session| {
            record_changes(connection, session, (turn, &call), &files, &bytes)
        })
    }

    /// Returns false if nothing is stored.
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the result text that the model reads. The call's card goes on showing the first text.
    pub fn replace_result(&self, call: &CallId, text: String) {
        let call = call.clone();
        drop(self.submit_sized(text.len(), move |connection, session| {
            replace_result(connection, session, &call, &text)
        }));
    }

    /// Records the token usage of a request to a model, which the server calls `served`, if it names it.
    pub fn record_usage(
        &self,
        model: &str,
        served: &str,
        usage: TokenUsage,
        window: Option<u64>,
        cost: Option<f64>,
    ) {
        let (turn, now) = self.turn_and_time();
        let model = model.to_owned();
        let served = (!served.is_empty()).then(|| served.to_owned());
        // A server may name a larger one, which the database cannot hold, for one without an end.
        let size = window.map(|tokens| tokens.min(i64::MAX.unsigned_abs()));
        drop(self.submit(move |connection, session| {
            let TokenUsage { input, output, cached, .. } = usage;
            execute(
                connection,
                "INSERT INTO usage (session, turn, at, model, input, output, cached, window, cost, \
                 served) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                params![session, turn, now, model, input, output, cached, size, cost, served],
            )
        }));
    }

    /// Records a permission decision; `entry` is a line of the audit log.
    pub fn record_permission(&self, entry: String) {
        let (turn, now) = self.turn_and_time();
        drop(self.submit_sized(entry.len(), move |connection, session| {
            execute(
                connection,
                "INSERT INTO permissions (session, turn, at, entry) VALUES (?, ?, ?, ?)",
                params![session, turn, now, redact::text(&entry)],
            )
        }));
    }

    /// Saves the settings with which the session is opened next time.
    pub fn save_settings(
        &self,
        mode: &'static str,
        model: String,
        effort: &'static str,
    ) -> PendingWrite {
        self.submit(move |connection, session| {
            let update = "UPDATE sessions SET mode = ?, model = ?, effort = ? WHERE key = ?";
            execute(connection, update, params![mode, model, effort, session])
        })
    }

    /// Returns a write that is committed when everything that was submitted so far is, because writes are committed in
    /// order. Submits the beginning of the turn if that has not been done.
    pub fn flush(&self) -> PendingWrite {
        let Some(inner) = &self.0 else { return PendingWrite::default() };
        let state = inner.state.lock();
        if state.begun_turn.is_none() {
            let last_commit = state.last_commit.clone();
            return PendingWrite(last_commit.map(|commit| (commit, Arc::clone(inner))));
        }
        drop(state);
        self.submit(|_, _| Ok(()))
    }

    /// Submits a write about this session. `work` gets the session's key.
    pub(super) fn submit(
        &self,
        work: impl FnMut(&Connection, i64) -> Result<()> + Send + 'static,
    ) -> PendingWrite {
        self.submit_sized(0, work)
    }

    /// Like [`SessionLog::submit`], for a write that retains about `retained_bytes` of memory.
    pub(super) fn submit_sized(
        &self,
        retained_bytes: usize,
        work: impl FnMut(&Connection, i64) -> Result<()> + Send + 'static,
    ) -> PendingWrite {
        self.submit_durable(Durability::ProcessCrash, retained_bytes, work)
    }

    /// Like [`SessionLog::submit_sized`], for a write that must survive this kind of failure.
    pub(super) fn submit_durable(
        &self,
        durability: Durability,
        retained_bytes: usize,
        mut work: impl FnMut(&Connection, i64) -> Result<()> + Send + 'static,
    ) -> PendingWrite {
        let Some(inner) = &self.0 else { return PendingWrite::default() };
        let session = Arc::clone(inner);
        let mut state = inner.state.lock();
        let begun = state.begun_turn.take();
        let retained_bytes = retained_bytes + begun.as_ref().map_or(0, |begun| begun.words.len());
        let waiting = inner.store.enqueue(durability, Some(retained_bytes), move |connection| {
            let key = session.session_key(connection)?;
            if let Some(turn) = &begun {
                turn.insert(connection, key)?;
            }
            work(connection, key)
        });
        let commit = waiting.shared();
        state.last_commit = Some(commit.clone());
        PendingWrite(Some((commit, Arc::clone(inner))))
    }
}

/// The turn and the call of another session under which file changes are recorded.
#[derive(Debug)]
struct ChangeTarget {
    log: SessionLog,
    turn: u64,
    call: CallId,
}

impl ChangeTarget {
    /// The id that a call of a helper has in the other session.
    fn call_id(&self, call: &CallId) -> CallId {
        CallId::from(format!("{}{call}", self.call_prefix()))
    }

    fn call_prefix(&self) -> String {
        format!("{}.", self.call)
    }

    fn record(
        &self,
        call: &CallId,
        files: Vec<FileChange>,
        bytes: Vec<Arc<[u8]>>,
        durability: Durability,
    ) -> PendingWrite {
        if files.is_empty() && bytes.is_empty() {
            return PendingWrite::default();
        }
        self.log.submit_changes((self.turn, self.call_id(call)), files, bytes, durability)
    }
}

/// The beginning of a turn.
#[derive(Debug)]
struct BegunTurn {
    number: u64,
    kind: TurnKind,
    words: String,
    begun_at: i64,
    first_entry: u64,
}

impl BegunTurn {
    fn insert(&self, connection: &Connection, session: i64) -> Result<()> {
        let BegunTurn { number, kind, words, begun_at, first_entry } = self;
        execute(
            connection,
            "INSERT INTO turns (session, number, kind, words, begun_at, first_entry) \
             VALUES (?, ?, ?, ?, ?, ?) \
             ON CONFLICT (session, number) DO UPDATE SET kind = excluded.kind, \
             words = excluded.words, begun_at = excluded.begun_at, \
             first_entry = excluded.first_entry, ended_at = NULL, stop = NULL, about = NULL, \
             facts = NULL",
            params![session, number, kind.as_str(), redact::text(words), begun_at, first_entry],
        )?;
        set_updated_at(connection, session, *begun_at)
    }
}

impl SessionLogInner {
    /// Notes why a write failed.
    fn note(&self, error: StoreError) {
        tracing::error!(%error, "a write of the session failed");
        self.state.lock().unreported = Some(error);
    }

    /// The session's key. Inserts the session if it is missing.
    fn session_key(&self, connection: &Connection) -> Result<i64> {
        match session_key(connection, &self.session) {
            Err(StoreError::NoSuchSession) => {}
            found => return found,
        }
        // The lock must not be held while waiting for the disk.
        let row = self.state.lock().row.clone();
        insert_session(connection, row.as_ref().ok_or(StoreError::NoSuchSession)?)
    }
}
