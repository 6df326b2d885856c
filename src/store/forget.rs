//! How a session is forgotten, and with it what no other session needs.

use rusqlite::{Connection, params};

use super::StoreError;
use crate::ids::SessionId;

/// Forgets a session. Returns whether there was one.
///
/// # Errors
/// When the store cannot be written.
pub fn forget(connection: &Connection, session: &SessionId) -> Result<bool, StoreError> {
    // Calls point to blobs: they go first.
    let used = "SELECT blob FROM blob_uses WHERE session = (SELECT key FROM sessions WHERE id = ?)";
    let mut find = connection.prepare_cached(used)?;
    let blobs: Vec<i64> =
        find.query_map([session.as_str()], |it| it.get(0))?.collect::<Result<_, _>>()?;
    let count =
        connection.execute("DELETE FROM sessions WHERE id = ?", params![session.as_str()])?;
    let mut remove = connection.prepare_cached(
        "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = ?1)",
    )?;
    for blob in blobs {
        remove.execute([blob])?;
    }
    Ok(count > 0)
}
