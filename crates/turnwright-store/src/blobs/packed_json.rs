//! JSON whose long strings are stored as blobs, once each: the text of a file occurs in the
//! arguments of the call that wrote it, in the diff on its card and in the file's versions; the words
//! of the user in the prompt and in the messages that stand for compacted parts of the conversation.

use rusqlite::Connection;
use serde_json::{Map, Value};

use super::BlobFormat;
use crate::{Result, StoreError};
use turnwright_types::redact;

/// Stands in the JSON for the content of the blob where the string is longer than that.
const BLOB_PLACE: char = '\u{fffc}';

/// Which strings are stored as blobs, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// Longer strings become blobs.
    max_inline: usize,
    /// Longer blobs are compressed.
    max_plain: usize,
    /// The first line of a string stays in the JSON.
    keeps_first_line: bool,
}

impl Packing {
    /// The view `tool_conversations` shows these, so they are never compressed.
    pub(crate) const ARGUMENTS: Packing = Packing { max_plain: usize::MAX, ..Packing::TEXTS };
    pub(crate) const TEXTS: Packing =
        Packing { max_inline: 1024, max_plain: 1024, keeps_first_line: false };
    /// The user's own words, which each compaction repeats.
    pub(crate) const PROMPT: Packing = Packing { max_inline: 256, ..Packing::TEXTS };
    /// The message in place of a compacted conversation. Each of its parts has a heading.
    pub(crate) const REPLACEMENT: Packing = Packing { keeps_first_line: true, ..Packing::PROMPT };

    fn format(self, text: &str) -> BlobFormat {
        if text.len() > self.max_plain { BlobFormat::Compressed } else { BlobFormat::Plain }
    }
}

/// A JSON text and the references to the strings that are stored as blobs.
pub(crate) struct PackedJson {
    pub(crate) body: String,
    pub(crate) refs: Option<String>,
}

/// Serializes a value. Its long strings become blobs.
pub(crate) fn pack(
    connection: &Connection,
    session: i64,
    mut value: Value,
    packing: Packing,
) -> Result<PackedJson> {
    let mut long = Vec::new();
    extract_long_strings(&mut value, &mut "$".to_owned(), packing, &mut long);
    let refs = long
        .into_iter()
        .map(|(path, text)| {
            let mut text = text;
            redact::redact_in_place(&mut text);
            let id = super::put(connection, session, text.as_bytes(), packing.format(&text))?;
            Ok(Value::Array(vec![path.into(), id.into()]))
        })
        .collect::<Result<Vec<_>>>()?;
    let refs = (!refs.is_empty()).then(|| Value::Array(refs).to_string());
    let mut body = value.to_string();
    redact::redact_in_place(&mut body);
    Ok(PackedJson { body, refs })
}

/// Restores the value of a packed JSON text.
pub(crate) fn unpack(connection: &Connection, body: &str, refs: Option<&str>) -> Result<Value> {
    let mut value: Value = serde_json::from_str(body)?;
    let refs: Vec<(String, i64)> = refs.map_or(Ok(Vec::new()), serde_json::from_str)?;
    for (path, id) in refs {
        let text = super::get_text(connection, id)?;
        let place =
            resolve_path(&mut value, &path).ok_or_else(|| StoreError::Damaged(path.clone()))?;
        let whole = match place.as_str() {
            Some(around) if around.contains(BLOB_PLACE) => around.replacen(BLOB_PLACE, &text, 1),
            _ => text,
        };
        *place = Value::String(whole);
    }
    Ok(value)
}

/// Takes long strings out of a value, each with its path in SQLite's JSON path syntax.
fn extract_long_strings(
    value: &mut Value,
    path: &mut String,
    packing: Packing,
    long: &mut Vec<(String, String)>,
) {
    let length = path.len();
    match value {
        Value::String(text) if text.len() > packing.max_inline => {
            let mut left = std::mem::take(text);
            if packing.keeps_first_line
                && let Some(end) = left.find('\n')
                && !left[..end].contains(BLOB_PLACE)
            {
                let rest = left.split_off(end + 1);
                left.push(BLOB_PLACE);
                *text = std::mem::replace(&mut left, rest);
            }
            long.push((path.clone(), left));
        }
        Value::Array(items) => {
            for (number, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{number}]"));
                extract_long_strings(item, path, packing, long);
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            // Such a key cannot be written in a path.
            for (key, field) in fields.iter_mut().filter(|(name, _)| !name.contains(['"', '\\'])) {
                path.push_str(&format!(".\"{key}\""));
                extract_long_strings(field, path, packing, long);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// The value at a path that [`extract_long_strings`] has made.
fn resolve_path<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut place = value;
    let mut rest = path.strip_prefix('$')?;
    while !rest.is_empty() {
        if let Some(more) = rest.strip_prefix(".\"") {
            let (key, more) = more.split_once('"')?;
            place = place.as_object_mut().and_then(|fields: &mut Map<_, _>| fields.get_mut(key))?;
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
    use crate::database;

    fn connection() -> Connection {
        let connection = database::open_in_memory().unwrap();
        let insert = "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/', 0, 0)";
        connection.execute(insert, []).unwrap();
        connection
    }

    #[test]
    fn a_long_string_is_kept_once_wherever_it_stands() {
        let connection = connection();
        let long = "x".repeat(5_000);
        let value = json!({ "a": [1, { "b c": long }], "d": long, "e": "short" });
        let packed = pack(&connection, 1, value.clone(), Packing::TEXTS).unwrap();
        assert!(packed.body.len() < 100, "{}", packed.body);
        let back = unpack(&connection, &packed.body, packed.refs.as_deref()).unwrap();
        assert_eq!(back, value);
        let count: i64 =
            connection.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "\\PC{0,8}",
            ".{1000,1100}",
            "[a-c\u{fffc}\n]{256,260}",
            Just("é\"\\[0]\0".repeat(300))
        ];
        let leaf = prop_oneof![Just(Value::Null), text.prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("[\\[\\]$.\"\\\\a ]{0,4}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_comes_back(value in values()) {
            let connection = connection();
            for packing in [Packing::TEXTS, Packing::REPLACEMENT] {
                let packed = pack(&connection, 1, value.clone(), packing).unwrap();
                let back = unpack(&connection, &packed.body, packed.refs.as_deref()).unwrap();
                prop_assert_eq!(&back, &value);
            }
        }
    }
}
