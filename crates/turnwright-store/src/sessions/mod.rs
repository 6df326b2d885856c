//! Operations on whole sessions: list, summarise, rename, archive, move, delete and fork.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::read::{
    SESSION_COLUMNS, each_entry, entries_page, path_to_value, session_key, session_row, to_millis,
    unfinished_calls,
};
use crate::rows::finish_call;
use crate::{CallOutcome, CallRow, CallStatus, Result, RewoundEntries, SessionRow, StoreError};
use turnwright_types::ids::{MessageId, SessionId};
use turnwright_types::update::{CursorPlace, Update};

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Only sessions of this folder, given as it was named and with symbolic links resolved.
    pub cwd: Option<(PathBuf, PathBuf)>,
    /// Only archived sessions, or only others.
    pub archived: Option<bool>,
    /// Sessions that are listed even if nothing has happened in them yet.
    pub open: Vec<SessionId>,
}

/// The position in a list of sessions. It refers to a snapshot in time, so that later changes move
/// no session within the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCursor {
    /// The time of the snapshot.
    snapshot: i64,
    /// The update time and key of the last session that was listed.
    last: (i64, i64),
}

impl SessionCursor {
    /// The cursor as text.
    pub fn encode(self) -> String {
        format!("{:x}.{:x}.{:x}", self.snapshot, self.last.0, self.last.1)
    }

    /// Parses the text of a cursor.
    pub fn parse(word: &str) -> Option<SessionCursor> {
        let mut numbers = word
            .split('.')
            .map(|digits| i64::from_str_radix(digits, 16).ok().filter(|number| *number >= 0));
        let mut next = || numbers.next().flatten();
        let cursor = SessionCursor { snapshot: next()?, last: (next()?, next()?) };
        // Only the canonical text is accepted.
        (cursor.encode() == word).then_some(cursor)
    }
}

/// SQL for the time of the last activity in a session: now, and as of the snapshot.
const UPDATED_NOW: &str = "updated_at";
const UPDATED_THEN: &str = "CASE WHEN updated_at <= ?1 THEN updated_at ELSE \
    max(CASE WHEN created_at <= ?1 THEN created_at ELSE 0 END, coalesce(( \
    SELECT max(max(CASE WHEN begun_at <= ?1 THEN begun_at ELSE 0 END), \
               max(CASE WHEN ended_at <= ?1 THEN ended_at ELSE 0 END)) \
    FROM turns WHERE session = sessions.key), 0)) END";

/// Lists up to `limit` sessions, newest first, and returns a cursor if there are more. A session in
/// which nothing has happened is left out unless it is open.
pub fn list(
    connection: &Connection,
    filter: &SessionFilter,
    after: Option<SessionCursor>,
    limit: usize,
) -> Result<(Vec<SessionRow>, Option<SessionCursor>)> {
    let time = if after.is_some() { UPDATED_THEN } else { UPDATED_NOW };
    let cwd = filter.cwd.as_ref();
    let open: Vec<_> = filter.open.iter().map(SessionId::as_str).collect();
    let snapshot = match after {
        Some(cursor) => cursor.snapshot,
        None => connection.query_row(
            "SELECT coalesce(max(updated_at), 0) FROM sessions",
            [],
            |row| row.get(0),
        )?,
    };
    let last = after.map(|cursor| cursor.last);
    // A session that was created while the clock was ahead has turns that are older.
    let query = format!(
        "SELECT {SESSION_COLUMNS}, key, {time} AS at FROM sessions WHERE (created_at <= ?1 \
              OR EXISTS (SELECT 1 FROM turns WHERE session = sessions.key AND begun_at <= ?1)) \
         AND (?2 IS NULL OR (at, key) < (?2, ?3)) \
         AND (?4 IS NULL OR cwd = ?4 OR real_cwd = ?5) \
         AND (?6 IS NULL OR archived = ?6) AND helper_of IS NULL \
         AND (archived OR title IS NOT NULL OR parent IS NOT NULL \
              OR EXISTS (SELECT 1 FROM turns WHERE session = sessions.key) \
              OR id IN (SELECT value FROM json_each(?7))) \
         ORDER BY {time} DESC, key DESC LIMIT ?8"
    );
    let mut find = connection.prepare_cached(&query)?;
    let mut rows = find.query(params![
        snapshot,
        last.map(|last| last.0),
        last.map(|last| last.1),
        cwd.map(|paths| path_to_value(&paths.0)),
        cwd.map(|paths| path_to_value(&paths.1)),
        filter.archived,
        serde_json::to_string(&open)?,
        limit + 1,
    ])?;
    let mut sessions = Vec::new();
    let mut place = None;
    while let Some(row) = rows.next()? {
        if sessions.len() == limit {
            return Ok((sessions, place.map(|last| SessionCursor { snapshot, last })));
        }
        place = Some((row.get("at")?, row.get("key")?));
        sessions.push(session_row(row)?);
    }
    Ok((sessions, None))
}

