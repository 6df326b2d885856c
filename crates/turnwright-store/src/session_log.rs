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
    delete_entry, finish_call, insert_entry, insert_session, put_file_contents, record_changes,
    replace_result, set_updated_at,
};
use super::{CallOutcome, CallStatus, Durability, Entry, SessionRow, Store, StoreError, TurnKind};
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
    /// The session's row, if it is known. It is inserted again if a new database has replaced a
    /// damaged one.
    // Held only to move a few strings, like the others here.
    row: Mutex<Option<SessionRow>>,
    /// Held while a write is submitted, which does not wait.
    submitted: Mutex<Submitted>,
    /// Why a write failed, until it was reported.
    unreported_error: Arc<Mutex<Option<StoreError>>>,
    /// The last commit that was waited for has timed out.
    is_hung: Arc<AtomicBool>,
    delivered: Mutex<DeliveredNotices>,
    /// Where file changes are recorded, if not here.
    changes: Option<ChangeTarget>,
}

/// How far the writes of a session have come.
#[derive(Debug, Default)]
struct Submitted {
    /// The turn that has begun, until the next write takes it along into its commit.
    begun_turn: Option<BegunTurn>,
    /// The commit of the write that was submitted last.
    last_commit: Option<Commit>,
}

/// The result of a write, for any number of waiters.
type Commit = Shared<oneshot::Receiver<Result<(), StoreError>>>;

/// A write that was submitted.
#[derive(Debug, Default)]
#[must_use = "what must not be lost has to be waited for"]
pub struct PendingWrite {
    waiting: Option<Commit>,
    unreported_error: Arc<Mutex<Option<StoreError>>>,
    is_hung: Arc<AtomicBool>,
}

impl PendingWrite {
    /// True if it is committed or has failed.
    pub fn is_done(&self) -> bool {
        self.waiting.clone().is_none_or(|waiting| waiting.now_or_never().is_some())
    }

    /// Lets it be committed while the session goes on.
    pub fn in_background(self) {
        drop(self);
    }

    /// Waits for the commit, up to a timeout. If it fails the session goes on, and
    /// [`SessionLog::take_notices`] reports why.
    pub async fn written(mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let is_hung = self.is_hung.load(Ordering::Relaxed);
        let waiting = timeout(if is_hung { SHORT_WAIT } else { COMMIT_WAIT }, waiting);
        let Ok(result) = waiting.await else {
            if !self.is_hung.swap(true, Ordering::Relaxed) {
                let why = "the disk does not respond; new messages are written when it does";
                self.note(StoreError::Unusable(why.to_owned()));
            }
            return;
        };
        self.is_hung.store(false, Ordering::Relaxed);
        let result = result.unwrap_or(Err(StoreError::Closed));
        // Storage faults are reported by the store itself, which also retries the write.
        if let Err(error) = result
            && error.fault().is_none()
        {
            self.note(error);
        }
    }

    /// Like [`PendingWrite::written`], without a timeout, since a test may run on a slow machine.
    #[cfg(test)]
    pub(super) async fn ended(self) {
        if let Some(waiting) = self.waiting.clone() {
            waiting.await.ok();
        }
        self.written().await;
    }

    fn note(&self, error: StoreError) {
        tracing::error!(%error, "a write of the session failed");
        *self.unreported_error.lock() = Some(error);
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

    /// For the log of a helper, the session in which its file changes are recorded, and the prefix of the names
    /// of its calls there.
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
            row: Mutex::default(),
            submitted: Mutex::default(),
            unreported_error: Arc::default(),
            is_hung: Arc::default(),
            delivered: Mutex::default(),
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
        let mut delivered = inner.delivered.lock();
        let mut notices = inner.store.health().undelivered_notices(&mut delivered);
        let unreported_error = inner.unreported_error.lock().take();
        notices.extend(
            unreported_error.map(|error| format!("Part of this session was not saved: {error}.")),
        );
        notices
    }

    /// Sets the row to insert if the session is not in the database.
    pub fn set_session_row(&self, row: SessionRow) {
        if let Some(inner) = &self.0 {
            *inner.row.lock() = Some(row);
        }
    }

    /// The store that it writes to; `None` if it writes nothing.
    pub fn store(&self) -> Option<&Store> {
        self.0.as_ref().map(|inner| &inner.store)
    }

