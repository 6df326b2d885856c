//! Loads sessions from the database. Needs only a reading connection, and blocks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use crate::blobs;
use crate::blobs::packed_json::unpack;
use crate::rows;
use crate::{
    CallOutcome, CallRow, CallStatus, Entry, GoalState, GoalStatus, Result, SessionRow, StoreError,
    StoredEntry, TurnKind,
};
use turnwright_types::hash::parse_hex;
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Arguments, Spending, Submission, TokenUsage};
use turnwright_types::update::PlanEntry;

/// A time as it is stored.
pub(super) fn to_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A stored time.
pub(crate) fn time_from_millis(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.max(0).cast_unsigned())
}

/// A path as it is stored: text, or bytes if it is not UTF-8.
pub(super) fn path_to_value(path: &Path) -> Sql {
    match path.to_str() {
        Some(text) => Sql::Text(text.to_owned()),
        None => Sql::Blob(path.as_os_str().as_encoded_bytes().to_vec()),
    }
}

/// A stored path.
pub(super) fn path_from_value(value: ValueRef<'_>) -> PathBuf {
    match value {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(bytes) => os_path(bytes),
        _ => PathBuf::new(),
    }
}

#[cfg(unix)]
fn os_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(not(unix))]
fn os_path(bytes: &[u8]) -> PathBuf {
    OsString::from(String::from_utf8_lossy(bytes).into_owned()).into()
}

/// The database key of a session.
pub fn session_key(connection: &Connection, session: &SessionId) -> Result<i64> {
    let mut find = connection.prepare_cached("SELECT key FROM sessions WHERE id = ?")?;
    Ok(find.query_row([session.as_str()], |row| row.get(0))?)
}

/// The columns that [`session_row`] reads.
pub(super) const SESSION_COLUMNS: &str = "id, cwd, folders, title, title_is_final, created_at, updated_at, \
                                  archived, parent, mode, model, effort, minted, cost, real_cwd";

pub fn session(connection: &Connection, id: &SessionId) -> Result<SessionRow> {
    let query = format!("SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?");
    Ok(connection.prepare_cached(&query)?.query_row([id.as_str()], session_row)?)
}

/// Reads a row of [`SESSION_COLUMNS`].
pub(super) fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let text = |column| row.get::<_, Option<String>>(column);
    let folders: Vec<PathBuf> = serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default();
    Ok(SessionRow {
        id: row.get::<_, String>(0)?.into(),
        cwd: path_from_value(row.get_ref(1)?),
        additional_folders: folders,
        title: text(3)?,
        title_is_final: row.get(4)?,
        created_at: time_from_millis(row.get(5)?),
        updated_at: time_from_millis(row.get(6)?),
        is_archived: row.get(7)?,
        parent: text(8)?.map(SessionId::from),
        helper_of: None,
        mode: text(9)?,
        model: text(10)?,
        effort: text(11)?,
        last_id_number: row.get(12)?,
        cost_usd: row.get(13)?,
        real_cwd: path_from_value(row.get_ref(14)?),
    })
}

