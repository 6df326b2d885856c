//! Drafts of answers that are still streaming, and the repair of what a killed process left
//! unfinished. The repair happens once, in one commit.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, params};

use super::read::{self, path_from_value, time_from_millis, to_millis};
use super::rows::{finish_call, insert_entry};
use super::{CallOutcome, CallRow, Entry, PendingWrite, Result, SessionLog};
use crate::database::execute;
use crate::entry::{entry_size, outcome_size};
use turnwright_types::file_change::FileChange;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::redact;

/// The work in a session that a process left unfinished when it ended abnormally.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnfinishedWork {
    /// Calls without a result, with the file changes that they were about to make.
    pub calls: Vec<(CallRow, Vec<FileChange>)>,
    /// Drafts of answers that were still streaming.
    pub drafts: Vec<AnswerDraft>,
    /// Turns without an end, and whether each has any entries.
    pub turns: Vec<(u64, bool)>,
    /// The greatest number that was used in an id of this session.
    pub last_id_number: u64,
    /// The numbers of the last entry and the last turn.
    pub last_numbers: (u64, u64),
}

/// The stored part of an answer that was still streaming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerDraft {
    /// The sequence number that was reserved for its entry.
    pub seq: u64,
    pub turn: u64,
    /// When its first piece was stored.
    pub at: SystemTime,
    /// The id that the client knows the message by.
    pub id: MessageId,
    /// The reasoning so far.
    pub reasoning: String,
    /// The text so far.
    pub text: String,
}

/// The changes that repair a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repairs {
    /// The outcome of each unfinished call, with its turn.
    pub calls: Vec<(CallId, u64, CallOutcome)>,
    /// New entries with their sequence number, turn and time.
    pub entries: Vec<(u64, u64, SystemTime, Entry)>,
    /// The turns to mark as interrupted.
    pub turns: Vec<u64>,
    /// The greatest number that was used in an id of this session.
    pub last_id_number: u64,
}

impl UnfinishedWork {
    /// True if nothing has to be repaired.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.drafts.is_empty() && self.turns.is_empty()
    }
}

/// Finds what a process left unfinished.
pub fn find_unfinished(connection: &Connection, session: i64) -> Result<UnfinishedWork> {
    let mut unfinished = UnfinishedWork {
        last_numbers: read::last_numbers(connection, session)?,
        ..UnfinishedWork::default()
    };
    for call in read::unfinished_calls(connection, session)? {
        let files = intended_changes(connection, session, &call)?;
        unfinished.calls.push((call, files));
    }
    unfinished.drafts = load_drafts(connection, session)?;
    let last_draft = unfinished.drafts.iter().map(|draft| draft.seq).max().unwrap_or_default();
    unfinished.last_numbers.0 = unfinished.last_numbers.0.max(last_draft);
    let mut find = connection.prepare_cached(
        "SELECT number, EXISTS (SELECT 1 FROM entries WHERE entries.session = turns.session AND \
         entries.turn = turns.number) FROM turns WHERE session = ? AND stop IS NULL ORDER BY number",
    )?;
    let rows = find.query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?;
    unfinished.turns = rows.collect::<Result<_, _>>()?;
    unfinished.last_id_number =
        connection.query_row(LAST_ID_NUMBER, [session], |row| row.get(0))?;
    Ok(unfinished)
}

/// Selects the greatest number in any id: the one stored at the end of the last turn, or a greater
/// one among the rows.
const LAST_ID_NUMBER: &str = "SELECT max(minted, \
    (SELECT coalesce(max(CAST(substr(message_id, 5) AS INTEGER)), 0) FROM entries \
     WHERE session = key AND message_id IS NOT NULL), \
    (SELECT coalesce(max(CAST(substr(message_id, 5) AS INTEGER)), 0) FROM drafts \
     WHERE session = key), \
    (SELECT coalesce(max(CAST(substr(call, 6) AS INTEGER)), 0) FROM calls WHERE session = key), \
    (SELECT coalesce(max(CAST(substr(json_extract(body, '$.call'), 6) AS INTEGER)), 0) \
     FROM entries WHERE session = key AND kind = 'lost')) \
    FROM sessions WHERE key = ?";

fn intended_changes(
    connection: &Connection,
    session: i64,
    call: &CallRow,
) -> Result<Vec<FileChange>> {
    let mut find = connection.prepare_cached(
        "SELECT path, before, after FROM file_versions WHERE session = ? AND turn = ? AND call = ? \
         ORDER BY id",
    )?;
    let files = find.query_and_then(params![session, call.turn, call.call.as_str()], |row| {
        let path = path_from_value(row.get_ref(0)?);
        let before = serde_json::from_str(&row.get::<_, String>(1)?)?;
        let expected: Option<String> = row.get(2)?;
        let after = expected.as_deref().map(serde_json::from_str).transpose()?;
        Ok(FileChange { path, before, after })
    })?;
    files.collect()
}

