//! Limits for the memory that parsed JSON takes, which may be a hundred times its length. A hostile
//! server must not be able to exceed the limits for raw bytes in this way.

use serde_json::Value;

/// Shorter JSON is cheap whatever it contains.
const UNCHECKED_BYTES: usize = 64 * 1024;
/// No legitimate reply has more values in one JSON text.
const MAX_VALUES: usize = 200_000;

/// The approximate memory cost in bytes of an object, of each of its fields and of any value,
/// besides their text.
const OBJECT_COST: usize = 512;
const FIELD_COST: usize = 64;
const VALUE_COST: usize = 32;

/// True if a JSON text has more values than any legitimate reply. Brackets and commas inside
/// strings do not count, because a string may hold code.
pub(crate) fn has_too_many_values(json: &str) -> bool {
    if json.len() < UNCHECKED_BYTES {
        return false;
    }
    let mut values = 0_usize;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' | b',' => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// The approximate memory size of a value in bytes.
pub(crate) fn memory_size(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_size).sum(),
        Value::Object(fields) => {
            let sizes =
                fields.iter().map(|(name, value)| FIELD_COST + name.len() + memory_size(value));
            OBJECT_COST + sizes.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_COST + inside
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_count_and_string_contents_do_not() {
        let values = "{\"\":0},".repeat(MAX_VALUES);
        let text = json!({ "content": values }).to_string();
        for (name, json, expected) in [
            ("nothing", "", false),
            ("objects", &*format!("[{values}0]"), true),
            ("cut off", &format!("{{\"a\":[{values}"), true),
            ("a few", &format!("[{}0]", "{\"\":0},".repeat(20_000)), false),
            ("code in a string", &text, false),
            ("a string that does not end", &text[..text.len() - 2], false),
        ] {
            assert_eq!(has_too_many_values(json), expected, "{name}");
        }
    }

    #[test]
    fn small_values_take_more_memory_than_their_text() {
        let nested = json!([{ "": 0 }, { "": 0 }]);
        assert!(memory_size(&nested) > 20 * nested.to_string().len());
        let text = json!("x".repeat(1000));
        assert_eq!(memory_size(&text), 1000 + VALUE_COST);
    }
}
