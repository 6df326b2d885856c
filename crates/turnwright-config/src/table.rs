//! Settings as a table: a setting is a row with its key, its type and its texts. The rest follows from the row:
//! the field that is read, the JSON Schema, the template, the tables of the manual, what is said of a wrong
//! value, and the line of `config show`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use serde_json::{Map, Value, json};

use crate::RuleEntry;
use crate::sandbox::NetworkValue;

/// A part of the JSON Schema.
pub(crate) type SchemaNode = Map<String, Value>;

/// A setting, as far as its type does not say it.
#[derive(Debug)]
pub(crate) struct Row {
    /// The key in its section.
    pub(crate) key: &'static str,
    /// A sentence for the JSON Schema and the template.
    pub(crate) description: &'static str,
    pub(crate) type_schema: fn() -> SchemaNode,
    pub(crate) inner: Inner,
    /// The words that are allowed, or null.
    pub(crate) words: fn() -> Value,
    /// The value that is in force if there is none, or null.
    pub(crate) default: fn() -> Value,
    /// Values that somebody may want, or null.
    pub(crate) examples: fn() -> Value,
    /// The description of the entries of a table whose keys the user chooses.
    pub(crate) each: &'static str,
    /// True if the section makes no sense without it.
    pub(crate) required: bool,
    /// True if the key is known only to be refused.
    pub(crate) hidden: bool,
    /// True if the code that reads the section warns of its unknown entries.
    pub(crate) warns_itself: bool,
    /// The flag that takes precedence over the file. Only shown: flags are read in `cli`.
    pub(crate) flag: &'static str,
    /// The variable that takes precedence over the file. Read only for the rows of `ConfigFile` and `AgentSection`.
    pub(crate) variable: &'static str,
    /// The meaning in a table of the manual.
    #[cfg(test)]
    pub(crate) manual: &'static str,
    /// Wrong entries, of which the manual has what is said.
    #[cfg(test)]
    pub(crate) wrong: &'static [&'static str],
    /// The name of the function that checks the value.
    #[cfg(test)]
    pub(crate) check: &'static str,
}

/// The settings in the value of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inner {
    /// It is a single value, or its keys are not ours.
    Nothing,
    Section(&'static [Row]),
    /// Each entry of a list, or of a table whose keys the user chooses, is a section.
    Each(&'static [Row]),
}

impl Inner {
    #[cfg(test)]
    pub(crate) fn rows(self) -> &'static [Row] {
        match self {
            Inner::Nothing => &[],
            Inner::Section(rows) | Inner::Each(rows) => rows,
        }
    }
}

fn nothing() -> Value {
    Value::Null
}

impl Row {
    /// The row of a setting of this type.
    pub(crate) const fn new<T: SettingType>(key: &'static str, description: &'static str) -> Row {
        Row {
            key,
            description,
            type_schema: T::schema,
            inner: T::INNER,
            words: nothing,
            default: nothing,
            examples: nothing,
            each: "",
            required: false,
            hidden: false,
            warns_itself: false,
            flag: "",
            variable: "",
            #[cfg(test)]
            manual: "",
            #[cfg(test)]
            wrong: &[],
            #[cfg(test)]
            check: "",
        }
    }

    /// The setting in the JSON Schema.
    pub(crate) fn schema(&self) -> SchemaNode {
        let mut node = described(self.description, (self.type_schema)());
        if !self.each.is_empty()
            && let Some(Value::Object(entry)) = node.get_mut("additionalProperties")
        {
            *entry = described(self.each, std::mem::take(entry));
        }
        let facts = [("enum", self.words), ("default", self.default), ("examples", self.examples)];
        for (name, fact) in facts {
            let value = fact();
            if !value.is_null() {
                node.insert(name.to_owned(), value);
            }
        }
        node
    }

    /// The default as `config show` prints it. An empty list is not shown.
    pub(crate) fn shown_default(&self) -> Option<String> {
        match (self.default)() {
            Value::String(word) => Some(word),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            plain => Some(plain.to_string()),
        }
    }
}

fn described(description: &str, node: SchemaNode) -> SchemaNode {
    let first = ("description".to_owned(), Value::from(description));
    std::iter::once(first).chain(node).collect()
}

/// The schema of a table with these keys and no others.
pub(crate) fn section_schema(rows: &[Row]) -> SchemaNode {
    let mut node = object(json!({ "type": "object", "additionalProperties": false }));
    let required: Vec<_> = rows.iter().filter(|row| row.required).map(|row| row.key).collect();
    if !required.is_empty() {
        node.insert("required".to_owned(), required.into());
    }
    let known = rows.iter().filter(|row| !row.hidden);
    let properties: SchemaNode =
        known.map(|row| (row.key.to_owned(), row.schema().into())).collect();
    node.insert("properties".to_owned(), properties.into());
    node
}

fn object(value: Value) -> SchemaNode {
    match value {
        Value::Object(node) => node,
        _ => SchemaNode::new(),
    }
}

