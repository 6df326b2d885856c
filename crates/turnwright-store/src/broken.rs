//! What is written while an answer is on its way, and what a process that was killed has left
//! undone: it is set right once, in one commit, and stays so for ever.

use std::path::PathBuf;
use std::time::SystemTime;

use rusqlite::{Connection, params};

use super::read::{self, millis, moment, value_path};
use super::rows::{add, settle};
use super::{CallRow, Durability, Entry, Log, Settled, StoreError, Ticket};
use turnwright_types::file_change::Change;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::redact;

/// What is not as a process leaves it that ends in good order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Broken {
    /// Calls without a result, with the files that they were going to change.
    pub calls: Vec<(CallRow, Vec<Change>)>,
    /// Answers that were on their way.
    pub drafts: Vec<Draft>,
    /// Turns without an end, and whether there is anything of them.
    pub turns: Vec<(u64, bool)>,
    /// The greatest number that an identifier is known to be made of.
    pub minted: u64,
    /// The last entry and the last turn.
    pub last: (u64, u64),
}

/// What there is of an answer that was on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The place that was reserved for it.
    pub seq: u64,
    /// Its turn.
    pub turn: u64,
    /// When its first words came.
    pub at: SystemTime,
    /// What the client knows it by.
    pub id: MessageId,
    /// The reasoning so far.
    pub thought: String,
    /// The words so far.
    pub text: String,
}

/// What is written about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mended {
    /// What has become of the calls, each with its turn.
    pub calls: Vec<(CallId, u64, Settled)>,
    /// Entries with their place, their turn and their time.
    pub entries: Vec<(u64, u64, SystemTime, Entry)>,
    /// Turns that were interrupted.
    pub turns: Vec<u64>,
    /// The last number that an identifier was made of.
    pub minted: u64,
}

impl Broken {
    /// Whether there is nothing to be set right.
    pub fn is_nothing(&self) -> bool {
        self.calls.is_empty() && self.drafts.is_empty() && self.turns.is_empty()
    }
}

/// Looks for what was left undone.
///
/// # Errors
/// When the store cannot be read.
pub fn broken(connection: &Connection, session: i64) -> Result<Broken, StoreError> {
    let mut broken = Broken { last: read::last(connection, session)?, ..Broken::default() };
    for call in read::unsettled(connection, session)? {
        let files = files(connection, session, &call)?;
        broken.calls.push((call, files));
    }
    broken.drafts = drafts(connection, session)?;
    let drafted = broken.drafts.iter().map(|it| it.seq).max().unwrap_or_default();
    broken.last.0 = broken.last.0.max(drafted);
    let mut find = connection.prepare_cached(
        "SELECT number, EXISTS (SELECT 1 FROM entries WHERE entries.session = turns.session AND \
         entries.turn = turns.number) FROM turns WHERE session = ? AND stop IS NULL ORDER BY number",
    )?;
    let rows = find.query_map([session], |it| Ok((it.get(0)?, it.get(1)?)))?;
    broken.turns = rows.collect::<Result<_, _>>()?;
    broken.minted = connection.query_row(MINTED, [session], |it| it.get(0))?;
    Ok(broken)
}

/// What the end of the last turn has said, and what can be read from all that is there.
const MINTED: &str = "SELECT max(minted, \
    (SELECT coalesce(max(CAST(substr(message_id, 5) AS INTEGER)), 0) FROM entries \
     WHERE session = key AND message_id IS NOT NULL), \
    (SELECT coalesce(max(CAST(substr(message_id, 5) AS INTEGER)), 0) FROM drafts \
     WHERE session = key), \
    (SELECT coalesce(max(CAST(substr(call, 6) AS INTEGER)), 0) FROM calls WHERE session = key), \
    (SELECT coalesce(max(CAST(substr(json_extract(body, '$.call'), 6) AS INTEGER)), 0) \
     FROM entries WHERE session = key AND kind = 'lost')) \
    FROM sessions WHERE key = ?";

