//! What one session writes, in its order. Nothing here waits: what is said is on its way, and the
//! [`Ticket`] tells when it is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::backlog;
use super::health::Told;
use super::read::{key, millis};
use super::rows::{add, changes, insert, put_contents, result_of, settle, touch};
use super::{CallStatus, Durability, Entry, SessionRow, Settled, Store, StoreError, TurnKind};
use turnwright_types::file_change::{Change, Intent};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::Usage;
use turnwright_types::redact;

/// How long a commit is waited for: longer than for another process that has the store. After one
/// that has taken so long, only a moment until one is there again: a disk that hangs stops nobody.
const PATIENCE: Duration = Duration::from_secs(3);
const MOMENT: Duration = Duration::from_millis(20);

/// A session's pen. Cloning copies a pointer; there is one that writes nothing.
#[derive(Clone, Debug, Default)]
pub struct Log(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    store: Store,
    session: SessionId,
    /// The number of the next entry.
    next: AtomicU64,
    /// The number of the turn that runs, or that was the last.
    turn: AtomicU64,
    /// What it begins with, if that is known: a database that has taken the place of a damaged one
    /// does not have it.
    // A std mutex: held to move a few texts, like the others here.
    row: Mutex<Option<SessionRow>>,
    /// Why something was not written, until somebody has asked.
    trouble: Arc<Mutex<Option<StoreError>>>,
    /// The last commit that was waited for has not come.
    hangs: Arc<AtomicBool>,
    told: Mutex<Told>,
}

/// Something that is on its way.
#[derive(Debug, Default)]
#[must_use = "what must not be lost has to be waited for"]
pub struct Ticket {
    waiting: Option<oneshot::Receiver<Result<(), StoreError>>>,
    trouble: Arc<Mutex<Option<StoreError>>>,
    hangs: Arc<AtomicBool>,
}

impl Ticket {
    /// Whether it is there, or has failed.
    pub fn is_done(&self) -> bool {
        self.waiting.as_ref().is_none_or(|it| !it.is_empty() || it.is_terminated())
    }

    /// Waits until it is written, but not for ever. If that fails the session goes on, and
    /// [`Log::news`] tells why.
    pub async fn written(mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let hung = self.hangs.load(Ordering::Relaxed);
        let waiting = tokio::time::timeout(if hung { MOMENT } else { PATIENCE }, waiting);
        let Ok(result) = waiting.await else {
            if !self.hangs.swap(true, Ordering::Relaxed) {
                let why = "it does not answer; what is said is written when it does";
                self.note(StoreError::Unusable(why.to_owned()));
            }
            return;
        };
        self.hangs.store(false, Ordering::Relaxed);
        let result = result.unwrap_or(Err(StoreError::Closed));
        // What is wrong with the place the store tells itself; and it tries again.
        if let Err(error) = result
            && error.fault().is_none()
        {
            self.note(error);
        }
    }

