//! Argument types ⇄ what models are told and what they send: flat schemas that the strictest
//! servers take, and the harmless mistakes of models put right by the same schema.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

mod mend;
mod read;
#[cfg(test)]
mod tests;

pub(super) use mend::plain;
pub(crate) use mend::{mend as mended, usual_name};

use super::Tool;
use turnwright_types::message::ToolSpec;

/// Names of arguments that an error repeats.
const MOST_NAMED: usize = 12;
/// Characters of a value that an error repeats.
const LONGEST_SHOWN: usize = 80;
/// Characters of an error that is not ours.
const LONGEST_ERROR: usize = 200;

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
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        // An argument that may be left out need not be null as well.
        values.retain(|it| !it.is_null());
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

/// Parses arguments; if they do not fit as they are, puts right what can be meant in one way only.
/// Returns the names that the tool does not know, too.
pub(super) fn understand<T: Tool>(args: Value) -> Result<(T::Args, Vec<String>), String> {
    if let Ok((args, ignored)) = read::read(args.clone())
        && ignored.is_empty()
    {
        return Ok((args, ignored));
    }
    let schema = Value::Object(schema::<T>());
    let mended = mend::mend(args, &schema);
    read::read(mended.clone()).map_err(|error| {
        let error = error.to_string();
        // A tool may know a name that is not in its schema.
        let lacks = error.contains("missing field");
        let problem = complaint(&mended, &schema, "", lacks);
        let problem = problem.unwrap_or_else(|| cut(&error, LONGEST_ERROR));
        let names = names(&schema);
        format!("Invalid arguments for {}: {problem}. Nothing was executed. {names}.", T::NAME)
    })
}

/// What is wrong with a value, to be put right by a model: which argument, what it should be and
/// what has come.
fn complaint(value: &Value, schema: &Value, place: &str, lacks: bool) -> Option<String> {
    let is = |what: &str| format!("`{place}` must be {what}, not {}", shown(value));
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("object", Value::Object(fields)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut missing =
                required.filter_map(Value::as_str).filter(|it| !fields.contains_key(*it));
            let dot = if place.is_empty() { "" } else { "." };
            if let Some(missing) = missing.next()
                && lacks
            {
                let sent: Vec<_> = fields.keys().take(MOST_NAMED).map(String::as_str).collect();
                let sent = if sent.is_empty() { "nothing".to_owned() } else { sent.join(", ") };
                return Some(format!(
                    "`{place}{dot}{missing}` is missing, there is {}",
                    cut(&sent, LONGEST_SHOWN)
                ));
            }
            fields.iter().find_map(|(key, value)| {
                complaint(value, &schema["properties"][key], &format!("{place}{dot}{key}"), lacks)
            })
        }
        ("array", Value::Array(items)) => items.iter().enumerate().find_map(|(number, item)| {
            complaint(item, &schema["items"], &format!("{place}[{number}]"), lacks)
        }),
        ("object", _) => Some(is("an object")),
        ("array", _) => Some(is("a list")),
        ("string", Value::String(text)) => {
            let words: Vec<_> =
                schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
            (!words.contains(&text.as_str())).then(|| is(&format!("one of {}", words.join(", "))))
        }
        ("string", _) => Some(is("text")),
        ("integer", Value::Number(number)) if !number.is_f64() => None,
        ("integer", _) => Some(is("a whole number")),
        ("number", it) if !it.is_number() => Some(is("a number")),
        ("boolean", it) if !it.is_boolean() => Some(is("true or false")),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(cut(text, LONGEST_SHOWN)).to_string(),
        Value::Array(_) | Value::Object(_) => cut(&value.to_string(), LONGEST_SHOWN),
        value => value.to_string(),
    }
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// All arguments that there are.
fn names(schema: &Value) -> String {
    let required = &schema["required"];
    let is_required =
        |it: &str| required.as_array().is_some_and(|all| all.iter().any(|one| one == it));
    let name = |it: &String| {
        if is_required(it) { format!("{it} (required)") } else { it.clone() }
    };
    let names: Vec<_> =
        schema["properties"].as_object().into_iter().flatten().map(|it| name(it.0)).collect();
    match names.as_slice() {
        [] => "It takes no arguments".to_owned(),
        names => format!("It takes: {}", names.join(", ")),
    }
}
