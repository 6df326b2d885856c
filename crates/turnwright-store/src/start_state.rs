//! The state of the project when a session first changed something, from which a task for an evaluation can be made.

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::{PendingWrite, SessionLog, StoreError};
use crate::blobs::put_file_content;
use crate::database::execute;
use crate::read::blob_by_hash;
use turnwright_types::hash::sha256_hex;

/// The state of a project in a git repository. Its column has the hashes of the contents, which are blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartState<C = Vec<u8>> {
    /// The id of the commit.
    pub commit: String,
    /// The changes that were not committed, as `git diff --binary` prints them.
    pub patch: Option<C>,
    /// The new files, by their path in the repository.
    pub untracked: Vec<(String, C)>,
    /// Why something is not there, in words.
    pub incomplete: Option<String>,
}

impl<C> StartState<C> {
    /// A copy with other contents.
    fn map_contents<D>(
        &self,
        mut change: impl FnMut(&C) -> Result<D, StoreError>,
    ) -> Result<StartState<D>, StoreError> {
        let patch = self.patch.as_ref().map(&mut change).transpose()?;
        let files = self.untracked.iter();
        let changed = files.map(|(path, old)| change(old).map(|new| (path.clone(), new)));
        let untracked = changed.collect::<Result<_, StoreError>>()?;
        let StartState { commit, incomplete, .. } = self;
        Ok(StartState { commit: commit.clone(), patch, untracked, incomplete: incomplete.clone() })
    }
}

impl SessionLog {
    /// Stores the state of the project at the start, unless the session has one already, or has changed files before
    /// one was kept. That of a helper is the state of its session.
    pub fn set_start(&self, state: StartState) -> PendingWrite {
        let contents = state.untracked.iter().map(|(_, content)| content).chain(&state.patch);
        let size: usize = contents.map(Vec::len).sum();
        self.of_session().submit_sized(size, move |connection, session| {
            let known = "SELECT start IS NOT NULL OR EXISTS \
                         (SELECT 1 FROM file_versions WHERE session = key) FROM sessions WHERE key = ?";
            if connection.query_row(known, [session], |row| row.get(0))? {
                return Ok(());
            }
            let stored = state.map_contents(|content| {
                if !content.is_empty() {
                    put_file_content(connection, session, content)?;
                }
                Ok(sha256_hex(content))
            })?;
            let text = serde_json::to_string(&stored)?;
            let update = "UPDATE sessions SET start = ? WHERE key = ?";
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
    let Some(text) = text else { return Ok(None) };
    let stored: StartState<String> = serde_json::from_str(&text)?;
    let mut is_whole = true;
    let mut state = stored.map_contents(|hash| {
        let found = blob_by_hash(connection, hash)?;
        is_whole &= found.is_some() || *hash == sha256_hex(b"");
        Ok(found.unwrap_or_default())
    })?;
    if !is_whole {
        state.incomplete = Some("a part of it is not in the store any more".to_owned());
    }
    Ok(Some(state))
}

/// The prompts of a session, as the user typed them.
pub fn prompt_texts(connection: &Connection, session: i64) -> Result<Vec<String>, StoreError> {
    let mut find = connection.prepare(
        "SELECT prompts.words FROM prompts JOIN turns ON turns.session = prompts.session AND turns.number = \
         prompts.number WHERE prompts.session = ? AND turns.kind = 'prompt' ORDER BY prompts.number",
    )?;
    let found = find.query_map([session], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
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
        let state = StartState {
            commit: "c".to_owned(),
            patch: Some(b"diff".to_vec()),
            untracked: vec![("a b".to_owned(), b"x".to_vec()), ("empty".to_owned(), Vec::new())],
            incomplete: None,
        };
        log.set_start(state.clone()).written().await;
        log.set_start(StartState::default()).written().await;
        let found = store.read_blocking(|connection| {
            let key = read::session_key(connection, &id)?;
            Ok((start_state(connection, key)?, prompt_texts(connection, key)?))
        });
        assert_eq!(found.unwrap(), (Some(state), Vec::new()));
    }
}