/// The full key of a setting below this one.
pub(crate) fn full_key(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// A setting: its full key, its row and the value that is set, in one line. A section has no such value.
pub(crate) type Entry = (String, &'static Row, Option<String>);

/// A type that the value of a setting can have.
pub(crate) trait SettingType {
    /// The type of a value that is set.
    type Plain;

    /// The settings in a value of this type.
    const INNER: Inner = Inner::Nothing;

    /// The value, if it is set.
    fn plain(&self) -> Option<&Self::Plain>;

    fn schema() -> SchemaNode;

    /// The value in one line; `None` if it is not set, or is no single value.
    fn shown(&self) -> Option<String> {
        None
    }

    /// The settings of a section that has this key, each followed by those that are in it. A table whose keys the user
    /// chooses has none.
    fn entries(&self, _key: &str) -> Vec<Entry> {
        Vec::new()
    }

    /// The errors in the values of a section that has this key, a sentence each.
    fn wrong_values(&self, _key: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Types without settings of their own: the schema of each, and how a value is shown.
macro_rules! plain_types {
    ($($type:ty: $schema:tt $(, $inner:expr)? => $shown:expr;)+) => {$(
        impl SettingType for $type {
            type Plain = $type;

            $(const INNER: Inner = $inner;)?

            fn plain(&self) -> Option<&$type> {
                Some(self)
            }

            fn schema() -> SchemaNode {
                object(json!($schema))
            }

            fn shown(&self) -> Option<String> {
                let shown: fn(&$type) -> Option<String> = $shown;
                shown(self)
            }
        }
    )+};
}

plain_types! {
    bool: { "type": "boolean" } => as_it_is;
    f64: { "type": "number" } => as_it_is;
    u32: { "type": "integer", "minimum": 0, "maximum": u32::MAX } => as_it_is;
    u64: { "type": "integer", "minimum": 0 } => as_it_is;
    NonZeroU32: { "type": "integer", "minimum": 1, "maximum": u32::MAX } => as_it_is;
    NonZeroU64: { "type": "integer", "minimum": 1 } => as_it_is;
    String: { "type": "string" } => |text| Some(text.escape_debug().to_string());
    Vec<String>: { "type": "array", "items": { "type": "string" } } =>
        |all| (!all.is_empty()).then(|| all.join(", "));
    NetworkValue: {
        "anyOf": [
            { "type": "string", "enum": ["off", "loopback", "on"] },
            { "type": "array", "items": { "type": "string" } }
        ]
    } => |value| Some(value.shown());
    Vec<RuleEntry>: { "type": "array", "items": RuleEntry::schema() },
        Inner::Each(RuleEntry::ROWS) => |_| None;
    // Another program defines its fields.
    Map<String, Value>: { "type": "object" } => |_| None;
}

#[expect(clippy::unnecessary_wraps, reason = "other types have no such text")]
fn as_it_is(value: &impl ToString) -> Option<String> {
    Some(value.to_string())
}

impl<T: SettingType> SettingType for Option<T> {
    type Plain = T;

    const INNER: Inner = T::INNER;

    fn plain(&self) -> Option<&T> {
        self.as_ref()
    }

    fn schema() -> SchemaNode {
        T::schema()
    }

    fn shown(&self) -> Option<String> {
        // An empty list is a value, too.
        self.as_ref().map(|value| value.shown().unwrap_or_default())
    }
}

/// A table whose keys the user chooses.
impl<T: SettingType> SettingType for BTreeMap<String, T> {
    type Plain = BTreeMap<String, T>;

    const INNER: Inner = match T::INNER {
        Inner::Section(rows) => Inner::Each(rows),
        inner => inner,
    };

    fn plain(&self) -> Option<&BTreeMap<String, T>> {
        Some(self)
    }

    fn schema() -> SchemaNode {
        object(json!({ "type": "object", "additionalProperties": T::schema() }))
    }

    fn wrong_values(&self, key: &str) -> Vec<String> {
        // The names of models contain dots and slashes.
        let is_quoted = key.rsplit('.').next() == Some("model");
        let entries = self.iter().flat_map(|(name, value)| {
            let name = if is_quoted { format!("\"{name}\"") } else { name.clone() };
            value.wrong_values(&full_key(key, &name))
        });
        entries.collect()
    }
}

/// Defines a section of the settings file: a struct that serde reads, and its table. A row is
///
/// ```text
/// name: Type = initial => check { part: value } wrong ["name = wrong value"]
///     "A sentence that describes the setting, for the JSON Schema and the template.",
///     "its meaning in the manual";
/// ```
///
/// * `= initial` is the value without an entry, unless it is that of `Type::default()`. A switch or a number needs it,
///   also if it is `false` or 0: without it any value counts as set.
/// * `=> check` is a function from the full key and a value that is set to what is wrong with it.
/// * The parts are fields of [`Row`]. `words`, `default` and `examples` are written as JSON.
/// * `wrong` has lines of a file, and variables with their values, of which the manual has what is said. Each check
///   needs one; a value of another type needs none.
///
/// All of these may be left out, and so may the meaning, which sections do not have.
macro_rules! settings {
    (@part words $value:tt) => { || ::serde_json::json!($value) };
    (@part default $value:tt) => { || ::serde_json::json!($value) };
    (@part examples $value:tt) => { || ::serde_json::json!($value) };
    (@part $part:ident $value:tt) => { $value };
    (@initial $type:ty) => { <$type>::default() };
    (@initial $type:ty, $initial:tt) => { $initial };
    (
        $(#[$attribute:meta])*
        $visibility:vis section $name:ident {
            $(
                $(#[serde($($serde:tt)+)])?
                $field_visibility:vis $field:ident: $type:ty $(= $initial:tt)? $(=> $check:ident)?
                { $($part:ident: $value:tt),* $(,)? } $(wrong $wrong:tt)?
                $description:literal $(, $manual:literal)?;
            )+
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $(
                #[doc = $description]
                $(#[serde($($serde)+)])?
                $field_visibility $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: settings!(@initial $type $(, $initial)?),)+ }
            }
        }

        impl $name {
            /// The settings of this section.
            pub(crate) const ROWS: &[$crate::table::Row] = &[
                $($crate::table::Row {
                    $(default: || ::serde_json::json!($initial),)?
                    $($part: settings!(@part $part $value),)*
                    #[cfg(test)]
                    manual: concat!($($manual)?),
                    $(
                        #[cfg(test)]
                        wrong: &$wrong,
                    )?
                    $(
                        #[cfg(test)]
                        check: stringify!($check),
                    )?
                    ..$crate::table::Row::new::<$type>(stringify!($field), $description)
                },)+
            ];
        }

        impl $crate::table::SettingType for $name {
            type Plain = $name;

            const INNER: $crate::table::Inner = $crate::table::Inner::Section($name::ROWS);

            fn plain(&self) -> Option<&$name> {
                Some(self)
            }

            fn schema() -> $crate::table::SchemaNode {
                $crate::table::section_schema($name::ROWS)
            }

            fn entries(&self, key: &str) -> Vec<$crate::table::Entry> {
                use $crate::table::{SettingType, full_key};
                let values = [$((
                    SettingType::shown(&self.$field) $(.filter(|_| self.$field != $initial))?,
                    SettingType::entries(&self.$field, &full_key(key, stringify!($field))),
                ),)+];
                let entries = $name::ROWS.iter().zip(values).flat_map(|(row, (set, inner))| {
                    std::iter::once((full_key(key, row.key), row, set)).chain(inner)
                });
                entries.collect()
            }

            fn wrong_values(&self, key: &str) -> Vec<String> {
                let mut wrong = Vec::new();
                $(
                    let here = $crate::table::full_key(key, stringify!($field));
                    $(
                        let set = $crate::table::SettingType::plain(&self.$field);
                        wrong.extend(set.into_iter().flat_map(|value| $check(&here, value)));
                    )?
                    wrong.extend($crate::table::SettingType::wrong_values(&self.$field, &here));
                )+
                wrong
            }
        }
    };
}

pub(crate) use settings;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    settings! {
        #[derive(Debug, Deserialize)]
        #[serde(default)]
        pub(crate) section House {
            rooms: u32 = 3 {} "The number of rooms.";
            colour: Option<String> => wrong_colour { words: ["red", "blue"], default: "red" } "The colour.";
            rent: f64 { required: true } "The rent.";
            key: bool { hidden: true } "It does not belong here.";
        }
    }

    fn wrong_colour(key: &str, word: &str) -> Option<String> {
        (!["red", "blue"].contains(&word)).then(|| format!("`{key}` is {word}"))
    }

    fn set(houses: &BTreeMap<String, House>) -> Vec<(&'static str, Option<String>)> {
        houses["one"].entries("").into_iter().map(|(_, row, text)| (row.key, text)).collect()
    }

    #[test]
    fn a_row_gives_the_field_its_schema_and_what_is_said_of_it() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["rent"],
            "properties": {
                "rooms": {
                    "description": "The number of rooms.",
                    "type": "integer",
                    "minimum": 0,
                    "maximum": u32::MAX,
                    "default": 3
                },
                "colour": {
                    "description": "The colour.",
                    "type": "string",
                    "enum": ["red", "blue"],
                    "default": "red"
                },
                "rent": { "description": "The rent.", "type": "number" }
            }
        });
        assert_eq!(Value::from(House::schema()), schema);
        let read =
            |text: &str| -> BTreeMap<String, House> { toml_edit::de::from_str(text).unwrap() };
        let text = |text: &str| Some(text.to_owned());
        let unset = read("[one]\nrent = 1.5\nrooms = 3");
        assert_eq!(
            set(&unset),
            [("rooms", None), ("colour", None), ("rent", text("1.5")), ("key", text("false"))]
        );
        assert_eq!(unset.wrong_values("houses"), [""; 0]);
        let houses = read("[one]\nrooms = 4\ncolour = 'green'");
        assert_eq!(set(&houses)[..2], [("rooms", text("4")), ("colour", text("green"))]);
        assert_eq!(houses.wrong_values("houses"), ["`houses.one.colour` is green"]);
        let shown: Vec<_> = House::ROWS.iter().map(Row::shown_default).collect();
        assert_eq!(shown, [text("3"), text("red"), None, None]);
    }
}
