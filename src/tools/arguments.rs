//! Argument types ⇄ what models are told and what they send: flat schemas that the strictest
//! servers take, and the harmless mistakes of models put right by the same schema.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Tool;
use crate::message::ToolSpec;

/// What the model is told about a tool.
pub(super) fn spec<T: Tool>() -> ToolSpec {
    let mut schema = schema::<T>();
    let description = match schema.remove("description") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    ToolSpec { name: T::NAME.into(), description, parameters: Value::Object(schema) }
}

fn schema<T: Tool>() -> Map<String, Value> {
    let mut settings = SchemaSettings::draft07();
    // No `$ref` and no `definitions`: many servers refuse them.
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = settings.into_generator().into_root_schema_for::<T::Args>();
    let mut value = schema.to_value();
    simplify(&mut value);
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Leaves type, description, properties, required, items and enum: what every server knows.
fn simplify(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    fields.retain(|key, _| {
        matches!(
            key.as_str(),
            "type" | "description" | "properties" | "required" | "items" | "enum"
        )
    });
    if let Some(Value::Array(types)) = fields.get("type") {
        let first = types.iter().find(|it| *it != "null").cloned().unwrap_or(Value::Null);
        fields.insert("type".to_owned(), first);
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    if let Some(items) = fields.get_mut("items") {
        simplify(items);
    }
}

/// Parses arguments; if they do not fit, tries again with what the schema says about each.
pub(super) fn understand<T: Tool>(args: Value) -> Result<T::Args, String> {
    match serde_json::from_value(args.clone()) {
        Ok(args) => Ok(args),
        Err(error) => {
            let schema = schema::<T>();
            let coerced = coerce(args, &Value::Object(schema.clone()));
            serde_json::from_value(coerced).map_err(|_| {
                let known: Vec<_> = schema
                    .get("properties")
                    .and_then(Value::as_object)
                    .map(|it| it.keys().cloned().collect())
                    .unwrap_or_default();
                format!(
                    "Invalid arguments for {}: {error}. Nothing was executed. It takes: {}.",
                    T::NAME,
                    known.join(", ")
                )
            })
        }
    }
}

/// A value as the schema wants it, where there is only one way to mean it.
fn coerce(value: Value, schema: &Value) -> Value {
    let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(fields)) => {
            let properties = schema.get("properties");
            let field = |(key, value): (String, Value)| match properties.and_then(|it| it.get(&key))
            {
                Some(schema) => (key, coerce(value, schema)),
                None => (key, value),
            };
            Value::Object(fields.into_iter().map(field).collect())
        }
        ("array", Value::Array(items)) => {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            Value::Array(items.into_iter().map(|it| coerce(it, schema)).collect())
        }
        ("array", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(array @ Value::Array(_)) => coerce(array, schema),
            _ => Value::Array(vec![Value::String(text)]),
        },
        ("object", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => coerce(object, schema),
            _ => Value::String(text),
        },
        ("integer", Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => Value::String(text),
        },
        ("integer", Value::Number(number)) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => Value::Number(number),
        },
        ("boolean", Value::String(text)) => match text.trim() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::String(text),
        },
        ("string", number @ Value::Number(_)) => Value::String(number.to_string()),
        (_, value) => value,
    }
}
