//! A stored conversation as one JSON value, so that it can be written into another database.

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use serde_json::{Map, Value, json};

use super::read::session_key;
use super::rows::store_result;
use super::{Result, blobs};
use crate::blobs::packed_json::{Packing, pack, unpack};
use crate::blobs::result_places;
use turnwright_types::ids::SessionId;

/// The columns of a session's row that are copied as they are.
const SESSION: &str = "id, cwd, real_cwd, folders, title, title_is_final, created_at, updated_at, \
                       mode, model, effort, minted, cost, client_options";
/// The tables that are copied, with the columns that are copied as they are. Earlier states of files are not
/// copied: the copy must not contain more of them than the model has read.
const TABLES: [(&str, &str); 4] = [
    ("turns", "number, kind, words, begun_at, ended_at, stop, about, first_entry, facts"),
    ("entries", "seq, turn, at, kind, message_id"),
    (
        "calls",
        "call, seq, position, turn, message_id, tool_name, status, asked_at, begun_at, ended_at, \
         duration_ms, spawn_task",
    ),
    ("usage", "turn, at, model, input, output, cached, window, cost, served"),
];
/// The columns with JSON whose long texts are blobs.
const PACKED: [(&str, &str, &str, Packing); 3] = [
    ("entries", "body", "refs", Packing::TEXTS),
    ("calls", "arguments", "arguments_refs", Packing::ARGUMENTS),
    ("calls", "card", "card_refs", Packing::TEXTS),
];

/// Reads what a session's finished turns have stored.
pub fn read_conversation(connection: &Connection, id: &SessionId) -> Result<Value> {
    let key = session_key(connection, id)?;
    let query = format!("SELECT * FROM sessions WHERE key = {key}");
    let session = connection.query_row(&query, [], |row| Ok(plain_columns(row, SESSION)))??;
    let mut stored = Map::from_iter([("session".to_owned(), session.into())]);
    for (table, columns) in TABLES {
        let (turn, order) = match table {
            "turns" => ("number", "number"),
            "entries" => ("turn", "seq"),
            _ => ("turn", "id"),
        };
        // A turn that still runs would be taken for one that was interrupted.
        let query = format!(
            "SELECT * FROM {table} WHERE session = ?1 AND {turn} NOT IN \
             (SELECT number FROM turns WHERE session = ?1 AND stop IS NULL) ORDER BY {order}"
        );
        let mut find = connection.prepare(&query)?;
        let rows = find.query_and_then([key], |row| read_row(connection, row, table, columns))?;
        let all: Vec<_> = rows.collect::<Result<_, _>>()?;
        stored.insert(table.to_owned(), all.into());
    }
    Ok(Value::Object(stored))
}

fn read_row(
    connection: &Connection,
    row: &Row<'_>,
    table: &str,
    columns: &str,
) -> Result<Map<String, Value>> {
    let mut fields = plain_columns(row, columns)?;
    for (_, body, refs, _) in PACKED.iter().filter(|packed| packed.0 == table) {
        let text: Option<String> = row.get(*body)?;
        let refs: Option<String> = row.get(*refs)?;
        let value = text.map(|text| unpack(connection, &text, refs.as_deref())).transpose()?;
        fields.insert((*body).to_owned(), value.unwrap_or_default());
    }
    if table == "calls" {
        let result = blobs::text(connection, row.get("result")?, row.get("result_blob")?)?;
        if let (Some(card), Some(result)) = (fields.get_mut("card"), &result) {
            result_places::put_back(card, result);
        }
        fields.insert("result".to_owned(), json!(result));
    }
    Ok(fields)
}

fn plain_columns(row: &Row<'_>, columns: &str) -> Result<Map<String, Value>> {
    let fields = columns.split(", ").map(|name| {
        let value = match row.get_ref(name)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => number.into(),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                String::from_utf8_lossy(bytes).into_owned().into()
            }
        };
        Ok((name.to_owned(), value))
    });
    fields.collect()
}

