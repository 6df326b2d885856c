//! The text of a call's arguments → an object, or the reason why not, written for the model.
//!
//! Arguments that parse as they are run; the repairs below are those that cannot change what the
//! model meant. Missing quotes or braces are never completed: that would run half a command or
//! write half a file.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::wire::mend_surrogates;
use crate::bulk;
use turnwright_types::message::Arguments;

/// Understands the arguments of a call of a whole answer.
pub(in crate) fn understand(text: String) -> Arguments {
    if matches!(text.trim(), "" | "null") {
        return Arguments::Object(Value::Object(Map::new()));
    }
    if bulk::is_endless(&text) {
        let reason = "The arguments have too many values. Nothing was executed.".to_owned();
        return Arguments::Unusable { text, reason };
    }
    let reason = match read(&text) {
        Ok(value @ Value::Object(_)) => return Arguments::Object(value),
        Ok(Value::String(inner)) => match read(&inner) {
            // Encoded twice.
            Ok(value @ Value::Object(_)) => return Arguments::Object(value),
            _ => "The arguments must be a JSON object, not a string. Nothing was executed.".into(),
        },
        Ok(_) => "The arguments must be a JSON object. Nothing was executed.".to_owned(),
        Err(error) if error.is_eof() => format!(
            "The arguments are not valid JSON: they stop after {} bytes ({error}). Nothing was \
             executed. Send the whole call again.",
            text.len()
        ),
        Err(error) => {
            format!("The arguments are not valid JSON ({error}). Nothing was executed.")
        }
    };
    Arguments::Unusable { text, reason }
}

/// The arguments of a call of an answer that hit the output limit. Which call was cut cannot be
/// told for sure: some servers close the braces of half a call.
pub(in crate) fn cut_off(text: String) -> Arguments {
    let reason = format!(
        "The answer was cut off at the output limit, the arguments of this call after {} bytes. \
         Nothing was executed. Send less at once: write the first part with write_file, then \
         append.",
        text.len()
    );
    Arguments::Unusable { text, reason }
}

/// Whether the text is one whole object. Cheap for one that has not ended yet.
pub(in crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && text.trim_end().ends_with('}')
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Arguments on their way. Whether they are one whole object by now is told from each piece
/// alone: to read all of them again for each piece would take quadratic time.
#[derive(Debug, Default)]
pub(super) struct Growing {
    text: String,
    /// Brackets that are open.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The first bracket has been closed.
    closed: bool,
    is_object: bool,
}

impl Growing {
    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        let was_closed = self.closed;
        let rest = if was_closed { piece } else { self.advance(piece) };
        let is_blank = rest.bytes().all(|it| b" \t\r\n".contains(&it));
        self.is_object = self.closed
            && is_blank
            && if was_closed { self.is_object } else { is_object(&self.text) };
    }

    /// Reads on to where the first bracket is closed, and returns what follows it.
    fn advance<'a>(&mut self, piece: &'a str) -> &'a str {
        for (at, byte) in piece.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.closed = true;
                        return &piece[at + 1..];
                    }
                }
                _ => {}
            }
        }
        ""
    }

    pub(super) fn is_object(&self) -> bool {
        self.is_object
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        let mended = mend_surrogates(&escape_controls(text));
        let whole = first(&mended).or_else(|| first(&without_comma(&mended)?));
        whole.ok_or(error)
    })
}

/// The value that the text begins with, if nothing of meaning follows it.
fn first(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    is_litter(text[values.byte_offset()..].trim()).then_some(value)
}

/// The text without the one comma that stands before a closing bracket. Two are no slip.
fn without_comma(text: &str) -> Option<String> {
    let (mut inside, mut escaped) = (false, false);
    let (mut comma, mut found) = (None, None);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => {
                inside = !inside;
                comma = None;
            }
            _ if inside => {}
            b',' => comma = Some(at),
            b'}' | b']' => match (comma.take(), found) {
                (Some(_), Some(_)) => return None,
                (Some(at), None) => found = Some(at),
                (None, _) => {}
            },
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => comma = None,
        }
    }
    found.map(|at| format!("{}{}", &text[..at], &text[at + 1..]))
}

/// Whether what follows a whole value holds nothing that the model can have meant as a part of
/// it: brackets closed twice, a fence, the closing tag of a template.
fn is_litter(rest: &str) -> bool {
    let is_tag = rest.starts_with('<') && rest.ends_with('>') && !rest.contains(['{', '[', '"']);
    is_tag || rest.chars().all(|it| it.is_whitespace() || "}])`;,".contains(it))
}

/// Raw control characters inside strings, which JSON forbids and models write, as escapes.
fn escape_controls(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 16);
    let (mut inside, mut escaped) = (false, false);
    for char in text.chars() {
        match char {
            '"' if !escaped => inside = !inside,
            // Not after a backslash: that would leave the escape as text in the result.
            _ if inside && !escaped && char.is_control() => {
                result.push_str(&format!("\\u{:04x}", u32::from(char)));
                continue;
            }
            _ => {}
        }
        escaped = inside && char == '\\' && !escaped;
        result.push(char);
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arguments_on_their_way_are_known_to_be_whole(
            pieces in prop::collection::vec("([{}\\[\\]\":, 1\n\\\\aé\u{a0}]|\"a\":\\{\\}|\\{\"b\":\"\\}\"){0,6}", 0..12),
        ) {
            let mut growing = Growing::default();
            for piece in &pieces {
                growing.push(piece);
                prop_assert_eq!(growing.is_object(), is_object(growing.as_str()), "{}", growing.as_str());
            }
        }
    }

    #[test]
    fn one_comma_too_many_is_forgiven_and_nothing_is_completed() {
        for (text, expected) in [
            (r#"{"a": 1,}"#, Some(r#"{"a":1}"#)),
            (r#"{"a": [1, 2 , ], "b": ",}"}"#, Some(r#"{"a":[1,2],"b":",}"}"#)),
            (r#"{"a": [1,], "b": 2,}"#, None),
            (r#"{"a": 1,,}"#, None),
            (r#"{"a": 1}, {"#, None),
            (r#"{"a": 1,"#, None),
            (r#"{"a": ",}"#, None),
        ] {
            let understood = match understand(text.to_owned()) {
                Arguments::Object(value) => Some(value.to_string()),
                Arguments::Unusable { .. } => None,
            };
            assert_eq!(understood.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn arguments_of_endless_values_are_not_read() {
        let text = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(300_000));
        assert!(
            matches!(understand(text), Arguments::Unusable { reason, .. } if reason.contains("too many"))
        );
    }
}
