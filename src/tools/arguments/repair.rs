//! Repairs harmless mistakes in arguments with the help of the schema, if they can be meant in only
//! one way.

use serde_json::{Map, Value};

/// Argument names of our tools, with other names that models use for them. Another name is accepted
/// only if the tool has ours, it is missing, and no second argument stands for it.
const ALIASES: &[(&str, &[&str])] = &[
    (
        "path",
        &["file_path", "filepath", "file", "filename", "target_file", "dir", "directory", "folder"],
    ),
    ("command", &["cmd", "script", "shell_command"]),
    ("old_text", &["old_string", "old_str", "search"]),
    ("new_text", &["new_string", "new_str", "replace"]),
    ("content", &["contents", "text", "data"]),
    ("pattern", &["regex", "query"]),
    ("glob", &["pattern"]),
    ("entries", &["todos", "plan"]),
];

/// Our name for an argument that a model calls `name`.
pub(crate) fn canonical_name(name: &str) -> Option<&'static str> {
    let name = snake_case(name);
    let mut aliases = ALIASES.iter();
    let found = aliases.find(|(usual, others)| *usual == name || others.contains(&&*name));
    found.map(|(usual, _)| *usual)
}

/// Converts a value to the type that the schema expects, as far as the meaning is clear.
pub(crate) fn repair_arguments(value: Value, schema: &Value) -> Value {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(fields)) => object(fields, schema),
        ("object" | "array", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => repair_arguments(inner, schema),
            _ if wanted == "array" && schema["items"]["type"] == "string" => vec![text].into(),
            _ => Value::String(text),
        },
        ("array", Value::Array(items)) => {
            items.into_iter().map(|item| repair_arguments(item, &schema["items"])).collect()
        }
        ("array", Value::Object(fields)) if schema["items"]["type"] == "object" => {
            Value::Array(vec![object(fields, &schema["items"])])
        }
        ("integer" | "number", Value::String(text)) => match serde_json::from_str(text.trim()) {
            Ok(number @ Value::Number(_)) => repair_arguments(number, schema),
            _ => Value::String(text),
        },
        ("integer", Value::Number(number)) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => Value::Number(number),
        },
        ("boolean", Value::String(text)) => match text.trim() {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            _ => Value::String(text),
        },
        ("string", number @ Value::Number(_)) => Value::String(number.to_string()),
        ("string", Value::String(text)) => Value::String(matching_enum_value(text, schema)),
        (_, value) => value,
    }
}

/// The value of the enum that matches, regardless of case and punctuation.
fn matching_enum_value(text: String, schema: &Value) -> String {
    let mut known = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let alike = known.find(|value| letters_and_digits(value) == letters_and_digits(&text));
    alike.map_or(text, str::to_owned)
}

fn object(fields: Map<String, Value>, schema: &Value) -> Value {
    let mut repaired = fields;
    if let Some(known) = schema["properties"].as_object() {
        repaired = rename_aliases(repaired, known);
        repaired = gather_list_item(repaired, schema, known);
    }
    let path = repaired.get("path").and_then(Value::as_str).unwrap_or_default().trim();
    let names_json =
        [".json", ".jsonc", ".ipynb", ".geojson"].iter().any(|end| path.ends_with(end));
    let fields = repaired.into_iter();
    let kept = fields.filter_map(|(key, value)| repair_field(key, value, schema, names_json));
    Value::Object(kept.collect())
}

/// Repairs one field of an object. Returns `None` if it counts as left out.
fn repair_field(
    key: String,
    value: Value,
    schema: &Value,
    names_json: bool,
) -> Option<(String, Value)> {
    let wanted = &schema["properties"][&key];
    let value = match wanted["type"].as_str() {
        Some("string") => as_text(&key, value, names_json),
        _ => value,
    };
    let is_left_out = match &value {
        Value::Null => true,
        // An empty string for an optional argument that is not a string.
        Value::String(text) => text.is_empty() && wanted.is_object() && wanted["type"] != "string",
        _ => false,
    };
    let repaired = repair_arguments(value, wanted);
    (!is_left_out || is_required(schema, &key)).then_some((key, repaired))
}

