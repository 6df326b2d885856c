//! Unions of schemas and their descriptions.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{JsonObject, MAX_BRANCHES, MAX_HINT_BYTES};

/// The minimal schema of a type.
pub(super) fn bare(kind: &str) -> Value {
    match kind {
        "array" => json!({ "type": "array", "items": { "type": "string" } }),
        _ => json!({ "type": kind }),
    }
}

/// The schemas that allow these values: strings as an `enum`, other values by their type and in the
/// description.
pub(super) fn choices(values: &[&Value]) -> Vec<Value> {
    let mut kinds: Vec<(&str, Vec<&Value>)> = Vec::new();
    for value in values {
        let kind = match value {
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Number(number) if number.is_f64() => "number",
            _ => "integer",
        };
        match kinds.iter_mut().find(|entry| entry.0 == kind) {
            Some((_, all)) => all.push(value),
            None => kinds.push((kind, vec![value])),
        }
    }
    kinds.into_iter().map(|(kind, values)| choice(kind, &values)).collect()
}

fn choice(kind: &str, values: &[&Value]) -> Value {
    if kind == "string" {
        let mut names: Vec<&str> = values.iter().filter_map(|value| value.as_str()).collect();
        let has_empty = names.contains(&"");
        let mut seen = HashSet::new();
        names.retain(|name| !name.is_empty() && seen.insert(*name));
        return match (names.is_empty(), has_empty) {
            (true, _) => json!({ "type": "string", "description": "Always empty." }),
            (_, true) => {
                json!({ "type": "string", "enum": names, "description": "May also be empty." })
            }
            _ => json!({ "type": "string", "enum": names }),
        };
    }
    let mut fields = bare(kind);
    let mut text = String::new();
    for value in values {
        let separator = if text.is_empty() { "One of: " } else { ", " };
        text.push_str(separator);
        text.push_str(&value.to_string());
        if text.len() > MAX_HINT_BYTES {
            return fields;
        }
    }
    fields["description"] = json!(text + ".");
    fields
}

/// A schema that allows any of the options.
pub(super) fn union(options: Vec<Value>, mut description: String) -> Value {
    let mut branches: Vec<Value> = Vec::new();
    for mut option in options {
        let Some(Value::Array(inner)) = option.get_mut("anyOf").map(Value::take) else {
            add_branch(&mut branches, option);
            continue;
        };
        add_sentence(&mut description, option["description"].as_str().unwrap_or_default());
        for branch in inner {
            add_branch(&mut branches, branch);
        }
    }
    match branches.pop() {
        None => described(Map::from_iter([("type".to_owned(), json!("string"))]), &description),
        Some(Value::Object(fields)) if branches.is_empty() => described(fields, &description),
        Some(last) => {
            branches.push(last);
            described(Map::from_iter([("anyOf".to_owned(), json!(branches))]), &description)
        }
    }
}

/// Adds a branch unless it exists. Two string enums are merged, keeping the description of each.
fn add_branch(branches: &mut Vec<Value>, mut branch: Value) {
    if branches.len() == MAX_BRANCHES || branches.contains(&branch) {
        return;
    }
    let Some(known) = branches
        .iter_mut()
        .find(|known| known.get("enum").is_some())
        .filter(|_| branch.get("enum").is_some())
    else {
        branches.push(branch);
        return;
    };
    note_meaning(known);
    note_meaning(&mut branch);
    let mut text = known["description"].as_str().unwrap_or_default().to_owned();
    add_sentence(&mut text, branch["description"].as_str().unwrap_or_default());
    if let (Value::Array(all), Value::Array(more)) = (known["enum"].take(), branch["enum"].take()) {
        let mut seen = HashSet::new();
        let names = all.into_iter().chain(more);
        known["enum"] = names.filter(|name| seen.insert(name.to_string())).collect();
    }
    if let Value::Object(fields) = std::mem::take(known) {
        *known = described_as(fields, &text);
    }
}

/// Prefixes the description of a single value with the value.
fn note_meaning(branch: &mut Value) {
    let only = branch["enum"]
        .as_array()
        .filter(|names| names.len() == 1)
        .map(|names| names[0].to_string());
    if let (Some(only), Some(text)) = (only, branch["description"].as_str()) {
        branch["description"] = json!(format!("{only}: {text}"));
    }
}

/// Adds a description in front of an existing one.
pub(super) fn described(fields: JsonObject, description: &str) -> Value {
    let mut text = description.to_owned();
    let own = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    add_sentence(&mut text, own);
    described_as(fields, &text)
}

fn described_as(mut fields: JsonObject, text: &str) -> Value {
    if !text.is_empty() {
        fields.insert("description".to_owned(), json!(text));
    }
    Value::Object(fields)
}

pub(super) fn add_sentence(text: &mut String, sentence: &str) {
    if sentence.is_empty() || text.contains(sentence) {
        return;
    }
    if text.ends_with(|c: char| c.is_alphanumeric() || c == ')') {
        text.push('.');
    }
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(sentence);
}
