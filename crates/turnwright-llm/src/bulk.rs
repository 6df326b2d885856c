//! What JSON costs in memory, which may be a hundred times its length: a hostile server must not
//! get more out of the bytes that it may send than we would give it.

use serde_json::Value;

/// Short JSON costs nothing worth mentioning, however it is made.
const SHORT: usize = 64 * 1024;
/// More values than this in one text are no answer.
const MOST_VALUES: usize = 200_000;

/// What an object, each of its fields and every other value cost besides their text.
const OBJECT: usize = 512;
const FIELD: usize = 64;
const VALUE: usize = 32;

/// Whether a text is JSON of more values than any answer has. Brackets and commas in strings,
/// as in code that is to be written to a file, do not count.
pub(super) fn is_endless(json: &str) -> bool {
    if json.len() < SHORT {
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
    values > MOST_VALUES
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// About how many bytes a value takes.
pub(super) fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| FIELD + name.len() + weight(value);
            OBJECT + fields.iter().map(field).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE + inside
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_count_and_text_does_not() {
        let values = "{\"\":0},".repeat(MOST_VALUES);
        let text = json!({ "content": values }).to_string();
        for (name, json, expected) in [
            ("nothing", "", false),
            ("objects", &*format!("[{values}0]"), true),
            ("cut off", &format!("{{\"a\":[{values}"), true),
            ("a few", &format!("[{}0]", "{\"\":0},".repeat(20_000)), false),
            ("code in a string", &text, false),
            ("a string that does not end", &text[..text.len() - 2], false),
        ] {
            assert_eq!(is_endless(json), expected, "{name}");
        }
    }

    #[test]
    fn small_values_weigh_more_than_their_text() {
        let nested = json!([{ "": 0 }, { "": 0 }]);
        assert!(weight(&nested) > 20 * nested.to_string().len());
        let text = json!("x".repeat(1000));
        assert_eq!(weight(&text), 1000 + VALUE);
    }
}
