//! Which turns have changed which files, which turns an undo or redo was about, and the prompts
//! that a conversation can be rewound to and back.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::blobs;
use super::read::path_from_value;
use super::{PendingWrite, Result, RewoundEntries, SessionLog, TurnKind};
use crate::database::execute;
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::hash::parse_hex;

/// A turn with what undo and redo have to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoableTurn {
    pub number: u64,
    pub kind: TurnKind,
    /// The beginning of the user's text.
    pub prompt_excerpt: String,
    /// The turns that an undo or redo was about.
    pub target_turns: Vec<u64>,
    /// False if the process ended before the turn did.
    pub has_ended: bool,
    /// True if the turn has changed files or was about to.
    pub has_file_changes: bool,
    /// Why it is unknown what some of its commands have changed.
    pub uncovered: Option<String>,
    /// True if an undo or redo has left files as they were though it should not.
    pub has_failures: bool,
}

/// A prompt that the conversation can be rewound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptRow {
    /// The sequence number of its first entry.
    pub seq: u64,
    pub turn: u64,
    /// The beginning of the prompt.
    pub prompt_excerpt: String,
}

/// A rewind of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewindRow {
    /// The sequence number of its entry.
    pub seq: u64,
    pub turn: u64,
}

impl SessionLog {
    /// Records which turns the current undo or redo is about.
    pub fn set_target_turns(&self, turns: &[u64]) -> PendingWrite {
        let turn = self.turn();
        let about = serde_json::json!(turns).to_string();
        self.submit(move |connection, session| {
            let update = "UPDATE turns SET about = ? WHERE session = ? AND number = ?";
            execute(connection, update, params![about, session, turn])
        })
    }
}