pub fn exists(connection: &Connection, id: &SessionId) -> Result<bool> {
    let mut find = connection.prepare_cached("SELECT 1 FROM sessions WHERE id = ?")?;
    Ok(find.exists([id.as_str()])?)
}

/// Sets a generated title unless the session has a title. Returns whether it was set.
pub fn suggest_title(connection: &Connection, id: &SessionId, title: &str) -> Result<bool> {
    let update = "UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL";
    Ok(connection.execute(update, params![title, id.as_str()])? > 0)
}

/// Sets the title that a person has chosen.
pub fn set_title(connection: &Connection, id: &SessionId, title: &str) -> Result<()> {
    let update = "UPDATE sessions SET title = ?, title_is_final = 1 WHERE id = ?";
    require_row(connection.execute(update, params![title, id.as_str()])?)
}

/// Archives a session, or takes it back from the archive. That is a use of it, or the next cleanup would delete it.
pub fn set_archived(connection: &Connection, id: &SessionId, archived: bool) -> Result<()> {
    let update = "UPDATE sessions SET archived = ?1, \
                  updated_at = iif(archived > ?1, ?2, updated_at) WHERE id = ?3";
    let now = to_millis(SystemTime::now());
    require_row(connection.execute(update, params![archived, now, id.as_str()])?)
}

/// Sets the folders that a session works in.
pub fn set_folders(
    connection: &Connection,
    id: &SessionId,
    (cwd, real_cwd): (&Path, &Path),
    folders: &[PathBuf],
) -> Result<()> {
    let update = "UPDATE sessions SET cwd = ?, real_cwd = ?, folders = ? WHERE id = ?";
    let values =
        params![path_to_value(cwd), path_to_value(real_cwd), folders_json(folders)?, id.as_str()];
    require_row(connection.execute(update, values)?)
}

/// The options that the client asked for when it opened the session, as JSON.
pub fn client_options(connection: &Connection, id: &SessionId) -> Result<Option<String>> {
    let query = "SELECT client_options FROM sessions WHERE id = ?";
    Ok(connection.prepare_cached(query)?.query_row([id.as_str()], |row| row.get(0))?)
}

/// The additional folders as they are stored.
pub(super) fn folders_json(folders: &[PathBuf]) -> Result<String> {
    let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
    Ok(serde_json::to_string(&folders)?)
}

fn require_row(count: usize) -> Result<()> {
    if count == 0 { Err(StoreError::NoSuchSession) } else { Ok(()) }
}

