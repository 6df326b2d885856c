//! Which turns have changed which files, which of them were undone, and where prompts begin.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::read::value_path;
use super::{Durability, Gone, Log, StoreError, Ticket, TurnKind};
use turnwright_types::file_change::{Change, FileState};
use turnwright_types::ids::CallId;

/// A turn as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Which.
    pub number: u64,
    /// What sort.
    pub kind: TurnKind,
    /// The beginning of what the user has typed.
    pub words: String,
    /// The turns that it undoes or does again.
    pub about: Vec<u64>,
    /// The process did not end first.
    pub has_ended: bool,
    /// It has changed files, or was about to.
    pub has_files: bool,
}

/// What a call has done to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// In which turn.
    pub turn: u64,
    /// By which call.
    pub call: CallId,
    /// What.
    pub change: Change,
}

/// A prompt that the conversation can go back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptRow {
    /// Its entry.
    pub seq: u64,
    /// Its turn.
    pub turn: u64,
    /// Its beginning.
    pub words: String,
}

impl Log {
    /// The turn that runs undoes these turns, or does them again.
    pub fn about(&self, turns: &[u64]) -> Ticket {
        let (turn, about) = (self.turn(), serde_json::json!(turns).to_string());
        self.post(Durability::Process, move |connection, session| {
            connection
                .prepare_cached("UPDATE turns SET about = ? WHERE session = ? AND number = ?")?
                .execute(params![about, session, turn])?;
            Ok(())
        })
    }
}

/// All turns of a session, in order.
///
/// # Errors
/// When the store cannot be read.
pub fn turns(connection: &Connection, session: i64) -> Result<Vec<TurnRow>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT number, kind, words, about, ended_at IS NOT NULL, EXISTS (SELECT 1 FROM \
         file_versions AS it WHERE it.session = turns.session AND it.turn = turns.number AND \
         (it.after IS NULL OR it.after <> it.before)) FROM turns WHERE session = ? ORDER BY number",
    )?;
    let rows = find.query_map([session], |row| {
        let about: Option<String> = row.get(3)?;
        Ok(TurnRow {
            number: row.get(0)?,
            kind: TurnKind::parse(&row.get::<_, String>(1)?),
            words: row.get(2)?,
            about: about.and_then(|it| serde_json::from_str(&it).ok()).unwrap_or_default(),
            has_ended: row.get(4)?,
            has_files: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What turns have done to files, in order.
///
/// # Errors
/// When the store cannot be read.
pub fn versions(
    connection: &Connection,
    session: i64,
    turns: &[u64],
) -> Result<Vec<Version>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT turn, call, path, before, after FROM file_versions WHERE session = ? AND turn = ? \
         ORDER BY id",
    )?;
    let mut all = Vec::new();
    for turn in turns {
        let mut rows = find.query(params![session, turn])?;
        while let Some(row) = rows.next()? {
            all.push(version(row)?);
        }
    }
    Ok(all)
}

fn version(row: &Row<'_>) -> Result<Version, StoreError> {
    let after: Option<String> = row.get(4)?;
    Ok(Version {
        turn: row.get(0)?,
        call: CallId::from(row.get::<_, String>(1)?),
        change: Change {
            path: value_path(row.get_ref(2)?),
            before: state(&row.get::<_, String>(3)?),
            after: after.as_deref().map(state),
        },
    })
}

/// What a newer program has written is nothing that could be restored.
fn state(text: &str) -> FileState {
    serde_json::from_str(text).unwrap_or_else(|error| FileState::Unknown { why: error.to_string() })
}

/// Whether the bytes with that SHA-256 in hexadecimal are kept.
///
/// # Errors
/// When the store cannot be read.
pub fn has_bytes(connection: &Connection, hash: &str) -> Result<bool, StoreError> {
    let Some(digits) = digits(hash) else { return Ok(false) };
    let mut find = connection.prepare_cached("SELECT 1 FROM blobs WHERE hash = ?")?;
    Ok(find.query_row([digits], |_| Ok(())).optional()?.is_some())
}

fn digits(hash: &str) -> Option<Vec<u8>> {
    let digit = |it: usize| u8::from_str_radix(hash.get(it * 2..it * 2 + 2)?, 16).ok();
    (0..hash.len() / 2).map(digit).collect()
}

/// The prompts that still count, in order.
///
/// # Errors
/// When the store cannot be read.
pub fn prompts(
    connection: &Connection,
    session: i64,
    gone: &Gone,
) -> Result<Vec<PromptRow>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT min(entries.seq), turns.number, turns.words FROM turns JOIN entries ON \
         entries.session = turns.session AND entries.turn = turns.number WHERE turns.session = ? \
         AND turns.kind = 'prompt' GROUP BY turns.number ORDER BY turns.number",
    )?;
    let rows = find.query_map([session], |row| {
        Ok(PromptRow { seq: row.get(0)?, turn: row.get(1)?, words: row.get(2)? })
    })?;
    let mut all = rows.collect::<Result<Vec<_>, _>>()?;
    all.retain(|it| !gone.holds(it.seq));
    Ok(all)
}

/// The session of a folder in which something happened last.
///
/// # Errors
/// When there is none.
pub fn newest_of(
    connection: &Connection,
    folders: &[std::path::PathBuf],
) -> Result<turnwright_types::ids::SessionId, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT id, updated_at FROM sessions WHERE cwd = ? ORDER BY updated_at DESC, key DESC \
         LIMIT 1",
    )?;
    let mut newest: Option<(i64, String)> = None;
    for folder in folders {
        let row = |it: &Row<'_>| Ok((it.get::<_, i64>(1)?, it.get::<_, String>(0)?));
        let found = find.query_row([super::read::path_value(folder)], row).optional()?;
        newest = newest.max(found);
    }
    newest.map(|it| it.1.into()).ok_or(StoreError::NoSuchSession)
}