fn files(connection: &Connection, session: i64, call: &CallRow) -> Result<Vec<Change>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT path, before, after FROM file_versions WHERE session = ? AND turn = ? AND call = ? \
         ORDER BY id",
    )?;
    let row = |it: &rusqlite::Row<'_>| {
        Ok((value_path(it.get_ref(0)?), it.get::<_, String>(1)?, it.get::<_, Option<String>>(2)?))
    };
    let rows = find.query_map(params![session, call.turn, call.call.as_str()], row)?;
    let mut files = Vec::new();
    for row in rows {
        let (path, before, after): (PathBuf, _, _) = row?;
        let before = serde_json::from_str(&before)?;
        let after = after.map(|it| serde_json::from_str(&it)).transpose()?;
        files.push(Change { path, before, after });
    }
    Ok(files)
}

fn drafts(connection: &Connection, session: i64) -> Result<Vec<Draft>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT seq, turn, at, message_id, is_thought, words FROM drafts WHERE session = ? \
         ORDER BY seq, id",
    )?;
    let mut rows = find.query([session])?;
    let mut drafts: Vec<Draft> = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, is_thought, words): (u64, bool, String) = (row.get(0)?, row.get(4)?, row.get(5)?);
        if drafts.last().is_none_or(|it| it.seq != seq) {
            let (turn, at) = (row.get(1)?, moment(row.get(2)?));
            let id = MessageId::from(row.get::<_, String>(3)?);
            let (thought, text) = (String::new(), String::new());
            drafts.push(Draft { seq, turn, at, id, thought, text });
        }
        if let Some(last) = drafts.last_mut() {
            if is_thought { &mut last.thought } else { &mut last.text }.push_str(&words);
        }
    }
    Ok(drafts)
}

/// How the last turn that the model has heard of has ended.
///
/// # Errors
/// When the store cannot be read.
pub fn was_interrupted(connection: &Connection, session: i64) -> Result<bool, StoreError> {
    Ok(connection.query_row(
        "SELECT coalesce((SELECT stop = 'interrupted' FROM turns WHERE session = ? AND \
         kind = 'prompt' ORDER BY number DESC LIMIT 1), 0)",
        [session],
        |it| it.get(0),
    )?)
}

impl Log {
    /// More words of the answer whose entry gets this number.
    pub fn draft(&self, seq: u64, id: &MessageId, is_thought: bool, mut words: String) -> Ticket {
        let (turn, now, id) = (self.turn(), millis(SystemTime::now()), id.clone());
        redact::clean(&mut words);
        self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached(
                    "INSERT INTO drafts (session, seq, turn, at, message_id, is_thought, words) \
                     VALUES (?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![session, seq, turn, now, id.as_str(), is_thought, words])?;
            Ok(())
        })
    }

    /// Sets right what was left undone: all of it, or nothing.
    pub fn mend(&self, mended: Mended) -> Ticket {
        let now = millis(SystemTime::now());
        self.post(Durability::Process, move |connection, session| {
            for (call, turn, settled) in &mended.calls {
                settle(connection, session, (call, *turn, now), settled)?;
            }
            for (seq, turn, at, entry) in &mended.entries {
                add(connection, session, (*seq, *turn, millis(*at)), entry)?;
            }
            for turn in &mended.turns {
                connection
                    .prepare_cached(
                        "UPDATE turns SET stop = 'interrupted' WHERE session = ? AND number = ?",
                    )?
                    .execute(params![session, turn])?;
            }
            connection
                .prepare_cached("UPDATE sessions SET minted = ? WHERE key = ?")?
                .execute(params![mended.minted, session])?;
            Ok(())
        })
    }

    /// The turn has died with this call's card open. One that never was whole is kept as lost.
    pub fn break_off(&self, call: &CallId, name: String, settled: Settled) {
        let (call, turn, now) = (call.clone(), self.turn(), millis(SystemTime::now()));
        let seq = self.reserve();
        drop(self.post(Durability::Process, move |connection, session| {
            let mut find = connection
                .prepare_cached("SELECT status FROM calls WHERE session = ? AND call = ?")?;
            if find.exists(params![session, call.as_str()])? {
                return settle(connection, session, (&call, turn, now), &settled);
            }
            let Some(view) = settled.view.clone() else { return Ok(()) };
            let (name, why) = (name.clone(), settled.text.clone());
            let lost = Entry::Lost { call: call.clone(), name, view, why };
            add(connection, session, (seq, turn, now), &lost)
        }));
    }
}
