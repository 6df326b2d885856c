//! Tool arguments: JSON schemas that the strictest servers accept, and parsing that repairs
//! harmless mistakes of models with the help of the same schema.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use turnwright_types::text;

mod repair;
mod specs;
#[cfg(test)]
mod tests;

pub(crate) use repair::{canonical_name, repair_arguments};
pub(super) use repair::{letters_and_digits, shell_line};
#[cfg(test)]
pub(super) use specs::derive::spec as derive_spec;
pub(super) use specs::spec;

use super::Tool;
use turnwright_types::error_text::field_error_text;
use turnwright_types::refusal::ToolRefusal;

/// At most this many unknown arguments are reported.
const MAX_IGNORED: usize = 8;
/// At most this many characters of each are shown.
const MAX_NAME_CHARS: usize = 40;
/// An error lists at most this many argument names.
const MAX_NAMES: usize = 12;
/// An error quotes at most this many characters of a value.
const MAX_VALUE_CHARS: usize = 80;
/// An error quotes at most this many characters of a serde error.
const MAX_ERROR_CHARS: usize = 200;

/// Parses arguments. If they do not fit, repairs mistakes that can be meant in only one way. Also
/// returns the names that the tool does not know.
pub(super) fn parse_arguments<T: Tool>(args: Value) -> Result<(T::Args, Vec<String>), ToolRefusal> {
    if let Ok((args, ignored)) = read(args.clone())
        && ignored.is_empty()
    {
        return Ok((args, ignored));
    }
    let schema = spec::<T>().parameters;
    let repaired = repair_arguments(args, &schema);
    read(repaired.clone()).map_err(|error| {
        let message = error.inner().to_string();
        // A field is called missing only if serde says so: a tool may accept names that are not in
        // its schema.
        let is_field_missing = message.contains("missing field");
        let problem =
            describe_problem(&repaired, &schema, "", is_field_missing).unwrap_or_else(|| {
                let place = Some(error.path().to_string()).filter(|place| place != ".");
                let fault = field_error_text(&place.unwrap_or_default(), &message);
                text::clip(fault, MAX_ERROR_CHARS)
            });
        let names = argument_names(&schema);
        let name = T::NAME;
        format!("Invalid arguments for {name}: {problem}. Nothing was executed. {names}.").into()
    })
}

/// Deserializes arguments. Also returns the places of unknown ones.
fn read<T: DeserializeOwned>(
    args: Value,
) -> Result<(T, Vec<String>), serde_path_to_error::Error<serde_json::Error>> {
    let mut ignored = Vec::new();
    let mut ignore = |unknown: Path<'_>| {
        if ignored.len() < MAX_IGNORED {
            ignored.push(text::first_chars(&place_text(&unknown), MAX_NAME_CHARS).to_owned());
        }
    };
    let reader = serde_ignored::Deserializer::new(args, &mut ignore);
    let read = serde_path_to_error::deserialize(reader)?;
    Ok((read, ignored))
}

/// The place of an argument, such as `edits[0].old_text`.
fn place_text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", place_text(parent)),
        Path::Map { parent: Path::Root, key } => key.clone(),
        Path::Map { parent, key } => format!("{}.{key}", place_text(parent)),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => place_text(parent),
    }
}

/// Why a text with a NUL is not written.
pub(super) const NUL_REFUSAL: &str = "The text contains a NUL character, with which a file is binary for every tool. Nothing was done. Write the \
     escape of the language, such as \\0 or \\u0000, as visible characters.";

/// True if a text among the arguments contains a NUL.
pub(super) fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.values().any(has_nul),
        _ => false,
    }
}

/// Tells the model what is wrong with a value: which argument, what it must be, and what was sent.
fn describe_problem(
    value: &Value,
    schema: &Value,
    place: &str,
    is_field_missing: bool,
) -> Option<String> {
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("object", Value::Object(fields)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut missing =
                required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
            let dot = if place.is_empty() { "" } else { "." };
            if let Some(missing) = missing.next()
                && is_field_missing
            {
                let names: Vec<_> = fields.keys().take(MAX_NAMES).map(String::as_str).collect();
                let sent = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                return Some(format!(
                    "`{place}{dot}{missing}` is missing, there is {}",
                    text::clip(sent, MAX_VALUE_CHARS)
                ));
            }
            fields.iter().find_map(|(key, value)| {
                describe_problem(
                    value,
                    &schema["properties"][key],
                    &format!("{place}{dot}{key}"),
                    is_field_missing,
                )
            })
        }
        ("array", Value::Array(items)) => items.iter().enumerate().find_map(|(number, item)| {
            describe_problem(
                item,
                &schema["items"],
                &format!("{place}[{number}]"),
                is_field_missing,
            )
        }),
        ("object", _) => Some(wrong_value(place, "an object", value)),
        ("array", _) => Some(wrong_value(place, "a list", value)),
        ("string", Value::String(text)) => {
            let words: Vec<_> =
                schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
            let is_known = words.contains(&text.as_str());
            (!is_known).then(|| wrong_value(place, &format!("one of {}", words.join(", ")), value))
        }
        ("string", _) => Some(wrong_value(place, "text", value)),
        ("integer", Value::Number(number)) if !number.is_f64() => None,
        ("integer", _) => Some(wrong_value(place, "a whole number", value)),
        ("number", _) if !value.is_number() => Some(wrong_value(place, "a number", value)),
        ("boolean", _) if !value.is_boolean() => Some(wrong_value(place, "true or false", value)),
        _ => None,
    }
}

fn wrong_value(place: &str, expected: &str, value: &Value) -> String {
    format!("`{place}` must be {expected}, not {}", quote_value(value))
}

fn quote_value(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(text::clip(text, MAX_VALUE_CHARS)).to_string(),
        Value::Array(_) | Value::Object(_) => text::clip(value.to_string(), MAX_VALUE_CHARS),
        value => value.to_string(),
    }
}

/// The list of all arguments.
fn argument_names(schema: &Value) -> String {
    let mut names = Vec::new();
    for (name, _) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = repair::is_required(schema, name);
        names.push(if is_required { format!("{name} (required)") } else { name.clone() });
    }
    match names.as_slice() {
        [] => "It takes no arguments".to_owned(),
        names => format!("It takes: {}", names.join(", ")),
    }
}
