//! Summaries of all sessions, for the command line.

use rusqlite::Connection;

use super::read::{SESSION_COLUMNS, session_row};
use super::{SessionRow, StoreError, schema};

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
pub fn session_summaries(connection: &Connection) -> Result<Vec<SessionSummary>, StoreError> {
    // A reader may see the database before its migration.
    let helper = if schema::has_helpers(connection)? { "helper_of IS NOT NULL" } else { "0" };
    let query = format!(
        "SELECT {SESSION_COLUMNS}, \
         (SELECT count(*) FROM turns WHERE session = sessions.key AND kind = 'prompt'), \
         coalesce((SELECT words FROM turns WHERE session = sessions.key \
         ORDER BY kind = 'prompt' DESC, number LIMIT 1), ''), {helper} FROM sessions ORDER BY updated_at DESC, key DESC"
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
