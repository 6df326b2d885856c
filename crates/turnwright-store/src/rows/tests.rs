//! The stored format: what an older build has written is read, and after it was written again it is
//! the same.

use std::sync::Arc;

use flate2::read::GzDecoder;
use rusqlite::Connection;
use serde_json::json;

use crate::database;
use crate::file_versions;
use crate::read;
use crate::rows;
use crate::rows::json::Stored;
use crate::rows::{AsStored, CardJson};
use crate::session_summaries;
use crate::turn_rows;
use crate::{CallRow, Entry, RewoundEntries, SessionRow, StoredEntry};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Arguments, Message};

const OLD_DATABASE: &[u8] =
    include_bytes!("../../../../tests/data/database-937d324/sessions.db.gz");

/// The columns that are written as they were.
const UNCHANGED_COLUMNS: [&str; 2] = [
    "SELECT folders FROM sessions ORDER BY id",
    "SELECT before || coalesce(after, '') FROM file_versions JOIN sessions ON key = session \
     ORDER BY sessions.id, file_versions.id",
];

#[test]
fn every_row_of_an_old_database_is_the_same_after_it_was_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let mut file = std::fs::File::create(&path).unwrap();
    std::io::copy(&mut GzDecoder::new(OLD_DATABASE), &mut file).unwrap();
    let old = database::open_writer(Some(&path)).unwrap();
    let new = database::open_writer(None).unwrap();
    for summary in session_summaries(&old).unwrap() {
        let from = read::session_key(&old, &summary.row.id).unwrap();
        let to = rows::insert_session(&new, &summary.row).unwrap();
        copy_entries((&old, from), (&new, to));
        assert_eq!(conversation(&new, to), conversation(&old, from));
        let turns: Vec<_> = turn_rows(&old, from).unwrap().iter().map(|turn| turn.number).collect();
        for version in file_versions::file_versions(&old, from, &turns).unwrap() {
            let about = (version.turn, &version.call);
            rows::record_changes(&new, to, about, &[version.change]).unwrap();
        }
    }
    for query in UNCHANGED_COLUMNS {
        let old = texts(&old, query);
        let new = texts(&new, query);
        assert!(old.len() > 4, "{query}");
        assert_eq!(new, old, "{query}");
    }
}

/// A column that a new version adds has to be reset as well.
#[test]
fn an_entry_that_is_written_again_has_nothing_of_the_one_before() {
    let connection = database::open_writer(None).unwrap();
    let row = SessionRow::new(SessionId::from("a"), "/work".into());
    let session = rows::insert_session(&connection, &row).unwrap();
    let text = r#"{"message":{"id":"m","message":{"assistant":{"id":"m","calls":[{"id":"c","provider_id":"p","name":"n"}]}},"audience":"both"}}"#;
    let entry = rows::from_str(text).unwrap();
    let write = || rows::insert_entry(&connection, session, (1, 2, 3), &entry).unwrap();
    let tables = ["entries", "calls"];
    let stored = |table: &str| {
        let all = columns(&connection, table, "pk = 0").join(", ");
        texts(&connection, &format!("SELECT json_array({all}) FROM {table}"))
    };
    write();
    let before = tables.map(stored);
    assert_eq!(before.each_ref().map(Vec::len), [1, 1]);
    for table in tables {
        for column in columns(&connection, table, r#""notnull" = 0 AND pk = 0"#) {
            connection.execute(&format!("UPDATE {table} SET {column} = 7"), []).unwrap();
        }
    }
    assert_ne!(tables.map(stored), before);
    write();
    assert_eq!(tables.map(stored), before);
}

fn columns(connection: &Connection, table: &str, which: &str) -> Vec<String> {
    texts(connection, &format!("SELECT name FROM pragma_table_info('{table}') WHERE {which}"))
}

fn copy_entries((old, from): (&Connection, i64), (new, to): (&Connection, i64)) {
    for mut stored in entries(old, from) {
        if let Entry::Message { message, .. } = &mut stored.entry
            && let Message::Assistant(answer) = Arc::make_mut(message)
        {
            for (call, row) in answer.calls.iter_mut().zip(&stored.calls) {
                call.arguments = row.arguments.clone();
            }
        }
        rows::insert_entry(new, to, (stored.seq, stored.turn, 0), &stored.entry).unwrap();
        for row in stored.calls.into_iter().filter(|call| call.ended_at.is_some()) {
            rows::finish_call(new, to, (&row.call, row.turn, 0), &row.outcome).unwrap();
        }
    }
}

fn entries(connection: &Connection, session: i64) -> Vec<StoredEntry> {
    let all = (0, usize::try_from(i64::MAX).unwrap());
    read::entries_page(connection, session, all, &RewoundEntries::default()).unwrap().0
}

/// The content of a session, without times.
fn conversation(connection: &Connection, session: i64) -> Vec<impl PartialEq + std::fmt::Debug> {
    let mut entries = entries(connection, session);
    entries.iter_mut().for_each(forget_idle_origin);
    let call = |call: CallRow| (call.call, call.turn, call.arguments, call.outcome);
    let row = |entry: StoredEntry| {
        (entry.seq, entry.turn, entry.entry, entry.calls.into_iter().map(call).collect::<Vec<_>>())
    };
    entries.into_iter().map(row).collect()
}

/// The origin of an answer is only stored where something has to be sent back to it.
fn forget_idle_origin(stored: &mut StoredEntry) {
    if let Entry::Message { message, .. } = &mut stored.entry
        && let Message::Assistant(answer) = Arc::make_mut(message)
        && answer.provider_state.field.is_none()
        && answer.provider_state.blobs.is_empty()
    {
        answer.provider_state.origin = "".into();
    }
}

