//! Parses the text of a tool call's arguments into a JSON object, or into a reason, written for the
//! model, why that is impossible.
//!
//! Valid arguments are used as they are. The repairs below cannot change what the model meant.
//! Missing quotes or braces are never added: that would run half a command or write half a file.
//!
//! Some model servers send the arguments again as a whole after they have streamed them: their parsers do so at the
//! end of a call if the streamed text differs in white space, order or escapes from the expected one.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::reply::has_too_many_values;
use turnwright_types::message::Arguments;
use turnwright_types::text::repair_surrogates;

/// The most calls of a reply that run. A reply with more is a malfunction of the model, and ends with the
/// next one.
pub(crate) const MAX_CALLS: usize = 128;

/// Parses the arguments of the call in this slot of a reply, which may have hit the output limit.
pub(crate) fn finish_arguments(slot: usize, text: String, is_cut: bool) -> Arguments {
    if slot < MAX_CALLS {
        return if is_cut { truncated_arguments(text) } else { parse_arguments(text) };
    }
    let reason = format!(
        "Nothing was executed: an answer may have at most {MAX_CALLS} calls. Make this one and those \
         after it in your next answer."
    );
    Arguments::Unusable { text, reason }
}

/// Parses the arguments of a call from a complete reply.
fn parse_arguments(text: String) -> Arguments {
    if matches!(text.trim(), "" | "null") {
        return Arguments::Object(Value::Object(Map::new()));
    }
    if has_too_many_values(&text) {
        let reason = "The arguments have too many values. Nothing was executed.".to_owned();
        return Arguments::Unusable { text, reason };
    }
    let reason = match parse_leniently(&text) {
        Ok(value @ Value::Object(_)) => return Arguments::Object(value),
        Ok(Value::String(inner)) => match parse_leniently(&inner) {
            // The object was JSON-encoded twice.
            Ok(value @ Value::Object(_)) => return Arguments::Object(value),
            _ => "The arguments must be a JSON object, not a string. Nothing was executed.".into(),
        },
        Ok(_) => "The arguments must be a JSON object. Nothing was executed.".to_owned(),
        Err(error) if error.is_eof() => format!(
            "The arguments are not valid JSON: they stop after {} bytes ({error}). Nothing was \
             executed. Send the whole call again.",
            text.len()
        ),
        Err(error) => match repeated_object(&repair_surrogates(&escape_controls(&text), &mut None)) {
            Some(object) => return Arguments::Object(object),
            None => format!("The arguments are not valid JSON ({error}). Nothing was executed."),
        },
    };
    Arguments::Unusable { text, reason }
}

/// Marks the arguments of a call as unusable because the reply hit the output limit. This applies
/// to every call of the reply: some servers close the braces of a truncated call, so the truncated
/// one cannot be identified.
fn truncated_arguments(text: String) -> Arguments {
    let reason = format!(
        "The answer was cut off at the output limit, the arguments of this call after {} bytes. \
         Nothing was executed. Send less at once: write the first part with write_file, then \
         append.",
        text.len()
    );
    Arguments::Unusable { text, reason }
}

/// True if the text is one complete JSON object. Cheap while the text is still incomplete.
fn is_json_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && text.trim_end().ends_with('}')
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Arguments that are still being streamed. Completeness is tracked incrementally, because parsing
/// the whole text again for each delta would take quadratic time.
#[derive(Debug, Default)]
pub(crate) struct StreamedArguments {
    text: String,
    /// The number of open brackets.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The outermost bracket has been closed.
    closed: bool,
    is_object: bool,
}

impl StreamedArguments {
    pub(crate) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        let was_closed = self.closed;
        let rest = if was_closed { piece } else { self.advance(piece) };
        let is_blank = rest.bytes().all(|byte| b" \t\r\n".contains(&byte));
        self.is_object = self.closed
            && is_blank
            && if was_closed { self.is_object } else { is_json_object(&self.text) };
    }

    /// Scans to the end of the outermost bracket and returns the rest of the piece.
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

    pub(crate) fn is_json_object(&self) -> bool {
        self.is_object
    }

    /// The part of a piece that is new: some servers repeat what they have sent and append to it, or send
    /// the complete arguments again. What could just as well be more of the same object is new.
    pub(crate) fn new_part<'a>(&self, piece: &'a str) -> &'a str {
        match piece.strip_prefix(self.text.as_str()) {
            _ if self.text.is_empty() => piece,
            Some(new) if !new.is_empty() && !may_be_one_value(&format!("{}{piece}", self.text)) => {
                new
            }
            _ if self.is_repeated_by(piece) => "",
            _ => piece,
        }
    }

    /// True if the arguments are complete and the piece holds the same object again.
    pub(crate) fn is_repeated_by(&self, piece: &str) -> bool {
        // An escape takes at most six times the bytes of its character. The limit keeps the time
        // proportional to what was received.
        self.is_object
            && self.text.len() <= 8 * piece.len()
            && piece.trim_start().starts_with('{')
            && (piece == self.text || equal_objects(&format!("{}{piece}", self.text)).is_some())
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// True if the text is a JSON value or the beginning of one.
fn may_be_one_value(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(&escape_controls(text))
        .map_or_else(|error| error.is_eof(), |_| true)
}

fn parse_leniently(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        let mended = repair_surrogates(&escape_controls(text), &mut None).into_owned();
        let whole = first_value(&mended).or_else(|| first_value(&without_trailing_comma(&mended)?));
        whole.ok_or(error)
    })
}

/// The first JSON value of the text, if only harmless characters follow it.
fn first_value(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    is_harmless_suffix(text[values.byte_offset()..].trim()).then_some(value)
}

/// The text without a trailing comma before a closing bracket. With more than one such comma the
/// text is rejected, since that is no longer a slip.
fn without_trailing_comma(text: &str) -> Option<String> {
    let mut inside = false;
    let mut escaped = false;
    let mut comma = None;
    let mut found = None;
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

/// True if the text after a complete value cannot belong to it: surplus closing brackets, a code
/// fence or a template's closing tag.
fn is_harmless_suffix(rest: &str) -> bool {
    let is_tag = rest.starts_with('<') && rest.ends_with('>') && !rest.contains(['{', '[', '"']);
    is_tag || rest.chars().all(|c| c.is_whitespace() || "}])`;,".contains(c))
}

/// Escapes raw control characters in strings, which JSON forbids but models emit.
fn escape_controls(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 16);
    let mut inside = false;
    let mut escaped = false;
    for char in text.chars() {
        match char {
            '"' if !escaped => inside = !inside,
            // Not after a backslash: the escape sequence would end up as literal text.
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

/// The object that the text ends with, if nothing precedes it but the same object or its beginning. A
/// text that could be the beginning of one JSON value is never taken for a repetition: its end is missing.
fn repeated_object(text: &str) -> Option<Value> {
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
fn equal_objects(text: &str) -> Option<Value> {
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
