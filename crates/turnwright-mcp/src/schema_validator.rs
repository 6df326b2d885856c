//! Validates values against a server's own schemas: arguments before a call, results after it. A schema
//! that is unusable, or could take too long, accepts everything.

use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, Validator};
use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use super::model_schema;
use turnwright_types::effect::escape_hidden_line;

/// Maximum length of an error message.
const MAX_ERROR_CHARS: usize = 300;
/// Maximum size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// Keywords whose validation can take exponential time if the schema contains references.
const SLOW_KEYWORDS: [&str; 9] = [
    "if",
    "not",
    "contains",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "$dynamicRef",
    "$recursiveRef",
];

/// A validator for one schema, compiled when it is first used.
#[derive(Debug)]
pub struct SchemaValidator {
    schema: Arc<JsonObject>,
    validator: OnceLock<Option<Validator>>,
}

impl SchemaValidator {
    pub fn new(schema: Arc<JsonObject>) -> SchemaValidator {
        SchemaValidator { schema, validator: OnceLock::new() }
    }

    /// Returns the first error of a value: where it is, and what is expected. May take long, so it must
    /// run on a blocking thread.
    pub fn first_error(&self, value: &Value) -> Option<String> {
        let validator = self.validator.get_or_init(|| compile(&self.schema)).as_ref()?;
        let error = validator.validate(value).err()?;
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!("`{place}`: ") };
        let what = error.masked_with("the value").to_string();
        Some(model_schema::bounded_text(
            &escape_hidden_line(&format!("{place}{what}")),
            MAX_ERROR_CHARS,
        ))
    }
}

fn compile(schema: &Arc<JsonObject>) -> Option<Validator> {
    // Such a schema is too large, recursive, or refers to another document.
    if model_schema::model_schema(schema).omission.is_some() {
        return None;
    }
    let mut features = SchemaFeatures::default();
    features.scan_object(schema);
    if features.has_unevaluated || features.has_slow_keywords && features.has_references {
        return None;
    }
    let patterns =
        PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options()
        .with_pattern_options(patterns)
        .should_validate_formats(false)
        .offline();
    options.build(&Value::Object(schema.as_ref().clone())).ok()
}

/// The features of a schema that decide whether validation is safe.
#[derive(Debug, Default)]
struct SchemaFeatures {
    has_references: bool,
    has_slow_keywords: bool,
    has_unevaluated: bool,
}

impl SchemaFeatures {
    fn scan_object(&mut self, fields: &Map<String, Value>) {
        for (key, value) in fields {
            self.has_references |= key == "$ref";
            self.has_slow_keywords |= SLOW_KEYWORDS.contains(&key.as_str());
            self.has_unevaluated |= key.starts_with("unevaluated");
            self.scan(value);
        }
    }

    fn scan(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => self.scan_object(fields),
            Value::Array(items) => items.iter().for_each(|it| self.scan(it)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn first_error(schema: Value, value: &Value) -> Option<String> {
        let Value::Object(schema) = schema else { panic!("no object") };
        SchemaValidator::new(Arc::new(schema)).first_error(value)
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