/// Deletes a session with those of its helpers, and the blobs that no other session uses. Returns
/// the ids of all that existed.
pub fn delete(connection: &Connection, id: &SessionId) -> Result<Vec<SessionId>> {
    let query = "SELECT key, id FROM sessions WHERE ? IN (helper_of, id)";
    let mut find = connection.prepare_cached(query)?;
    let found = find.query_map([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let all = found.collect::<Result<Vec<(i64, String)>, _>>()?;
    all.into_iter().map(|(key, id)| delete_by_key(connection, key).map(|()| id.into())).collect()
}

fn delete_by_key(connection: &Connection, session: i64) -> Result<()> {
    // Calls refer to blobs.
    connection.execute("DELETE FROM calls WHERE session = ?", [session])?;
    connection.execute(
        "DELETE FROM blobs WHERE id IN (SELECT blob FROM blob_uses WHERE session = ?1) \
         AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.id AND session <> ?1)",
        [session],
    )?;
    connection.execute("DELETE FROM sessions WHERE key = ?", [session])?;
    Ok(())
}

/// The tables and columns that a fork copies.
const COPIED_COLUMNS: &[(&str, &str)] = &[
    ("turns", "number, kind, words, begun_at, ended_at, stop, about, first_entry"),
    ("entries", "seq, turn, at, kind, message_id, body, refs"),
    (
        "calls",
        "call, seq, position, turn, message_id, tool_name, arguments, arguments_refs, status, \
         result, result_blob, card, card_refs, asked_at, begun_at, ended_at, duration_ms, spawn_task",
    ),
    ("file_versions", "turn, call, path, before, after"),
    ("blob_uses", "blob"),
];

/// Creates session `to` as a copy of session `from` as it is now, or as it was before a cursor. Rows are copied and
/// blobs are shared. In the copy, unfinished calls fail and unfinished turns are cancelled.
///
/// # Errors
/// If there is no such session, or if the session has no such cursor, or no longer has it.
pub fn fork(
    connection: &Connection,
    from: &SessionId,
    to: &SessionId,
    cursor: Option<&str>,
) -> Result<()> {
    let original = session_key(connection, from)?;
    let end = cursor.map(|cursor| find_cursor(connection, original, cursor)).transpose()?;
    let now = to_millis(SystemTime::now());
    connection.execute(
        "INSERT INTO sessions (id, cwd, real_cwd, folders, title, title_is_final, created_at, \
         updated_at, parent, mode, model, effort, minted, client_options) SELECT ?, cwd, real_cwd, \
         folders, title, title_is_final, ?, ?, id, mode, model, effort, minted, client_options \
         FROM sessions WHERE key = ?",
        params![to.as_str(), now, now, original],
    )?;
    copy_conversation(connection, (original, end), connection.last_insert_rowid(), now)
}

/// Returns the number of the first entry after a cursor, and the turn that the cursor is in.
fn find_cursor(connection: &Connection, session: i64, id: &str) -> Result<(u64, u64)> {
    let message = MessageId::at_cursor(id).ok_or(StoreError::NoSuchCursor)?;
    let mut find = connection
        .prepare_cached("SELECT seq FROM entries WHERE session = ? AND message_id = ?")?;
    let found = find.query_row(params![session, message.as_str()], |row| row.get(0)).optional()?;
    let seq: u64 = found.ok_or(StoreError::NoSuchCursor)?;
    let rewound = RewoundEntries::load(connection, session)?;
    let (page, _) = entries_page(connection, session, (seq - 1, 1), &rewound)?;
    let stored = page.first().ok_or(StoreError::NoSuchCursor)?;
    match stored.cursor(true) {
        Some(Update::Cursor { place: CursorPlace::AfterCompaction, .. }) => {
            Ok((seq + 1, stored.turn))
        }
        Some(_) => Ok((seq, stored.turn)),
        None => Err(StoreError::NoSuchCursor),
    }
}

/// Copies the conversation of session `from` into session `to`, with its title. Returns updates that withdraw the
/// cursors of what `to` had, or `None` if `to` has had a prompt: then it is not changed. The client of `to` knows
/// ids up to the number `minted`, so the ids of the copied messages differ from those.
pub fn copy_into_empty(
    connection: &Connection,
    from: &SessionId,
    to: &SessionId,
    minted: u64,
) -> Result<Option<Vec<Update>>> {
    let original = session_key(connection, from)?;
    let copy = session_key(connection, to)?;
    let query = "SELECT EXISTS (SELECT 1 FROM turns WHERE session = ? AND kind = 'prompt')";
    if connection.query_row(query, [copy], |row| row.get(0))? {
        return Ok(None);
    }
    let rewound = RewoundEntries::load(connection, copy)?;
    let mut withdrawn = Vec::new();
    each_entry::<StoreError>(connection, copy, &rewound, |stored| {
        withdrawn.extend(stored.cursor(false));
        Ok(())
    })?;
    delete_conversation(connection, copy)?;
    connection.execute(
        "UPDATE sessions SET (title, title_is_final, minted, parent) = (SELECT title, \
         title_is_final, max(minted, ?), id FROM sessions WHERE key = ?) WHERE key = ?",
        params![minted, original, copy],
    )?;
    copy_conversation(connection, (original, None), copy, to_millis(SystemTime::now()))?;
    let suffix = format!("-{minted}");
    connection.execute(
        "UPDATE entries SET message_id = message_id || ?1, \
         body = json_set(body, '$.id', message_id || ?1) \
         WHERE session = ?2 AND message_id IS NOT NULL AND json_valid(body)",
        params![suffix, copy],
    )?;
    let rename = "UPDATE calls SET message_id = message_id || ? WHERE session = ?";
    connection.execute(rename, params![suffix, copy])?;
    Ok(Some(withdrawn))
}

/// Takes a copied conversation out of the session again, because it could not be shown.
pub fn remove_copy(connection: &Connection, id: &SessionId) -> Result<()> {
    let key = session_key(connection, id)?;
    delete_conversation(connection, key)?;
    connection.execute("DELETE FROM usage WHERE session = ?", [key])?;
    let reset = "UPDATE sessions SET title = NULL, title_is_final = 0, parent = NULL WHERE key = ?";
    require_row(connection.execute(reset, [key])?)
}

fn delete_conversation(connection: &Connection, session: i64) -> Result<()> {
    for (table, _) in COPIED_COLUMNS {
        connection.execute(&format!("DELETE FROM {table} WHERE session = ?"), [session])?;
    }
    Ok(())
}

/// Copies a conversation, or only the part before `end`, an entry's number with its turn.
fn copy_conversation(
    connection: &Connection,
    (original, end): (i64, Option<(u64, u64)>),
    copy: i64,
    now: i64,
) -> Result<()> {
    for (table, columns) in COPIED_COLUMNS {
        connection.execute(
            &format!(
                "INSERT INTO {table} (session, {columns}) SELECT ?, {columns} FROM {table} WHERE \
                 session = ?"
            ),
            params_from_iter([copy, original]),
        )?;
    }
    if let Some((end, turn)) = end {
        connection.execute_batch(&format!(
            "DELETE FROM entries WHERE session = {copy} AND seq >= {end}; \
             DELETE FROM calls WHERE session = {copy} AND seq >= {end}; \
             DELETE FROM file_versions WHERE session = {copy} AND (turn > {turn} OR turn = {turn} \
             AND call NOT IN (SELECT call FROM calls WHERE session = {copy})); \
             DELETE FROM turns WHERE session = {copy} AND number >= {turn} AND NOT EXISTS \
             (SELECT 1 FROM entries WHERE session = {copy} AND entries.turn = number)"
        ))?;
    }
    let last_turn = end.map(|end| end.1);
    // A goal belongs to the original alone, or two sessions would work on it.
    connection.execute("DELETE FROM entries WHERE session = ? AND kind = 'goal'", [copy])?;
    // The keys of prompts are those of the original session.
    connection.execute(
        "UPDATE entries SET body = json_remove(body, '$.message.user.submission') \
         WHERE session = ? AND kind = 'message' AND body LIKE '%\"submission\":%'",
        [copy],
    )?;
    // The use of the context window is copied; the costs belong to the original.
    connection.execute(
        "INSERT INTO usage (session, turn, at, model, input, output, cached, window) SELECT ?, \
         turn, at, model, input, output, cached, window FROM usage WHERE session = ? AND window IS \
         NOT NULL AND (?3 IS NULL OR turn < ?3) ORDER BY id DESC LIMIT 1",
        params![copy, original, last_turn],
    )?;
    for call in unfinished_calls(connection, copy)? {
        finish_call(connection, copy, (&call.call, call.turn, now), &forked_outcome(&call))?;
    }
    connection.execute(
        "UPDATE turns SET ended_at = coalesce(ended_at, ?), stop = 'cancelled' WHERE session = ? \
         AND (ended_at IS NULL OR number = ?)",
        params![now, copy, last_turn],
    )?;
    Ok(())
}

/// The outcome, in the copy, of a call that was unfinished in the original.
fn forked_outcome(call: &CallRow) -> CallOutcome {
    let text = match call.status {
        CallStatus::Running => {
            "The conversation was copied while this was running in the original. It may or may not \
             have taken effect: look before you repeat it."
        }
        _ => {
            "The conversation was copied before this was run. Nothing was done here; the original \
             may have run it since."
        }
    };
    let mut outcome = call.outcome.clone();
    outcome.is_success = false;
    text.clone_into(&mut outcome.text);
    outcome.content = vec![turnwright_types::effect::CallContent::Text(text.to_owned())];
    outcome.raw_output = serde_json::json!({ "message": text });
    outcome
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSummary {
    pub row: SessionRow,
    /// The number of prompts to the model.
    pub turns: u64,
    /// The beginning of the first prompt.
    pub words: String,
    /// It is the conversation of a helper of another session.
    pub is_helper: bool,
}

/// All sessions, the most recently used first.
pub fn session_summaries(connection: &Connection) -> Result<Vec<SessionSummary>> {
    let query = format!(
        "SELECT {SESSION_COLUMNS}, \
         (SELECT count(*) FROM turns WHERE session = sessions.key AND kind = 'prompt'), \
         coalesce((SELECT words FROM turns WHERE session = sessions.key \
         ORDER BY kind = 'prompt' DESC, number LIMIT 1), ''), helper_of IS NOT NULL FROM sessions ORDER BY updated_at DESC, key DESC"
    );
    let mut find = connection.prepare_cached(&query)?;
    let rows = find.query_map([], |row| {
        Ok(SessionSummary {
            row: session_row(row)?,
            turns: row.get(15)?,
            words: row.get(16)?,
            is_helper: row.get(17)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