/// Writes what [`read_conversation`] has returned.
pub fn insert_conversation(connection: &Connection, stored: &Value) -> Result<()> {
    insert_row(connection, "sessions", plain_values(&stored["session"], SESSION))?;
    let session = connection.last_insert_rowid();
    for (table, columns) in TABLES {
        for row in stored[table].as_array().into_iter().flatten() {
            let mut values = plain_values(row, columns);
            values.push(("session", Sql::Integer(session)));
            let result = row["result"].as_str();
            for (_, body, refs, packing) in PACKED.iter().filter(|packed| packed.0 == table) {
                if row[*body].is_null() && *body == "card" {
                    continue;
                }
                let mut value = row[*body].clone();
                if let (Some(result), "card") = (result, *body) {
                    result_places::take_out(&mut value, result);
                }
                let packed = pack(connection, session, value, *packing)?;
                values.push((body, Sql::Text(packed.body)));
                values.push((refs, packed.refs.map_or(Sql::Null, Sql::Text)));
            }
            if let Some(result) = result {
                let (text, blob) = store_result(connection, session, result)?;
                values
                    .push(("result", text.map_or(Sql::Null, |text| Sql::Text(text.into_owned()))));
                values.push(("result_blob", blob.map_or(Sql::Null, Sql::Integer)));
            }
            insert_row(connection, table, values)?;
        }
    }
    Ok(())
}

fn plain_values(row: &Value, columns: &'static str) -> Vec<(&'static str, Sql)> {
    let values = columns.split(", ").filter_map(|name| {
        let value = match &row[name] {
            Value::String(text) => Sql::Text(text.clone()),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Sql::Integer(number),
                None => number.as_f64().map_or(Sql::Null, Sql::Real),
            },
            // The column keeps its default.
            _ => return None,
        };
        Some((name, value))
    });
    values.collect()
}

fn insert_row(connection: &Connection, table: &str, values: Vec<(&str, Sql)>) -> Result<()> {
    let (names, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    let places = vec!["?"; names.len()].join(", ");
    let insert = format!("INSERT INTO {table} ({}) VALUES ({places})", names.join(", "));
    connection.prepare_cached(&insert)?.execute(params_from_iter(values))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use crate::database;
    use crate::session_summaries;
    use flate2::read::GzDecoder;

    const DATABASE: &[u8] = include_bytes!("../../../tests/data/database-badf78d6/sessions.db.gz");

    #[test]
    fn a_conversation_is_the_same_in_another_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let mut file = std::fs::File::create(&path).unwrap();
        std::io::copy(&mut GzDecoder::new(DATABASE), &mut file).unwrap();
        let old = database::open_writer(&path).unwrap();
        let new = database::open_in_memory().unwrap();
        let mut rows = 0;
        for summary in session_summaries(&old).unwrap() {
            let id = summary.row.id;
            let stored = read_conversation(&old, &id).unwrap();
            insert_conversation(&new, &stored).unwrap();
            assert_eq!(read_conversation(&new, &id).unwrap(), stored);
            rows += TABLES.iter().filter_map(|table| stored[table.0].as_array()).flatten().count();
        }
        assert!(rows > 50, "{rows}");
    }

    #[test]
    fn a_turn_that_still_runs_is_left_out() {
        let connection = database::open_in_memory().unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/', 0, 0); \
                 INSERT INTO turns (session, number, kind, begun_at, stop) \
                 VALUES (1, 1, 'prompt', 0, 'end_turn'), (1, 2, 'command', 0, NULL); \
                 INSERT INTO entries (session, seq, turn, at, kind, body) \
                 VALUES (1, 1, 1, 0, 'note', '{}'), (1, 2, 2, 0, 'note', '{}')",
            )
            .unwrap();
        let stored = read_conversation(&connection, &SessionId::from("s")).unwrap();
        let numbers = |table: &str, column: &str| -> Vec<_> {
            stored[table].as_array().unwrap().iter().map(|row| row[column].clone()).collect()
        };
        assert_eq!(
            (numbers("turns", "number"), numbers("entries", "seq")),
            (vec![json!(1)], vec![json!(1)])
        );
        assert_eq!(
            read_conversation(&connection, &SessionId::from("t")),
            Err(StoreError::NoSuchSession)
        );
    }
}