    /// The number of the current or last turn.
    pub fn turn(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.turn.load(Ordering::Relaxed))
    }

    pub fn create_session(&self, row: SessionRow) -> PendingWrite {
        self.set_session_row(row);
        // Every job of a session inserts its row first if it is missing.
        self.submit(Durability::ProcessCrash, |_, _| Ok(()))
    }

    /// Stores the options that the client asked for when it opened the session, as JSON.
    pub fn set_client_options(&self, options: String) -> PendingWrite {
        self.submit(Durability::ProcessCrash, move |connection, session| {
            connection
                .prepare_cached("UPDATE sessions SET client_options = ? WHERE key = ?")?
                .execute(params![options, session])?;
            Ok(())
        })
    }

    /// Begins a turn. All later writes belong to it, and the next one stores its
    /// beginning. The next entry holds the prompt, which begins with these words. Returns its number.
    pub fn begin_turn(&self, kind: TurnKind, words: String) -> u64 {
        let Some(inner) = &self.0 else { return 0 };
        let turn = inner.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let begun_at = to_millis(SystemTime::now());
        let first_entry = inner.next.load(Ordering::Relaxed);
        let begun = BegunTurn { number: turn, kind, words, begun_at, first_entry };
        inner.submitted.lock().begun_turn = Some(begun);
        turn
    }

    /// Ends the turn. `stop` is the stop reason as it is stored.
    pub fn end_turn(&self, stop: &'static str, minted: u64, cost: Option<f64>) -> PendingWrite {
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        self.submit(Durability::ProcessCrash, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE turns SET ended_at = ?, stop = ? WHERE session = ? AND number = ?",
                )?
                .execute(params![now, stop, session, turn])?;
            connection
                .prepare_cached("UPDATE sessions SET minted = ?, cost = ? WHERE key = ?")?
                .execute(params![minted, cost, session])?;
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
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        let retained_bytes = entry_size(&entry);
        drop(self.submit_sized(
            Durability::ProcessCrash,
            retained_bytes,
            move |connection, session| {
                for seq in &replaced {
                    delete_entry(connection, session, *seq)?;
                }
                insert_entry(connection, session, (seq, turn, now), &entry)
            },
        ));
    }

    pub fn remove_entry(&self, seq: u64) {
        drop(self.submit(Durability::ProcessCrash, move |connection, session| {
            delete_entry(connection, session, seq)
        }));
    }

    /// Records what a call is about to do, before it does it.
    pub fn record_intent(
        &self,
        call: &CallId,
        intent: ChangeIntent,
        durability: Durability,
    ) -> PendingWrite {
        if let Some(target) = self.change_target() {
            // Writes are committed in their order, so the second one is waited for.
            drop(target.record(call, intent.files, intent.bytes, durability));
            return self.begin_call(call, ChangeIntent::default(), durability);
        }
        self.begin_call(call, intent, durability)
    }

    fn begin_call(
        &self,
        call: &CallId,
        intent: ChangeIntent,
        durability: Durability,
    ) -> PendingWrite {
        let call = call.clone();
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        let retained_bytes = intent.bytes.iter().map(|bytes| bytes.len()).sum();
        self.submit_sized(durability, retained_bytes, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE calls SET status = ?, begun_at = ? WHERE session = ? AND call = ?",
                )?
                .execute(params![CallStatus::Running.as_str(), now, session, call.as_str()])?;
            put_file_contents(connection, session, &intent.bytes)?;
            record_changes(connection, session, (turn, &call), &intent.files)
        })
    }

    /// Records that a call starts a helper, with the helper's task as a JSON object.
    pub fn record_helper(&self, call: &CallId, task: String) -> PendingWrite {
        let call = call.clone();
        let now = to_millis(SystemTime::now());
        self.submit_sized(Durability::ProcessCrash, task.len(), move |connection, session| {
            let update = "UPDATE calls SET status = ?, begun_at = ?, spawn_task = ? \
                          WHERE session = ? AND call = ?";
            let status = CallStatus::Running.as_str();
            let task = redact::text(&task);
            connection.prepare_cached(update)?.execute(params![
                status,
                now,
                task,
                session,
                call.as_str()
            ])?;
            Ok(())
        })
    }

    /// Records the outcome of a call.
    pub fn finish_call(&self, call: &CallId, mut outcome: CallOutcome) -> PendingWrite {
        if let Some(target) = self.change_target() {
            let files = std::mem::take(&mut outcome.file_changes);
            let bytes = std::mem::take(&mut outcome.file_contents);
            drop(target.record(call, files, bytes, Durability::ProcessCrash));
        }
        let call = call.clone();
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        let retained_bytes = outcome_size(&outcome);
        self.submit_sized(Durability::ProcessCrash, retained_bytes, move |connection, session| {
            finish_call(connection, session, (&call, turn, now), &outcome)
        })
    }

    /// Records further file changes of a call in an earlier or the current turn. The first recorded
    /// state before the call is kept.
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

    /// The call that changes of this call are recorded for.
    pub fn recorded_call(&self, call: &CallId) -> CallId {
        self.change_target().map_or_else(|| call.clone(), |target| target.call_id(call))
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
        self.submit_sized(durability, retained_bytes, move |connection, session| {
            put_file_contents(connection, session, &bytes)?;
            record_changes(connection, session, (turn, &call), &files)
        })
    }

    /// False if nothing is stored.
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the result text that the model reads. The card goes on showing the first one.
    pub fn replace_result(&self, call: &CallId, text: String) {
        let call = call.clone();
        let retained_bytes = text.len();
        drop(self.submit_sized(
            Durability::ProcessCrash,
            retained_bytes,
            move |connection, session| replace_result(connection, session, &call, &text),
        ));
    }

    /// Records the token usage of a request.
    pub fn record_usage(
        &self,
        model: &str,
        usage: TokenUsage,
        window: Option<u64>,
        cost: Option<f64>,
    ) {
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        let model = model.to_owned();
        drop(self.submit(Durability::ProcessCrash, move |connection, session| {
            connection
                .prepare_cached(
                    "INSERT INTO usage (session, turn, at, model, input, output, cached, window, \
                     cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    session,
                    turn,
                    now,
                    model,
                    usage.input,
                    usage.output,
                    usage.cached,
                    window,
                    cost
                ])?;
            Ok(())
        }));
    }

    /// Records a permission decision; `entry` is a line of the audit log.
    pub fn record_permission(&self, entry: String) {
        let turn = self.turn();
        let now = to_millis(SystemTime::now());
        let size = entry.len();
        drop(self.submit_sized(Durability::ProcessCrash, size, move |connection, session| {
            connection
                .prepare_cached(
                    "INSERT INTO permissions (session, turn, at, entry) VALUES (?, ?, ?, ?)",
                )?
                .execute(params![session, turn, now, redact::text(&entry)])?;
            Ok(())
        }));
    }

    /// Saves the settings with which the session is opened next time.
    pub fn save_settings(
        &self,
        mode: &'static str,
        model: String,
        effort: &'static str,
    ) -> PendingWrite {
        self.submit(Durability::ProcessCrash, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE sessions SET mode = ?, model = ?, effort = ? WHERE key = ?",
                )?
                .execute(params![mode, model, effort, session])?;
            Ok(())
        })
    }

    /// Waits for everything that was submitted so far. Writes are committed in their order, so this
    /// is the commit of the last one.
    pub fn flush(&self) -> PendingWrite {
        let Some(inner) = &self.0 else { return PendingWrite::default() };
        let submitted = inner.submitted.lock();
        if submitted.begun_turn.is_none() {
            return inner.pending(submitted.last_commit.clone());
        }
        drop(submitted);
        self.submit(Durability::ProcessCrash, |_, _| Ok(()))
    }

    /// Submits a write about this session. `work` gets the session's key.
    pub fn submit(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection, i64) -> Result<(), StoreError> + Send + 'static,
    ) -> PendingWrite {
        self.submit_sized(durability, 0, work)
    }

    /// Like [`SessionLog::submit`], for a write that retains about `retained_bytes` of memory.
    pub(super) fn submit_sized(
        &self,
        durability: Durability,
        retained_bytes: usize,
        mut work: impl FnMut(&Connection, i64) -> Result<(), StoreError> + Send + 'static,
    ) -> PendingWrite {
        let Some(inner) = &self.0 else { return PendingWrite::default() };
        let session = Arc::clone(inner);
        let mut submitted = inner.submitted.lock();
        let begun = submitted.begun_turn.take();
        let retained_bytes = retained_bytes + begun.as_ref().map_or(0, |begun| begun.words.len());
        let waiting = inner.store.submit_retained(durability, retained_bytes, move |connection| {
            let key = session.session_key(connection)?;
            if let Some(turn) = &begun {
                turn.insert(connection, key)?;
            }
            work(connection, key)
        });
        let commit = waiting.shared();
        submitted.last_commit = Some(commit.clone());
        drop(submitted);
        inner.pending(Some(commit))
    }
}

