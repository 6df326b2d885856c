//! Reads settings from the text of a TOML file: the values, and a warning about each entry that is not known. Does no
//! I/O.
//!
//! The deserializer of `toml_edit` needs several copies of the code that reads a section, and a wrapper that notes
//! unknown entries needs more. The one here needs a single copy, and the rows say which entries are known.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error, IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use toml_edit::{Document, Item, Key, TableLike, Value};

use crate::ConfigError;
use crate::document::key_text;
use crate::table::{Inner, Row};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::field_error_text;

/// The key below which the deserializer of `toml_edit` has a date.
const DATE_KEY: &str = "$__toml_private_datetime";

/// Reads settings with these rows from the text of a file. Also returns a warning about each entry that is not known:
/// an entry of a newer version must not be an error in an older one.
pub(crate) fn read_settings<T: DeserializeOwned>(
    text: &str,
    path: &Path,
    rows: &'static [Row],
) -> Result<(T, Vec<String>), ConfigError> {
    let root = parse(text).map_err(|error| error.in_file(text, path))?;
    let mut unknown = Vec::new();
    add_unknown(&root, Inner::Section(rows), &mut Vec::new(), &mut unknown);
    let settings = T::deserialize(root).map_err(|error| error.in_file(text, path))?;
    Ok((settings, unknown))
}

/// Reads a value from the text of another TOML file. An entry that its type does not know is an error where the type
/// says so.
///
/// # Errors
/// The number of the line, and what is wrong there.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    let read = parse(text).and_then(T::deserialize);
    read.map_err(|error| (line_of(text_before(error.place, text)), error.message))
}

fn parse(text: &str) -> Result<TomlNode, ReadError> {
    let document = Document::parse(text)
        .map_err(|error| ReadError { message: error.message().to_owned(), place: error.span() })?;
    Ok(TomlNode::of_item(document.as_item()))
}

/// Adds a warning about each entry below a value that is not known. The value has these keys.
fn add_unknown<'a>(
    node: &'a TomlNode,
    inner: Inner,
    keys: &mut Vec<&'a str>,
    unknown: &mut Vec<String>,
) {
    match (&node.content, inner) {
        (TomlContent::List(nodes), Inner::Each(rows)) => {
            for node in nodes {
                add_unknown(node, Inner::Section(rows), keys, unknown);
            }
        }
        (TomlContent::Table(entries), Inner::Each(rows)) => {
            for (key, node) in entries {
                keys.push(key);
                add_unknown(node, Inner::Section(rows), keys, unknown);
                keys.pop();
            }
        }
        (TomlContent::Table(entries), Inner::Section(rows)) => {
            for (key, node) in entries {
                keys.push(key);
                match rows.iter().find(|row| row.key == key) {
                    Some(row) if row.warns_itself => {}
                    Some(row) => add_unknown(node, row.inner, keys, unknown),
                    None => unknown.push(unknown_setting(keys.as_slice())),
                }
                keys.pop();
            }
        }
        _ => {}
    }
}

pub(crate) fn unknown_setting(keys: &[impl AsRef<str>]) -> String {
    format!("Unknown setting `{}` (ignored)", escape_hidden_line(&key_text(keys)))
}

/// A value of a file.
struct TomlNode {
    /// Where the value is, or its key if the value has no text of its own.
    place: Option<Range<usize>>,
    content: TomlContent,
}

enum TomlContent {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<TomlNode>),
    Table(Vec<(String, TomlNode)>),
}

impl TomlNode {
    fn of_item(item: &Item) -> TomlNode {
        match item {
            Item::None => TomlNode { place: None, content: TomlContent::List(Vec::new()) },
            Item::Value(value) => TomlNode::of_value(value),
            Item::Table(table) => TomlNode::of_table(table, table.span()),
            Item::ArrayOfTables(tables) => {
                let nodes = tables.iter().map(|table| TomlNode::of_table(table, table.span()));
                TomlNode { place: tables.span(), content: TomlContent::List(nodes.collect()) }
            }
        }
    }

    fn of_value(value: &Value) -> TomlNode {
        let content = match value {
            Value::String(text) => TomlContent::Text(text.value().clone()),
            Value::Integer(number) => TomlContent::Integer(*number.value()),
            Value::Float(number) => TomlContent::Float(*number.value()),
            Value::Boolean(flag) => TomlContent::Boolean(*flag.value()),
            Value::Datetime(date) => {
                let content = TomlContent::Text(date.value().to_string());
                let entry = (DATE_KEY.to_owned(), TomlNode { place: None, content });
                TomlContent::Table(vec![entry])
            }
            Value::Array(list) => TomlContent::List(list.iter().map(TomlNode::of_value).collect()),
            Value::InlineTable(table) => return TomlNode::of_table(table, table.span()),
        };
        TomlNode { place: value.span(), content }
    }

    fn of_table(table: &dyn TableLike, place: Option<Range<usize>>) -> TomlNode {
        let entries = table.iter().map(|(key, item)| {
            let node = TomlNode::of_item(item);
            let place = node.place.or_else(|| table.key(key).and_then(Key::span));
            (key.to_owned(), TomlNode { place, content: node.content })
        });
        TomlNode { place, content: TomlContent::Table(entries.collect()) }
    }
}

