//! JSON whose long strings lie beside it, once each: a file's text is in the arguments of the call
//! that has written it, in the diff of its card and in the file's versions.

use rusqlite::Connection;
use serde_json::{Map, Value};

use super::StoreError;
use super::blobs::{self, Form};
use turnwright_types::redact;

/// Strings of more bytes are laid beside.
const LONG: usize = 1024;

/// A JSON text, and which of its strings lie elsewhere.
pub(super) struct Packed {
    pub(super) body: String,
    pub(super) refs: Option<String>,
}

/// Makes a JSON text of a value. Its long strings lie in that form.
pub(super) fn pack(
    connection: &Connection,
    session: i64,
    mut value: Value,
    form: Form,
) -> Result<Packed, StoreError> {
    let mut long = Vec::new();
    take(&mut value, &mut "$".to_owned(), &mut long);
    let refs = long
        .into_iter()
        .map(|(path, text)| {
            let mut text = text;
            redact::clean(&mut text);
            let id = blobs::put(connection, session, text.as_bytes(), form)?;
            Ok(Value::Array(vec![path.into(), id.into()]))
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let refs = (!refs.is_empty()).then(|| Value::Array(refs).to_string());
    let mut body = value.to_string();
    redact::clean(&mut body);
    Ok(Packed { body, refs })
}

/// The value of a JSON text.
pub(super) fn unpack(
    connection: &Connection,
    body: &str,
    refs: Option<&str>,
) -> Result<Value, StoreError> {
    let mut value: Value = serde_json::from_str(body)?;
    let refs: Vec<(String, i64)> = refs.map_or(Ok(Vec::new()), serde_json::from_str)?;
    for (path, id) in refs {
        let text = String::from_utf8_lossy(&blobs::get(connection, id)?).into_owned();
        let place = follow(&mut value, &path);
        *place.ok_or_else(|| StoreError::Damaged(path.clone()))? = Value::String(text);
    }
    Ok(value)
}

/// Takes long strings out, each with its path in SQLite's words.
fn take(value: &mut Value, path: &mut String, long: &mut Vec<(String, String)>) {
    let length = path.len();
    match value {
        Value::String(text) if text.len() > LONG => {
            long.push((path.clone(), std::mem::take(text)));
        }
        Value::Array(items) => {
            for (number, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{number}]"));
                take(item, path, long);
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            // There is no way to write these in a path.
            for (key, field) in fields.iter_mut().filter(|(it, _)| !it.contains(['"', '\\'])) {
                path.push_str(&format!(".\"{key}\""));
                take(field, path, long);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// The place that a path of [`take`] names.
fn follow<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut place = value;
    let mut rest = path.strip_prefix('$')?;
    while !rest.is_empty() {
        if let Some(more) = rest.strip_prefix(".\"") {
            let (key, more) = more.split_once('"')?;
            place = place.as_object_mut().and_then(|it: &mut Map<_, _>| it.get_mut(key))?;
            rest = more;
        } else {
            let (number, more) = rest.strip_prefix('[')?.split_once(']')?;
            place = place.get_mut(number.parse::<usize>().ok()?)?;
            rest = more;
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema;

    fn connection() -> Connection {
        let connection = schema::writer(None).unwrap();
        let insert = "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/', 0, 0)";
        connection.execute(insert, []).unwrap();
        connection
    }

    #[test]
    fn a_long_string_is_kept_once_wherever_it_stands() {
        let connection = connection();
        let long = "x".repeat(5_000);
        let value = json!({ "a": [1, { "b c": long }], "d": long, "e": "short" });
        let packed = pack(&connection, 1, value.clone(), Form::Small).unwrap();
        assert!(packed.body.len() < 100, "{}", packed.body);
        let back = unpack(&connection, &packed.body, packed.refs.as_deref()).unwrap();
        assert_eq!(back, value);
        let count: i64 =
            connection.query_row("SELECT count(*) FROM blobs", [], |it| it.get(0)).unwrap();
        assert_eq!(count, 1);
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["\\PC{0,8}", ".{1000,1100}", Just("é\"\\[0]\0".repeat(300))];
        let leaf = prop_oneof![Just(Value::Null), text.prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("[\\[\\]$.\"\\\\a ]{0,4}", inner, 0..4)
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_comes_back(value in values()) {
            let connection = connection();
            let packed = pack(&connection, 1, value.clone(), Form::Small).unwrap();
            let back = unpack(&connection, &packed.body, packed.refs.as_deref()).unwrap();
            prop_assert_eq!(back, value);
        }
    }
}
