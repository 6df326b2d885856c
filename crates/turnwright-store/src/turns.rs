//! The turns of a session: when they ran and how they ended.

use std::time::SystemTime;

use rusqlite::Connection;

use super::read::time_from_millis;
use super::{StoreError, TurnKind};

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
pub(crate) fn turn_rows(connection: &Connection, session: i64) -> Result<Vec<TurnRow>, StoreError> {
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
