//! A JSON value → a type, with a list of what the type does not know.

use std::cell::RefCell;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde_json::{Error, Value};

/// The most unknown names that are remembered.
const MOST_IGNORED: usize = 8;
/// Characters of each.
const LONGEST_NAME: usize = 40;

/// Reads a value; returns the names that were ignored too.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<(T, Vec<String>), Error> {
    let ignored = RefCell::default();
    let reader = Reader { value, place: String::new(), ignored: &ignored };
    let read = T::deserialize(reader)?;
    Ok((read, ignored.into_inner()))
}

struct Reader<'a> {
    value: Value,
    /// The name of the argument, such as `edits[0].old_text`.
    place: String,
    ignored: &'a RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    fn field(&self, key: &str, value: Value) -> Reader<'a> {
        let dot = if self.place.is_empty() { "" } else { "." };
        Reader { value, place: format!("{}{dot}{key}", self.place), ignored: self.ignored }
    }

    fn item(&self, number: usize, value: Value) -> Reader<'a> {
        Reader { value, place: format!("{}[{number}]", self.place), ignored: self.ignored }
    }

    /// An error with the argument that it is about.
    fn at<T>(place: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match place {
            "" => error,
            place => {
                let error = error.to_string();
                let known = error.starts_with('`').then(|| error.clone());
                Error::custom(known.unwrap_or_else(|| format!("`{place}`: {error}")))
            }
        })
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
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
        Reader::at(&self.place, read)
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
        Reader::at(&self.place, self.value.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut ignored = self.ignored.borrow_mut();
        // Nothing said with a name that is not known is nothing.
        if ignored.len() < MOST_IGNORED && !self.value.is_null() {
            ignored.push(self.place.chars().take(LONGEST_NAME).collect());
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

impl<'de> IntoDeserializer<'de, Error> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