/// The numbers of a session's last entry and last turn.
pub fn last_numbers(connection: &Connection, session: i64) -> Result<(u64, u64)> {
    let query = "SELECT (SELECT coalesce(max(seq), 0) FROM entries WHERE session = ?1), \
                 (SELECT coalesce(max(number), 0) FROM turns WHERE session = ?1)";
    Ok(connection.query_row(query, [session], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// The entries of a session that were rewound, and its current plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewoundEntries {
    /// First and last sequence number, both included.
    ranges: Vec<(u64, u64)>,
    /// The last plan that was not rewound.
    pub last_plan: Option<u64>,
}

impl RewoundEntries {
    /// Loads them for a session.
    pub fn load(connection: &Connection, session: i64) -> Result<RewoundEntries> {
        let mut find = connection.prepare_cached(
            "SELECT seq, body FROM entries WHERE session = ? AND kind IN ('rewound', \
             'rewind_undone') ORDER BY seq",
        )?;
        let rows = find.query_map([session], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for row in rows {
            let (seq, body) = row?;
            let body: Value = serde_json::from_str(&body)?;
            let number = |field: &str| body.get(field).and_then(Value::as_u64);
            ranges.extend(number("to").map(|start| (start, seq)));
            if let Some(rewind) = number("rewind") {
                ranges.retain(|range| range.1 != rewind);
            }
        }
        let mut rewound = RewoundEntries { ranges, last_plan: None };
        rewound.last_plan = rewound.last_of_kind(connection, session, "plan")?;
        Ok(rewound)
    }

    /// Finds the last entry of this kind that was not rewound.
    fn last_of_kind(
        &self,
        connection: &Connection,
        session: i64,
        kind: &str,
    ) -> Result<Option<u64>> {
        let mut find = connection.prepare_cached(
            "SELECT seq FROM entries WHERE session = ? AND kind = ? ORDER BY seq DESC",
        )?;
        let mut all = find.query_map(params![session, kind], |row| row.get(0))?;
        Ok(all.find(|seq| !seq.as_ref().is_ok_and(|seq| self.contains(*seq))).transpose()?)
    }

    /// The sequence number of the last rewind that was not undone.
    pub fn last_rewind(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.1)
    }

    /// True if the entry was rewound.
    pub fn contains(&self, seq: u64) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&seq))
    }
}

/// Reads up to `limit` entries after the sequence number `after`. Returns them without the rewound
/// ones, and the last sequence number that was read; that is `None` at the end of the conversation.
pub fn entries_page(
    connection: &Connection,
    session: i64,
    (after, limit): (u64, usize),
    rewound: &RewoundEntries,
) -> Result<(Vec<StoredEntry>, Option<u64>)> {
    let mut find = connection.prepare_cached(
        "SELECT seq, turn, at, kind, body, refs FROM entries WHERE session = ? AND seq > ? \
         ORDER BY seq LIMIT ?",
    )?;
    let mut rows = find.query(params![session, after, limit])?;
    let mut page = Vec::new();
    let mut last = None;
    while let Some(row) = rows.next()? {
        let seq: u64 = row.get(0)?;
        last = Some(seq);
        if rewound.contains(seq) {
            continue;
        }
        let kind: String = row.get(3)?;
        let body = row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?;
        let refs: Option<String> = row.get(5)?;
        let body = unpack(connection, body, refs.as_deref())?;
        let at = time_from_millis(row.get(2)?);
        let entry = parse_entry(&kind, body, seq);
        let calls = match entry {
            Entry::Message { .. } => calls_of(connection, session, seq)?,
            _ => Vec::new(),
        };
        page.push(StoredEntry { seq, turn: row.get(1)?, at, entry, calls });
    }
    Ok((page, last))
}

/// Entries that [`each_entry`] has in memory at a time; each may be long.
const PAGE_SIZE: usize = 8;

/// Calls `use_entry` with each entry of a session that was not rewound.
pub fn each_entry<E: From<StoreError>>(
    connection: &Connection,
    session: i64,
    rewound: &RewoundEntries,
    mut use_entry: impl FnMut(StoredEntry) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = 0;
    loop {
        let (page, last) = entries_page(connection, session, (after, PAGE_SIZE), rewound)?;
        page.into_iter().try_for_each(&mut use_entry)?;
        let Some(last) = last else { return Ok(()) };
        after = last;
    }
}

/// The current plan of a session; empty if there is none, or if the context was cleared since.
pub fn current_plan(connection: &Connection, session: i64) -> Result<Vec<PlanEntry>> {
    let rewound = RewoundEntries::load(connection, session)?;
    let cleared = rewound.last_of_kind(connection, session, "cleared")?;
    let Some(seq) = rewound.last_plan.filter(|plan| Some(*plan) > cleared) else {
        return Ok(Vec::new());
    };
    Ok(match entry_at(connection, session, seq)? {
        Some(Entry::Plan { entries }) => entries,
        _ => Vec::new(),
    })
}