fn texts(connection: &Connection, query: &str) -> Vec<String> {
    let mut find = connection.prepare(query).unwrap();
    let rows = find.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Every variant and field that is stored, with its name.
#[test]
fn the_stored_names_are_these() {
    let first = r#"{"content":"c","priority":"high","status":"in_progress"}"#;
    let plan = first.to_owned()
        + r#",{"content":"c","priority":"medium","status":"pending"}"#
        + r#",{"content":"c","priority":"low","status":"completed"}"#;
    for entry in [
        r#"{"message":{"id":"m","message":{"user":{"parts":[{"text":"a"},{"image":{"mime":"image/png","data":"AA=="}},{"audio":{"mime":"audio/wav","data":""}},{"link":{"name":"n","uri":"u"}},{"resource":{"uri":"u","text":"t"}},{"context":"c"}]}},"audience":"both"}}"#,
        r#"{"message":{"id":"m","message":{"assistant":{"id":"m","text":"t","thought":"h","calls":[{"id":"c","provider_id":"p","name":"n","extra":{"a":1}},{"id":"d","provider_id":"q","name":"o"}],"interrupted":true,"echo":{"origin":"o","field":"f","blobs":[1]}}},"audience":"user"}}"#,
        r#"{"message":{"id":"m","message":{"assistant":{"id":"m","interrupted":false,"echo":{"origin":"","field":null,"blobs":[]}}},"audience":"model"}}"#,
        r#"{"message":{"id":"m","message":{"tool":{"call":"c","provider_id":"p","name":"n","text":"t","ok":true,"images":[{"mime":"m","data":"d"}]}},"audience":"both"}}"#,
        r#"{"message":{"id":"m","message":{"tool":{"call":"c","provider_id":"p","name":"n","text":"t","ok":false}},"audience":"both"}}"#,
        r#"{"note":{"id":"m","text":"t"}}"#,
        r#"{"lost":{"call":"c","name":"n","view":{"title":"t","kind":"edit","locations":[{"path":"/a","line":1},{"path":"/b","line":null}]},"why":"w"}}"#,
        &format!(r#"{{"plan":{{"entries":[{plan}]}}}}"#),
        r#""cleared""#,
        r#""refused""#,
        r#"{"rewound":{"to":7}}"#,
        r#"{"rewind_undone":{"rewind":9}}"#,
    ] {
        assert_eq!(again::<Entry>(entry), entry);
    }
    for kind in ["read", "edit", "delete", "move", "search", "fetch", "execute", "think", "other"] {
        let view = format!(r#"{{"view":{{"title":"t","kind":"{kind}","locations":[]}}}}"#);
        assert_eq!(card_again(&view), view);
    }
    for card in [
        r#"{"images":[{"mime":"m","data":"d"}],"content":[{"text":"t"},{"diff":{"path":"/a","old":null,"new":"n"}},{"diff":{"path":"/a","old":"o","new":"n"}},{"image":{"mime":"m","data":"d"}},{"terminal":"t"}],"raw":{"a":1}}"#,
        "{}",
    ] {
        assert_eq!(card_again(card), card);
    }
    let arguments = r#"{"unusable":{"text":"t","reason":"r"}}"#;
    assert_eq!(again::<Arguments>(arguments), arguments);
    for state in [
        r#""absent""#,
        r#"{"file":{"hash":"h","size":1,"mode":420,"is_kept":true}}"#,
        r#"{"link":{"target":"/a"}}"#,
        r#"{"folder":{"mode":493}}"#,
        r#"{"unknown":{"why":"w"}}"#,
    ] {
        assert_eq!(again::<FileState>(state), state);
    }
}

#[test]
fn fields_that_older_builds_did_not_write_have_defaults() {
    let answer = r#"{"message":{"id":"m","message":{"assistant":{"id":"m"}}}}"#;
    assert!(again::<Entry>(answer).ends_with(
        r#"{"id":"m","interrupted":false,"echo":{"origin":"","field":null,"blobs":[]}}},"audience":"both"}}"#
    ));
}

#[test]
fn defaults_are_not_stored() {
    let leave_out = |entry: &str| {
        let mut body = serde_json::from_str(entry).unwrap();
        rows::leave_out_defaults(&mut body);
        body.to_string()
    };
    let whole = r#"{"id":"m","message":{"assistant":{"id":"m","interrupted":false,"echo":{"origin":"o","field":null,"blobs":[]}}},"audience":"both"}"#;
    assert_eq!(leave_out(whole), r#"{"id":"m","message":{"assistant":{}}}"#);
    for entry in [
        r#"{"id":"m","message":{"assistant":{"id":"other","interrupted":true,"echo":{"origin":"o","field":"f","blobs":[]}}},"audience":"user"}"#,
        r#"{"id":"m","message":{"assistant":{"id":"other","echo":{"origin":"o","field":null,"blobs":[1]}}}}"#,
        r#"{"to":7}"#,
        "null",
    ] {
        assert_eq!(leave_out(entry), entry);
    }
    let mut card = json!({ "view": { "locations": [{ "path": "/a", "line": null }] } });
    rows::leave_out_unknown_lines(&mut card);
    assert_eq!(card, json!({ "view": { "locations": [{ "path": "/a" }] } }));
}

fn again<T: Stored>(text: &str) -> String {
    serde_json::to_string(&AsStored(&rows::from_str::<T>(text).unwrap())).unwrap()
}

fn card_again(text: &str) -> String {
    serde_json::to_string(&serde_json::from_str::<CardJson>(text).unwrap()).unwrap()
}
