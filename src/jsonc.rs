//! Reads JSON files with comments and trailing commas, as editors have, and puts an entry into one.
//! Every byte outside of the entry stays as it is, which is verified before the text is returned.

use std::ops::Range;

use serde_json::{Map, Value};

/// Objects and lists in deeper nesting are refused: the parser calls itself.
const MAX_DEPTH: usize = 100;
/// The indentation of a file that has none to go by.
const DEFAULT_INDENT: &str = "  ";

/// Why a file cannot be parsed or changed, in words for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct JsoncError(String);

impl From<&str> for JsoncError {
    fn from(text: &str) -> JsoncError {
        JsoncError(text.to_owned())
    }
}

/// A value in the text.
struct JsoncNode {
    span: Range<usize>,
    /// None if it is not an object.
    members: Option<Vec<JsoncMember>>,
}

struct JsoncMember {
    key: String,
    /// Where the key starts.
    start: usize,
    node: JsoncNode,
}

/// The value of a text; null if there is nothing but blanks and comments.
///
/// # Errors
/// If it cannot be parsed: in which line, and why.
pub(crate) fn parse(text: &str) -> Result<Value, JsoncError> {
    Ok(parse_document(text)?.map_or(Value::Null, |it| it.1))
}

/// The text with a value, which is JSON, at a path of keys. A value that is there is replaced; objects that
/// are missing on the way are made.
pub(crate) fn with_value(text: &str, path: &[&str], value: &str) -> Result<String, JsoncError> {
    let new: Value = serde_json::from_str(value).map_err(|it| JsoncError(it.to_string()))?;
    let Some((root, old)) = parse_document(text)? else {
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{separator}{}\n", wrapped(path, value)));
    };
    let place = find(&root, path)?;
    let changed = match place {
        Place::Value(span) => {
            let line = line_start(text, span.start);
            let indented = indented(value, indent_of(&text[line..]), &indent_unit(text), text);
            splice(text, &span, &indented)
        }
        Place::Missing { object, path } => {
            insert(text, object, path[0], &wrapped(&path[1..], value))
        }
    };
    // The writing above knows nothing of commas in strings or of comments in odd places; this does.
    let mut expected = old;
    set(&mut expected, path, new);
    match parse(&changed) {
        Ok(found) if found == expected => Ok(changed),
        _ => Err("it has a form that cannot be changed safely".into()),
    }
}

/// Where a value is or can be put.
enum Place<'a> {
    Value(Range<usize>),
    /// The last object on the way, and the keys that it lacks.
    Missing {
        object: &'a JsoncNode,
        path: &'a [&'a str],
    },
}

fn find<'a>(root: &'a JsoncNode, path: &'a [&'a str]) -> Result<Place<'a>, JsoncError> {
    let mut node = root;
    for (depth, key) in path.iter().enumerate() {
        let Some(members) = &node.members else {
            let what = depth.checked_sub(1).map_or("it", |it| path[it]);
            return Err(JsoncError(format!("{what} is not an object")));
        };
        let mut found = members.iter().filter(|it| it.key == *key);
        match (found.next(), found.next()) {
            (None, _) => return Ok(Place::Missing { object: node, path: &path[depth..] }),
            (Some(member), None) => node = &member.node,
            _ => return Err(JsoncError(format!("it has `{key}` twice"))),
        }
    }
    Ok(Place::Value(node.span.clone()))
}

fn set(target: &mut Value, path: &[&str], new: Value) {
    match path {
        [] => *target = new,
        [key, rest @ ..] => {
            if let Value::Object(members) = target {
                let empty = || Value::Object(Map::new());
                set(members.entry(*key).or_insert_with(empty), rest, new);
            }
        }
    }
}

fn splice(text: &str, span: &Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..span.start], &text[span.end..])
}