/// The goal of a session while no turn runs; `None` if it has none. A goal that a turn was working on is paused: that
/// turn has never come to its end.
pub fn current_goal(connection: &Connection, session: i64) -> Result<Option<GoalState>> {
    let rewound = RewoundEntries::load(connection, session)?;
    let Some(seq) = rewound.last_of_kind(connection, session, "goal")? else { return Ok(None) };
    let Some(Entry::Goal { goal: Some(goal) }) = entry_at(connection, session, seq)? else {
        return Ok(None);
    };
    let mut goal = *goal;
    if goal.status == GoalStatus::Active {
        goal.status = GoalStatus::Paused("its turn was interrupted".to_owned());
    }
    Ok(Some(goal))
}

fn entry_at(connection: &Connection, session: i64, seq: u64) -> Result<Option<Entry>> {
    let (page, _) = entries_page(connection, session, (seq - 1, 1), &RewoundEntries::default())?;
    Ok(page.into_iter().next().map(|row| row.entry))
}

/// An entry that cannot be interpreted is from a newer version or damaged; the other entries are
/// still usable.
fn parse_entry(kind: &str, body: Value, seq: u64) -> Entry {
    rows::read_entry(kind, body).unwrap_or_else(|error| {
        tracing::warn!(%error, kind, seq, "an entry could not be interpreted");
        Entry::Unknown
    })
}

/// The columns that [`call_row`] reads.
const CALL_COLUMNS: &str = "call, turn, tool_name, arguments, arguments_refs, status, result, result_blob, \
                    card, card_refs, asked_at, ended_at, duration_ms, begun_at";

/// The calls of an answer.
fn calls_of(connection: &Connection, session: i64, seq: u64) -> Result<Vec<CallRow>> {
    query_calls(connection, "session = ? AND seq = ? ORDER BY position", params![session, seq])
}

/// The calls of a session that have no outcome yet.
pub(crate) fn unfinished_calls(connection: &Connection, session: i64) -> Result<Vec<CallRow>> {
    let condition = "session = ? AND status IN ('pending', 'running') ORDER BY seq, position";
    query_calls(connection, condition, params![session])
}

fn query_calls(
    connection: &Connection,
    condition: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<CallRow>> {
    let query = format!("SELECT {CALL_COLUMNS} FROM calls WHERE {condition}");
    let mut find = connection.prepare_cached(&query)?;
    let calls = find.query_and_then(params, |row| call_row(connection, row))?;
    calls.collect()
}

fn call_row(connection: &Connection, row: &Row<'_>) -> Result<CallRow> {
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let refs = text(4)?;
    let unpacked = unpack(connection, &row.get::<_, String>(3)?, refs.as_deref())?;
    let arguments = match serde_json::from_value(unpacked.clone()) {
        Ok(unusable @ Arguments::Unusable { .. }) => unusable,
        _ => Arguments::Object(unpacked),
    };
    let result = blobs::text(connection, text(6)?, row.get(7)?)?.unwrap_or_default();
    let card = match text(8)? {
        Some(card) => {
            let refs = text(9)?;
            let card = rows::unpack_card(connection, (&card, refs.as_deref()), &result)?;
            serde_json::from_value(card).unwrap_or_default()
        }
        None => CallOutcome::default(),
    };
    let status = CallStatus::parse(&row.get::<_, String>(5)?);
    let tool: String = row.get(2)?;
    let millis =
        row.get::<_, Option<f64>>(12)?.filter(|millis| millis.is_finite() && *millis >= 0.0);
    Ok(CallRow {
        call: CallId::from(row.get::<_, String>(0)?),
        turn: row.get(1)?,
        outcome: CallOutcome {
            is_success: status == CallStatus::Success,
            tool: tool.clone(),
            text: result,
            duration: millis.map(|millis| Duration::from_secs_f64(millis / 1000.0)),
            ..card
        },
        tool,
        arguments,
        status,
        requested_at: time_from_millis(row.get(10)?),
        started_at: row.get::<_, Option<i64>>(13)?.map(time_from_millis),
        ended_at: row.get::<_, Option<i64>>(11)?.map(time_from_millis),
    })
}

/// The bytes with this SHA-256, in hexadecimal, if they are stored.
pub fn blob_by_hash(connection: &Connection, hash: &str) -> Result<Option<Vec<u8>>> {
    parse_hex(hash).map_or(Ok(None), |hash| blobs::by_hash(connection, &hash))
}

/// The usage of a session and its helpers, and its cost if prices are known. For a copy, the usage of its original does
/// not count. The time of a helper is the time of its turn.
pub fn session_spending(connection: &Connection, session: i64) -> Result<(Spending, Option<f64>)> {
    let row = connection.query_row(
        "SELECT count(usage.id), coalesce(sum(input), 0), coalesce(sum(output), 0), \
         coalesce(sum(cached), 0), sum(usage.cost), (SELECT coalesce(sum(ended_at - begun_at), 0) FROM turns WHERE \
         session = own.key AND begun_at >= own.created_at AND kind = 'prompt') FROM sessions AS own \
         LEFT JOIN usage ON at >= own.created_at AND session IN (SELECT key FROM sessions WHERE key = \
         own.key OR helper_of = own.id) WHERE own.key = ?",
        [session],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get::<_, i64>(5)?)),
    )?;
    let (requests, input, output, cached, cost, millis) = row;
    let time = Duration::from_millis(millis.max(0).cast_unsigned());
    let usage = TokenUsage { input, output, cached, ..TokenUsage::default() };
    Ok((Spending { requests, usage, time }, cost))
}

