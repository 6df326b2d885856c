//! Reads JSON files with comments and trailing commas, as editors have, and puts an entry into one.
//! Every byte outside of the entry stays as it is.

use jsonc_parser::ast::{Object, Value as Node};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, ScannerOptions, parse_to_ast};
use serde_json::{Value, json};

use crate::ConfigError;
use crate::document::line_end;

/// Objects and lists in deeper nesting are refused: the parser calls itself, and its own limit needs a large
/// stack.
const MAX_DEPTH: usize = 100;
/// The indentation of a file that has none to go by.
const DEFAULT_INDENT: &str = "  ";
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The value of a text; null if there is nothing but blanks and comments.
///
/// # Errors
/// If it cannot be parsed: why, and in which line.
pub fn parse(text: &str) -> Result<Value, ConfigError> {
    Ok(parse_document(text.trim_start_matches(BYTE_ORDER_MARK))?.map_or(Value::Null, Value::from))
}

/// The text with a value at a path of keys. A value that is there is replaced; objects that are missing on the
/// way are made.
pub fn with_value(text: &str, path: &[&str], value: &Value) -> Result<String, ConfigError> {
    if let Some(rest) = text.strip_prefix(BYTE_ORDER_MARK) {
        return Ok(format!("{BYTE_ORDER_MARK}{}", with_value(rest, path, value)?));
    }
    let Some(root) = parse_document(text)? else {
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{separator}{:#}\n", wrapped(path, value)));
    };
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        let Node::Object(object) = node else {
            let place = depth.checked_sub(1).map_or("it", |parent| path[parent]);
            return Err(ConfigError::new(format!("{place} is not an object")));
        };
        let mut found = object.properties.iter().filter(|property| property.name.as_str() == *key);
        node = match (found.next(), found.next()) {
            (None, _) => return Ok(insert(text, object, key, &wrapped(&path[depth + 1..], value))),
            (Some(property), None) => &property.value,
            _ => return Err(ConfigError::new(format!("it has `{key}` twice"))),
        };
    }
    let new = indented(value, indent_of(text, node.start()), text);
    Ok(splice(text, node.range(), &new))
}

fn parse_document(text: &str) -> Result<Option<Node<'_>>, ConfigError> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    // Some programs take it for the end of a comment, and others do not.
    if text.replace("\r\n", "\n").contains('\r') {
        return Err(ConfigError::new("it has a line end that not all programs see"));
    }
    if is_nested_too_deeply(text) {
        return Err(ConfigError::new("it is nested too deeply"));
    }
    match parse_to_ast(text, &CollectOptions::default(), &options) {
        Ok(document) => Ok(document.value),
        Err(error) => Err(ConfigError::new(error.to_string())),
    }
}

fn is_nested_too_deeply(text: &str) -> bool {
    let mut scanner = Scanner::new(text, &ScannerOptions::default());
    let mut depth = 0_usize;
    while let Ok(Some(token)) = scanner.scan() {
        match token {
            Token::OpenBrace | Token::OpenBracket => depth += 1,
            Token::CloseBrace | Token::CloseBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

fn splice(text: &str, range: Range, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

/// A value within an object for each key.
fn wrapped(path: &[&str], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| json!({ *key: inner }))
}

/// Inserts a member as the first of an object, so that no comma has to be put behind another member,
/// where a comment may follow.
fn insert(text: &str, object: &Object, key: &str, value: &Value) -> String {
    let key = Value::from(key);
    let first = object.properties.first().map(Ranged::start);
    if let Some(first) = first.filter(|_| !object.text(text).contains('\n')) {
        let new = format!("{key}: {}, ", written(value, "", " "));
        return splice(text, Range::from_byte_index(first), &new);
    }
    let base = indent_of(text, object.start());
    let indent = match first {
        // The first member stands alone at the beginning of its line.
        Some(first) if text[line_start(text, first)..first].trim().is_empty() => {
            indent_of(text, first).to_owned()
        }
        _ => format!("{base}{}", indent_unit(text)),
    };
    // A comment beside the opening brace belongs to the object.
    let open = object.start() + 1;
    let gap = &text[open..first.unwrap_or(object.end())];
    let beside = gap.lines().next().unwrap_or_default();
    let has_line_end = gap.contains('\n') && !beside.contains("/*");
    let at = if has_line_end { open + beside.len() } else { open };
    let newline = line_end(text);
    let after = match first {
        Some(_) => ",".to_owned(),
        None if has_line_end => String::new(),
        None => format!("{newline}{base}"),
    };
    let new = format!("{newline}{indent}{key}: {}{after}", indented(value, &indent, text));
    splice(text, Range::from_byte_index(at), &new)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The blanks at the beginning of the line of a position.
fn indent_of(text: &str, at: usize) -> &str {
    leading_blanks(&text[line_start(text, at)..])
}

fn leading_blanks(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The text before the keys of the file's first object.
fn indent_unit(text: &str) -> &str {
    let keys = text.lines().filter(|line| line.trim_start_matches([' ', '\t']).starts_with('"'));
    let mut indents = keys.map(leading_blanks);
    indents.find(|blanks| (1..=8).contains(&blanks.len())).unwrap_or(DEFAULT_INDENT)
}

/// The text of a value with the indentation and the line ends of `text`; the first line has no indentation.
fn indented(value: &Value, indent: &str, text: &str) -> String {
    written(value, indent_unit(text), &format!("{}{indent}", line_end(text)))
}

fn written(value: &Value, unit: &str, separator: &str) -> String {
    let text = format!("{value:#}");
    let lines = text.lines().map(|line| {
        let levels = leading_blanks(line).len() / DEFAULT_INDENT.len();
        format!("{}{}", unit.repeat(levels), line.trim_start())
    });
    lines.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests;
