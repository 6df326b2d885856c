//! The first place where a replay differs from its recording.

use serde_json::Value;

use super::observed::ObservedPiece;
use turnwright_types::text;

/// The most characters that are shown of one side.
const MAX_SHOWN: usize = 300;
/// How much of the text before a difference is shown.
const CONTEXT: usize = 40;

/// The first place where a replay differs from its recording.
#[derive(Debug)]
pub(super) struct Difference {
    /// The line of the recording, from 1.
    pub(super) line: usize,
    /// The prompt, from 1; 0 before the first.
    pub(super) turn: usize,
    /// The part of the session that is not the same.
    pub(super) what: String,
    pub(super) recorded: String,
    pub(super) now: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { line, turn, what, recorded, now } = self;
        let place = match turn {
            0 => "before the first prompt".to_owned(),
            turn => format!("in turn {turn}"),
        };
        writeln!(formatter, "Different {place}, at line {line} of the recording: {what}")?;
        writeln!(formatter, "  recorded: {recorded}\n  now:      {now}")
    }
}

/// Where two values differ first: the path there, and both sides.
pub(super) fn compare(recorded: &Value, now: &Value) -> Option<(String, String, String)> {
    match (recorded, now) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let get = |from: &serde_json::Map<String, Value>| {
                    from.get(name).cloned().unwrap_or_default()
                };
                compare(&get(one), &get(other))
                    .map(|(path, recorded, now)| (format!("{name}.{path}"), recorded, now))
            })
        }
        (Value::Array(one), Value::Array(other)) => {
            let count = one.len().max(other.len());
            (0..count).find_map(|index| {
                let get = |from: &[Value]| from.get(index).cloned().unwrap_or_default();
                compare(&get(one), &get(other))
                    .map(|(path, recorded, now)| (format!("{index}.{path}"), recorded, now))
            })
        }
        (Value::String(one), Value::String(other)) if one != other => {
            let (one, other) = around_difference(one, other);
            Some((String::new(), one, other))
        }
        _ if recorded == now => None,
        _ => Some((String::new(), shortened(recorded), shortened(now))),
    }
}

/// Both texts from shortly before the place where they differ.
pub(super) fn around_difference(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(left, right)| left == right).count();
    let skipped = same.saturating_sub(CONTEXT);
    let cut = |text: &str| {
        let text: String = text.chars().skip(skipped).take(MAX_SHOWN).collect();
        format!("{}{text:?}", if skipped > 0 { "…" } else { "" })
    };
    (cut(one), cut(other))
}

/// A piece, for people.
pub(super) fn describe(piece: &ObservedPiece) -> String {
    match piece {
        ObservedPiece::Text { text, .. } => shortened(&Value::from(text.as_str())),
        ObservedPiece::Whole(value) => shortened(value),
    }
}

fn shortened(value: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    text::clip(value.to_string(), MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let recorded = json!({ "a": [1, { "b": "same text" }], "c": 1 });
        let path = |now: Value| compare(&recorded, &now);
        assert_eq!(path(recorded.clone()), None);
        let found = path(json!({ "a": [1, { "b": "same test" }], "c": 2 })).unwrap();
        assert_eq!(found, ("a.1.b.".into(), "\"same text\"".into(), "\"same test\"".into()));
        let found = path(json!({ "a": [1] })).unwrap();
        assert_eq!(found, ("a.1.".into(), "{\"b\":\"same text\"}".into(), "nothing".into()));
        let (one, other) = around_difference(&"x".repeat(100), &format!("{}y", "x".repeat(99)));
        assert_eq!(one, format!("…{:?}", "x".repeat(41)));
        assert_eq!(other, format!("…{:?}", format!("{}y", "x".repeat(40))));
    }
}