fn load_drafts(connection: &Connection, session: i64) -> Result<Vec<AnswerDraft>> {
    let mut find = connection.prepare_cached(
        "SELECT seq, turn, at, message_id, is_thought, words FROM drafts WHERE session = ? \
         ORDER BY seq, id",
    )?;
    let mut rows = find.query([session])?;
    let mut drafts: Vec<AnswerDraft> = Vec::new();
    while let Some(row) = rows.next()? {
        let seq: u64 = row.get(0)?;
        let is_thought: bool = row.get(4)?;
        let words: String = row.get(5)?;
        if drafts.last().is_none_or(|draft| draft.seq != seq) {
            drafts.push(AnswerDraft {
                seq,
                turn: row.get(1)?,
                at: time_from_millis(row.get(2)?),
                id: MessageId::from(row.get::<_, String>(3)?),
                reasoning: String::new(),
                text: String::new(),
            });
        }
        if let Some(last) = drafts.last_mut() {
            if is_thought { &mut last.reasoning } else { &mut last.text }.push_str(&words);
        }
    }
    Ok(drafts)
}

/// The stop reason of the last prompt's turn, `interrupted` if its process has ended.
pub fn last_stop(connection: &Connection, session: i64) -> Result<Option<String>> {
    let stop = connection.query_row(
        "SELECT stop FROM turns WHERE session = ? AND kind = 'prompt' ORDER BY number DESC LIMIT 1",
        [session],
        |row| row.get(0),
    );
    Ok(stop.optional()?.flatten())
}

impl SessionLog {
    /// Appends a piece to the draft of the answer with this sequence number.
    pub fn append_draft(
        &self,
        seq: u64,
        id: &MessageId,
        is_thought: bool,
        mut words: String,
    ) -> PendingWrite {
        let (turn, now) = self.turn_and_time();
        let id = id.clone();
        redact::redact_in_place(&mut words);
        self.submit_sized(words.len(), move |connection, session| {
            execute(
                connection,
                "INSERT INTO drafts (session, seq, turn, at, message_id, is_thought, words) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
                params![session, seq, turn, now, id.as_str(), is_thought, words],
            )
        })
    }

    /// Writes the repairs: all of them or none.
    pub fn apply_repairs(&self, repairs: Repairs) -> PendingWrite {
        let now = to_millis(SystemTime::now());
        let outcomes: usize = repairs.calls.iter().map(|call| outcome_size(&call.2)).sum();
        let entries: usize = repairs.entries.iter().map(|entry| entry_size(&entry.3)).sum();
        self.submit_sized(outcomes + entries, move |connection, session| {
            for (call, turn, outcome) in &repairs.calls {
                finish_call(connection, session, (call, *turn, now), outcome)?;
            }
            for (seq, turn, at, entry) in &repairs.entries {
                insert_entry(connection, session, (*seq, *turn, to_millis(*at)), entry)?;
            }
            let end = "UPDATE turns SET stop = 'interrupted' WHERE session = ? AND number = ?";
            for turn in &repairs.turns {
                execute(connection, end, params![session, turn])?;
            }
            let update = "UPDATE sessions SET minted = ? WHERE key = ?";
            execute(connection, update, params![repairs.last_id_number, session])
        })
    }

    /// Ends a call whose turn has failed while its card was open. A call whose arguments were still
    /// streaming is stored as [`Entry::IncompleteCall`] with this sequence number.
    pub fn abort_call(&self, call: &CallId, seq: u64, outcome: CallOutcome) {
        let call = call.clone();
        let (turn, now) = self.turn_and_time();
        drop(self.submit_sized(outcome_size(&outcome), move |connection, session| {
            let mut find = connection
                .prepare_cached("SELECT status FROM calls WHERE session = ? AND call = ?")?;
            if find.exists(params![session, call.as_str()])? {
                return finish_call(connection, session, (&call, turn, now), &outcome);
            }
            let Some(view) = outcome.view.clone() else { return Ok(()) };
            let lost = Entry::IncompleteCall {
                call: call.clone(),
                name: outcome.tool.clone(),
                view,
                reason: outcome.text.clone(),
            };
            insert_entry(connection, session, (seq, turn, now), &lost)
        }));
    }
}
