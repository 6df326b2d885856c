//! Recognises arguments that a server sends again as a whole after it has streamed them. The parsers of some
//! model servers do so at the end of a call if the streamed text differs in white space, order or escapes
//! from the expected one. Does no I/O.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::Value;

/// The object that the text ends with, if nothing precedes it but the same object or its beginning. A
/// text that could be the beginning of one JSON value is never taken for a repetition: its end is missing.
pub(super) fn repeated_object(text: &str) -> Option<Value> {
    if let Some(object) = equal_objects(text) {
        return Some(object);
    }
    let error = serde_json::from_str::<IgnoredAny>(text).err().filter(|error| !error.is_eof())?;
    let lines_before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let error_at = lines_before.map(str::len).sum::<usize>() + error.column();
    let start = text.bytes().take(error_at).rposition(|byte| byte == b'{')?;
    let object = equal_objects(&text[start..])?;
    let agrees = CutText { rest: &text[..start] }.compare(&object) == ControlFlow::Break(true);
    agrees.then_some(object)
}

/// The object of which the text consists, possibly several times.
pub(super) fn equal_objects(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let first = values.next()?.ok().filter(Value::is_object)?;
    values.all(|value| value.is_ok_and(|value| value == first)).then_some(first)
}

/// The rest of a JSON text that may end anywhere.
struct CutText<'a> {
    rest: &'a str,
}

/// `Break` ends a comparison: with true if the text has ended and agrees up to there.
type Comparison<T = ()> = ControlFlow<bool, T>;

