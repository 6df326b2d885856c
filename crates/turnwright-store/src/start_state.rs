//! The state of the project when a session first changed something, from which a task for an evaluation can be made.

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::{PendingWrite, SessionLog, StoreError};
use crate::database::execute;

/// The state of a project in a git repository.
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
        self.of_session().submit_sized(state.changes.len(), move |connection, session| {
            let text = serde_json::to_string(&state)?;
            let update = "UPDATE sessions SET start = ? WHERE key = ? AND start IS NULL \
                          AND NOT EXISTS (SELECT 1 FROM file_versions WHERE session = key)";
            execute(connection, update, params![text, session])
        })
    }
}

/// The state of the project at the start of a session; `None` if it was not kept.
pub fn start_state(
    connection: &Connection,
    session: i64,
) -> Result<Option<StartState>, StoreError> {
    let query = "SELECT start FROM sessions WHERE key = ?";
    let text: Option<String> =
        connection.query_row(query, [session], |row| row.get(0)).optional()?.flatten();
    Ok(text.map(|text| serde_json::from_str(&text).unwrap_or_else(|_| of_another_version())))
}

/// Stands for a state that was stored in a form that is not known.
fn of_another_version() -> StartState {
    let why = "another version of this program has stored it in its own form";
    StartState { incomplete: Some(why.to_owned()), ..StartState::default() }
}

/// The first prompt of a session, as the user typed it.
pub fn first_prompt(connection: &Connection, session: i64) -> Result<Option<String>, StoreError> {
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
        assert_eq!(start_state(&connection, 1).unwrap(), Some(of_another_version()));
        assert_eq!(start_state(&connection, 2).unwrap(), None);
    }
}
