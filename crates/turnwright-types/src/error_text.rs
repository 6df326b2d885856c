//! Errors in words: those of the system without its numbers, and those of a document that does not have the expected
//! form, in terms of its fields. The parsers' own messages name the program's types, and quote values, which may be
//! secrets.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::Error;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::text;

/// The message of an I/O error, without the numbers of the operating system, which mean nothing to people:
/// `Permission denied` instead of `Permission denied (os error 13)`.
pub fn io_error_text(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData && error.to_string().ends_with(" valid UTF-8") {
        return "it is not UTF-8".to_owned();
    }
    without_error_numbers(&error.to_string())
}

/// The same error with the path that it is about.
pub fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {}", path.display(), io_error_text(error)))
}

/// Removes the numbers of operating system errors from a message.
pub fn without_error_numbers(message: &str) -> String {
    const START: &str = " (os error ";
    let mut words = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(START) {
        words.push_str(before);
        let number =
            after.find(|char: char| !char.is_ascii_digit() && char != '-').unwrap_or(after.len());
        rest = match after[number..].strip_prefix(')') {
            Some(rest) if number > 0 => rest,
            _ => {
                words.push_str(START);
                after
            }
        };
    }
    words.push_str(rest);
    words
}

/// The messages of an error and its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(&format!(": {message}"));
        }
    }
    without_error_numbers(&text).replace(['\n', '\r'], " ")
}

/// Ends a message with a full stop, unless it ends with another mark.
pub fn as_sentence(text: String) -> String {
    if text.ends_with(['.', '?', '!', '…']) { text } else { text + "." }
}

/// A message quotes at most this many characters of a name.
const MAX_NAME_CHARS: usize = 60;

/// Why this JSON document could not be read.
pub fn json_error_text(text: &str, error: &Error) -> String {
    match error.classify() {
        Category::Data => {
            let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
            let offset = lines.map(str::len).sum::<usize>() + error.column();
            let full = error.to_string();
            let message = full.rsplit_once(" at line ").map_or(full.as_str(), |(start, _)| start);
            let is_about_list = message.starts_with("invalid length");
            field_error_text(&place_at(text, offset, is_about_list), message)
        }
        Category::Syntax if error.to_string().starts_with("recursion limit") => {
            format!("it is nested too deeply at line {}, column {}", error.line(), error.column())
        }
        Category::Syntax | Category::Eof | Category::Io => {
            format!("it is not valid JSON at line {}, column {}", error.line(), error.column())
        }
    }
}

/// Translates the message of a parser about the value at this place, such as `edits[0].old_string`; the
/// place of the whole document is empty.
pub fn field_error_text(place: &str, message: &str) -> String {
    let subject = if place.is_empty() { "the value".to_owned() } else { format!("`{place}`") };
    let quoted = |prefix: &str| message.strip_prefix(prefix)?.split_once('`');
    if let Some((name, _)) = quoted("missing field `") {
        return format!("{} is missing", field_path(place, name));
    }
    if let Some((name, _)) = quoted("unknown field `") {
        return format!("{} is not known", field_path(place, name));
    }
    if let Some((name, _)) = quoted("duplicate field `") {
        return format!("{} occurs twice", field_path(place, name));
    }
    if let Some((name, rest)) = quoted("unknown variant `") {
        let known: Vec<_> = rest.split('`').skip(1).step_by(2).collect();
        return format!("{subject} cannot be `{}`; known: {}", shorten(name), known.join(", "));
    }
    if message.starts_with("data did not match any variant") {
        return format!("{subject} has none of the possible forms");
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let mismatch =
        kinds.iter().find_map(|kind| message.strip_prefix(kind)?.rsplit_once(", expected "));
    match mismatch {
        // An object may also be written as the list of its fields.
        Some((_, expected)) if message.starts_with("invalid length ") => {
            format!("{subject} must be {}, not a list", expectation(expected))
        }
        Some((found, expected)) => {
            format!("{subject} must be {}, not {}", expectation(expected), finding(found))
        }
        None if place.is_empty() => message.to_owned(),
        None => format!("{subject}: {message}"),
    }
}

/// The field of the value at this place, in code marks.
fn field_path(place: &str, name: &str) -> String {
    let name = shorten(name);
    if place.is_empty() { format!("`{name}`") } else { format!("`{place}.{name}`") }
}

/// Names the type that the parser expected, as a person would.
fn expectation(expected: &str) -> &str {
    match expected {
        "a string" | "str" | "string" | "path string" | "a borrowed string" => "text",
        "a sequence" => "a list",
        "a map" => "an object",
        "a boolean" => "true or false",
        "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => {
            "a whole number ≥ 1"
        }
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number ≥ 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        other if other.starts_with("struct ") || other.contains("enum ") => "an object",
        other => other,
    }
}

/// Names the value that was found instead, without the content of a text.
fn finding(found: &str) -> &str {
    match found.split(' ').next().unwrap_or_default() {
        "string" => "text",
        "map" => "an object",
        "sequence" => "a list",
        "unit" => "null",
        "integer" | "boolean" | "floating" => found.split('`').nth(1).unwrap_or(found),
        _ => found,
    }
}