/// The text that a value stands for, if it can only be one: parsers of model servers read text that is JSON, and
/// some models write a command as a list of words.
fn as_text(key: &str, value: Value, names_json: bool) -> Value {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let are_words = value.is_array() && words.len() == items.len();
    let is_written = key == "content" || key == "new_text";
    let blocks: Option<String> = items.iter().map(|block| block["text"].as_str()).collect();
    let text = match (&value, blocks) {
        (Value::Bool(_), _) if is_written => value.to_string(),
        (Value::Array(_), _) if are_words && key == "command" && words.len() > 1 => {
            shell_line(&words)
        }
        (Value::Array(_), _) if are_words && words.len() == 1 && !is_written => words[0].to_owned(),
        // Lines, or the text of a list?
        (Value::Array(_), _) if are_words && !names_json => return value,
        (Value::Array(_), Some(text)) if is_written && !names_json => text,
        (Value::Object(_) | Value::Array(_), _) if key == "content" => format!("{value:#}\n"),
        (Value::Object(_) | Value::Array(_), _) if is_written => format!("{value:#}"),
        _ => return value,
    };
    Value::String(text)
}

/// The line that runs a program with these arguments. The script of a shell is a line already.
pub(in crate::tools) fn shell_line(words: &[&str]) -> String {
    if let [shell, "-c" | "-lc", line] = words
        && ["bash", "sh", "zsh"].contains(&shell.rsplit('/').next().unwrap_or_default())
    {
        return (*line).to_owned();
    }
    let quoted = words.iter().map(|word| match word.trim_start_matches(needs_no_quotes) {
        "" if !word.is_empty() => (*word).to_owned(),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn needs_no_quotes(char: char) -> bool {
    char.is_alphanumeric() || "-_./,+:@%=".contains(char)
}

pub(super) fn is_required(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key))
}

/// Renames unknown arguments to the names that they must have been meant for.
fn rename_aliases(fields: Map<String, Value>, known: &Map<String, Value>) -> Map<String, Value> {
    let mut targets: Vec<_> = fields.keys().map(|key| intended_name(key, known, &fields)).collect();
    let all = targets.clone();
    for target in &mut targets {
        if all.iter().filter(|other| *other == target).count() > 1 {
            *target = None;
        }
    }
    let renamed = fields.into_iter().zip(targets);
    renamed.map(|((key, value), target)| (target.unwrap_or(key), value)).collect()
}

/// The missing known argument that an unknown one stands for.
fn intended_name(
    key: &str,
    known: &Map<String, Value>,
    fields: &Map<String, Value>,
) -> Option<String> {
    if known.contains_key(key) {
        return None;
    }
    let is_missing = |name: &str| known.contains_key(name) && !fields.contains_key(name);
    let name = snake_case(key);
    if is_missing(&name) {
        return Some(name);
    }
    let mut aliases = ALIASES.iter();
    let found =
        aliases.find(|(usual, others)| is_missing(usual) && others.contains(&name.as_str()));
    found.map(|(usual, _)| (*usual).to_owned())
}

/// Puts the fields of a single edit at the top level into the list where they belong.
fn gather_list_item(
    mut fields: Map<String, Value>,
    schema: &Value,
    known: &Map<String, Value>,
) -> Map<String, Value> {
    let missing_list = known.iter().find(|(key, property)| {
        !fields.contains_key(*key)
            && is_required(schema, key)
            && property["items"]["type"] == "object"
    });
    let Some((list, property)) = missing_list else { return fields };
    let Some(inner) = property["items"]["properties"].as_object() else { return fields };
    let mut one = Map::new();
    let mut rest = Map::new();
    for (key, value) in std::mem::take(&mut fields) {
        let is_inner = !known.contains_key(&key)
            && (inner.contains_key(&key) || intended_name(&key, inner, &Map::new()).is_some());
        if is_inner { &mut one } else { &mut rest }.insert(key, value);
    }
    if one.is_empty() {
        return rest;
    }
    rest.insert(list.clone(), Value::Array(vec![Value::Object(one)]));
    rest
}

/// Converts `filePath` and `file-path` to `file_path`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for char in name.chars() {
        if char.is_ascii_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = char.is_ascii_lowercase() || char.is_ascii_digit();
        snake.push(if char == '-' { '_' } else { char.to_ascii_lowercase() });
    }
    snake
}

/// The letters and digits of a name, in lower case.
pub(in crate::tools) fn letters_and_digits(name: &str) -> String {
    let letters = name.chars().filter(|char| char.is_alphanumeric());
    letters.map(|char| char.to_ascii_lowercase()).collect()
}