    fn note(&self, error: StoreError) {
        tracing::error!(%error, "something was not written");
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl Log {
    /// The pen of a session that has nothing yet.
    pub fn new(store: Store, session: SessionId) -> Log {
        Log(Some(Arc::new(Inner {
            store,
            session,
            next: AtomicU64::new(1),
            turn: AtomicU64::new(0),
            row: Mutex::default(),
            trouble: Arc::default(),
            hangs: Arc::default(),
            told: Mutex::default(),
        })))
    }

    /// The session has entries and turns up to these numbers.
    pub fn go_on(&self, (entry, turn): (u64, u64)) {
        if let Some(inner) = &self.0 {
            inner.next.store(entry + 1, Ordering::Relaxed);
            inner.turn.store(turn, Ordering::Relaxed);
        }
    }

    /// What the user of this session has to be told about the store now.
    pub fn news(&self) -> Vec<String> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let mut told = inner.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = inner.store.health().tell(&mut told);
        let trouble = inner.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        news.extend(trouble.map(|it| format!("Something of this session is not kept: {it}.")));
        news
    }

    /// What the session begins with, should the store have to begin anew.
    pub fn know(&self, row: SessionRow) {
        if let Some(inner) = &self.0 {
            *inner.row.lock().unwrap_or_else(PoisonError::into_inner) = Some(row);
        }
    }

    /// Where it writes to, if it writes.
    pub fn store(&self) -> Option<&Store> {
        self.0.as_ref().map(|it| &it.store)
    }

    /// The number of the turn that runs, or that was the last.
    pub fn turn(&self) -> u64 {
        self.0.as_ref().map_or(0, |it| it.turn.load(Ordering::Relaxed))
    }

    /// A new session.
    pub fn create(&self, row: SessionRow) -> Ticket {
        self.know(row);
        // The first work of a session makes it.
        self.flush()
    }

    /// A turn begins. What is written from now on belongs to it.
    pub fn begin(&self, kind: TurnKind, words: String) -> u64 {
        let Some(inner) = &self.0 else { return 0 };
        let turn = inner.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let now = millis(SystemTime::now());
        drop(self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO turns (session, number, kind, words, begun_at) \
                     VALUES (?, ?, ?, ?, ?)",
                )?
                .execute(params![session, turn, kind.word(), redact::text(&words), now])?;
            touch(connection, session, now)
        }));
        turn
    }

    /// The turn has ended; `stop` is a word for the reason.
    pub fn end(&self, stop: &'static str, minted: u64, cost: Option<f64>) -> Ticket {
        let (turn, now) = (self.turn(), millis(SystemTime::now()));
        self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE turns SET ended_at = ?, stop = ? WHERE session = ? AND number = ?",
                )?
                .execute(params![now, stop, session, turn])?;
            connection
                .prepare_cached("UPDATE sessions SET minted = ?, cost = ? WHERE key = ?")?
                .execute(params![minted, cost, session])?;
            touch(connection, session, now)
        })
    }

    /// Adds an entry. The calls of a message are noted with it. Returns its number.
    pub fn add(&self, entry: Entry) -> u64 {
        let seq = self.reserve();
        self.put(seq, entry);
        seq
    }

    /// The number of an entry that is yet to be written.
    pub fn reserve(&self) -> u64 {
        self.0.as_ref().map_or(0, |it| it.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes the entry of a number that was reserved, in place of its draft.
    pub fn put(&self, seq: u64, entry: Entry) {
        let (turn, now) = (self.turn(), millis(SystemTime::now()));
        let weight = backlog::weight_of(&entry);
        drop(self.post_heavy(Durability::Process, weight, move |connection, session| {
            add(connection, session, (seq, turn, now), &entry)
        }));
    }

    /// Takes an entry back.
    pub fn remove(&self, seq: u64) {
        drop(self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached("DELETE FROM entries WHERE session = ? AND seq = ?")?
                .execute(params![session, seq])?;
            Ok(())
        }));
    }

    /// A call is about to do something.
    pub fn intend(&self, call: &CallId, intent: Intent, durability: Durability) -> Ticket {
        let (call, turn, now) = (call.clone(), self.turn(), millis(SystemTime::now()));
        let weight = intent.bytes.iter().map(|it| it.len()).sum();
        self.post_heavy(durability, weight, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE calls SET status = ?, begun_at = ? WHERE session = ? AND call = ?",
                )?
                .execute(params![CallStatus::Running.word(), now, session, call.as_str()])?;
            put_contents(connection, session, &intent.bytes)?;
            changes(connection, session, (turn, &call), &intent.files)
        })
    }

    /// A call has come to an end.
    pub fn settle(&self, call: &CallId, settled: Settled) -> Ticket {
        let (call, turn, now) = (call.clone(), self.turn(), millis(SystemTime::now()));
        let weight = backlog::weight_of_result(&settled);
        self.post_heavy(Durability::Process, weight, move |connection, session| {
            settle(connection, session, (&call, turn, now), &settled)
        })
    }

    /// More has become of files that a call of that turn has changed, or had others change. What
    /// was before them stays as it was noted first.
    pub fn changes(
        &self,
        turn: u64,
        call: &CallId,
        files: Vec<Change>,
        bytes: Vec<Arc<[u8]>>,
    ) -> Ticket {
        let call = call.clone();
        self.post(Durability::Process, move |connection, session| {
            put_contents(connection, session, &bytes)?;
            changes(connection, session, (turn, &call), &files)
        })
    }

    /// Whether anything is kept at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The model is told more with a result.
    pub fn amend(&self, call: &CallId, text: String) {
        let (call, weight) = (call.clone(), text.len());
        drop(self.post_heavy(Durability::Process, weight, move |connection, session| {
            let (text, blob) = result_of(connection, session, &text)?;
            connection
                .prepare_cached(
                    "UPDATE calls SET result = ?, result_blob = ? WHERE session = ? AND call = ?",
                )?
                .execute(params![text, blob, session, call.as_str()])?;
            Ok(())
        }));
    }

    /// What a request has used.
    pub fn usage(&self, model: &str, usage: Usage, window: Option<u64>, cost: Option<f64>) {
        let (turn, now, model) = (self.turn(), millis(SystemTime::now()), model.to_owned());
        drop(self.post(Durability::Process, move |connection, session| {
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

    /// Something was allowed or not; `entry` is a line of the audit.
    pub fn permission(&self, entry: String) {
        let (turn, now) = (self.turn(), millis(SystemTime::now()));
        drop(self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached(
                    "INSERT INTO permissions (session, turn, at, entry) VALUES (?, ?, ?, ?)",
                )?
                .execute(params![session, turn, now, redact::text(&entry)])?;
            Ok(())
        }));
    }

    /// What the session would be opened with next time.
    pub fn settings(&self, mode: &'static str, model: String, effort: &'static str) -> Ticket {
        self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached(
                    "UPDATE sessions SET mode = ?, model = ?, effort = ? WHERE key = ?",
                )?
                .execute(params![mode, model, effort, session])?;
            Ok(())
        })
    }

    /// Waits for all that was said so far.
    pub fn flush(&self) -> Ticket {
        self.post(Durability::Process, |_, _| Ok(()))
    }

    /// Has something written about this session. `work` gets the session's key.
    pub fn post(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection, i64) -> Result<(), StoreError> + Send + 'static,
    ) -> Ticket {
        self.post_heavy(durability, 0, work)
    }

    /// The same for work that holds about so many bytes.
    fn post_heavy(
        &self,
        durability: Durability,
        weight: usize,
        mut work: impl FnMut(&Connection, i64) -> Result<(), StoreError> + Send + 'static,
    ) -> Ticket {
        let Some(inner) = &self.0 else { return Ticket::default() };
        let session = Arc::clone(inner);
        let waiting = inner
            .store
            .keep(durability, weight, move |connection| work(connection, session.key(connection)?));
        let (trouble, hangs) = (Arc::clone(&inner.trouble), Arc::clone(&inner.hangs));
        Ticket { waiting: Some(waiting), trouble, hangs }
    }
}

impl Inner {
    /// The session's key. Makes the session if it is not there.
    fn key(&self, connection: &Connection) -> Result<i64, StoreError> {
        match key(connection, &self.session) {
            Err(StoreError::NoSuchSession) => {}
            found => return found,
        }
        let row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        insert(connection, row.as_ref().ok_or(StoreError::NoSuchSession)?)
    }
}
