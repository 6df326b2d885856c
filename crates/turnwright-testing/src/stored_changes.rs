//! Reads the file changes of turns from the session store.

use std::fs;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::{TestAgent, Transport};

fn open_store<T: Transport>(agent: &TestAgent<T>) -> Connection {
    let path = agent.home().join("state/sessions.db");
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// Returns the stored changes, one for each file and call, as `path: before → after`.
pub fn file_changes<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let store = open_store(agent);
    let mut all = store
        .prepare("SELECT path, before, after FROM file_versions ORDER BY turn, id, path")
        .unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        let (path, before): (String, String) = (row.get(0)?, row.get(1)?);
        let after: Option<String> = row.get(2)?;
        let root = fs::canonicalize(agent.workspace()).unwrap();
        // The standard library names a folder of Windows with this prefix.
        let root = root.to_str().unwrap().trim_start_matches(r"\\?\");
        let path = path.strip_prefix(root).map_or(&*path, |it| &it[1..]).replace('\\', "/");
        let after = after.map_or("?".to_owned(), |it| state(&store, &it));
        Ok(format!("{path}: {} → {after}", state(&store, &before)))
    };
    let mut all: Vec<_> = all.query_map([], row).unwrap().map(Result::unwrap).collect();
    all.sort();
    all
}

/// Describes the state of a file: its text if the store has it, and otherwise its size.
fn state(store: &Connection, state: &str) -> String {
    let state: Value = serde_json::from_str(state).unwrap();
    if let Some(name) = state.as_str() {
        return name.to_owned();
    }
    let file = &state["file"];
    if file.is_object() {
        let hash = file["hash"].as_str().unwrap();
        assert_eq!(hash.len(), 64);
        let mode = match file["mode"].as_u64().unwrap() {
            // It depends on the umask of the tests.
            mode if mode & 0o111 == 0 => String::new(),
            mode => format!(" {mode:o}"),
        };
        if file["is_kept"] == false {
            return format!("lost {}{mode}", file["size"]);
        }
        let bytes: Vec<u8> = store
            .query_row("SELECT bytes FROM blobs WHERE lower(hex(hash)) = ?", [hash], |it| it.get(0))
            .unwrap_or_else(|_| panic!("the store does not have the bytes: {state}"));
        assert_eq!(file["size"], bytes.len());
        return format!("{:?}{mode}", String::from_utf8_lossy(&bytes));
    }
    match (state["link"]["target"].as_str(), state["unknown"]["why"].as_str()) {
        (Some(target), _) => format!("link {target}"),
        (_, Some(why)) => format!("unknown {why}"),
        _ => "folder".to_owned(),
    }
}
