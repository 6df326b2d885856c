//! The state of the project when a session first changed something, from which a task for an evaluation can be made.

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::{PendingWrite, Result, SessionLog};
use crate::blobs::put_file_content;
use crate::read::blob_by_hash;
use turnwright_types::hash::sha256_hex;

/// The state of a project in a git repository. Its column has the hash of the changes, which are a blob: writes to
/// the session's row would write them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartState {
    /// The id of the commit.
    pub commit: String,
    /// The changes that were not committed, with the new files, as `git diff --binary` prints them.
    pub changes: String,
    /// Why the changes are not there, in words.
    pub incomplete: Option<String>,
}

impl SessionLog {
    /// Stores the state of the project at the start, unless the session has one already, or has changed files before
    /// one was kept. That of a helper is the state of its session.
    pub fn set_start(&self, state: StartState) -> PendingWrite {
        let StartState { commit, changes, incomplete } = state;
        self.of_session().submit_sized(changes.len(), move |connection, session| {
            let bytes = changes.as_bytes();
            let stored = StartState {
                commit: commit.clone(),
                changes: if bytes.is_empty() { String::new() } else { sha256_hex(bytes) },
                incomplete: incomplete.clone(),
            };
            let text = serde_json::to_string(&stored)?;
            let update = "UPDATE sessions SET start = ? WHERE key = ? AND start IS NULL \
                          AND NOT EXISTS (SELECT 1 FROM file_versions WHERE session = key)";
            let is_new = connection.execute(update, params![text, session])? > 0;
            if is_new && !bytes.is_empty() {
                put_file_content(connection, session, bytes)?;
            }
            Ok(())
        })
    }
}

/// The state of the project at the start of a session; `None` if it was not kept.
pub fn start_state(connection: &Connection, session: i64) -> Result<Option<StartState>> {
    let query = "SELECT start FROM sessions WHERE key = ?";
    let text: Option<String> =
        connection.query_row(query, [session], |row| row.get(0)).optional()?.flatten();
    let Some(text) = text else { return Ok(None) };
    let Ok(stored) = serde_json::from_str::<StartState>(&text) else {
        return Ok(Some(lost("another version of this program has stored it in its own form")));
    };
    if stored.changes.is_empty() {
        return Ok(Some(stored));
    }
    let bytes = blob_by_hash(connection, &stored.changes)?;
    Ok(Some(match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(changes) => StartState { changes, ..stored },
        None => lost("a part of it is not in the store any more"),
    }))
}

/// Stands for a state that cannot be read.
fn lost(why: &str) -> StartState {
    StartState { incomplete: Some(why.to_owned()), ..StartState::default() }
}

/// The first prompt of a session, as the user typed it.
pub fn first_prompt(connection: &Connection, session: i64) -> Result<Option<String>> {
    let query = "SELECT prompts.words FROM prompts JOIN turns ON turns.session = prompts.session AND \
                 turns.number = prompts.number WHERE prompts.session = ? AND turns.kind = 'prompt' \
                 ORDER BY prompts.number LIMIT 1";
    Ok(connection.query_row(query, [session], |row| row.get(0)).optional()?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{SessionRow, Store, read};
    use turnwright_types::ids::SessionId;

    #[tokio::test]
    async fn the_first_start_is_kept_with_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let id = SessionId::from("s");
        let log = SessionLog::new(store.clone(), id.clone());
        log.create_session(SessionRow::new(id.clone(), PathBuf::from("/w"))).written().await;
        let state =
            StartState { commit: "c".to_owned(), changes: "diff".to_owned(), incomplete: None };
        log.set_start(state.clone()).written().await;
        log.set_start(StartState::default()).written().await;
        let found = store.read_blocking(|connection| {
            let key = read::session_key(connection, &id)?;
            let column: String =
                connection.query_row("SELECT start FROM sessions", [], |row| row.get(0))?;
            assert!(!column.contains("diff"), "{column}");
            Ok((start_state(connection, key)?, first_prompt(connection, key)?))
        });
        assert_eq!(found.unwrap(), (Some(state), None));
    }

    #[test]
    fn the_form_of_another_version_is_no_error() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE sessions (key INTEGER, start TEXT)").unwrap();
        let old = r#"{"commit":"c","patch":"hash","untracked":[["a","hash"]],"incomplete":null}"#;
        connection.execute("INSERT INTO sessions VALUES (1, ?)", [old]).unwrap();
        let found = start_state(&connection, 1).unwrap().unwrap();
        assert!(found.incomplete.unwrap().starts_with("another version of this program"));
        assert_eq!(start_state(&connection, 2).unwrap(), None);
    }
}