/// A value within an object for each key.
fn wrapped(path: &[&str], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, key| {
        let inner = indented(&inner, DEFAULT_INDENT, DEFAULT_INDENT, "");
        format!("{{\n{DEFAULT_INDENT}{}: {inner}\n}}", Value::from(*key))
    })
}

/// Inserts a member as the first of an object, so that no comma has to be put behind another member,
/// where a comment may follow.
fn insert(text: &str, object: &JsoncNode, key: &str, value: &str) -> String {
    let first = object.members.iter().flatten().next();
    let (open, inside) = (object.span.start + 1, &text[object.span.clone()]);
    let key = Value::from(key);
    if let Some(first) = first.filter(|_| !inside.contains('\n')) {
        let compact: Vec<_> = value.lines().map(str::trim).collect();
        let new = format!("{key}: {}, ", compact.join(" "));
        return splice(text, &(first.start..first.start), &new);
    }
    let newline = newline(text);
    let unit = indent_unit(text);
    let base = indent_of(&text[line_start(text, object.span.start)..]);
    let indent = match first {
        // The first member stands alone at the beginning of its line.
        Some(first) if text[line_start(text, first.start)..first.start].trim().is_empty() => {
            indent_of(&text[line_start(text, first.start)..]).to_owned()
        }
        _ => format!("{base}{unit}"),
    };
    // A comment beside the opening brace belongs to the object.
    let line_end = comments_to_line_end(text, open);
    let at = line_end.unwrap_or(open);
    let mut new = format!("{newline}{indent}{key}: {}", indented(value, &indent, &unit, text));
    match (first, line_end) {
        (Some(_), _) => new.push(','),
        (None, Some(_)) => {}
        (None, None) => new.push_str(&format!("{newline}{base}")),
    }
    splice(text, &(at..at), &new)
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |it| it + 1)
}

/// The blanks at the beginning of a line.
fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// What the file puts before the keys of its first object.
fn indent_unit(text: &str) -> String {
    let keys = text.lines().filter(|it| it.trim_start_matches([' ', '\t']).starts_with('"'));
    let found = keys.map(indent_of).find(|it| !it.is_empty() && it.len() <= 8);
    found.unwrap_or(DEFAULT_INDENT).to_owned()
}

/// The lines of a value with the indentation and the line ends of `text`; the first stays where it is.
fn indented(value: &str, indent: &str, unit: &str, text: &str) -> String {
    let blanks = |line: &str| indent_of(line).len();
    let least = value.lines().skip(1).map(blanks).min().unwrap_or_default();
    let line = |line: &str| {
        let levels = (blanks(line) - least) / DEFAULT_INDENT.len();
        format!("{}{indent}{}{}", newline(text), unit.repeat(levels), line.trim_start())
    };
    let first = value.lines().next().unwrap_or_default().to_owned();
    value.lines().skip(1).fold(first, |whole, next| whole + &line(next))
}

/// The end of the line if nothing but blanks and whole comments are before it.
fn comments_to_line_end(text: &str, from: usize) -> Option<usize> {
    let mut reader = JsoncReader { text, at: from };
    loop {
        let rest = reader.rest();
        let blanks = indent_of(rest).len();
        let rest = &rest[blanks..];
        reader.at += blanks;
        if rest.starts_with('\n') || rest.starts_with("\r\n") {
            return Some(reader.at);
        }
        let before = reader.at;
        if !reader.comment().ok()? || text[before..reader.at].contains('\n') {
            return None;
        }
    }
}

fn parse_document(text: &str) -> Result<Option<(JsoncNode, Value)>, JsoncError> {
    let mut reader = JsoncReader { text, at: 0 };
    if text.starts_with('\u{feff}') {
        reader.at = '\u{feff}'.len_utf8();
    }
    let parsed = reader.document();
    parsed.map_err(|why| {
        let line = text[..reader.at].matches('\n').count() + 1;
        JsoncError(format!("line {line}: {why}"))
    })
}

