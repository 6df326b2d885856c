//! The stored format: the names of what is stored, and what is not.

use rusqlite::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::database;
use crate::rows;
use crate::{CallOutcome, Entry, SessionRow};
use turnwright_types::effect::{CallContent, CallView, ToolKind};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::SessionId;
use turnwright_types::message::Arguments;

/// A column that a new version adds has to be reset as well.
#[test]
fn an_entry_that_is_written_again_has_nothing_of_the_one_before() {
    let connection = database::open_in_memory().unwrap();
    let row = SessionRow::new(SessionId::from("a"), "/work".into());
    let session = rows::insert_session(&connection, &row).unwrap();
    let text = r#"{"message":{"id":"m","message":{"assistant":{"id":"m","calls":[{"id":"c","provider_id":"p","name":"n"}]}},"audience":"both"}}"#;
    let entry = serde_json::from_str(text).unwrap();
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
        r#"{"compacted":{"id":"m","replacement":{"user":{"parts":[{"text":"a"}]}},"kept":1,"max_result":2}}"#,
        r#"{"pruned":{"kept":1}}"#,
        r#""images_left_out""#,
        r#"{"some_images_left_out":{"images":[0]}}"#,
        r#""cleared""#,
        r#""refused""#,
        r#"{"rewound":{"to":7}}"#,
        r#"{"rewind_undone":{"rewind":9}}"#,
    ] {
        assert_eq!(again::<Entry>(entry), entry);
    }
    for kind in ["read", "edit", "delete", "move", "search", "fetch", "execute", "think", "other"] {
        let view = format!(r#"{{"view":{{"title":"t","kind":"{kind}","locations":[]}}}}"#);
        assert_eq!(again::<CallOutcome>(&view), view);
    }
    for card in [
        r#"{"images":[{"mime":"m","data":"d"}],"content":[{"text":"t"},{"diff":{"path":"/a","old":null,"new":"n"}},{"diff":{"path":"/a","old":"o","new":"n"}},{"image":{"mime":"m","data":"d"}},{"terminal":"t"}],"raw":{"a":1}}"#,
        "{}",
    ] {
        assert_eq!(again::<CallOutcome>(card), card);
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
fn a_stored_outcome_has_the_view_of_its_card_and_nothing_that_ends_with_the_session() {
    let card = CallView::new("Card", ToolKind::Execute);
    let own = CallView::new("Own", ToolKind::Execute);
    let outcome = CallOutcome {
        text: "done".to_owned(),
        view: Some(own.clone()),
        content: vec![CallContent::Terminal("t".into()), CallContent::Session("s".into())],
        ..CallOutcome::default()
    };
    let stored = outcome.to_stored("exec", Some(&card));
    assert_eq!(stored.tool, "exec");
    assert_eq!(stored.view, Some(own));
    assert_eq!(stored.content, [CallContent::Text("```\ndone\n```".to_owned())]);
    assert_eq!(outcome.to_stored("plan", None).view, None);
    let stored = CallOutcome::default().to_stored("exec", Some(&card));
    assert_eq!(stored.view, Some(card));
    assert!(stored.content.is_empty());
}

#[test]
fn fields_that_are_not_stored_have_defaults() {
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

fn again<T: DeserializeOwned + Serialize>(text: &str) -> String {
    serde_json::to_string(&serde_json::from_str::<T>(text).unwrap()).unwrap()
}
