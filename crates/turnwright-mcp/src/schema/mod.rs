//! Validates values against a server's own schemas: arguments before a call, results after it. A schema
//! that is unusable, or could take too long, accepts everything.

pub(crate) mod json_schema;
pub(crate) mod model_schema;

use std::sync::OnceLock;

use serde_json::Value;

use crate::features::SchemaText;
use turnwright_types::effect::escape_hidden_line;

/// Maximum length of an error message.
const MAX_ERROR_CHARS: usize = 300;

#[derive(Debug)]
pub struct SchemaValidator {
    schema: SchemaText,
    /// False if the schema is too large, recursive, or refers to another document. Known after the first
    /// use.
    is_usable: OnceLock<bool>,
}

impl SchemaValidator {
    pub fn new(schema: SchemaText) -> SchemaValidator {
        SchemaValidator { schema, is_usable: OnceLock::new() }
    }

    /// Returns the first error of a value: its place and the expected value. May take long, so it must
    /// run on a blocking thread.
    pub fn first_error(&self, value: &Value) -> Option<String> {
        let schema = self.schema.parse();
        if !self.is_usable.get_or_init(|| model_schema::model_schema(&schema).is_whole) {
            return None;
        }
        let error = json_schema::first_mismatch(&schema, value)?;
        let place = match error.place.as_str() {
            "" => String::new(),
            place => format!("`{place}`: "),
        };
        let text = escape_hidden_line(&format!("{place}{}", error.what));
        Some(model_schema::bounded_text(&text, MAX_ERROR_CHARS))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn first_error(schema: Value, value: &Value) -> Option<String> {
        let Value::Object(schema) = schema else { panic!("no object") };
        SchemaValidator::new(SchemaText::new(&schema)).first_error(value)
    }

    #[test]
    fn an_error_names_the_place_and_what_is_expected() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "array", "items": { "$ref": "#/$defs/n" } } },
            "required": ["a"],
            "additionalProperties": false,
            "$defs": { "n": { "type": "integer" } },
        });
        let table = [
            (json!({ "a": [1, 2] }), None),
            (json!({ "a": [1, "x"] }), Some("`/a/1`: the value is not of type \"integer\"")),
            (json!({}), Some("\"a\" is a required property")),
            (
                json!({ "a": [], "b": 1 }),
                Some("Additional properties are not allowed ('b' was unexpected)"),
            ),
        ];
        for (value, expected) in table {
            assert_eq!(first_error(schema.clone(), &value).as_deref(), expected);
        }
    }

    #[test]
    fn an_unusable_schema_accepts_everything() {
        let cyclic = json!({ "properties": { "a": { "$ref": "#" } }, "required": ["b"] });
        let mut bomb = Map::new();
        for number in 0..40 {
            let next = json!({ "not": { "$ref": format!("#/$defs/d{}", number + 1) } });
            bomb.insert(format!("d{number}"), json!({ "anyOf": [next, next] }));
        }
        let table = [
            json!({ "type": "made-up" }),
            json!({ "properties": 3, "required": "x" }),
            json!({ "$schema": "https://nowhere.example/none", "required": ["b"] }),
            json!({ "$ref": "https://nowhere.example/none" }),
            json!({ "properties": { "b": { "pattern": "(?=x)" } } }),
            cyclic,
            json!({ "$ref": "#/$defs/d0", "$defs": bomb }),
        ];
        for schema in table {
            assert_eq!(first_error(schema.clone(), &json!({ "b": "y" })), None, "{schema}");
        }
    }
}