struct JsoncReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsoncReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn document(&mut self) -> Result<Option<(JsoncNode, Value)>, JsoncError> {
        self.skip_blanks()?;
        if self.rest().is_empty() {
            return Ok(None);
        }
        let document = self.value(0)?;
        self.skip_blanks()?;
        if self.rest().is_empty() { Ok(Some(document)) } else { Err("text after the end".into()) }
    }

    fn skip_blanks(&mut self) -> Result<(), JsoncError> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if !self.comment()? {
                return Ok(());
            }
        }
    }

    /// Skips a comment, without the line end after `//`. False if there is none.
    fn comment(&mut self) -> Result<bool, JsoncError> {
        let rest = self.rest();
        let length = if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or_default();
            if line.contains('\r') {
                return Err("a line end within a comment that not all programs see".into());
            }
            line.len()
        } else if let Some(inner) = rest.strip_prefix("/*") {
            inner.find("*/").ok_or("a comment does not end")? + 4
        } else {
            return Ok(false);
        };
        self.at += length;
        Ok(true)
    }

    /// Skips a sign, if it is next.
    fn takes(&mut self, sign: char) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len_utf8() } else { 0 };
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<(JsoncNode, Value), JsoncError> {
        if depth > MAX_DEPTH {
            return Err("nested too deeply".into());
        }
        let start = self.at;
        let (members, value) = if self.takes('{') {
            let (members, values) = self.members(depth)?;
            (Some(members), Value::Object(values))
        } else if self.takes('[') {
            (None, Value::Array(self.elements(depth)?))
        } else {
            (None, self.scalar()?)
        };
        Ok((JsoncNode { span: start..self.at, members }, value))
    }

    fn members(
        &mut self,
        depth: usize,
    ) -> Result<(Vec<JsoncMember>, Map<String, Value>), JsoncError> {
        let (mut members, mut values) = (Vec::new(), Map::new());
        loop {
            self.skip_blanks()?;
            if self.takes('}') {
                return Ok((members, values));
            }
            let start = self.at;
            let Value::String(key) = self.scalar()? else {
                return Err("a key is not a string".into());
            };
            self.skip_blanks()?;
            if !self.takes(':') {
                return Err("expected a colon after a key".into());
            }
            self.skip_blanks()?;
            let (node, value) = self.value(depth + 1)?;
            values.insert(key.clone(), value);
            members.push(JsoncMember { key, start, node });
            self.skip_blanks()?;
            if !self.takes(',') && !self.rest().starts_with('}') {
                return Err("expected a comma or }".into());
            }
        }
    }

    fn elements(&mut self, depth: usize) -> Result<Vec<Value>, JsoncError> {
        let mut elements = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.takes(']') {
                return Ok(elements);
            }
            elements.push(self.value(depth + 1)?.1);
            self.skip_blanks()?;
            if !self.takes(',') && !self.rest().starts_with(']') {
                return Err("expected a comma or ]".into());
            }
        }
    }

    /// A string, a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<Value, JsoncError> {
        let rest = self.rest();
        let length = if let Some(inner) = rest.strip_prefix('"') {
            let mut is_escaped = false;
            let end = inner.find(|it| {
                let ends = it == '"' && !is_escaped;
                is_escaped = it == '\\' && !is_escaped;
                ends
            });
            end.ok_or("a string does not end")? + 2
        } else {
            let is_word = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
            rest.len() - rest.trim_start_matches(is_word).len()
        };
        let text = &rest[..length];
        let value = serde_json::from_str(text).map_err(|_| {
            JsoncError(match rest.chars().next() {
                None => "the text ends too early".to_owned(),
                // It may be a password.
                Some('"') => "a string that is not JSON".to_owned(),
                Some(sign) if text.is_empty() => format!("unexpected {sign:?}"),
                Some(_) => format!("unexpected {text:?}"),
            })
        })?;
        self.at += length;
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
