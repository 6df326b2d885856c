//! Whether a value is what a server's own schema wants: arguments before a call, results after it.
//! A schema that cannot be used for that, or would take long, checks nothing.

use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, Validator};
use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use super::schema;
use turnwright_types::effect::visible_line;

/// Characters of what is said of a value.
const LONGEST: usize = 300;
/// Bytes of what a pattern may become.
const LARGEST_PATTERN: usize = 256 * 1024;
/// With references in them, these can take for ever.
const SLOW: [&str; 9] = [
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

/// A schema to check by. It is looked at when there is something to check.
#[derive(Debug)]
pub(super) struct Check {
    schema: Arc<JsonObject>,
    validator: OnceLock<Option<Validator>>,
}

impl Check {
    pub(super) fn new(schema: Arc<JsonObject>) -> Check {
        Check { schema, validator: OnceLock::new() }
    }

    /// What is wrong with a value: where, and what is expected. May take its time: not for the
    /// runtime's thread.
    pub(super) fn complaint(&self, value: &Value) -> Option<String> {
        let validator = self.validator.get_or_init(|| validator(&self.schema)).as_ref()?;
        let error = validator.validate(value).err()?;
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!("`{place}`: ") };
        let what = error.masked_with("the value").to_string();
        Some(schema::words(&visible_line(&format!("{place}{what}")), LONGEST))
    }
}

fn validator(schema: &Arc<JsonObject>) -> Option<Validator> {
    // Whatever was cut is too large or endless, or is described somewhere else.
    if schema::told(schema).lacks.is_some() {
        return None;
    }
    let mut keys = Keys::default();
    keys.look(schema);
    if keys.unevaluated || keys.slow && keys.references {
        return None;
    }
    let patterns =
        PatternOptions::regex().size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN);
    let options = jsonschema::options()
        .with_pattern_options(patterns)
        .should_validate_formats(false)
        .offline();
    options.build(&Value::Object(schema.as_ref().clone())).ok()
}

/// What stands in a schema.
#[derive(Debug, Default)]
struct Keys {
    references: bool,
    slow: bool,
    unevaluated: bool,
}

impl Keys {
    fn look(&mut self, fields: &Map<String, Value>) {
        for (key, value) in fields {
            self.references |= key == "$ref";
            self.slow |= SLOW.contains(&key.as_str());
            self.unevaluated |= key.starts_with("unevaluated");
            self.look_into(value);
        }
    }

    fn look_into(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => self.look(fields),
            Value::Array(items) => items.iter().for_each(|it| self.look_into(it)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaint(schema: Value, value: &Value) -> Option<String> {
        let Value::Object(schema) = schema else { panic!("no object") };
        Check::new(Arc::new(schema)).complaint(value)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
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
            assert_eq!(complaint(schema.clone(), &value).as_deref(), expected);
        }
    }

    #[test]
    fn a_schema_that_is_of_no_use_checks_nothing() {
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
            assert_eq!(complaint(schema.clone(), &json!({ "b": "y" })), None, "{schema}");
        }
    }
}
