//! Checks that a schema is within the subset for the strictest servers, for tests.

use std::collections::HashSet;

use serde_json::Value;

use crate::schema::{DEPTHS, JsonObject, is_short, list};

/// True if the schema only contains what [`provider_safe_schema`] leaves.
pub(super) fn is_provider_safe(schema: &Value) -> bool {
    let rooted = schema["type"] == "object" && schema["properties"].is_object();
    rooted && is_node(schema, 0)
}

fn is_node(schema: &Value, level: usize) -> bool {
    let Value::Object(fields) = schema else { return false };
    if level > DEPTHS[0] + 4 {
        return false;
    }
    let has_only = |known: &[&str]| {
        fields.keys().all(|key| key == "description" || known.contains(&key.as_str()))
            && fields.get("description").is_none_or(Value::is_string)
    };
    let count = |key: &str| fields.get(key).is_none_or(is_short);
    let number = |key: &str| fields.get(key).is_none_or(Value::is_number);
    if let Some(branches) = fields.get("anyOf") {
        let is_branch =
            |branch: &Value| branch.get("anyOf").is_none() && is_node(branch, level + 1);
        let all = branches
            .as_array()
            .is_some_and(|branches| branches.len() > 1 && branches.iter().all(is_branch));
        return all && has_only(&["anyOf"]);
    }
    match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" => {
            has_only(&["type", "properties", "required"])
                && are_properties(fields.get("properties"), level)
                && is_required(fields)
        }
        "array" => {
            has_only(&["type", "items", "minItems", "maxItems"])
                && fields.get("items").is_some_and(|items| is_node(items, level + 1))
                && count("minItems")
                && count("maxItems")
        }
        "string" => {
            has_only(&["type", "enum", "minLength", "maxLength"])
                && fields.get("enum").is_none_or(are_names)
                && count("minLength")
                && count("maxLength")
        }
        "number" | "integer" => {
            has_only(&["type", "minimum", "maximum"]) && number("minimum") && number("maximum")
        }
        "boolean" => has_only(&["type"]),
        _ => false,
    }
}

/// Only the root may have an empty list of properties.
fn are_properties(properties: Option<&Value>, level: usize) -> bool {
    match properties {
        None => level > 0,
        Some(Value::Object(all)) => {
            (level == 0 || !all.is_empty())
                && all.values().all(|property| is_node(property, level + 1))
        }
        Some(_) => false,
    }
}

fn is_required(fields: &JsonObject) -> bool {
    let Some(required) = fields.get("required") else { return true };
    let properties = fields.get("properties");
    are_names(required)
        && list(Some(required)).all(|name| {
            let known = properties.zip(name.as_str());
            known.is_some_and(|(all, name)| all.get(name).is_some())
        })
}

/// True for a non-empty list of distinct, non-empty strings.
fn are_names(list: &Value) -> bool {
    let Value::Array(list) = list else { return false };
    let mut seen = HashSet::new();
    !list.is_empty()
        && list.iter().all(|name| {
            let text = name.as_str().unwrap_or_default();
            !text.is_empty() && seen.insert(text)
        })
}
