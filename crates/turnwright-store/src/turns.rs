//! The turns of a session: when they were, and how they ended.

use std::time::SystemTime;

use rusqlite::Connection;

use super::read::moment;
use super::{StoreError, TurnKind};

/// A turn as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Counted from 1.
    pub number: u64,
    /// What sort of turn.
    pub kind: TurnKind,
    /// The beginning of what the user has typed.
    pub words: String,
    /// When it began.
    pub begun: SystemTime,
    /// When it ended; `None` if the process ended first, or if it still runs.
    pub ended: Option<SystemTime>,
    /// A word for why.
    pub stop: Option<String>,
}

/// All turns of a session, in order.
///
/// # Errors
/// When the store cannot be read.
pub fn turns(connection: &Connection, session: i64) -> Result<Vec<TurnRow>, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT number, kind, words, begun_at, ended_at, stop FROM turns WHERE session = ? ORDER \
         BY number",
    )?;
    let rows = find.query_map([session], |row| {
        Ok(TurnRow {
            number: row.get(0)?,
            kind: TurnKind::parse(&row.get::<_, String>(1)?),
            words: row.get(2)?,
            begun: moment(row.get(3)?),
            ended: row.get::<_, Option<i64>>(4)?.map(moment),
            stop: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