impl<'de> Deserializer<'de> for TomlNode {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let read: Result<V::Value, ReadError> = match self.content {
            TomlContent::Boolean(flag) => visitor.visit_bool(flag),
            TomlContent::Integer(number) => visitor.visit_i64(number),
            TomlContent::Float(number) => visitor.visit_f64(number),
            TomlContent::Text(text) => visitor.visit_string(text),
            TomlContent::List(nodes) => visitor.visit_seq(SeqDeserializer::new(nodes.into_iter())),
            TomlContent::Table(entries) => {
                // An error about a key is in the line of its value.
                let pairs = entries.into_iter().map(|(key, node)| {
                    let content = TomlContent::Text(key);
                    (TomlNode { place: node.place.clone(), content }, node)
                });
                visitor.visit_map(MapDeserializer::new(pairs))
            }
        };
        read.map_err(|error| ReadError { place: error.place.or(self.place), ..error })
    }

    // A value that is there is never `None`.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, ReadError> for TomlNode {
    type Deserializer = TomlNode;

    fn into_deserializer(self) -> TomlNode {
        self
    }
}

/// Why a file cannot be read, and where the error is in it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct ReadError {
    message: String,
    place: Option<Range<usize>>,
}

impl Error for ReadError {
    fn custom<T: Display>(message: T) -> ReadError {
        ReadError { message: message.to_string(), place: None }
    }
}

impl ReadError {
    fn in_file(self, text: &str, path: &Path) -> ConfigError {
        parse_error(self.place, &self.message, text, path)
    }
}

/// Describes a parse error with its position, in one line. Quotes nothing of the file, which may contain
/// a secret.
pub(crate) fn parse_error(
    span: Option<Range<usize>>,
    message: &str,
    text: &str,
    path: &Path,
) -> ConfigError {
    let before = text_before(span, text);
    let line = line_of(before);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    ConfigError::new(format!(
        "The settings cannot be read: {}, line {line}, column {column}: {}. Fix the file; new \
         sessions re-read it",
        path.display(),
        redacted_message(message)
    ))
}

/// The text before a place; all of it if the place is not known.
fn text_before(place: Option<Range<usize>>, text: &str) -> &str {
    let start = place.map_or(text.len(), |place| place.start);
    text.get(..start).unwrap_or(text)
}

/// The number of the line that follows a text.
fn line_of(before: &str) -> usize {
    before.matches('\n').count() + 1
}

/// The message of a TOML error in one line, without the quoted value, which may be a secret.
fn redacted_message(message: &str) -> String {
    let mut message = field_error_text("", message.trim()).replace(['\n', '\r'], " ");
    if let (Some(first), Some(last)) = (message.find('"'), message.rfind('"'))
        && first < last
    {
        message.replace_range(first..=last, "\"…\"");
    }
    // The cause is mostly a path of Windows.
    if ["unicode value", "escaped value"].iter().any(|part| message.contains(part)) {
        message.push_str(": write each backslash twice, or the text in single quotes");
    }
    // JSON calls a table an object.
    message.replace("an object", "a table")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigFile;

    #[test]
    fn values_are_those_that_toml_edit_reads() {
        let text = "a = 7\n b = [-0.5, 'x', [], {}]\nc.d = true\nc.\"e f\" = 2020-01-01T10:00:00Z\n\
                    [g.h]\ni = { j = { k = 1 }, l.m = 2 }\n[[n]]\no = 1\n[[n]]\n[n.p]\nq = \"\\t\"";
        let path = Path::new("c.toml");
        let (read, unknown) = read_settings::<serde_json::Value>(text, path, &[]).unwrap();
        let expected: serde_json::Value = toml_edit::de::from_str(text).unwrap();
        assert_eq!(read, expected);
        assert_eq!(unknown, ["a", "b", "c", "g", "n"].map(|key| unknown_setting(&[key])));
    }

    #[test]
    fn errors_are_those_of_toml_edit() {
        for text in [
            "= 1",
            "a = 1\na = 2",
            "model = 1",
            "model = 2020-01-01",
            "[model.x]\ny = 1",
            "\nfind_checks = 'x'",
            "max_turn_requests = -1",
            "models.model = [1]",
            "[models]\nmodel.x.request = 1",
            "[[web]]\nallow = 1",
            "web = { allow = ['a', []] }",
            "limits.turn_tokens = 0",
            "[limits]\nturn_cost = 'x'",
            "providers = 1",
            "providers.x.base_url = 3",
            "[providers.x]\nheaders = { a = 1 }",
            "[providers.x.model.m]\nprice = { input = 1 }",
            "[providers.x.model.m.price]\ninput = 'x'",
            "providers.x.model.m.price.input = 1",
            "permissions.rule = [{ effect = 'deny' }, { effect = 3 }]",
            "[[permissions.rule]]\n[[permissions.rule]]\nwhen = 1",
        ] {
            let path = Path::new("c.toml");
            let read = read_settings::<ConfigFile>(text, path, ConfigFile::ROWS).unwrap_err();
            let error = toml_edit::de::from_str::<ConfigFile>(text).unwrap_err();
            let expected = parse_error(error.span(), error.message(), text, path);
            assert_eq!(read.to_string(), expected.to_string(), "{text}");
        }
    }
}
