//! The sessions that are kept, for the command line.

use rusqlite::Connection;

use super::read::{SESSION, session_row};
use super::{SessionRow, StoreError};

/// A session among the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Shelved {
    /// What is known of it.
    pub row: SessionRow,
    /// How many turns it has.
    pub turns: u64,
    /// The beginning of its first prompt.
    pub words: String,
}

/// All sessions, the one that was used last first.
///
/// # Errors
/// When the store cannot be read.
pub fn shelf(connection: &Connection) -> Result<Vec<Shelved>, StoreError> {
    let query = format!(
        "SELECT {SESSION}, (SELECT count(*) FROM turns WHERE session = sessions.key), \
         coalesce((SELECT words FROM turns WHERE session = sessions.key ORDER BY number LIMIT 1), \
         '') FROM sessions ORDER BY updated_at DESC, key DESC"
    );
    let mut find = connection.prepare_cached(&query)?;
    let rows = find.query_map([], |row| {
        Ok(Shelved { row: session_row(row)?, turns: row.get(15)?, words: row.get(16)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