/// The turn and the call of another session that file changes are recorded for.
#[derive(Debug)]
struct ChangeTarget {
    log: SessionLog,
    turn: u64,
    call: CallId,
}

impl ChangeTarget {
    /// The call of a helper, as it is named in the other session.
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
    fn insert(&self, connection: &Connection, session: i64) -> Result<(), StoreError> {
        let BegunTurn { number, kind, words, begun_at, first_entry } = self;
        connection
            .prepare_cached(
                "INSERT INTO turns (session, number, kind, words, begun_at, first_entry) \
                 VALUES (?, ?, ?, ?, ?, ?) \
                 ON CONFLICT (session, number) DO UPDATE SET kind = excluded.kind, \
                 words = excluded.words, begun_at = excluded.begun_at, \
                 first_entry = excluded.first_entry, ended_at = NULL, stop = NULL, about = NULL",
            )?
            .execute(params![
                session,
                number,
                kind.as_str(),
                redact::text(words),
                begun_at,
                first_entry
            ])?;
        set_updated_at(connection, session, *begun_at)
    }
}

impl SessionLogInner {
    fn pending(&self, waiting: Option<Commit>) -> PendingWrite {
        PendingWrite {
            waiting,
            unreported_error: Arc::clone(&self.unreported_error),
            is_hung: Arc::clone(&self.is_hung),
        }
    }

    /// The session's key. Inserts the session if it is missing.
    fn session_key(&self, connection: &Connection) -> Result<i64, StoreError> {
        match session_key(connection, &self.session) {
            Err(StoreError::NoSuchSession) => {}
            found => return found,
        }
        // The lock is not held while the disk is waited for.
        let row = self.row.lock().clone();
        insert_session(connection, row.as_ref().ok_or(StoreError::NoSuchSession)?)
    }
}
