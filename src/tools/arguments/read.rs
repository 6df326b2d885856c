//! Deserializes a JSON value and collects the names of fields that the type does not know.

use std::cell::RefCell;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde_json::{Error, Value};

/// At most this many unknown names are collected.
const MAX_IGNORED: usize = 8;
/// At most this many characters of each.
const MAX_NAME_CHARS: usize = 40;

/// Deserializes a value. Also returns the names that were ignored.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<(T, Vec<String>), Error> {
    let ignored = RefCell::default();
    let reader = ArgumentDeserializer { value, path: String::new(), ignored: &ignored };
    let read = T::deserialize(reader)?;
    Ok((read, ignored.into_inner()))
}

struct ArgumentDeserializer<'a> {
    value: Value,
    /// The path of the value, such as `edits[0].old_text`.
    path: String,
    ignored: &'a RefCell<Vec<String>>,
}

impl<'a> ArgumentDeserializer<'a> {
    fn field(&self, key: &str, value: Value) -> ArgumentDeserializer<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        ArgumentDeserializer {
            value,
            path: format!("{}{dot}{key}", self.path),
            ignored: self.ignored,
        }
    }

    fn item(&self, number: usize, value: Value) -> ArgumentDeserializer<'a> {
        ArgumentDeserializer {
            value,
            path: format!("{}[{number}]", self.path),
            ignored: self.ignored,
        }
    }

    /// Adds the path of the argument to an error.
    fn at<T>(path: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match path {
            "" => error,
            path => {
                let error = error.to_string();
                let known = error.starts_with('`').then(|| error.clone());
                Error::custom(known.unwrap_or_else(|| format!("`{path}`: {error}")))
            }
        })
    }
}

impl<'de> Deserializer<'de> for ArgumentDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let read = match self.value.take() {
            Value::Array(items) => {
                let item = |(number, it)| self.item(number, it);
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().enumerate().map(item)))
            }
            Value::Object(fields) => {
                let field = |(key, it): (String, Value)| {
                    let inner = self.field(&key, it);
                    (key, inner)
                };
                visitor.visit_map(MapDeserializer::new(fields.into_iter().map(field)))
            }
            plain => plain.deserialize_any(visitor),
        };
        ArgumentDeserializer::at(&self.path, read)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        ArgumentDeserializer::at(&self.path, self.value.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut ignored = self.ignored.borrow_mut();
        // A null under an unknown name is not worth mentioning.
        if ignored.len() < MAX_IGNORED && !self.value.is_null() {
            ignored.push(self.path.chars().take(MAX_NAME_CHARS).collect());
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

impl<'de> IntoDeserializer<'de, Error> for ArgumentDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