impl CutText<'_> {
    /// Compares the next value with the expected one, apart from white space, order and escapes.
    fn compare(&mut self, expected: &Value) -> Comparison {
        match expected {
            Value::Object(fields) => {
                self.skip_mark('{')?;
                let mut missing: HashSet<&str> = fields.keys().map(String::as_str).collect();
                while !missing.is_empty() {
                    if missing.len() < fields.len() {
                        self.skip_mark(',')?;
                    }
                    let (name, is_whole) = self.next_string()?;
                    if !is_whole {
                        let agrees = missing.iter().any(|field| field.starts_with(&name));
                        return ControlFlow::Break(agrees);
                    }
                    match fields.get(&name) {
                        Some(value) if missing.remove(name.as_str()) => {
                            self.skip_mark(':')?;
                            self.compare(value)?;
                        }
                        _ => return ControlFlow::Break(false),
                    }
                }
                self.skip_mark('}')
            }
            Value::Array(items) => {
                self.skip_mark('[')?;
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        self.skip_mark(',')?;
                    }
                    self.compare(item)?;
                }
                self.skip_mark(']')
            }
            Value::String(text) => match self.next_string()? {
                (start, false) => ControlFlow::Break(text.starts_with(&start)),
                (whole, true) if whole == *text => ControlFlow::Continue(()),
                _ => ControlFlow::Break(false),
            },
            _ => self.compare_word(expected),
        }
    }

    /// Compares the next number, truth value or null.
    fn compare_word(&mut self, expected: &Value) -> Comparison {
        let text = self.rest.trim_start();
        let end = text.find(|next: char| next.is_whitespace() || ",]}".contains(next));
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.rest = rest;
        match serde_json::from_str::<Value>(word) {
            Ok(value) if value == *expected && !rest.is_empty() => ControlFlow::Continue(()),
            _ => ControlFlow::Break(rest.is_empty() && expected.to_string().starts_with(word)),
        }
    }

    fn skip_mark(&mut self, mark: char) -> Comparison {
        let text = self.rest.trim_start();
        match text.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(text.is_empty()),
        }
    }

    /// Decodes the next string, or as much of it as there is. The second value is true if it is whole.
    fn next_string(&mut self) -> Comparison<(String, bool)> {
        self.skip_mark('"')?;
        let mut is_escaped = false;
        let end = self.rest.bytes().position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        let (quoted, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.strip_prefix('"').unwrap_or_default();
        // Half of an escape sequence at the end cannot be decoded yet. The longest has two units.
        let most_left_out = if end.is_some() { 0 } else { 11 };
        let decoded = (0..=most_left_out).find_map(|left_out| {
            let text = quoted.get(..quoted.len().checked_sub(left_out)?)?;
            serde_json::from_str(&format!("\"{text}\"")).ok()
        });
        match decoded {
            Some(text) => ControlFlow::Continue((text, end.is_some())),
            None => ControlFlow::Break(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const WHOLE: &str = r#"{"n": false, "path": "a.txt", "list": [1.5, {"deep": null}], "u": "\u00e9\ud83d\ude00"}"#;

    #[test]
    fn the_same_object_again_is_one_object() {
        for start in [
            "",
            "{",
            r#"{"path":"a.txt","#,
            r#"{"path":"a.txt""#,
            r#"{"path":"a."#,
            r#"{"pa"#,
            r#"{"path":"a.txt","n":false"#,
            r#"{"path":"a.txt","n":fal"#,
            r#"{"u":"é😀","list":[1.5,{"deep":n"#,
            r#"{"list":[1.5,{"deep":null}],"#,
            r#"{"list":[1"#,
            r#"{"u":"\u00"#,
            r#"{"u":"\u00e9\ud83d"#,
            r#"{"u":"\u00e9\ud83d\ude"#,
            r#"{"u":"é\"#,
            r#"{"path":"a.txt","n":false,"u":"é😀","list":[1.5,{"deep":null}]}"#,
            WHOLE,
        ] {
            let expected = serde_json::from_str(WHOLE).ok();
            assert_eq!(repeated_object(&format!("{start}{WHOLE}")), expected, "{start}");
            assert_eq!(repeated_object(&format!("{start}{WHOLE}\n{WHOLE}")), expected, "{start}");
        }
    }

    #[test]
    fn different_objects_and_lost_pieces_are_no_repetition() {
        for text in [
            r#"{"path":"a"}{"path":"b"}"#,
            r#"{"path":"a"}{}"#,
            r#"{}{"path":"a"}"#,
            r#"{"path":"a","n":1}{"path":"a"}"#,
            r#"{"path":"a","n":1{"path":"a"}"#,
            r#"{"path":"b","{"path":"a"}"#,
            r#"{"path":"a"{"path":"ab"}"#,
            r#"{"n":1,{"n":12}"#,
            r#"{"n":f{"n":true}"#,
            r#"{"path":"a","path":"a",{"path":"a","n":1}"#,
            r#"{"list":[1]{"list":[1,2]}"#,
            r#"{"list":[1,2,{"list":[1,2]}"#,
            // Something is missing between the two.
            r#"{"edits":[{"old":"a"{"old":"b"}"#,
            r#"{"path":"a","content":"x{"n":1}"#,
            // The beginning of one object.
            r#"{"a":{"a":1}"#,
            r#"{"a":[{"a":1}"#,
            r#"{"a":"{}"#,
            "{",
            "",
            "{}x",
        ] {
            assert_eq!(repeated_object(text), None, "{text}");
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let word = prop::sample::select(vec!["", "a", "b", "{", "\"", "\\", "é"]);
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(true)),
            (0..20).prop_map(Value::from),
            word.clone().prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 12, 3, move |inner| {
            let fields = prop::collection::hash_map(word.clone(), inner.clone(), 0..3);
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                fields.prop_map(|fields| fields.into_iter().collect()),
            ]
        });
        value.prop_map(|value| json!({ "a": value }))
    }

    proptest! {
        /// Arguments that were cut off never run.
        #[test]
        fn no_beginning_of_an_object_is_a_repetition(object in object(), end in any::<prop::sample::Index>()) {
            let text = object.to_string();
            let mut end = end.index(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            prop_assert_eq!(repeated_object(&text[..end]), None);
        }

        #[test]
        fn a_beginning_before_the_whole_is_a_repetition_or_looks_like_one_object(
            object in object(), end in any::<prop::sample::Index>(),
        ) {
            let text = object.to_string();
            let mut end = end.index(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let streamed = format!("{}{text}", &text[..end]);
            let is_cut = serde_json::from_str::<IgnoredAny>(&streamed).is_err_and(|error| error.is_eof());
            prop_assert_eq!(repeated_object(&streamed), (!is_cut).then_some(object), "{}", streamed);
        }

        #[test]
        fn no_text_makes_it_panic(text in "([{}\\[\\]\":,\\\\u0-9a \n\u{e9}]|\"a\"){0,40}") {
            repeated_object(&text);
        }
    }
}