/// The usage of a session's last request whose context window is known: tokens in the window, its
/// size, and cached tokens.
pub fn last_usage(connection: &Connection, session: i64) -> Result<Option<(u64, u64, u64)>> {
    let mut find = connection.prepare_cached(
        "SELECT input + output, window, cached FROM usage WHERE session = ? AND window IS NOT NULL \
         ORDER BY id DESC LIMIT 1",
    )?;
    let found = find.query_row([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    Ok(found.optional()?)
}

/// The prompts of a session that have keys, each with its message; also those that were rewound.
pub fn submissions(connection: &Connection, session: i64) -> Result<Vec<(MessageId, Submission)>> {
    let mut find = connection.prepare_cached(
        "SELECT entries.message_id, \
         json_extract(entries.body, '$.message.user.submission') AS submission \
         FROM turns JOIN entries ON entries.session = turns.session AND entries.seq = first_entry \
         WHERE turns.session = ? AND submission IS NOT NULL",
    )?;
    let submissions = find.query_and_then([session], |row| {
        let submission = serde_json::from_str(&row.get::<_, String>(1)?)?;
        Ok((MessageId::from(row.get::<_, String>(0)?), submission))
    })?;
    submissions.collect()
}

/// A stored turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Counted from 1.
    pub number: u64,
    pub kind: TurnKind,
    /// The beginning of the user's text.
    pub words: String,
    pub started_at: SystemTime,
    /// When it ended; `None` if it still runs or its process ended first.
    pub ended_at: Option<SystemTime>,
    /// The stop reason.
    pub stop: Option<String>,
}

/// All turns of a session, in order.
pub(crate) fn turn_rows(connection: &Connection, session: i64) -> Result<Vec<TurnRow>> {
    let mut find = connection.prepare_cached(
        "SELECT number, kind, words, begun_at, ended_at, stop FROM turns WHERE session = ? ORDER \
         BY number",
    )?;
    let rows = find.query_map([session], |row| {
        Ok(TurnRow {
            number: row.get(0)?,
            kind: TurnKind::parse(&row.get::<_, String>(1)?),
            words: row.get(2)?,
            started_at: time_from_millis(row.get(3)?),
            ended_at: row.get::<_, Option<i64>>(4)?.map(time_from_millis),
            stop: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