/// All turns of a session, in order.
pub fn undoable_turns(connection: &Connection, session: i64) -> Result<Vec<UndoableTurn>> {
    let mut find = connection.prepare_cached(
        "SELECT number, kind, words, about, ended_at IS NOT NULL, EXISTS (SELECT 1 FROM \
         file_versions AS it WHERE it.session = turns.session AND it.turn = turns.number AND \
         it.path <> '' AND (it.after IS NULL OR it.after <> it.before)), (SELECT \
         coalesce(it.after, it.before) FROM file_versions AS it WHERE it.session = turns.session \
         AND it.turn = turns.number AND it.path = '' LIMIT 1), EXISTS (SELECT 1 FROM calls WHERE \
         calls.session = turns.session AND calls.call = 'undo-' || turns.number AND status = \
         'error') FROM turns WHERE session = ? ORDER BY number",
    )?;
    let rows = find.query_map([session], |row| {
        let about: Option<String> = row.get(3)?;
        Ok(UndoableTurn {
            number: row.get(0)?,
            kind: TurnKind::parse(&row.get::<_, String>(1)?),
            prompt_excerpt: row.get(2)?,
            target_turns: about
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
            has_ended: row.get(4)?,
            has_file_changes: row.get(5)?,
            uncovered: row.get::<_, Option<String>>(6)?.map(|state| match parse_state(&state) {
                FileState::Unknown { why } => why,
                _ => String::new(),
            }),
            has_failures: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The changes of a turn, without those that comparing files attributes to a command, though the edits of another
/// session have made them in that time. A fork has copies of the edits, which were asked for at the same time. Of a
/// turn without an end, a day counts: else all later calls would be looked at.
const OWN_CHANGES: &str = "SELECT path, before, after FROM file_versions AS own WHERE session = ?1
  AND turn = ?2 AND path <> '' AND (EXISTS (SELECT 1 FROM calls WHERE session = ?1
    AND call = own.call AND tool_name NOT IN ('exec', 'exec_output'))
  OR (path, replace(coalesce(after, ''), 'false', 'true')) NOT IN (
    SELECT path, replace(after, 'false', 'true')
    FROM (SELECT begun_at AS since, coalesce(ended_at, begun_at + 86400000) AS until
      FROM turns WHERE session = ?1 AND number = ?2)
    JOIN calls ON asked_at BETWEEN since - 86400000 AND until AND ended_at BETWEEN since AND until
    JOIN file_versions AS other ON (other.session, other.turn, other.call)
      = (calls.session, calls.turn, calls.call)
    WHERE calls.session <> ?1 AND path <> '' AND after IS NOT NULL
      AND tool_name NOT IN ('exec', 'exec_output')
      AND (calls.call, asked_at) NOT IN (SELECT call, asked_at FROM calls WHERE session = ?1)))
  ORDER BY id";

/// The file changes of these turns, in order.
pub fn file_versions(
    connection: &Connection,
    session: i64,
    turns: &[u64],
) -> Result<Vec<FileChange>> {
    let mut find = connection.prepare_cached(OWN_CHANGES)?;
    let mut all = Vec::new();
    for turn in turns {
        for change in find.query_map(params![session, turn], file_change)? {
            all.push(change?);
        }
    }
    Ok(all)
}

/// The files that the calls of a session have changed, each with the number of calls, the one that
/// was changed last first.
pub fn changed_files(
    connection: &Connection,
    session: i64,
    call_prefix: &str,
    most: usize,
) -> Result<Vec<(PathBuf, u64)>> {
    let mut find = connection.prepare_cached(
        "SELECT path, count(*) FROM file_versions WHERE session = ?1 AND substr(call, 1, length(?2)) \
         = ?2 AND path <> '' GROUP BY path ORDER BY max(id) DESC LIMIT ?3",
    )?;
    let rows = find.query_map(params![session, call_prefix, most], |row| {
        Ok((path_from_value(row.get_ref(0)?), row.get(1)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn file_change(row: &Row<'_>) -> rusqlite::Result<FileChange> {
    let after: Option<String> = row.get(2)?;
    Ok(FileChange {
        path: path_from_value(row.get_ref(0)?),
        before: parse_state(&row.get::<_, String>(1)?),
        after: after.as_deref().map(parse_state),
    })
}

/// A state that only a newer version understands cannot be restored.
fn parse_state(text: &str) -> FileState {
    serde_json::from_str(text).unwrap_or_else(|error| FileState::Unknown { why: error.to_string() })
}

/// Returns true if the bytes with this SHA-256, in hexadecimal, can be read.
pub fn has_blob(connection: &Connection, hash: &str) -> Result<bool> {
    parse_hex(hash).map_or(Ok(false), |hash| blobs::is_readable(connection, &hash))
}

/// The prompts that were not rewound, in order.
pub fn prompt_rows(
    connection: &Connection,
    session: i64,
    rewound: &RewoundEntries,
) -> Result<Vec<PromptRow>> {
    let mut find = connection.prepare_cached(
        "SELECT min(entries.seq), turns.number, turns.words FROM turns JOIN entries ON \
         entries.session = turns.session AND entries.turn = turns.number WHERE turns.session = ? \
         AND turns.kind = 'prompt' GROUP BY turns.number ORDER BY turns.number",
    )?;
    let rows = find.query_map([session], |row| {
        Ok(PromptRow { seq: row.get(0)?, turn: row.get(1)?, prompt_excerpt: row.get(2)? })
    })?;
    let mut all = rows.collect::<Result<Vec<_>, _>>()?;
    all.retain(|row| !rewound.contains(row.seq));
    Ok(all)
}

/// The last rewind, if it can be undone: since then there was no prompt, and the conversation was not
/// cleared.
pub fn undoable_rewind(
    connection: &Connection,
    session: i64,
    rewound: &RewoundEntries,
) -> Result<Option<RewindRow>> {
    let Some(seq) = rewound.last_rewind() else { return Ok(None) };
    let mut find = connection.prepare_cached(
        "SELECT turn FROM entries AS it WHERE session = ?1 AND seq = ?2 AND NOT EXISTS (SELECT 1 \
         FROM turns WHERE session = ?1 AND kind = 'prompt' AND number > it.turn) AND NOT EXISTS \
         (SELECT 1 FROM entries WHERE session = ?1 AND kind = 'cleared' AND seq > ?2)",
    )?;
    let found =
        find.query_row(params![session, seq], |row| Ok(RewindRow { seq, turn: row.get(0)? }));
    Ok(found.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::fork;

    #[test]
    fn what_another_session_edits_while_a_command_runs_is_not_the_commands() {
        let connection = crate::database::open_in_memory().unwrap();
        let file = |hash: &str, is_kept: bool| {
            format!(r#"{{"file":{{"hash":"{hash}","size":1,"mode":420,"is_kept":{is_kept}}}}}"#)
        };
        let insert = "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES
               (1, 'ours', '/w', 0, 0), (2, 'theirs', '/w', 0, 0);
             INSERT INTO turns (session, number, kind, begun_at, ended_at) VALUES
               (1, 1, 'prompt', 1000, 9000), (2, 1, 'prompt', 500, 8000);
             INSERT INTO calls (session, call, seq, position, turn, message_id, tool_name, arguments,
               status, asked_at, ended_at) VALUES
               (1, 'call-1', 1, 0, 1, 'm', 'exec', '{}', 'success', 1100, 5000),
               (1, 'call-2', 2, 0, 1, 'm', 'edit_file', '{}', 'success', 6000, 6100),
               (2, 'call-1', 1, 0, 1, 'm', 'edit_file', '{}', 'success', 2000, 2100),
               (2, 'call-2', 2, 0, 1, 'm', 'exec', '{}', 'success', 1100, 7000);";
        connection.execute_batch(insert).unwrap();
        for (session, call, path, after) in [
            (1, "call-1", "/w/theirs", file("b", false)),
            (1, "call-1", "/w/made", file("b", true)),
            (1, "call-2", "/w/edited", file("b", true)),
            (2, "call-1", "/w/theirs", file("b", true)),
            (2, "call-2", "/w/made", file("b", true)),
            (2, "call-2", "/w/theirs", file("b", true)),
        ] {
            let insert = "INSERT INTO file_versions (session, turn, call, path, before, after) \
                          VALUES (?, 1, ?, ?, ?, ?)";
            connection
                .execute(insert, params![session, call, path, file("a", true), after])
                .unwrap();
        }
        let paths = |session: i64| -> Vec<String> {
            let found = file_versions(&connection, session, &[1]).unwrap();
            found.iter().map(|change| change.path.display().to_string()).collect()
        };
        assert_eq!(paths(1), ["/w/made", "/w/edited"]);
        let all = ["/w/theirs", "/w/made", "/w/theirs"];
        assert_eq!(paths(2), all);
        fork(&connection, &"theirs".into(), &"copy".into(), None).unwrap();
        assert_eq!(paths(2), all);
    }
}