/// The innermost value that contains this offset or begins or ends there. At the end of a list the parser
/// may also have rejected its last item, unless the error is about the list itself.
fn place_at(text: &str, mut offset: usize, is_about_list: bool) -> String {
    let mut place = String::new();
    let mut here = text;
    loop {
        let is_around = |value: &RawValue| {
            let start = offset_in(here, value);
            (start..=start + value.get().len()).contains(&offset)
        };
        let fields = serde_json::from_str::<BTreeMap<String, &RawValue>>(here).unwrap_or_default();
        let items = serde_json::from_str::<Vec<&RawValue>>(here).unwrap_or_default();
        let (step, inner) =
            if let Some((name, inner)) = fields.iter().find(|field| is_around(field.1)) {
                let dot = if place.is_empty() { "" } else { "." };
                (format!("{dot}{}", shorten(name)), *inner)
            } else if let Some(number) = items.iter().position(|item| is_around(item)) {
                (format!("[{number}]"), items[number])
            } else {
                if offset == here.len() && !items.is_empty() && !is_about_list {
                    place.push_str(&format!("[{}]", items.len() - 1));
                }
                return place;
            };
        place.push_str(&step);
        offset -= offset_in(here, inner);
        here = inner.get();
    }
}

/// The place of a value in the text that it borrows from.
fn offset_in(text: &str, value: &RawValue) -> usize {
    value.get().as_ptr().addr().wrapping_sub(text.as_ptr().addr())
}

fn shorten(name: &str) -> String {
    text::clip(name.replace(char::is_control, " "), MAX_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::from_str;

    use super::*;

    #[test]
    fn only_the_numbers_of_errors_are_left_out() {
        for (message, expected) in [
            ("/a: Permission denied (os error 13), sorry", "/a: Permission denied, sorry"),
            ("x (os error 2): y (os error -5)", "x: y"),
            ("a (os error 2", "a (os error 2"),
            ("a (os error )", "a (os error )"),
            ("a (os error two)", "a (os error two)"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_error_numbers(message), expected);
        }
        let missing = std::fs::File::open("/no/such/file").unwrap_err();
        assert!(missing.to_string().contains("os error"), "{missing}");
        assert!(!io_error_text(&missing).contains("os error"), "{missing}");
        let binary = io::read_to_string(&[0xff_u8][..]).unwrap_err();
        assert_eq!(io_error_text(&binary), "it is not UTF-8");
    }

    type Numbers = HashMap<String, Vec<HashMap<String, u32>>>;

    #[test]
    fn a_fault_names_the_field_and_what_it_must_be() {
        for (text, expected) in [
            (r#"{"a":[{"b":1},{"c":"sk-1"}]}"#, "`a[1].c` must be a whole number ≥ 0, not text"),
            (r#"{"a":[{"b":1, "c": -5}]}"#, "`a[0].c` must be a whole number ≥ 0, not -5"),
            ("{\n \"a\": [\n {\"b\": null}]}", "`a[0].b` must be a whole number ≥ 0, not null"),
            (r#"{"a":{"b":[]}}"#, "`a` must be a list, not an object"),
            (r#"{"a":[[1]]}"#, "`a[0]` must be an object, not a list"),
            (r#"{"a":7}"#, "`a` must be a list, not 7"),
            (r#"{"ä\n":[true]}"#, "`ä [0]` must be an object, not true"),
            ("[1]", "the value must be an object, not a list"),
            (r#"{"a":"#, "it is not valid JSON at line 1, column 5"),
        ] {
            let error = from_str::<Numbers>(text).unwrap_err();
            assert_eq!(json_error_text(text, &error), expected, "{text}");
        }
    }

    #[test]
    fn the_messages_of_parsers_are_translated() {
        for (place, message, expected) in [
            ("", "missing field `cwd`", "`cwd` is missing"),
            ("env[0]", "missing field `value`", "`env[0].value` is missing"),
            ("", "unknown field `x`, expected `y`", "`x` is not known"),
            ("a", "duplicate field `x`", "`a.x` occurs twice"),
            (
                "kind",
                "unknown variant `song`, expected one of `text`, `image`",
                "`kind` cannot be `song`; known: text, image",
            ),
            (
                "a",
                "data did not match any variant of untagged enum X",
                "`a` has none of the possible forms",
            ),
            (
                "n",
                "invalid type: floating point `1.5`, expected i64",
                "`n` must be a whole number, not 1.5",
            ),
            (
                "n",
                "invalid value: integer `0`, expected a nonzero u32",
                "`n` must be a whole number ≥ 1, not 0",
            ),
            (
                "n",
                "invalid type: string \"a, expected b\", expected struct Server",
                "`n` must be an object, not text",
            ),
            ("a", "the list is too long", "`a`: the list is too long"),
            ("", "the list is too long", "the list is too long"),
        ] {
            assert_eq!(field_error_text(place, message), expected);
        }
    }
}
