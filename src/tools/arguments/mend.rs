//! The harmless mistakes of models, put right by the schema: only what can be meant in one way.

use serde_json::{Map, Value};

/// What models call things, and what the tools here call them. An argument is taken under such a
/// name only where the usual one is known and missing, and no other stands for it too.
const NAMES: &[(&str, &[&str])] = &[
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

/// What models also write for the argument of this name, as the tools here call it.
pub(crate) fn usual_name(name: &str) -> Option<&'static str> {
    let name = snake(name);
    NAMES.iter().find(|(usual, others)| *usual == name || others.contains(&&*name)).map(|it| it.0)
}

/// A value as the schema wants it.
pub(crate) fn mend(value: Value, schema: &Value) -> Value {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(fields)) => object(fields, schema),
        ("object" | "array", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => mend(inner, schema),
            _ if wanted == "array" && schema["items"]["type"] == "string" => vec![text].into(),
            _ => Value::String(text),
        },
        ("array", Value::Array(items)) => {
            items.into_iter().map(|it| mend(it, &schema["items"])).collect()
        }
        ("array", Value::Object(fields)) if schema["items"]["type"] == "object" => {
            Value::Array(vec![object(fields, &schema["items"])])
        }
        ("integer" | "number", Value::String(text)) => match serde_json::from_str(text.trim()) {
            Ok(number @ Value::Number(_)) => mend(number, schema),
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
        ("string", Value::String(text)) => Value::String(one_of(text, schema)),
        (_, value) => value,
    }
}

/// A word as the list of those that are known has it, whatever its case and hyphens.
fn one_of(text: String, schema: &Value) -> String {
    let known = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let alike = known.into_iter().find(|it| plain(it) == plain(&text));
    alike.map_or(text, str::to_owned)
}

fn object(fields: Map<String, Value>, schema: &Value) -> Value {
    let mut mended = fields;
    if let Some(known) = schema["properties"].as_object() {
        mended = renamed(mended, known);
        mended = gathered(mended, schema, known);
    }
    let field = |(key, value): (String, Value)| {
        let wanted = &schema["properties"][&key];
        let is_left_out = match &value {
            Value::Null => true,
            // An option that is not text, and left empty.
            Value::String(text) => {
                text.is_empty() && wanted.is_object() && wanted["type"] != "string"
            }
            _ => false,
        };
        let value = mend(value, wanted);
        (!is_left_out || is_required(schema, &key)).then_some((key, value))
    };
    Value::Object(mended.into_iter().filter_map(field).collect())
}

fn is_required(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|it| it.iter().any(|it| it == key))
}

/// Unknown arguments under the names that they must have been meant for.
fn renamed(fields: Map<String, Value>, known: &Map<String, Value>) -> Map<String, Value> {
    let target = |key: &str| meant(key, known, &fields);
    let mut targets: Vec<_> = fields.keys().map(|it| target(it)).collect();
    let all = targets.clone();
    for target in &mut targets {
        if all.iter().filter(|it| *it == target).count() > 1 {
            *target = None;
        }
    }
    let rename = |((key, value), target): (_, Option<String>)| (target.unwrap_or(key), value);
    fields.into_iter().zip(targets).map(rename).collect()
}

/// The known argument that is missing and that an unknown one stands for.
fn meant(key: &str, known: &Map<String, Value>, fields: &Map<String, Value>) -> Option<String> {
    if known.contains_key(key) {
        return None;
    }
    let is_missing = |it: &str| known.contains_key(it) && !fields.contains_key(it);
    let name = snake(key);
    if is_missing(&name) {
        return Some(name);
    }
    let stands_for = |others: &[&str]| others.contains(&name.as_str());
    let mut usual = NAMES.iter().filter(|(it, others)| is_missing(it) && stands_for(others));
    usual.next().map(|(it, _)| (*it).to_owned())
}

/// One edit whose fields stand where the list of edits should be, as that list.
fn gathered(
    mut fields: Map<String, Value>,
    schema: &Value,
    known: &Map<String, Value>,
) -> Map<String, Value> {
    let is_list = |(key, it): &(&String, &Value)| {
        !fields.contains_key(*key) && is_required(schema, key) && it["items"]["type"] == "object"
    };
    let Some((list, property)) = known.iter().find(is_list) else { return fields };
    let Some(inner) = property["items"]["properties"].as_object() else { return fields };
    let (mut one, mut rest) = (Map::new(), Map::new());
    for (key, value) in std::mem::take(&mut fields) {
        let is_inner = !known.contains_key(&key)
            && (inner.contains_key(&key) || meant(&key, inner, &Map::new()).is_some());
        if is_inner { &mut one } else { &mut rest }.insert(key, value);
    }
    if one.is_empty() {
        return rest;
    }
    rest.insert(list.clone(), Value::Array(vec![Value::Object(one)]));
    rest
}

/// `filePath` and `file-path` as `file_path`.
fn snake(name: &str) -> String {
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

/// A name by its letters and digits alone.
pub(in crate::tools) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|it| it.is_alphanumeric());
    letters.map(|it| it.to_ascii_lowercase()).collect()
}
